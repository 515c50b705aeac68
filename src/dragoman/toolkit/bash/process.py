"""One shell command from start to end.

Owns: starting it in a session of its own, taking in its output, its time limit, and that nothing of it is left.
Must not know: tools and models.

The command is over when the shell is: a process that it leaves in the background, and that may hold the pipe open for
ever, is ended with it.
"""

from __future__ import annotations

import os
import secrets
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Final, Literal, TypeAlias, cast

from msgspec import Struct

from dragoman._descriptors import Descriptor, owned

from .output import Output
from .strays import Process, kill_all, strays, terminate_group

__all__ = ["Ending", "Finished", "new_token", "run_command"]

Ending: TypeAlias = Literal["exited", "timeout", "cancelled"]

_READ: Final = 64 * 1024
_POLL_SECONDS: Final = 0.05
_TERM_SECONDS: Final = 0.3
"""How long a command that must end may take for its clean-up."""
_DRAIN_SECONDS: Final = 0.3
"""How long the rest of the output may take when the shell is gone."""

_LAST_SECONDS: Final = 5.0
"""How long a process that was killed may take to be gone."""


class Finished(Struct, frozen=True, kw_only=True):
    """How a command ended."""

    ending: Ending
    exit_code: int | None
    """Negative for a signal; None if somebody else has taken it."""
    stdout: str
    stderr: str
    left_behind: bool
    """Whether processes in the background had to be ended."""


def new_token() -> str:
    """Something that only the processes of one command bear."""
    return secrets.token_hex(16)


def run_command(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    token: str,
    seconds: float,
    cancelled: Callable[[], bool],
    max_output: int,
) -> Finished:
    """Run a command and wait for its end. Raises OSError or ValueError if it cannot be started."""
    try:
        child = subprocess.Popen(  # noqa: S603 -- this is what the tool is for
            argv,
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        running = _Running(child, token, max_output)
    except KeyboardInterrupt:  # between the start and the return of Popen: only its mark tells which process it is
        kill_all(None, token)
        raise
    ending: Ending = "cancelled"
    try:
        ending = running.wait(time.monotonic() + seconds, cancelled)
    finally:  # also when Ctrl-C comes
        running.end(gently=ending != "exited")
    return Finished(
        ending=ending,
        exit_code=running.exit_code,
        stdout=running.stdout.text,
        stderr=running.stderr.text,
        left_behind=running.left_behind and ending == "exited",
    )


class _Running:
    def __init__(self, child: subprocess.Popen[bytes], token: str, max_output: int) -> None:
        self._child: subprocess.Popen[bytes] = child
        self._token: str = token
        self.stdout: Output = Output(max_output)
        self.stderr: Output = Output(max_output)
        self.exit_code: int | None = None
        self.left_behind: bool = False
        self._taken: bool = False
        self._poll: select.poll = select.poll()
        self._pipes: dict[int, tuple[IO[bytes], Output]] = {}
        for pipe, output in ((child.stdout, self.stdout), (child.stderr, self.stderr)):
            opened = cast("IO[bytes]", pipe)
            os.set_blocking(opened.fileno(), False)
            self._pipes[opened.fileno()] = (opened, output)
            self._poll.register(opened.fileno(), select.POLLIN)
        self._handle: Descriptor = Descriptor(-1)
        with suppress(OSError, AttributeError):  # Linux only; elsewhere we look now and then
            self._handle = owned(os.pidfd_open, child.pid)
            self._poll.register(self._handle.number, select.POLLIN)

    def wait(self, deadline: float, cancelled: Callable[[], bool]) -> Ending:
        """Take in output until the shell is gone, the time is over, or nobody waits any more."""
        while not self._is_over():
            left = deadline - time.monotonic()
            if left <= 0:
                return "timeout"
            if cancelled():
                return "cancelled"
            self._take(min(left, _POLL_SECONDS))
        return "exited"

    def end(self, *, gently: bool) -> None:
        """End whatever still runs, and take in what is left of the output."""
        leader = None if self._taken else self._child.pid
        known: list[Process] = []
        try:
            if gently and leader is not None:
                known = strays(leader, self._token)
                terminate_group(self._child.pid)
                self._until(_TERM_SECONDS, self._is_over)
            else:
                self._until(_DRAIN_SECONDS, lambda: not self._pipes)
        finally:
            self.left_behind = kill_all(None if self._taken else leader, self._token, known)
            self._until(_DRAIN_SECONDS, lambda: not self._pipes)
            self._wait_for_the_shell()
            for pipe, _ in self._pipes.values():
                pipe.close()
            self._pipes.clear()
            self._handle.close()

    def _wait_for_the_shell(self) -> None:
        with suppress(subprocess.TimeoutExpired):  # the kernel has not let go of it: nothing more can be done
            code = self._child.wait(_LAST_SECONDS)
            self.exit_code = None if self._taken else code

    def _until(self, seconds: float, done: Callable[[], bool]) -> None:
        end = time.monotonic() + seconds
        while not done() and (left := end - time.monotonic()) > 0:
            self._take(min(left, _POLL_SECONDS))

    def _is_over(self) -> bool:
        """Whether the shell has ended. It is not waited for yet: its number must stay its own until all are killed."""
        if not hasattr(os, "waitid"):
            return self._child.poll() is not None
        try:
            return os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # somebody has waited for all children, and knows how it ended
            self._taken = True
            return True

    def _take(self, seconds: float) -> None:
        """Wait for something to happen and take in what has come."""
        for number, _ in self._poll.poll(seconds * 1000):
            if number == self._handle.number:
                self._poll.unregister(number)  # it stays so; what is left is to drain the pipes
                continue
            pipe, output = self._pipes[number]
            try:
                data = os.read(number, _READ)
            except BlockingIOError:
                continue
            if data:
                output.feed(data)
            else:
                self._poll.unregister(number)
                del self._pipes[number]
                pipe.close()
