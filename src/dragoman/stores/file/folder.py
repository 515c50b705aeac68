"""Files of one directory, reached through its open descriptor.

Owns: opening without following links, writing so that a crash leaves the old or the new content, modes.
Must not know: what the files hold.

Every name is one component, relative to the descriptor, and is never followed if it is a symbolic link; so whatever
happens to the path meanwhile, nothing outside the directory is read or written. Directories are 0700, files 0600.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dragoman._descriptors import Descriptor, owned
from dragoman.errors import SnapshotCorruptError

__all__ = ["TEMPORARY", "Folder", "write_all"]

TEMPORARY: Final = ".tmp"
"""The end of the name of a file that is being written. It exists only while its writer holds the lock."""

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Not blocking: somebody may have put a pipe there, on which a plain open would wait for ever.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_APPEND: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK: Final = 1 << 16


class Folder:
    """An open directory. Methods raise OSError; a file that is none is a SnapshotCorruptError."""

    __slots__ = ("_descriptor", "fd")

    def __init__(self, descriptor: Descriptor) -> None:
        self._descriptor: Final = descriptor
        self.fd: Final = descriptor.number

    @classmethod
    def at(cls, path: Path) -> Folder | None:
        """The directory at a path that the user gave, which may lead through links; None if there is none."""
        try:
            return cls(owned(os.open, path, _DIRECTORY))
        except FileNotFoundError:
            return None

    @classmethod
    def made(cls, path: Path) -> Folder:
        """The same, made if there is none."""
        found = cls.at(path)
        if found is None:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync_path(path.parent)
            found = cls(owned(os.open, path, _DIRECTORY))
        return found

    def folder(self, name: str) -> Folder | None:
        """The directory of this name in this one; None if there is none."""
        try:
            return Folder(owned(os.open, name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self.fd))
        except FileNotFoundError:
            return None

    def made_folder(self, name: str) -> Folder:
        """The same, made if there is none."""
        found = self.folder(name)
        if found is None:
            with suppress(FileExistsError):  # somebody else was quicker
                os.mkdir(name, 0o700, dir_fd=self.fd)
                self.sync()
            found = Folder(owned(os.open, name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self.fd))
        return found

    def open(self, name: str, *, append: bool = False) -> Descriptor | None:
        """The descriptor of a regular file; None if there is none."""
        try:
            file = owned(os.open, name, _APPEND if append else _READ, dir_fd=self.fd)
        except FileNotFoundError:
            return None
        except OSError:
            self._refuse_unless_regular(name)
            raise
        if not stat.S_ISREG(os.fstat(file.number).st_mode):
            file.close()
            raise _not_a_file(name)
        return file

    def _refuse_unless_regular(self, name: str) -> None:
        try:
            mode = os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mode
        except OSError:
            return
        if not stat.S_ISREG(mode):
            raise _not_a_file(name)

    def has(self, name: str) -> bool:
        """Whether there is anything of this name."""
        try:
            os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def read(self, name: str) -> bytes | None:
        """The whole content of a file; None if there is none."""
        file = self.open(name)
        if file is None:
            return None
        with file:
            parts: list[bytes] = []
            while part := os.read(file.number, _CHUNK):
                parts.append(part)
            return b"".join(parts)

    def create(self, name: str) -> Descriptor:
        """The descriptor of a new, empty file. Whatever stood in its place, link or litter, is removed first."""
        self.remove(name)
        file = owned(os.open, name, _CREATE, 0o600, dir_fd=self.fd)
        os.fchmod(file.number, 0o600)  # the mask of the process may have taken more away
        return file

    def mark(self, name: str) -> None:
        """An empty file of this name; its name is all it says."""
        with suppress(FileExistsError):
            owned(os.open, name, _CREATE, 0o600, dir_fd=self.fd).close()

    def replace(self, name: str, data: bytes, *, announced: bool = False) -> None:
        """Put this content in the place of the file's; after a crash there is the one or the other."""
        temporary = name + TEMPORARY
        # What was announced stays there without a gap.
        found = self.open(temporary, append=True) if announced else None
        try:
            with self.create(temporary) if found is None else found as file:
                write_all(file.number, data)
                os.fsync(file.number)
            os.rename(temporary, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except BaseException:
            self.remove_quietly(temporary)
            raise
        self.sync()

    def announce(self, name: str) -> None:
        """Leave a sign that this file is about to be replaced, for those who come after a crash."""
        self.create(name + TEMPORARY).close()

    def rename(self, name: str, other: str) -> None:
        """Give a file another name, on the disk, too."""
        os.rename(name, other, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        self.sync()

    def remove(self, name: str) -> bool:
        """Remove a file, or a link itself; whether it was there."""
        try:
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            return False
        return True

    def remove_quietly(self, name: str) -> None:
        """Remove a file that nobody needs; if that fails, the next writer does it."""
        with suppress(OSError):
            os.unlink(name, dir_fd=self.fd)

    def names(self) -> list[str]:
        """The names of everything in the directory, in no order."""
        return os.listdir(self.fd)  # noqa: PTH208 - a Path is no way to an open directory

    def sync(self) -> None:
        """Make the names of the directory's files survive a crash of the machine."""
        os.fsync(self.fd)

    def close(self) -> None:
        self._descriptor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def write_all(fd: int, data: bytes) -> None:
    """Write everything; a full disk shows as an OSError, at the latest at the second try."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _sync_path(path: Path) -> None:
    with owned(os.open, path, _DIRECTORY) as directory:
        os.fsync(directory.number)


def _not_a_file(name: str) -> SnapshotCorruptError:
    message = f"{name} in the store's directory is not a regular file; links and devices are not followed."
    return SnapshotCorruptError(message, hint="Remove it, or restore the file from a copy.")
