"""From a call to a request: the path, options, thinking and tools.

Everything but the system prompt and the contents is encoded once for all calls on the same terms; history.py encodes
the contents.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import Raw

from dragoman.conversation import Message, OneTool, StopReason
from dragoman.errors import ConfigurationError
from dragoman.providers.codec import Adaptation, Call, Encoded, Frame, per_terms
from dragoman.providers.options import Effort, ModelOptions, Reasoning
from dragoman.providers.requests import (
    DeclaredTool,
    ToolNames,
    choose_effort,
    convert_reply_schema,
    declare_tools,
    effective_options,
    merge_members,
    refuse_or_adapt,
)

from .history import READER, GeminiHistory
from .server_tools import ROWS, ROWS_OF_VERTEX

_SAFE_MODEL = re.compile(r"[A-Za-z0-9._@:/~-]+")
# Names with a path. On Vertex AI a name has the publisher, and mostly the project.
_VERTEX = re.compile(r"projects/.+|publishers/.+")
_GEMINI_API = re.compile(r"models/.+|tunedModels/.+")

_NO_USER: Final = b'{"role":"user","parts":[{"text":""}]}'
"""An empty turn of the user, for conversations that begin with another one, which the API refuses."""

_encode = msgspec.json.encode


class _Frame(Frame, frozen=True, kw_only=True):
    takes_system: bool
    """Whether the system prompt is sent as such: some models take none, and the caller may give another one."""
    history: GeminiHistory


def encode_call(call: Call) -> Encoded:
    """The request for this call, and what was changed or left out."""
    conversation = call.conversation
    has_system = bool(conversation.system)
    frame = _make_frame(call, has_system)
    count, continuation = _find_continuation(conversation.messages)
    written = frame.history.write(conversation, count)
    pieces = written.pieces
    members: list[bytes] = []
    if continuation is not None and "continuationToken" not in frame.given:
        members += (b',"continuationToken":', bytes(continuation))
    if has_system:
        part = b'"parts":[{"text":%b}]}' % _encode(conversation.system)
        if call.profile.system_role == "user":
            pieces = (b'{"role":"user",' + part, *pieces)
        elif frame.takes_system:
            members += (b',"systemInstruction":{', part)
    if not pieces or pieces[0].startswith(b'{"role":"model"'):
        pieces = (_NO_USER, *pieces)
    if "contents" not in frame.given:
        members += (b',"contents":[', b",".join(pieces), b"]")
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
        # The API refuses these beside a cached content, which may contain them.
        left_out = ["systemInstruction"] if takes_system else []
        left_out += [name for name in ("tools", "toolConfig") if members.pop(name)]
        adaptations += [Adaptation(name, "left out: it must be part of the cached content") for name in left_out]
        takes_system = False
    members = {name: value for name, value in members.items() if value}
    for name, value in options.extra_body.items():
        # The caller's own members: these two are merged into ours, anything else replaces ours.
        below = members.get(name) if name in {"toolConfig", "generationConfig"} else None
        members[name] = merge_members(below, value)
    return _Frame(
        path=_build_path(call, vertex=vertex),
        members=_encode(members)[1:-1],
        given=frozenset(options.extra_body),
        takes_system=takes_system and "systemInstruction" not in options.extra_body,
        history=history,
        headers=options.extra_headers,
        adaptations=tuple(adaptations),
        tool_names=names.to_own,
    )


def path_on_vertex(model: str) -> str:
    """The path of a model on Vertex AI, behind a base URL with version, project and region, or behind the host."""
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
    """How many messages are sent, and the token for the rest of a paused reply, which itself is not sent."""
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

# The numbers are those of Google's own compatibility layer.
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
    budget = reasoning.budget if by_budget or reasoning.effort is None else None
    if by_budget and reasoning.effort is not None and budget is not None:
        adaptations.append(Adaptation("reasoning.effort", "not sent: only one of the two can be"))
    config: dict[str, object] = {}
    effort = None if by_budget and budget is not None else choose_effort(call, reasoning, adaptations, _BUDGETS)
    if effort is not None and by_budget:
        budget = _BUDGETS[effort]
        why = f"this model takes a number of tokens: {effort!r} became {budget}"
        adaptations.append(Adaptation("reasoning.effort", why))
    elif effort is not None:
        config["thinkingLevel"] = effort.upper()
    if by_budget and budget is not None:
        config["thinkingBudget"] = budget
    if reasoning.summary and budget != 0:
        config["includeThoughts"] = True
    return config


# --- tools and toolConfig ---------------------------------------------------------------------------------------------

_MODES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def _declare(tool: DeclaredTool) -> dict[str, object]:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": Raw(_encode(tool.schema))}


def _configure_tools(call: Call, options: ModelOptions, history: GeminiHistory) -> dict[str, object]:
    """How the model may call tools; empty for the default."""
    choice, calling = options.tool_choice, dict[str, object]()
    if not call.tools or not call.profile.tools:  # refused without functions
        return {}
    if isinstance(choice, OneTool):
        calling = {"mode": "ANY", "allowedFunctionNames": [history.names.wire(choice.name)]}
    elif choice != "auto":
        calling = {"mode": _MODES[choice]}
    elif call.profile.strict_tools and any(tool.strict for tool in call.tools):
        # The API enforces the schemas of all functions or of none.
        calling = {"mode": "VALIDATED"}
    config: dict[str, object] = {"functionCallingConfig": calling} if calling else {}
    if history.invocations and options.server_tools:
        # Required for functions beside the provider's own tools.
        config["includeServerSideToolInvocations"] = True
    return config
