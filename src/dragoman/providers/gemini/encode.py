"""From a call to one request: the path, options, thinking and tools.

All of the body but the contents and the system prompt depends on the terms of the call and on whether there is a system
prompt, and is written once for all calls on the same terms; history.py writes the contents.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw

from dragoman.conversation import Message, OneTool, StopReason
from dragoman.errors import ConfigurationError
from dragoman.providers.codec import Adaptation, Call, Encoded, Frame, per_terms
from dragoman.providers.options import Effort, ModelOptions, Reasoning
from dragoman.providers.requests import (
    ToldTool,
    ToolNames,
    choose_effort,
    convert_reply_schema,
    declare_tools,
    effective_options,
    effort_of_budget,
    merge_members,
    refuse_or_adapt,
)

from .history import READER, GeminiHistory
from .server_tools import ROWS, ROWS_OF_VERTEX

_SAFE_MODEL = re.compile(r"[A-Za-z0-9._@:/~-]+")
# Names that say where they are themselves. On Vertex AI a model is named with its publisher, and mostly its project.
_VERTEX = re.compile(r"projects/.+|publishers/.+")
_GEMINI_API = re.compile(r"models/.+|tunedModels/.+")

_NO_USER: Final = b'{"role":"user","parts":[{"text":""}]}'
"""An empty turn of the user, for conversations that begin with something else: the API wants the user first."""

_encode = msgspec.json.encode


class _Frame(Frame, frozen=True, kw_only=True):
    takes_system: bool
    """Whether our system prompt is put in: a model may have none."""
    history: GeminiHistory


def encode_call(call: Call) -> Encoded:
    """The request for this call, and what had to be changed or left out to make it."""
    conversation = call.conversation
    has_system = bool(conversation.system)
    frame = _make_frame(call, has_system)
    count, continuation = _find_continuation(conversation.messages)
    written = frame.history.write(conversation, count)
    pieces = written.pieces
    members: dict[str, Sequence[bytes]] = {}
    if continuation is not None:
        members["continuationToken"] = (bytes(continuation),)
    if has_system:
        part = b'"parts":[{"text":%b}]}' % _encode(conversation.system)
        if call.profile.system_role == "user":
            pieces = (b'{"role":"user",' + part, *pieces)
        elif frame.takes_system:
            members["systemInstruction"] = (b"{", part)
    if not pieces or pieces[0].startswith(b'{"role":"model"'):
        pieces = (_NO_USER, *pieces)
    members["contents"] = (b"[", b",".join(pieces), b"]")
    return frame.complete(members, written.losses)


@per_terms
def _make_frame(call: Call, system: bool) -> _Frame:
    adaptations: list[Adaptation] = []
    vertex = "vertex" in call.profile.quirks or _VERTEX.fullmatch(call.model) is not None
    own_tools = ROWS_OF_VERTEX if vertex else ROWS
    options = _separate_features(call, effective_options(call, adaptations, own_tools), adaptations)
    names = ToolNames([tool.name for tool in call.tools], call.profile.tool_limits)
    history = GeminiHistory(call.profile, names, vertex=vertex)
    takes_system = system and call.profile.system_role != "user"
    if system and not takes_system:
        adaptations.append(Adaptation("system prompt", "this model has none; it is sent as the user's first words"))
    functions = declare_tools(call, names, adaptations, _declare)
    own: list[object] = [{"functionDeclarations": functions}] if functions else []
    members: dict[str, object] = {
        "tools": own + list(options.server_tools),  # behind the functions
        "toolConfig": _configure_tools(call, options, history),
        "generationConfig": _configure_generation(call, options, adaptations),
    }
    if options.extra_body.get("cachedContent"):
        # What a cached content holds must not be in the request too: the API refuses both together.
        left_out = ["systemInstruction"] if takes_system else []
        left_out += [name for name in ("tools", "toolConfig") if members.pop(name)]
        adaptations += [Adaptation(name, "left out: it must be part of the cached content") for name in left_out]
        takes_system = False
    members = {name: value for name, value in members.items() if value}
    for name, value in options.extra_body.items():
        # The caller's own members: these two are laid over ours, anything else wins as a whole.
        below = members.get(name) if name in {"toolConfig", "generationConfig"} else None
        members[name] = merge_members(below, value)
    return _Frame(
        path=_build_path(call, vertex=vertex),
        members=_encode(members)[1:-1],
        given=frozenset(options.extra_body),
        takes_system=takes_system,
        history=history,
        headers=options.extra_headers,
        adaptations=tuple(adaptations),
        tool_names=names.to_own,
    )


def path_on_vertex(model: str) -> str:
    """Where Vertex AI has a model, behind a base URL with version, project and region, or the model's own."""
    if _checked(model).startswith("projects/"):
        return f"/v1beta1/{model}"
    publisher, _, name = model.removeprefix("publishers/").replace("/models/", "/").rpartition("/")
    return f"/publishers/{publisher or 'google'}/models/{name}"


def _checked(model: str) -> str:
    if not _SAFE_MODEL.fullmatch(model) or ".." in model:
        message = f"{model!r} cannot be the name of a model."
        raise ConfigurationError(message, hint="Use the name as Google's list of models has it.")
    return model


