"""One TOML file: its content, the line of every key, and whether others can read or change it.

Owns: opening it without waiting for pipes, typed errors with the line, the look at its permissions, and the warning.
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
from typing import Final

from msgspec import Struct

from dragoman._descriptors import owned
from dragoman.errors import ConfigFileError

from .lines import KeyPath, Lines, lines_of

__all__ = ["MAX_BYTES", "ConfigWarning", "TomlFile", "read_toml", "shown_path", "warn_of"]

MAX_BYTES: Final = 1024 * 1024
"""No configuration is longer; a device or a log file named by mistake is."""

_PLACE: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)")


class ConfigWarning(UserWarning):
    """Something about a configuration file is unsafe, or probably not what was meant."""


class TomlFile(Struct, frozen=True, kw_only=True):
    """A file that was read."""

    path: Path
    data: Mapping[str, object]
    lines: Lines
    mode: int | None = None
    """Its permissions; None where the platform has no such thing."""
    owner: int | None = None
    group: int | None = None

    @property
    def shown(self) -> str:
        """The path as people read it."""
        return shown_path(self.path)

    def line_of(self, key: KeyPath) -> int | None:
        """The line of a key, or of the table or value that holds it."""
        for size in range(len(key), 0, -1):
            if (line := self.lines.get(key[:size])) is not None:
                return line
        return None

    def where(self, key: KeyPath) -> str:
        """`dragoman.toml, line 3`."""
        line = self.line_of(key)
        return self.shown if line is None else f"{self.shown}, line {line}"

    def error(self, problem: str, key: KeyPath, *, hint: str | None = None) -> ConfigFileError:
        """The error for something wrong at a key, ready to raise."""
        message = f"{self.where(key)}: {problem}"
        return ConfigFileError(message, path=str(self.path), line=self.line_of(key), hint=hint)

    @property
    def others_can_read(self) -> bool:
        """Whether anybody but the owner can read it."""
        return self.mode is not None and bool(self.mode & 0o077)

    @property
    def others_can_write(self) -> bool:
        """Whether somebody else can change it: it is open to all, to a group of others, or not ours."""
        if self.mode is None:
            return False
        to_group = bool(self.mode & stat.S_IWGRP) and self.group != os.getegid()
        return bool(self.mode & stat.S_IWOTH) or to_group or self.owner not in (0, os.geteuid())


def shown_path(path: Path) -> str:
    """A path with `~` for the home directory."""
    home = os.environ.get("HOME", "")
    text = str(path)
    return f"~{text.removeprefix(home)}" if len(home) > 1 and text.startswith(home + os.sep) else text


def warn_of(text: str) -> None:
    """Warn through `warnings`, so that a program can silence it or make it an error."""
    warnings.warn(text, ConfigWarning, stacklevel=2)


def read_toml(path: Path, *, regular: bool = True) -> TomlFile:
    """The file. `regular` refuses pipes and devices; a file that the user named may be one."""
    try:
        content, status = _read(path, regular)
    except OSError as error:
        message = f"{shown_path(path)} cannot be read: {error.strerror or type(error).__name__}."
        raise ConfigFileError(message, path=str(path), hint="Check its name and its permissions.") from None
    if len(content) > MAX_BYTES:
        message = f"{shown_path(path)} is longer than {MAX_BYTES} bytes."
        raise ConfigFileError(message, path=str(path), hint="Check that it is a configuration file.")
    text = _decoded(path, content)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _invalid(path, str(error), text) from None
    except RecursionError:
        message = f"{shown_path(path)} is nested too deeply."
        raise ConfigFileError(message, path=str(path), hint="Check that it is a configuration file.") from None
    posix = os.name == "posix"
    return TomlFile(
        path=path,
        data=data,
        lines=lines_of(text),
        mode=stat.S_IMODE(status.st_mode) if posix else None,
        owner=status.st_uid if posix else None,
        group=status.st_gid if posix else None,
    )


def _read(path: Path, regular: bool) -> tuple[bytes, os.stat_result]:
    # Without O_NONBLOCK the mere opening of a pipe waits for somebody to write to it.
    flags = os.O_RDONLY | (getattr(os, "O_NONBLOCK", 0) if regular else 0) | getattr(os, "O_BINARY", 0)
    with owned(os.open, path, flags) as descriptor, open(descriptor.number, "rb", closefd=False) as file:
        status = os.fstat(file.fileno())
        if regular and not stat.S_ISREG(status.st_mode):
            raise OSError(0, "it is not a regular file")
        return file.read(MAX_BYTES + 1), status


def _decoded(path: Path, content: bytes) -> str:
    try:
        # Editors on Windows put a mark before the first character.
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"{shown_path(path)}, line {line}: the file is not UTF-8."
        raise ConfigFileError(message, path=str(path), line=line, hint="Save it as UTF-8.") from None


def _invalid(path: Path, said: str, text: str) -> ConfigFileError:
    found = _PLACE.search(said)
    line = int(found[1]) if found and found[1] else text.count("\n") + 1
    what = _PLACE.sub("", said)
    message = f"{shown_path(path)}, line {line}: this is not valid TOML: {what}."
    return ConfigFileError(message, path=str(path), line=line, hint="Texts stand in quotes, a table in [brackets].")
