"""What is asked: words, what is piped in, and attachments.

Owns: putting a message together from these.
Must not know: who is asked.

Attachments are read now and kept in the conversation, so that it can be continued when the file is gone. Texts become
text, which every model takes; images, documents, audio and video become media.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from dragoman.conversation import Block, Media, Message, Text

from .arguments import UsageError
from .paths import user_path
from .terminal import Terminal

__all__ = ["clean", "message_from", "read_prompt"]

_LARGEST: Final = 100 * 1024 * 1024
_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"GIF87a", 0, "image/gif"),
    (b"GIF89a", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
    (b"%PDF-", 0, "application/pdf"),
    (b"ID3", 0, "audio/mpeg"),
    (b"WAVE", 8, "audio/wav"),
    (b"fLaC", 0, "audio/flac"),
    (b"OggS", 0, "audio/ogg"),
    (b"ftyp", 4, "video/mp4"),
)


def clean(text: str) -> str:
    """The text without halves of letters, which come from arguments that are not UTF-8 and cannot be sent."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def read_prompt(words: Sequence[str], terminal: Terminal) -> tuple[str, list[Block]]:
    """The question: the words, then what is piped in. `-` alone reads the question itself from standard input."""
    said = clean(" ".join(words)).strip() if list(words) != ["-"] else ""
    piped: list[Block] = []
    if list(words) == ["-"] or (not terminal.in_is_tty and terminal.stdin is not None):
        context, piped = _piped(terminal)
        said = f"{said}\n\n{context}" if said and context else said or context
    return said, piped


def _piped(terminal: Terminal) -> tuple[str, list[Block]]:
    if terminal.stdin is None:
        return "", []
    try:
        buffer = getattr(terminal.stdin, "buffer", None)
        raw: bytes = buffer.read(_LARGEST + 1) if buffer is not None else terminal.stdin.read(_LARGEST + 1).encode()
    except (OSError, ValueError):  # closed, or a terminal in the background
        return "", []
    if len(raw) > _LARGEST:
        raise UsageError(f"More than {_LARGEST // 2**20} MiB are piped in.", hint="Pipe in less.")
    try:
        return raw.decode("utf-8-sig").strip("\n"), []
    except UnicodeDecodeError:
        return "", [_media(raw, "standard input")]


def message_from(
    text: str, piped: Iterable[Block], attachments: Iterable[str], typed: Iterable[Sequence[str]]
) -> Message | None:
    """The user's message; None if nothing was said at all."""
    blocks = [*piped, *(_attached(name) for name in attachments), *(_attached(name, kind) for name, kind in typed)]
    if text:
        blocks.append(Text(text))
    return Message.user(*blocks) if blocks else None


def _attached(name: str, mime_type: str | None = None) -> Block:
    if name.startswith(("http://", "https://")):
        try:
            return Media.from_url(name, mime_type=mime_type)
        except ValueError:
            message = "The type of an attachment cannot be told from its address."
            raise UsageError(message, hint=f"Say it: --at {name} image/png") from None
    path = user_path(name)
    try:
        with path.open("rb") as file:  # perhaps a device without an end
            raw = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "that is no name of a file"
        message = f"The attachment {name!r} cannot be read: {reason}."
        raise UsageError(message, hint="Check its name and permissions.") from None
    if len(raw) > _LARGEST:
        message = f"The attachment {name!r} is larger than {_LARGEST // 2**20} MiB."
        raise UsageError(message, hint="Attach something smaller.")
    if mime_type is not None and not mime_type.startswith("text/"):
        return Media.from_bytes(raw, mime_type, name=path.name)
    try:
        # Of a file that is text, whatever its suffix says, every model can read the text.
        text = raw.decode("utf-8-sig")
        if "\0" not in text:
            return Text(f"File {path.name}:\n\n{text}\n")
    except UnicodeDecodeError:
        pass
    return _media(raw, name, path)


def _media(raw: bytes, where: str, path: Path | None = None) -> Media:
    mime_type = next((kind for magic, at, kind in _MAGIC if raw[at : at + len(magic)] == magic), None)
    name = None if path is None else path.name
    if mime_type is None and path is not None:
        try:
            mime_type = Media.from_path(path).mime_type
        except ValueError:
            mime_type = None
    if mime_type is None:
        message = f"What {where!r} holds is neither text nor of a type that is known."
        raise UsageError(message, hint="Say its type: --at FILE image/png")
    return Media.from_bytes(raw, mime_type, name=name)
