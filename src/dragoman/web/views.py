"""What the page sends and what it gets, as JSON: one thing in each request, and messages as they are shown."""

from __future__ import annotations

import base64
import binascii
import mimetypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from dragoman.conversation import Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from dragoman.errors import ConfigurationError
from dragoman.providers import cost_of
from dragoman.stores import SnapshotSummary

from .turns import Happening, LiveTurn, TurnEnded

SHOWN_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""What a browser shows without running anything; everything else is offered as a download."""
write: Final = msgspec.json.Encoder().encode

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
            raise ConfigurationError(f"{self.name!r} did not arrive whole.", hint="Add it again.") from None
        found = self.type or mimetypes.guess_type(self.name)[0] or "application/octet-stream"
        return Media.from_bytes(content, found.partition(";")[0], name=self.name)


class Said(Struct):
    text: str = ""
    files: list[File] = []
    model: str | None = None
    """For a conversation that begins."""
    go_on: bool = False
    """Nothing is said: the model goes on from where it stands."""

    def blocks(self) -> list[Text | Media]:
        said: list[Text | Media] = [file.media() for file in self.files]
        return [*said, Text(self.text)] if self.text else said


class ForkedSaid(Said):
    at: int = 0
    """The place of the message that is said anew."""
    keep: list[int] = []
    """The files of that message that are said again."""


class Answer(Struct):
    fingerprint: str
    approved: bool
    reason: str = ""
    remember: str | None = None
    """The rule that is remembered, as it was shown."""


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
    """The events of one turn as their own JSON; how it ended comes last."""

    def begin(self) -> Iterable[bytes]:
        return ()

    def encode(self, happening: Happening) -> Iterable[bytes]:
        if not isinstance(happening, TurnEnded):
            return [write(happening)]
        error = happening.error
        ended = {
            "type": "turn_ended",
            "ending": happening.ending,
            "error": None if error is None else {"type": error.error, "message": error.message},
        }
        return [write(ended)]


def show_live(turn: LiveTurn, id: str) -> dict[str, object]:
    """What the page needs to follow a turn from its beginning."""
    said = None if turn.said is None else show_message(turn.said, turn.base, id)
    return {"base": turn.base, "said": said, "complete": turn.log.complete}


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
    """The file at this place of the conversation: a block of a message, or a part of a result."""
    if message >= len(messages) or block >= len(messages[message].blocks):
        return None
    found = messages[message].blocks[block]
    if isinstance(found, ToolResult) and part < len(found.content):
        inner = found.content[part]
        return inner if isinstance(inner, Media) else None
    return found if isinstance(found, Media) else None


def _link(url: str | None) -> str | None:
    """An address that a browser may be sent to; of any other only the name is shown."""
    return url if url is not None and url.lower().startswith(("https://", "http://")) else None


def _media(media: Media, address: str) -> dict[str, object]:
    """Where the page finds a file. Nothing is loaded from another host: such an address is shown as a link."""
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
