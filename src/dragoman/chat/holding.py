"""Who uses an engine or an executor, and until when.

Owns: leases: several users share a thing, and the last of them has it closed, once, if it is ours to close.
Must not know: colours. What is to be closed is handed to whoever can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from dragoman.loop.settings import LoopSettings

if TYPE_CHECKING:
    from dragoman.tools.executor import ToolExecutor

__all__ = ["Hold", "Lease", "close_executor"]

T = TypeVar("T")


class Lease(Generic[T]):
    """A thing that several users share."""

    def __init__(self, thing: T, *, owned: bool) -> None:
        self.thing: T = thing
        # One entry for each user; only that of the last one to leave says whether the thing is to be closed. A list
        # grows and shrinks at its end in one step, whoever else does so too: this needs no lock.
        self._holders: list[bool] = [owned]

    def again(self) -> Lease[T]:
        """For one more user."""
        self._holders.append(False)
        return self

    def release(self) -> T | None:
        """One user less; the thing, if nobody else needs it and it is ours to close."""
        return self.thing if self._holders.pop() else None


class Hold(Generic[T]):
    """What one turn works with, from its first moment to its last, whatever the client gets in the meantime."""

    engine: T
    executor: ToolExecutor
    settings: LoopSettings

    def __init__(self) -> None:
        self._leases: tuple[Lease[T], Lease[ToolExecutor]] | None = None

    def take(self, engine: Lease[T], executor: Lease[ToolExecutor], settings: LoopSettings) -> None:
        """Begin."""
        self._leases = (engine.again(), executor.again())
        self.engine, self.executor, self.settings = engine.thing, executor.thing, settings

    def release(self) -> T | None:
        """End: the engine, if it is to be closed now."""
        if self._leases is None:
            return None
        (engine, executor), self._leases = self._leases, None
        close_executor(executor)
        return engine.release()


def close_executor(lease: Lease[ToolExecutor]) -> None:
    """One user of an executor less."""
    unused = lease.release()
    if unused is not None:
        unused.close()
