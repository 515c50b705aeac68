"""What a procedure asks for: call this function, wait so long.

Owns: the effects, on which the backend notes how they went.
Must not know: who asks, and who carries them out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct

__all__ = ["Effect", "Flag", "Invoke", "Sleep", "discard"]


class Flag:
    """Something that is not so at first, and then is. Apart from the effect, so that a context holds nothing more."""

    __slots__ = ("is_set",)

    def __init__(self) -> None:
        self.is_set: bool = False

    def set(self) -> None:
        self.is_set = True


class Invoke:
    """Effect: call this function, wait for it no longer than `timeout`, and note how it went."""

    __slots__ = ("error", "function", "given_up", "is_async", "timed_out", "timeout", "value")

    def __init__(
        self, function: Callable[[], Any], *, is_async: bool, timeout: float | None, given_up: Flag | None = None
    ) -> None:
        self.function: Callable[[], Any] = function
        self.is_async: bool = is_async
        self.timeout: float | None = timeout
        self.given_up: Flag = given_up or Flag()
        """Set when nobody waits for the function any more, though it may still run."""
        self.value: object = None
        self.error: BaseException | None = None
        self.timed_out: bool = False


class Sleep(Struct, frozen=True):
    """Effect: do nothing for a while."""

    seconds: float


Effect: TypeAlias = Invoke | Sleep


def discard(awaitable: object) -> None:
    """Close a coroutine that was never begun, so that Python does not complain that nobody awaited it."""
    import inspect

    if inspect.iscoroutine(awaitable) and inspect.getcoroutinestate(awaitable) == inspect.CORO_CREATED:
        awaitable.close()
