"""Thoughts and calls read out of the text that a model writes.

Owns: the events of one reply, rewritten: thoughts between tags, texts, and a call in the place of its text. Pieces are
cut anywhere, so what may be the beginning of a tag or of a call is held back.
Must not know: how the model was made to write it, and the wire.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from json import JSONDecoder
from typing import Final

import msgspec

from dragoman.conversation import (
    Completed,
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
    UsageReported,
)
from dragoman.providers import Decoder

from .models import Thinks
from .prompt import FENCE, INSTEAD, start_parts

_JSON: Final = JSONDecoder()
_THINK: Final = "<think>"
_END: Final = "</think>"


class LocalDecoder:
    """A decoder that gives the events of another one, rewritten."""

    def __init__(
        self, decoder: Decoder, *, tools: Collection[str], thinks: Thinks, model: str, context: int | None
    ) -> None:
        self._decoder: Decoder = decoder
        self._model: str = model
        self._context: int | None = context
        self._tokens: int = 0
        self._text: _TextReader = _TextReader(tools, thinks)

    @property
    def done(self) -> bool:
        """As in Decoder."""
        return self._decoder.done

    def feed(self, data: bytes, events: list[ReplyEvent]) -> None:
        """As in Decoder: what came before an error is in the list when it is raised."""
        fresh: list[ReplyEvent] = []
        try:
            self._decoder.feed(data, fresh)
        finally:
            events += [new for event in fresh for new in self._rewrite(event)]

    def finish(self, events: list[ReplyEvent]) -> None:
        """As in Decoder."""
        fresh: list[ReplyEvent] = []
        try:
            self._decoder.finish(fresh)
        finally:
            events += [new for event in fresh for new in self._rewrite(event)]

    def _rewrite(self, event: ReplyEvent) -> Iterator[ReplyEvent]:
        match event:
            case ReplyStarted():
                self._text.call_id = f"call_{(event.id or '').rpartition('-')[2] or 'local'}"
                yield msgspec.structs.replace(event, model=self._model)  # the server would name the file
            case TextStarted():
                pass
            case TextDelta():
                yield from self._text.feed(event.text)
            case TextEnded():
                yield from self._text.finish()
            case UsageReported():
                self._tokens = event.usage.tokens or 0
                yield event
            case Completed():
                yield msgspec.structs.replace(event, stop_reason=self._stop_reason(event.stop_reason))
            case _:
                yield event

    def _stop_reason(self, reason: StopReason) -> StopReason:
        if self._text.called:
            return StopReason.TOOL_CALLS
        if reason is StopReason.MAX_TOKENS and self._context is not None and self._tokens >= self._context - 1:
            return StopReason.CONTEXT_FULL
        return reason


class _TextReader:
    """Takes one text apart: a thought, the text itself, and at its end a call."""

    def __init__(self, tools: Collection[str], thinks: Thinks) -> None:
        self.call_id: str = ""
        self.called: bool = False
        """Whether a call was written to its end."""
        names = "|".join([re.escape(start_parts(name)[4]) for name in tools])
        parts = [f"({names})" if part == '""' else re.escape(part) for part in start_parts("")]
        self._start: re.Pattern[str] | None = re.compile(r"\s*".join(["", *parts, ""])) if tools else None
        """What stands before the arguments of a call."""
        self._tags: _ThinkTags | None = None if thinks == "never" else _ThinkTags()
        self._untagged: str | None = "" if thinks == "always" else None
        """The beginning of a reply whose opening tag stands in the prompt; some models write it all the same."""
        self._held: str = ""
        """What may be the beginning of a call."""
        self._index: int = 0
        self._block: str = ""
        """What is being written: nothing yet, a thought, a text or a call."""
        self._arguments: str = ""

    def feed(self, text: str) -> Iterator[ReplyEvent]:
        """The next piece."""
        if self._tags is None or self._tags.done:
            yield from self._feed_text(text)
            return
        if self._untagged is not None:
            self._untagged += text
            start = self._untagged.lstrip()
            if _THINK.startswith(start) and start != _THINK:
                return
            text = self._untagged if start.startswith(_THINK) else _THINK + self._untagged
            self._untagged = None
        thought, text = self._tags.split(text)
        yield from self._think(thought)
        if text:
            yield from self._feed_text(text)

    def finish(self) -> Iterator[ReplyEvent]:
        """Nothing follows: what was held back is what it is."""
        if self._tags is not None:
            if self._untagged is not None:  # it broke off within what may have been the tag
                self._tags.split(_THINK + self._untagged)
            thought, text = self._tags.rest()
            yield from self._think(thought)
            yield from self._feed_text(text)
        if self._block != "call":
            yield from self._say(self._held)
            if self._block != "text":  # nothing was said; that is a reply too
                yield from self._begin("text")
            yield TextEnded(self._index, "")

    # --- blocks ---

    def _begin(self, block: str) -> Iterator[ReplyEvent]:
        if self._block == "thinking":
            yield ThinkingEnded(self._index, "")
        elif self._block == "text":
            yield TextEnded(self._index, "")
        self._index += bool(self._block)
        self._block = block
        if block == "thinking":
            yield ThinkingStarted(self._index, "", "local")
        elif block == "text":
            yield TextStarted(self._index, "")

    def _think(self, thought: str) -> Iterator[ReplyEvent]:
        if self._block != "thinking":
            thought = thought.lstrip("\n")
            if not thought.strip():
                return
            yield from self._begin("thinking")
        if thought:
            yield ThinkingDelta(self._index, "", thought)

    def _say(self, text: str) -> Iterator[ReplyEvent]:
        if text:
            if self._block != "text":
                yield from self._begin("text")
            yield TextDelta(self._index, "", text)

    # --- texts and calls ---

    def _feed_text(self, text: str) -> Iterator[ReplyEvent]:
        if self._block == "call":
            yield from self._grow_call(text)
            return
        self._held += text
        size = len(self._held) if self._start is None else self._certain()
        yield from self._say(self._held[:size])
        self._held = self._held[size:]
        if self._start is not None and (found := self._start.match(self._held)):
            yield from self._begin("call")
            yield ToolCallStarted(self._index, self.call_id, msgspec.json.decode(found[1]))
            rest, self._held = self._held[found.end() :], ""
            yield from self._grow_call(rest)
        elif INSTEAD in self._held:  # what stands before it is a call of nothing that we know
            rest, self._held = self._held.partition(INSTEAD)[2], ""
            yield from self._feed_text(f"\n\n{rest}" if self._block == "text" else rest)

    def _certain(self) -> int:
        """How many letters at the start of what is held are certainly text. Blanks before a call are no part of it."""
        held = self._held
        at = held.find(FENCE)
        if at < 0:
            longest = min(len(held), len(FENCE) - 1)
            begun = next((size for size in range(longest, 0, -1) if held.endswith(FENCE[:size])), 0)
            at = len(held) - begun
        return len(held[:at].rstrip())

    def _grow_call(self, text: str) -> Iterator[ReplyEvent]:
        if self.called:
            return  # what closes the call is no part of it
        before = len(self._arguments)
        self._arguments = (self._arguments + text).lstrip()
        end: int | None = None
        if "}" in text:
            with suppress(ValueError, RecursionError):
                _, end = _JSON.raw_decode(self._arguments)
        if inside := self._arguments[before:end]:
            yield ToolCallDelta(self._index, self.call_id, inside)
        if end is not None:
            self.called = True
            yield ToolCallEnded(self._index, self.call_id)


class _ThinkTags:
    """Takes `<think>…</think>` off the start of a text that comes in pieces; `done` says that the rest is plain."""

    def __init__(self) -> None:
        self._held: str = ""
        """What may be the beginning of a tag."""
        self._inside: bool = False
        self._behind: bool = False
        """Behind the closing tag, where line breaks belong to neither."""
        self.done: bool = False

    def split(self, piece: str) -> tuple[str, str]:
        """The reasoning and the text in this piece."""
        held = self._held + piece
        self._held = ""
        if not self._inside:
            start = held.lstrip()
            if _THINK.startswith(start) and start != _THINK:
                self._held = held
                return "", ""
            if not start.startswith(_THINK):
                self.done = True
                return "", held
            self._inside = True
            held = start[len(_THINK) :]
        thought, closed, text = ("", _END, held) if self._behind else held.partition(_END)
        if closed:
            text = text.lstrip("\n")
            self._behind, self.done = True, bool(text)
            return thought, text
        lengths = range(min(len(thought), len(_END) - 1), 0, -1)
        length = next((length for length in lengths if thought.endswith(_END[:length])), 0)
        whole = len(thought) - length  # the rest may be the beginning of the closing tag
        self._held = thought[whole:]
        return thought[:whole], ""

    def rest(self) -> tuple[str, str]:
        """What was held back, now that nothing follows."""
        held, self._held = self._held, ""
        return (held, "") if self._inside else ("", held)
