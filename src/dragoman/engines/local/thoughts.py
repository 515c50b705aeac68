"""Thinking that a model writes into its text, between tags.

Owns: the events of thinking in the place of the beginning of the text.
Must not know: where the tags come from; the splitting itself is that of chat completions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from dragoman.conversation import (
    ReplyEvent,
    TextDelta,
    TextEnded,
    TextStarted,
    ThinkingDelta,
    ThinkingEnded,
    ThinkingStarted,
)
from dragoman.providers.openai_chat.wire import OPEN, ThinkTags

__all__ = ["ThoughtReader"]


class ThoughtReader:
    """Rewrites the events of one reply, which has one text."""

    __slots__ = ("_held", "_inside", "_state", "_tags", "_text")

    def __init__(self, *, inside: bool) -> None:
        self._inside: bool = inside
        """Whether the opening tag was written before the reply began."""
        self._held: str = ""
        self._tags: ThinkTags = ThinkTags()
        self._state: Literal["before", "thinking", "behind"] = "before"
        self._text: bool = False
        """Whether the text has been begun."""

    def take(self, event: ReplyEvent) -> Iterator[ReplyEvent]:
        """What becomes of one event."""
        match event:
            case TextStarted():
                return
            case TextDelta():
                yield from self._grew(event.index, event.text)
            case TextEnded():
                if self._inside:  # it broke off within what may have been the tag
                    self._inside = False
                    yield from self._grew(event.index, OPEN + self._held)
                yield from self._written(event.index, *self._tags.rest())
                yield from self._begun(event.index)
                yield msgspec.structs.replace(event, index=self._place(event.index))
            case _:
                yield event

    def _grew(self, index: int, text: str) -> Iterator[ReplyEvent]:
        if self._inside:  # some servers write the opening tag all the same
            text = self._held = self._held + text
            start = text.lstrip()
            if OPEN.startswith(start) and start != OPEN:
                return
            self._inside = False
            text = text if start.startswith(OPEN) else OPEN + text
        thought, text = ("", text) if self._tags.done else self._tags.split(text)
        yield from self._written(index, thought, text)

    def _written(self, index: int, thought: str, text: str) -> Iterator[ReplyEvent]:
        if thought.strip() or (thought and self._state == "thinking"):
            if self._state == "before":
                self._state = "thinking"
                thought = thought.lstrip("\n")
                yield ThinkingStarted(index, "", "local")
            yield ThinkingDelta(index, "", thought)
        if text:
            yield from self._begun(index)
            yield TextDelta(self._place(index), "", text)

    def _begun(self, index: int) -> Iterator[ReplyEvent]:
        """End the thinking, if there was any, and begin the text."""
        if self._state == "thinking":
            self._state = "behind"
            yield ThinkingEnded(index, "")
        if not self._text:
            self._text = True
            yield TextStarted(self._place(index), "")

    def _place(self, index: int) -> int:
        return index + 1 if self._state == "behind" else index
