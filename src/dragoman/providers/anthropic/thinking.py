"""The thinking options of a request to Claude, also for Bedrock.

Older models take a budget of tokens, adaptive ones an effort. The other kind is converted to the nearest, and reported.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dragoman.providers.codec import Adaptation, Call
from dragoman.providers.options import Effort, ModelOptions, Reasoning
from dragoman.providers.requests import effort_of_budget, nearest_effort, refuse_or_adapt

from .profiles import ALWAYS_THINKS, BOUND, BUDGETS_TOO, HIDDEN, OFF_BETWEEN_TOOLS, ONE_SAMPLER

_LEAST_BUDGET: Final = 1024
_ROOM_FOR_ANSWER: Final = 1024
"""What is left of max_tokens for the answer if we choose the budget."""
_BUDGETS: Final[dict[Effort, int]] = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
    "max": 65536,
}
"""The tokens of each effort, from less to more."""


class Thinking(NamedTuple):
    """The thinking options of a request."""

    config: dict[str, object] | None
    """The member `thinking`; None leaves it to the model."""
    effort: str | None
    max_tokens: int

    @property
    def kind(self) -> object:
        """ "enabled" with a budget, "adaptive" with an effort."""
        return None if self.config is None else self.config["type"]


def ask_for_thinking(call: Call, options: ModelOptions, adaptations: list[Adaptation], *, replayed: bool) -> Thinking:
    """The thinking options. `replayed`: the history contains thinking."""
    profile, asked = call.profile, options.reasoning
    limit = 8192 if options.max_tokens is None else options.max_tokens
    if asked is None:
        found = Thinking(None, None, limit)
    elif asked.effort == "none" and asked.budget is None:
        found = _turn_thinking_off(call, adaptations, limit)
    elif profile.reasoning == "budget" or (asked.budget is not None and BUDGETS_TOO in profile.quirks):
        found = _ask_by_budget(call, asked, adaptations, limit)
    else:
        effort = _choose_effort(call, asked, adaptations)
        found = Thinking(_with_display(call, asked, {"type": "adaptive"}), effort, limit)
    if replayed and BOUND in profile.quirks and found.kind in {None, "enabled", "adaptive"}:
        # Histories may be branched, repaired or get another system prompt. The provider refuses a thought whose prefix
        # changed, unless it may drop that thought, which it reports in its reply.
        config = found.config or {"type": "adaptive"}
        found = found._replace(config={**config, "block_binding": {"prefix_mismatch_behavior": "drop_block"}})
    return found


def _turn_thinking_off(call: Call, adaptations: list[Adaptation], limit: int) -> Thinking:
    quirks = call.profile.quirks
    if ALWAYS_THINKS in quirks:
        hint = 'Ask for effort="low".'
        refuse_or_adapt(call, adaptations, 'reasoning effort "none"', "this model always thinks", hint)
        return Thinking(None, "low" if "low" in call.profile.efforts else None, limit)
    return Thinking({"type": "between_tools" if OFF_BETWEEN_TOOLS in quirks else "disabled"}, None, limit)


def _ask_by_budget(call: Call, asked: Reasoning, adaptations: list[Adaptation], limit: int) -> Thinking:
    budget, chosen = asked.budget, False
    effort = asked.effort if asked.effort in call.profile.efforts else None
    if budget is None:
        budget, chosen = _BUDGETS.get(asked.effort or "medium", _BUDGETS["medium"]), True
        if asked.effort is not None and effort is None:
            adaptations.append(Adaptation(f'reasoning effort "{asked.effort}"', f"sent as a budget of {budget} tokens"))
    if call.options.max_tokens is None:
        # max_tokens includes thinking: the default is for the answer, so the budget is added.
        limit = min(limit + budget, call.profile.max_output or limit + budget)
    if chosen:
        budget = min(budget, max(limit - _ROOM_FOR_ANSWER, _LEAST_BUDGET))
    if budget < _LEAST_BUDGET:
        why = f"the least is {_LEAST_BUDGET} tokens"
        refuse_or_adapt(call, adaptations, f"a reasoning budget of {budget}", why, f"Ask for {_LEAST_BUDGET} or more.")
        budget = _LEAST_BUDGET
    if budget >= limit:
        why = f"it must be less than max_tokens ({limit}), which includes thinking"
        refuse_or_adapt(call, adaptations, f"a reasoning budget of {budget}", why, "Raise max_tokens.")
        budget = limit - 1
    if budget < _LEAST_BUDGET:
        return Thinking(None, effort, limit)  # no room to think at all, as just reported
    return Thinking(_with_display(call, asked, {"type": "enabled", "budget_tokens": budget}), effort, limit)


def _choose_effort(call: Call, asked: Reasoning, adaptations: list[Adaptation]) -> str | None:
    efforts = call.profile.efforts
    if asked.budget is not None:
        nearest = effort_of_budget(asked.budget, _BUDGETS, efforts)
        adaptations.append(Adaptation(f"a reasoning budget of {asked.budget}", f'sent as effort "{nearest}"'))
        return nearest
    if asked.effort is None or asked.effort in efforts:
        return asked.effort
    nearest = nearest_effort(asked.effort, efforts)
    why = f'this model does not know it: sent as "{nearest}"'
    adaptations.append(Adaptation(f'reasoning effort "{asked.effort}"', why))
    return nearest


def _with_display(call: Call, asked: Reasoning, config: dict[str, object]) -> dict[str, object]:
    """The config with `display`, if the model's default is not what was asked for."""
    if asked.summary == (HIDDEN in call.profile.quirks):
        config["display"] = "summarized" if asked.summary else "omitted"
    return config


def check_sampling(
    call: Call, options: ModelOptions, thinking: Thinking, adaptations: list[Adaptation]
) -> dict[str, object]:
    """The sampling parameters that the API allows: with thinking only temperature 1, no top_k, and top_p from 0.95."""
    asked = {"temperature": options.temperature, "top_p": options.top_p, "top_k": options.top_k}
    found: dict[str, object] = {name: value for name, value in asked.items() if value is not None}
    if "temperature" in found and "top_p" in found and ONE_SAMPLER in call.profile.quirks:
        why = "this model takes temperature or top_p, not both"
        refuse_or_adapt(call, adaptations, "top_p", why, "Leave one of them out.")
        del found["top_p"]
    if thinking.kind in {"enabled", "adaptive"}:
        forbidden = {
            "temperature": options.temperature not in {None, 1},
            "top_k": options.top_k is not None,
            "top_p": options.top_p is not None and not 0.95 <= options.top_p <= 1,
        }
        for name in [name for name, wrong in forbidden.items() if wrong and name in found]:
            why = "it cannot be combined with thinking"
            refuse_or_adapt(call, adaptations, name, why, f"Leave {name} or reasoning out.")
            del found[name]
    return found
