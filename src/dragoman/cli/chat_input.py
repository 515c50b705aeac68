"""Where the lines of a chat come from: an editor with history (an extra: prompt_toolkit), or a plain stream."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from dragoman.directories import state_directory
from dragoman.errors import ConfigurationError

from .terminal import Terminal

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

_PROMPT: Final = "> "


Read: TypeAlias = Callable[[str], str | None]
"""Gives the next message, however many lines it has, or None when there will be no more; begins with a text to edit."""


def open_input(terminal: Terminal, commands: Iterable[str], describe_status: Callable[[], str]) -> Read:
    """The editor on a terminal, if it is installed; otherwise plain lines."""
    if not (terminal.in_is_tty and terminal.err_is_tty) or terminal.environ.get("TERM") == "dumb":
        return lambda _edit: _read_plain(terminal)
    if find_spec("prompt_toolkit") is None:
        terminal.note("dragoman: editing, history and Markdown come with: pip install 'dragoman[cli]'", "yellow")
        return lambda _edit: _read_plain(terminal)
    return _make_editor(commands, describe_status)


def _read_plain(terminal: Terminal) -> str | None:
    """Lines of a stream. A line that ends with a backslash goes on in the next one."""
    lines: list[str] = []
    while True:
        if terminal.in_is_tty:
            terminal.write_error(_PROMPT if not lines else ". ")
        line = terminal.stdin.readline() if terminal.stdin is not None else ""
        if not line:
            return "\n".join(lines) if lines else None
        line = line.rstrip("\r\n")
        if not line.endswith("\\"):
            return "\n".join([*lines, line])
        lines.append(line[:-1])


def _make_editor(commands: Iterable[str], describe_status: Callable[[], str]) -> Read:
    """A line editor: history, completion of commands, several lines (Alt-Enter), pasting."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory, InMemoryHistory
    from prompt_toolkit.output import create_output

    history = _make_history()
    session: PromptSession[str] = PromptSession(
        history=InMemoryHistory() if history is None else FileHistory(str(history)),
        completer=WordCompleter([f"/{name}" for name in commands], sentence=True),
        multiline=True,
        key_bindings=_make_keys(),
        bottom_toolbar=describe_status,
        output=create_output(stdout=sys.stderr),  # the answer alone goes to standard output
        prompt_continuation=". ",
        reserve_space_for_menu=4,
    )

    def read(edit: str) -> str | None:
        try:
            return session.prompt(_PROMPT, default=edit)
        except EOFError:
            return None

    return read


def _make_history() -> Path | None:
    """The file of what was typed before, for the owner's eyes only; None where it cannot be had."""
    try:
        directory = state_directory()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = directory / "chat_history"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    except (OSError, ConfigurationError):
        return None
    return path


def _make_keys() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.text.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    def break_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    keys.add("enter")(send)
    keys.add("escape", "enter")(break_line)
    keys.add("c-j")(break_line)
    return keys
