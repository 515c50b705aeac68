"""From the bytes of a reply to events, whole or as a stream.

A block that arrives whole is opened and ended at once, so whole replies and streams cannot differ. All is taken apart
into raw members, so that nothing we do not know is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

import msgspec
from msgspec import Raw

from dragoman.conversation import (
    BlockReceived,
    Completed,
    Native,
    Opaque,
    ReplyEvent,
    ReplyStarted,
    StopReason,
    TextDelta,
    TextEnded,
    TextStarted,
    ThinkingDelta,
    ThinkingEnded,
    ThinkingStarted,
    ToolCallDelta,
    ToolCallEnded,
    ToolCallStarted,
    Usage,
    UsageReported,
)
from dragoman.providers.codec import Call, Encoded
from dragoman.providers.failures import error_in
from dragoman.providers.wire import DecoderBase, read_elements, read_members, read_number, read_text

from .history import READER, UNREADABLE, object_of_arguments

_KEPT_EVENTS: Final = 100
"""How many events of unknown types a reply may keep."""

_encode = msgspec.json.encode

# --- why a reply ended, and what it cost ------------------------------------------------------------------------------

_STOP_REASONS: Final[dict[str, StopReason]] = {
    "end_turn": StopReason.END,
    "tool_use": StopReason.TOOL_CALLS,
    "max_tokens": StopReason.MAX_TOKENS,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "pause_turn": StopReason.PAUSED,
    "compaction": StopReason.PAUSED,  # the history was summed up; sent back, it is gone on with
    "refusal": StopReason.REFUSAL,
    "model_context_window_exceeded": StopReason.CONTEXT_FULL,
}


def _read_usage(counts: Mapping[str, Raw]) -> Usage:
    """The provider counts what was read from and written to its cache apart from `input_tokens`; we count it in."""
    fresh = read_number(counts.get("input_tokens"))
    read = read_number(counts.get("cache_read_input_tokens"))
    wrote = read_number(counts.get("cache_creation_input_tokens"))
    details = read_members(counts["output_tokens_details"]) if "output_tokens_details" in counts else {}
    return Usage(
        input=None if fresh is None else fresh + (read or 0) + (wrote or 0),
        output=read_number(counts.get("output_tokens")),
        cache_read=read,
        cache_write=wrote,
        reasoning=read_number(details.get("thinking_tokens")),
    )


_PIECES: Final = {
    "text_delta": "text",
    "input_json_delta": "partial_json",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
}
"""Deltas that make a block grow, and the member that holds the piece; any other brings members to keep."""
_read_string: Final = msgspec.json.Decoder(str).decode

# --- blocks while they grow -------------------------------------------------------------------------------------------


def _keep(members: Mapping[str, Raw], *left_out: str) -> dict[str, Raw]:
    """Copies of the members that are worth keeping: all but those named and those that are null."""
    return {name: raw.copy() for name, raw in members.items() if name not in left_out and bytes(raw) != b"null"}


class _Block:
    """What all kinds of blocks share: members that have no place in ours, and deltas that bring more of them."""

    __slots__ = ("citations", "fields", "index")

    def __init__(self, index: int, fields: dict[str, Raw]) -> None:
        self.index = index
        self.fields = fields
        self.citations: list[Raw] = []

    def grow(self, _kind: str, _piece: str, _events: list[ReplyEvent]) -> bool:
        """Take the next piece; False if it is not of this kind of block."""
        return False

    def end(self, events: list[ReplyEvent]) -> None:
        """The block is complete."""
        raise NotImplementedError

    def merge(self, delta: Mapping[str, Raw]) -> None:
        """Take any other delta: strings grow, anything else is replaced."""
        for name, raw in delta.items():
            old = self.fields.get(name)
            if name == "citation":
                self.citations.append(raw.copy())
            elif name != "type":
                both = old is not None and bytes(old).startswith(b'"') and bytes(raw).startswith(b'"')
                grown = (read_text(old) or "") + (read_text(raw) or "") if both else ""
                self.fields[name] = Raw(_encode(grown)) if both else raw.copy()

    def all_fields(self) -> dict[str, Raw]:
        if self.citations:
            before = read_elements(self.fields["citations"]) if "citations" in self.fields else []
            self.fields["citations"] = Raw(_encode([*before, *self.citations]))
        elif bytes(self.fields.get("citations", b"")) == b"[]":
            del self.fields["citations"]  # a stream opens every text so where documents may be cited
        return self.fields

    def native(self) -> Native | None:
        fields = self.all_fields()
        return Native(READER, fields) if fields else None


class _TextBlock(_Block):
    __slots__ = ()

    def __init__(self, index: int, block: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        super().__init__(index, _keep(block, "type", "text"))
        events.append(TextStarted(index, ""))
        if first := read_text(block.get("text")):
            events.append(TextDelta(index, "", first))

    def grow(self, kind: str, piece: str, events: list[ReplyEvent]) -> bool:
        if kind == "text_delta" and piece:
            events.append(TextDelta(self.index, "", piece))
        return kind == "text_delta"

    def end(self, events: list[ReplyEvent]) -> None:
        events.append(TextEnded(self.index, "", self.native()))


class _ThinkingBlock(_Block):
    __slots__ = ("encrypted", "signature")

    def __init__(self, index: int, block: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        super().__init__(index, _keep(block, "type", "thinking", "signature", "data"))
        self.signature = read_text(block.get("signature"))
        self.encrypted = read_text(block.get("data"))
        events.append(ThinkingStarted(index, "", READER))
        if first := read_text(block.get("thinking")):
            events.append(ThinkingDelta(index, "", first))

    def grow(self, kind: str, piece: str, events: list[ReplyEvent]) -> bool:
        if kind == "signature_delta":
            self.signature = piece  # whole, however many come: the last one counts
        elif kind == "thinking_delta" and piece:
            events.append(ThinkingDelta(self.index, "", piece))
        return kind in {"signature_delta", "thinking_delta"}

    def end(self, events: list[ReplyEvent]) -> None:
        # A stream opens a thought with an empty signature; one that stays empty signs nothing.
        events.append(ThinkingEnded(self.index, "", self.signature or None, self.encrypted, self.native()))


class _CallBlock(_Block):
    __slots__ = ("given", "grew", "id")

    def __init__(
        self, index: int, block: Mapping[str, Raw], events: list[ReplyEvent], id: str, names: Mapping[str, str]
    ) -> None:
        super().__init__(index, _keep(block, "type", "id", "name", "input"))
        self.id = read_text(block.get("id")) or id
        self.given = block["input"].copy() if "input" in block else Raw(b"{}")
        self.grew = False
        name = read_text(block["name"]) or ""
        events.append(ToolCallStarted(index, self.id, names.get(name, name)))

    def grow(self, kind: str, piece: str, events: list[ReplyEvent]) -> bool:
        if kind == "input_json_delta" and piece:
            self.grew = True
            events.append(ToolCallDelta(self.index, self.id, piece))
        return kind == "input_json_delta"

    def end(self, events: list[ReplyEvent]) -> None:
        # A call that came whole has its input here. In a stream this is {} and the pieces follow, or none for {}.
        if not self.grew and read_members(self.given):
            events.append(ToolCallDelta(self.index, self.id, bytes(self.given).decode()))
        events.append(ToolCallEnded(self.index, self.id, self.native()))


class _ForeignBlock(_Block):
    """A block that only the provider understands: server tools and their results, and whatever comes in future."""

    __slots__ = ("pieces",)

    def __init__(self, index: int, block: Mapping[str, Raw]) -> None:
        super().__init__(index, {name: raw.copy() for name, raw in block.items()})
        self.pieces: list[str] = []

    def grow(self, kind: str, piece: str, _events: list[ReplyEvent]) -> bool:
        if kind == "input_json_delta":
            self.pieces.append(piece)
        return kind == "input_json_delta"

    def end(self, events: list[ReplyEvent]) -> None:
        fields = self.all_fields()
        if whole := "".join(self.pieces):
            fields["input"] = Raw(object_of_arguments(whole) or _encode({UNREADABLE: whole}))
        id = read_text(fields["id"]) if bytes(fields.get("id", b"")).startswith(b'"') else None
        events.append(BlockReceived(self.index, id or "", Opaque(READER, Raw(_encode(fields)))))


# --- the reply --------------------------------------------------------------------------------------------------------


class ReplyDecoder(DecoderBase):
    """Reads one reply."""

    def __init__(self, call: Call, encoded: Encoded) -> None:
        super().__init__(call, encoded)
        self._started: bool = False
        self._id: str | None = None
        self._model: str | None = None
        """The model that took over from the one that was asked for."""
        self._open: dict[int, _Block] = {}
        self._seen: set[int] = set()
        self._usage: dict[str, Raw] = {}
        self._extras: dict[str, Raw] = {}
        """Members of the reply that have no place in our events, and its stop reason until it ends."""

    # --- a stream ---

    def take_event(self, name: bytes, payload: bytes, events: list[ReplyEvent]) -> None:
        payload.decode()  # members that are kept unread must be fit to be stored
        event = read_members(payload)
        kind = read_text(event.get("type")) or name.decode()
        self._HANDLERS.get(kind, ReplyDecoder._keep_event)(self, event, events)

    def _start(self, event: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        if self._started:
            raise self.broken("it started twice")
        message = read_members(event["message"])
        self._take_message(message, read_elements(message.get("content", b"[]")), events)

    def _start_block(self, event: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        index = self._index_of(event)
        if index in self._seen or not self._started:
            raise self.broken(f"block {index} began out of order")
        self._open[index] = self._open_block(index, event["content_block"], events)

    def _grow_block(self, event: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        index = self._index_of(event)
        block = self._open.get(index)
        if block is None:
            raise self.broken(f"block {index} grew but was not open")
        delta = read_members(event["delta"])
        kind = read_text(delta.get("type"))
        if kind in _PIECES:
            if block.grow(kind, _read_string(delta[_PIECES[kind]]), events):
                return
            if not isinstance(block, _ForeignBlock):
                raise self.broken(f"block {index} got a {kind}, which is not of its kind")
        block.merge(delta)

    def _end_block(self, event: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        index = self._index_of(event)
        if index not in self._open:
            raise self.broken(f"block {index} ended but was not open")
        self._open.pop(index).end(events)

    def _change(self, event: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        """Late news of the reply as a whole: why it stopped and what it cost."""
        if not self._started:
            raise self.broken("it did not begin with its start")
        self._extras.update(_keep(read_members(event.get("delta", b"{}"))))
        self._extras.update(_keep(event, "type", "delta", "usage"))
        self._report_usage(event.get("usage"), events)

    def _stop(self, _event: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        if self._open:
            raise self.broken(f"it ended while block {min(self._open)} was still open")
        self._complete(events)

    def _ping(self, _event: Mapping[str, Raw], _events: list[ReplyEvent]) -> None:
        """The provider keeps the connection alive."""

    def _fail(self, event: Mapping[str, Raw], _events: list[ReplyEvent]) -> None:
        raise error_in(event, self.call)

    def _keep_event(self, event: Mapping[str, Raw], _events: list[ReplyEvent]) -> None:
        """An event of a type we do not know. The provider may add types at any time."""
        kept = read_elements(self._extras.get("events", b"[]"))
        if len(kept) < _KEPT_EVENTS:
            self._extras["events"] = Raw(_encode([*kept, event]))

    _HANDLERS: ClassVar[dict[str, Callable[[ReplyDecoder, Mapping[str, Raw], list[ReplyEvent]], None]]] = {
        "message_start": _start,
        "content_block_start": _start_block,
        "content_block_delta": _grow_block,
        "content_block_stop": _end_block,
        "message_delta": _change,
        "message_stop": _stop,
        "ping": _ping,
        "error": _fail,
    }

    # --- a whole reply, and what it shares with a stream ---

    def take_whole(self, body: bytes, events: list[ReplyEvent]) -> None:
        body.decode()  # members that are kept unread must be fit to be stored
        message = read_members(body)
        if read_text(message.get("type")) == "error":
            raise error_in(message, self.call)
        self._take_message(message, read_elements(message["content"]), events)
        self._complete(events)

    def _take_message(self, message: Mapping[str, Raw], blocks: list[Raw], events: list[ReplyEvent]) -> None:
        """A message as far as it is there: the beginning of a stream, or a whole reply."""
        self._started = True
        self._id = read_text(message.get("id"))
        self._extras.update(_keep(message, "id", "type", "role", "model", "content", "usage"))
        events.append(ReplyStarted(self.call.profile.provider, read_text(message.get("model")), self._id))
        for index, block in enumerate(blocks):
            self._open_block(index, block, events).end(events)
        self._report_usage(message.get("usage"), events)

    def _open_block(self, index: int, raw: Raw, events: list[ReplyEvent]) -> _Block:
        self._seen.add(index)
        block = read_members(raw)
        kind = read_text(block["type"])
        if kind == "text":
            return _TextBlock(index, block, events)
        if kind in {"thinking", "redacted_thinking"}:
            return _ThinkingBlock(index, block, events)
        if kind == "tool_use":
            # The API always gives an id; servers that imitate it may not, and a call without one cannot be answered.
            return _CallBlock(index, block, events, f"call_{self._id or 'reply'}_{index}", self.names)
        if kind == "fallback" and "to" in block:  # another model took over, and what follows is its own
            self._model = read_text(read_members(block["to"]).get("model")) or self._model
        return _ForeignBlock(index, block)

    def _report_usage(self, usage: Raw | None, events: list[ReplyEvent]) -> None:
        """Counts of a stream are running totals: a later one replaces an earlier one, and may leave some out."""
        if usage is not None and bytes(usage) != b"null":
            self._usage.update(_keep(read_members(usage)))
            events.append(UsageReported(_read_usage(self._usage)))

    def _complete(self, events: list[ReplyEvent]) -> None:
        reason = read_text(self._extras.pop("stop_reason", None))
        if reason is None:
            raise self.broken("it ended without saying why")
        self.ended = True
        if self._usage:
            self._extras["usage"] = Raw(_encode(self._usage))
        native = Native(READER, self._extras) if self._extras else None
        events.append(Completed(_STOP_REASONS.get(reason, StopReason.OTHER), reason, native, self._model))

    def _index_of(self, event: Mapping[str, Raw]) -> int:
        index = read_number(event["index"])
        if index is None:
            raise self.broken("an event does not say which block it is about")
        return index
