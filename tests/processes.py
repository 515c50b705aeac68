"""Child processes of tests: how they are started, and which there are."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["LIMIT", "children", "hear_ctrl_c", "may_fork", "started"]

LIMIT = 240.0
"""Seconds after which a child is killed, so that no test waits for one forever: less than a test as a whole has."""


def hear_ctrl_c() -> None:
    """Let Ctrl-C reach this process and those it starts, also where a script has put it into the background.

    A shell without job control starts a background process with SIGINT ignored, which every process below inherits.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def may_fork() -> Iterator[None]:
    """Forks in here are meant, also beside other threads, of which Python warns since 3.12."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        yield


@contextmanager
def started(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A child process that hears Ctrl-C, and is dead when the block ends or `LIMIT` seconds have passed."""
    hear_ctrl_c()
    with subprocess.Popen(command, **options) as process:
        watchdog = threading.Timer(LIMIT, process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()


def children() -> set[int]:
    """The processes that we have started and that are still there, dead ones included."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid():
                found.add(int(entry.name))
    return found
