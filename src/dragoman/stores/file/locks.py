"""Locks between processes and threads that write to the same conversation.

Owns: taking and letting go of them.
Must not know: what they protect.

A lock is the kernel's (flock) on one of a fixed set of empty files. The kernel lets go of it when its holder dies, so
no lock is ever stale; and the files are never removed, so nobody waits at a file that others no longer look at.

What is done under a lock is a function that is called, not the body of a `with`: a context manager written in Python
can be interrupted by Ctrl-C before it lets go, and whoever handles that interrupt would wait for the lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from dragoman._descriptors import Descriptor, owned
from dragoman.errors import StoreUnavailableError

from .folder import Folder

__all__ = ["Locks"]

_NUMBER: Final = 64
"""Conversations share them: some wait although they need not, for a few milliseconds."""
_OF_THE_STORE: Final = "store"
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_FIRST_WAIT: Final = 0.0005
_LONGEST_WAIT: Final = 0.02

_T = TypeVar("_T")

_held: set[Descriptor] = set()


def _close_in_child() -> None:
    # A descriptor that a fork copied would keep the lock when the parent is killed.
    for file in _held:
        file.close()
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)


class Locks:
    """Takes the locks of some ids."""

    def __init__(
        self,
        timeout: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._timeout: Final = timeout
        self._clock: Final = clock
        self._sleep: Final = sleep

    def held(self, folder: Folder, ids: Sequence[str], work: Callable[[], _T]) -> _T:
        """Work while the locks of these ids are held; in one order everywhere, so that nobody waits in a circle."""
        return self._under(folder, sorted({_name(id) for id in ids}), self._clock() + self._timeout, work)

    def store_held(self, folder: Folder, work: Callable[[], _T]) -> _T:
        """Work under the lock of the store itself, which no id has: also while those of ids are held, never before."""
        return self._under(folder, [_OF_THE_STORE], self._clock() + self._timeout, work)

    def if_free(self, folder: Folder, id: str, work: Callable[[], None]) -> None:
        """Work under the lock of this id, unless somebody else holds it."""
        taken: list[bool] = []

        def noted() -> None:
            taken.append(True)
            work()

        try:
            self._under(folder, [_name(id)], self._clock() - 1, noted)
        except StoreUnavailableError:
            if taken:
                raise

    def _under(self, folder: Folder, names: list[str], deadline: float, work: Callable[[], _T]) -> _T:
        if not names:
            return work()
        file = owned(os.open, names[0], _LOCK, 0o600, dir_fd=folder.fd)
        try:
            _held.add(file)
            self._take(file.number, deadline)
            result = self._under(folder, names[1:], deadline, work)
        finally:
            # By name, not just by closing: a copy that some child holds would keep it.
            fcntl.flock(file.number, fcntl.LOCK_UN)
            _held.discard(file)
            file.close()
        return result

    def _take(self, fd: int, deadline: float) -> None:
        wait = _FIRST_WAIT
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in {errno.EWOULDBLOCK, errno.EAGAIN, errno.EINTR}:
                    raise
            else:
                return
            if self._clock() >= deadline:
                message = f"Another process has been writing to the conversation for {self._timeout:g} seconds."
                hint = "Try again; if it persists, look for a process that hangs. What was saved before is safe."
                raise StoreUnavailableError(message, hint=hint)
            self._sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT)


def _name(id: str) -> str:
    # The end of an id is random; its beginning is the time.
    return f"{int(id[-2:], 16) % _NUMBER:02x}"
