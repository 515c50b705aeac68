"""The claude program as a child of this process, for plain programs and on event loops.

Owns: the process, its pipes, and that nothing is left of it.
Must not know: what is said. There are no threads and no tasks: whoever waits for a line also writes.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, ClassVar, Final, Protocol, Self

from dragoman.errors import ConfigurationError

from .launch import Launch

if TYPE_CHECKING:
    import asyncio
    import asyncio.subprocess

_READ: Final = 256 * 1024
_SLICE: Final = 0.25
"""Seconds after which it is looked whether the program still lives: a child of its own may hold the pipes open."""
_GRACE: Final = 2.0
_LAST: Final = 5.0
_LONGEST_LINE: Final = 1 << 28


class ProgramEndedError(Exception):
    """The program is gone."""

    def __init__(self, code: int | None, words: str) -> None:
        super().__init__(code, words)
        self.code: int | None = code
        self.words: str = words


class ProgramSilentError(Exception):
    """The program said nothing in time."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words: str = words


class Program(Protocol):
    """A program that was started. One caller at a time."""

    blocking: ClassVar[bool]

    @classmethod
    async def start(cls, launch: Launch) -> Self:
        """Start the program. Raises ConfigurationError."""
        ...

    @property
    def usable(self) -> bool:
        """Whether it still runs, and can be spoken to from here."""
        ...

    async def write(self, data: bytes) -> None:
        """Say something. Whether it listens shows when it is read from."""
        ...

    async def read(self, seconds: float | None) -> bytes:
        """The next line. Raises ProgramEndedError or ProgramSilentError."""
        ...

    async def stop(self, *, gently: bool) -> None:
        """End it, and all that it has started; wait until it is gone."""
        ...


