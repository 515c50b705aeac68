"""Events of a reply that holds a structured answer, rewritten into those of a text of JSON.

Owns: AnswerReader, and what it does to events: a tool's call becomes a text, a code fence goes, an answer is taken out
of the object that was put around it.
Must not know: how the answer was asked for (structured.py), and any dialect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal, Protocol

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import (
    Completed,
    ReplyEvent,
    StopReason,
    TextDelta,
    TextEnded,
    TextStarted,
    ToolCallDelta,
    ToolCallEnded,
    ToolCallStarted,
)

from .codec import Decoder

__all__ = ["WRAPPING", "AnswerReader"]

WRAPPING: Final = "answer"
"""The property that holds an answer which is not an object."""


class AnswerReader(Struct, frozen=True, kw_only=True):
    """Turns the events of a reply into those of a text of JSON. One serves any number of replies."""

    tool: str | None = None
    """The name of the tool that takes the answer; None if the answer is the text."""
    fenced: bool = False
    """Whether there may be a code fence around the text."""
    wrapped: bool = False
    """Whether the answer is the one property of an object."""

    def wrap(self, decoder: Decoder) -> Decoder:
        """A decoder that gives the events of another one, rewritten."""
        return _WrappedDecoder(decoder, self._reading())

    def events(self, events: Iterable[ReplyEvent]) -> list[ReplyEvent]:
        """The same for the events of a whole reply."""
        reading = self._reading()
        return [*(new for event in events for new in reading.take(event)), *reading.rest()]

    def _reading(self) -> _Reading:
        growing: Callable[[], _Growing] = _Unwrapped if self.wrapped else _Unfenced if self.fenced else _AsItIs
        if self.tool is None:
            return _OfText(growing)
        return _OfTool(self.tool, growing(), nothing="" if self.wrapped else "{}")


# --- a text while it grows --------------------------------------------------------------------------------------------


class _Growing(Protocol):
    """Changes one text while it grows. It holds back only what it cannot yet be certain of."""

    @property
    def held(self) -> str:
        """What was held back."""
        ...

    def take(self, text: str) -> str:
        """The next piece, as far as it is certain."""
        ...

    def end(self) -> str:
        """The last piece."""
        ...


class _AsItIs:
    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held: str = ""

    def take(self, text: str) -> str:
        return text

    def end(self) -> str:
        return ""


class _Unwrapped:
    """The answer out of its object. Where it stands is only known at the end."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: list[str] = []

    @property
    def held(self) -> str:
        return "".join(self._pieces)

    def take(self, text: str) -> str:
        self._pieces.append(text)
        return ""

    def end(self) -> str:
        text = self.held
        try:
            return bytes(msgspec.json.decode(text, type=dict[str, Raw])[WRAPPING]).decode()
        except (msgspec.MsgspecError, KeyError):  # not what was asked for; it stays as it is
            return text


# The word behind the fence names a language; some models write the JSON on the same line.
_FENCE = re.compile(r"\s*```[\w+-]*(?:\s+|(?=[\[{\"]))")
_MAY_BE_FENCE = re.compile(r"\s*(?:`{0,2}|```[\w+-]*)")
_MAY_BE_END = re.compile(r"\s*`{0,3}\s*\Z")
_END = re.compile(r"\s*```\s*\Z")


class _Unfenced:
    """A text without the code fence around it."""

    __slots__ = ("_state", "held")

    def __init__(self) -> None:
        self._state: Literal["undecided", "fenced", "bare"] = "undecided"
        self.held: str = ""

    def take(self, text: str) -> str:
        if self._state == "bare":
            return text
        text, self.held = self.held + text, ""
        if self._state == "undecided":
            if (fence := _FENCE.match(text)) is not None:
                self._state = "fenced"
                text = text[fence.end() :]
            elif _MAY_BE_FENCE.fullmatch(text) is not None:
                self.held = text
                return ""
            else:
                self._state = "bare"
                return text
        # The longest end that may still turn out to be the closing fence.
        cut = _MAY_BE_END.search(text)
        assert cut is not None  # the pattern also fits nothing at all
        self.held = text[cut.start() :]
        return text[: cut.start()]

    def end(self) -> str:
        return _END.sub("", self.held) if self._state == "fenced" else self.held


# --- the events of one reply ------------------------------------------------------------------------------------------


class _Reading(Protocol):
    """Rewrites the events of one reply, one by one."""

    def take(self, event: ReplyEvent) -> Iterator[ReplyEvent]:
        """What becomes of one event."""
        ...

    def rest(self) -> Iterator[ReplyEvent]:
        """What was held back, when nothing more comes."""
        ...


def _delta(index: int, part_id: str, text: str) -> Iterator[ReplyEvent]:
    if text:
        yield TextDelta(index, part_id, text)


