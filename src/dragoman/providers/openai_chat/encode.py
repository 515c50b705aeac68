"""From a call to a request: options, tools, schemas and reasoning as each server takes them.

Everything but the messages is encoded once for all calls on the same terms; history.py encodes the messages.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

from dragoman.conversation import OneTool
from dragoman.providers.codec import Adaptation, Call, Encoded, Frame, nothing_to_send, per_terms
from dragoman.providers.options import Effort, ModelOptions, Reasoning, ResponseFormat
from dragoman.providers.profile import Profile
from dragoman.providers.requests import (
    DeclaredTool,
    ToolNames,
    cache_mark,
    check_sampling,
    choose_effort,
    convert_reply_schema,
    declare_tools,
    effective_options,
    name_reply_schema,
    raw_tools,
    refuse_or_adapt,
)
from dragoman.providers.server_tools import ToolRow, ToolRows, WebSearch
from dragoman.providers.wire import read_members

from .history import ChatHistory

_encode: Final = msgspec.json.encode

# Options that are sent as they are, under the profile's name for them or their own.
_PLAIN: Final = ("max_tokens", "temperature", "top_p", "top_k", "seed", "user")


def encode_call(call: Call) -> Encoded:
    """The request for this call, and what was changed or left out."""
    frame, history = _make_frame(call)
    messages, losses = history.write_all(call.conversation)
    if not messages:
        raise nothing_to_send()
    return frame.complete(() if "messages" in frame.given else (b',"messages":[', messages, b"]"), losses)


@per_terms
def _make_frame(call: Call) -> tuple[Frame, ChatHistory]:
    adaptations: list[Adaptation] = []
    profile = call.profile
    options = effective_options(call, adaptations, _choose_rows(profile))
    names = ToolNames([spec.name for spec in call.tools], profile.tool_limits)
    mark = cache_mark(profile, options)
    searches = [read_members(raw) for raw in raw_tools(options) if bytes(raw).startswith(_SEARCHES)]
    tools = _write_tools(call, options, names, adaptations, mark)
    members: dict[str, object] = {"model": call.model, **({"tools": [*map(Raw, tools)]} if tools else {})}
    members |= _write_options(call, options, names, adaptations, tools=bool(tools))
    for search in searches:
        members |= search
    members |= options.extra_body
    frame = Frame(
        path="/chat/completions",
        members=_encode(members)[1:-1],
        given=frozenset(options.extra_body),
        headers=dict(options.extra_headers),
        adaptations=tuple(adaptations),
        tool_names=names.to_own,
    )
    return frame, ChatHistory(profile, names, mark)


def _write_options(
    call: Call, options: ModelOptions, names: ToolNames, adaptations: list[Adaptation], *, tools: bool
) -> dict[str, object]:
    """The members of the body besides the model, the messages and the tools."""
    profile = call.profile
    found: dict[str, object] = {}
    if tools:
        if isinstance(options.tool_choice, OneTool):
            found["tool_choice"] = {"type": "function", "function": {"name": names.wire(options.tool_choice.name)}}
        elif options.tool_choice != "auto":
            found["tool_choice"] = options.tool_choice
        if options.parallel_tool_calls is not None and profile.single_tool_calls:
            found["parallel_tool_calls"] = options.parallel_tool_calls
    effort = _choose_effort(call, options.reasoning, adaptations, tools=tools)
    left_out = check_sampling(call, options, effort, adaptations)
    for name in _PLAIN:
        value = getattr(options, name)
        if value is not None and name not in left_out:
            found[profile.renamed.get(name, name)] = value
    if options.logprobs is not None and "logprobs" not in left_out:
        found |= {"logprobs": True, **({"top_logprobs": options.logprobs} if options.logprobs else {})}
    if options.choices is not None:
        found["n"] = options.choices
    if options.stop:
        found["stop"] = list(options.stop)
    found.update(_ask_for_reasoning(effort, options.reasoning or Reasoning(), profile.quirks))
    if options.response_format is not None:
        found["response_format"] = _write_format(call, options.response_format, adaptations)
    if call.stream:
        found["stream"] = True
        if "no_stream_options" not in profile.quirks:
            found["stream_options"] = {"include_usage": True}
    return found


# --- tools and schemas ------------------------------------------------------------------------------------------------


# A member of the request for OpenAI's search models, a tool for OpenRouter.
_SEARCHES: Final = b'{"web_search_options":'
_SEARCH_TOOL: Final[ToolRows] = {
    WebSearch: ToolRow(
        {"type": "openrouter:web_search"},
        {
            "max_uses": "parameters.max_uses",
            "allowed_domains": "parameters.allowed_domains",
            "blocked_domains": "parameters.excluded_domains",
            "location": "parameters.user_location",
        },
    )
}


def _place(search: WebSearch) -> dict[str, object]:
    if search.location is None:
        return {}
    inner = {name: value for name, value in msgspec.structs.asdict(search.location).items() if value is not None}
    return {"web_search_options": {"user_location": {"type": "approximate", "approximate": inner}}}


_SEARCH_OPTIONS: Final[ToolRows] = {
    WebSearch: ToolRow({"web_search_options": {}}, rest=_place, taken=("location",)),
}


def _choose_rows(profile: Profile) -> ToolRows:
    if "web_search_options" in profile.quirks:
        return _SEARCH_OPTIONS
    return _SEARCH_TOOL if "web_search_tool" in profile.quirks else {}


def _write_tools(
    call: Call, options: ModelOptions, names: ToolNames, adaptations: list[Adaptation], mark: bytes
) -> list[bytes]:
    found = declare_tools(call, names, adaptations, _write_tool)
    if found and mark:
        found[-1] = found[-1][:-1] + b"," + mark + b"}"
    return found + [bytes(raw) for raw in raw_tools(options) if not bytes(raw).startswith(_SEARCHES)]


def _write_tool(tool: DeclaredTool) -> bytes:
    described = {"description": tool.description} if tool.description else {}
    held = {"strict": True} if tool.strict else {}
    function = {"name": tool.name, **described, "parameters": tool.schema, **held}
    return _encode({"type": "function", "function": function})


def _write_format(call: Call, wanted: ResponseFormat, adaptations: list[Adaptation]) -> object:
    schema, strict = convert_reply_schema(call, wanted, adaptations)
    described = {"description": wanted.description} if wanted.description else {}
    held = {"strict": True} if strict else {}
    written = {"name": name_reply_schema(wanted, adaptations), "schema": schema, **described, **held}
    return {"type": "json_schema", "json_schema": written}


# --- reasoning --------------------------------------------------------------------------------------------------------


def _choose_effort(
    call: Call, wanted: Reasoning | None, adaptations: list[Adaptation], *, tools: bool
) -> Effort | None:
    """The effort that is asked for. OpenAI's newer models take tools over this API only without reasoning."""
    quirks, effort = call.profile.quirks, None
    # OpenRouter takes a budget as well.
    if wanted is not None and (wanted.effort is not None or "reasoning_object" not in quirks):
        effort = choose_effort(call, wanted, adaptations)
    if tools and effort not in (None, "none") and "tools_without_effort" in quirks:
        why = "this model takes tools over this API only without reasoning"
        hint = "Use the responses API (openai-responses:…), which takes both."
        refuse_or_adapt(call, adaptations, f"reasoning effort {effort!r} with tools", why, hint)
        return "none"
    if tools and effort is None and "tools_want_no_effort" in quirks:
        adaptations.append(Adaptation("reasoning effort", "set to 'none': this API takes tools only so"))
        return "none"
    return effort


