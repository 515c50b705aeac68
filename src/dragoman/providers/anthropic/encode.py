"""From a call to a request: the members of the body, thinking, tools, cache marks and headers.

Everything but the system prompt and the messages is encoded once for all calls on the same terms; history.py encodes
the messages.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from dragoman.conversation import OneTool
from dragoman.errors import ConfigurationError
from dragoman.providers.codec import Adaptation, Call, Encoded, Frame, nothing_to_send, per_terms
from dragoman.providers.options import ModelOptions
from dragoman.providers.requests import (
    DeclaredTool,
    ToolNames,
    cache_mark,
    declare_tools,
    effective_options,
    enforced_schema,
    kinds_of,
    raw_tools,
    refuse_or_adapt,
    tools_beside,
)
from dragoman.providers.wire import as_object, read_members, read_text, value_of

from .history import FILES, READER, THINKS, ClaudeHistory
from .profiles import OLD_COMPUTER, VERTEX
from .server_tools import OLD_ROWS, ROWS, list_servers
from .thinking import Thinking, ask_for_thinking, check_sampling

_PATH: Final = "/v1/messages"
_VERSION: Final = "2023-06-01"
"""The next version takes no sampling parameters from any model, and adds nothing."""
_VERTEX_VERSION: Final = "vertex-2023-10-16"
_MOST_MARKS: Final = 4
_SAFE_MODEL: Final = re.compile(r"[A-Za-z0-9._@-]+").fullmatch
_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}

_encode = msgspec.json.encode


class _Frame(Frame, frozen=True, kw_only=True):
    system_end: bytes
    """The end of the system prompt's block, with a cache mark or without."""
    marks: int
    """How many of the user's turns are marked for the cache, and how."""
    mark: bytes


def encode_call(call: Call) -> Encoded:
    """The request for this call, and what was changed or left out."""
    conversation, terms = call.conversation, _decide_terms(call)
    history = terms.writer.write(conversation)
    if not history.pieces:
        raise nothing_to_send()
    system = conversation.system
    if system is None or not system or system.isspace():  # the API refuses an empty one
        system = None
    frame = terms.frames.get(key := (system is not None, THINKS in history.marks, FILES in history.marks))
    if frame is None:
        frame = terms.frames[key] = _make_frame(call, terms.writer.names, *key)
    if frame.marks:
        history = terms.writer.write_marked(conversation, frame.marks, frame.mark)
    members: list[bytes] = []
    if system is not None and "system" not in frame.given:
        members += (b',"system":[', _encode({"type": "text", "text": system})[:-1], frame.system_end, b"]")
    if "container" not in frame.given and (container := _find_container(call)):
        members += (b',"container":', _encode(container))
    if "messages" not in frame.given:
        members += (b',"messages":', *history.pieces, b"]}]")
    return frame.complete(members, history.losses)


class _Terms(NamedTuple):
    """What the terms of a call decide."""

    writer: ClaudeHistory
    frames: dict[tuple[bool, bool, bool], _Frame]
    """By whether there is a system prompt, thinking in the history, and a stored file."""


@per_terms
def _decide_terms(call: Call) -> _Terms:
    names = ToolNames([spec.name for spec in call.tools], call.profile.tool_limits)
    return _Terms(ClaudeHistory(call.profile, names), {})


