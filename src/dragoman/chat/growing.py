"""Typed answers while they come: the events of a growing answer, and the streams of turns that were asked for one.

Owns: when the answer is looked at, so that a long one costs no more than in proportion to its length; the streams.
Must not know: how JSON that is not complete is read (dragoman.tools), and how a provider is asked.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from msgspec import UNSET

import dragoman.tools
from dragoman.conversation import AnswerGrown, Event, TextDelta, TextEnded, TextStarted
from dragoman.loop import AsyncRunStream, RunStream

if TYPE_CHECKING:
    from .answers import AnswerType, TypedResult

T = TypeVar("T")

_SHARE: Final = 16
"""A text is read again when it has grown by this part of its length, so that all readings together are linear."""


async def grow(events: AsyncGenerator[Event, None], wanted: AnswerType[Any]) -> AsyncGenerator[Event, None]:
    """The events of a turn, and one whenever more of the answer is there."""
    reader = None if wanted.response_format is None else dragoman.tools.PartialReader(wanted.schema)
    text, unread, length, value = "", list[str](), 0, object()
    async with aclosing(events):
        async for event in events:
            yield event
            if isinstance(event, TextStarted):
                text, unread, length, value = "", [], 0, UNSET
            elif isinstance(event, TextDelta):
                unread.append(event.text)
                length += len(event.text)
            elif not isinstance(event, TextEnded):
                continue
            ended = isinstance(event, TextEnded)
            if reader is None or not (ended or length - len(text) > len(text) // _SHARE):
                continue
            text, unread = text + "".join(unread), []
            now = reader.read(text, ended=ended)
            if now is not UNSET and now != value:
                value = now
                yield AnswerGrown(now)


class TypedStream(RunStream, Generic[T]):
    """A turn that was asked for an answer of a type, while it happens."""

    @property
    def result(self) -> TypedResult[T]:
        """What came of it, once it has ended."""
        return cast("TypedResult[T]", super().result)

    def answers(self) -> Iterator[Any]:
        """The answer as far as it has come, as JSON values, whenever there is more of it."""
        return (event.value for event in self if isinstance(event, AnswerGrown))


class AsyncTypedStream(AsyncRunStream, Generic[T]):
    """A turn that was asked for an answer of a type, while it happens."""

    @property
    def result(self) -> TypedResult[T]:
        """What came of it, once it has ended."""
        return cast("TypedResult[T]", super().result)

    def answers(self) -> AsyncIterator[Any]:
        """The answer as far as it has come, as JSON values, whenever there is more of it."""
        return (event.value async for event in self if isinstance(event, AnswerGrown))
