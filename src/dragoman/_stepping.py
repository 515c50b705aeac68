"""Run the async core in a sync program, without an event loop.

The core of the library is `async def` over a few I/O methods. On an event loop those methods await. In a sync program
they are `async def` too, but block and return, so a coroutine never suspends: one step runs it to its end. Ctrl-C is an
ordinary exception at the blocking call, there is no hidden thread, and it works in notebooks and after a fork. A
coroutine that does suspend raises RuntimeError.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


def step(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    message = "a sync call awaited something that needs an event loop"
    raise RuntimeError(message)


def step_through(items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """The items of an async generator that never suspends. Closing this generator closes that one."""
    try:
        while True:
            try:
                item = step(items.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        step(items.aclose())


class Inner(Generic[T]):
    """The items of an async generator that is read inside another one, or inside a task, which closes it.

    When an event loop ends, it closes all async generators that were left open, and that it knows of, at the same time.
    It must know only the outermost one: that closes the others, and cannot while the loop does.
    """

    def __init__(self, items: AsyncGenerator[T, None]) -> None:
        self._items: AsyncGenerator[T, None] = items
        self._has_begun: bool = False

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[T]:
        if self._has_begun:
            return self._items.__anext__()
        self._has_begun = True
        return _unknown_to_loop(self._items.__anext__)

    def aclose(self) -> Awaitable[None]:
        return _unknown_to_loop(self._items.aclose)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()


def _unknown_to_loop(begin: Callable[[], Awaitable[T]]) -> Awaitable[T]:
    """Call a method of an async generator; the first call makes it known to the loop, unless there is no hook."""
    hook = sys.get_asyncgen_hooks().firstiter
    try:
        sys.set_asyncgen_hooks(firstiter=None)
        return begin()
    finally:
        sys.set_asyncgen_hooks(firstiter=hook)


async def exhaust(items: AsyncGenerator[object, None]) -> None:
    """Run an async generator to its end, ignoring its items."""
    async with Inner(items) as inner:
        async for _ in inner:
            pass
