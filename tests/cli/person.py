"""A person at a terminal: types, and reads what can be seen."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import pexpect

from tests.processes import hear_ctrl_c, may_fork

# What a terminal obeys rather than shows: CSI and OSC sequences, and the like.
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]")
DEADLINE = 60.0
"""Seconds after which something that was to be seen counts as never coming; generous, for machines under load."""


class Person:
    """Runs the command in a pseudo-terminal."""

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str],
        cwd: Path,
        size: tuple[int, int] = (40, 120),
        program: tuple[str, ...] = ("-m", "dragoman"),
    ) -> None:
        hear_ctrl_c()
        with may_fork():
            self.child = pexpect.spawn(
                sys.executable,
                [*program, *arguments],
                env={**env, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"},
                cwd=str(cwd),
                encoding="utf-8",
                codec_errors="replace",
                dimensions=size,
                timeout=DEADLINE,
            )
        self.child.delaybeforesend = 0.05
        self.raw = ""
        self._read_to = 0

    @property
    def screen(self) -> str:
        """All that could be read so far."""
        return _SEQUENCE.sub("", self.raw).replace("\r", "")

    def see(self, *texts: str) -> str:
        """Wait until all these can be read, one behind the other, after what was seen before."""
        before = ""
        for text in texts:
            end = time.monotonic() + DEADLINE
            while (at := self.screen.find(text, self._read_to)) < 0:
                assert self._read() or text in self.screen[self._read_to :], f"ended before {text!r}:\n{self.screen}"
                assert time.monotonic() < end, f"never saw {text!r} in:\n{self.screen[self._read_to :]}"
            before = self.screen[self._read_to : at]
            self._read_to = at + len(text)
        return before

    def _read(self) -> bool:
        """Take in what has come; False at the end."""
        try:
            self.raw += self.child.read_nonblocking(4096, timeout=0.2)
        except pexpect.TIMEOUT:
            pass
        except pexpect.EOF:
            return False
        return True

    def type(self, text: str) -> None:
        """Type a line and press Enter."""
        self.child.send(text + "\r")

    def say(self, text: str, *answers: str) -> str:
        """Type a line, and wait for the outcome."""
        self.type(text)
        return self.see(*answers)

    def press(self, letter: str) -> None:
        """Press Ctrl and a letter."""
        self.child.sendcontrol(letter)

    def kill(self) -> None:
        """As `kill -9` does."""
        os.kill(self.child.pid, signal.SIGKILL)
        self.child.wait()

    def leave(self) -> int:
        """Wait for the end, and give the exit code."""
        end = time.monotonic() + DEADLINE
        while self._read():
            assert time.monotonic() < end, f"it does not end:\n{self.screen[-2000:]}"
        self.child.close()
        return -self.child.signalstatus if self.child.exitstatus is None else self.child.exitstatus

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.child.close(force=True)
