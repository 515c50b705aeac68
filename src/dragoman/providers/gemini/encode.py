"""A call → one request.

Owns: the path, the body and what goes together in it.
Must not know: how a message or a parameter is written; history.py and settings.py do.

What stands around the contents depends on the terms of the call, and on whether there is a system prompt: it is written
once for all calls on the same terms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, cast

import msgspec

from dragoman.conversation import Conversation, Message, StopReason, ToolSpec
from dragoman.errors import ConfigurationError
from dragoman.providers.codec import (
    GAP,
    Adaptation,
    Call,
    Encoded,
    Loss,
    WireRequest,
    Written,
    around_gaps,
    per_terms,
    remembered,
    written_up_to,
)
from dragoman.providers.names import ToolNames
from dragoman.providers.options import ModelOptions
from dragoman.providers.parameters import effective_options, refuse_or_adapt
from dragoman.providers.profile import SchemaStyle
from dragoman.providers.schema import convert

from .history import NO_USER, Manner
from .settings import generation_config, tool_config
from .wire import READER

__all__ = ["encode"]

_json = msgspec.json.encode
_NOTHING = Written()

_SAFE_MODEL = re.compile(r"[A-Za-z0-9._@:/~-]+")
# Names that say where they are themselves. On Vertex AI a model is named with its publisher, and mostly its project.
_VERTEX = re.compile(r"projects/.+|publishers/.+")
_GEMINI_API = re.compile(r"models/.+|tunedModels/.+")


class _Terms(NamedTuple):
    """What the terms of a call decide."""

    call: Call
    """Without tools that the model could not call."""
    options: ModelOptions
    adaptations: tuple[Adaptation, ...]
    """Those that the options needed."""
    manner: Manner
    path: str
    frames: dict[bool, _Frame]
    """By whether there is a system prompt."""
    systems: dict[str, bytes]
    """The last system prompt as the text of a part: from turn to turn it is the same."""


class _Frame(NamedTuple):
    """A request but for its contents and its system prompt."""

    before: bytes
    """The body up to the contents."""
    between: bytes
    behind: bytes
    takes_contents: bool
    takes_system: bool
    """Whether ours are put in: there may be none, and the caller may give their own."""
    takes_continuation: bool
    headers: Mapping[str, str]
    adaptations: tuple[Adaptation, ...]


def encode(call: Call) -> Encoded:
    """The request for this call."""
    terms = _terms(call)
    conversation = call.conversation
    system = conversation.system
    frame = terms.frames.get(bool(system))
    if frame is None:
        frame = terms.frames[bool(system)] = _frame(terms, system=bool(system))
    messages, continuation = _to_continue(conversation.messages)
    contents, losses = _contents(conversation, messages, terms)
    before = frame.before
    if continuation is not None and frame.takes_continuation:
        before = b'{"continuationToken":%b,%b' % (continuation, before[1:])
    body = (
        before,
        *(contents if frame.takes_contents else ()),
        frame.between,
        _text_part(system, terms) if system and frame.takes_system else b"",
        frame.behind,
    )
    return Encoded(
        request=WireRequest(path=terms.path, body=b"".join(body), headers=frame.headers),
        adaptations=frame.adaptations,
        losses=losses,
        tool_names=terms.manner.names.to_own,
    )


@per_terms
def _terms(call: Call) -> _Terms:
    adaptations: list[Adaptation] = []
    options = _combinable(call, effective_options(call, adaptations), adaptations)
    if call.tools and not call.profile.tools:
        refuse_or_adapt(call, adaptations, "tools", "this model calls no functions", "Leave the tools out.")
        call = msgspec.structs.replace(call, tools=())
    names = ToolNames([tool.name for tool in call.tools], call.profile.tool_limits)
    vertex = "vertex" in call.profile.quirks or _VERTEX.fullmatch(call.model) is not None
    manner = Manner.of(call.profile, names, vertex=vertex)
    return _Terms(call, options, tuple(adaptations), manner, _path(call, vertex=vertex), {}, {})


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


def _frame(terms: _Terms, *, system: bool) -> _Frame:
    call, options, adaptations = terms.call, terms.options, list(terms.adaptations)
    members: dict[str, bytes] = {"contents": GAP}
    if system and call.profile.system_role == "user":
        adaptations.append(Adaptation("system prompt", "this model has none; it is sent as the user's first words"))
    elif system:
        members["systemInstruction"] = GAP
    tools = _tools(terms, adaptations)
    if tools:
        members["tools"] = b"[%b]" % b",".join(tools)
    objects = {
        "toolConfig": tool_config(call, options, terms.manner.names, invocations=terms.manner.invocations),
        "generationConfig": generation_config(call, options, adaptations),
    }
    if options.extra_body.get("cachedContent"):
        _leave_to_the_cache(members, objects, adaptations)
    _add_extra(members, objects, options.extra_body)
    members.update({name: _json(value) for name, value in objects.items() if value})
    before, between, behind = around_gaps(members, ("contents", "systemInstruction"))
    return _Frame(
        before=before,
        between=between,
        behind=behind,
        takes_contents=not members["contents"],
        takes_system=members.get("systemInstruction") == GAP,
        takes_continuation="continuationToken" not in members,
        headers=options.extra_headers,
        adaptations=tuple(adaptations),
    )


def _text_part(system: str, terms: _Terms) -> bytes:
    """The system prompt as a content of the user, or without a role."""
    known = terms.systems.get(system)
    if known is None:
        role = b'"role":"user",' if terms.call.profile.system_role == "user" else b""
        known = b'{%b"parts":[{"text":%b}]}' % (role, _json(system))
        terms.systems.clear()
        terms.systems[system] = known
    return known


def _contents(
    conversation: Conversation, messages: tuple[Message, ...], terms: _Terms
) -> tuple[list[bytes], tuple[Loss, ...]]:
    """The array of the contents in pieces, and what of the messages this model does not get."""
    manner = terms.manner
    written = written_up_to(conversation, len(messages), manner.key, manner.further, _NOTHING)
    pieces = written.pieces
    if conversation.system and terms.call.profile.system_role == "user":
        pieces = (_text_part(conversation.system, terms), *pieces)
    if not pieces or pieces[0].startswith(b'{"role":"model"'):
        pieces = (NO_USER, *pieces)
    return [b"[", b",".join(pieces), b"]"], written.losses


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


def _tools(terms: _Terms, adaptations: list[Adaptation]) -> list[bytes]:
    tools: list[bytes] = []
    style = terms.call.profile.tool_schema
    for tool in terms.call.tools:
        rest, notes = remembered(tool, f"gemini {style}", lambda tool=tool: _declaration(tool, style))
        tools.append(b'{"name":%b%b}' % (_json(terms.manner.names.wire(tool.name)), rest))
        adaptations += [Adaptation(f"schema of tool {tool.name!r}", note) for note in notes]
    declared = [b'{"functionDeclarations":[%b]}' % b",".join(tools)] if tools else []
    return declared + [bytes(tool) for tool in terms.options.server_tools]


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
