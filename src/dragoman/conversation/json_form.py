"""The JSON form of a conversation: versioned, readable, lossless.

A newer version is refused. Unknown fields are kept byte for byte and written back where they were, except beside
`format` and `version`: a new field there needs a new version.

The common case is one native pass. Only a document with unknown fields is read (and written) object by object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar, cast

import msgspec
from msgspec import Raw, Struct, structs

from dragoman._decoding import DEEPEST_TEXT, TooDeepError, check_depth, decode_as, decoder_of
from dragoman.errors import ConversationError, MalformedDataError, UnsupportedVersionError

from .blocks import Citation, Json, Media, Opaque, ServerToolUse, Text, Thinking, ToolCall, ToolResult
from .conversation import Conversation
from .message import Account, Attempt, Message
from .tool_spec import ToolSpec
from .usage import Usage
from .values import FrozenDict, Native, Value

FORMAT: Final = "dragoman.conversation"
VERSION: Final = 1

_V = TypeVar("_V", bound=Value)

_KINDS: Final[dict[str, type[Value]]] = {
    str(kind.__struct_config__.tag): kind for kind in (Text, Thinking, ToolCall, ToolResult, Media, Opaque, Json)
}
# The members of our objects that hold other objects of ours; None: their `type` says which.
_INNER: Final[dict[str, type[Value] | None]] = {
    "messages": Message,
    "blocks": None,
    "content": None,
    "structured": None,
    "usage": Usage,
    "account": Account,
    "attempts": Attempt,
    "native": Native,
    "citations": Citation,
    "used": ServerToolUse,
}


class _Document(Struct, frozen=True):
    format: str = ""
    version: int = 0
    conversation: Raw = Raw(b"{}")


class _Kind(Struct, frozen=True):
    type: str = ""


_encoder = msgspec.json.Encoder()
_DEEPEST: Final = DEEPEST_TEXT - 10
"""The rest is for the snapshot, the batch or the workflow around it."""
_document = decoder_of(_Document)
_kind = decoder_of(_Kind)
_members = decoder_of(dict[str, Raw])
_elements = decoder_of(list[Raw])


def conversation_to_json(conversation: Conversation) -> bytes:
    """The conversation as a JSON document in UTF-8."""
    encoded = _write(conversation, "conversation")
    return b'{"format":"%s","version":%d,"conversation":%s}' % (FORMAT.encode(), VERSION, encoded)


def conversation_from_json(data: bytes | str) -> Conversation:
    """Parse a document that `conversation_to_json` wrote, in this version or an older one."""
    try:
        document = _document.decode(data)
    except _UNREADABLE as error:
        raise _malformed("conversation", error) from None
    if document.format != FORMAT:
        message = f"This is not a stored conversation: its format is {document.format!r}, not {FORMAT!r}."
        raise MalformedDataError(message)
    if document.version > VERSION:
        message = f"The conversation was stored in version {document.version}; this dragoman reads up to {VERSION}."
        raise UnsupportedVersionError(message, found=document.version, supported=VERSION)
    if document.version < 1:
        message = f"The conversation has version {document.version}, which does not exist."
        raise MalformedDataError(message)
    return _read(document.conversation, Conversation, "conversation")


def message_to_json(message: Message) -> bytes:
    """One message as JSON, for stores that append; the surrounding document has the version."""
    return _write(message, "message")


def message_from_json(data: bytes | str) -> Message:
    """Parse what `message_to_json` wrote."""
    return _read(data, Message, "message")


def tool_spec_to_json(spec: ToolSpec) -> bytes:
    """A tool definition as JSON; the surrounding document has the version."""
    return _write(spec, "tool")


def tool_spec_from_json(data: bytes | str) -> ToolSpec:
    """Parse what `tool_spec_to_json` wrote."""
    return _read(data, ToolSpec, "tool")


# --- writing ---------------------------------------------------------------------------------------------------------


def _write(value: Value, what: str) -> bytes:
    try:
        written = _encode(value)
        check_depth(written, _DEEPEST)
    except (TypeError, ValueError, RecursionError) as error:
        reason = TooDeepError(_DEEPEST) if isinstance(error, RecursionError) else error
        message = f"The {what} cannot be written as JSON: {str(reason).rstrip('.')}."
        hint = "Use only JSON data in its metadata, and only text that UTF-8 can encode."
        raise ConversationError(message, hint=hint) from error
    return written


def _inner_values(value: Value) -> Iterator[tuple[str, Value | tuple[Value, ...]]]:
    for name in value.__struct_fields__:
        if name in _INNER and (held := cast("Value | tuple[Value, ...] | None", getattr(value, name))):
            yield name, held


def _has_extra(value: Value) -> bool:
    if value.extra:
        return True
    for _, held in _inner_values(value):
        if _has_extra(held) if isinstance(held, Value) else any(map(_has_extra, held)):
            return True
    return False


def _encode(value: Value) -> bytes:
    if not _has_extra(value):
        return _encoder.encode(value)
    changes: dict[str, object] = {"extra": None}
    for name, held in _inner_values(value):
        changes[name] = Raw(_encode(held)) if isinstance(held, Value) else tuple([Raw(_encode(each)) for each in held])
    known = _encoder.encode(structs.replace(value, **changes))
    if not value.extra:
        return known
    unknown = _encoder.encode(value.extra)
    return unknown if known == b"{}" else known[:-1] + b"," + unknown[1:]


# --- reading ---------------------------------------------------------------------------------------------------------

_UNREADABLE: Final = (msgspec.MsgspecError, ValueError)


def _read(data: bytes | str | Raw, kind: type[_V], what: str) -> _V:
    try:
        return decode_as(data, kind)
    except msgspec.ValidationError:
        pass  # perhaps because of an unknown field; reading object by object shows
    except _UNREADABLE as error:
        raise _malformed(what, error) from None
    try:
        value = _read_members(data, kind)
        # So far each part was checked by itself, not whether it is allowed in its place.
        decode_as(_encoder.encode(_without_extra(value)), kind)
    except _UNREADABLE as error:
        raise _malformed(what, error) from None
    return value


def _without_extra(value: _V) -> _V:
    known: dict[str, object] = {
        name: _without_extra(held) if isinstance(held, Value) else tuple(map(_without_extra, held))
        for name, held in _inner_values(value)
    }
    return structs.replace(value, **known, extra=None)


def _read_members(data: bytes | str | Raw, kind: type[_V]) -> _V:
    config = kind.__struct_config__
    known = {field.encode_name for field in structs.fields(kind) if field.name != "extra"} | {config.tag_field}
    plain: dict[str, Raw] = {}
    extra: dict[str, Raw] = {}
    inner: dict[str, Value | tuple[Value, ...]] = {}
    for name, raw in _members.decode(data).items():
        if name not in known:
            extra[name] = raw.copy()
        elif name in _INNER and (held := _read_inner(raw, _INNER[name])):
            inner[name] = held
        else:
            plain[name] = raw
    value = decode_as(_encoder.encode(plain), kind)
    return structs.replace(value, **inner, extra=FrozenDict(extra) if extra else None)


def _read_inner(raw: Raw, kind: type[Value] | None) -> Value | tuple[Value, ...] | None:
    first = bytes(memoryview(raw)[:1])
    if first == b"[":
        return tuple([_read_members(each, kind or _kind_of(each)) for each in _elements.decode(raw)])
    return _read_members(raw, kind or _kind_of(raw)) if first == b"{" else None


def _kind_of(raw: Raw) -> type[Value]:
    name = _kind.decode(raw).type
    if name not in _KINDS:
        message = f"unknown type of block {name!r}"
        raise ValueError(message)
    return _KINDS[name]


def _malformed(what: str, error: Exception) -> MalformedDataError:
    return MalformedDataError(f"The stored {what} cannot be read: {str(error).rstrip('.')}.")
