"""The JSON that the page sends and gets."""

from __future__ import annotations

import base64
import binascii
import mimetypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from dragoman.conversation import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult, sources_of
from dragoman.errors import ConfigurationError
from dragoman.providers import cost_of
from dragoman.stores import SnapshotSummary

from .turns import LiveTurn, TurnEnded, TurnEvent

SHOWN_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""What a browser can show safely; everything else is a download."""
_MAX_SOURCES: Final = 100

# --- what the page sends ----------------------------------------------------------------------------------------------


class File(Struct):
    name: str
    type: str
    data: str
    """In base64."""

    def media(self) -> Media:
        try:
            content = base64.b64decode(self.data, validate=True)
        except (binascii.Error, ValueError):
            raise ConfigurationError(f"{self.name!r} is not valid base64.", hint="Add it again.") from None
        found = self.type or mimetypes.guess_type(self.name)[0] or "application/octet-stream"
        return Media.from_bytes(content, found.partition(";")[0], name=self.name)


class NewMessage(Struct):
    text: str = ""
    files: list[File] = []
    model: str | None = None
    """For a new conversation."""
    go_on: bool = False
    """Without a message: the model just continues."""

    def blocks(self) -> list[Text | Media]:
        files: list[Text | Media] = [file.media() for file in self.files]
        return [*files, Text(self.text)] if self.text else files


class ForkMessage(NewMessage):
    at: int = 0
    """The index of the message that is replaced."""
    keep: list[int] = []
    """The indexes of its files that are sent again."""


class Answer(Struct):
    fingerprint: str
    approved: bool
    reason: str = ""
    remember: str | None = None
    """The rule to remember, as it was shown."""


class ChosenModel(Struct):
    model: str
    check: bool = False


class Title(Struct):
    title: str


def kept_media(message: Message, places: Iterable[int]) -> list[Media]:
    wanted = set(places)
    return [block for place, block in enumerate(message.blocks) if place in wanted and isinstance(block, Media)]


# --- what the page gets -----------------------------------------------------------------------------------------------


class PageEncoder:
    """The events of one turn in their own JSON, and its end."""

    def begin(self) -> Iterable[object]:
        return ()

    def encode(self, event: TurnEvent) -> Iterable[object]:
        if not isinstance(event, TurnEnded):
            return [event]
        error = None if event.error is None else {"type": event.error.error, "message": event.error.message}
        return [{"type": "turn_ended", "ending": event.ending, "note": event.note, "error": error}]


def show_live(turn: LiveTurn, id: str) -> dict[str, object]:
    """What the page needs to follow a turn from its start."""
    prompt = None if turn.prompt is None else show_message(turn.prompt, turn.base, id)
    return {"base": turn.base, "said": prompt, "complete": turn.log.complete}


def show_summary(each: SnapshotSummary) -> dict[str, object]:
    return {
        "id": each.root,
        "title": each.title,
        "model": f"{each.provider}:{each.model}",
        "time": each.created_at.isoformat(),
        "messages": each.message_count,
        "forked_from": each.forked_from,
    }


def show_call(call: ToolCall) -> dict[str, object]:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments, "partial": call.partial}


def show_message(message: Message, index: int, id: str) -> dict[str, object]:
    shown: Mapping[str, object | None] = {
        "index": index,
        "role": message.role,
        "blocks": [
            _block(block, f"/api/conversations/{id}/media/{index}/{place}")
            for place, block in enumerate(message.blocks)
        ],
        "model": f"{message.provider}:{message.model}" if message.provider else message.model,
        "usage": message.usage,
        "cost": cost_of(message) if message.role == "assistant" else None,
        "sources": sources_of(message.citations)[:_MAX_SOURCES] or None,
        "stop_reason": message.stop_reason,
        "seconds": message.account.seconds if message.account is not None else None,
    }
    return {name: value for name, value in shown.items() if value is not None}


def _block(block: object, address: str) -> dict[str, object]:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Thinking():
            return {"type": "thinking", "text": block.text}
        case ToolCall():
            return show_call(block)
        case ToolResult():
            return {
                "type": "tool_result",
                "call_id": block.call_id,
                "name": block.name,
                "text": block.text,
                "is_error": block.is_error,
                "error_type": block.error_type,
                "duration": block.duration,
                "retries": block.retries,
                "media": [
                    _media(part, f"{address}/{place}")
                    for place, part in enumerate(block.content)
                    if isinstance(part, Media)
                ],
            }
        case Media():
            return _media(block, address)
        case Opaque():
            return {"type": "opaque", "provider": block.provider}
        case _:
            return {"type": "unknown"}


def find_media(messages: Sequence[Message], *, message: int, block: int, part: int = 0, **_: object) -> Media | None:
    """A file of the conversation: a block of a message, or a part of a result."""
    if message >= len(messages) or block >= len(messages[message].blocks):
        return None
    found = messages[message].blocks[block]
    if isinstance(found, ToolResult) and part < len(found.content):
        inner = found.content[part]
        return inner if isinstance(inner, Media) else None
    return found if isinstance(found, Media) else None


def _link(url: str | None) -> str | None:
    """A URL that is safe as a link; of any other only the name is shown."""
    return url if url is not None and url.lower().startswith(("https://", "http://")) else None


def _media(media: Media, address: str) -> dict[str, object]:
    """Where the page finds a file. Nothing is loaded from other hosts: their URLs are shown as links."""
    shown = media.mime_type in SHOWN_IMAGES and media.data is not None
    return {
        "type": "media",
        "kind": media.kind,
        "mime_type": media.mime_type,
        "name": media.name,
        "size": len(media.data) if media.data is not None else None,
        "url": address if media.data is not None else _link(media.url),
        "image": shown,
    }
