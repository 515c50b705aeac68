"""A turn on a terminal: live Markdown, and a spinner with what is going on and for how long. Needs rich.

Complete blocks of the answer are printed once; the last one, which still grows, is repainted below them, never taller
than the screen. Links show their addresses.
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

from dragoman.conversation import Event, TextDelta, TextEnded, ThinkingDelta, ToolCall, ToolFinished, ToolStarted

from .output import TextView, format_call, format_event
from .terminal import Terminal, escape_controls, shorten

_RATE: Final = 8
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Screen(TextView):
    """Shows a turn on a terminal."""

    def __init__(
        self, terminal: Terminal, waiting: str = "waiting", *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(terminal, waiting)
        self._clock: Callable[[], float] = clock
        self._out: Console = _make_console(terminal, terminal.stdout)
        self._err: Console = _make_console(terminal, terminal.stderr)
        self._text: str = ""
        """What has arrived and is not printed yet."""
        self._live: Live | None = None
        self._is_growing: bool = False
        """Whether it shows the answer rather than a spinner."""
        self._growing: str = ""
        """The unfinished block, as it is painted."""
        self._running: dict[str, tuple[ToolCall, float]] = {}
        self._since: float = 0.0
        self._thought: str = ""

    def wait(self) -> None:
        self._since = self._clock()
        self._spin()

    def pause(self) -> None:
        self._finish_text()
        self._thought = ""
        self._running.clear()

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
            case _:
                line, is_error = format_event(event, self._terminal.width)
                if line:
                    self._finish_text()
                    self._terminal.note(line, "yellow" if is_error else "dim")
                    if isinstance(event, ToolFinished):
                        self._running.pop(event.result.call_id, None)
                    self.wait()

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
        """Remove what is repainted while somebody else writes; the answer comes back as it grows."""
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
        calls = [(shorten(format_call(call), width), began) for call, began in self._running.values()]
        return Group(*[Text(f"{frame} {call} {now - began:.1f} s", "dim") for call, began in calls])

    def _stop(self) -> None:
        live, self._live, self._is_growing = self._live, None, False
        self._terminal.aside = nullcontext
        self._growing = ""  # rich paints it once more while it stops, and then wipes it away
        if live is not None:
            live.stop()


def _render(text: str) -> Markdown:
    return Markdown(text, hyperlinks=False)


class HarmlessConsole(Console):
    """Escapes control characters in what is rendered, after Markdown has decoded it.

    `<http://a/%1b[2J>` and `&#27;` become a real escape only when they are rendered. What rich itself sends to the
    terminal (colours, the cursor of a live display) is kept.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escape_controls(segment.text))


def _make_console(terminal: Terminal, file: TextIO) -> Console:
    return HarmlessConsole(file=file, no_color=not terminal.wants_colour, highlight=False, emoji=False, markup=False)


def find_end(text: str) -> int:
    """Where the complete blocks of a growing Markdown text end: at an empty line outside of a code block.

    Rendering the whole text for every piece would be quadratic, and a terminal cannot change what has scrolled away.
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
