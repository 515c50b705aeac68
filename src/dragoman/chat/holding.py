"""Who uses an engine or an executor, and until when.

Owns: leases: several users share a thing, and the last of them has it closed, once, if it is ours to close.
Must not know: colours. What is to be closed is handed to whoever can.
"""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from dragoman.loop.run import LoopSettings
from dragoman.tools.execution.executor import ToolExecutor

__all__ = ["Hold", "Lease", "close_executor"]

T = TypeVar("T")


class Lease(Generic[T]):
    """A thing that several users share."""

    def __init__(self, thing: T, *, owned: bool) -> None:
        self.thing: T = thing
        self._owned: bool = owned
        self._holders: int = 1
        self._lock: threading.Lock = threading.Lock()

    def again(self) -> Lease[T]:
        """For one more user."""
        with self._lock:
            self._holders += 1
        return self

    def release(self) -> T | None:
        """One user less; the thing, if nobody else needs it and it is ours to close."""
        with self._lock:
            self._holders -= 1
            return self.thing if self._owned and self._holders == 0 else None


class Hold(Generic[T]):
    """What one turn works with, from its first moment to its last, whatever the client gets in the meantime."""

    def __init__(self) -> None:
        self._leases: tuple[Lease[T], Lease[ToolExecutor]] | None = None
        self.settings: LoopSettings = LoopSettings()

    def take(self, engine: Lease[T], executor: Lease[ToolExecutor], settings: LoopSettings) -> None:
        """Begin."""
        self._leases, self.settings = (engine.again(), executor.again()), settings

    @property
    def engine(self) -> T:
        """The engine of this turn."""
        assert self._leases is not None
        return self._leases[0].thing

    @property
    def executor(self) -> ToolExecutor:
        """The executor of this turn."""
        assert self._leases is not None
        return self._leases[1].thing

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
