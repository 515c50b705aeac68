"""Configuration files: TOML that a person wrote, the line of each key, who else can change it, and which files count.

Must not know: what the keys mean.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias, TypeGuard, cast

from msgspec import structs

from dragoman.directories import config_directory, home_directory
from dragoman.engines import Confidential
from dragoman.errors import ConfigFileError, ConfigurationError

KeyPath: TypeAlias = tuple[str, ...]
Table: TypeAlias = Mapping[str, object]

_MAX_BYTES: Final = 1024 * 1024
"""No configuration is longer; a device or a log file named by mistake is."""

_PLACE: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)")
_HEADER: Final = re.compile(r"\s*\[\[?([^\[\]]+)\]")
_ASSIGNMENT: Final = re.compile(r"\s*([\w.\"' -]+?)\s*=")
_FENCE: Final = re.compile(r'"""|\'\'\'')


class ConfigWarning(UserWarning):
    """Something about a configuration file is unsafe, or probably not what was meant."""


class TomlFile(Confidential, frozen=True, kw_only=True):
    """A file that was read."""

    path: Path
    data: Mapping[str, object]
    lines: Mapping[KeyPath, int]
    others_can_read: bool = False
    others_can_write: bool = False
    """Whether it is open to all, or to a group of others."""
    is_foreign: bool = False
    """Whether it belongs neither to this user nor to root."""
    is_trusted: bool = True
    """False: it belongs to a project that the user has not declared trusted, and may not set everything."""

    def line_of(self, key: KeyPath) -> int | None:
        """The line of a key, or of the table or value that holds it."""
        found = (self.lines.get(key[:size]) for size in range(len(key), 0, -1))
        return next((line for line in found if line is not None), None)

    def where(self, key: KeyPath = ()) -> str:
        """The place of a key, as messages name it: `dragoman.toml, line 3`."""
        line = self.line_of(key)
        return shorten_path(self.path) if line is None else f"{shorten_path(self.path)}, line {line}"

    def table(self, value: object, key: KeyPath) -> Table:
        """The value, which must be a table; it is not shown, since it may be a key."""
        if not isinstance(value, dict):
            raise self.error(f"{key[-1]} must be a table.", key, hint=f"Write [{'.'.join(key)}] above its keys.")
        return cast("Table", value)

    def error(self, problem: str, key: KeyPath, *, hint: str | None = None) -> ConfigFileError:
        """The error for something wrong at a key, ready to raise."""
        message = f"{self.where(key)}: {problem}"
        return ConfigFileError(message, path=str(self.path), line=self.line_of(key), hint=hint)


def shorten_path(path: Path) -> str:
    home, text = os.environ.get("HOME", ""), str(path)
    return f"~{text.removeprefix(home)}" if len(home) > 1 and text.startswith(home + os.sep) else text


def warn(text: str) -> None:
    """Warn through `warnings`, so that a program can silence it or make it an error."""
    warnings.warn(text, ConfigWarning, stacklevel=2)


def read_toml(path: Path) -> TomlFile:
    """Read a file; pipes and devices are refused."""
    shown = shorten_path(path)
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OSError(0, "it is not a regular file")
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        message = f"{shown} cannot be read: {error.strerror or type(error).__name__}."
        raise ConfigFileError(message, path=str(path), hint="Check its name and its permissions.") from None
    if len(content) > _MAX_BYTES:
        message = f"{shown} is longer than {_MAX_BYTES} bytes."
        raise ConfigFileError(message, path=str(path), hint="Check that it is a configuration file.")
    try:
        # Editors on Windows put a mark before the first character.
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"{shown}, line {line}: the file is not UTF-8."
        raise ConfigFileError(message, path=str(path), line=line, hint="Save it as UTF-8.") from None
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = _PLACE.search(str(error))
        line = int(found[1]) if found and found[1] else text.count("\n") + 1
        what = "it is nested too deeply" if isinstance(error, RecursionError) else _PLACE.sub("", str(error))
        message = f"{shown}, line {line}: this is not valid TOML: {what}."
        hint = "Texts stand in quotes, a table in [brackets]."
        raise ConfigFileError(message, path=str(path), line=line, hint=hint) from None
    mode = status.st_mode if os.name == "posix" else 0
    group_writes = bool(mode & stat.S_IWGRP) and status.st_gid != os.getegid()
    return TomlFile(
        path=path,
        data=data,
        lines=_find_lines(text),
        others_can_read=bool(mode & 0o077),
        others_can_write=bool(mode & stat.S_IWOTH) or group_writes,
        is_foreign=_is_foreign(status),
    )


