"""From a call to a request.

Owns: the members of the body and their order; which option becomes which member.
Must not know: how messages (history.py) and tools (tools.py) are written.

The body is joined from bytes: messages and tools keep their wire forms beside them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dragoman.errors import ConfigurationError
from dragoman.providers.codec import Adaptation, Call, Encoded, Loss, WireRequest
from dragoman.providers.names import ToolNames
from dragoman.providers.options import ModelOptions
from dragoman.providers.parameters import effective_options

from .history import wire_history
from .reasoning import asked_reasoning, checked_sampling
from .tools import wire_choice, wire_format, wire_tools
from .wire import joined

__all__ = ["encode"]

_PATH: Final = "/chat/completions"
_encode: Final = msgspec.json.encode

# Options that are sent as they are, under the profile's name for them or their own.
_PLAIN: Final = ("max_tokens", "temperature", "top_p", "top_k", "seed", "user")


def encode(call: Call) -> Encoded:
    """The request for this call, and what had to be names or left out to make it."""
    adaptations: list[Adaptation] = []
    losses: list[Loss] = []
    options, profile = effective_options(call, adaptations), call.profile
    names = ToolNames([spec.name for spec in call.tools], profile.tool_limits)
    mark = options.cache and "cache_marks" in profile.quirks
    messages = wire_history(call.conversation, profile, names, losses, mark=mark)
    if messages == b"[]":
        message = "There is nothing to send: the conversation holds no message that this provider can take."
        raise ConfigurationError(message, hint="Add a message of the user.")
    body: dict[str, bytes] = {"model": _encode(call.model), "messages": messages}
    tools = wire_tools(call, names, adaptations, mark=mark)
    if tools is not None:
        body["tools"] = tools
    for name, value in _members(call, options, names, adaptations, tools=tools is not None).items():
        body[name] = _encode(value)
    body.update({name: _encode(value) for name, value in options.extra_body.items()})
    request = WireRequest(path=_PATH, body=joined(body), headers=dict(options.extra_headers))
    return Encoded(request=request, adaptations=tuple(adaptations), losses=tuple(losses), tool_names=names.to_own)


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
