"""The files below a directory, through open directories only.

Owns: going through a tree in the order of names, leaving out what is ignored, with limits on time and number.
Must not know: what is looked for.

Directories are opened from the one above and links are not followed, so that a tree that changes meanwhile cannot lead
outside. A link to a file is reported as a name, and resolved with all checks by whoever opens it.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Final

from dragoman._descriptors import Descriptor, owned
from dragoman.errors import ToolError
from dragoman.toolkit.workspace import Workspace, is_system

from .ignore import ALWAYS, IgnoreFile, is_ignored

__all__ = ["MAX_ENTRIES", "MAX_SECONDS", "Walk", "ignore_files"]

MAX_ENTRIES: Final = 200_000
MAX_SECONDS: Final = 20.0
_MAX_DEPTH: Final = 100
_MAX_IGNORE_BYTES: Final = 256 * 1024
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Walk:
    """One walk. Iterate over `files()` and close it; then `stopped` says whether the limit was reached."""

    def __init__(
        self,
        directory: int,
        path: str,
        *,
        enter: Callable[[str], bool],
        ignored: list[IgnoreFile] | None,
        check: Callable[[], None],
        seconds: float = MAX_SECONDS,
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        self._start: int = directory
        self._path: str = path
        self._enter: Callable[[str], bool] = enter
        self._ignored: list[IgnoreFile] | None = ignored
        """The .gitignore files above; None if nothing is to be left out."""
        self._check: Callable[[], None] = check
        self._left: int = max_entries
        self._deadline: float = time.monotonic() + seconds
        self.stopped: bool = False

    def files(self) -> Generator[tuple[int, str, str], None, None]:
        """Each file as (open directory, name, path). The directory is open until the next one is asked for."""
        yield from self._inside(owned(os.dup, self._start), self._path, self._ignored, 0)

    def _inside(
        self, opened: Descriptor, path: str, ignored: list[IgnoreFile] | None, depth: int
    ) -> Generator[tuple[int, str, str], None, None]:
        """Everything in an open directory, which is closed at the end."""
        with opened:
            directory = opened.number
            entries = self._entries(directory)
            if ignored is not None and ".gitignore" in entries:
                ignored = [*ignored, IgnoreFile(path, _content(directory, ".gitignore"))]
            for name, is_directory in entries.items():
                if self._is_over():
                    return
                below = f"{path}/{name}" if path else name
                if ignored is not None and _is_left_out(name, below, ignored, is_directory=is_directory):
                    continue
                if not is_directory:
                    yield directory, name, below
                elif depth < _MAX_DEPTH and self._enter(below):
                    inner = _opened(directory, name)
                    if inner is not None:
                        yield from self._inside(inner, below, ignored, depth + 1)

    def _entries(self, directory: int) -> dict[str, bool]:
        """The names in a directory, in order, and whether each is one itself."""
        found: dict[str, bool] = {}
        with suppress(PermissionError), os.scandir(directory) as entries:
            for entry in entries:
                self._left -= 1
                if self._left < 0 or self._is_over():
                    self.stopped = True
                    break
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        found[entry.name] = True
                    elif entry.is_file(follow_symlinks=False) or entry.is_symlink():
                        found[entry.name] = False
        return dict(sorted(found.items()))

    def _is_over(self) -> bool:
        """Whether the time is over. Raises if nobody waits any more."""
        self._check()
        late = time.monotonic() >= self._deadline
        self.stopped = self.stopped or late
        return late


def _opened(directory: int, name: str) -> Descriptor | None:
    """A directory in another one, open; None if it is gone, not ours, a link by now, or the system's."""
    try:
        inner = owned(os.open, name, _DIRECTORY, dir_fd=directory)
    except OSError:
        return None
    if not is_system(os.fstat(inner.number)):
        return inner
    inner.close()
    return None


def _is_left_out(name: str, path: str, ignored: list[IgnoreFile], *, is_directory: bool) -> bool:
    return (is_directory and name in ALWAYS) or is_ignored(ignored, path, is_directory=is_directory)


def ignore_files(workspace: Workspace, path: str) -> list[IgnoreFile]:
    """The .gitignore files in the directories above a path, from the root down."""
    parts = path.split("/") if path else []
    found: list[IgnoreFile] = []
    for depth in range(len(parts)):
        above = "/".join(parts[:depth])
        with suppress(ToolError), workspace.reading(f"{above}/.gitignore" if above else ".gitignore") as (file, _):
            found.append(IgnoreFile(above, os.pread(file, _MAX_IGNORE_BYTES, 0).decode("utf-8", "replace")))
    return found


def _content(directory: int, name: str) -> str:
    with suppress(OSError), owned(os.open, name, _FILE, dir_fd=directory) as file:
        if stat.S_ISREG(os.fstat(file.number).st_mode):
            return os.read(file.number, _MAX_IGNORE_BYTES).decode("utf-8", "replace")
    return ""
