"""Asking a person, one question at a time, in both colours."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from dragoman.toolkit.responder import PermissionAnswer, PermissionRequest, close_unstarted
from dragoman.tools.threads import start_thread

from .rules import Rule

T = TypeVar("T")


class RuleAnswer(Struct, frozen=True, kw_only=True):
    """A person's answer that is meant for all calls like this one, until the end of the session."""

    rule: Rule


Answer: TypeAlias = PermissionAnswer | RuleAnswer | None
"""None: nobody can answer now, and the call waits."""


class AsksPermission(Protocol):
    """The part of a Responder that is needed here; plain or async."""

    def ask_permission(self, request: PermissionRequest, /) -> Awaitable[Answer] | Answer:
        """Show the call to a person and give the answer."""
        ...


class Turns:
    """Lets one question be asked at a time, whatever threads and event loops the questions come from.

    Each one waits for the one before. A lock would belong to threads or to one event loop; a future serves both.
    """

    def __init__(self) -> None:
        self._lock: threading.Lock = threading.Lock()
        self._last: Future[None] | None = None

    @contextmanager
    def plain(self) -> Generator[None, None, None]:
        """The caller's turn, in a plain program."""
        before, mine = self._queue()
        try:
            if before is not None:
                before.result()
            yield
        finally:
            _pass_on(before, mine)

    @asynccontextmanager
    async def on_loop(self) -> AsyncGenerator[None, None]:
        """The caller's turn, on an event loop."""
        before, mine = self._queue()
        try:
            if before is not None:
                await _wait_for(before)
            yield
        finally:
            _pass_on(before, mine)

    def _queue(self) -> tuple[Future[None] | None, Future[None]]:
        mine: Future[None] = Future()
        with self._lock:
            before, self._last = self._last, mine
        return before, mine


def _pass_on(before: Future[None] | None, mine: Future[None]) -> None:
    """The next one's turn: at once, or when it would have been ours if we gave up waiting."""
    if before is None:
        mine.set_result(None)
    else:
        before.add_done_callback(lambda _: mine.set_result(None))


async def _wait_for(future: Future[T]) -> None:
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def go_on() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def wake(_: object) -> None:  # called from any thread
        with suppress(RuntimeError):  # the loop may have been closed in the meantime, and nobody waits
            loop.call_soon_threadsafe(go_on)

    future.add_done_callback(wake)
    await waiter


class Later(Generic[T]):
    """Something to await, around an answer that is to be awaited. If nobody does, neither complains."""

    def __init__(self, answer: Awaitable[object], rest: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._answer: Awaitable[object] = answer
        self._rest: Callable[[], Coroutine[Any, Any, T]] = rest

    def __await__(self) -> Generator[Any, Any, T]:
        return self._rest().__await__()

    def __del__(self) -> None:
        close_unstarted(self._answer)


async def in_thread(function: Callable[[], T]) -> T:
    """Call a plain function that may take long. Its thread does not keep the program alive: a person may have left."""
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def call() -> None:
        try:
            future.set_result(context.run(function))
        except BaseException as error:  # noqa: BLE001 -- it belongs to whoever awaits it
            future.set_exception(error)

    start_thread(call, "dragoman-question")
    await _wait_for(future)
    return future.result()


def is_on_loop() -> bool:
    """Whether an event loop runs in this thread, so that nothing here may block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
