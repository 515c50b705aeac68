"""The three standard streams, and what is written to each.

Text from models, tools and servers may contain control sequences, which could repaint what the user is asked to
approve. So control characters are escaped when something is written to a terminal: here, and in chat_screen.py for
rendered Markdown. An answer that goes to a file or a pipe is left as it is.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout, suppress
from io import TextIOWrapper
from typing import Final, TextIO

from dragoman._printable import escape_controls, to_line

_STYLES: Final = {"dim": "2", "bold": "1", "red": "31", "yellow": "33"}


def shorten(text: str, width: int) -> str:
    """The start of the text, on one line of at most this many characters."""
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
        """Whether notes are left out."""
        for stream in (self.stdout, self.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="replace")  # an encoding without some characters must not end the program
        self.in_is_tty: bool = _is_tty(self.stdin)
        self.out_is_tty: bool = _is_tty(self.stdout)
        self.err_is_tty: bool = _is_tty(self.stderr)
        self._line_open: bool = False
        """Whether the terminal's current line is an unfinished line of the answer."""
        self._status: str = ""
        self.aside: Callable[[], AbstractContextManager[object]] = nullcontext
        """Makes room for a line: whoever repaints the last lines stops meanwhile."""

    # --- the answer ---

    def answer(self, text: str) -> None:
        """Write a piece of the answer to standard output."""
        if not text:
            return
        self._wipe_status()
        self.stdout.write(escape_controls(text) if self.out_is_tty else text)
        self.stdout.flush()
        self._line_open = self.out_is_tty and not text.endswith("\n")

    def line(self, text: str = "") -> None:
        self.answer(f"{text}\n")

    def end_line(self) -> None:
        """On a terminal, end an unfinished line of the answer, before something else is written."""
        if self._line_open:
            self.answer("\n")

    @contextmanager
    def reserve_stdout(self) -> Generator[None]:
        """Reserve standard output for `answer`; what tools and child processes print goes to standard error."""
        before = self.stdout
        try:
            number, error = before.fileno(), self.stderr.fileno()
            before.flush()
            saved = os.dup(number)
        except (OSError, ValueError):  # it is in memory, or closed
            with redirect_stdout(self.stderr):
                yield
            return
        self.stdout = open(saved, "w", encoding=before.encoding, errors="replace")  # noqa: PTH123, SIM115
        os.dup2(error, number)
        try:
            with redirect_stdout(self.stderr):
                yield
        finally:
            ours, self.stdout = self.stdout, before
            with suppress(OSError):  # closed, which was reported when it was written to
                before.flush()  # what was printed past sys.stdout
            os.dup2(saved, number)
            with suppress(OSError):
                ours.close()

    # --- everything else ---

    def note(self, text: str, style: str = "dim") -> None:
        """Write a line about what is going on, unless `quiet`."""
        if not self.quiet:
            self.say(self.wrap(text), style)

    def wrap(self, text: str) -> str:
        """The text on one line; on a terminal, wrapped between words."""
        line = to_line(text)
        if not self.err_is_tty or len(line) <= self.width:
            return line
        return textwrap.fill(line, self.width, break_long_words=False, break_on_hyphens=False)

    def say(self, text: str, style: str = "") -> None:
        self.write_error(text, style, end="\n")

    def show_status(self, text: str) -> None:
        """Show what is going on, on a terminal, until something else is written."""
        if self.err_is_tty and not self.quiet:
            line = shorten(text, self.width - 1)
            self.write_error(line, "dim")
            self._status = line

    def _wipe_status(self) -> None:
        line, self._status = self._status, ""
        if line:
            self.stderr.write(f"\r{' ' * len(line)}\r")
            self.stderr.flush()

    def write_error(self, text: str, style: str = "", *, end: str = "") -> None:
        """Write text to standard error, with control characters escaped. A closed standard error is ignored."""
        self.end_line()
        self._wipe_status()
        escaped, code = escape_controls(text), _STYLES.get(style)
        if code and self.err_is_tty and self.wants_colour:
            escaped = f"\x1b[{code}m{escaped}\x1b[0m"
        with self.aside(), suppress(OSError, ValueError):
            self.stderr.write(escaped + end)
            self.stderr.flush()

    @property
    def wants_colour(self) -> bool:
        """Whether colours are not switched off (NO_COLOR, TERM=dumb)."""
        return not self.environ.get("NO_COLOR") and self.environ.get("TERM") != "dumb"

    @property
    def width(self) -> int:
        """The length of a line."""
        if not (self.err_is_tty or self.out_is_tty):
            return 100
        try:
            return max(40, os.get_terminal_size((self.stderr if self.err_is_tty else self.stdout).fileno()).columns)
        except (OSError, ValueError):
            return 80

    def read_input(self) -> str:
        """All of standard input; empty if there is none."""
        return "" if self.stdin is None else self.stdin.read()

    def ask(self, question: str) -> str | None:
        """Ask the user a question; None at the end of input."""
        if self.stdin is not None and self.in_is_tty:  # what was typed before the question does not answer it
            with suppress(ImportError, OSError, ValueError):
                import termios

                termios.tcflush(self.stdin.fileno(), termios.TCIFLUSH)
        self.write_error(question)
        if self.stdin is None:
            return None
        line = self.stdin.readline()
        return line.rstrip("\n") if line else None


def _open(stream: TextIO | None) -> TextIO:
    """The stream, or /dev/null: a program may be started with its streams closed."""
    return stream if stream is not None else open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123


def _is_tty(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
