"""Which part of a conversation a program, or a session that it keeps on disk, knows already.

Owns: the mark that a reply carries (session, message, fingerprint of all that was said until then), and reading it.
Must not know: processes. A mark is trusted only if the messages before it are still the same.
"""

from __future__ import annotations

from functools import partial
from hashlib import blake2s
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from dragoman.conversation import Message, Native
from dragoman.providers.codec import remembered

from .names import PROVIDER

__all__ = ["Mark", "fingerprint", "latest_mark", "mark_of", "same_start"]

_SIZE: Final = 16
_FIELDS: Final = ("session_id", "uuid", "history")


class Mark(NamedTuple):
    """Where a session stood when a reply was complete."""

    session: str
    message: str
    """The program's id of the reply's last part."""
    history: str
    """Fingerprint of the messages up to the reply and including it."""


def fingerprint(messages: tuple[Message, ...]) -> str:
    """What was said in these messages, in short; the same for the same words, wherever they were kept meanwhile."""
    digest = blake2s(digest_size=_SIZE)
    for message in messages:
        digest.update(remembered(message, "claude_cli print", partial(_print, message)))
    return digest.hexdigest()


def _print(message: Message) -> bytes:
    said = msgspec.json.encode([message.role, message.blocks])
    return blake2s(said, digest_size=_SIZE).digest()


def mark_of(message: Message) -> Mark | None:
    """The mark that a reply carries."""
    native = message.native
    if native is None or native.provider != PROVIDER or not all(name in native.fields for name in _FIELDS):
        return None
    try:
        return Mark(*[_text(native, name) for name in _FIELDS])
    except msgspec.MsgspecError:
        return None


def _text(native: Native, name: str) -> str:
    return msgspec.json.decode(Raw(native.fields[name]), type=str)


def latest_mark(messages: tuple[Message, ...]) -> tuple[int, Mark] | None:
    """The last reply whose session can be taken up again, by its index; what stands before it is unchanged."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role != "assistant" or message.interrupted or message.tool_calls:
            continue  # in the middle of a turn a session cannot be taken up
        mark = mark_of(message)
        if mark is not None and mark.history == fingerprint(messages[: index + 1]):
            return index, mark
    return None


def same_start(known: tuple[Message, ...], messages: tuple[Message, ...]) -> bool:
    """Whether a conversation begins with these messages."""
    if len(known) > len(messages):
        return False
    return all(mine is other or mine == other for mine, other in zip(known, messages, strict=False))
