"""The claude program as a child of a plain program, and the driver of a call to it.

Owns: the process, its pipes, and that nothing is left of it; carrying out the effects of a call.
Must not know: what is said. There are no threads: whoever waits for a line also writes and listens to the errors.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from inspect import isawaitable
from typing import IO, Final, Self

from dragoman.conversation import Message, ReplyEvent, ToolCall
from dragoman.engines.reply import Reply
from dragoman.errors import ConfigurationError, ProviderError
from dragoman.tools.permission import Allow, Ask, Deny

from .call import Decide, Effect, Emit, Gone, ProgramCall, Read, Start, Stop, TimedOut, Write
from .failures import not_started
from .launch import Launch
from .process import LastWords, Lines, kill_group
from .settings import OwnToolPermission

__all__ = ["Process", "ProgramStream", "carry_out", "drive"]

_READ: Final = 256 * 1024
_SLICE: Final = 0.25
"""Seconds after which it is looked whether the program still lives: a child of its own may hold the pipes open."""
_GRACE: Final = 2.0
_LAST: Final = 5.0
_NOBODY: Final = "nobody was there to allow it"


class Process:
    """A program that was started. One caller at a time."""

    def __init__(self, launch: Launch) -> None:
        self._lines: Lines = Lines()
        self._words: LastWords = LastWords()
        self._unwritten: bytearray = bytearray()
        self._poll: select.poll = select.poll()
        self._stopped: bool = False
        self._killed: bool = False
        self._owner: int = os.getpid()
        self._child: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 -- the program that the user named
            launch.command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(launch.environment),
            cwd=launch.directory,
            bufsize=0,
            start_new_session=True,
        )
        try:
            self._in: int = _number_of(self._child.stdin)
            self._out: int = _number_of(self._child.stdout)
            self._err: int = _number_of(self._child.stderr)
            self._open: set[int] = {self._out, self._err}
            for number in (self._in, self._out, self._err):
                os.set_blocking(number, False)
            for number in self._open:
                self._poll.register(number, select.POLLIN)
        except BaseException:  # Ctrl-C: nobody else knows of the program yet
            self._kill()
            raise

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def usable(self) -> bool:
        """Whether it still runs."""
        return not self._stopped and self._owner == os.getpid() and not self._has_ended()

    def write(self, data: bytes) -> None:
        """Say something; what does not fit into the pipe is written while waiting for an answer."""
        self._unwritten += data
        self._flush()

    def read(self, seconds: float | None) -> bytes | Gone | TimedOut:
        """The next line."""
        end = None if seconds is None else time.monotonic() + seconds
        while not self._lines.whole:
            if self._out not in self._open:
                return self._gone()
            left = _SLICE if end is None else min(_SLICE, end - time.monotonic())
            if left < 0:
                return TimedOut(self._words.text)
            if not self._pump(left) and self._has_ended() and not self._pump(0.0):
                return self._gone()
        return self._lines.take()

    def stop(self, *, gently: bool) -> None:
        """End it, and all that it has started; wait until it is gone."""
        if self._stopped:
            return
        self._stopped = True
        if gently:
            self._close_input()
            end = time.monotonic() + _GRACE
            while not self._has_ended() and (left := end - time.monotonic()) > 0:
                self._pump(min(left, 0.05))
                self._lines.whole.clear()
        self._kill()
        self._close_input()  # not before: in the middle of a turn it would take that for a failure, and go on
        for pipe in (self._child.stdout, self._child.stderr):
            if pipe is not None:
                pipe.close()

    # --- inside ---

    def _kill(self) -> None:
        """End the whole group, once: when the program has been waited for, its number may become somebody else's."""
        if not self._killed and self._owner == os.getpid():
            self._killed = True
            kill_group(self._child.pid)
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(_LAST)

    def _gone(self) -> Gone:
        self._kill()
        while self._err in self._open and self._pump(0.0):
            pass
        return Gone(self._child.returncode, self._words.text)

    def _has_ended(self) -> bool:
        if self._child.returncode is not None:
            return True
        if not hasattr(os, "waitid"):
            return self._child.poll() is not None
        try:
            return os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # somebody else has waited for all children
            return True

    def _pump(self, seconds: float) -> bool:
        """Wait for something to happen, and take in what has come; whether something did."""
        found = self._poll.poll(seconds * 1000)
        for number, _ in found:
            if number == self._in:
                self._flush()
            else:
                self._take(number)
        return bool(found)

    def _take(self, number: int) -> None:
        try:
            data = os.read(number, _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._poll.unregister(number)
            self._open.discard(number)
        if number == self._err:
            self._words.add(data)
        elif data:
            self._lines.feed(data)
        else:
            self._lines.end()

    def _flush(self) -> None:
        try:
            while self._unwritten:
                with memoryview(self._unwritten) as view:
                    written = os.write(self._in, view[:_READ])
                del self._unwritten[:written]
        except BlockingIOError:
            pass
        except OSError:  # it no longer listens; that it is gone shows when it is read from
            self._unwritten.clear()
        if self._unwritten and self._in not in self._open:
            self._open.add(self._in)
            self._poll.register(self._in, select.POLLOUT)
        elif not self._unwritten and self._in in self._open:
            self._open.discard(self._in)
            self._poll.unregister(self._in)

    def _close_input(self) -> None:
        self._unwritten.clear()
        if self._in in self._open:
            self._open.discard(self._in)
            self._poll.unregister(self._in)
        if self._child.stdin is not None:
            with suppress(OSError):
                self._child.stdin.close()


def _number_of(pipe: IO[bytes] | None) -> int:
    assert pipe is not None
    return pipe.fileno()


class Driver:
    """Carries out the effects of one call."""

    def __init__(self, call: ProgramCall[Process], permission: OwnToolPermission | None) -> None:
        self._call: ProgramCall[Process] = call
        self._steps: Generator[Effect, object, None] = call.steps()
        self._permission: OwnToolPermission | None = permission

    def advance(self) -> list[ReplyEvent] | None:
        """Go on until there are events for the caller; None when the call is over."""
        answer: object = None
        failure: ProviderError | ConfigurationError | None = None
        while True:
            try:
                effect = self._steps.send(answer) if failure is None else self._steps.throw(failure)
            except StopIteration:
                return None
            if isinstance(effect, Emit):
                return effect.events
            answer = failure = None
            try:
                answer = self._carry_out(effect)
            except (ProviderError, ConfigurationError) as error:
                failure = error

    def _carry_out(self, effect: Effect) -> object:
        match effect:
            case Read():
                return effect.handle.read(effect.seconds)
            case Write():
                return effect.handle.write(effect.data)
            case Start():
                return self._start(effect.launch)
            case Stop():
                return effect.handle.stop(gently=effect.gently)
            case Decide():
                return self._decide(effect.call)
            case Emit():
                return None

    def _start(self, launch: Launch) -> Process:
        try:
            return Process(launch)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise not_started(launch.arguments[0], reason) from error

    def _decide(self, call: ToolCall) -> Allow | Deny | Ask:
        if self._permission is None:
            return Deny(_NOBODY)
        try:
            said = self._permission(call)
        except Exception as error:  # noqa: BLE001 -- a question that failed is not a yes
            return Deny(f"the question could not be asked ({type(error).__name__})")
        if isawaitable(said):
            close = getattr(said, "close", None)
            if close is not None:
                close()
            return Deny("the permission check is async, and this program is not")
        return said

    def close(self) -> None:
        """Stop the call, wherever it is."""
        self._steps.close()
        for effect in self._call.abandon():
            self._carry_out(effect)


def drive(call: ProgramCall[Process], permission: OwnToolPermission | None) -> Generator[ReplyEvent, None, None]:
    """Carry a call out, and give its events as they come. Closing the generator interrupts the program."""
    driver = Driver(call, permission)
    try:
        while (events := driver.advance()) is not None:
            yield from events
    finally:
        driver.close()


def carry_out(call: ProgramCall[Process], permission: OwnToolPermission | None) -> None:
    """Carry a call out to its end, for a caller who wants the reply and not its events."""
    driver = Driver(call, permission)
    try:
        while driver.advance() is not None:
            pass
    finally:
        driver.close()


class ProgramStream:
    """A reply while it arrives: iterate it inside a `with` block, which interrupts the program if it is left early."""

    def __init__(self, call: ProgramCall[Process], events: Generator[ReplyEvent, None, None]) -> None:
        self._call: ProgramCall[Process] = call
        self._events: Generator[ReplyEvent, None, None] = events

    @property
    def message(self) -> Message:
        """What was received so far; marked interrupted unless the reply is complete."""
        return self._call.message

    @property
    def reply(self) -> Reply:
        """The message and the account of the call so far."""
        return self._call.reply

    def __iter__(self) -> Iterator[ReplyEvent]:
        return self._events

    def close(self) -> None:
        """Stop the reply."""
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
