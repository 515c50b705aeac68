"""The three standard streams, and what may be written to each.

What models, tools and servers say may hold sequences that a terminal obeys: they could repaint what a person is asked
to approve. Whatever goes to a terminal is therefore made harmless; what goes to a file or a pipe is left as it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from io import TextIOWrapper
from typing import Final, TextIO

_KEPT: Final = "\n\t\u200d"
"""Not printable, and harmless: the last one joins emoji."""

_STYLES: Final = {"dim": "2", "bold": "1", "red": "31", "yellow": "33", "green": "32", "cyan": "36"}


def escape_controls(text: str) -> str:
    """The text without what a terminal takes for a command, or what turns around the order of its letters."""
    if text.isprintable():
        return text
    kept = [each for each in text if each != "\r"]
    return "".join([each if each.isprintable() or each in _KEPT else f"\\u{ord(each):04x}" for each in kept])


def to_line(text: str) -> str:
    """The same on one line."""
    return " ".join(escape_controls(text).split())


def shorten(text: str, width: int) -> str:
    """The beginning of the text, on one line of this many characters."""
    line = to_line(text[: 8 * width])
    return line if len(line) <= width else line[: max(0, width - 1)] + "…"


class Terminal:
    """Where the command reads and writes."""

    def __init__(
        self,
        *,
        stdin: TextIO | None = None,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.stdin: TextIO | None = sys.stdin if stdin is None else stdin
        self.stdout: TextIO = _open(sys.stdout if stdout is None else stdout)
        self.stderr: TextIO = _open(sys.stderr if stderr is None else stderr)
        self.environ: Mapping[str, str] = os.environ if environ is None else environ
        self.quiet: bool = False
        """Whether notes are left out; errors never are."""
        for stream in (self.stdout, self.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="replace")  # a letter that the encoding lacks must not end the program
        self.in_is_tty: bool = _is_tty(self.stdin)
        self.out_is_tty: bool = _is_tty(self.stdout)
        self.err_is_tty: bool = _is_tty(self.stderr)
        self._line_open: bool = False
        """Whether the answer stands in the middle of a line of a terminal."""

    # --- the answer ---

    def answer(self, text: str) -> None:
        """A piece of the answer, to standard output at once."""
        if not text:
            return
        self.stdout.write(escape_controls(text) if self.out_is_tty else text)
        self.stdout.flush()
        self._line_open = self.out_is_tty and not text.endswith("\n")

    def line(self, text: str = "") -> None:
        """A line to standard output."""
        self.answer(f"{text}\n")

    def end_line(self) -> None:
        """On a terminal, begin a new line unless one has just begun: what comes now is not the answer."""
        if self._line_open:
            self.answer("\n")

    # --- everything else ---

    def note(self, text: str, style: str = "dim") -> None:
        """A line about what is going on, unless the user wants quiet."""
        if not self.quiet:
            self.say(text, style)

    def say(self, text: str, style: str = "") -> None:
        """A line that the user must see."""
        self.write_error(f"{self.style(escape_controls(text), style)}\n")

    def write_error(self, text: str) -> None:
        """Text to standard error, as it is. A standard error that nobody reads is no reason to stop."""
        self.end_line()
        try:
            self.stderr.write(text)
            self.stderr.flush()
        except (OSError, ValueError):
            pass

    def style(self, text: str, style: str) -> str:
        """The text in a style, where standard error is a terminal that wants colours."""
        code = _STYLES.get(style)
        return f"\x1b[{code}m{text}\x1b[0m" if code and self.err_is_tty and self.wants_colour else text

    @property
    def wants_colour(self) -> bool:
        """Whether the user has not said otherwise (NO_COLOR, TERM=dumb)."""
        return not self.environ.get("NO_COLOR") and self.environ.get("TERM") != "dumb"

    @property
    def width(self) -> int:
        """Of a line, for cutting what is only a reminder."""
        if not (self.err_is_tty or self.out_is_tty):
            return 100
        try:
            return max(40, os.get_terminal_size((self.stderr if self.err_is_tty else self.stdout).fileno()).columns)
        except (OSError, ValueError):
            return 80

    # --- a person ---

    def ask(self, question: str) -> str | None:
        """What the person types; None if there is nobody (any more)."""
        self.write_error(escape_controls(question))
        if self.stdin is None:
            return None
        self._forget_typed()
        said = self.stdin.readline()
        return said.rstrip("\n") if said else None

    def _forget_typed(self) -> None:
        """What was typed before the question was there is no answer to it."""
        if not self.in_is_tty or self.stdin is None:
            return
        try:
            import termios

            termios.tcflush(self.stdin.fileno(), termios.TCIFLUSH)
        except (ImportError, OSError, ValueError):
            pass


def _open(stream: TextIO | None) -> TextIO:
    """The stream, or nowhere: a program may be started with its streams closed."""
    return stream if stream is not None else open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123


def _is_tty(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
