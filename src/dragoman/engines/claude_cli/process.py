"""The claude program as a child of this process, in both colours.

Owns: the process, its pipes, and that nothing is left of it.
Must not know: what is said. There are no threads and no tasks: whoever waits for a line also writes, and only the
waiting itself differs between a plain program and an event loop.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from contextlib import nullcontext, suppress
from typing import IO, ClassVar, Final, Self

from dragoman._stop import current_stop
from dragoman.errors import ConfigurationError

from .launch import Launch

_READ: Final = 256 * 1024
_SLICE: Final = 0.25
"""Seconds after which it is looked whether the program still lives: a child of its own may hold the pipes open."""
_GRACE: Final = 2.0
_LAST: Final = 5.0


class ProgramEndedError(Exception):
    """The program is gone: its exit code, and its last words."""


class ProgramSilentError(Exception):
    """The program said nothing in time: its last words."""


class Program:
    """A program that was started by a plain program: its methods block. One caller at a time."""

    blocking: ClassVar[bool] = True

    def __init__(self, launch: Launch, errors: IO[bytes]) -> None:
        self._errors: IO[bytes] = errors
        self._received: bytearray = bytearray()
        self._searched: int = 0
        """How far there is no end of a line."""
        self._unwritten: bytearray = bytearray()
        self._silenced: bool = False
        """Whether it has closed its output."""
        self._stopped: bool = False
        self._killed: bool = False
        self._owner: int = os.getpid()
        self._child: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 -- the program that the user named
            launch.arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=dict(launch.environment),
            cwd=launch.directory,
            bufsize=0,
            start_new_session=True,
        )
        try:
            assert self._child.stdin is not None
            assert self._child.stdout is not None
            self._in: IO[bytes] = self._child.stdin
            self._out: IO[bytes] = self._child.stdout
            os.set_blocking(self._in.fileno(), False)
            os.set_blocking(self._out.fileno(), False)
        except BaseException:  # Ctrl-C: nobody else knows of the program yet
            self._kill()
            raise

    @classmethod
    def start(cls, launch: Launch) -> Self:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 -- it lives as long as the program
        try:
            return cls(launch, errors)
        except BaseException as error:
            errors.close()
            if not isinstance(error, OSError | ValueError):
                raise
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            message = f"The program {launch.arguments[0]!r} cannot be started: {reason}."
            hint = "See that it is the claude program, made for this machine, and may be run."
            raise ConfigurationError(message, hint=hint) from error

    @property
    def pid(self) -> int:
        """Its process id, which is that of its group too."""
        return self._child.pid

    @property
    def usable(self) -> bool:
        """Whether it still runs, and is ours to speak to."""
        return not self._stopped and self._owner == os.getpid() and not self._has_ended()

    def write(self, data: bytes) -> None:
        """Say something; what does not fit into the pipe is written while waiting for an answer."""
        self._unwritten += data
        self._transfer()

    async def read(self, seconds: float | None) -> bytes:
        """The next line. Raises ProgramEndedError, ProgramSilentError or, in a plain program, StoppedError."""
        stop = current_stop() if self.blocking else None
        end = None if seconds is None else time.monotonic() + seconds
        with nullcontext() if stop is None else stop.waking(self._kill):
            while (line := self._take_line()) is None:
                left = _SLICE if end is None else min(_SLICE, end - time.monotonic())
                if stop is not None:
                    left = stop.left(left) or 0.0
                if left < 0:
                    raise ProgramSilentError(self._last_words)
                if not self._silenced:
                    await self._wait(left)
                if not self._transfer() and (self._silenced or (self._has_ended() and not self._transfer())):
                    if stop is not None:
                        stop.check()  # it was killed since nobody wants its answer
                    await self._end()
                    raise ProgramEndedError(self._child.returncode, self._last_words)
        return line

    async def stop(self, *, gently: bool) -> None:
        """End it, and all that it has started; wait until it is gone."""
        if self._stopped:
            return
        self._stopped = True
        try:
            if gently:
                self._unwritten.clear()
                self._in.close()
                end = time.monotonic() + _GRACE
                while not self._has_ended() and time.monotonic() < end:
                    await self._wait(0.02)
                    self._transfer()
        finally:
            try:
                await self._end()
            finally:
                with suppress(OSError):
                    self._in.close()  # not before: in the middle of a turn it would take that for a failure, and go on
                self._out.close()
                self._errors.close()

    # --- waiting: all that differs on an event loop ---

    async def _wait(self, seconds: float) -> None:
        """Wait until something can be read or written, or for so long."""
        poll = select.poll()
        for number, kind in self._pipes():
            poll.register(number, select.POLLOUT if kind == "out" else select.POLLIN)
        poll.poll(seconds * 1000)

    # --- inside ---

    def _pipes(self) -> list[tuple[int, str]]:
        found = [] if self._silenced else [(self._out.fileno(), "in")]
        return [*found, (self._in.fileno(), "out")] if self._unwritten else found

    async def _end(self) -> None:
        """Kill the whole group, once: when the program has been waited for, its number may become somebody else's."""
        self._kill()
        end = time.monotonic() + _LAST
        try:
            while not self._has_ended() and time.monotonic() < end:
                await self._wait(0.005)
                self._transfer()
        finally:
            self._child.poll()

    def _kill(self) -> None:
        if not self._killed and self._owner == os.getpid():
            self._killed = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)

    def _has_ended(self) -> bool:
        if self._child.returncode is not None:
            return True
        if not hasattr(os, "waitid"):
            return self._child.poll() is not None
        try:  # without burying it: as long as it is there, its number is its own
            return os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # somebody else has waited for all children
            return True

    @property
    def _last_words(self) -> str:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 4096))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return " / ".join([line.strip() for line in lines[-5:] if line.strip()])[-500:]

    def _take_line(self) -> bytes | None:
        while (at := self._received.find(b"\n", self._searched)) >= 0:
            line = bytes(self._received[:at])
            del self._received[: at + 1]
            self._searched = 0
            if line.strip():
                return line
        self._searched = len(self._received)
        return None

    def _transfer(self) -> bool:
        """Write and read what is possible without waiting; whether something was read."""
        try:
            while self._unwritten:
                with memoryview(self._unwritten) as view:
                    written = os.write(self._in.fileno(), view[:_READ])
                del self._unwritten[:written]
        except BlockingIOError:
            pass
        except (OSError, ValueError):  # it no longer listens; that it is gone shows when it is read from
            self._unwritten.clear()
        if self._silenced:
            return False
        try:
            data = os.read(self._out.fileno(), _READ)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        self._silenced = not data
        self._received += data or b"\n"  # what is left at the end is a line too
        return True


class AsyncProgram(Program):
    """A program that was started on an event loop; any later loop may go on with it."""

    blocking: ClassVar[bool] = False

    async def _wait(self, seconds: float) -> None:
        import asyncio  # which plain programs do not load

        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        pipes = self._pipes()
        for number, kind in pipes:
            (loop.add_writer if kind == "out" else loop.add_reader)(number, woken.set)
        try:
            async with asyncio.timeout(seconds):
                await woken.wait()
        except TimeoutError:
            pass
        finally:
            for number, kind in pipes:
                (loop.remove_writer if kind == "out" else loop.remove_reader)(number)
