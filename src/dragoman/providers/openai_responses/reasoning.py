"""How much a model shall think, in the words that it knows.

Owns: efforts, and the rule that models which reason take no sampling parameters.
Must not know: which model that is (its profile says so).
"""

from __future__ import annotations

from typing import Final

import msgspec

from dragoman.providers.codec import Adaptation, Call
from dragoman.providers.options import ModelOptions, Reasoning
from dragoman.providers.parameters import refuse_or_adapt

__all__ = ["reasoning_of", "without_sampling"]

_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# Budgets that come close to what the efforts spend; only where the caller allows adapting.
_EFFORT_OF_BUDGET: Final = ((0, "none"), (2_048, "low"), (16_384, "medium"))

_SAMPLING: Final = ("temperature", "top_p")


def reasoning_of(call: Call, wanted: Reasoning | None, adaptations: list[Adaptation]) -> dict[str, object] | None:
    """The `reasoning` member; None where there is nothing to say."""
    if wanted is None:
        return None
    members: dict[str, object] = {}
    effort = _effort(call, wanted, adaptations)
    if effort is not None:
        members["effort"] = effort
    if wanted.summary and effort != "none" and "no_reasoning_summary" not in call.profile.quirks:
        members["summary"] = "auto"
    return members or None


def without_sampling(call: Call, options: ModelOptions, adaptations: list[Adaptation]) -> ModelOptions:
    """Models that can stop reasoning take sampling parameters, but only then."""
    quirks = call.profile.quirks
    effort = options.reasoning.effort if options.reasoning is not None else None
    reasons = {"reasons_on_request": effort not in {None, "none"}, "reasons_unless_told": effort != "none"}
    if not any(reasons[quirk] for quirk in reasons.keys() & quirks):
        return options
    changes: dict[str, object] = {}
    for name in _SAMPLING:
        if getattr(options, name) is not None:
            why = "this model takes it only while it does not reason"
            refuse_or_adapt(call, adaptations, name, why, "Say reasoning=Reasoning(effort='none') with it.")
            changes[name] = None
    return msgspec.structs.replace(options, **changes) if changes else options


def _effort(call: Call, wanted: Reasoning, adaptations: list[Adaptation]) -> str | None:
    known = call.profile.efforts
    effort: str | None = wanted.effort
    if effort is None and wanted.budget is not None:
        budget = wanted.budget
        effort = next((word for limit, word in _EFFORT_OF_BUDGET if budget <= limit), "high")
        what = f"reasoning budget of {budget} tokens"
        refuse_or_adapt(call, adaptations, what, f"this model knows only efforts; {effort!r} is near", "Say an effort.")
    if effort is None or effort in known or not known:
        return effort
    rank = _EFFORTS.index(effort)
    near = min(known, key=lambda word: (abs(_EFFORTS.index(word) - rank), _EFFORTS.index(word)))
    why = f"this model knows {', '.join(sorted(known, key=_EFFORTS.index))}; {near!r} is the nearest"
    refuse_or_adapt(call, adaptations, f"reasoning effort {effort!r}", why, "Say one of these.")
    return near