def _ask_for_reasoning(effort: Effort | None, wanted: Reasoning, quirks: frozenset[str]) -> dict[str, object]:
    if "reasoning_object" in quirks:  # OpenRouter: an effort or a number of tokens, and whether reasoning is shown
        asked: dict[str, object] = {}
        if effort is not None:
            asked["effort"] = effort
        elif wanted.budget is not None:
            asked["max_tokens"] = wanted.budget
        if asked and not wanted.summary:
            asked["exclude"] = True
        return {"reasoning": asked} if asked else {}
    if effort is None:
        return {}
    switch = {"thinking": {"type": "disabled" if effort == "none" else "enabled"}}
    if "thinking_switch" in quirks:  # DeepSeek and Z.ai: a switch, and an effort if it is on
        return {**switch} if effort == "none" else {**switch, "reasoning_effort": effort}
    if "bare_thinking_switch" in quirks:  # older models of the same: a switch without degrees
        return {**switch}
    # Groq: where the reasoning is put; by default it is part of the text.
    form = {"reasoning_format": "parsed" if wanted.summary else "hidden"}
    if "effort_default" in quirks:  # Qwen on Groq: on or off
        return {"reasoning_effort": "none"} if effort == "none" else {"reasoning_effort": "default", **form}
    return {"reasoning_effort": effort, **(form if "reasoning_format" in quirks else {})}
