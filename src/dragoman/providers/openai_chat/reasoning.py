"""How a model is asked to think, in the words of each server, and what thinking rules out.

Owns: the members that ask for reasoning; OpenAI's rule that its newer models take tools, or temperature, only without.
Must not know: how reasoning comes back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.providers.codec import Adaptation, Call
from dragoman.providers.options import Effort, ModelOptions, Reasoning
from dragoman.providers.parameters import refuse_or_adapt

__all__ = ["asked_reasoning", "checked_sampling"]

_SCALE: Final[tuple[Effort, ...]] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_RESPONSES: Final = "Use the responses API (openai-responses:…), which takes both."


def asked_reasoning(
    call: Call, options: ModelOptions, adaptations: list[Adaptation], *, tools: bool
) -> tuple[Effort | None, dict[str, object]]:
    """The effort that is asked for, and the members that ask for it."""
    wanted = options.reasoning
    effort = _effort(call, wanted, adaptations) if wanted is not None else None
    quirks = call.profile.quirks
    if tools and effort not in (None, "none") and "tools_without_effort" in quirks:
        why = "this model takes tools over this API only without reasoning"
        refuse_or_adapt(call, adaptations, f"reasoning effort {effort!r} with tools", why, _RESPONSES)
        effort = "none"
    if tools and effort is None and "tools_want_no_effort" in quirks:
        adaptations.append(Adaptation("reasoning effort", "set to 'none': this API takes tools only so"))
        effort = "none"
    ask = next((_STYLES[quirk] for quirk in _STYLES if quirk in quirks), _plain)
    return effort, ask(effort, wanted or Reasoning())


def checked_sampling(
    call: Call, options: ModelOptions, effort: Effort | None, adaptations: list[Adaptation]
) -> set[str]:
    """Options to leave out because the model reasons: some take temperature and top_p only when they do not."""
    quirks = call.profile.quirks
    thinks = effort != "none" if "sampling_wants_no_effort" in quirks else effort not in (None, "none")
    if not thinks or not quirks & {"sampling_wants_no_effort", "sampling_without_effort"}:
        return set()
    left_out = {name for name in ("temperature", "top_p") if getattr(options, name) is not None}
    for name in sorted(left_out):
        hint = "Leave it out, or say reasoning=Reasoning(effort='none')."
        refuse_or_adapt(call, adaptations, name, "this model takes it only without reasoning", hint)
    return left_out


def _effort(call: Call, wanted: Reasoning, adaptations: list[Adaptation]) -> Effort | None:
    efforts, effort = call.profile.efforts, wanted.effort
    if effort is None:
        if wanted.budget is not None and "reasoning_object" not in call.profile.quirks:
            hint = f"Say an effort: {', '.join(_known(efforts))}."
            why = "this model takes an effort, not a number of tokens"
            refuse_or_adapt(call, adaptations, "reasoning budget", why, hint)
        return None
    if not efforts or effort in efforts:
        return effort
    nearest = min(_known(efforts), key=lambda known: (abs(_SCALE.index(known) - _SCALE.index(effort)), known))
    why = f"this model knows {', '.join(_known(efforts))}"
    refuse_or_adapt(call, adaptations, f"reasoning effort {effort!r}", why, f"Say {nearest!r}.")
    return nearest


def _known(efforts: frozenset[str]) -> list[Effort]:
    return [effort for effort in _SCALE if effort in efforts]


# --- the words of each server ---


def _plain(effort: Effort | None, _wanted: Reasoning) -> dict[str, object]:
    return {} if effort is None else {"reasoning_effort": effort}


def _object(effort: Effort | None, wanted: Reasoning) -> dict[str, object]:
    """OpenRouter: an effort or a number of tokens, and whether the reasoning is shown."""
    asked: dict[str, object] = {}
    if effort is not None:
        asked["effort"] = effort
    elif wanted.budget is not None:
        asked["max_tokens"] = wanted.budget
    if asked and not wanted.summary:
        asked["exclude"] = True
    return {"reasoning": asked} if asked else {}


def _switch(effort: Effort | None, _wanted: Reasoning) -> dict[str, object]:
    """DeepSeek and Z.ai: a switch, and an effort if it is on."""
    if effort is None:
        return {}
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    return {"thinking": {"type": "enabled"}, "reasoning_effort": effort}


def _bare_switch(effort: Effort | None, _wanted: Reasoning) -> dict[str, object]:
    """Older models of the same: a switch without degrees."""
    return {} if effort is None else {"thinking": {"type": "disabled" if effort == "none" else "enabled"}}


def _default(effort: Effort | None, wanted: Reasoning) -> dict[str, object]:
    """Qwen on Groq: on or off, in words of its own."""
    if effort is None:
        return {}
    if effort == "none":
        return {"reasoning_effort": "none"}
    return {"reasoning_effort": "default", **_format(wanted)}


def _formatted(effort: Effort | None, wanted: Reasoning) -> dict[str, object]:
    """Groq: an effort, and where the reasoning is put; left to itself it stands among the text."""
    return {} if effort is None else {"reasoning_effort": effort, **_format(wanted)}


def _format(wanted: Reasoning) -> dict[str, object]:
    return {"reasoning_format": "parsed" if wanted.summary else "hidden"}


_STYLES: Final[dict[str, Callable[[Effort | None, Reasoning], dict[str, object]]]] = {
    "reasoning_object": _object,
    "thinking_switch": _switch,
    "bare_thinking_switch": _bare_switch,
    "effort_default": _default,
    "reasoning_format": _formatted,
}