def _is_foreign(status: os.stat_result) -> bool:
    return os.name == "posix" and status.st_uid not in (0, os.geteuid())


def _open_at_once(path: str, flags: int) -> int:
    """The mere opening of a pipe would wait for somebody to write to it."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _find_lines(text: str) -> dict[KeyPath, int]:
    """The line of each header and key that begins a line, which tomllib does not tell; for messages only."""
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    inside_text = False
    for number, line in enumerate(text.split("\n"), 1):
        if not inside_text:
            key: KeyPath = ()
            if header := _HEADER.match(line):
                key = table = _split_key(header[1])
            elif assignment := _ASSIGNMENT.match(line):
                key = (*table, *_split_key(assignment[1]))
            for size in range(1, len(key) + 1):
                lines.setdefault(key[:size], number)
        if len(_FENCE.findall(line)) % 2:
            inside_text = not inside_text
    return lines


def _split_key(text: str) -> KeyPath:
    return tuple(part.strip(" \t\"'") for part in text.split("."))


# --- which files count ------------------------------------------------------------------------------------------------


def user_file(environ: Mapping[str, str] | None = None) -> Path:
    return config_directory(environ) / "config.toml"


def find_files(named: str | Path, environ: Mapping[str, str], directory: Path | None) -> list[TomlFile]:
    """The files that count, those that win first: the named one alone, or the project's and the user's own."""
    if named:
        return [read_toml(Path(named).expanduser())]
    found: list[TomlFile] = []
    trusted: object = []
    try:
        path, home = user_file(environ), home_directory(environ).resolve()
    except ConfigurationError:  # a user without a home directory, as in many containers
        path = home = None
    if path is not None and _exists(path):
        own = read_toml(path)
        found, trusted = [own], own.data.get("trusted_projects", [])
        if not is_texts(trusted):
            raise own.error("trusted_projects must be a list of texts.", ("trusted_projects",))
    for path in _list_projects(directory, home):
        trusts = is_trusted(path, trusted, home)
        if trusts or not _is_foreign(path.stat()):  # of a stranger's file not even the mistakes are looked at …
            file = read_toml(path)
            if trusts or not file.is_foreign:  # … and it may be exchanged at any moment
                if "trusted_projects" in file.data:
                    raise file.error("only your own file can say trusted_projects.", ("trusted_projects",))
                return [structs.replace(file, is_trusted=trusts), *found]
        shown = shorten_path(path)
        warn(f"{shown} belongs to another user and does not count. If it should, take it over: chown $USER {shown}")
    return found


def _list_projects(directory: Path | None, home: Path | None) -> Iterator[Path]:
    """The files called dragoman.toml, of which the nearest counts.

    Looked for in the directory and those above it, up to the home directory or the root, but not in the home directory
    itself: what lies there is no project.
    """
    if directory is not None:
        start = directory.resolve()
        for place in (start, *start.parents):
            if place == home:
                return
            if _exists(path := place / "dragoman.toml"):
                yield path


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # in a directory that we may not look into
        return False


def is_trusted(path: Path, directories: Iterable[str], home: Path | None) -> bool:
    """Whether the file lies in one of the directories, wherever links lead."""
    place = path.resolve()
    for name in directories:
        is_home = name == "~" or name.startswith("~/")
        directory = Path(f"{home}{name[1:]}" if is_home else name)
        if directory.is_absolute() and place.is_relative_to(directory.resolve()):
            return True
    return False


def is_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in cast("list[object]", value))
