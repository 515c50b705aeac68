"""From the bytes of a reply to events, whole or as a stream.

A block of a whole reply is a block with one piece, so the two cannot differ. In a stream only calls and results have a
start event; any other block begins with its first piece.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

import msgspec
from msgspec import Raw

from dragoman._decoding import measured_decoder_of
from dragoman.conversation import (
    BlockReceived,
    Completed,
    Media,
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
from dragoman.providers.citations import of_bedrock, read_citations
from dragoman.providers.codec import Call, Encoded
from dragoman.providers.failures import error_in
from dragoman.providers.history import UNREADABLE
from dragoman.providers.wire import (
    DecoderBase,
    Growing,
    Places,
    as_object,
    is_json,
    read_counts,
    read_elements,
    read_members,
    read_text,
    value_of,
)

from .framing import EXCEPTION, BinaryEvents
from .history import MIME_TYPES, READER, thinker_of

_encode = msgspec.json.encode
_read_index = measured_decoder_of(int).decode
_Members = Mapping[str, Raw]

# --- why a reply ended, and what it cost ------------------------------------------------------------------------------

_STOP_REASONS: Final[dict[str, StopReason]] = {
    "end_turn": StopReason.END,
    "tool_use": StopReason.TOOL_CALLS,
    "max_tokens": StopReason.MAX_TOKENS,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "guardrail_intervened": StopReason.CONTENT_FILTER,
    "content_filtered": StopReason.CONTENT_FILTER,
    "malformed_model_output": StopReason.ERROR,
    "malformed_tool_use": StopReason.ERROR,
    "model_context_window_exceeded": StopReason.CONTEXT_FULL,
}


_COUNTS: Final[Places] = {
    "inputTokens": "input",
    "outputTokens": "output",
    "cacheReadInputTokens": "cache_read",
    "cacheWriteInputTokens": "cache_write",
    "totalTokens": "total",
}


def _read_usage(usage: Raw) -> Usage:
    """Tokens read from and written to the cache are counted apart from `inputTokens`; we include them."""
    counts = read_counts(as_object(value_of(usage)), _COUNTS)
    if "input" in counts:
        counts["input"] += counts.get("cache_read", 0) + counts.get("cache_write", 0)
    return Usage(**counts)


# --- blocks while they grow -------------------------------------------------------------------------------------------


class _Block:
    """A block of any kind while it grows."""

    def __init__(self, index: int, thinker: str, names: Mapping[str, str]) -> None:
        self.index: int = index
        self._thinker: str = thinker
        self._names: Mapping[str, str] = names
        self._kind: str = ""
        """Its member in a message; empty until its first piece arrives."""
        self._fields: dict[str, Raw] = {}
        """Members that have no place in our values; all members of a block that is only kept."""
        self._signature: str | None = None
        self._encrypted: str = ""
        self.call_id: str = ""
        self._unknown: Growing | None = None
        self._list: list[Raw] = []
        """The citations of a text, or the content of a result."""
        self._input: list[str] = []
        """Pieces of the input of a call that the provider ran itself."""

    def take(self, members: _Members, events: list[ReplyEvent]) -> None:
        """A piece, the start of a block, or all of one: an object whose one member names its kind."""
        for kind, raw in members.items():
            handler = self._HANDLERS.get(kind)
            if handler is not None and self._unknown is not None:  # it came before the member that names the kind
                self._fields[self._kind] = self._unknown.whole()
                self._kind, self._unknown = "", None
            (handler or _Block._take_unknown)(self, kind, raw, events)

    def _begin(self, kind: str, event: ReplyEvent, events: list[ReplyEvent]) -> None:
        if not self._kind:
            self._kind = kind
            events.append(event)

    def _take_text(self, kind: str, raw: Raw, events: list[ReplyEvent]) -> None:
        self._begin(kind, TextStarted(self.index, ""), events)
        if text := read_text(raw):
            events.append(TextDelta(self.index, "", text))

    def _take_cited(self, _kind: str, raw: Raw, events: list[ReplyEvent]) -> None:
        """A whole text with its citations."""
        members = read_members(raw)
        self._begin("text", TextStarted(self.index, ""), events)
        for part in read_elements(members.get("content", b"[]")):
            self.take(read_members(part), events)
        for citation in read_elements(members.get("citations", b"[]")):
            self._take_citation("citation", citation, events)

    def _take_citation(self, _kind: str, raw: Raw, events: list[ReplyEvent]) -> None:
        self._begin("text", TextStarted(self.index, ""), events)
        self._list.append(raw)

    def _take_reasoning(self, kind: str, raw: Raw, events: list[ReplyEvent]) -> None:
        self._begin(kind, ThinkingStarted(self.index, "", self._thinker), events)
        members = dict(read_members(raw))
        if "reasoningText" in members:  # as a whole reply has it
            members |= read_members(members.pop("reasoningText"))
        if text := read_text(members.pop("text", None)):
            events.append(ThinkingDelta(self.index, "", text))
        if signature := read_text(members.pop("signature", None)):
            self._signature = (self._signature or "") + signature
        if redacted := read_text(members.pop("redactedContent", None)):
            self._encrypted += b64decode(redacted).decode()
        self._keep(members)

    def _take_call(self, kind: str, raw: Raw, events: list[ReplyEvent]) -> None:
        members = dict(read_members(raw))
        pieces = members.pop("input", None)
        if not self._kind:
            self._kind = kind
            if bytes(members.get("type", b'"tool_use"')) == b'"tool_use"':  # else the provider runs it itself
                members.pop("type", None)
                name, self.call_id = read_text(members.pop("name")) or "", read_text(members.pop("toolUseId")) or ""
                events.append(ToolCallStarted(self.index, self.call_id, self._names.get(name, name)))
        if pieces is not None:
            text = read_text(pieces) if bytes(pieces).startswith(b'"') else bytes(pieces).decode()
            if text and self.call_id:
                events.append(ToolCallDelta(self.index, self.call_id, text))
            elif text:
                self._input.append(text)
        self._keep(members)

    def _take_result(self, kind: str, raw: Raw, _events: list[ReplyEvent]) -> None:
        """The result of a call that the provider ran itself. Its pieces are lists."""
        self._kind = kind
        if bytes(raw).startswith(b"["):
            self._list += read_elements(raw)
        else:
            self._keep(read_members(raw))

    def _take_unknown(self, kind: str, raw: Raw, _events: list[ReplyEvent]) -> None:
        if self._kind in ("", kind):
            self._kind, self._unknown = kind, self._unknown or Growing(deltas=True)
            self._unknown.add(raw)

    def _keep(self, members: _Members) -> None:
        self._fields |= {name: raw.copy() for name, raw in members.items()}

    def end(self, events: list[ReplyEvent]) -> None:
        if self._unknown is not None:
            self._fields[self._kind] = self._unknown.whole()
        if self._list:
            name = "citations" if self._kind == "text" else "content"
            self._fields[name] = Raw(_encode([*read_elements(self._fields.get(name, b"[]")), *self._list]))
        native = Native(READER, self._fields) if self._fields else None
        if self._kind == "text":
            if "citations" in self._fields and (cited := read_citations(self._fields["citations"], of_bedrock)):
                events.append(TextCited(self.index, "", cited))
            events.append(TextEnded(self.index, "", native))
        elif self._kind == "reasoningContent":
            events.append(ThinkingEnded(self.index, "", self._signature, self._encrypted or None, native))
        elif self.call_id:
            events.append(ToolCallEnded(self.index, self.call_id, native))
        elif self._kind == "image" and (media := _read_image(self._fields["image"])) is not None:
            events.append(BlockReceived(self.index, "", media))
        elif self._kind in ("toolUse", "toolResult"):
            if text := "".join(self._input):
                self._fields["input"] = Raw(text.encode() if is_json(text) else _encode({UNREADABLE: text}))
            id = read_text(self._fields.get("toolUseId")) or ""
            events.append(BlockReceived(self.index, id, Opaque(READER, Raw(_encode({self._kind: self._fields})))))
        elif self._kind:
            events.append(BlockReceived(self.index, "", Opaque(READER, Raw(_encode(self._fields)))))

    _HANDLERS: ClassVar[dict[str, Callable[[_Block, str, Raw, list[ReplyEvent]], None]]] = {
        "text": _take_text,
        "citationsContent": _take_cited,
        "citation": _take_citation,
        "reasoningContent": _take_reasoning,
        "toolUse": _take_call,
        "toolResult": _take_result,
    }


def _read_image(raw: Raw) -> Media | None:
    image = read_members(raw)
    source = read_members(image["source"]) if "source" in image else {}
    form = read_text(image.get("format")) or ""
    if "bytes" not in source or form not in MIME_TYPES:
        return None
    return Media.from_bytes(b64decode(read_text(source["bytes"]) or ""), MIME_TYPES[form])


# --- the reply --------------------------------------------------------------------------------------------------------


class ReplyDecoder(DecoderBase):
    """Reads one reply."""

    framing = BinaryEvents

    def __init__(self, call: Call, encoded: Encoded) -> None:
        super().__init__(call, encoded)
        self._started: bool = False
        self._open: dict[int, _Block] = {}
        self._seen: set[int] = set()
        self._calls: int = 0
        self._reason: str | None = None
        self._extras: dict[str, Raw] = {}
        """Members of the reply that have no place in our events."""

    # --- a stream ---

    def take_event(self, name: bytes, payload: bytes, events: list[ReplyEvent]) -> None:
        payload.decode()  # raw members are kept without being parsed, and must be UTF-8
        members = dict(read_members(payload))
        kind = name.decode(errors="replace")
        if kind.startswith(EXCEPTION):
            raise error_in({"code": Raw(_encode(kind.removeprefix(EXCEPTION))), **members}, self.call)
        members.pop("p", None)  # padding, which hides the length of the text
        if not self._started and kind != "messageStart":
            raise self.broken("it did not begin with its start")
        if kind in self._HANDLERS:
            self._HANDLERS[kind](self, members, events)

    def _start(self, _members: _Members, events: list[ReplyEvent]) -> None:
        if self._started:
            raise self.broken("it started twice")
        self._begin(events)

    def _start_block(self, members: _Members, events: list[ReplyEvent]) -> None:
        index = _read_index(members["contentBlockIndex"])
        if index in self._seen:
            raise self.broken(f"block {index} began twice")
        self._block(index).take(read_members(members["start"]), events)

    def _grow_block(self, members: _Members, events: list[ReplyEvent]) -> None:
        index = _read_index(members["contentBlockIndex"])
        if index in self._seen and index not in self._open:
            raise self.broken(f"block {index} grew after its end")
        self._block(index).take(read_members(members["delta"]), events)

    def _end_block(self, members: _Members, events: list[ReplyEvent]) -> None:
        index = _read_index(members["contentBlockIndex"])
        if index not in self._open:
            raise self.broken(f"block {index} ended but was not open")
        self._end(self._open.pop(index), events)

    def _stop(self, members: _Members, _events: list[ReplyEvent]) -> None:
        if self._open:
            raise self.broken(f"it ended while block {min(self._open)} was still open")
        self._take_extras(members)

    def _describe(self, members: _Members, events: list[ReplyEvent]) -> None:
        """The last event: what the reply cost, and the trace of a guardrail."""
        self._take_extras(members)
        self._report_usage(events)
        if self._reason is not None:
            self._complete(events)

    _HANDLERS: ClassVar[dict[str, Callable[[ReplyDecoder, _Members, list[ReplyEvent]], None]]] = {
        "messageStart": _start,
        "contentBlockStart": _start_block,
        "contentBlockDelta": _grow_block,
        "contentBlockStop": _end_block,
        "messageStop": _stop,
        "metadata": _describe,
    }

    def end_stream(self, events: list[ReplyEvent]) -> None:
        if "usage" not in self._extras:
            raise self.broken("the stream ended before its count of tokens")
        self._complete(events)

    # --- a whole reply, and what it shares with a stream ---

    def take_whole(self, body: bytes, events: list[ReplyEvent]) -> None:
        body.decode()  # as above
        reply = dict(read_members(body))
        if "output" not in reply:
            raise error_in(reply, self.call)
        message = read_members(read_members(reply.pop("output"))["message"])
        self._begin(events)
        for index, raw in enumerate(read_elements(message["content"])):
            block = self._block(index)
            block.take(read_members(raw), events)
            self._end(block, events)
        self._take_extras(reply)
        self._report_usage(events)
        self._complete(events)

    def _begin(self, events: list[ReplyEvent]) -> None:
        self._started = True
        events.append(ReplyStarted(self.call.profile.provider, self.call.model, None, self.call.time))

    def _block(self, index: int) -> _Block:
        self._seen.add(index)
        if index not in self._open:
            self._open[index] = _Block(index, thinker_of(self.call.profile), self.names)
        return self._open[index]

    def _end(self, block: _Block, events: list[ReplyEvent]) -> None:
        self._calls += bool(block.call_id)
        block.end(events)

    def _take_extras(self, members: _Members) -> None:
        more = {name: raw.copy() for name, raw in members.items() if bytes(raw) != b"null"}
        self._reason = read_text(more.pop("stopReason", None)) or self._reason
        self._extras |= more

    def _report_usage(self, events: list[ReplyEvent]) -> None:
        if "usage" in self._extras:
            events.append(UsageReported(_read_usage(self._extras["usage"])))

    def _complete(self, events: list[ReplyEvent]) -> None:
        word = self._reason
        if word is None:
            raise self.broken("it ended without a stop reason")
        self.ended = True
        reason = _STOP_REASONS.get(word, StopReason.OTHER)
        if reason is StopReason.TOOL_CALLS and not self._calls:
            reason = StopReason.END  # the provider ran the calls itself
        native = Native(READER, self._extras) if self._extras else None
        events.append(Completed(reason, word, native, None))
