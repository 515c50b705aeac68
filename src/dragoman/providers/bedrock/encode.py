"""From a call to a request: the path, inference parameters, tools, cache points and what only some makers take.

Everything but the system prompt and the messages is encoded once for all calls on the same terms; history.py encodes
the messages.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import Raw

from dragoman.conversation import OneTool
from dragoman.errors import ConfigurationError
from dragoman.providers.anthropic.thinking import Thinking, ask_for_thinking, check_sampling
from dragoman.providers.codec import Adaptation, Call, Encoded, Frame, nothing_to_send, per_terms
from dragoman.providers.options import ModelOptions, Reasoning
from dragoman.providers.requests import (
    DeclaredTool,
    ToolNames,
    choose_effort,
    declare_tools,
    effective_options,
    enforced_schema,
    merge_members,
    name_reply_schema,
    refuse_or_adapt,
)
from dragoman.providers.server_tools import ToolRow, ToolRows, WebSearch

from .history import CACHE_POINT, CALLS, BedrockHistory
from .profiles import CACHE_POINTS, CACHE_TOOLS, CLAUDE, NOVA, REASONING_MEMBERS

_STREAM: Final = {"accept": "application/vnd.amazon.eventstream"}
_MOST_MARKS: Final = 4
_UNSAFE: Final = re.compile(rb"[^A-Za-z0-9._~-]")

_encode = msgspec.json.encode


class _Frame(Frame, frozen=True, kw_only=True):
    mark_system: bool
    marks: int
    """Whether the system prompt is marked for the cache, and how many of the user's turns."""


def encode_call(call: Call) -> Encoded:
    """The request for this call, and what was changed or left out."""
    conversation, writer = call.conversation, _make_writer(call)
    system = conversation.system
    has_system = bool(system) and not system.isspace() and "system" not in call.options.extra_body
    history = writer.write(conversation)
    frame = _make_frame(call, has_system, CALLS in history.marks)
    if not history.pieces:
        raise nothing_to_send()
    if frame.marks:
        history = writer.write_marked(conversation, frame.marks, CACHE_POINT)
    members: list[bytes] = []
    if has_system:
        members += (b',"system":[', _encode({"text": system}), b"," + CACHE_POINT if frame.mark_system else b"", b"]")
    if "messages" not in frame.given:
        members += (b',"messages":', *history.pieces, b"]}]")
    return frame.complete(members, history.losses)


_TOOLS_OF_NOVA: Final[ToolRows] = {WebSearch: ToolRow({"systemTool": {"name": "nova_grounding"}})}


@per_terms
def _make_writer(call: Call) -> BedrockHistory:
    return BedrockHistory(call.profile, ToolNames([spec.name for spec in call.tools], call.profile.tool_limits))


@per_terms
def _make_frame(call: Call, system: bool, has_calls: bool) -> _Frame:
    adaptations: list[Adaptation] = []
    profile, names = call.profile, _make_writer(call).names
    options = effective_options(call, adaptations, _TOOLS_OF_NOVA if NOVA in profile.quirks else {})
    tools: list[object] = [*map(Raw, declare_tools(call, names, adaptations, _encode_tool)), *options.server_tools]
    cached = bool(options.cache) and CACHE_POINTS in profile.quirks
    if cached and options.cache == "1h":
        adaptations.append(Adaptation('cache="1h"', "cache points of Bedrock are kept for their usual few minutes"))
    mark_tools = cached and bool(tools) and CACHE_TOOLS in profile.quirks
    is_claude = CLAUDE in profile.quirks
    thinking = ask_for_thinking(call, options, adaptations, replayed=False) if is_claude else None
    members = _choose_members(call, options, thinking, adaptations)
    if tools and options.tool_choice == "none" and not is_claude:
        tools = _leave_out(tools, adaptations, has_calls=has_calls)
    if tools:
        marked = [*tools, Raw(CACHE_POINT)] if mark_tools else tools
        members["toolConfig"] = {"tools": marked, **_choose_tool(call, options, thinking, names, adaptations)}
        more = _restrict_calls(options, adaptations) if is_claude else {}
        members["additionalModelRequestFields"] = merge_members(members["additionalModelRequestFields"], more)
    for name, value in options.extra_body.items():
        # The caller's own members: objects are merged into ours, anything else replaces ours.
        members[name] = merge_members(members.get(name), value)
    path = f"/model/{_quote(call.model)}/converse{'-stream' if call.stream else ''}"
    return _Frame(
        path=path,
        members=_encode({name: value for name, value in members.items() if value})[1:-1],
        given=frozenset(options.extra_body),
        mark_system=cached and system,
        marks=min(2, _MOST_MARKS - mark_tools - system) if cached else 0,
        headers={**(_STREAM if call.stream else {}), **options.extra_headers},
        adaptations=tuple(adaptations),
        tool_names=names.to_own,
    )