def _build_path(call: Call, *, vertex: bool) -> str:
    model = _checked(call.model)
    if "vertex" in call.profile.quirks:
        where = path_on_vertex(model)
    elif vertex:
        where = f"/v1beta1/{model}"
    else:
        where = f"/v1beta/{model}" if _GEMINI_API.fullmatch(model) else f"/v1beta/models/{model}"
    return f"{where}:{'streamGenerateContent?alt=sse' if call.stream else 'generateContent'}"


def _separate_features(call: Call, options: ModelOptions, adaptations: list[Adaptation]) -> ModelOptions:
    """Before Gemini 3, functions, the provider's own tools and a schema for the reply exclude each other."""
    if "no_combinations" not in call.profile.quirks:
        return options
    if options.response_format is not None and (call.tools or options.server_tools):
        why = "this model takes a schema for its reply only in requests without tools"
        refuse_or_adapt(call, adaptations, "response_format with tools", why, "Ask for the schema without tools.")
        options = msgspec.structs.replace(options, response_format=None)
    if call.tools and options.server_tools:
        why = "this model takes either functions or the provider's own tools"
        refuse_or_adapt(call, adaptations, "server_tools with tools", why, "Use one kind at a time.")
        options = msgspec.structs.replace(options, server_tools=())
    return options


def _find_continuation(messages: tuple[Message, ...]) -> tuple[int, Raw | None]:
    """How many messages are sent: without a paused reply at the end, if there is a token for its rest."""
    end = count = len(messages)
    while end and messages[end - 1].stop_reason is StopReason.PAUSED:
        end -= 1
    native = messages[-1].native if end < count else None
    token = native.fields.get("continuationToken") if native is not None and native.provider == READER else None
    return (count, None) if token is None else (end, token)


# --- generationConfig -------------------------------------------------------------------------------------------------

_PARAMETERS: Final = {
    "max_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "stop": "stopSequences",
    "seed": "seed",
    "choices": "candidateCount",
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


def _configure_generation(call: Call, options: ModelOptions, adaptations: list[Adaptation]) -> dict[str, object]:
    config: dict[str, object] = {}
    for option, usual in _PARAMETERS.items():
        value: object = getattr(options, option)
        if value is not None and value != ():
            config[call.profile.renamed.get(option, usual)] = value
    if options.logprobs is not None:
        config |= {"responseLogprobs": True, **({"logprobs": options.logprobs} if options.logprobs else {})}
    if options.response_format is not None:
        wanted = options.response_format
        schema, _ = convert_reply_schema(call, wanted, adaptations)
        if wanted.description and "description" not in schema:
            schema = {**schema, "description": wanted.description}
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = schema
    if options.reasoning is not None:
        thinking = _configure_thinking(call, options.reasoning, adaptations)
        if thinking:
            config["thinkingConfig"] = thinking
    return config


def _configure_thinking(call: Call, reasoning: Reasoning, adaptations: list[Adaptation]) -> dict[str, object]:
    by_budget = call.profile.reasoning == "budget"
    effort, budget = reasoning.effort, reasoning.budget
    if effort is not None and budget is not None:
        unused = "effort" if by_budget else "budget"
        adaptations.append(Adaptation(f"reasoning.{unused}", "not sent: only one of the two can be"))
        effort, budget = (None, budget) if by_budget else (effort, None)
    config: dict[str, object] = {}
    if effort is not None:
        effort = choose_effort(call, effort, adaptations)
    if by_budget:
        if effort is not None:
            budget = _BUDGETS[effort]
            why = f"this model is told a number of tokens: {effort!r} became {budget}"
            adaptations.append(Adaptation("reasoning.effort", why))
        if budget is not None:
            config["thinkingBudget"] = budget
    else:
        if budget is not None:
            effort = effort_of_budget(budget, _BUDGETS, call.profile.efforts)
            why = f"this model is told a level, not a number of tokens: {budget} became {effort!r}"
            adaptations.append(Adaptation("reasoning.budget", why))
        if effort is not None:
            config["thinkingLevel"] = effort.upper()
    if reasoning.summary and budget != 0:
        config["includeThoughts"] = True
    return config


# --- tools and toolConfig ---------------------------------------------------------------------------------------------

_MODES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def _declare(tool: ToldTool) -> dict[str, object]:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": Raw(_encode(tool.schema))}


def _configure_tools(call: Call, options: ModelOptions, history: GeminiHistory) -> dict[str, object]:
    """How the model is held to calling tools; empty if the default is wanted."""
    choice, calling = options.tool_choice, dict[str, object]()
    if not call.tools or not call.profile.tools:  # refused where there are no functions that it could be about
        return {}
    if isinstance(choice, OneTool):
        calling = {"mode": "ANY", "allowedFunctionNames": [history.names.wire(choice.name)]}
    elif choice != "auto":
        calling = {"mode": _MODES[choice]}
    elif call.profile.strict_tools and any(tool.strict for tool in call.tools):
        # The API holds the model to the schemas of all functions or of none.
        calling = {"mode": "VALIDATED"}
    config: dict[str, object] = {"functionCallingConfig": calling} if calling else {}
    if history.invocations and options.server_tools:
        # Without it, functions and the provider's own tools cannot be used in one request.
        config["includeServerSideToolInvocations"] = True
    return config
