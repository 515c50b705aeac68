"""Reading and writing the files of a store so that a crash leaves the old or the new content; and a lock.

Work under the lock is a function call, not the body of a `with`: Ctrl-C can interrupt a context manager written in
Python before it releases the lock, and whoever handles the interrupt would wait for it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from dragoman._descriptors import owned
from dragoman._stop import sleep
from dragoman.errors import SnapshotCorruptError, StoreUnavailableError

_T = TypeVar("_T")

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Non-blocking: opening a pipe that somebody put there would otherwise wait for ever.
_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK: Final = 1 << 16
_WAIT: Final = 0.002
"""Seconds between two attempts to take the lock."""

# --- reading ---------------------------------------------------------------------------------------------------------


def read_file(path: Path) -> bytes | None:
    """The content of a regular file; None if it does not exist. Raises SnapshotCorruptError for links and devices."""
    try:
        file = owned(os.open, path, os.O_RDONLY | _FILE)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            raise _not_a_file(path) from None
        raise
    with file:
        if not stat.S_ISREG(os.fstat(file.number).st_mode):
            raise _not_a_file(path)
        parts: list[bytes] = []
        while part := os.read(file.number, _CHUNK):
            parts.append(part)
        return b"".join(parts)


def _not_a_file(path: Path) -> SnapshotCorruptError:
    message = f"{path} is not a regular file; links and devices are not followed."
    return SnapshotCorruptError(message, hint="Remove it, or restore the file from a backup.")


def list_names(path: Path) -> list[str]:
    """The names in a directory; empty if it does not exist."""
    try:
        return os.listdir(path)  # noqa: PTH208 - one call, which Ctrl-C cannot divide
    except (FileNotFoundError, NotADirectoryError):
        return []


# --- writing ---------------------------------------------------------------------------------------------------------


def make_directory(path: Path) -> None:
    """Create a directory, and missing ones above it, that only their owner can enter; on disk when this returns."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
        sync_directory(each.parent)


def write_file(path: Path, data: bytes) -> None:
    """Create a file with this content, on disk when this returns; its name is once its directory is synced."""
    with owned(os.open, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o600) as file:
        _write_at(file.number, data, 0)
        os.fsync(file.number)


def append_to_file(path: Path, data: bytes, at: int) -> None:
    """Replace everything after the first `at` bytes of a file; all of the data is written, or none."""
    with owned(os.open, path, os.O_RDWR | os.O_CREAT | _FILE, 0o600) as file:
        try:
            os.ftruncate(file.number, at)
            _write_at(file.number, data, at)
            os.fsync(file.number)
        except BaseException:
            with suppress(OSError):  # the next writer does it otherwise
                os.ftruncate(file.number, at)
            raise


def _write_at(fd: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, at)
        view, at = view[written:], at + written


def sync_directory(path: Path) -> None:
    """Make the names of the directory's files survive a crash of the machine (fsync)."""
    with owned(os.open, path, _DIRECTORY) as directory:
        os.fsync(directory.number)


def remove(path: Path) -> None:
    """Remove a file, or a directory of files, if it exists."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        path.unlink(missing_ok=True)
        return
    for name in list_names(path):
        (path / name).unlink(missing_ok=True)
    path.rmdir()


# --- the lock --------------------------------------------------------------------------------------------------------


def work_under_lock(path: Path, timeout: float, work: Callable[[], _T]) -> _T:
    """Run the work while no other thread or process holds the lock.

    The lock is the kernel's (flock) on a file that is never removed. It ends with the process that holds it.
    """
    file = owned(os.open, path, os.O_RDWR | os.O_CREAT | _FILE, 0o600)
    try:
        _acquire(file.number, timeout)
        result = work()
    finally:
        # Closing alone is not enough: the traceback of an interrupt, or a fork, may keep the descriptor open.
        fcntl.flock(file.number, fcntl.LOCK_UN)
        file.close()
    return result  # outside the `try`: an interrupt between a `return` there and the `finally` would keep the lock


def _acquire(lock: int, timeout: float) -> None:
    """Take the lock as soon as it is free. All waiters try equally often, however long they have waited."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EWOULDBLOCK, errno.EAGAIN, errno.EINTR}:
                raise
        else:
            return
        if time.monotonic() >= deadline:
            message = f"Another process has been writing to the store for {timeout:g} seconds."
            hint = "Try again; if it persists, look for a hanging process. What was saved before is safe."
            raise StoreUnavailableError(message, hint=hint)
        sleep(_WAIT)


# --- errors ----------------------------------------------------------------------------------------------------------

_SPACE: Final = "Free some space and try again."
_RIGHTS: Final = "Give this user the right to read and write the store's directory, and try again."
_OPEN_FILES: Final = "Close some files, or raise the limit (ulimit -n), and try again."
_OTHER: Final = "Check the disk or the network, and try again."

_HINTS: Final[dict[int, str]] = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EFBIG: "Raise the limit on file sizes (ulimit -f), and try again.",
    errno.EROFS: "Make the file system writable again, or use another directory.",
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EMFILE: _OPEN_FILES,
    errno.ENFILE: _OPEN_FILES,
    errno.ENOTDIR: "Choose the path of a directory, or a new one.",
    errno.ENOLCK: "Use a file system with locks (flock), or a database.",
}


@contextmanager
def report_os_errors(doing: str) -> Generator[None]:
    """Turn an OSError into a StoreUnavailableError that says what the store could not do, and why."""
    try:
        yield
    except OSError as error:
        hint = f"{_HINTS.get(error.errno or 0, _OTHER)} What was saved before is safe."
        why = error.strerror or type(error).__name__
        raise StoreUnavailableError(f"The store could not {doing}: {why}.", hint=hint) from error
