"""Warnings as lines on standard error.

Owns: how a warning of the library looks at the command line.
Must not know: what there is to warn of.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager

from dragoman.chat.config import ConfigWarning

from .terminal import Terminal, one_line

__all__ = ["warnings_as_lines"]


@contextmanager
def warnings_as_lines(terminal: Terminal) -> Generator[None]:
    """Show the library's own warnings, each once; those of others are for programmers."""
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_where: object, **_further: object) -> None:
        text = one_line(str(message))
        if issubclass(category, ConfigWarning) and text not in shown:
            shown.add(text)
            terminal.say(f"dragoman: {text}", "yellow")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ConfigWarning)
        warnings.showwarning = show
        yield
