"""What people and tools say, as content parts: texts, pictures, files, sounds.

Owns: the parts of a user's message and of a tool's output.
Must not know: items, and what the model itself said (history.py).
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final, NamedTuple

from dragoman.conversation import Media, MediaKind, ToolResult
from dragoman.errors import ConfigurationError
from dragoman.providers.profile import Profile

from .wire import READER

__all__ = ["Part", "Refused", "media_part", "output_of", "text_part"]

Part = dict[str, object]
"""A content part, ready to be written."""

_AUDIO_FORMATS: Final = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}
_OFFICE: Final = "application/vnd.openxmlformats-officedocument"
# Where the ending of a name is not what stands behind the slash.
_ENDINGS: Final = {
    "text/plain": "txt",
    "text/markdown": "md",
    "application/msword": "doc",
    f"{_OFFICE}.wordprocessingml.document": "docx",
    f"{_OFFICE}.spreadsheetml.sheet": "xlsx",
    f"{_OFFICE}.presentationml.presentation": "pptx",
}


def text_part(text: str) -> Part:
    """A text of the user or of a tool."""
    return {"type": "input_text", "text": text}


class Refused(NamedTuple):
    """Why a piece of media cannot be sent."""

    why: str


def media_part(media: Media, kinds: frozenset[MediaKind], url_kinds: frozenset[MediaKind]) -> Part | Refused:
    """A piece of media as a content part, or why it cannot be one."""
    if media.path is not None:
        message = f"The file {media.path!r} was not read before the conversation was encoded."
        raise ConfigurationError(message, hint="Send it through an engine, which reads files, or use Media.from_bytes.")
    if media.kind not in kinds:
        return Refused(f"the model takes no {media.kind} here")
    if media.url is not None and media.kind not in url_kinds:
        return Refused(f"the model takes {media.kind} only as bytes, not by URL")
    part = _PARTS[media.kind](media)
    if isinstance(part, dict) and media.native is not None and media.native.provider == READER:
        part.update(media.native.fields)  # such as `detail`
    return part


def _image(media: Media) -> Part:
    return {"type": "input_image", "image_url": media.url or _data_url(media), "detail": "auto"}


def _file(media: Media) -> Part:
    if media.url is not None:
        return {"type": "input_file", "file_url": media.url}
    # A name is needed with data; its ending tells the service what the data is.
    name = media.name or f"file.{_ENDINGS.get(media.mime_type, media.mime_type.rpartition('/')[2])}"
    return {"type": "input_file", "filename": name, "file_data": _data_url(media)}


def _audio(media: Media) -> Part | Refused:
    sound = _AUDIO_FORMATS.get(media.mime_type)
    if sound is None or media.data is None:
        return Refused("sounds are taken as the bytes of WAV or MP3 only")
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(media.data).decode(), "format": sound}}


def _video(_media: Media) -> Part | Refused:
    return Refused("the API has no place for video")


_PARTS: Final[dict[MediaKind, Callable[[Media], Part | Refused]]] = {
    "image": _image,
    "document": _file,
    "audio": _audio,
    "video": _video,
}


def _data_url(media: Media) -> str:
    return f"data:{media.mime_type};base64,{base64.b64encode(media.data or b'').decode()}"


def output_of(result: ToolResult, profile: Profile) -> tuple[str | list[Part], list[str]]:
    """A tool's result as the output of its call: text, or parts where there is media. Also what had to be left out."""
    parts: list[Part] = []
    left_out: list[str] = []
    content = result.content or ((result.structured,) if result.structured is not None else ())
    for piece in content:
        if isinstance(piece, Media):
            part = media_part(piece, profile.tool_result_media, profile.media_urls)
            if isinstance(part, Refused):
                left_out.append(part.why)
                part = text_part(f"[{piece.mime_type} left out: {part.why}]")
            parts.append(part)
        else:
            parts.append(text_part(piece.text))
    if result.is_error:
        _say_error(parts)
    if all(part["type"] == "input_text" for part in parts):
        return "\n".join([str(part["text"]) for part in parts]), left_out
    return parts, left_out


def _say_error(parts: list[Part]) -> None:
    """The API has no flag for errors, so the text must say that it is one."""
    first = parts[0] if parts and parts[0]["type"] == "input_text" else None
    if first is None:
        parts.insert(0, text_part("Error"))
    elif not str(first["text"]).lower().startswith("error"):
        first["text"] = f"Error: {first['text']}"
