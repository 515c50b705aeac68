"""Where configuration files are.

Owns: the search for a project's file, the user's own file, and which projects the user trusts.
Must not know: what the files say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from dragoman.chat.toml.file import TomlFile, read_toml
from dragoman.directories import config_directory, home_directory
from dragoman.errors import ConfigFileError, ConfigurationError

__all__ = ["FoundFile", "is_trusted", "named_file", "project_file", "user_file"]

_PROJECT: Final = "dragoman.toml"
_PYTHON_PROJECT: Final = "pyproject.toml"
_USER: Final = "config.toml"


class FoundFile(NamedTuple):
    """A file, and the table in it that is ours."""

    file: TomlFile
    root: tuple[str, ...] = ()


def user_file(environ: Mapping[str, str]) -> FoundFile | None:
    """The user's own file, if there is one."""
    try:
        path = config_directory(environ) / _USER
    except ConfigurationError:  # a user without a home directory, as in many containers
        return None
    return FoundFile(read_toml(path)) if _is_there(path) else None


def named_file(name: str | Path) -> FoundFile:
    """A file that the user names; it may also be a pipe."""
    file = read_toml(Path(name).expanduser(), regular=False)
    return _ours(file) or FoundFile(file)


def project_file(directory: Path, environ: Mapping[str, str]) -> FoundFile | None:
    """The nearest file of a project: dragoman.toml, or a pyproject.toml with [tool.dragoman].

    Looked for in the directory and those above it, up to the home directory or the root, but not in the home directory
    itself: what lies there is no project.
    """
    start = directory.resolve()
    home = _home(environ)
    for place in (start, *start.parents):
        if place == home:
            return None
        if _is_there(path := place / _PROJECT):
            return FoundFile(read_toml(path))
        if _is_there(path := place / _PYTHON_PROJECT) and (found := _in_pyproject(path)) is not None:
            return found
    return None


def _home(environ: Mapping[str, str]) -> Path | None:
    try:
        return home_directory(environ).resolve()
    except ConfigurationError:
        return None


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # in a directory that we may not look into
        return False


def _in_pyproject(path: Path) -> FoundFile | None:
    try:
        return _ours(read_toml(path))
    except ConfigFileError:
        # It is first of all somebody else's file; that it is broken is our business only if we are in it.
        if "[tool.dragoman" in path.read_text(encoding="utf-8", errors="replace"):
            raise
        return None


def _ours(file: TomlFile) -> FoundFile | None:
    """The part of a pyproject.toml that is for us."""
    if file.path.name != _PYTHON_PROJECT:
        return None
    tool = file.data.get("tool")
    return FoundFile(file, ("tool", "dragoman")) if isinstance(tool, dict) and "dragoman" in tool else None


def is_trusted(path: Path, directories: Iterable[str], environ: Mapping[str, str]) -> bool:
    """Whether a file lies in one of the directories, wherever links lead."""
    place = path.resolve()
    for name in directories:
        text = f"{_home(environ)}{name[1:]}" if name == "~" or name.startswith("~/") else name
        directory = Path(text)
        if directory.is_absolute() and place.is_relative_to(directory.resolve()):
            return True
    return False
