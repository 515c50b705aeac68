"""What the operating system's errors mean to somebody who uses a store.

Owns: the table from error numbers to words and hints.
Must not know: which operation failed; its caller says so.
"""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from dragoman.errors import StoreUnavailableError

__all__ = ["reported"]

_SAFE: Final = "What was saved before is safe."
_SPACE: Final = f"Free some space and try again. {_SAFE}"
_RIGHTS: Final = f"Give this user the right to read and write the store's directory, and try again. {_SAFE}"
_DEVICE: Final = f"Look at the state of the disk or of the network, and try again. {_SAFE}"
_HANDLES: Final = f"Close files that are not needed or raise the limit (ulimit -n), and try again. {_SAFE}"

_TROUBLES: Final[dict[int, tuple[str, str]]] = {
    errno.ENOSPC: ("the disk is full", _SPACE),
    errno.EDQUOT: ("the quota of disk space is used up", _SPACE),
    errno.EFBIG: ("a file would grow beyond the limit that is set", f"Raise the limit (ulimit -f). {_SAFE}"),
    errno.EROFS: ("the file system is read-only", f"Make it writable again, or use another directory. {_SAFE}"),
    errno.EACCES: ("permission was denied", _RIGHTS),
    errno.EPERM: ("permission was denied", _RIGHTS),
    errno.EIO: ("the device reported an error", _DEVICE),
    errno.ESTALE: ("the network file system lost the directory", _DEVICE),
    errno.ETIMEDOUT: ("the network file system does not answer", _DEVICE),
    errno.ENODEV: ("the device is gone", _DEVICE),
    errno.ENXIO: ("the device is gone", _DEVICE),
    errno.EMFILE: ("this process has too many open files", _HANDLES),
    errno.ENFILE: ("this machine has too many open files", _HANDLES),
    errno.ENOTDIR: ("a part of its path is not a directory", "Give the path of a directory, or of a new one."),
    errno.ELOOP: ("a symbolic link stands in the place of a directory", "Remove the link; the store follows none."),
    errno.ENOENT: ("its directory disappeared meanwhile", f"Try again. {_SAFE}"),
    errno.ENOLCK: ("the file system has no locks", "Keep the store on a file system with flock, or in a database."),
}


@contextmanager
def reported(doing: str) -> Generator[None]:
    """Turn an OSError into a StoreUnavailableError: the store could not do this, and why."""
    try:
        yield
    except OSError as error:
        why, hint = _TROUBLES.get(error.errno or 0, (error.strerror or type(error).__name__, _DEVICE))
        raise StoreUnavailableError(f"The store could not {doing}: {why}.", hint=hint) from error
