"""JSON that is taken apart but not read through, so that what a codec does not understand is kept as it came.

The parts are `Raw`: slices that hold on to the bytes they came from, so copy the ones that are kept. `read_*` raise for
what is not as it should be; the others make the best of what servers send.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Final, TypeGuard, cast

import msgspec
from msgspec import Raw

from dragoman.errors import ProtocolError

ABSENT: Final = Raw(b"")
"""Stands for a member that is not there."""

MALFORMED: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What reading bytes that somebody else wrote can raise."""

read_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
"""The members of a JSON object."""

read_elements: Final = msgspec.json.Decoder(list[Raw]).decode
"""The elements of a JSON array."""

_read_text = msgspec.json.Decoder(str | None).decode
_read_number = msgspec.json.Decoder(int | None).decode
_read_value: Final[Callable[[bytes | Raw], object]] = msgspec.json.Decoder().decode
_EMPTY: Final = frozenset([b"null", b'""', b"[]", b"{}"])


def read_text(raw: Raw | None) -> str | None:
    """A string; None where it is absent or null."""
    return None if raw is None else _read_text(raw)


def read_number(raw: Raw | None) -> int | None:
    """A whole number; None where it is absent or null."""
    return None if raw is None else _read_number(raw)


def read_value(raw: Raw | None) -> object:
    """A member, parsed; None where it is absent."""
    return _read_value(raw) if raw else None


def read_array(raw: Raw | None) -> list[Raw]:
    """The elements of a JSON array; none where it is absent, null or something else."""
    return read_elements(raw) if raw and bytes(memoryview(raw)[:1]) == b"[" else []


def read_string(raw: Raw | None) -> str | None:
    """A member that is a string; None for anything else."""
    value = read_value(raw)
    return value if isinstance(value, str) else None


# --- from servers of all kinds ----------------------------------------------------------------------------------------


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
        return read_members(data)
    except MALFORMED:
        pass
    try:
        return read_members(_mend(bytes(data)))
    except (ValueError, RecursionError) as error:  # DecodeError and UnicodeError are ValueErrors
        start = bytes(data)[:80]
        message = f"A part of the reply is not the JSON object that belongs there: {error}. It starts {start!r}."
        raise ProtocolError(message) from None


def elements(raw: Raw | None) -> list[Raw]:
    """The elements of a JSON array; none if it is something else."""
    try:
        return read_elements(raw) if raw is not None else []
    except MALFORMED:
        return []


def value_of(raw: Raw | None) -> object:
    """What the JSON says; None if it cannot be read."""
    if raw is None:
        return None
    try:
        return _read_value(raw)
    except MALFORMED:
        pass
    try:
        return _read_value(_mend(bytes(raw)))
    except (ValueError, RecursionError):
        return None


def string(raw: Raw | None) -> str:
    """A JSON string's text; empty if it is something else."""
    value = value_of(raw)
    return value if isinstance(value, str) else ""


def integer(raw: Raw | None) -> int | None:
    """A JSON number that counts something; None if it is something else."""
    return first_count(value_of(raw))


def text_or_json(raw: Raw | None) -> str:
    """A JSON string's text, or the JSON itself of anything else: some servers send arguments as an object."""
    value = value_of(raw)
    if value is None:
        return ""
    return value if isinstance(value, str) else bytes(cast("Raw", raw)).decode()


def is_empty(raw: Raw) -> bool:
    """Whether a member is there but says nothing: null, or an empty string, array or object."""
    return len(raw) <= 4 and bytes(raw) in _EMPTY


def is_object(raw: Raw | None) -> TypeGuard[Raw]:
    """Whether this is a JSON object."""
    return raw is not None and bytes(raw).startswith(b"{")


def is_json(text: str) -> bool:
    """Whether a text is a complete JSON value."""
    try:
        msgspec.json.decode(text)
    except MALFORMED:
        return False
    return True


def join_members(fields: Mapping[str, bytes | Raw]) -> bytes:
    """A JSON object of these members, whose values are JSON already."""
    encode = msgspec.json.encode
    return b"{" + b",".join([encode(name) + b":" + bytes(value) for name, value in fields.items()]) + b"}"


def _mend(data: bytes) -> bytes:
    """The same as strict JSON. Python servers write NaN and Infinity, JavaScript ones cut an emoji in two."""
    value: object = json.loads(data.decode(errors="replace"), parse_constant=lambda _name: None)
    # "replace" would write a question mark for half an emoji; this is the sign that readers know.
    return json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass").decode(errors="replace").encode()


def as_object(value: object) -> dict[str, object]:
    """A decoded object; an empty one if it is something else."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def first_count(*values: object) -> int | None:
    """The first of these that is a count."""
    for value in values:
        if type(value) is int:
            return value
        if type(value) is float and value.is_integer():
            return int(value)
    return None


def decode_base64(pieces: list[str]) -> bytes | None:
    """The bytes of base64 pieces, each padded for itself or all of them one text; None if they are something else."""
    for attempt in (pieces, ["".join(pieces)]):
        try:
            return b"".join([b64decode(piece, validate=True) for piece in attempt])
        except ValueError:
            continue
    return None