class _Child:
    """What both kinds share: where the program's errors go, and killing its group once."""

    def __init__(self, errors: IO[bytes]) -> None:
        self._errors: IO[bytes] = errors
        self._stopped: bool = False
        self._killed: bool = False
        self._owner: int = os.getpid()

    @property
    def pid(self) -> int:
        raise NotImplementedError

    def _kill(self) -> None:
        """End the whole group, once: when the program has been waited for, its number may become somebody else's."""
        if not self._killed and self._owner == os.getpid():
            self._killed = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    @property
    def _last_words(self) -> str:
        """The end of what it wrote to its standard error."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 4096))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return " / ".join([line.strip() for line in lines[-5:] if line.strip()])[-500:]


def _not_started(launch: Launch, error: Exception) -> ConfigurationError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ConfigurationError(
        f"The program {launch.arguments[0]!r} cannot be started: {reason}.",
        hint="See that it is the claude program, made for this machine, and may be run.",
    )


class PlainProgram(_Child):
    """A program that was started by a plain program; its methods block."""

    blocking: ClassVar[bool] = True

    def __init__(self, launch: Launch, errors: IO[bytes]) -> None:
        super().__init__(errors)
        self._received: bytearray = bytearray()
        self._searched: int = 0
        """How far there is no end of a line."""
        self._unwritten: bytearray = bytearray()
        self._poll: select.poll = select.poll()
        self._ended: bool = False
        """Whether it has closed its output."""
        self._child: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 -- the program that the user named
            launch.command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
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
            self._poll.register(self._out, select.POLLIN)
        except BaseException:  # Ctrl-C: nobody else knows of the program yet
            self._kill()
            raise

    @classmethod
    async def start(cls, launch: Launch) -> Self:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 -- it lives as long as the program
        try:
            return cls(launch, errors)
        except BaseException as error:
            errors.close()
            if isinstance(error, OSError | ValueError):
                raise _not_started(launch, error) from error
            raise

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def usable(self) -> bool:
        return not self._stopped and self._owner == os.getpid() and not self._has_ended()

    async def write(self, data: bytes) -> None:
        self._unwritten += data
        self._flush()

    async def read(self, seconds: float | None) -> bytes:
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            line = self._take_line()
            if line is not None:
                return line
            left = _SLICE if end is None else min(_SLICE, end - time.monotonic())
            if left < 0:
                raise ProgramSilentError(self._last_words)
            if self._ended or (not self._pump(left) and self._has_ended() and not self._pump(0.0)):
                self._kill()
                with suppress(subprocess.TimeoutExpired):
                    self._child.wait(_LAST)
                raise ProgramEndedError(self._child.returncode, self._last_words)

    async def stop(self, *, gently: bool) -> None:
        if self._stopped:
            return
        self._stopped = True
        try:
            if gently:
                self._close_input()
                end = time.monotonic() + _GRACE
                while not self._has_ended() and (left := end - time.monotonic()) > 0:
                    self._pump(min(left, 0.05))  # after the end of its output there is nothing to poll: it only waits
        finally:
            self._kill()
            self._close_input()  # not before: in the middle of a turn it would take that for a failure, and go on
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(_LAST)
            self._out.close()
            self._errors.close()

    def _has_ended(self) -> bool:
        if self._child.returncode is not None:
            return True
        if not hasattr(os, "waitid"):
            return self._child.poll() is not None
        try:  # without burying it: as long as it is there, its number is its own
            return os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # somebody else has waited for all children
            return True

    def _take_line(self) -> bytes | None:
        while (at := self._received.find(b"\n", self._searched)) >= 0:
            line = bytes(self._received[:at])
            del self._received[: at + 1]
            self._searched = 0
            if line.strip():
                return line
        self._searched = len(self._received)
        return None

    def _pump(self, seconds: float) -> bool:
        """Wait for something to happen, and take in what has come; whether something did."""
        found = self._poll.poll(seconds * 1000)
        for number, _ in found:
            if number == self._out.fileno():
                self._receive()
            else:
                self._flush()
        return bool(found)

    def _receive(self) -> None:
        try:
            data = os.read(self._out.fileno(), _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._received += data or b"\n"  # what is left at the end is a line too
        if not data:
            self._ended = True
            self._poll.unregister(self._out)

    def _flush(self) -> None:
        try:
            while self._unwritten:
                with memoryview(self._unwritten) as view:
                    written = os.write(self._in.fileno(), view[:_READ])
                del self._unwritten[:written]
        except BlockingIOError:
            self._poll.register(self._in, select.POLLOUT)
            return
        except (OSError, ValueError):  # it no longer listens; that it is gone shows when it is read from
            self._unwritten.clear()
        with suppress(KeyError, ValueError):
            self._poll.unregister(self._in)

    def _close_input(self) -> None:
        self._unwritten.clear()
        self._flush()
        with suppress(OSError):
            self._in.close()


class AsyncProgram(_Child):
    """A program that was started on an event loop."""

    blocking: ClassVar[bool] = False

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        protocol: asyncio.subprocess.SubprocessStreamProtocol,
        loop: asyncio.AbstractEventLoop,
        errors: IO[bytes],
    ) -> None:
        from asyncio.subprocess import Process  # which plain programs do not load

        super().__init__(errors)
        self._loop: asyncio.AbstractEventLoop = loop
        self._transport: asyncio.SubprocessTransport = transport
        self._child: asyncio.subprocess.Process = Process(transport, protocol, loop)

    @classmethod
    async def start(cls, launch: Launch) -> Self:
        import asyncio
        from asyncio.subprocess import SubprocessStreamProtocol

        loop = asyncio.get_running_loop()
        errors = tempfile.TemporaryFile()  # noqa: SIM115 -- it lives as long as the program
        try:
            transport, protocol = await loop.subprocess_exec(
                lambda: SubprocessStreamProtocol(limit=_LONGEST_LINE, loop=loop),
                *launch.command(),
                stderr=errors,
                env=dict(launch.environment),
                cwd=launch.directory,
                start_new_session=True,
            )
        except BaseException as error:
            errors.close()
            if isinstance(error, OSError | ValueError):
                raise _not_started(launch, error) from error
            raise
        return cls(transport, protocol, loop, errors)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def usable(self) -> bool:
        import asyncio

        if self._stopped or self._child.returncode is not None or self._loop.is_closed() or self._owner != os.getpid():
            return False
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:  # only looked at, from outside of any loop
            return True

    async def write(self, data: bytes) -> None:
        assert self._child.stdin is not None
        if not self._child.stdin.is_closing():
            self._child.stdin.write(data)

    async def read(self, seconds: float | None) -> bytes:
        import asyncio

        assert self._child.stdout is not None
        end = None if seconds is None else self._loop.time() + seconds
        while True:
            left = _SLICE if end is None else min(_SLICE, end - self._loop.time())
            try:
                async with asyncio.timeout(max(0.0, left)):
                    line = await self._child.stdout.readline()
            except TimeoutError:
                if self._child.returncode is not None:
                    line = b""
                elif left < 0:
                    raise ProgramSilentError(self._last_words) from None
                else:
                    continue
            if not line:
                self._kill()
                await self._ends_within(_LAST)
                raise ProgramEndedError(self._child.returncode, self._last_words)
            if line.strip():
                return line

    async def stop(self, *, gently: bool) -> None:
        import asyncio

        if self._stopped:
            return
        self._stopped = True
        if self._loop.is_closed() or asyncio.get_running_loop() is not self._loop:
            self._kill()  # its own loop is gone, and with it whoever could have waited for it
            self._errors.close()
            return
        try:
            if gently:
                assert self._child.stdin is not None
                self._child.stdin.close()
                await self._ends_within(_GRACE)
        finally:
            self._kill()
            try:
                await self._ends_within(_LAST)
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    self._transport.close()
                self._errors.close()
        await asyncio.sleep(0)  # lets the pipes close

    async def _ends_within(self, seconds: float) -> None:
        import asyncio

        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._child.wait()
