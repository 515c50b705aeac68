"""The claude program as a child process, sync and async.

There are no threads and no tasks: whoever waits for a line also writes what is pending, and only `_wait` differs
between the two. Must not know: what the lines mean.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from contextlib import nullcontext, suppress
from typing import IO, ClassVar, Final, cast

from dragoman._stop import current_stop
from dragoman.errors import ConfigurationError

from .launch import Launch

_READ: Final = 256 * 1024
_POLL_SECONDS: Final = 0.25
"""How often a reader checks whether the program still runs: one of its own children may hold the pipes open."""
_EXIT_SECONDS: Final = 2.0
_KILL_SECONDS: Final = 5.0


class ProgramEndedError(Exception):
    """The program has exited: its exit code, and its last output."""


class ProgramSilentError(Exception):
    """The program wrote nothing in time: its last output."""


class Program:
    """A running program whose methods block. For one caller at a time."""

    blocking: ClassVar[bool] = True

    def __init__(self, launch: Launch) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 -- it lives as long as the program
        self._received: bytearray = bytearray()
        self._searched: int = 0
        """How much of it is known to contain no line end."""
        self._unwritten: bytearray = bytearray()
        self._at_end: bool = False
        """Whether the program has closed its output."""
        self._stopped: bool = False
        self._killed: bool = False
        self._owner: int = os.getpid()
        try:
            self._child: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 -- the program that the user named
                launch.arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=dict(launch.environment),
                cwd=launch.directory,
                bufsize=0,
                start_new_session=True,
            )
        except BaseException as error:  # also Ctrl-C
            self._errors.close()
            if not isinstance(error, OSError | ValueError):
                raise
            reason = getattr(error, "strerror", None) or str(error)
            message = f"The program {launch.arguments[0]!r} cannot be started: {reason}."
            hint = "Check that it is the claude program, built for this machine, and executable."
            raise ConfigurationError(message, hint=hint) from error
        try:
            self._in: IO[bytes] = cast("IO[bytes]", self._child.stdin)
            self._out: IO[bytes] = cast("IO[bytes]", self._child.stdout)
            os.set_blocking(self._in.fileno(), False)
            os.set_blocking(self._out.fileno(), False)
        except BaseException:  # Ctrl-C: nobody else knows of the program yet
            self._kill()
            self._errors.close()
            raise

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of its process group."""
        return self._child.pid

    @property
    def is_usable(self) -> bool:
        """Whether it still runs, and was started by this process (not by the parent of a fork)."""
        return not self._stopped and self._owner == os.getpid() and not self._has_ended()

    def write(self, data: bytes) -> None:
        """Write to its input; what does not fit into the pipe is written while waiting for output."""
        self._unwritten += data
        self._transfer()

    async def read(self, seconds: float | None) -> bytes:
        """The next line. Raises ProgramEndedError, ProgramSilentError or, in a sync program, StoppedError."""
        stop = current_stop() if self.blocking else None
        end = None if seconds is None else time.monotonic() + seconds
        with nullcontext() if stop is None else stop.waking(self._kill):
            while (line := self._take_line()) is None:
                left = _POLL_SECONDS if end is None else min(_POLL_SECONDS, end - time.monotonic())
                if stop is not None:
                    left = stop.left(left) or 0.0
                if left < 0:
                    raise ProgramSilentError(self._last_output)
                if not self._at_end:
                    await self._wait(left)
                if not self._transfer() and (self._at_end or (self._has_ended() and not self._transfer())):
                    if stop is not None:
                        stop.check()  # then it was killed by us
                    await self._end()
                    raise ProgramEndedError(self._child.returncode, self._last_output)
        return line

    async def stop(self, *, gently: bool) -> None:
        """End it and everything that it has started; wait until it has exited."""
        if self._stopped:
            return
        self._stopped = True
        try:
            if gently:
                self._unwritten.clear()
                self._in.close()
                await self._wait_for_exit(_EXIT_SECONDS)
        finally:
            try:
                await self._end()
            finally:
                with suppress(OSError):
                    self._in.close()  # not before: in the middle of a turn it would go on, as after a failed tool
                self._out.close()
                self._errors.close()

    async def _wait(self, seconds: float) -> None:
        """Wait until a pipe is ready, at most this long."""
        poll = select.poll()
        for number, is_input in self._pipes():
            poll.register(number, select.POLLOUT if is_input else select.POLLIN)
        poll.poll(seconds * 1000)

    def _pipes(self) -> list[tuple[int, bool]]:
        """The pipes to wait for: their descriptors, and whether they are the program's input."""
        found = [] if self._at_end else [(self._out.fileno(), False)]
        return [*found, (self._in.fileno(), True)] if self._unwritten else found

    async def _wait_for_exit(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._has_ended() and time.monotonic() < end:
            await self._wait(0.01)
            self._transfer()

    async def _end(self) -> None:
        try:
            self._kill()
            await self._wait_for_exit(_KILL_SECONDS)
        finally:
            self._child.poll()

    def _kill(self) -> None:
        """Kill the whole process group, once: as soon as the program is reaped, its id may be somebody else's."""
        if not self._killed and self._owner == os.getpid():
            self._killed = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)

    def _has_ended(self) -> bool:
        if self._child.returncode is not None:
            return True
        if not hasattr(os, "waitid"):
            return self._child.poll() is not None
        try:  # without reaping it: until then its id stays its own
            return os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # other code has waited for all children
            return True

    @property
    def _last_output(self) -> str:
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
        """Write and read what is possible without waiting. Returns whether something was read."""
        try:
            while self._unwritten:
                with memoryview(self._unwritten) as view:
                    written = os.write(self._in.fileno(), view[:_READ])
                del self._unwritten[:written]
        except BlockingIOError:
            pass
        except (OSError, ValueError):  # its input is closed; the next read finds out whether it has exited
            self._unwritten.clear()
        if self._at_end:
            return False
        try:
            data = os.read(self._out.fileno(), _READ)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        self._at_end = not data
        self._received += data or b"\n"  # the rest at the end is a line, too
        return True


class AsyncProgram(Program):
    """A running program for an event loop; a later loop can continue with it."""

    blocking: ClassVar[bool] = False

    async def _wait(self, seconds: float) -> None:
        import asyncio  # sync programs do not load it

        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        pipes = self._pipes()
        for number, is_input in pipes:
            (loop.add_writer if is_input else loop.add_reader)(number, ready.set)
        try:
            async with asyncio.timeout(seconds):
                await ready.wait()
        except TimeoutError:
            pass
        finally:
            for number, is_input in pipes:
                (loop.remove_writer if is_input else loop.remove_reader)(number)
