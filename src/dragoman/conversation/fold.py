"""From events to a message: the only way a message is built from a reply.

Owns: the reducer. Whole and streamed replies become the same events and pass through here, so they cannot differ.
Must not know: bytes, providers, clocks.

A reply without `Completed` is marked interrupted, never taken for a finished one. Events that contradict each other
(a delta of a part that never started, two parts of one index) are a ProtocolError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from dragoman.errors import ProtocolError

from .blocks import Block, Text, Thinking, ToolCall
from .events import (
    BlockReceived,
    Completed,
    Event,
    Failed,
    ReplyStarted,
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
    ToolStarted,
    UsageReported,
)
from .message import Message
from .stop_reason import StopReason
from .usage import Usage
from .values import Native

__all__ = ["Fold", "fold"]

_PartStart = TextStarted | ThinkingStarted | ToolCallStarted
_PartEnd = TextEnded | ThinkingEnded | ToolCallEnded

_END_OF: dict[type[_PartStart], type[_PartEnd]] = {
    TextStarted: TextEnded,
    ThinkingStarted: ThinkingEnded,
    ToolCallStarted: ToolCallEnded,
}


class _Part:
    """A part of the reply while it grows."""

    __slots__ = ("end", "pieces", "start")

    def __init__(self, start: _PartStart) -> None:
        self.start = start
        self.pieces: list[str] = []
        self.end: _PartEnd | None = None

    def block(self) -> Block:
        text = "".join(self.pieces)
        start, end = self.start, self.end
        native = end.native if end is not None else None
        if isinstance(start, TextStarted):
            return Text(text, native=native)
        if isinstance(start, ToolCallStarted):
            return ToolCall(start.id, start.name, text, partial=end is None, native=native)
        if isinstance(end, ThinkingEnded):
            return Thinking(text, start.provider, end.signature, end.encrypted, native)
        return Thinking(text, start.provider)


class Fold:
    """Collects events one by one; `message()` may be asked for at any time and gives what is there so far."""

    __slots__ = ("_completed", "_native", "_parts", "_raw_stop", "_started", "_stop", "_usage")

    def __init__(self) -> None:
        self._parts: dict[int, _Part | Block] = {}
        self._started: ReplyStarted | None = None
        self._usage: Usage | None = None
        self._completed: bool = False
        self._stop: StopReason = StopReason.INTERRUPTED
        self._raw_stop: str | None = None
        self._native: Native | None = None

    @property
    def completed(self) -> bool:
        """Whether the reply came to its proper end."""
        return self._completed

    def push(self, event: Event) -> None:
        """Take one more event in."""
        self._HANDLERS[type(event)](self, event)

    def message(self) -> Message:
        """The reply so far. Calls whose end never came are marked partial."""
        started = self._started
        parts = self._parts
        blocks = [part.block() if isinstance(part, _Part) else part for _, part in sorted(parts.items(), key=_index)]
        return Message(
            role="assistant",
            blocks=tuple(blocks),
            provider=started.provider if started else None,
            model=started.model if started else None,
            id=started.id if started else None,
            usage=self._usage,
            stop_reason=self._stop,
            raw_stop_reason=self._raw_stop,
            time=started.time if started else None,
            native=self._native,
        )

    # --- one handler for each kind of event ---

    def _start_reply(self, event: ReplyStarted) -> None:
        if self._started is not None:
            raise _contradiction("the reply started twice")
        self._started = event

    def _start_part(self, event: _PartStart) -> None:
        self._new_index(event.index)
        self._parts[event.index] = _Part(event)

    def _grow_text(self, event: TextDelta) -> None:
        self._open(event.index, TextStarted).pieces.append(event.text)

    def _grow_thinking(self, event: ThinkingDelta) -> None:
        self._open(event.index, ThinkingStarted).pieces.append(event.text)

    def _grow_call(self, event: ToolCallDelta) -> None:
        self._open(event.index, ToolCallStarted).pieces.append(event.arguments)

    def _end_part(self, event: _PartEnd) -> None:
        part = self._parts.get(event.index)
        if not isinstance(part, _Part) or part.end is not None or _END_OF[type(part.start)] is not type(event):
            raise _contradiction(f"part {event.index} ended but was not open")
        part.end = event

    def _take_block(self, event: BlockReceived) -> None:
        self._new_index(event.index)
        self._parts[event.index] = event.block

    def _take_usage(self, event: UsageReported) -> None:
        self._usage = event.usage

    def _complete(self, event: Completed) -> None:
        if self._completed:
            raise _contradiction("the reply was completed twice")
        self._completed = True
        self._stop = event.stop_reason
        self._raw_stop = event.raw_stop_reason
        self._native = event.native

    def _fail(self, _event: Failed) -> None:
        self._stop = StopReason.ERROR

    def _pass_by(self, _event: ToolStarted | ToolFinished) -> None:
        """Running tools is not part of a reply."""

    def _new_index(self, index: int) -> None:
        if self._completed:
            raise _contradiction(f"part {index} came after the end of the reply")
        if index in self._parts:
            raise _contradiction(f"part {index} started twice")

    def _open(self, index: int, kind: type[_PartStart]) -> _Part:
        part = self._parts.get(index)
        if not isinstance(part, _Part) or part.end is not None or type(part.start) is not kind:
            raise _contradiction(f"part {index} grew but was not open")
        return part

    # Each handler takes its own kind of event, which the key guarantees and a type cannot say.
    _HANDLERS: ClassVar[dict[type[Event], Callable[[Fold, Any], None]]] = {
        ReplyStarted: _start_reply,
        TextStarted: _start_part,
        TextDelta: _grow_text,
        TextEnded: _end_part,
        ThinkingStarted: _start_part,
        ThinkingDelta: _grow_thinking,
        ThinkingEnded: _end_part,
        ToolCallStarted: _start_part,
        ToolCallDelta: _grow_call,
        ToolCallEnded: _end_part,
        BlockReceived: _take_block,
        UsageReported: _take_usage,
        Completed: _complete,
        Failed: _fail,
        ToolStarted: _pass_by,
        ToolFinished: _pass_by,
    }


def fold(events: Iterable[Event]) -> Message:
    """The message that these events tell of."""
    state = Fold()
    for event in events:
        state.push(event)
    return state.message()


def _index(item: tuple[int, object]) -> int:
    return item[0]


def _contradiction(what: str) -> ProtocolError:
    return ProtocolError(f"The events of a reply contradict each other: {what}.")
