"""The directory that tools work in. All its files are opened here.

Nothing outside is ever opened: not by `..`, not by a symbolic link, and not by a link that is created while the path is
being followed. Each directory is opened relative to the one before, without following links; a link is read, and its
target replaces it in the path; `..` goes back to the directory opened before. What was checked is what is open, so
there is no race between check and use.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from dragoman._checks import of_unmade
from dragoman._descriptors import Descriptor, owned
from dragoman.errors import ConfigurationError, ToolDeniedError, ToolExecutionError

_MAX_LINKS: Final = 40
_MAX_PARTS: Final = 512
_MAX_SHOWN: Final = 500
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_SYSTEM: Final = ("/proc", "/sys", "/dev")
"""Their files expose the kernel and other processes, and our own environment."""


def failure(path: str, error: OSError | str, hint: str | None = None) -> ToolExecutionError:
    """The error for a path that cannot be used, for the model to read."""
    reason = error if isinstance(error, str) else (error.strerror or str(error)).lower()
    return ToolExecutionError(f"cannot use {_shown(path)}: {reason}.", hint=hint)


def _shown(path: str) -> str:
    return repr(path if len(path) <= _MAX_SHOWN else path[:_MAX_SHOWN] + "…")


class Place(Struct, frozen=True):
    """A resolved path: an open directory inside the workspace, and a name in it."""

    directory: int
    """A file descriptor."""
    name: str
    """The last part of the path, which is not a link; `.` for the root itself."""
    path: str
    """Relative to the root, links resolved."""

    def status(self) -> os.stat_result | None:
        """Stat it without following links; None if it does not exist."""
        try:
            return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open_file(self) -> Descriptor:
        """Open the regular file. Anything else is refused, before and after it is opened."""
        _check_regular(self.path, os.stat(self.name, dir_fd=self.directory, follow_symlinks=False))
        file = owned(os.open, self.name, _FILE, dir_fd=self.directory)
        try:
            _check_regular(self.path, os.fstat(file.number))
        except BaseException:
            file.close()
            raise
        return file


class Workspace:
    """A directory tree that tools may work in."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        given: str = os.path.abspath(os.fspath(root))  # noqa: PTH100 -- Path.absolute keeps `..`, and resolve() loses this spelling
        real = os.path.realpath(given)
        if not Path(real).is_dir():
            hint = "Give the path of a directory that exists."
            raise ConfigurationError(f"The workspace {given!r} is not a directory.", hint=hint)
        self.root: str = real
        """The directory's real path."""
        self._spellings: tuple[tuple[str, ...], ...] = tuple({_parts(real): None, _parts(given): None})

    @of_unmade
    def __repr__(self) -> str:
        return f"Workspace({self.root!r})"

    @contextmanager
    def place(self, path: str, *, make_parents: bool = False) -> Generator[Place, None, None]:
        """Resolve a path, relative or absolute, whose last part need not exist.

        With `make_parents`, missing directories are created. An OSError, here or inside the block, becomes a ToolError
        that the model can read.
        """
        try:
            with closing(_Follower(self, path, make_parents=make_parents)) as follower:
                yield follower.follow(self.below(path, path))
        except OSError as error:
            raise failure(path, error) from error
        except (ValueError, UnicodeError) as error:  # a NUL, or a lone surrogate
            raise failure(path, "the path cannot be a file name") from error

    @contextmanager
    def reading(self, path: str) -> Generator[tuple[int, str], None, None]:
        """Open a regular file for reading; also its path relative to the root."""
        with self.place(path) as place, place.open_file() as file:
            yield file.number, place.path

    @contextmanager
    def directory(self, path: str) -> Generator[tuple[int, str], None, None]:
        """Open a directory; also its path relative to the root (empty for the root itself)."""
        with self.place(path) as place, _open_directory(place.name, place.directory, place.path) as directory:
            yield directory.number, "" if place.path == "." else place.path

    def below(self, target: str, path: str) -> list[str]:
        """Split a target on the way of a path. An absolute one outside the root is refused."""
        parts = _parts(target)
        if not target.startswith("/"):
            return list(parts)
        for root in self._spellings:
            if parts[: len(root)] == root:
                return list(parts[len(root) :])
        raise _outside(path)


