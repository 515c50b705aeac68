"""The chat's view of a turn: live Markdown, spinners and the time that tools take.

Owns: the only import of rich.
Must not know: what is asked, and how.

Complete blocks of the answer are printed for good; the last one, which still grows, is painted again and again below
them and never higher than the screen. Addresses of links are shown, not hidden behind their words.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markdown import Markdown
from rich.text import Text

from dragoman.cli.printing import tool_line
from dragoman.cli.terminal import Terminal, harmless, shortened
from dragoman.conversation import (
    Event,
    TextDelta,
    TextEnded,
    ThinkingDelta,
    ToolCall,
    ToolFinished,
    ToolResult,
    ToolStarted,
)

from .blocks import Blocks

if TYPE_CHECKING:
    from typing import TextIO

__all__ = ["Screen"]

_PER_SECOND: Final = 8
_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Screen:
    """Shows a turn on a terminal."""

    def __init__(self, terminal: Terminal, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._terminal: Terminal = terminal
        self._clock: Callable[[], float] = clock
        self._out: Console = _console(terminal, terminal.stdout)
        self._err: Console = _console(terminal, terminal.stderr)
        self._blocks: Blocks = Blocks()
        self._live: Live | None = None
        self._growing: str = ""
        """The block that is still being written, as it is painted."""
        self._running: dict[str, tuple[ToolCall, float]] = {}
        self._since: float = 0.0
        self._thought: str = ""

    # --- the view ---

    def waiting(self) -> None:
        self._since = self._clock()
        self._spin()

    def still(self) -> None:
        self._stop()
        self._finish_text()
        self._thought = ""
        self._running.clear()

    def event(self, event: Event) -> None:
        match event:
            case TextDelta():
                self._text(event.text)
            case TextEnded():
                self._stop()
                self._finish_text()
                self.waiting()
            case ThinkingDelta():
                self._thought = (self._thought + event.text)[-60:]
            case ToolStarted():
                self._started(event.call)
            case ToolFinished():
                self._finished(event.result)
            case _:
                pass

    # --- text ---

    def _text(self, text: str) -> None:
        complete = self._blocks.feed(harmless(text))
        if complete:
            self._stop()
        for block in complete:
            self._print(block)
        self._growing = self._blocks.rest
        if self._growing.strip() and not isinstance(self._live, _Growing):
            self._stop()
            self._growing = self._blocks.rest
            self._live = _Growing(self._out, self._tail)
            self._live.start()

    def _tail(self) -> RenderableType:
        return Markdown(self._growing, hyperlinks=False)

    def _finish_text(self) -> None:
        rest = self._blocks.end()
        if rest.strip():
            self._print(rest)

    def _print(self, block: str) -> None:
        self._out.print(Markdown(block, hyperlinks=False))

    # --- tools ---

    def _started(self, call: ToolCall) -> None:
        self._stop()
        self._finish_text()
        self._running[call.id] = (call, self._clock())
        self._thought = ""
        self._spin()

    def _finished(self, result: ToolResult) -> None:
        self._stop()
        self._running.pop(result.call_id, None)
        style = "yellow" if result.is_error else "dim"
        self._err.print(Text(tool_line(result, self._terminal.width), style))
        self.waiting()

    # --- spinning ---

    def _spin(self) -> None:
        self._stop()
        self._live = Live(get_renderable=self._busy, console=self._err, refresh_per_second=_PER_SECOND, transient=True)
        self._live.start()

    def _busy(self) -> RenderableType:
        now = self._clock()
        width = self._terminal.width - 14
        frame = _FRAMES[int(now * _PER_SECOND) % len(_FRAMES)]
        if not self._running:
            words = f"thinking: {self._thought}" if self._thought else "waiting"
            return Text(f"{frame} {shortened(words, width)} {now - self._since:.0f} s", "dim")
        return Group(
            *[
                Text(f"{frame} {shortened(f'{call.name} {call.arguments}', width)} {now - began:.1f} s", "dim")
                for call, began in self._running.values()
            ]
        )

    def _stop(self) -> None:
        live, self._live = self._live, None
        self._growing = ""  # it is painted once more while it stops, and then wiped away
        if live is not None:
            live.stop()


class _Growing(Live):
    """The block that is still being written."""

    def __init__(self, console: Console, render: Callable[[], RenderableType]) -> None:
        super().__init__(
            get_renderable=render,
            console=console,
            refresh_per_second=_PER_SECOND,
            transient=True,
            vertical_overflow="crop",
        )


def _console(terminal: Terminal, file: TextIO) -> Console:
    return Console(file=file, no_color=not terminal.wants_colour, highlight=False, emoji=False, markup=False)
