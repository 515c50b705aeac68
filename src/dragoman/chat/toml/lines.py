"""On which line of a TOML file each key stands.

Owns: a scan for headers and keys, for messages that name a line; the library's own parser does not tell.
Must not know: whether the file is valid (the parser has said so before), and what the keys mean.
"""

from __future__ import annotations

import re
import tomllib
from typing import Final, TypeAlias, cast

__all__ = ["KeyPath", "Lines", "lines_of"]

KeyPath: TypeAlias = tuple[str, ...]
Lines: TypeAlias = dict[KeyPath, int]

_SPACE: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BLANK: Final = re.compile(r"[ \t]*")
_NAME: Final = re.compile(r'[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'')
_PIECE: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}\n]|[^"\'#\[\]{}\n]+',
    re.DOTALL,
)


def lines_of(text: str) -> Lines:
    """The line, from 1, of every key and header of a valid document; the first one where there are several."""
    return _Scan(text).lines


class _Scan:
    def __init__(self, text: str) -> None:
        self._text: str = text
        self._at: int = 0
        self._counted: tuple[int, int] = (0, 1)
        """A place up to which lines were counted, and its line."""
        self.lines: Lines = {}
        table: KeyPath = ()
        while self._skip(_SPACE) < len(text):
            line = self._line()
            if text[self._at] == "[":
                self._at += 2 if text.startswith("[[", self._at) else 1
                table = self._key()
                self.lines.setdefault(table, line)
                self._rest()
            else:
                key = self._key()
                if not key or not text.startswith("=", self._skip(_BLANK)):
                    return  # not what a valid document has here; what was found so far stands
                self._at += 1
                self.lines.setdefault((*table, *key), line)
                self._rest()

    def _line(self) -> int:
        counted, line = self._counted
        line += self._text.count("\n", counted, self._at)
        self._counted = (self._at, line)
        return line

    def _skip(self, pattern: re.Pattern[str]) -> int:
        found = pattern.match(self._text, self._at)
        assert found is not None  # the patterns also fit nothing at all
        self._at = found.end()
        return self._at

    def _key(self) -> KeyPath:
        names: list[str] = []
        while True:
            self._skip(_BLANK)
            found = _NAME.match(self._text, self._at)
            if found is None:
                return tuple(names)
            names.append(_plain(found[0]))
            self._at = found.end()
            if not self._text.startswith(".", self._skip(_BLANK)):
                return tuple(names)
            self._at += 1

    def _rest(self) -> None:
        """Go behind the value, which may run over many lines, or behind what follows a header."""
        depth = 0
        for piece in _PIECE.finditer(self._text, self._at):
            self._at = piece.end()
            if piece[0] in ("[", "{"):
                depth += 1
            elif piece[0] in ("]", "}"):
                depth -= 1
            elif piece[0] == "\n" and depth <= 0:
                return
        self._at = len(self._text)


def _plain(name: str) -> str:
    if name[0] not in "\"'":
        return name
    try:
        return cast("str", tomllib.loads(f"k = {name}")["k"])
    except tomllib.TOMLDecodeError:  # an escape that there is not; the parser refuses the file
        return name
