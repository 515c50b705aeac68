"""Configuration files: which ones count, TOML with the line of each key, and who else can read or change it.

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
from typing import Any, Final, TypeAlias, TypeGuard, TypeVar, cast

import msgspec
from msgspec import structs

from dragoman._checks import reason_of
from dragoman._decoding import convert_to
from dragoman.directories import config_directory, home_directory
from dragoman.engines import Confidential
from dragoman.errors import ConfigFileError, ConfigurationError

T = TypeVar("T")
KeyPath: TypeAlias = tuple[str, ...]
Table: TypeAlias = Mapping[str, object]

_MAX_BYTES: Final = 1024 * 1024
"""No configuration is longer; a device or a log file named by mistake is."""

_PLACE: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)")
_HEADER: Final = re.compile(r"\s*\[\[?([^\[\]]+)\]")
_ASSIGNMENT: Final = re.compile(r"\s*([\w.\"' -]+?)\s*=")
_WRONG_KEY: Final = re.compile(r"(?:unknown field | - at \$\.)([\w.]+)")
_FENCE: Final = re.compile(r'"""|\'\'\'')


class ConfigWarning(UserWarning):
    """Something about a configuration file is unsafe, or probably not what was meant."""


class UntrustedWarning(ConfigWarning):
    """A project that the user has not declared trusted says something to models. It is left out."""


class TomlFile(Confidential, frozen=True, kw_only=True):
    """The content of a file."""

    path: Path
    data: Table
    lines: Mapping[KeyPath, int]
    others_can_read: bool
    others_can_write: bool
    """Whether everybody, another group or another user than root can change it."""
    is_trusted: bool = True
    """False: it belongs to a project that the user has not declared trusted, and may not set everything."""

    def line_of(self, key: KeyPath) -> int | None:
        """The line of a key, or of the table or value that contains it."""
        found = (self.lines.get(key[:size]) for size in range(len(key), 0, -1))
        return next((line for line in found if line is not None), None)

    def where(self, key: KeyPath = ()) -> str:
        """The place of a key for messages: `dragoman.toml, line 3`."""
        line = self.line_of(key)
        return shorten_path(self.path) if line is None else f"{shorten_path(self.path)}, line {line}"

    def table(self, value: object, key: KeyPath) -> Table:
        """The value, which must be a table; the error does not show it, since it may be a key."""
        if not isinstance(value, dict):
            raise self.error(f"{key[-1]} must be a table.", key, hint=f"Write [{'.'.join(key)}] above its keys.")
        return cast("Table", value)

    def convert(self, value: object, key: KeyPath, kind: type[T], dec_hook: Any = None) -> T:
        """The table at this key as a value of this type."""
        try:
            return convert_to(self.table(value, key), kind, dec_hook=dec_hook)
        except msgspec.ValidationError as error:
            reason = reason_of(error)
            at = (*key, *found[1].split(".")) if (found := _WRONG_KEY.search(reason)) else key
            raise self.error(f"[{'.'.join(key)}] does not fit: {reason}.", at) from None

    def error(self, problem: str, key: KeyPath, *, hint: str | None = None) -> ConfigFileError:
        """The error for a problem at a key, ready to raise."""
        message = f"{self.where(key)}: {problem}"
        return ConfigFileError(message, path=str(self.path), line=self.line_of(key), hint=hint)


def shorten_path(path: Path) -> str:
    home, text = os.environ.get("HOME", ""), str(path)
    return f"~{text.removeprefix(home)}" if len(home) > 1 and text.startswith(home + os.sep) else text


def warn(text: str, kind: type[ConfigWarning] = ConfigWarning) -> None:
    """Warn through `warnings`, so that a program can silence it or make it an error."""
    warnings.warn(text, kind, stacklevel=2)


class ForeignFileError(ConfigurationError):
    """The file belongs to another user."""


def read_toml(path: Path, *, allow_foreign: bool = True) -> TomlFile:
    """Read a file. Pipes and devices are refused, and so are, unless allowed, files of other users."""
    shown = shorten_path(path)
    try:
        if not allow_foreign:  # which may be a directory, or may not be opened at all
            _refuse_foreign(path.stat(), shown)
        with open(path, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            if not allow_foreign:
                _refuse_foreign(status, shown)
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
        text = content.decode("utf-8-sig").replace("\r\n", "\n")  # Windows editors write a byte order mark
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
        hint = "Write texts in quotes, and tables in [brackets]."
        raise ConfigFileError(message, path=str(path), line=line, hint=hint) from None
    mode = status.st_mode if os.name == "posix" else 0
    group_writes = bool(mode & stat.S_IWGRP) and status.st_gid != os.getegid()
    return TomlFile(
        path=path,
        data=data,
        lines=_find_lines(text),
        others_can_read=bool(mode & 0o077),
        others_can_write=bool(mode & stat.S_IWOTH) or group_writes or _is_foreign(status),
    )


def _is_foreign(status: os.stat_result) -> bool:
    """Whether it belongs neither to this user nor to root."""
    return os.name == "posix" and status.st_uid not in (0, os.geteuid())


def _refuse_foreign(status: os.stat_result, shown: str) -> None:
    if _is_foreign(status):
        raise ForeignFileError(f"{shown} belongs to another user.")


def _open_at_once(path: str, flags: int) -> int:
    """Without waiting, as merely opening a pipe would."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _find_lines(text: str) -> dict[KeyPath, int]:
    """The line of each header and key that begins a line, which tomllib does not report; for messages only."""
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
    """The files that count, by priority: only the named one, or the project's and the user's own."""
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
        try:
            file = read_toml(path, allow_foreign=trusts)
        except ForeignFileError as error:
            warn(f"{error.message[:-1]} and is ignored. To use it, make it yours: chown $USER {shorten_path(path)}")
            continue
        if "trusted_projects" in file.data:
            raise file.error("trusted_projects can only be set in your own file.", ("trusted_projects",))
        return [structs.replace(file, is_trusted=trusts), *found]
    return found


def _list_projects(directory: Path | None, home: Path | None) -> Iterator[Path]:
    """The files called dragoman.toml, the nearest first.

    The search goes from the directory up to the root, or to the home directory, which is not a project itself.
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
    """Whether the file is in one of the directories, with links resolved."""
    place = path.resolve()
    for name in directories:
        is_home = name == "~" or name.startswith("~/")
        directory = Path(f"{home}{name[1:]}" if is_home else name)
        if directory.is_absolute() and place.is_relative_to(directory.resolve()):
            return True
    return False


def is_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in cast("list[object]", value))
