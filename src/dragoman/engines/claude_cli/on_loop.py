"""The claude program as a child of a program on an event loop, and the driver of a call to it.

Owns: the process, its pipes, and that nothing is left of it; carrying out the effects of a call.
Must not know: what is said. The twin of plain.py. There are no tasks: what arrives is kept until somebody asks for it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import suppress
from inspect import isawaitable
from typing import Any, Final, Self, cast

from dragoman.conversation import Message, ReplyEvent, ToolCall
from dragoman.engines.reply import Reply
from dragoman.errors import ConfigurationError, ProviderError
from dragoman.tools.permission import Allow, Ask, Deny

from .call import Decide, Effect, Emit, Gone, ProgramCall, Read, Start, Stop, TimedOut, Write
from .failures import not_started
from .launch import Launch
from .process import LastWords, Lines, kill_group
from .settings import OwnToolPermission

__all__ = ["AsyncProcess", "AsyncProgramStream", "acarry_out", "adrive"]

_OUT: Final = 1
_ERR: Final = 2
_MOST_UNREAD: Final = 8 * 1024 * 1024
"""Bytes in whole lines that nobody has asked for, above which the program has to wait."""
_LINGER: Final = 0.25
"""Seconds to wait for last lines after the program has ended while a child of its own holds the pipes open."""
_GRACE: Final = 2.0
_LAST: Final = 5.0
_NOBODY: Final = "nobody was there to allow it"


class AsyncProcess(asyncio.SubprocessProtocol):
    """A program that was started. One caller at a time."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._transport: asyncio.SubprocessTransport | None = None
        self._lines: Lines = Lines()
        self._words: LastWords = LastWords()
        self._woken: asyncio.Event = asyncio.Event()
        self._exited: bool = False
        self._out_ended: bool = False
        self._paused: bool = False
        self._stopped: bool = False
        self._killed: bool = False
        self._owner: int = os.getpid()

    @classmethod
    async def start(cls, launch: Launch) -> AsyncProcess:
        """Start the program."""
        loop = asyncio.get_running_loop()
        _, protocol = await loop.subprocess_exec(
            cls,
            *launch.command(),
            env=dict(launch.environment),
            cwd=launch.directory,
            start_new_session=True,
        )
        return protocol

    # --- called by the loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _ERR:
            self._words.add(data)
            return
        self._lines.feed(data)
        if self._lines.size > _MOST_UNREAD and not self._paused:
            self._paused = True
            self._pipe(_OUT).pause_reading()
        self._woken.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == _OUT:
            self._out_ended = True
            self._lines.end()
        self._woken.set()

    def process_exited(self) -> None:
        self._exited = True
        self._woken.set()

    def _pipe(self, fd: int) -> Any:
        assert self._transport is not None
        return self._transport.get_pipe_transport(fd)

    # --- called by us ---

    @property
    def pid(self) -> int:
        assert self._transport is not None
        return self._transport.get_pid()

    @property
    def usable(self) -> bool:
        """Whether it still runs, and belongs to the loop that runs now."""
        if self._stopped or self._exited or self._loop.is_closed() or self._owner != os.getpid():
            return False
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:  # only looked at, from outside of any loop
            return True

    def write(self, data: bytes) -> None:
        """Say something."""
        pipe = self._pipe(0)
        if pipe is not None and not pipe.is_closing():
            pipe.write(data)

    async def read(self, seconds: float | None) -> bytes | Gone | TimedOut:
        """The next line."""
        end = None if seconds is None else self._loop.time() + seconds
        while not self._lines.whole:
            if self._out_ended:
                return await self._gone()
            if self._exited:
                if not await self._woken_within(_LINGER):
                    return await self._gone()
                continue
            left = None if end is None else end - self._loop.time()
            in_time = (left is None or left > 0) and await self._woken_within(left)
            if not in_time and not (self._lines.whole or self._out_ended or self._exited):
                return TimedOut(self._words.text)
        line = self._lines.take()
        if self._paused and self._lines.size < _MOST_UNREAD // 2:
            self._paused = False
            with suppress(RuntimeError):
                self._pipe(_OUT).resume_reading()
        return line

    async def _woken_within(self, seconds: float | None) -> bool:
        self._woken.clear()
        if self._lines.whole:
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return False
        return True

    def _kill(self) -> None:
        # Once only: when all are gone, the number may become somebody else's.
        if not self._killed and self._owner == os.getpid():
            self._killed = True
            kill_group(self.pid)

    async def _gone(self) -> Gone:
        self._kill()
        await self._ended_within(_LAST)
        assert self._transport is not None
        return Gone(self._transport.get_returncode(), self._words.text)

    async def _ended_within(self, seconds: float) -> bool:
        end = self._loop.time() + seconds
        while not self._exited:
            left = end - self._loop.time()
            if left <= 0:
                return False
            self._lines.whole.clear()
            await self._woken_within(left)
        return True

    async def stop(self, *, gently: bool) -> None:
        """End it, and all that it has started; wait until it is gone."""
        if self._stopped:
            return
        self._stopped = True
        assert self._transport is not None
        if self._loop.is_closed() or asyncio.get_running_loop() is not self._loop:
            self._kill()  # its own loop is gone, and with it whoever could have waited for it
            return
        try:
            if gently:
                pipe = self._pipe(0)
                if pipe is not None:
                    pipe.close()
                if self._paused:
                    with suppress(RuntimeError):
                        self._pipe(_OUT).resume_reading()
                await self._ended_within(_GRACE)
        finally:
            self._kill()
            try:
                await self._ended_within(_LAST)
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    self._transport.close()
        await asyncio.sleep(0)  # lets the pipes close


