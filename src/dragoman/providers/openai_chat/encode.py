"""From a call to a request.

Owns: the members of the body and their order; which option becomes which member.
Must not know: how messages (history.py) and tools (tools.py) are written.

The body is joined from bytes. What stands around the messages depends on the terms of the call alone, and is written
once for all calls on the same terms.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from dragoman.errors import ConfigurationError
from dragoman.providers.codec import Adaptation, Call, Encoded, WireRequest, per_terms
from dragoman.providers.names import ToolNames
from dragoman.providers.options import ModelOptions
from dragoman.providers.parameters import effective_options

from .history import HistoryWriter
from .reasoning import asked_reasoning, checked_sampling
from .tools import wire_choice, wire_format, wire_tools
from .wire import joined

__all__ = ["encode"]

_PATH: Final = "/chat/completions"
_encode: Final = msgspec.json.encode

# Options that are sent as they are, under the profile's name for them or their own.
_PLAIN: Final = ("max_tokens", "temperature", "top_p", "top_k", "seed", "user")


class _Frame(NamedTuple):
    """A request but for its messages."""

    before: bytes
    """The body up to the messages; all of it, where the caller gives messages of their own."""
    behind: bytes
    history: HistoryWriter
    headers: dict[str, str]
    adaptations: tuple[Adaptation, ...]
    names: ToolNames


def encode(call: Call) -> Encoded:
    """The request for this call, and what had to be named or left out to make it."""
    frame = _frame(call)
    messages, losses = frame.history.write(call.conversation)
    if not messages:
        message = "There is nothing to send: the conversation holds no message that this provider can take."
        raise ConfigurationError(message, hint="Add a message of the user.")
    body = b"".join((frame.before, messages, frame.behind)) if frame.behind else frame.before
    request = WireRequest(path=_PATH, body=body, headers=frame.headers)
    return Encoded(request=request, adaptations=frame.adaptations, losses=losses, tool_names=frame.names.to_own)


@per_terms
def _frame(call: Call) -> _Frame:
    adaptations: list[Adaptation] = []
    options, profile = effective_options(call, adaptations), call.profile
    names = ToolNames([spec.name for spec in call.tools], profile.tool_limits)
    mark = options.cache and "cache_marks" in profile.quirks
    body: dict[str, bytes] = {"model": _encode(call.model), "messages": b""}
    tools = wire_tools(call, names, adaptations, mark=mark)
    if tools is not None:
        body["tools"] = tools
    for name, value in _members(call, options, names, adaptations, tools=tools is not None).items():
        body[name] = _encode(value)
    body.update({name: _encode(value) for name, value in options.extra_body.items()})
    before, behind = joined(body), b""
    if not body["messages"]:
        del body["messages"]
        before = joined({"model": body.pop("model")})[:-1] + b',"messages":['
        behind = b"]," + joined(body)[1:] if body else b"]}"
    return _Frame(
        before=before,
        behind=behind,
        history=HistoryWriter(profile, names, mark=mark),
        headers=dict(options.extra_headers),
        adaptations=tuple(adaptations),
        names=names,
    )


def _members(
    call: Call, options: ModelOptions, names: ToolNames, adaptations: list[Adaptation], *, tools: bool
) -> dict[str, object]:
    """The members of the body besides the model, the messages and the tools."""
    profile = call.profile
    found: dict[str, object] = {}
    if tools:
        choice = wire_choice(options.tool_choice, names)
        if choice is not None:
            found["tool_choice"] = choice
        if options.parallel_tool_calls is not None and profile.parallel_tool_calls:
            found["parallel_tool_calls"] = options.parallel_tool_calls
    effort, reasoning = asked_reasoning(call, options, adaptations, tools=tools)
    left_out = checked_sampling(call, options, effort, adaptations)
    for name in _PLAIN:
        value = getattr(options, name)
        if value is not None and name not in left_out:
            found[profile.renamed.get(name, name)] = value
    if options.stop:
        found["stop"] = list(options.stop)
    found.update(reasoning)
    if options.response_format is not None:
        found["response_format"] = wire_format(call, options.response_format, adaptations)
    if call.stream:
        found["stream"] = True
        if "no_stream_options" not in profile.quirks:
            found["stream_options"] = {"include_usage": True}
    return found
