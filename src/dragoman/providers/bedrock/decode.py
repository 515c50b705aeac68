"""From the bytes of a reply to events, whole or as a stream.

A block of a whole reply goes through the same steps as one that grows, so the two cannot differ. Only calls and results
announce themselves in a stream; any other block begins with its first piece.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

import msgspec
from msgspec import Raw

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
from dragoman.providers.failures import error_from
from dragoman.providers.history import UNREADABLE
from dragoman.providers.wire import (
    DecoderBase,
    Growing,
    is_json,
    read_elements,
    read_members,
    read_number,
    read_text,
    value_of,
)

from .framing import EXCEPTION, BinaryEvents
from .history import MIME_TYPES, READER, thinker_of

_encode = msgspec.json.encode
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


def _read_usage(counts: _Members) -> Usage:
    """What was read from and written to the cache is counted apart from `inputTokens`; we count it in."""
    fresh, read, wrote = [
        read_number(counts.get(name)) for name in ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
    ]
    return Usage(
        input=None if fresh is None else fresh + (read or 0) + (wrote or 0),
        output=read_number(counts.get("outputTokens")),
        cache_read=read,
        cache_write=wrote,
        total=read_number(counts.get("totalTokens")),
    )


# --- blocks while they grow -------------------------------------------------------------------------------------------


class _Block:
    """A block of any kind: takes pieces, and gives out events."""

    def __init__(self, index: int, thinker: str, names: Mapping[str, str]) -> None:
        self.index: int = index
        self._thinker: str = thinker
        self._names: Mapping[str, str] = names
        self._kind: str = ""
        """The member that it has in a message; empty until its first piece has come."""
        self._fields: dict[str, Raw] = {}
        """What came of it that has no place in our values; or all of a block that we only keep."""
        self._signature: str | None = None
        self._encrypted: str = ""
        self._call_id: str = ""
        self._kept: Growing | None = None
        self._list: list[Raw] = []
        """The citations of a text, or the content of a result."""
        self._input: list[str] = []
        """Pieces of the input of a call that the provider ran itself."""

    @property
    def is_call(self) -> bool:
        return bool(self._call_id)

    def take(self, members: _Members, events: list[ReplyEvent]) -> None:
        """A piece, the announcement of a block, or all of one: an object of one member that names its kind."""
        for kind, raw in members.items():
            self._HANDLERS.get(kind, _Block._keep)(self, kind, raw, events)

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
        self._fields |= {name: one.copy() for name, one in members.items()}

    def _take_call(self, kind: str, raw: Raw, events: list[ReplyEvent]) -> None:
        members = dict(read_members(raw))
        if self._kind == "":
            self._kind, own = kind, bytes(members.pop("type", b'"tool_use"')) == b'"tool_use"'
            name = read_text(members["name"]) or ""
            if own:
                del members["name"]
                self._call_id = read_text(members.pop("toolUseId")) or ""
                events.append(ToolCallStarted(self.index, self._call_id, self._names.get(name, name)))
            else:
                members["type"] = read_members(raw)["type"]
        given = members.pop("input", None)
        if given is not None:
            text = read_text(given) if bytes(given).startswith(b'"') else bytes(given).decode()
            if text and self.is_call:
                events.append(ToolCallDelta(self.index, self._call_id, text))
            elif text:
                self._input.append(text)
        self._fields |= {name: one.copy() for name, one in members.items()}

    def _take_result(self, kind: str, raw: Raw, _events: list[ReplyEvent]) -> None:
        """The result of a call that the provider ran itself. Its pieces are lists."""
        self._kind = kind
        if bytes(raw).startswith(b"["):
            self._list += read_elements(raw)
        else:
            self._fields |= {name: one.copy() for name, one in read_members(raw).items()}

    def _keep(self, kind: str, raw: Raw, _events: list[ReplyEvent]) -> None:
        """Anything else: kept as it comes."""
        if self._kind in ("", kind):
            self._kind, self._kept = kind, self._kept or Growing(deltas=True)
            self._kept.add(raw)

    def end(self, events: list[ReplyEvent]) -> None:
        if self._kept is not None:
            self._fields[self._kind] = self._kept.whole()
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
        elif self.is_call:
            events.append(ToolCallEnded(self.index, self._call_id, native))
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
        payload.decode()  # members that are kept unread must be fit to be stored
        members = dict(read_members(payload))
        if name.startswith(EXCEPTION):
            raise self._failure(name.removeprefix(EXCEPTION).decode(errors="replace"), members)
        members.pop("p", None)  # padding, which hides the length of what is said
        kind = name.decode(errors="replace")
        if not self._started and kind != "messageStart":
            raise self.broken("it did not begin with its start")
        self._EVENTS.get(kind, ReplyDecoder._keep_event)(self, members, events)

    def _start(self, _members: _Members, events: list[ReplyEvent]) -> None:
        if self._started:
            raise self.broken("it started twice")
        self._begin(events)

    def _start_block(self, members: _Members, events: list[ReplyEvent]) -> None:
        index = self._index_of(members)
        if index in self._seen:
            raise self.broken(f"block {index} began twice")
        self._block(index).take(read_members(members["start"]), events)

    def _grow_block(self, members: _Members, events: list[ReplyEvent]) -> None:
        index = self._index_of(members)
        if index in self._seen and index not in self._open:
            raise self.broken(f"block {index} grew after its end")
        self._block(index).take(read_members(members["delta"]), events)

    def _end_block(self, members: _Members, events: list[ReplyEvent]) -> None:
        index = self._index_of(members)
        if index not in self._open:
            raise self.broken(f"block {index} ended but was not open")
        self._end(self._open.pop(index), events)

    def _stop(self, members: _Members, _events: list[ReplyEvent]) -> None:
        if self._open:
            raise self.broken(f"it ended while block {min(self._open)} was still open")
        self._take_extras(members)

    def _describe(self, members: _Members, events: list[ReplyEvent]) -> None:
        """What the reply cost, and what a guardrail made of it: the last event."""
        self._take_extras(members)
        self._report_usage(events)
        if self._reason is not None:
            self._complete(events)

    def _keep_event(self, _members: _Members, _events: list[ReplyEvent]) -> None:
        """An event of a kind that we do not know."""

    _EVENTS: ClassVar[dict[str, Callable[[ReplyDecoder, _Members, list[ReplyEvent]], None]]] = {
        "messageStart": _start,
        "contentBlockStart": _start_block,
        "contentBlockDelta": _grow_block,
        "contentBlockStop": _end_block,
        "messageStop": _stop,
        "metadata": _describe,
    }

    def end_stream(self, events: list[ReplyEvent]) -> None:
        if self._reason is None:
            raise self.broken("the stream ended before the reply was complete")
        self._complete(events)

    # --- a whole reply, and what it shares with a stream ---

    def take_whole(self, body: bytes, events: list[ReplyEvent]) -> None:
        body.decode()  # members that are kept unread must be fit to be stored
        reply = dict(read_members(body))
        if "output" not in reply:
            raise self._failure("", reply)
        output = dict(read_members(reply.pop("output")))
        message = read_members(output["message"])
        self._begin(events)
        for index, raw in enumerate(read_elements(message["content"])):
            block = self._block(index)
            block.take(read_members(raw), events)
            self._end(block, events)
        self._take_extras(reply)
        self._report_usage(events)
        if self._reason is None:
            raise self.broken("it ended without saying why")
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
        self._calls += block.is_call
        block.end(events)

    def _take_extras(self, members: _Members) -> None:
        more = {name: raw.copy() for name, raw in members.items() if bytes(raw) != b"null"}
        self._reason = read_text(more.pop("stopReason", None)) or self._reason
        self._extras |= more

    def _report_usage(self, events: list[ReplyEvent]) -> None:
        if "usage" in self._extras:
            events.append(UsageReported(_read_usage(read_members(self._extras["usage"]))))

    def _complete(self, events: list[ReplyEvent]) -> None:
        self.ended = True
        word = self._reason or ""
        reason = _STOP_REASONS.get(word, StopReason.OTHER)
        if reason is StopReason.TOOL_CALLS and not self._calls:
            reason = StopReason.END  # the provider has run the calls itself
        native = Native(READER, self._extras) if self._extras else None
        events.append(Completed(reason, word, native, None))

    def _failure(self, kind: str, members: _Members) -> Exception:
        said = {name: value_of(raw) for name, raw in members.items()}
        return error_from({"code": kind, **said} if kind else said, self.call)

    def _index_of(self, members: _Members) -> int:
        index = read_number(members["contentBlockIndex"])
        if index is None:
            raise self.broken("an event does not say which block it is about")
        return index