class _OfText:
    """The answer is the text; if there are several, each of them may be it."""

    __slots__ = ("_growing", "_texts")

    def __init__(self, growing: Callable[[], _Growing]) -> None:
        self._growing: Callable[[], _Growing] = growing
        self._texts: dict[int, _Growing] = {}

    def take(self, event: ReplyEvent) -> Iterator[ReplyEvent]:
        if isinstance(event, TextStarted):
            self._texts[event.index] = self._growing()
            yield event
        elif isinstance(event, TextDelta) and event.index in self._texts:
            yield from _delta(event.index, event.id, self._texts[event.index].take(event.text))
        elif isinstance(event, TextEnded) and event.index in self._texts:
            yield from _delta(event.index, event.id, self._texts.pop(event.index).end())
            yield event
        else:
            yield event

    def rest(self) -> Iterator[ReplyEvent]:
        for index, text in self._texts.items():
            yield from _delta(index, "", text.held)
        self._texts = {}


class _OfTool:
    """The first call of the answer's tool becomes a text; further ones are repetitions and are left out."""

    __slots__ = ("_answer", "_empty", "_growing", "_left_out", "_nothing", "_open", "_other_calls", "_tool")

    def __init__(self, tool: str, growing: _Growing, nothing: str) -> None:
        self._tool: str = tool
        self._nothing: str = nothing
        """What a call without any arguments means."""
        self._growing: _Growing = growing
        self._answer: int | None = None
        """The index of the part that became a text."""
        self._open: bool = False
        self._empty: bool = True
        self._left_out: set[int] = set()
        self._other_calls: bool = False

    def take(self, event: ReplyEvent) -> Iterator[ReplyEvent]:
        handler = _TOOL_EVENTS.get(type(event))
        if handler is None:
            yield event
        else:
            yield from handler(self, event)

    def rest(self) -> Iterator[ReplyEvent]:
        if self._open and self._answer is not None:
            self._open = False
            yield from _delta(self._answer, "", self._growing.held)

    def started(self, event: ToolCallStarted) -> Iterator[ReplyEvent]:
        if event.name != self._tool:
            self._other_calls = True
            yield event
        elif self._answer is None:
            self._answer, self._open = event.index, True
            yield TextStarted(event.index, "")
        else:
            self._left_out.add(event.index)

    def grew(self, event: ToolCallDelta) -> Iterator[ReplyEvent]:
        if event.index == self._answer:
            self._empty = self._empty and not event.arguments.strip()
            yield from _delta(event.index, "", self._growing.take(event.arguments))
        elif event.index not in self._left_out:
            yield event

    def ended(self, event: ToolCallEnded) -> Iterator[ReplyEvent]:
        if event.index == self._answer:
            self._open = False
            yield from _delta(event.index, "", self._nothing if self._empty else self._growing.end())
            yield TextEnded(event.index, "")
        elif event.index not in self._left_out:
            yield event

    def completed(self, event: Completed) -> Iterator[ReplyEvent]:
        done = self._answer is not None and not self._other_calls and event.stop_reason is StopReason.TOOL_CALLS
        yield msgspec.structs.replace(event, stop_reason=StopReason.END) if done else event


# Each handler takes its own kind of event, which the key guarantees and a type cannot say.
_TOOL_EVENTS: dict[type[Any], Callable[[_OfTool, Any], Iterator[ReplyEvent]]] = {
    ToolCallStarted: _OfTool.started,
    ToolCallDelta: _OfTool.grew,
    ToolCallEnded: _OfTool.ended,
    Completed: _OfTool.completed,
}


class _WrappedDecoder:
    __slots__ = ("_decoder", "_reading")

    def __init__(self, decoder: Decoder, reading: _Reading) -> None:
        self._decoder: Decoder = decoder
        self._reading: _Reading = reading

    def feed(self, data: bytes, events: list[ReplyEvent]) -> None:
        """As in Decoder: what came before an error is in the list when it is raised."""
        fresh: list[ReplyEvent] = []
        try:
            self._decoder.feed(data, fresh)
        except BaseException:
            self._pass_on(fresh, events, last=True)
            raise
        self._pass_on(fresh, events, last=False)

    def finish(self, events: list[ReplyEvent]) -> None:
        """As in Decoder."""
        fresh: list[ReplyEvent] = []
        try:
            self._decoder.finish(fresh)
        finally:
            self._pass_on(fresh, events, last=True)

    def _pass_on(self, fresh: list[ReplyEvent], events: list[ReplyEvent], *, last: bool) -> None:
        take = self._reading.take
        for event in fresh:
            events.extend(take(event))
        if last:
            events.extend(self._reading.rest())
