"""From the bytes of a reply to events, whole or as a stream.

A block that arrives whole is opened and ended at once, so whole replies and streams cannot differ. Everything is split
into raw members, so that nothing unknown is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

import msgspec
from msgspec import Raw

from dragoman._decoding import measured_decoder_of
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
from dragoman.providers.wire import (
    DecoderBase,
    Places,
    as_object,
    is_json,
    read_counts,
    read_elements,
    read_members,
    read_text,
    value_of,
)

from .history import READER
from .server_tools import read_use

_KEPT_EVENTS: Final = 100
"""How many events of unknown types are kept."""

_encode = msgspec.json.encode
_read_index = measured_decoder_of(int).decode

# --- why a reply ended, and what it cost ------------------------------------------------------------------------------

_STOP_REASONS: Final[dict[str, StopReason]] = {
    "end_turn": StopReason.END,
    "tool_use": StopReason.TOOL_CALLS,
    "max_tokens": StopReason.MAX_TOKENS,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "pause_turn": StopReason.PAUSED,
    "compaction": StopReason.PAUSED,  # the history was summarized; sent back, it is continued
    "refusal": StopReason.REFUSAL,
    "model_context_window_exceeded": StopReason.CONTEXT_FULL,
}


_COUNTS: Final[Places] = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read_input_tokens": "cache_read",
    "cache_creation_input_tokens": "cache_write",
    "cache_creation": {"ephemeral_1h_input_tokens": "cache_write_1h"},
    "output_tokens_details": {"thinking_tokens": "reasoning"},
}


def _read_usage(usage: Mapping[str, object]) -> Usage:
    """The provider counts tokens read from and written to its cache apart from `input_tokens`; we include them."""
    counts = read_counts(usage, _COUNTS)
    if "input" in counts:
        counts["input"] += counts.get("cache_read", 0) + counts.get("cache_write", 0)
    return Usage(**counts)


# Deltas with a piece of a block, and the member that holds it; the members of any other delta are kept.
_PIECES: Final = {
    "text_delta": "text",
    "input_json_delta": "partial_json",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
}
_read_string: Final = measured_decoder_of(str).decode

# Members of each kind of block that have a place in ours; a block of any other kind is kept as it is.
_TAKEN: Final = {
    "text": ("type", "text"),
    "thinking": ("type", "thinking", "signature", "data"),
    "redacted_thinking": ("type", "thinking", "signature", "data"),
    "tool_use": ("type", "id", "name", "input"),
}


def _keep(members: Mapping[str, Raw], *left_out: str) -> dict[str, Raw]:
    """Copies of the members, without those named and those that are null."""
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
        """The input of a call that the provider runs itself."""
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
        """Add a piece; False if this kind of block has no such pieces."""
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
            self.signature = piece  # each is complete: the last one counts
        elif piece and kind == "thinking_delta":
            events.append(ThinkingDelta(self.index, "", piece))
        return kind in ("thinking_delta", "signature_delta")

    def merge(self, delta: Mapping[str, Raw]) -> None:
        """Add any other delta: strings grow, anything else is replaced."""
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
            del fields["citations"]  # so every text of a stream begins where documents may be cited
        native = Native(READER, fields) if fields else None
        if self.kind == "text":
            if "citations" in fields and (cited := read_citations(fields["citations"], of_claude)):
                events.append(TextCited(self.index, "", cited))
            events.append(TextEnded(self.index, "", native))
        elif self.kind == "tool_use":
            # The input of a call that came whole; in a stream it is {} here, and arrives in pieces.
            given = self.members.get("input", Raw(b"{}"))
            if not self.grew and bytes(given) != b"null" and read_members(given):
                events.append(ToolCallDelta(self.index, self.call_id, bytes(given).decode()))
            events.append(ToolCallEnded(self.index, self.call_id, native))
        elif self.kind in _TAKEN:
            # A stream begins a thought with an empty signature, which may stay empty.
            encrypted = read_text(self.members.get("data"))
            events.append(ThinkingEnded(self.index, "", self.signature or None, encrypted, native))
        else:  # server tools and their results, and future kinds
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
        self._usage: dict[str, object] = {}
        self._extras: dict[str, Raw] = {}
        """Members of the reply that have no place in our events, and its stop reason until it ends."""

    # --- a stream ---

    def take_event(self, name: bytes, payload: bytes, events: list[ReplyEvent]) -> None:
        payload.decode()  # raw members are kept without being parsed, and must be UTF-8
        event = read_members(payload)
        kind = read_text(event.get("type")) or name.decode()
        self._HANDLERS.get(kind, ReplyDecoder._keep_event)(self, event, events)

    def _start(self, event: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        if self._started:
            raise self.broken("it started twice")
        message = read_members(event["message"])
        self._take_message(message, read_elements(message.get("content", b"[]")), events)

    def _start_block(self, event: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        index = _read_index(event["index"])
        if index in self._seen or not self._started:
            raise self.broken(f"block {index} began out of order")
        self._open[index] = self._open_block(index, event["content_block"], events)

    def _grow_block(self, event: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        index = _read_index(event["index"])
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
        index = _read_index(event["index"])
        if index not in self._open:
            raise self.broken(f"block {index} ended but was not open")
        self._open.pop(index).end(events)

    def _change(self, event: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        """Why the reply stopped, and what it cost."""
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
        """Keep an event of an unknown type; the provider may add types at any time."""
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
        body.decode()  # as above
        message = read_members(body)
        if read_text(message.get("type")) == "error":
            raise error_in(message, self.call)
        self._take_message(message, read_elements(message["content"]), events)
        self._complete(events)

    def _take_message(self, message: Mapping[str, Raw], blocks: list[Raw], events: list[ReplyEvent]) -> None:
        """A whole reply, or the message at the start of a stream."""
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
        # Calls always have ids, except on servers that imitate the API; without one a call cannot be answered.
        block = _Block(index, read_members(raw), f"call_{self._id or 'reply'}_{index}")
        if block.kind == "fallback" and "to" in block.members:  # another model took over
            self._model = read_text(read_members(block.members["to"]).get("model")) or self._model
        block.start(self.names, events)
        return block

    def _report_usage(self, usage: Raw | None, events: list[ReplyEvent]) -> None:
        """Counts of a stream are running totals: later ones replace earlier ones, and may be incomplete."""
        if usage is not None and bytes(usage) != b"null":
            self._usage |= {name: value for name, value in as_object(value_of(usage)).items() if value is not None}
            events.append(UsageReported(_read_usage(self._usage)))

    def _complete(self, events: list[ReplyEvent]) -> None:
        reason = read_text(self._extras.pop("stop_reason", None))
        if reason is None:
            raise self.broken("it ended without a stop reason")
        self.ended = True
        if self._usage:
            self._extras["usage"] = Raw(_encode(self._usage))
        native = Native(READER, self._extras) if self._extras else None
        events.append(Completed(_STOP_REASONS.get(reason, StopReason.OTHER), reason, native, self._model))
