"""Locks between processes and threads that write to the same conversation.

Owns: taking and letting go of them.
Must not know: what they protect.

A lock is the kernel's (flock) on one of a fixed set of empty files. The kernel lets go of it when its holder dies, so
no lock is ever stale; and the files are never removed, so nobody waits at a file that others no longer look at.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Final

from dragoman.errors import StoreUnavailableError

from .folder import Folder

__all__ = ["Locks"]

_NUMBER: Final = 64
"""Conversations share them: some wait although they need not, for a few milliseconds."""
_OF_THE_STORE: Final = "store"
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_FIRST_WAIT: Final = 0.0005
_LONGEST_WAIT: Final = 0.02

_held: set[int] = set()


def _close_in_child() -> None:
    # A descriptor that a fork copied would keep the lock when the parent is killed.
    for fd in _held:
        os.close(fd)
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

    @contextmanager
    def held(self, folder: Folder, *ids: str) -> Generator[None]:
        """Hold the locks of these ids; in one order everywhere, so that nobody waits in a circle."""
        deadline = self._clock() + self._timeout
        with ExitStack() as stack:
            for name in sorted({_name(id) for id in ids}):
                stack.enter_context(self._one(folder, name, deadline))
            yield

    @contextmanager
    def store_held(self, folder: Folder) -> Generator[None]:
        """Hold the lock of the store itself, which no id has: also while those of ids are held, never before them."""
        with self._one(folder, _OF_THE_STORE, self._clock() + self._timeout):
            yield

    @contextmanager
    def try_held(self, folder: Folder, id: str) -> Generator[bool]:
        """Hold the lock of this id if it is free at once; whether it was."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self._one(folder, _name(id), self._clock() - 1))
            except StoreUnavailableError:
                yield False
            else:
                yield True

    @contextmanager
    def _one(self, folder: Folder, name: str, deadline: float) -> Generator[None]:
        fd = os.open(name, _LOCK, 0o600, dir_fd=folder.fd)
        _held.add(fd)
        try:
            self._take(fd, deadline)
            try:
                yield
            finally:
                # By name, not just by closing: a copy that some child holds would keep it.
                fcntl.flock(fd, fcntl.LOCK_UN)
        finally:
            _held.discard(fd)
            os.close(fd)

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
