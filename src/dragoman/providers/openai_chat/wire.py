"""The shapes of the wire, and reading JSON without believing all of it.

Owns: the typed form of the chunks that nearly every stream consists of (whole.py has that of whole replies); taking
JSON apart member by member, with the raw bytes of what is not understood; the name of the reader.
Must not know: what any of it means for a reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import msgspec
from msgspec import Raw, Struct

from dragoman.errors import ProtocolError

__all__ = [
    "CHUNK",
    "Chunk",
    "Delta",
    "NoLogprobs",
    "document",
    "elements",
    "integer",
    "is_nothing",
    "joined",
    "members",
    "reader_of",
    "string",
    "text_or_json",
]

# --- the hot path: what a plain chunk looks like ---

# Unknown members make these decoders fail on purpose: such a chunk is read again member by member, so that nothing is
# lost. Members of a chunk listed here and never looked at are those that say nothing new in the middle of a stream:
# they stand in the first or the last chunk as well, which are always read with care (`obfuscation` and `p` are
# padding).


class Function(Struct, forbid_unknown_fields=True, gc=False):
    """A piece of a call's name and arguments."""

    name: str | None = None
    arguments: str | None = None


class CallDelta(Struct, forbid_unknown_fields=True, gc=False):
    """A piece of one tool call."""

    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: Function | None = None


class Delta(Struct, forbid_unknown_fields=True, gc=False):
    """A piece of the message."""

    content: str | None = None
    role: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[Raw] | None = None
    channel: str | None = None
    tool_calls: list[CallDelta] | None = None
    function_call: None = None
    audio: None = None
    token_id: int | None = None


class NoLogprobs(Struct, forbid_unknown_fields=True, gc=False):
    """Log probabilities that were not asked for; a server may send the member all the same."""

    content: None = None
    refusal: None = None


class Choice(Struct, forbid_unknown_fields=True, gc=False):
    """One of the answers; we ask for one."""

    delta: Delta
    index: int = 0
    finish_reason: str | None = None
    native_finish_reason: str | None = None
    logprobs: NoLogprobs | None = None
    matched_stop: None = None
    stop_reason: None = None
    token_ids: None = None
    seed: int | None = None
    text: str | None = None


class Chunk(Struct, forbid_unknown_fields=True, gc=False):
    """One event of a stream."""

    choices: list[Choice]
    id: str | None = None
    object: str | None = None
    created: int | float | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    provider: str | None = None
    usage: None = None
    obfuscation: str | None = None
    p: str | None = None
    prompt_token_ids: None = None
    sla_metrics: Raw | None = None


CHUNK: Final = msgspec.json.Decoder(Chunk).decode

# --- the careful path: members, one by one ---

_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_ELEMENTS: Final = msgspec.json.Decoder(list[Raw]).decode
_ANY: Final = msgspec.json.Decoder().decode
_NOTHING: Final = frozenset([b"null", b'""', b"[]", b"{}"])
_LONGEST_NOTHING: Final = max(map(len, _NOTHING))


def reader_of(provider: str) -> str:
    """The name under which blocks say that only this server can read them back."""
    return f"openai_chat:{provider}"


def document(data: bytes) -> dict[str, Raw]:
    """The members of a whole JSON document as it came from outside. Raises ProtocolError if it is not one."""
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode(errors="replace").encode()
    return members(data)


def members(data: bytes | Raw) -> dict[str, Raw]:
    """The members of a JSON object. Raises ProtocolError if it is not one."""
    try:
        return _MEMBERS(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        return _MEMBERS(_mended(bytes(data)))
    except (ValueError, RecursionError) as error:  # DecodeError and UnicodeError are ValueErrors
        start = bytes(data)[:80]
        message = f"A part of the reply is not the JSON object that belongs there: {error}. It starts {start!r}."
        raise ProtocolError(message) from None


def elements(raw: Raw | None) -> list[Raw]:
    """The elements of a JSON array; none if it is something else."""
    try:
        return _ELEMENTS(raw) if raw is not None else []
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []


def string(raw: Raw | None) -> str:
    """A JSON string's text; empty if it is something else."""
    value = _value(raw)
    return value if isinstance(value, str) else ""


def integer(raw: Raw | None) -> int | None:
    """A JSON number that counts something; None if it is something else."""
    value = _value(raw)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text_or_json(raw: Raw | None) -> str:
    """A JSON string's text, or the JSON itself of anything else: some servers send arguments as an object."""
    value = _value(raw)
    if value is None:
        return ""
    return value if isinstance(value, str) else bytes(cast("Raw", raw)).decode()


def is_nothing(raw: Raw) -> bool:
    """Whether a member is there but says nothing: null, or an empty string, array or object."""
    return len(raw) <= _LONGEST_NOTHING and bytes(raw) in _NOTHING


def joined(fields: Mapping[str, bytes | Raw]) -> bytes:
    """A JSON object of these members, whose values are JSON already."""
    encode = msgspec.json.encode
    return b"{" + b",".join([encode(name) + b":" + bytes(value) for name, value in fields.items()]) + b"}"


def _value(raw: Raw | None) -> object:
    if raw is None:
        return None
    try:
        return cast("object", _ANY(raw))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        return cast("object", _ANY(_mended(bytes(raw))))
    except (ValueError, RecursionError):
        return None


def _mended(data: bytes) -> bytes:
    """The same as strict JSON. Python servers write NaN and Infinity, JavaScript ones cut an emoji in two."""
    import json  # which reads more than JSON, and is slower

    value: object = json.loads(data.decode(errors="replace"), parse_constant=_no_number)
    # "replace" would write a question mark for half an emoji; this is the sign that readers know.
    return json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass").decode(errors="replace").encode()


def _no_number(_name: str) -> None:
    return None
