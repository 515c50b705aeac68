"""A turn on a terminal: live Markdown, spinners and the time that tools take. The only import of rich.

Complete blocks of the answer are printed for good; the last one, which still grows, is painted again and again below
them and never higher than the screen. Addresses of links are shown, not hidden behind their words.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, nullcontext
from typing import Final, TextIO

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

from dragoman.conversation import (
    BlockReceived,
    Event,
    HandedOver,
    Opaque,
    ServerToolUse,
    TextDelta,
    TextEnded,
    ThinkingDelta,
    ToolCall,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)

from .output import View, format_progress, format_result, format_use
from .terminal import Terminal, escape_controls, shorten

_RATE: Final = 8
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Screen(View):
    """Shows a turn on a terminal."""

    def __init__(
        self, terminal: Terminal, waiting: str = "waiting", *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._terminal: Terminal = terminal
        self._waiting: str = waiting
        self._clock: Callable[[], float] = clock
        self._out: Console = _make_console(terminal, terminal.stdout)
        self._err: Console = _make_console(terminal, terminal.stderr)
        self._text: str = ""
        """What has come and is not printed for good."""
        self._live: Live | None = None
        self._is_growing: bool = False
        """Whether it shows the answer rather than a spinner."""
        self._growing: str = ""
        """The block that is still being written, as it is painted."""
        self._running: dict[str, tuple[ToolCall, float]] = {}
        self._since: float = 0.0
        self._thought: str = ""

    # --- the view ---

    def wait(self) -> None:
        self._since = self._clock()
        self._spin()

    def pause(self) -> None:
        self._finish_text()
        self._thought = ""
        self._running.clear()

    def cite(self, sources: list[str]) -> None:
        for line in sources:
            self._terminal.note(line)

    def show(self, event: Event) -> None:
        self._waiting = "waiting"  # no longer for the first sign of life
        match event:
            case TextDelta():
                self._show_text(event.text)
            case TextEnded():
                self._finish_text()
                self.wait()
            case ThinkingDelta():
                self._thought = (self._thought + event.text)[-60:]
            case ToolStarted():
                self._finish_text()
                self._thought = ""
                self._running[event.call.id] = (event.call, self._clock())
                self._spin()
            case ToolProgress() | HandedOver():
                if line := format_progress(event, self._terminal.width):
                    self._stop()
                    self._err.print(Text(line, "dim"))
                    self._spin()
            case ToolFinished():
                self._stop()
                self._running.pop(event.result.call_id, None)
                style = "yellow" if event.result.is_error else "dim"
                self._err.print(Text(format_result(event.result, self._terminal.width), style))
                self.wait()
            case BlockReceived(block=Opaque(used=ServerToolUse() as used)):
                self._finish_text()
                style = "yellow" if used.is_error else "dim"
                self._err.print(Text(format_use(used, self._terminal.width), style))
                self.wait()
            case _:
                pass

    def _show_text(self, text: str) -> None:
        self._text += escape_controls(text)
        end = find_end(self._text) if "\n" in text else 0
        if self._text[:end].strip():
            self._stop()
            self._out.print(_render(self._text[:end]))
        self._text = self._text[end:]
        if self._text.strip() and not self._is_growing:
            self._stop()
            self._start(self._out, lambda: _render(self._growing))
            self._is_growing = True
        self._growing = self._text

    def _finish_text(self) -> None:
        self._stop()
        rest, self._text = self._text, ""
        if rest.strip():
            self._out.print(_render(rest))

    # --- spinning ---

    def _spin(self) -> None:
        self._stop()
        self._start(self._err, self._busy)

    def _start(self, console: Console, render: Callable[[], RenderableType]) -> None:
        self._live = Live(
            get_renderable=render, console=console, refresh_per_second=_RATE, transient=True, vertical_overflow="crop"
        )
        self._live.start()
        self._terminal.aside = self._step_aside

    @contextmanager
    def _step_aside(self) -> Generator[None]:
        """Take away what is painted again and again while somebody else writes; the answer comes back as it grows."""
        was_growing = self._is_growing
        self._stop()
        yield
        if not was_growing:
            self._spin()

    def _busy(self) -> RenderableType:
        now = self._clock()
        width = self._terminal.width - 14
        frame = _FRAMES[int(now * _RATE) % len(_FRAMES)]
        if not self._running:
            words = f"thinking: {self._thought}" if self._thought else self._waiting
            return Text(f"{frame} {shorten(words, width)} {now - self._since:.0f} s", "dim")
        calls = [(shorten(f"{call.name} {call.arguments}", width), began) for call, began in self._running.values()]
        return Group(*[Text(f"{frame} {call} {now - began:.1f} s", "dim") for call, began in calls])

    def _stop(self) -> None:
        live, self._live, self._is_growing = self._live, None, False
        self._terminal.aside = nullcontext
        self._growing = ""  # it is painted once more while it stops, and then wiped away
        if live is not None:
            live.stop()


def _render(text: str) -> Markdown:
    return Markdown(text, hyperlinks=False)


class HarmlessConsole(Console):
    """Everything that is rendered passes `render`: here it is made harmless, after Markdown has decoded what it does.

    `<http://a/%1b[2J>` and `&#27;` become a real escape only while they are rendered. What rich itself tells the
    terminal (colours, the cursor of a live display) is no text, and stays.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escape_controls(segment.text))


def _make_console(terminal: Terminal, file: TextIO) -> Console:
    return HarmlessConsole(file=file, no_color=not terminal.wants_colour, highlight=False, emoji=False, markup=False)


def find_end(text: str) -> int:
    """Where the complete blocks of a Markdown text that still grows end: at an empty line outside of a code block.

    Rendering the whole text again for every piece would cost more the longer the answer is, and a terminal cannot take
    back what has scrolled away.
    """
    end, position, fence = 0, 0, ""
    for line in text.split("\n")[:-1]:
        position += len(line) + 1
        mark, behind = found.groups() if (found := _FENCE.fullmatch(line)) else ("", "")
        if mark and not fence:
            fence = mark if mark[0] == "~" or "`" not in behind else ""
        elif mark and mark.startswith(fence) and not behind.strip():
            fence = ""
        elif not fence and not line.strip():
            end = position
    return end
