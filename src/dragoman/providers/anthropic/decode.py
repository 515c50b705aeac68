"""From the bytes of a reply to events, whole or as a stream.

A block that arrives whole is opened and ended at once, so whole replies and streams cannot differ. All is taken apart
into raw members, so that nothing we do not know is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import (
    BlockReceived,
    Completed,
    Native,
    Opaque,
    ReplyEvent,
    ReplyStarted,
    StopReason,
    TextCited,
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
from dragoman.providers.citations import of_claude, read_citations
from dragoman.providers.codec import Call, Encoded
from dragoman.providers.failures import error_in
from dragoman.providers.history import UNREADABLE
from dragoman.providers.wire import DecoderBase, is_json, read_elements, read_members, read_number, read_text

from .history import READER
from .server_tools import read_use

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


class _CacheCreation(Struct):
    """How long what was written to the cache is kept."""

    ephemeral_1h_input_tokens: int | None = None


_read_kept: Final = msgspec.json.Decoder(_CacheCreation | None).decode


def _read_usage(counts: Mapping[str, Raw]) -> Usage:
    """The provider counts what was read from and written to its cache apart from `input_tokens`; we count it in."""
    fresh = read_number(counts.get("input_tokens"))
    read = read_number(counts.get("cache_read_input_tokens"))
    wrote = read_number(counts.get("cache_creation_input_tokens"))
    details = read_members(counts["output_tokens_details"]) if "output_tokens_details" in counts else {}
    kept = _read_kept(counts["cache_creation"]) if wrote and "cache_creation" in counts else None
    return Usage(
        input=None if fresh is None else fresh + (read or 0) + (wrote or 0),
        output=read_number(counts.get("output_tokens")),
        cache_read=read,
        cache_write=wrote,
        reasoning=read_number(details.get("thinking_tokens")),
        cache_write_1h=kept.ephemeral_1h_input_tokens or None if kept is not None else None,
    )


# Deltas that make a block grow, and the member that holds the piece; any other brings members to keep.
_PIECES: Final = {
    "text_delta": "text",
    "input_json_delta": "partial_json",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
}
_read_string: Final = msgspec.json.Decoder(str).decode

# Members of each kind of block that have a place in our own; a block of any other kind is kept as it is.
_TAKEN: Final = {
    "text": ("type", "text"),
    "thinking": ("type", "thinking", "signature", "data"),
    "redacted_thinking": ("type", "thinking", "signature", "data"),
    "tool_use": ("type", "id", "name", "input"),
}


def _keep(members: Mapping[str, Raw], *left_out: str) -> dict[str, Raw]:
    """Copies of the members that are worth keeping: all but those named and those that are null."""
    return {name: raw.copy() for name, raw in members.items() if name not in left_out and bytes(raw) != b"null"}


class _Block:
    """A block while it grows: text, thinking, a call, or one that only the provider understands."""

    __slots__ = ("call_id", "citations", "fields", "grew", "index", "kind", "members", "pieces", "signature")

    def __init__(self, index: int, members: Mapping[str, Raw], call_id: str) -> None:
        self.index: int = index
        self.kind: str = read_text(members["type"]) or ""
        self.members: Mapping[str, Raw] = members
        taken = _TAKEN.get(self.kind)
        self.fields: dict[str, Raw] = dict(_keep(members, *taken) if taken else members)
        """Members that have no place in ours."""
        self.call_id: str = read_text(members.get("id")) or call_id if self.kind == "tool_use" else ""
        self.signature: str | None = read_text(members.get("signature")) if taken else None
        self.citations: list[Raw] = []
        self.pieces: list[str] = []
        """What came of the input of a call that the provider ran itself."""
        self.grew: bool = False

    def start(self, names: Mapping[str, str], events: list[ReplyEvent]) -> None:
        if self.kind == "text":
            events.append(TextStarted(self.index, ""))
            self.grow("text_delta", read_text(self.members.get("text")) or "", events)
        elif self.kind == "tool_use":
            name = read_text(self.members["name"]) or ""
            events.append(ToolCallStarted(self.index, self.call_id, names.get(name, name)))
        elif self.kind in _TAKEN:
            events.append(ThinkingStarted(self.index, "", READER))
            self.grow("thinking_delta", read_text(self.members.get("thinking")) or "", events)

    def grow(self, kind: str, piece: str, events: list[ReplyEvent]) -> bool:
        """Take the next piece; False if it is not of this kind of block."""
        if self.kind == "text":
            if piece and kind == "text_delta":
                events.append(TextDelta(self.index, "", piece))
            return kind == "text_delta"
        if self.kind == "tool_use":
            if piece and kind == "input_json_delta":
                self.grew = True
                events.append(ToolCallDelta(self.index, self.call_id, piece))
            return kind == "input_json_delta"
        if self.kind not in _TAKEN:
            if kind == "input_json_delta":
                self.pieces.append(piece)
            return kind == "input_json_delta"
        if kind == "signature_delta":
            self.signature = piece  # whole, however many come: the last one counts
        elif piece and kind == "thinking_delta":
            events.append(ThinkingDelta(self.index, "", piece))
        return kind in ("thinking_delta", "signature_delta")

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

    def end(self, events: list[ReplyEvent]) -> None:
        fields = self.fields
        if self.citations:
            before = read_elements(fields["citations"]) if "citations" in fields else []
            fields["citations"] = Raw(_encode([*before, *self.citations]))
        elif bytes(fields.get("citations", b"")) == b"[]":
            del fields["citations"]  # a stream opens every text so where documents may be cited
        native = Native(READER, fields) if fields else None
        if self.kind == "text":
            if "citations" in fields and (cited := read_citations(fields["citations"], of_claude)):
                events.append(TextCited(self.index, "", cited))
            events.append(TextEnded(self.index, "", native))
        elif self.kind == "tool_use":
            # A call that came whole has its input here. In a stream this is {} and the pieces follow, or none for {}.
            given = self.members.get("input", Raw(b"{}"))
            if not self.grew and read_members(given):
                events.append(ToolCallDelta(self.index, self.call_id, bytes(given).decode()))
            events.append(ToolCallEnded(self.index, self.call_id, native))
        elif self.kind in _TAKEN:
            # A stream opens a thought with an empty signature; one that stays empty signs nothing.
            encrypted = read_text(self.members.get("data"))
            events.append(ThinkingEnded(self.index, "", self.signature or None, encrypted, native))
        else:  # server tools and their results, and whatever comes in future
            if whole := "".join(self.pieces):
                fields["input"] = Raw(whole.encode() if is_json(whole) else _encode({UNREADABLE: whole}))
            id = read_text(fields["id"]) if bytes(fields.get("id", b"")).startswith(b'"') else None
            used = read_use(self.kind, fields)
            events.append(BlockReceived(self.index, id or "", Opaque(READER, Raw(_encode(fields)), used)))


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
            if block.kind in _TAKEN:
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
        call, model = self.call, read_text(message.get("model"))
        events.append(ReplyStarted(call.profile.provider, model, self._id, call.time))
        for index, block in enumerate(blocks):
            self._open_block(index, block, events).end(events)
        self._report_usage(message.get("usage"), events)

    def _open_block(self, index: int, raw: Raw, events: list[ReplyEvent]) -> _Block:
        self._seen.add(index)
        # The API always gives a call an id; servers that imitate it may not, and a call without one cannot be answered.
        block = _Block(index, read_members(raw), f"call_{self._id or 'reply'}_{index}")
        if block.kind == "fallback" and "to" in block.members:  # another model took over, and what follows is its own
            self._model = read_text(read_members(block.members["to"]).get("model")) or self._model
        block.start(self.names, events)
        return block

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
