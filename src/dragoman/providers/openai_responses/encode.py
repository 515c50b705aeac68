"""From a call to a request: parameters, tools, schemas, reasoning and state.

Requests are stateless: the whole conversation is sent, with encrypted reasoning, and nothing is stored unless the
caller's `extra_body` says so. Everything but the items is encoded once for all calls on the same terms; history.py
encodes the items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import msgspec
from msgspec import Raw

from dragoman.conversation import OneTool
from dragoman.errors import ConfigurationError
from dragoman.providers.codec import Adaptation, Call, Encoded, Frame, per_terms
from dragoman.providers.options import ModelOptions, Reasoning, ResponseFormat
from dragoman.providers.requests import (
    DeclaredTool,
    ToolNames,
    check_sampling,
    choose_effort,
    convert_reply_schema,
    declare_tools,
    effective_options,
    kinds_of,
    name_reply_schema,
    raw_tools,
    tools_beside,
)

from .history import ResponsesHistory
from .server_tools import ROWS
from .waiting import named_by

_encode: Final = msgspec.json.encode
_LOGPROBS: Final = "message.output_text.logprobs"


def encode_call(call: Call) -> Encoded:
    """The request for this call, and what was changed or left out."""
    frame, history = _make_frame(call)
    written = history.write(call.conversation)
    members: list[bytes] = []
    if call.conversation.system and "instructions" not in frame.given:
        members += (b',"instructions":', _encode(call.conversation.system))
    if "input" not in frame.given:
        members += (b',"input":[', b",".join(written.pieces), b"]")
    return frame.complete(members, written.losses)


@per_terms
def _make_frame(call: Call) -> tuple[Frame, ResponsesHistory]:
    adaptations: list[Adaptation] = []
    options = effective_options(call, adaptations, ROWS)
    names = ToolNames([tool.name for tool in call.tools], call.profile.tool_limits)
    extra = call.options.extra_body
    if held := [name for name in ("previous_response_id", "conversation") if extra.get(name)]:
        message = f"{held[0]} continues a conversation that the service stores, but all messages are sent every time."
        raise ConfigurationError(message, hint=f"Leave {held[0]} out of extra_body.")
    members = {"model": call.model, **_write_tools(call, options, names, adaptations)}
    members |= _write_options(call, options, adaptations)
    state = {**_choose_state(call, extra), **({"stream": True} if call.stream else {})}
    for name, value in (*state.items(), *extra.items()):
        members[name] = _merge(name, members.get(name), value)
    frame = Frame(
        path="/responses",
        members=_encode(members)[1:-1],
        given=frozenset(extra),
        headers=dict(call.options.extra_headers),
        adaptations=tuple(adaptations),
        tool_names=names.to_own,
    )
    return frame, ResponsesHistory(call.profile, names, stateless=members.get("store") is False)


def _write_options(call: Call, options: ModelOptions, adaptations: list[Adaptation]) -> dict[str, object]:
    renamed = call.profile.renamed
    asked = options.reasoning.effort if options.reasoning is not None else None
    left_out = check_sampling(call, options, asked, adaptations)
    members: dict[str, object] = {
        renamed.get("max_tokens", "max_output_tokens"): options.max_tokens,
        renamed.get("temperature", "temperature"): None if "temperature" in left_out else options.temperature,
        renamed.get("top_p", "top_p"): None if "top_p" in left_out else options.top_p,
        # `user` is the older name of this, kept by other servers.
        renamed.get("user", "safety_identifier"): options.user,
        "top_logprobs": None if "logprobs" in left_out else options.logprobs or None,
        "include": None if "logprobs" in left_out or options.logprobs is None else [_LOGPROBS],
        "reasoning": _ask_for_reasoning(call, options.reasoning, adaptations),
        "text": _write_format(call, options.response_format, adaptations),
    }
    return {name: value for name, value in members.items() if value is not None}


# --- tools and schemas ------------------------------------------------------------------------------------------------


def _write_tools(
    call: Call, options: ModelOptions, names: ToolNames, adaptations: list[Adaptation]
) -> dict[str, object]:
    own = raw_tools(options)
    written = declare_tools(tools_beside(call, named_by(own)) if own else call, names, adaptations, _write_tool)
    if call.profile.tool_search and any(spec.deferred for spec in call.tools) and "tool_search" not in kinds_of(own):
        written.insert(0, _SEARCH)
    written += own
    if not written:
        return {}
    members: dict[str, object] = {"tools": written}
    choice = options.tool_choice
    if isinstance(choice, OneTool):
        if choice.name not in names.to_wire:
            message = f"tool_choice names the tool {choice.name!r}, which is not among the tools of this call."
            raise ConfigurationError(message, hint="Offer the tool, or choose one of those that are offered.")
        members["tool_choice"] = {"type": "function", "name": names.wire(choice.name)}
    elif choice != "auto":
        members["tool_choice"] = choice
    if options.parallel_tool_calls is not None and call.profile.single_tool_calls:
        members["parallel_tool_calls"] = options.parallel_tool_calls
    return members


def _write_tool(tool: DeclaredTool) -> Raw:
    # `strict` is always sent, as its default is true.
    described = {"description": tool.description} if tool.description else {}
    named = {"type": "function", "name": tool.name, **described}
    later = {"defer_loading": True} if tool.deferred else {}
    return Raw(_encode({**named, "parameters": tool.schema, "strict": tool.strict, **later}))


_SEARCH: Final = Raw(b'{"type":"tool_search"}')
"""The service's own search, over the tools whose loading is deferred."""


def _write_format(call: Call, wanted: ResponseFormat | None, adaptations: list[Adaptation]) -> dict[str, object] | None:
    if wanted is None:
        return None
    schema, strict = convert_reply_schema(call, wanted, adaptations)
    described = {"description": wanted.description} if wanted.description else {}
    named = {"type": "json_schema", "name": name_reply_schema(wanted, adaptations)}
    return {"format": {**named, **described, "schema": schema, "strict": strict}}


# --- reasoning --------------------------------------------------------------------------------------------------------


def _ask_for_reasoning(call: Call, wanted: Reasoning | None, adaptations: list[Adaptation]) -> dict[str, object] | None:
    if wanted is None:
        return None
    members: dict[str, object] = {}
    effort = choose_effort(call, wanted, adaptations)
    if effort is not None:
        members["effort"] = effort
    if wanted.summary and effort != "none" and "no_reasoning_summary" not in call.profile.quirks:
        members["summary"] = "auto"
    return members or None


# --- state and the caller's own members -------------------------------------------------------------------------------


def _choose_state(call: Call, extra: Mapping[str, object]) -> dict[str, object]:
    """Nothing is stored, unless the caller asks for a feature that needs it."""
    state: dict[str, object] = {}
    if not extra.get("background"):
        state["store"] = False
    profile = call.profile
    if profile.reasoning != "none" and "no_encrypted_reasoning" not in profile.quirks and not extra.get("background"):
        state["include"] = ["reasoning.encrypted_content"]
    return state


def _merge(name: str, ours: object, theirs: object) -> object:
    """The caller's value wins; objects and `include` are merged."""
    if isinstance(ours, dict) and isinstance(theirs, Mapping):
        return {**cast("dict[str, object]", ours), **cast("Mapping[str, object]", theirs)}
    if name == "include" and isinstance(ours, list) and isinstance(theirs, list | tuple):
        mine, added = cast("list[object]", ours), list(cast("list[object]", theirs))
        return [*mine, *[what for what in added if what not in mine]] if added else added
    return theirs