def _make_frame(call: Call, names: ToolNames, system: bool, thinks: bool, files: bool) -> _Frame:
    adaptations: list[Adaptation] = []
    options = effective_options(call, adaptations, OLD_ROWS if OLD_COMPUTER in call.profile.quirks else ROWS)
    thinking = ask_for_thinking(call, options, adaptations, replayed=thinks)
    named = [str(as_object(value_of(raw)).get("name")) for raw in raw_tools(options)]
    tools = declare_tools(tools_beside(call, named) if named else call, names, adaptations, _encode_tool)
    mark = cache_mark(call.profile, options)
    marks = _choose_marks(options, system=system, tools=bool(tools))
    told = _put_search(call, options, tools)
    if "tools" in marks and told:
        tools[told - 1] = tools[told - 1][:-1] + b"," + mark + b"}"
    on_vertex = VERTEX in call.profile.quirks
    named = {"anthropic_version": _VERTEX_VERSION} if on_vertex else {"model": call.model}
    body: dict[str, object] = {**named, "max_tokens": thinking.max_tokens}
    if tools or options.server_tools:
        body["tools"] = [*map(Raw, tools), *options.server_tools]
    if servers := list_servers(call.options.server_tools):
        body["mcp_servers"] = servers
    body |= _choose_parameters(call, options, thinking, names, adaptations)
    body |= options.extra_body
    return _Frame(
        path=_vertex_path(call) if on_vertex else _PATH,
        members=_encode(body)[1:-1],
        given=frozenset(options.extra_body),
        system_end=b"," + mark + b"}" if "system" in marks else b"}",
        marks=marks.count("turn"),
        mark=mark,
        headers=_headers(options, thinking, [FILES_BETA] if files else []),
        adaptations=tuple(adaptations),
        tool_names=names.to_own,
    )


def _vertex_path(call: Call) -> str:
    """On Vertex AI the path names the model, behind a base URL with the project and the region."""
    if not _SAFE_MODEL(call.model):
        message = f"{call.model!r} cannot be the name of a model."
        raise ConfigurationError(message, hint="Use the name as Vertex AI has it, e.g. claude-sonnet-4-5@20250929.")
    return f"/publishers/anthropic/models/{call.model}:{'streamRawPredict' if call.stream else 'rawPredict'}"


def _choose_marks(options: ModelOptions, *, system: bool, tools: bool) -> list[str]:
    """What is marked for the cache. A request may have four marks, some of them in tools that the caller gives as JSON.

    Two turns are marked, since the provider looks for a cached prefix at most 20 blocks before a mark: the first of the
    two marks is where the last request had its second.
    """
    taken = sum([b'"cache_control"' in bytes(raw) for raw in raw_tools(options)])
    taken += "cache_control" in options.extra_body
    wanted = ["turn", *(["system"] if system else []), *(["tools"] if tools else []), "turn"]
    return wanted[: max(_MOST_MARKS - taken, 0)] if options.cache else []


def _find_container(call: Call) -> str | None:
    """The sandbox of the last reply that had one, which keeps the files of the code that the provider runs."""
    if not call.options.server_tools:
        return None
    for message in reversed(call.conversation.messages):
        native = message.native
        if native is not None and native.provider == READER and "container" in native.fields:
            return read_text(read_members(native.fields["container"]).get("id"))
    return None


# --- parameters -------------------------------------------------------------------------------------------------------


def _choose_parameters(
    call: Call, options: ModelOptions, thinking: Thinking, names: ToolNames, adaptations: list[Adaptation]
) -> dict[str, object]:
    found: dict[str, object] = {}
    if choice := _choose_tool(call, options, thinking, names, adaptations):
        found["tool_choice"] = choice
    if thinking.config is not None:
        found["thinking"] = thinking.config
    output: dict[str, object] = {} if thinking.effort is None else {"effort": thinking.effort}
    wanted = options.response_format
    if wanted is not None and (schema := enforced_schema(call, options, adaptations)) is not None:
        output["format"] = {"type": "json_schema", "schema": schema}
        if wanted.description:
            adaptations.append(Adaptation("description of the reply", "not sent: put it into the schema"))
    if output:
        found["output_config"] = output
    found |= check_sampling(call, options, thinking, adaptations)
    blank = [stop for stop in options.stop if not stop or stop.isspace()]
    if blank:
        why = "a stop sequence must hold more than white space"
        refuse_or_adapt(call, adaptations, f"stop={blank[0]!r}", why, "Leave it out.")
    if stops := [stop for stop in options.stop if stop not in blank]:
        found["stop_sequences"] = stops
    if options.user is not None:
        found["metadata"] = {"user_id": options.user}
    if call.stream:
        found["stream"] = True
    return found


