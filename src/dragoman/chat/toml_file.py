"""One TOML file that a person wrote: its content, the line of each key, and who else can read or change it.

Must not know: what the keys mean.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias, cast

from msgspec import Struct

from dragoman._descriptors import owned
from dragoman.errors import ConfigFileError

KeyPath: TypeAlias = tuple[str, ...]

_MAX_BYTES: Final = 1024 * 1024
"""No configuration is longer; a device or a log file named by mistake is."""

_PLACE: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)")
_QUOTED: Final = r'"(?:\\.|[^"\\])*"|\'[^\']*\''
_NAME: Final = rf"(?:[\w-]+|{_QUOTED})"
_KEY: Final = rf"{_NAME}(?:[ \t]*\.[ \t]*{_NAME})*"
_HEADER: Final = re.compile(rf"[ \t]*\[\[?[ \t]*({_KEY})[ \t]*\]")
_ASSIGNMENT: Final = re.compile(rf"[ \t]*({_KEY})[ \t]*=")
_FENCE: Final = re.compile(r'"""|\'\'\'')


class ConfigWarning(UserWarning):
    """Something about a configuration file is unsafe, or probably not what was meant."""


class TomlFile(Struct, frozen=True, kw_only=True):
    """A file that was read."""

    path: Path
    data: Mapping[str, object]
    lines: Mapping[KeyPath, int]
    others_can_read: bool = False
    others_can_write: bool = False
    """Whether it is open to all, to a group of others, or not ours."""

    def line_of(self, key: KeyPath) -> int | None:
        """The line of a key, or of the table or value that holds it."""
        found = (self.lines.get(key[:size]) for size in range(len(key), 0, -1))
        return next((line for line in found if line is not None), None)

    def where(self, key: KeyPath = ()) -> str:
        """The place of a key, as messages name it: `dragoman.toml, line 3`."""
        line = self.line_of(key)
        return shorten_path(self.path) if line is None else f"{shorten_path(self.path)}, line {line}"

    def error(self, problem: str, key: KeyPath, *, hint: str | None = None) -> ConfigFileError:
        """The error for something wrong at a key, ready to raise."""
        message = f"{self.where(key)}: {problem}"
        return ConfigFileError(message, path=str(self.path), line=self.line_of(key), hint=hint)


def shorten_path(path: Path) -> str:
    """A path with `~` for the home directory."""
    home, text = os.environ.get("HOME", ""), str(path)
    return f"~{text.removeprefix(home)}" if len(home) > 1 and text.startswith(home + os.sep) else text


def warn(text: str) -> None:
    """Warn through `warnings`, so that a program can silence it or make it an error."""
    warnings.warn(text, ConfigWarning, stacklevel=2)


def read_toml(path: Path, *, regular: bool = True) -> TomlFile:
    """Read a file. `regular` refuses pipes and devices; a file that the user named may be one."""
    shown = shorten_path(path)
    try:
        content, status = _read(path, regular)
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
    can_read, can_write = _find_others(status)
    return TomlFile(path=path, data=data, lines=_find_lines(text), others_can_read=can_read, others_can_write=can_write)


def _read(path: Path, regular: bool) -> tuple[bytes, os.stat_result]:
    # Without O_NONBLOCK the mere opening of a pipe waits for somebody to write to it.
    flags = os.O_RDONLY | (getattr(os, "O_NONBLOCK", 0) if regular else 0) | getattr(os, "O_BINARY", 0)
    with owned(os.open, path, flags) as descriptor, open(descriptor.number, "rb", closefd=False) as file:
        status = os.fstat(file.fileno())
        if regular and not stat.S_ISREG(status.st_mode):
            raise OSError(0, "it is not a regular file")
        return file.read(_MAX_BYTES + 1), status


def _find_others(status: os.stat_result) -> tuple[bool, bool]:
    """Whether anybody but the owner can read the file, and whether somebody else can change it."""
    if os.name != "posix":
        return False, False
    mode = status.st_mode
    group_writes = bool(mode & stat.S_IWGRP) and status.st_gid != os.getegid()
    return bool(mode & 0o077), bool(mode & stat.S_IWOTH) or group_writes or status.st_uid not in (0, os.geteuid())


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
    """`a."b.c"` as the names that it stands for."""
    try:
        found: object = tomllib.loads(f"{text} = 0")
    except tomllib.TOMLDecodeError:
        return (text,)
    names: list[str] = []
    while isinstance(found, dict):
        [(name, found)] = cast("dict[str, object]", found).items()
        names.append(name)
    return tuple(names)
