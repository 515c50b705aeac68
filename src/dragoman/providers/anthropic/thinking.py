"""How thinking is asked for, and what it forbids beside it.

Owns: turning `Reasoning` into `thinking` and `output_config.effort` as the model's profile wants it, and the provider's
rules for options next to thinking.
Must not know: models by name.

Two generations: models with a budget take `enabled` and a number of tokens; adaptive ones decide themselves and take an
effort. A caller who says the one on a model that wants the other gets the nearest, and a report.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from dragoman.providers.codec import Adaptation, Call
from dragoman.providers.options import ModelOptions, Reasoning
from dragoman.providers.parameters import refuse_or_adapt

from .profiles import ALWAYS_THINKS, BOUND, BUDGETS_TOO, HIDDEN, OFF_BETWEEN_TOOLS, ONE_SAMPLER

__all__ = ["BINDING_BETA", "Thinking", "asked_thinking", "checked_sampling"]

BINDING_BETA: Final = "thinking-binding-controls-2026-08-01"

_LEAST_BUDGET: Final = 1024
_ROOM_FOR_ANSWER: Final = 1024
"""What is left of max_tokens for the answer where the budget is ours to choose."""

_BUDGET_OF: Final[dict[str, int]] = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
    "max": 65536,
}
_LADDER: Final = tuple(_BUDGET_OF)


class Thinking(Struct, frozen=True):
    """What a request says about thinking."""

    config: dict[str, object] | None = None
    """The member `thinking`; None leaves it to the model."""
    effort: str | None = None
    """The member `effort` of `output_config`."""
    max_tokens: int = 0

    @property
    def active(self) -> bool:
        """Whether thinking was asked for, so that the rules beside it hold."""
        return self.config is not None and self.config["type"] in {"enabled", "adaptive"}

    @property
    def budgeted(self) -> bool:
        """Whether it was asked for by a budget, which forbids more beside it."""
        return self.config is not None and self.config["type"] == "enabled"


def asked_thinking(call: Call, options: ModelOptions, adaptations: list[Adaptation], *, replayed: bool) -> Thinking:
    """What to say about thinking. `replayed`: thinking of earlier turns is sent along."""
    profile = call.profile
    asked = options.reasoning
    limit = 8192 if options.max_tokens is None else options.max_tokens
    if asked is None:
        found = Thinking(None, None, limit)
    elif asked.effort == "none" and asked.budget is None:
        found = _off(call, adaptations, limit)
    elif profile.reasoning == "budget" or (asked.budget is not None and BUDGETS_TOO in profile.quirks):
        found = _budgeted(call, asked, adaptations, limit)
    else:
        found = Thinking(_shown(call, asked, {"type": "adaptive"}), _effort(call, asked, adaptations), limit)
    if replayed and BOUND in profile.quirks and (found.config is None or found.active):
        # Histories here may be branched, mended or put under another system prompt. The provider would refuse a whole
        # request for one thought whose prefix changed; it shall drop that thought, and it says so in its reply.
        config = found.config or {"type": "adaptive"}
        bound = {**config, "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
        found = msgspec.structs.replace(found, config=bound)
    return found


def _off(call: Call, adaptations: list[Adaptation], limit: int) -> Thinking:
    quirks = call.profile.quirks
    if ALWAYS_THINKS in quirks:
        hint = 'Ask for effort="low".'
        refuse_or_adapt(call, adaptations, 'reasoning effort "none"', "this model always thinks", hint)
        return Thinking(None, "low" if "low" in call.profile.efforts else None, limit)
    return Thinking({"type": "between_tools" if OFF_BETWEEN_TOOLS in quirks else "disabled"}, None, limit)


def _budgeted(call: Call, asked: Reasoning, adaptations: list[Adaptation], limit: int) -> Thinking:
    efforts = call.profile.efforts
    budget, chosen = asked.budget, False
    effort = asked.effort if asked.effort in efforts else None
    if budget is None:
        budget, chosen = _BUDGET_OF.get(asked.effort or "medium", _BUDGET_OF["medium"]), True
        if asked.effort is not None and effort is None:
            adaptations.append(Adaptation(f'reasoning effort "{asked.effort}"', f"sent as a budget of {budget} tokens"))
    if call.options.max_tokens is None:
        # Thinking counts into max_tokens: the default is room for the answer, so the budget goes on top.
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
    return Thinking(_shown(call, asked, {"type": "enabled", "budget_tokens": budget}), effort, limit)


def _effort(call: Call, asked: Reasoning, adaptations: list[Adaptation]) -> str | None:
    efforts = call.profile.efforts
    if asked.budget is not None:
        enough = [effort for effort in _LADDER if _BUDGET_OF[effort] >= asked.budget]
        nearest = _nearest(enough[0] if enough else "max", efforts)
        adaptations.append(Adaptation(f"a reasoning budget of {asked.budget}", f'sent as effort "{nearest}"'))
        return nearest
    if asked.effort is None or asked.effort in efforts:
        return asked.effort
    nearest = _nearest(asked.effort, efforts)
    why = f'this model does not know it: sent as "{nearest}"'
    adaptations.append(Adaptation(f'reasoning effort "{asked.effort}"', why))
    return nearest


def _nearest(wanted: str, efforts: frozenset[str]) -> str | None:
    """The next lower effort that the model knows, else the lowest."""
    known = [effort for effort in _LADDER if effort in efforts]
    lower = [effort for effort in known if _LADDER.index(effort) <= _LADDER.index(wanted)]
    return lower[-1] if lower else known[0] if known else None


def _shown(call: Call, asked: Reasoning, config: dict[str, object]) -> dict[str, object]:
    """With `display` where the model's own default differs from what is wanted."""
    if asked.summary == (HIDDEN in call.profile.quirks):
        config["display"] = "summarized" if asked.summary else "omitted"
    return config


def checked_sampling(
    call: Call, options: ModelOptions, thinking: Thinking, adaptations: list[Adaptation]
) -> dict[str, object]:
    """Temperature and its kin as the API allows them. Thinking wants temperature 1, no top_k and top_p from 0.95."""
    found: dict[str, object] = {}
    for name in ("temperature", "top_p", "top_k"):
        value: float | int | None = getattr(options, name)
        if value is not None:
            found[name] = value
    if "temperature" in found and "top_p" in found and ONE_SAMPLER in call.profile.quirks:
        why = "this model takes temperature or top_p, not both"
        refuse_or_adapt(call, adaptations, "top_p", why, "Leave one of them out.")
        del found["top_p"]
    if thinking.active:
        top_p = options.top_p if "top_p" in found else None
        forbidden = {
            "temperature": options.temperature not in {None, 1},
            "top_k": options.top_k is not None,
            "top_p": top_p is not None and not 0.95 <= top_p <= 1,
        }
        for name in [name for name, wrong in forbidden.items() if wrong]:
            why = "it cannot be combined with thinking"
            refuse_or_adapt(call, adaptations, name, why, f"Leave {name} or reasoning out.")
            del found[name]
    return found
