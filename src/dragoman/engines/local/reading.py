"""Calls read out of the text that a model writes.

Owns: finding where a call begins and ends in a text that comes in pieces, and the events of a tool call in its place.
Must not know: how the model was made to write it, and the wire.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, Protocol

import msgspec

from dragoman.conversation import (
    Completed,
    ReplyEvent,
    ReplyStarted,
    StopReason,
    TextDelta,
    TextEnded,
    TextStarted,
    ToolCallDelta,
    ToolCallEnded,
    ToolCallStarted,
    Usage,
    UsageReported,
)
from dragoman.providers.codec import Decoder

from .grammar import CallForm

__all__ = ["CallReader", "Reader", "ReadingDecoder"]


class CallReader:
    """Rewrites the events of one reply."""

    __slots__ = (
        "_arguments", "_began", "_complete", "_context", "_form", "_held", "_id", "_index", "_model", "_names",
        "_open", "_reply_id", "_usage",
    )  # fmt: skip

    def __init__(self, names: Collection[str], form: CallForm, *, model: str, context: int | None) -> None:
        self._names: Collection[str] = names
        self._form: CallForm = form
        self._model: str = model
        self._context: int | None = context
        self._reply_id: str = ""
        self._held: str = ""
        """What may be the beginning of a call."""
        self._began: bool = False
        """Whether the current text has been told to the caller."""
        self._index: int = 0
        self._id: str = ""
        self._arguments: _Value | None = None
        self._open: bool = False
        """Whether a call is being written."""
        self._complete: bool = False
        """Whether a call was written to its end."""
        self._usage: Usage | None = None

    def take(self, event: ReplyEvent) -> Iterator[ReplyEvent]:
        """What becomes of one event."""
        handler = _HANDLERS.get(type(event))
        if handler is None:
            yield event
        else:
            yield from handler(self, event)

    # --- what frames the reply ---

    def started(self, event: ReplyStarted) -> Iterator[ReplyEvent]:
        self._reply_id = event.id or ""
        yield msgspec.structs.replace(event, model=self._model)  # the server would name the file

    def reported(self, event: UsageReported) -> Iterator[ReplyEvent]:
        self._usage = event.usage
        yield event

    def completed(self, event: Completed) -> Iterator[ReplyEvent]:
        reason = event.stop_reason
        if self._complete:
            reason = StopReason.TOOL_CALLS
        elif reason is StopReason.MAX_TOKENS and self._is_full():
            reason = StopReason.CONTEXT_FULL
        yield msgspec.structs.replace(event, stop_reason=reason)

    def _is_full(self) -> bool:
        used = self._usage.tokens if self._usage is not None else None
        return used is not None and self._context is not None and used >= self._context - 1

    # --- texts ---

    def text_started(self, event: TextStarted) -> Iterator[ReplyEvent]:
        self._index, self._began, self._held = event.index, False, ""
        yield from ()

    def text_grew(self, event: TextDelta) -> Iterator[ReplyEvent]:
        if self._arguments is not None:
            yield from self._call_grew(event.text)
            return
        self._held += event.text
        while self._held and self._arguments is None:
            before = self._held
            yield from self._scanned()
            if self._held == before:
                return

    def text_ended(self, event: TextEnded) -> Iterator[ReplyEvent]:
        if self._arguments is None:
            yield from self._said(self._held)
            self._held = ""
        if self._began and not self._open and not self._complete:
            yield event
        elif self._arguments is None and not self._began:
            # Nothing was said; that is a reply too.
            yield TextStarted(self._index, event.id)
            yield event

    def _said(self, text: str) -> Iterator[ReplyEvent]:
        if not text:
            return
        if not self._began:
            self._began = True
            yield TextStarted(self._index, "")
        yield TextDelta(self._index, "", text)

    def _scanned(self) -> Iterator[ReplyEvent]:
        """Pass on what is certainly text; begin a call where one begins."""
        held, opening = self._held, self._form.opening
        at = held.find(opening) if self._names else -1
        if at < 0:
            sure = held[: len(held) - _overlap(held, opening)] if self._names else held
            sure = sure.rstrip() if self._names else sure  # blanks before a call are no part of the text
            self._held = held[len(sure) :]
            yield from self._said(sure)
            return
        named = _name_at(held, at + len(opening))
        if named is None:  # not all of it is there
            yield from self._kept_from(at)
            return
        name, end = named
        if name not in self._names:  # somebody else's JSON
            self._held = held[end:]
            yield from self._said(held[:end])
            return
        between = self._form.between
        if not held.startswith(between, end):
            if between.startswith(held[end:]):
                yield from self._kept_from(at)
            else:
                self._held = held[end:]
                yield from self._said(held[:end])
            return
        self._held = ""
        yield from self._call_begins(name, held[:at].rstrip())
        yield from self._call_grew(held[end + len(between) :])

    def _kept_from(self, at: int) -> Iterator[ReplyEvent]:
        """Hold back what may be a call, and the blanks before it."""
        sure = self._held[:at].rstrip()
        self._held = self._held[len(sure) :]
        yield from self._said(sure)

    # --- the call ---

    def _call_begins(self, name: str, said_before: str) -> Iterator[ReplyEvent]:
        yield from self._said(said_before)
        if self._began:
            yield TextEnded(self._index, "")
            self._index += 1
        self._id = f"call_{self._reply_id.rpartition('-')[2] or 'local'}"
        self._arguments, self._open = _Value(), True
        yield ToolCallStarted(self._index, self._id, name)

    def _call_grew(self, text: str) -> Iterator[ReplyEvent]:
        assert self._arguments is not None
        if not self._open:
            return  # what closes the call is no part of it
        inside = self._arguments.take(text)
        if inside:
            yield ToolCallDelta(self._index, self._id, inside)
        if self._arguments.over:
            self._open, self._complete = False, True
            yield ToolCallEnded(self._index, self._id)


# Each handler takes its own kind of event, which the key guarantees and a type cannot say.
_HANDLERS: Final[dict[type[Any], Callable[[CallReader, Any], Iterator[ReplyEvent]]]] = {
    ReplyStarted: CallReader.started,
    TextStarted: CallReader.text_started,
    TextDelta: CallReader.text_grew,
    TextEnded: CallReader.text_ended,
    UsageReported: CallReader.reported,
    Completed: CallReader.completed,
}


class _Value:
    """The end of a JSON object or array in a text that comes in pieces."""

    __slots__ = ("_depth", "_escaped", "_quoted", "over")

    def __init__(self) -> None:
        self._depth: int = 0
        self._quoted: bool = False
        self._escaped: bool = False
        self.over: bool = False

    def take(self, text: str) -> str:
        """As much of the text as belongs to the value."""
        for place, letter in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped = letter == "\\"
                self._quoted = letter != '"'
            elif letter == '"':
                self._quoted = True
            elif letter in "{[":
                self._depth += 1
            elif letter in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    self.over = True
                    return text[: place + 1]
        return text


def _overlap(text: str, mark: str) -> int:
    """How many letters at the end of a text may be the beginning of a mark."""
    return next((size for size in range(min(len(text), len(mark) - 1), 0, -1) if text.endswith(mark[:size])), 0)


def _name_at(text: str, at: int) -> tuple[str, int] | None:
    """The name in quotes that stands there, and where it ends; None if it has no end yet, empty if it is none."""
    if at >= len(text):
        return None
    if text[at] != '"':
        return "", at
    try:
        name, end = json.JSONDecoder().raw_decode(text, at)
    except ValueError:
        return None
    return name, end


class Reader(Protocol):
    """Rewrites the events of one reply, one by one."""

    def take(self, event: ReplyEvent) -> Iterator[ReplyEvent]:
        """What becomes of one event."""
        ...


class ReadingDecoder:
    """A decoder that gives the events of another one, rewritten."""

    __slots__ = ("_decoder", "_readers")

    def __init__(self, decoder: Decoder, readers: Sequence[Reader]) -> None:
        self._decoder: Decoder = decoder
        self._readers: Sequence[Reader] = readers

    def feed(self, data: bytes, events: list[ReplyEvent]) -> None:
        """As in Decoder: what came before an error is in the list when it is raised."""
        fresh: list[ReplyEvent] = []
        try:
            self._decoder.feed(data, fresh)
        finally:
            self._pass_on(fresh, events)

    def finish(self, events: list[ReplyEvent]) -> None:
        """As in Decoder."""
        fresh: list[ReplyEvent] = []
        try:
            self._decoder.finish(fresh)
        finally:
            self._pass_on(fresh, events)

    def _pass_on(self, fresh: list[ReplyEvent], events: list[ReplyEvent]) -> None:
        for reader in self._readers:
            fresh = [new for event in fresh for new in reader.take(event)]
        events += fresh