class _Follower:
    """Follows one path. `_stack` holds the open directories from the root to the current one."""

    def __init__(self, workspace: Workspace, path: str, *, make_parents: bool) -> None:
        self._workspace: Workspace = workspace
        self._path: str = path
        self._make_parents: bool = make_parents
        self._stack: list[Descriptor] = [owned(os.open, workspace.root, _DIRECTORY)]
        self._names: list[str] = []
        self._links: int = 0

    def close(self) -> None:
        while self._stack:
            self._stack.pop().close()

    def follow(self, parts: list[str]) -> Place:
        waiting = deque(parts)
        while waiting:
            if len(waiting) + len(self._names) > _MAX_PARTS:
                raise failure(self._path, "the path has too many parts")
            part = waiting.popleft()
            if part == "..":
                self._up()
                continue
            target = self._link(part)
            if target is not None:
                self._links += 1
                if self._links > _MAX_LINKS:
                    raise failure(self._path, "there are too many symbolic links on the way")
                while target.startswith("/") and self._names:
                    self._up()
                waiting.extendleft(reversed(self._workspace.below(target, self._path)))
            elif waiting:
                self._down(part)
            else:
                return self._end(part)
        # The path ends in a directory that is already open: the root, or the one that `..` went back to.
        if not self._names:
            return self._end(".")
        self._stack.pop().close()
        return self._end(self._names.pop())

    def _end(self, name: str) -> Place:
        path = "/".join(self._names if name == "." else [*self._names, name])
        return Place(self._stack[-1].number, name, path or ".")

    def _up(self) -> None:
        if not self._names:
            raise _outside(self._path)
        self._stack.pop().close()
        self._names.pop()

    def _link(self, part: str) -> str | None:
        try:
            return os.readlink(part, dir_fd=self._stack[-1].number)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.EINVAL:  # not a link
                return None
            raise

    def _down(self, part: str) -> None:
        if self._make_parents:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=self._stack[-1].number)
        self._stack.append(_open_directory(part, self._stack[-1].number, self._path))
        self._names.append(part)


def _open_directory(name: str, parent: int, path: str) -> Descriptor:
    directory = owned(os.open, name, _DIRECTORY, dir_fd=parent)
    if is_system(os.fstat(directory.number)):
        directory.close()
        raise _denied_system(path)
    return directory


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _outside(path: str) -> ToolDeniedError:
    return ToolDeniedError(
        f"{_shown(path)} is outside the workspace.", hint="Use a path below the workspace's directory."
    )


def _denied_system(path: str) -> ToolDeniedError:
    return ToolDeniedError(f"{_shown(path)} belongs to the system (/proc, /sys or /dev).", hint="It cannot be used.")


@cache
def _system_devices() -> frozenset[int]:
    """The file systems of /proc, /sys and /dev, unless they are ordinary directories here."""
    usual = os.stat("/").st_dev  # noqa: PTH116
    found: set[int] = set()
    for directory in _SYSTEM:
        with suppress(OSError):
            found.add(os.stat(directory).st_dev)  # noqa: PTH116
    return frozenset(found - {usual})


def is_system(status: os.stat_result) -> bool:
    """Whether a file is on the file system of /proc, /sys or /dev."""
    return status.st_dev in _system_devices()


def _check_regular(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise failure(path, "it is a directory")
    if not stat.S_ISREG(status.st_mode):  # a pipe, a socket, a device, or a link created meanwhile
        raise failure(path, "it is not a regular file")
    if is_system(status):
        raise _denied_system(path)
