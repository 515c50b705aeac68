"""Who uses an engine or an executor, and until when.

Owns: leases: several users share a thing, and the last of them has it closed, once, if it is ours to close.
Must not know: colours. What is to be closed is handed to whoever can.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from dragoman.loop import LoopSettings

if TYPE_CHECKING:
    from dragoman.tools import ToolExecutor


T = TypeVar("T")


class Lease(Generic[T]):
    """A thing that several users share."""

    def __init__(self, thing: T, user: object, *, owned: bool) -> None:
        self.thing: T = thing
        self._owned: bool = owned
        self._users: list[object] = [user]
        # Re-entrant: a stream that the garbage collector closes may come in at any moment.
        self._lock: threading.RLock = threading.RLock()

    def again(self, user: object) -> Lease[T]:
        """For one more user."""
        self._users.append(user)
        return self

    def release(self, user: object) -> T | None:
        """One user less; the thing, if nobody else needs it and it is ours to close. Twice does no harm."""
        with self._lock:
            if user in self._users:
                self._users.remove(user)
            if self._users or not self._owned:
                return None
            self._owned = False
            return self.thing


class Hold(Generic[T]):
    """What one turn works with, from its first moment to its last, whatever the client gets in the meantime."""

    engine: T
    executor: ToolExecutor
    settings: LoopSettings

    def __init__(self) -> None:
        self._leases: tuple[Lease[T], Lease[ToolExecutor]] | None = None

    def take(self, engine: Lease[T], executor: Lease[ToolExecutor], settings: LoopSettings) -> None:
        """Begin."""
        self._leases = (engine, executor)  # before they are counted, since Ctrl-C may come at any call
        engine.again(self)
        executor.again(self)
        self.engine, self.executor, self.settings = engine.thing, executor.thing, settings

    def release(self) -> T | None:
        """End: the engine, if it is to be closed now. Twice does no harm."""
        if self._leases is None:
            return None
        engine, executor = self._leases
        close_executor(executor, self)
        unused = engine.release(self)
        self._leases = None
        return unused


def close_executor(lease: Lease[ToolExecutor], user: object) -> None:
    """One user of an executor less."""
    unused = lease.release(user)
    if unused is not None:
        unused.close()
