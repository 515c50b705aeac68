"""SIGTERM, which ends the program as Ctrl-C does.

Owns: Terminated, and the handler that raises it.
Must not know: what is under way.

It is a kind of KeyboardInterrupt because everything below lets that one through: a tool that calls sys.exit() has
merely failed, so SystemExit would stop nothing.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

__all__ = ["Terminated", "ending_on_sigterm"]


class Terminated(KeyboardInterrupt):
    """The program was told to end: tools' processes are ended and the conversation is put away on the way out."""


@contextmanager
def ending_on_sigterm() -> Generator[None]:
    """Let SIGTERM unwind the program."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_number: int, _frame: object) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