class AsyncDriver:
    """Carries out the effects of one call."""

    def __init__(self, call: ProgramCall[AsyncProcess], permission: OwnToolPermission | None) -> None:
        self._call: ProgramCall[AsyncProcess] = call
        self._steps: Generator[Effect, object, None] = call.steps()
        self._permission: OwnToolPermission | None = permission

    async def advance(self) -> list[ReplyEvent] | None:
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
                answer = await self._carry_out(effect)
            except (ProviderError, ConfigurationError) as error:
                failure = error

    async def _carry_out(self, effect: Effect) -> object:
        match effect:
            case Read():
                return await effect.handle.read(effect.seconds)
            case Write():
                return effect.handle.write(effect.data)
            case Start():
                return await self._start(effect.launch)
            case Stop():
                return await effect.handle.stop(gently=effect.gently)
            case Decide():
                return await self._decide(effect.call)
            case Emit():
                return None

    async def _start(self, launch: Launch) -> AsyncProcess:
        try:
            return await AsyncProcess.start(launch)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise not_started(launch.arguments[0], reason) from error

    async def _decide(self, call: ToolCall) -> Allow | Deny | Ask:
        if self._permission is None:
            return Deny(_NOBODY)
        try:
            said = self._permission(call)
            return await said if isawaitable(said) else said
        except Exception as error:  # noqa: BLE001 -- a question that failed is not a yes
            return Deny(f"the question could not be asked ({type(error).__name__})")

    async def aclose(self) -> None:
        """Stop the call, wherever it is."""
        self._steps.close()
        for effect in self._call.abandon():
            await self._carry_out(effect)


async def adrive(
    call: ProgramCall[AsyncProcess], permission: OwnToolPermission | None
) -> AsyncGenerator[ReplyEvent, None]:
    """Carry a call out, and give its events as they come. Closing the generator interrupts the program."""
    driver = AsyncDriver(call, permission)
    try:
        while (events := await driver.advance()) is not None:
            for event in events:
                yield event
    finally:
        await driver.aclose()


async def acarry_out(call: ProgramCall[AsyncProcess], permission: OwnToolPermission | None) -> None:
    """Carry a call out to its end, for a caller who wants the reply and not its events."""
    driver = AsyncDriver(call, permission)
    try:
        while await driver.advance() is not None:
            pass
    finally:
        await driver.aclose()


class AsyncProgramStream:
    """A reply while it arrives: iterate it inside an `async with` block, which interrupts the program in any case."""

    def __init__(self, call: ProgramCall[AsyncProcess], events: AsyncGenerator[ReplyEvent, None]) -> None:
        self._call: ProgramCall[AsyncProcess] = call
        self._events: AsyncGenerator[ReplyEvent, None] = events

    @property
    def message(self) -> Message:
        """What was received so far; marked interrupted unless the reply is complete."""
        return self._call.message

    @property
    def reply(self) -> Reply:
        """The message and the account of the call so far."""
        return self._call.reply

    def __aiter__(self) -> AsyncIterator[ReplyEvent]:
        return self._events

    async def aclose(self) -> None:
        """Stop the reply."""
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()
