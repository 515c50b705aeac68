"""Images and documents as the wire wants them.

Owns: which media become which source, and why one cannot be sent.
Must not know: where in a message the media stand.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Final

from dragoman.conversation import Media, MediaKind
from dragoman.errors import ConfigurationError

from .wire import READER

__all__ = ["media_block"]

_IMAGES: Final = frozenset(["image/jpeg", "image/png", "image/gif", "image/webp"])
_PDF: Final = "application/pdf"
_ALSO_TEXT: Final = frozenset(["application/json", "application/xml", "application/yaml", "application/javascript"])


def media_block(
    media: Media, kinds: frozenset[MediaKind], url_kinds: frozenset[MediaKind]
) -> tuple[dict[str, object] | None, str]:
    """The block, or None and why there is none."""
    if media.path is not None:
        message = f"The media {media.path!r} was not read before the conversation was encoded."
        raise ConfigurationError(message, hint="Read it first: Media.from_bytes(...). Engines do this by themselves.")
    if media.kind not in kinds:
        return None, f"this model takes no {media.kind}"
    if media.url is not None and media.kind not in url_kinds:
        return None, f"this model takes no {media.kind} by URL"
    source, why = _image(media) if media.kind == "image" else _document(media)
    if source is None:
        return None, why
    block: dict[str, object] = {"type": media.kind, "source": source}
    if media.kind == "document" and media.name:
        block["title"] = media.name
    if media.native is not None and media.native.provider == READER:
        block |= {name: raw for name, raw in media.native.fields.items() if name not in {"type", "source"}}
    return block, ""


def _image(media: Media) -> tuple[dict[str, object] | None, str]:
    if media.url is not None:
        return {"type": "url", "url": media.url}, ""
    if media.mime_type not in _IMAGES:
        return None, f"{media.mime_type} is not among the image types it takes: JPEG, PNG, GIF and WebP"
    return _base64(media), ""


def _document(media: Media) -> tuple[dict[str, object] | None, str]:
    if media.mime_type == _PDF:
        return ({"type": "url", "url": media.url} if media.url is not None else _base64(media)), ""
    if not (media.mime_type.startswith("text/") or media.mime_type in _ALSO_TEXT):
        return None, f"{media.mime_type} is not among the document types it takes: PDF and text"
    if media.data is None:
        return None, "of documents by URL it takes PDF only"
    try:
        # The API names one type for all text, whatever its markup.
        return {"type": "text", "media_type": "text/plain", "data": media.data.decode("utf-8-sig")}, ""
    except UnicodeDecodeError:
        return None, "the text of the document is not UTF-8"


def _base64(media: Media) -> dict[str, object]:
    return {"type": "base64", "media_type": media.mime_type, "data": b64encode(media.data or b"").decode()}
