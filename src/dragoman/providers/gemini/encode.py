"""A call → one request.

Owns: the path, the body and what goes together in it.
Must not know: how a message or a parameter is written; history.py and settings.py do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, cast

import msgspec

from dragoman.conversation import Message, StopReason, ToolSpec
from dragoman.errors import ConfigurationError
from dragoman.providers.codec import (
    Adaptation,
    Call,
    Encoded,
    Loss,
    WireRequest,
    Written,
    remembered,
    written_up_to,
)
from dragoman.providers.names import ToolNames
from dragoman.providers.options import ModelOptions
from dragoman.providers.parameters import effective_options, refuse_or_adapt
from dragoman.providers.profile import SchemaStyle
from dragoman.providers.schema import convert

from .history import NO_USER, Manner, further
from .settings import generation_config, tool_config
from .wire import READER

__all__ = ["encode"]

_json = msgspec.json.encode
_NOTHING = Written()

_SAFE_MODEL = re.compile(r"[A-Za-z0-9._@:/~-]+")
# Names that say where they are themselves. On Vertex AI a model is named with its publisher, and mostly its project.
_VERTEX = re.compile(r"projects/.+|publishers/.+")
_GEMINI_API = re.compile(r"models/.+|tunedModels/.+")


class _Work(NamedTuple):
    """A request in the making."""

    call: Call
    options: ModelOptions
    manner: Manner
    adaptations: list[Adaptation]
    losses: list[Loss]


def encode(call: Call) -> Encoded:
    """The request for this call."""
    adaptations: list[Adaptation] = []
    options = _combinable(call, effective_options(call, adaptations), adaptations)
    if call.tools and not call.profile.tools:
        refuse_or_adapt(call, adaptations, "tools", "this model calls no functions", "Leave the tools out.")
        call = msgspec.structs.replace(call, tools=())
    names = ToolNames([tool.name for tool in call.tools], call.profile.tool_limits)
    vertex = "vertex" in call.profile.quirks or _VERTEX.fullmatch(call.model) is not None
    work = _Work(call, options, Manner.of(call.profile, names, vertex=vertex), adaptations, [])
    request = WireRequest(path=_path(call, vertex=vertex), body=_body(work), headers=options.extra_headers)
    return Encoded(request=request, adaptations=tuple(adaptations), losses=tuple(work.losses), tool_names=names.to_own)


def _path(call: Call, *, vertex: bool) -> str:
    model = call.model
    if not _SAFE_MODEL.fullmatch(model) or ".." in model:
        message = f"{model!r} cannot be the name of a model."
        raise ConfigurationError(message, hint="Use the name as Google's list of models has it.")
    if _VERTEX.fullmatch(model):
        where = f"v1beta1/{model}"
    elif vertex:
        publisher, _, name = model.rpartition("/")
        where = f"v1beta1/publishers/{publisher or 'google'}/models/{name}"
    elif _GEMINI_API.fullmatch(model):
        where = f"v1beta/{model}"
    else:
        where = f"v1beta/models/{model}"
    return f"/{where}:{'streamGenerateContent?alt=sse' if call.stream else 'generateContent'}"


def _combinable(call: Call, options: ModelOptions, adaptations: list[Adaptation]) -> ModelOptions:
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


def _body(work: _Work) -> bytes:
    call, options = work.call, work.options
    messages, continuation = _to_continue(call.conversation.messages)
    members: dict[str, bytes] = {"contents": _contents(work, messages)}
    system = call.conversation.system
    if system and call.profile.system_role != "user":
        members["systemInstruction"] = b'{"parts":[{"text":%b}]}' % _json(system)
    tools = _tools(work)
    if tools:
        members["tools"] = b"[%b]" % b",".join(tools)
    if continuation is not None:
        members["continuationToken"] = continuation
    objects = {
        "toolConfig": tool_config(call, options, work.manner.names, invocations=work.manner.invocations),
        "generationConfig": generation_config(call, options, work.adaptations),
    }
    if options.extra_body.get("cachedContent"):
        _leave_to_the_cache(members, objects, work.adaptations)
    _add_extra(members, objects, options.extra_body)
    members.update({name: _json(value) for name, value in objects.items() if value})
    # Joined once: to format a long history into a line, and that into a body, copies it several times.
    pieces: list[bytes] = []
    for name, data in members.items():
        pieces += (b"," if pieces else b"{", _json(name), b":", data)
    return b"".join((*pieces, b"}"))


def _contents(work: _Work, messages: tuple[Message, ...]) -> bytes:
    contents: list[bytes] = []
    system = work.call.conversation.system
    if system and work.call.profile.system_role == "user":
        contents.append(b'{"role":"user","parts":[{"text":%b}]}' % _json(system))
        work.adaptations.append(
            Adaptation("system prompt", "this model has none; it is sent as the user's first words")
        )
    manner = work.manner
    written = written_up_to(
        work.call.conversation, len(messages), manner.key, lambda before, new: further(before, new, manner), _NOTHING
    )
    contents += written.pieces
    work.losses.extend(written.losses)
    if not contents or contents[0].startswith(b'{"role":"model"'):
        contents.insert(0, NO_USER)
    contents[0] = b"[" + contents[0]
    contents[-1] += b"]"
    return b",".join(contents)


def _to_continue(messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], bytes | None]:
    """For a reply that was longer than one request gives: the messages before it, and the token for its rest."""
    native = messages[-1].native if messages else None
    token = native.fields.get("continuationToken") if native is not None and native.provider == READER else None
    if token is None or messages[-1].stop_reason is not StopReason.PAUSED:
        return messages, None
    end = len(messages)
    while end and messages[end - 1].role == "assistant" and messages[end - 1].stop_reason is StopReason.PAUSED:
        end -= 1
    return messages[:end], bytes(token)


def _tools(work: _Work) -> list[bytes]:
    tools: list[bytes] = []
    style = work.call.profile.tool_schema
    for tool in work.call.tools:
        rest, notes = remembered(tool, f"gemini {style}", lambda tool=tool: _declaration(tool, style))
        tools.append(b'{"name":%b%b}' % (_json(work.manner.names.wire(tool.name)), rest))
        work.adaptations.extend([Adaptation(f"schema of tool {tool.name!r}", note) for note in notes])
    declared = [b'{"functionDeclarations":[%b]}' % b",".join(tools)] if tools else []
    return declared + [bytes(tool) for tool in work.options.server_tools]


def _declaration(tool: ToolSpec, style: SchemaStyle) -> tuple[bytes, tuple[str, ...]]:
    """A tool's declaration behind its name, and notes about its schema."""
    schema, notes = convert(tool.schema, style, strict=tool.strict is True)
    described = b',"description":' + _json(tool.description)
    if style != "gemini":
        return described + b',"parametersJsonSchema":' + _json(schema), notes
    if not schema.get("properties"):  # an object without properties is refused; no parameters are not
        return described, notes
    return described + b',"parameters":' + _json(schema), notes


def _leave_to_the_cache(
    members: dict[str, bytes], objects: dict[str, dict[str, object]], adaptations: list[Adaptation]
) -> None:
    """What a cached content holds must not be in the request too: the API refuses both together."""
    left_out = [name for name in ("systemInstruction", "tools") if members.pop(name, None) is not None]
    if objects.pop("toolConfig", None):
        left_out.append("toolConfig")
    why = "left out: it must be part of the cached content"
    adaptations += [Adaptation(name, why) for name in left_out]


def _add_extra(members: dict[str, bytes], objects: dict[str, dict[str, object]], extra: Mapping[str, object]) -> None:
    """Lay the caller's own members over ours: objects member by member, anything else as a whole."""
    for name, value in extra.items():
        if name in objects and isinstance(value, Mapping):
            objects[name] = _laid_over(objects[name], cast("Mapping[str, object]", value))
        else:
            objects.pop(name, None)
            members[name] = _json(value)


def _laid_over(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    merged = dict(below)
    for name, value in above.items():
        known = merged.get(name)
        if isinstance(known, dict) and isinstance(value, Mapping):
            merged[name] = _laid_over(cast("dict[str, object]", known), cast("Mapping[str, object]", value))
        else:
            merged[name] = value
    return merged
