"""Images, documents, audio and video as a block: bytes, a path or a URL.

Owns: what a piece of media is and how its type is known from a file's name.
Must not know: how to read or fetch it. Nothing here opens a file or a connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from .values import Native, Value

if TYPE_CHECKING:
    from pathlib import PurePath

__all__ = ["Media", "MediaKind"]

MediaKind: TypeAlias = Literal["image", "document", "audio", "video"]
"""The kinds of media that models are told apart by."""

# A table of our own: the standard library's guess depends on files of the machine it runs on.
_TYPE_OF_SUFFIX = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".heic": "image/heic",
    ".heif": "image/heif",
    ".bmp": "image/bmp",
    ".svg": "image/svg+xml",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".pdf": "application/pdf",
    ".txt": "text/plain",
    ".md": "text/markdown",
    ".csv": "text/csv",
    ".html": "text/html",
    ".htm": "text/html",
    ".xml": "text/xml",
    ".json": "application/json",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".mp3": "audio/mpeg",
    ".wav": "audio/wav",
    ".flac": "audio/flac",
    ".ogg": "audio/ogg",
    ".opus": "audio/opus",
    ".m4a": "audio/mp4",
    ".aac": "audio/aac",
    ".aiff": "audio/aiff",
    ".mp4": "video/mp4",
    ".mov": "video/quicktime",
    ".webm": "video/webm",
    ".mkv": "video/x-matroska",
    ".mpeg": "video/mpeg",
    ".avi": "video/x-msvideo",
}

_KINDS: dict[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}


def _kind_of(mime_type: str) -> MediaKind:
    return _KINDS.get(mime_type.partition("/")[0], "document")


class Media(Value, frozen=True, tag="media", tag_field="type"):
    """An image, document, recording or film: exactly one of `data`, `path` and `url` says where it is."""

    kind: MediaKind
    mime_type: str
    data: bytes | None = None
    path: str | None = None
    url: str | None = None
    name: str | None = None
    native: Native | None = None

    def __post_init__(self) -> None:
        if (self.data is not None) + (self.path is not None) + (self.url is not None) != 1:
            message = "media needs exactly one of data, path and url"
            raise ValueError(message)

    @classmethod
    def from_bytes(cls, data: bytes, mime_type: str, *, name: str | None = None) -> Media:
        """Media held in memory."""
        return cls(kind=_kind_of(mime_type), mime_type=mime_type, data=bytes(data), name=name)

    @classmethod
    def from_path(cls, path: str | PurePath, *, mime_type: str | None = None) -> Media:
        """Media in a file, which is read when the conversation is sent, not now."""
        from pathlib import PurePath

        pure = PurePath(path)
        mime_type = mime_type or cls._guess(pure.suffix, str(path))
        return cls(kind=_kind_of(mime_type), mime_type=mime_type, path=str(path), name=pure.name)

    @classmethod
    def from_url(cls, url: str, *, mime_type: str | None = None) -> Media:
        """Media behind a URL, which the provider fetches where it can."""
        from pathlib import PurePath

        bare = url.partition("?")[0].partition("#")[0]
        mime_type = mime_type or cls._guess(PurePath(bare.rpartition("/")[2]).suffix, url)
        return cls(kind=_kind_of(mime_type), mime_type=mime_type, url=url)

    @staticmethod
    def _guess(suffix: str, where: str) -> str:
        found = _TYPE_OF_SUFFIX.get(suffix.lower())
        if found is None:
            message = f"cannot tell the type of {where!r} from its name; say mime_type=..."
            raise ValueError(message)
        return found
