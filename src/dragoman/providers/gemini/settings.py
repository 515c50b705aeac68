"""Options → `generationConfig` and `toolConfig`.

Owns: the names of the parameters, how thinking is asked for, and how the model is held to calling tools.
Must not know: messages, and how the request is put together.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dragoman.conversation import OneTool
from dragoman.providers.codec import Adaptation, Call
from dragoman.providers.names import ToolNames
from dragoman.providers.options import Effort, ModelOptions, Reasoning
from dragoman.providers.parameters import refuse_or_adapt
from dragoman.providers.schema import convert

__all__ = ["generation_config", "tool_config"]

_PARAMETERS: Final = {
    "max_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "stop": "stopSequences",
    "seed": "seed",
}

# From less to more. The numbers are those that Google's own compatibility layer uses for these words.
_BUDGETS: Final[dict[Effort, int]] = {
    "none": 0,
    "minimal": 1024,
    "low": 1024,
    "medium": 8192,
    "high": 24576,
    "xhigh": 24576,
    "max": 32768,
}
_EFFORTS: Final[tuple[Effort, ...]] = tuple(_BUDGETS)

_MODES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def generation_config(call: Call, options: ModelOptions, adaptations: list[Adaptation]) -> dict[str, object]:
    """The `generationConfig`; empty if nothing is asked for."""
    config: dict[str, object] = {}
    for option, usual in _PARAMETERS.items():
        value: object = getattr(options, option)
        if value is not None and value != ():
            config[call.profile.renamed.get(option, usual)] = value
    if options.response_format is not None:
        wanted = options.response_format
        style = call.profile.structured_schema
        schema, notes = convert(msgspec.json.decode(wanted.schema, type=dict[str, object]), style, strict=wanted.strict)
        adaptations += [Adaptation("schema of the reply", note) for note in notes]
        if wanted.description and "description" not in schema:
            schema = {**schema, "description": wanted.description}
        config["responseMimeType"] = "application/json"
        config["responseSchema" if style == "gemini" else "responseJsonSchema"] = schema
    if options.reasoning is not None:
        thinking = _thinking_config(call, options.reasoning, adaptations)
        if thinking:
            config["thinkingConfig"] = thinking
    return config


def _thinking_config(call: Call, reasoning: Reasoning, adaptations: list[Adaptation]) -> dict[str, object]:
    style = call.profile.reasoning
    effort, budget = reasoning.effort, reasoning.budget
    if effort is not None and budget is not None:
        unused = "effort" if style == "budget" else "budget"
        adaptations.append(Adaptation(f"reasoning.{unused}", "not sent: only one of the two can be"))
        effort, budget = (None, budget) if style == "budget" else (effort, None)
    config: dict[str, object] = {}
    if effort is not None:
        effort = _known_effort(call, effort, adaptations)
    if style == "budget":
        if effort is not None:
            budget = _BUDGETS[effort]
            why = f"this model is told a number of tokens: {effort!r} became {budget}"
            adaptations.append(Adaptation("reasoning.effort", why))
        if budget is not None:
            config["thinkingBudget"] = budget
    else:
        if budget is not None:
            effort = _nearest(_effort_for(budget), call.profile.efforts)
            why = f"this model is told a level, not a number of tokens: {budget} became {effort!r}"
            adaptations.append(Adaptation("reasoning.budget", why))
        if effort is not None:
            config["thinkingLevel"] = effort.upper()
    if reasoning.summary and budget != 0:
        config["includeThoughts"] = True
    return config


def _known_effort(call: Call, effort: Effort, adaptations: list[Adaptation]) -> Effort:
    """The effort, or the nearest one that the model knows."""
    efforts = call.profile.efforts
    if effort in efforts or not efforts:
        return effort
    instead = _nearest(effort, efforts)
    names = ", ".join(name for name in _EFFORTS if name in efforts)
    why = f"this model knows {names}; {instead!r} is the nearest"
    refuse_or_adapt(call, adaptations, f"reasoning.effort={effort!r}", why, f"Use one of: {names}.")
    return instead


def _effort_for(budget: int) -> Effort:
    """The least effort that comes with so many tokens."""
    fitting: list[Effort] = [effort for effort, tokens in _BUDGETS.items() if tokens >= budget]
    return fitting[0] if fitting else "max"


def _nearest(effort: Effort, efforts: frozenset[str]) -> Effort:
    place = _EFFORTS.index(effort)
    known: list[Effort] = [name for name in _EFFORTS if name in efforts] or [effort]
    return min(known, key=lambda name: abs(_EFFORTS.index(name) - place))


def tool_config(call: Call, options: ModelOptions, names: ToolNames, *, invocations: bool) -> dict[str, object]:
    """The `toolConfig` for a call with tools; empty if the default is wanted."""
    config: dict[str, object] = {}
    choice = options.tool_choice
    calling: dict[str, object] = {}
    if isinstance(choice, OneTool):
        calling = {"mode": "ANY", "allowedFunctionNames": [names.wire(choice.name)]}
    elif choice != "auto":
        calling = {"mode": _MODES[choice]}
    elif call.profile.strict_tools and any(tool.strict for tool in call.tools):
        # The API holds the model to the schemas of all functions or of none.
        calling = {"mode": "VALIDATED"}
    if calling and call.tools:  # refused where there are no functions that it could be about
        config["functionCallingConfig"] = calling
    if invocations and call.tools and options.server_tools:
        # Without it, functions and the provider's own tools cannot be used in one request.
        config["includeServerSideToolInvocations"] = True
    return config
