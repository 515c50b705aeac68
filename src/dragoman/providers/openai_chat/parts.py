"""Parts of content: texts and media, as the members of a `content` array.

Owns: the shape of each kind of media, per server where they differ; what a model cannot take and why.
Must not know: messages and their order.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Raw

from dragoman.conversation import Media, MediaKind, Native
from dragoman.errors import ConfigurationError
from dragoman.providers.profile import Profile

from .wire import joined

__all__ = ["image_part", "media_part", "native_fields", "text_part", "why_not"]

_encode: Final = msgspec.json.encode

_FORMAT_OF_TYPE: Final = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/mp4": "m4a",
    "audio/pcm": "pcm16",
}
"""Formats whose name is not simply what stands behind the slash."""

# Documents that are text are sent as text: `file` parts take PDF only.
_TEXT_TYPES: Final = frozenset(["application/json", "application/xml", "application/x-yaml", "application/yaml"])


def text_part(text: str, fields: dict[str, Raw] | None = None) -> bytes:
    """A text as a part of content, with further members of its own."""
    part = b'{"type":"text","text":' + _encode(text)
    rest = joined(fields)[1:-1] if fields else b""
    return part + (b"," + rest if rest else b"") + b"}"


def native_fields(native: Native | None, reader: str) -> dict[str, Raw]:
    """The fields of a block that are this server's own."""
    return native.fields if native is not None and native.provider == reader else {}


def why_not(media: Media, profile: Profile) -> str | None:
    """Why the model cannot take this; None if it can."""
    if media.kind == "document" and _is_text(media) and media.data is not None:
        return None
    if media.kind not in profile.media:
        return f"this model takes no {_PLURALS[media.kind]}"
    if media.url is not None and media.kind not in profile.media_urls and not media.url.startswith("data:"):
        return f"this API takes {_PLURALS[media.kind]} as bytes only, not by URL"
    return None


def media_part(media: Media, profile: Profile, reader: str) -> bytes:
    """Media as a part of content; ask why_not() first."""
    if media.path is not None:
        message = f"the file {media.path!r} was not read before the conversation was encoded."
        raise ConfigurationError(
            message, hint="Give Media.from_bytes(...), or send it through an engine, which reads files."
        )
    if media.data is not None and media.kind == "document" and _is_text(media):
        return _document_as_text(media, media.data)
    native = {name: raw for name, raw in native_fields(media.native, reader).items() if name != "field"}
    return _PARTS[media.kind](media, profile, native)


def image_part(media: Media) -> bytes:
    """An image that the model made, in the shape that it came in."""
    return _by_url(b"image_url", media, {})


def _is_text(media: Media) -> bool:
    kind = media.mime_type.partition(";")[0].strip()
    return kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(("+json", "+xml"))


def _document_as_text(media: Media, data: bytes) -> bytes:
    name = media.name or "document"
    return text_part(f'<document name="{name}" type="{media.mime_type}">\n{data.decode(errors="replace")}\n</document>')


def _url(media: Media) -> bytes:
    """The URL, or the bytes as one."""
    if media.data is None:
        return _encode(media.url or "")
    return b'"data:%s;base64,%s"' % (media.mime_type.encode(), b64encode(media.data))


def _by_url(kind: bytes, media: Media, native: dict[str, Raw]) -> bytes:
    return b'{"type":"%s","%s":%s}' % (kind, kind, joined({"url": _url(media), **native}))


def _image(media: Media, _profile: Profile, native: dict[str, Raw]) -> bytes:
    return _by_url(b"image_url", media, native)


def _video(media: Media, _profile: Profile, native: dict[str, Raw]) -> bytes:
    return _by_url(b"video_url", media, native)


def _document(media: Media, profile: Profile, native: dict[str, Raw]) -> bytes:
    if "document_url" in profile.quirks:  # Mistral
        named: dict[str, bytes | Raw] = {"document_name": _encode(media.name)} if media.name else {}
        return joined({"type": b'"document_url"', "document_url": _url(media), **named, **native})
    name = media.name or "document" + _SUFFIXES.get(media.mime_type, "")
    file = {"filename": _encode(name), "file_data": _url(media), **native}
    return b'{"type":"file","file":%s}' % joined(file)


def _audio(media: Media, profile: Profile, native: dict[str, Raw]) -> bytes:
    if media.data is None:  # vLLM
        return _by_url(b"audio_url", media, native)
    data = b'"%s"' % b64encode(media.data)
    if "plain_input_audio" in profile.quirks:  # Mistral
        return b'{"type":"input_audio","input_audio":%s}' % data
    kind = media.mime_type.partition(";")[0].strip()
    form = _FORMAT_OF_TYPE.get(kind, kind.partition("/")[2])
    return b'{"type":"input_audio","input_audio":%s}' % joined({"data": data, "format": _encode(form), **native})


_PARTS: Final[dict[MediaKind, Callable[[Media, Profile, dict[str, Raw]], bytes]]] = {
    "image": _image,
    "document": _document,
    "audio": _audio,
    "video": _video,
}
_PLURALS: Final[dict[MediaKind, str]] = {
    "image": "images",
    "document": "documents",
    "audio": "audio",
    "video": "video",
}
_SUFFIXES: Final = {"application/pdf": ".pdf"}
