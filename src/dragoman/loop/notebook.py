"""Show a stream in a notebook as it arrives, when it is the last value of a cell.

IPython is imported only when a notebook asks a stream to display itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, Iterable
from typing import Any, Final

from dragoman.conversation import (
    Conversation,
    Event,
    Fold,
    HandedOver,
    Message,
    ReplyStarted,
    RunEnded,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)

_SECONDS: Final = 0.1
"""Minimum time between two updates."""


class _Display:
    """The turn so far, and its display in the notebook."""

    def __init__(self) -> None:
        from IPython.display import HTML, display  # pyright: ignore[reportUnknownVariableType]

        self._html: Any = HTML
        self._done: list[Message] = []
        self._fold: Fold | None = None
        self._at: float = 0.0
        self._place: Any = display(self._render(), display_id=True)

    def take(self, event: Event) -> None:
        match event:
            case ReplyStarted():
                self._finish_message()
                self._fold = Fold()
                self._fold.extend([event])
            case ToolFinished():
                self._finish_message()
                self._done.append(Message.tool([event.result]))
            case ToolStarted() | ToolProgress() | HandedOver() | RunEnded():
                pass
            case _:
                if self._fold is not None:
                    self._fold.extend([event])
        if time.monotonic() - self._at >= _SECONDS:
            self.draw()

    def end(self) -> None:
        self._finish_message()
        self.draw()

    def _finish_message(self) -> None:
        if self._fold is not None:
            self._done.append(self._fold.message())
        self._fold = None

    def draw(self) -> None:
        self._at = time.monotonic()
        self._place.update(self._render())

    def _render(self) -> Any:
        growing = [] if self._fold is None else [self._fold.message()]
        note = "…" if growing or not self._done else ""
        return self._html(Conversation(messages=(*self._done, *growing)).to_html(note=note))


def show(events: Iterable[Event]) -> None:
    """Show a sync stream as it arrives."""
    shown = _Display()
    try:
        for event in events:
            shown.take(event)
    finally:
        shown.end()


def show_async(events: AsyncIterable[Event]) -> asyncio.Task[None]:
    """Show an async stream as it arrives, in a task."""
    shown = _Display()

    async def follow() -> None:
        try:
            async for event in events:
                shown.take(event)
        finally:
            shown.end()

    return asyncio.get_running_loop().create_task(follow())