def _quote(model: str) -> str:
    """The name as one segment of a path: an ARN has colons and slashes."""
    if not model.strip(". "):
        raise ConfigurationError(f"{model!r} cannot be the name of a model.", hint="Use the model's id, or an ARN.")
    return _UNSAFE.sub(lambda found: b"%%%02X" % found[0][0], model.encode()).decode()


# --- parameters -------------------------------------------------------------------------------------------------------


def _choose_members(
    call: Call, options: ModelOptions, thinking: Thinking | None, adaptations: list[Adaptation]
) -> dict[str, object]:
    """The parameters that all models know, and those of one maker's models."""
    limit, additional = options.max_tokens, dict[str, object]()
    sampling: dict[str, object] = {name: getattr(options, name) for name in ("temperature", "top_p", "top_k")}
    if thinking is not None:  # Claude
        sampling = check_sampling(call, options, thinking, adaptations)
        limit = thinking.max_tokens if thinking.kind == "enabled" else limit
        additional |= {"thinking": thinking.config} if thinking.config is not None else {}
        additional |= {"output_config": {"effort": thinking.effort}} if thinking.effort is not None else {}
    elif options.reasoning is not None:
        additional |= _ask_by_effort(call, options.reasoning, adaptations)
    if (most := sampling.get("top_k")) is not None:
        additional |= {"inferenceConfig": {"topK": most}} if NOVA in call.profile.quirks else {"top_k": most}
    inference = {
        "maxTokens": limit,
        "temperature": sampling.get("temperature"),
        "topP": sampling.get("top_p"),
        "stopSequences": options.stop or None,
    }
    members: dict[str, object] = {
        "inferenceConfig": {name: value for name, value in inference.items() if value is not None},
        "additionalModelRequestFields": additional,
    }
    wanted = options.response_format
    if wanted is not None and (schema := enforced_schema(call, options, adaptations)) is not None:
        named = {"name": name_reply_schema(wanted, adaptations), "schema": _encode(schema).decode()}
        described = {"description": wanted.description} if wanted.description else {}
        structure = {"jsonSchema": {**named, **described}}
        members["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": structure}}
    return members


def _ask_by_effort(call: Call, asked: Reasoning, adaptations: list[Adaptation]) -> dict[str, object]:
    is_nova = NOVA in call.profile.quirks
    if is_nova and asked.is_off:
        return {"reasoningConfig": {"type": "disabled"}}
    effort = choose_effort(call, asked, adaptations) or "medium"
    if is_nova:
        return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": effort}}
    member = next((name for name in REASONING_MEMBERS if name in call.profile.quirks), REASONING_MEMBERS[0])
    return {member: effort}


# --- tools ------------------------------------------------------------------------------------------------------------


def _encode_tool(tool: DeclaredTool) -> bytes:
    described = {"description": tool.description} if tool.description else {}
    held = {"strict": True} if tool.strict else {}
    return _encode({"toolSpec": {"name": tool.name, **described, "inputSchema": {"json": tool.schema}, **held}})


def _restrict_calls(options: ModelOptions, adaptations: list[Adaptation]) -> dict[str, object]:
    """What only Claude's own API can express: no call, or one at a time."""
    if options.tool_choice == "none":
        return {"tool_choice": {"type": "none"}}
    if options.parallel_tool_calls is not False:
        return {}
    if options.tool_choice == "auto":
        return {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    adaptations.append(Adaptation("parallel_tool_calls=False", "not sent: Bedrock takes it only if no call is forced"))
    return {}


def _leave_out(tools: list[object], adaptations: list[Adaptation], *, has_calls: bool) -> list[object]:
    """No tools, for a model that must call none; if the history has calls, the API requires the tools."""
    if not has_calls:
        return []
    why = "this model cannot be told so while there are calls in the history; it may call a tool"
    adaptations.append(Adaptation("tool_choice='none'", why))
    return tools


def _choose_tool(
    call: Call, options: ModelOptions, thinking: Thinking | None, names: ToolNames, adaptations: list[Adaptation]
) -> dict[str, object]:
    wanted = options.tool_choice
    if thinking is not None and thinking.kind == "enabled" and wanted not in ("auto", "none"):
        why = "a tool call cannot be forced while the model thinks"
        refuse_or_adapt(call, adaptations, "tool_choice", why, "Leave reasoning or tool_choice out.")
        return {}
    if isinstance(wanted, OneTool):
        return {"toolChoice": {"tool": {"name": names.wire(wanted.name)}}}
    return {"toolChoice": {"any": {}}} if wanted == "required" else {}
