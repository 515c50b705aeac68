"""A regular expression at work in a child process, with a time limit that holds.

Some expressions take longer than the age of the universe for a short line, and while Python tries one nothing else in
the same process goes on. So match_worker.py tries them, in a process that can be ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Final, cast

import msgspec
from msgspec import Struct

from dragoman.errors import ToolExecutionError, ToolValidationError

from .base import Deadline

_WORKER: Final = str(Path(__file__).with_name("match_worker.py"))
_NEEDED: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Some interpreters do not find their own library without."""


class Found(Struct, frozen=True):
    """The lines of one text that fit."""

    lines: list[int] = []
    """Their numbers, from 0; not more than asked for."""
    count: int = 0
    """How many there are in all."""
    failed: str = ""


class Matcher:
    """One expression; close it after use. OutOfTimeError says that the time is over, and the child is gone."""

    def __init__(self, pattern: str, *, ignore_case: bool, deadline: Deadline) -> None:
        self._deadline: Deadline = deadline
        self._unread: bytes = b""
        if not sys.executable:
            message = "regular expressions need a Python interpreter to run in, and this program does not name one."
            raise ToolExecutionError(message, hint="Set sys.executable to one.")
        try:
            # Nothing of our environment, none of our open files, none of the signals of our terminal.
            self._child: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 -- our own file, no shell
                [sys.executable, "-I", "-S", _WORKER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                env={name: os.environ[name] for name in _NEEDED if name in os.environ},
                start_new_session=True,
            )
        except OSError as error:
            raise ToolExecutionError(f"the search could not be started: {error.strerror or error}.") from error
        self._requests: IO[bytes] = cast("IO[bytes]", self._child.stdin)
        self._replies: IO[bytes] = cast("IO[bytes]", self._child.stdout)
        try:
            os.set_blocking(self._requests.fileno(), False)
            self._send(msgspec.json.encode({"pattern": pattern, "ignore_case": ignore_case}) + b"\n")
            hello = msgspec.json.decode(self._line(), type=Found)
            if hello.failed:
                raise ToolValidationError(f"the argument pattern is not a regular expression: {hello.failed[:300]}.")
        except BaseException:
            self.close()
            raise

    def search(self, text: bytes, limit: int) -> Found:
        """The lines of a text in UTF-8 that fit."""
        self._deadline.check()
        self._send(msgspec.json.encode({"size": len(text), "limit": limit}) + b"\n" + text)
        return msgspec.json.decode(self._line(), type=Found)

    def close(self) -> None:
        """End the child."""
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait()
        self._requests.close()
        self._replies.close()

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._deadline.wait_for(self._requests.fileno(), writing=True)
            try:
                view = view[os.write(self._requests.fileno(), view[:65536]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise _gone() from None

    def _line(self) -> bytes:
        while b"\n" not in self._unread:
            self._deadline.wait_for(self._replies.fileno())
            data = os.read(self._replies.fileno(), 65536)
            if not data:
                raise _gone()
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line


def _gone() -> ToolExecutionError:
    message = "the search ended unexpectedly; the pattern may need too much memory."
    return ToolExecutionError(message, hint="Use a simpler pattern.")
