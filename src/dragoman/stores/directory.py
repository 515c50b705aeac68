"""Files of a store: read, replaced and appended to so that a crash leaves the old or the new content; and a lock.

Every descriptor is owned from the moment it is open, and what is done under the lock is a function that is called, not
the body of a `with`: a context manager written in Python can be interrupted by Ctrl-C before it lets go of the lock,
and whoever handles that interrupt would wait for it.
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
# Not blocking: somebody may have put a pipe there, on which a plain open would wait for ever.
_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK: Final = 1 << 16
_WAIT: Final = 0.002
"""Seconds between two looks whether the lock is free."""

# --- reading ---------------------------------------------------------------------------------------------------------


def read_file(path: Path) -> bytes | None:
    """The content of a regular file; None if there is none. Raises SnapshotCorruptError for links and devices."""
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
    return SnapshotCorruptError(message, hint="Remove it, or restore the file from a copy.")


def list_names(path: Path) -> list[str]:
    """The names in a directory; none if there is no such directory."""
    try:
        return os.listdir(path)  # noqa: PTH208 - opens and closes in one call, which Ctrl-C cannot divide
    except (FileNotFoundError, NotADirectoryError):
        return []


# --- writing ---------------------------------------------------------------------------------------------------------


def make_directory(path: Path) -> None:
    """A directory for its owner's eyes only, on the disk when this returns; those above it, too."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
        sync_directory(each.parent)


def write_file(path: Path, data: bytes) -> None:
    """A new file with this content, on the disk when this returns. Its name is not, before its directory is synced."""
    with owned(os.open, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o600) as file:
        _write_at(file.number, data, 0)
        os.fsync(file.number)


def append_to_file(path: Path, data: bytes, at: int) -> None:
    """Write behind the first `at` bytes of a file, instead of what stands there; all of it, or nothing."""
    with owned(os.open, path, os.O_RDWR | os.O_CREAT | _FILE, 0o600) as file:
        try:
            os.ftruncate(file.number, at)
            _write_at(file.number, data, at)
            os.fsync(file.number)
        except BaseException:
            with suppress(OSError):  # else the next one to write does it
                os.ftruncate(file.number, at)
            raise


def _write_at(fd: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, at)
        view, at = view[written:], at + written


def sync_directory(path: Path) -> None:
    """Make the names of the directory's files survive a crash of the machine."""
    with owned(os.open, path, _DIRECTORY) as directory:
        os.fsync(directory.number)


def remove(path: Path) -> None:
    """Remove a file, or a directory of files, if it is there."""
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
    """Do the work while nobody else, thread or process, holds the lock.

    The lock is the kernel's (flock) on a file that is never removed. It ends with the process that holds it.
    """
    file = owned(os.open, path, os.O_RDWR | os.O_CREAT | _FILE, 0o600)
    try:
        _take(file.number, timeout)
        result = work()
    finally:
        # By name, not just by closing: the traceback of an interrupt, or a fork, may keep the descriptor.
        fcntl.flock(file.number, fcntl.LOCK_UN)
        file.close()
    return result  # not inside of the `try`: between a `return` there and the `finally` nothing would let go


def _take(lock: int, timeout: float) -> None:
    """Take the lock as soon as it is free. All who wait look equally often, however long they have waited."""
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
            hint = "Try again; if it persists, look for a process that hangs. What was saved before is safe."
            raise StoreUnavailableError(message, hint=hint)
        sleep(_WAIT)


# --- errors ----------------------------------------------------------------------------------------------------------

_SPACE: Final = "Free some space and try again."
_RIGHTS: Final = "Give this user the right to read and write the store's directory, and try again."
_OPEN_FILES: Final = "Close some files, or raise the limit (ulimit -n), and try again."
_OTHER: Final = "Look at the state of the disk or of the network, and try again."

_HINTS: Final[dict[int, str]] = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EFBIG: "Raise the limit of the size of files (ulimit -f), and try again.",
    errno.EROFS: "Make the file system writable again, or use another directory.",
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EMFILE: _OPEN_FILES,
    errno.ENFILE: _OPEN_FILES,
    errno.ENOTDIR: "Give the path of a directory, or of a new one.",
    errno.ENOLCK: "Keep the store on a file system with locks (flock), or in a database.",
}


@contextmanager
def report_os_errors(doing: str) -> Generator[None]:
    """Turn an OSError into a StoreUnavailableError: the store could not do this, and why."""
    try:
        yield
    except OSError as error:
        hint = f"{_HINTS.get(error.errno or 0, _OTHER)} What was saved before is safe."
        why = error.strerror or type(error).__name__
        raise StoreUnavailableError(f"The store could not {doing}: {why}.", hint=hint) from error