def _choose_tool(
    call: Call, options: ModelOptions, thinking: Thinking, names: ToolNames, adaptations: list[Adaptation]
) -> dict[str, object] | None:
    if not (call.tools and call.profile.tools) and not options.server_tools:
        return None  # the API refuses a choice without tools
    wanted = options.tool_choice
    if thinking.kind == "enabled" and wanted not in {"auto", "none"}:
        why = "a tool call cannot be forced while the model thinks"
        refuse_or_adapt(call, adaptations, "tool_choice", why, "Leave reasoning or tool_choice out.")
        wanted = "auto"
    if isinstance(wanted, OneTool):
        choice: dict[str, object] = {"type": "tool", "name": names.wire(wanted.name)}
    else:
        choice = {"type": _CHOICES[wanted]}
    if options.parallel_tool_calls is False and wanted != "none":
        choice["disable_parallel_tool_use"] = True
    return None if choice == {"type": "auto"} else choice


# --- tools ------------------------------------------------------------------------------------------------------------


def _encode_tool(tool: DeclaredTool) -> bytes:
    described = {"description": tool.description} if tool.description else {}
    held = {"strict": True} if tool.strict else {}
    shown = {"input_examples": [example.input for example in tool.examples]} if tool.examples else {}
    later = {"defer_loading": True} if tool.deferred else {}
    return _encode({"name": tool.name, **described, "input_schema": tool.schema, **shown, **held, **later})


_SEARCH: Final = _encode({"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"})


def _put_search(call: Call, options: ModelOptions, tools: list[bytes]) -> int:
    """Insert the provider's search before the deferred tools, unless the caller gives one, and return how many tools
    are not deferred.

    The cache mark must be on one of these: the provider refuses it on a deferred tool.
    """
    if not call.profile.tool_search or not any(spec.deferred for spec in call.tools):
        return len(tools)
    place = sum([not spec.deferred for spec in call.tools])
    if any(kind.startswith("tool_search_tool") for kind in kinds_of(raw_tools(options))):
        return place
    tools.insert(place, _SEARCH)
    return place + 1


# --- headers: each beta feature needs a value in one ------------------------------------------------------------------

_BETA_OF_TOOL: Final = {
    "advisor_20260301": "advisor-tool-2026-03-01",
    "code_execution_20250522": "code-execution-2025-05-22",
    "computer_20250124": "computer-use-2025-01-24",
    "computer_20251124": "computer-use-2025-11-24",
    "mcp_toolset": "mcp-client-2025-11-20",
}
_BETA_OF_MEMBER: Final = {
    "compaction": "compact-2026-09-04",
    "context_management": "context-management-2025-06-27",
    "fallback_credit_token": "fallback-credit-2026-07-01",
    "fallbacks": "server-side-fallback-2026-07-01",
    "mcp_servers": "mcp-client-2025-11-20",
    "thread": "message-threads-2026-08-12",
}
FILES_BETA: Final = "files-api-2025-04-14"
_BETA_OF_BINDING: Final = "thinking-binding-controls-2026-08-01"


def _headers(options: ModelOptions, thinking: Thinking, more: list[str]) -> dict[str, str]:
    """The version of the API, the beta features that this request needs, and the caller's own headers."""
    given = {name.lower(): value for name, value in options.extra_headers.items()}
    betas = [_BETA_OF_BINDING] if thinking.config is not None and "block_binding" in thinking.config else []
    betas += [_BETA_OF_TOOL[kind] for kind in kinds_of(raw_tools(options)) if kind in _BETA_OF_TOOL]
    betas += [_BETA_OF_MEMBER[name] for name in options.extra_body if name in _BETA_OF_MEMBER]
    betas += [beta.strip() for beta in given.pop("anthropic-beta", "").split(",") if beta.strip()] + more
    header = {"anthropic-beta": ",".join(dict.fromkeys(betas))} if betas else {}
    return {"anthropic-version": _VERSION, **header, **given}
