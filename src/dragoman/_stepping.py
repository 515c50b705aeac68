"""Run the async core in a sync program, without an event loop.

The core of the library is `async def` over a few I/O methods. On an event loop those methods await. In a sync program
they are `async def` too, but block and return, so a coroutine never suspends: one step runs it to its end. Ctrl-C is an
ordinary exception at the blocking call, there is no hidden thread, and it works in notebooks and after a fork. A
coroutine that does suspend raises RuntimeError.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, TypeVar

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


async def exhaust(items: AsyncGenerator[object, None]) -> None:
    """Run an async generator to its end, ignoring its items."""
    try:
        async for _ in items:
            pass
    finally:
        await items.aclose()
