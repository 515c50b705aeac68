"""Scalars of YAML: plain, quoted, and in blocks.

Owns: what a scalar means that was written in one of these ways.
Must not know: maps, lists, and what the values are for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["BLOCK_HEADER", "block_scalar", "folded", "quoted_end", "unquoted"]

BLOCK_HEADER: Final = re.compile(r"([|>])(?:([1-9])([+-])?|([+-])([1-9])?)?[ \t]*(?:[ \t]#.*)?")
_ESCAPES: Final = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b",
    " ": " ", '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip
_DIGITS: Final = {"x": 2, "u": 4, "U": 8}


def quoted_end(text: str, start: int = 1) -> int:
    """Where the quoted text that begins this one ends: the position of the closing quote, or -1."""
    quote, at = text[0], start
    while at < len(text):
        if text[at] == "\\" and quote == '"':
            at += 2
        elif text[at] != quote:
            at += 1
        elif quote == "'" and text[at + 1 : at + 2] == "'":
            at += 2
        else:
            return at
    return -1


def unquoted(text: str) -> str:
    """The meaning of a quoted text, quotes included; it may have several lines. ValueError for an unknown escape."""
    inside = text[1:-1]
    if text[0] == "'":
        return folded(inside.split("\n")).replace("''", "'")
    # An escaped newline joins two lines, and an escaped blank at the end of one is not trimmed.
    return _unescaped(folded(_joined_lines(inside.split("\n")), escapes=True))


def _joined_lines(lines: Sequence[str]) -> list[str]:
    """The lines of a text in double quotes, where an escaped newline has joined some."""
    result = [lines[0]]
    joining = _ends_with_escape(lines[0])
    for index, line in enumerate(lines[1:], start=1):
        text = line.lstrip(" \t")
        if not joining:
            result.append(line)
        elif text or index == len(lines) - 1:
            result[-1] = result[-1].removesuffix("\\") + text
        else:
            result[-1] = result[-1].removesuffix("\\") + "\\n\\"  # an empty line is a line break, here as elsewhere
            continue
        joining = _ends_with_escape(result[-1])
    return result


def _ends_with_escape(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def folded(lines: Sequence[str], *, escapes: bool = False) -> str:
    """Several lines as one: a line break is a space, and each empty line a line break."""
    if len(lines) == 1:
        return lines[0]
    result, breaks = _trimmed_right(lines[0], escapes=escapes), 0
    for index, line in enumerate(lines[1:], start=1):
        text = line.lstrip(" \t")
        if index < len(lines) - 1:
            text = _trimmed_right(text, escapes=escapes)
            if not text:
                breaks += 1
                continue
        result += "\n" * breaks if breaks else " "
        result, breaks = result + text, 0
    return result


def _trimmed_right(line: str, *, escapes: bool) -> str:
    trimmed = line.rstrip(" \t")
    if escapes and _ends_with_escape(trimmed) and len(trimmed) < len(line):
        return line[: len(trimmed) + 1]
    return trimmed


def _unescaped(text: str) -> str:
    result: list[str] = []
    at = 0
    while at < len(text):
        letter = text[at]
        if letter != "\\":
            result.append(letter)
            at += 1
            continue
        kind = text[at + 1 : at + 2]
        if kind in _DIGITS:
            digits = text[at + 2 : at + 2 + _DIGITS[kind]]
            if not re.fullmatch(rf"[0-9a-fA-F]{{{_DIGITS[kind]}}}", digits) or int(digits, 16) > 0x10FFFF:
                message = f"the escape \\{kind} needs {_DIGITS[kind]} hexadecimal digits"
                raise ValueError(message)
            result.append(chr(int(digits, 16)))
            at += 2 + _DIGITS[kind]
        elif kind in _ESCAPES:
            result.append(_ESCAPES[kind])
            at += 2
        else:
            message = f"there is no escape \\{kind}"
            raise ValueError(message)
    return "".join(result)


def block_scalar(lines: Sequence[str], style: str, chomping: str) -> str:
    """The meaning of the lines below `|` or `>`, their common indentation taken off."""
    last = len(lines)
    while last and not lines[last - 1]:
        last -= 1
    content, trailing = lines[:last], len(lines) - last
    if not content:
        return "\n" * trailing if chomping == "+" else ""
    text = "\n".join(content) if style == "|" else _folded_block(content)
    if chomping == "-":
        return text
    return text + "\n" * (1 + trailing if chomping == "+" else 1)


def _folded_block(lines: Sequence[str]) -> str:
    """As for `folded`, but a line that begins with a blank keeps the line breaks around it."""
    result, breaks = "", 0
    before: str | None = None
    for line in lines:
        if not line:
            breaks += 1
            continue
        if before is None:
            result += "\n" * breaks
        elif before[0] in " \t" or line[0] in " \t":
            result += "\n" * (breaks + 1)
        else:
            result += "\n" * breaks if breaks else " "
        result, breaks, before = result + line, 0, line
    return result
