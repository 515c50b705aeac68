"""Events to a message, and back.

Whole and streamed replies become the same events and pass through `fold`, so they cannot differ. A reply without
`Completed` is marked as interrupted. Events that contradict each other (a delta of a part that never started, two parts
with one index) raise ProtocolError. `unfold` is for scripted and replayed replies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Final, cast

from msgspec import Struct, structs

from dragoman.errors import ConversationError, ProtocolError

from .blocks import Block, Citation, Text, Thinking, ToolCall, ToolResult
from .events import (
    AnswerGrown,
    BlockReceived,
    Completed,
    Event,
    Failed,
    HandedOver,
    ReplyEvent,
    ReplyStarted,
    RunEnded,
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
    ToolFinished,
    ToolProgress,
    ToolStarted,
    UsageReported,
)
from .message import Message, StopReason, Usage

_PartStart = TextStarted | ThinkingStarted | ToolCallStarted
_PartEnd = TextEnded | ThinkingEnded | ToolCallEnded

_START_OF: Final[dict[type[_PartEnd], type[_PartStart]]] = {
    TextEnded: TextStarted,
    ThinkingEnded: ThinkingStarted,
    ToolCallEnded: ToolCallStarted,
}
_NOT_STARTED: Final = ReplyStarted(cast("str", None))
_NOT_ENDED: Final = Completed(StopReason.INTERRUPTED)
"""The start and the end of a reply that has none."""


class _Part(Struct, eq=False):
    """A part of the reply while it grows."""

    start: _PartStart
    pieces: list[str] = []
    end: _PartEnd | None = None
    citations: tuple[Citation, ...] = ()

    def block(self) -> Block:
        text = "".join(self.pieces)
        start, end = self.start, self.end
        native = end.native if end is not None else None
        if isinstance(start, TextStarted):
            return Text(text, native, self.citations)
        if isinstance(start, ToolCallStarted):
            call = ToolCall(start.id, start.name, text, partial=end is None, native=native)
            if isinstance(end, ToolCallEnded) and (end.hosted or end.asks):  # few are
                return structs.replace(call, hosted=end.hosted, asks=end.asks)
            return call
        if isinstance(end, ThinkingEnded):
            return Thinking(text, start.provider, end.signature, end.encrypted, native)
        return Thinking(text, start.provider)


class Fold(Struct, eq=False):
    """Collects events; `message()` returns the message so far, at any time."""

    _parts: dict[int, _Part | Block] = {}
    _started: ReplyStarted | None = None
    _usage: Usage | None = None
    _ended: Completed | None = None
    _failed: bool = False

    @property
    def completed(self) -> bool:
        """Whether the reply is complete."""
        return self._ended is not None

    def extend(self, events: Iterable[Event]) -> None:
        """Add events."""
        handlers = self._HANDLERS
        for event in events:
            handlers[type(event)](self, event)

    def message(self) -> Message:
        """The reply so far. Calls without an end are marked as partial."""
        started, ended = self._started or _NOT_STARTED, self._ended or _NOT_ENDED
        parts = self._parts
        blocks: list[Block] = []
        for index in sorted(parts) if len(parts) > 1 else parts:
            part = parts[index]
            blocks.append(part.block() if isinstance(part, _Part) else part)
        return Message(
            role="assistant",
            blocks=tuple(blocks),
            provider=started.provider,
            model=ended.model or started.model,
            id=started.id,
            usage=self._usage,
            stop_reason=StopReason.ERROR if self._failed else ended.stop_reason,
            raw_stop_reason=ended.raw_stop_reason,
            time=started.time,
            native=ended.native,
        )

    # --- one handler for each kind of event ---

    def _start_reply(self, event: ReplyStarted) -> None:
        if self._started is not None:
            raise _contradiction("the reply started twice")
        self._started = event

    def _start_part(self, event: _PartStart) -> None:
        index = event.index
        if index in self._parts or self._ended is not None:
            raise self._not_new(index)
        self._parts[index] = _Part(event)

    def _open_part(self, index: int, kind: type[_PartStart]) -> _Part:
        part = self._parts.get(index)
        if type(part) is not _Part or part.end is not None or type(part.start) is not kind:
            raise _contradiction(f"part {index} grew or ended but was not open")
        return part

    def _grow_text(self, event: TextDelta) -> None:
        self._open_part(event.index, TextStarted).pieces.append(event.text)

    def _grow_thinking(self, event: ThinkingDelta) -> None:
        self._open_part(event.index, ThinkingStarted).pieces.append(event.text)

    def _grow_call(self, event: ToolCallDelta) -> None:
        self._open_part(event.index, ToolCallStarted).pieces.append(event.arguments)

    def _end_part(self, event: _PartEnd) -> None:
        self._open_part(event.index, _START_OF[type(event)]).end = event

    def _cite(self, event: TextCited) -> None:
        part = self._parts.get(event.index)
        if type(part) is not _Part or type(part.start) is not TextStarted or self._ended is not None:
            raise _contradiction(f"part {event.index} has sources but is no text of the reply")
        part.citations += event.citations

    def _add_block(self, event: BlockReceived) -> None:
        if event.index in self._parts or self._ended is not None:
            raise self._not_new(event.index)
        self._parts[event.index] = event.block

    def _set_usage(self, event: UsageReported) -> None:
        self._usage = event.usage

    def _complete(self, event: Completed) -> None:
        if self._ended is not None:
            raise _contradiction("the reply was completed twice")
        self._ended = event
        self._failed = False

    def _fail(self, _event: Failed) -> None:
        self._failed = True

    def _ignore(self, _event: ToolStarted | ToolProgress | ToolFinished | AnswerGrown | HandedOver | RunEnded) -> None:
        """Events of the run are not part of a reply."""

    def _not_new(self, index: int) -> ProtocolError:
        if self._ended is not None:
            return _contradiction(f"part {index} came after the end of the reply")
        return _contradiction(f"part {index} started twice")

    # Each handler takes its own kind of event; the key guarantees that, but the type cannot express it.
    _HANDLERS: ClassVar[dict[type[Event], Callable[[Fold, Any], None]]] = {
        ReplyStarted: _start_reply,
        TextStarted: _start_part,
        TextDelta: _grow_text,
        TextEnded: _end_part,
        TextCited: _cite,
        ThinkingStarted: _start_part,
        ThinkingDelta: _grow_thinking,
        ThinkingEnded: _end_part,
        ToolCallStarted: _start_part,
        ToolCallDelta: _grow_call,
        ToolCallEnded: _end_part,
        BlockReceived: _add_block,
        UsageReported: _set_usage,
        Completed: _complete,
        Failed: _fail,
        ToolStarted: _ignore,
        ToolProgress: _ignore,
        HandedOver: _ignore,
        ToolFinished: _ignore,
        AnswerGrown: _ignore,
        RunEnded: _ignore,
    }


def fold(events: Iterable[Event]) -> Message:
    """The message of these events."""
    state = Fold()
    state.extend(events)
    return state.message()


def _contradiction(what: str) -> ProtocolError:
    return ProtocolError(f"The events of a reply contradict each other: {what}.")


# --- unfold ---


def unfold(message: Message, *, piece: int | None = None) -> Iterator[ReplyEvent]:
    """The events of a reply, with its texts in pieces of this many characters (None: in one piece)."""
    yield ReplyStarted(message.provider or "", message.model, message.id, message.time)
    for index, block in enumerate(message.blocks):
        yield from _part(index, block, piece)
    if message.usage is not None:
        yield UsageReported(message.usage)
    if not message.interrupted:
        natural = StopReason.TOOL_CALLS if message.tool_calls else StopReason.END
        yield Completed(message.stop_reason or natural, message.raw_stop_reason, message.native)


def _part(index: int, block: Block, piece: int | None) -> Iterator[ReplyEvent]:
    match block:
        case Text():
            yield TextStarted(index, "")
            for text in _pieces(block.text, piece):
                yield TextDelta(index, "", text)
            if block.citations:
                yield TextCited(index, "", block.citations)
            yield TextEnded(index, "", block.native)
        case Thinking():
            yield ThinkingStarted(index, "", block.provider)
            for text in _pieces(block.text, piece):
                yield ThinkingDelta(index, "", text)
            yield ThinkingEnded(index, "", block.signature, block.encrypted, block.native)
        case ToolCall():
            yield ToolCallStarted(index, block.id, block.name)
            for text in _pieces(block.arguments, piece):
                yield ToolCallDelta(index, block.id, text)
            if not block.partial:
                yield ToolCallEnded(index, block.id, block.native, block.hosted, block.asks)
        case ToolResult():
            message = f"A result (of call {block.call_id!r}) cannot be part of a model's reply."
            raise ConversationError(message, hint="Put results into a separate message: Message.tool([...]).")
        case _:
            yield BlockReceived(index, "", block)


def _pieces(text: str, size: int | None) -> Iterator[str]:
    if size is None:
        size = max(1, len(text))
    if size < 1:
        message = f"a text cannot be cut into pieces of {size} characters"
        raise ValueError(message)
    for start in range(0, len(text), size):
        yield text[start : start + size]
