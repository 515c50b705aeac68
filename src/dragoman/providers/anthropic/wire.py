"""The shapes on the wire: the pieces of a stream that come by the thousand, and raw members for everything else.

Owns: the structs of the frequent deltas, and the reading and writing of JSON members that are kept raw.
Must not know: what a member means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

__all__ = [
    "ABSENT",
    "PIECES",
    "READER",
    "ArgumentsPiece",
    "Delta",
    "Piece",
    "SignaturePiece",
    "TextPiece",
    "ThinkingPiece",
    "as_object",
    "decode_delta",
    "decode_piece",
    "grown",
    "joined",
    "known",
    "members",
    "number",
    "text",
    "written",
]

READER: Final = "anthropic"
"""The name under which thinking, opaque blocks and native fields of this dialect are kept."""

ABSENT: Final = Raw(b"")
"""Stands for a member that is not there."""


class _Piece(Struct, gc=False, tag_field="type"):
    pass


class TextPiece(_Piece, tag="text_delta"):
    """More of a text."""

    text: str


class ArgumentsPiece(_Piece, tag="input_json_delta"):
    """More of the JSON text of a call's input."""

    partial_json: str


class ThinkingPiece(_Piece, tag="thinking_delta"):
    """More of a thought."""

    thinking: str


class SignaturePiece(_Piece, tag="signature_delta"):
    """The signature of a thought."""

    signature: str


Piece: TypeAlias = TextPiece | ArgumentsPiece | ThinkingPiece | SignaturePiece


class Delta(Struct, tag_field="type", tag="content_block_delta"):
    """An event that adds to a block in one of the four usual ways. Any other way fails to decode as this."""

    index: int
    delta: Piece


decode_delta = msgspec.json.Decoder(Delta).decode
decode_piece = msgspec.json.Decoder(Piece).decode
PIECES: Final = frozenset(["text_delta", "input_json_delta", "thinking_delta", "signature_delta"])
"""The types of the usual deltas."""

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_number = msgspec.json.Decoder(int).decode
_encode = msgspec.json.Encoder().encode

_NULL: Final = b"null"


def members(data: bytes | Raw) -> dict[str, Raw]:
    """The members of a JSON object, not looked into. They hold on to `data`: copy the ones that are kept."""
    return _decode_members(data)


def text(raw: Raw | None) -> str | None:
    """A string member; None where it is absent or null."""
    return None if raw is None or bytes(raw) == _NULL else _decode_text(raw)


def number(raw: Raw | None) -> int | None:
    """A whole number; None where it is absent or null."""
    return None if raw is None or bytes(raw) == _NULL else _decode_number(raw)


def written(value: object) -> bytes:
    """JSON of anything that may hold raw parts."""
    return _encode(value)


def joined(items: Iterable[tuple[str, bytes | Raw]]) -> bytes:
    """A JSON object of members that are JSON already."""
    return b"{" + b",".join([b"%b:%b" % (_encode(name), bytes(value)) for name, value in items]) + b"}"


def known(fields: Mapping[str, Raw], *left_out: str) -> dict[str, Raw]:
    """The members that are worth keeping: all but those named and those that are null."""
    return {name: raw.copy() for name, raw in fields.items() if name not in left_out and bytes(raw) != _NULL}


def grown(old: Raw | None, new: Raw) -> Raw:
    """A member after a delta brought more of it: strings grow, anything else is replaced."""
    if old is None or not (bytes(old).startswith(b'"') and bytes(new).startswith(b'"')):
        return new.copy()
    return Raw(_encode(_decode_text(old) + _decode_text(new)))


def as_object(arguments: str) -> bytes | None:
    """The text of a call's arguments as the JSON object that the wire wants; None if it is none."""
    if not arguments or arguments.isspace():
        return b"{}"
    try:
        _decode_members(arguments)
        return arguments.encode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
