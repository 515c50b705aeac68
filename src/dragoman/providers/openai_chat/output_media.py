"""Media that a model made: sound, which comes in pieces, and images.

Owns: turning them into Media blocks; what cannot be read becomes an Opaque block.
Must not know: the order of blocks in a reply.
"""

from __future__ import annotations

from typing import Final, cast

import msgspec
from msgspec import Raw

from dragoman.conversation import Media, Native, Opaque
from dragoman.errors import ProtocolError
from dragoman.providers.options import ModelOptions

from .thoughts import FIELD
from .wire import is_nothing, joined, members, string

__all__ = ["Sound", "image_of"]

# The format is named in the request, nowhere in the reply.
_TYPE_OF_FORMAT: Final = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "flac": "audio/flac",
    "opus": "audio/opus",
    "aac": "audio/aac",
    "pcm16": "audio/pcm",
}


class Sound:
    """A spoken answer: an id to speak of it later, base64 data and a transcript, the latter two in pieces."""

    __slots__ = ("_data", "_fields", "_transcript")

    def __init__(self) -> None:
        self._data: list[str] = []
        self._transcript: list[str] = []
        self._fields: dict[str, Raw] = {}

    def grow(self, fields: dict[str, Raw]) -> None:
        self._data.append(string(fields.pop("data", None)))
        self._transcript.append(string(fields.pop("transcript", None)))
        self._fields.update({name: raw.copy() for name, raw in fields.items() if not is_nothing(raw)})

    def block(self, reader: str, options: ModelOptions) -> Media | Opaque | None:
        """The whole; None if nothing was said, for some servers send the member empty."""
        if "id" not in self._fields and not any(self._data):
            return None
        transcript = "".join(self._transcript)
        if transcript:
            self._fields["transcript"] = _json_string(transcript)
        data = _decoded(self._data)
        if data is None:
            fields = {**self._fields, "data": _json_string("".join(self._data))}
            return Opaque(reader, Raw(joined({"type": b'"audio"', "audio": joined(fields)})))
        return Media(kind="audio", mime_type=_type_asked_for(options), data=data, native=Native(reader, self._fields))


def image_of(raw: Raw, reader: str) -> Media | Opaque:
    """An element of `images` (OpenRouter): a data URL or another one, in the shape of a part of content."""
    try:
        url = string(members(members(raw)["image_url"]).get("url"))
    except (ProtocolError, KeyError):
        return Opaque(reader, raw.copy())
    native = Native(reader, {FIELD: Raw(b'"images"')})
    if not url.startswith("data:"):
        return Media(kind="image", mime_type="image/*", url=url, native=native)
    kind, _, data = url[5:].partition(";base64,")
    bytes_ = _decoded([data])
    if bytes_ is None or not kind:
        return Opaque(reader, raw.copy())
    return Media(kind="image", mime_type=kind, data=bytes_, native=native)


def _type_asked_for(options: ModelOptions) -> str:
    audio = options.extra_body.get("audio")
    wanted = cast("dict[str, object]", audio).get("format") if isinstance(audio, dict) else None
    return _TYPE_OF_FORMAT.get(str(wanted), "audio/wav")


def _decoded(pieces: list[str]) -> bytes | None:
    """The bytes of base64 pieces, each padded for itself or all of them one text."""
    from base64 import b64decode

    for attempt in (pieces, ["".join(pieces)]):
        try:
            return b"".join([b64decode(piece, validate=True) for piece in attempt])
        except ValueError:
            continue
    return None


def _json_string(text: str) -> Raw:
    return Raw(msgspec.json.encode(text))
