"""The part of YAML that people write at the top of a file.

Owns: maps of scalars, one map or list inside, comments, and all ways to write a scalar that need no punctuation.
Must not know: what the keys mean.

A full YAML reader is a large dependency with a history of surprises; what skills say of themselves needs little of it.
Every value is a text: `yes`, `1.0` and `null` mean what is written. What goes beyond is reported, and as much of it is
kept as can be: nothing raises.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from msgspec import Struct

from .yaml_scalars import BLOCK_HEADER, block_scalar, folded, quoted_end, unquoted

__all__ = ["Parsed", "Value", "read_yaml"]

Value: TypeAlias = "str | list[str] | dict[str, str]"

_INDICATORS: Final = frozenset(",[]{}#&*!|>'\"%@`")
_ODD: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\x85\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")
_MARKER: Final = re.compile(r"(?:---|\.\.\.)(?:\s|$)")
_COMMENT: Final = re.compile(r"[ \t]#.*")
_MOST_PROBLEMS: Final = 20


class Parsed(Struct, frozen=True):
    """What was read."""

    values: dict[str, Value]
    problems: tuple[str, ...]
    """What is not YAML, or is more of it than is read here."""
    style: tuple[str, ...] = ()
    """What is YAML, but refused by the strict dialect that checkers of skills use."""


def read_yaml(text: str, *, first_line: int = 1) -> Parsed:
    """The map that a text means. Lines are counted from `first_line` in what is reported."""
    return _Reader(text, first_line).document()


class _Reader:
    def __init__(self, text: str, first_line: int) -> None:
        # The last line counts as ended, whether it is or not.
        self._lines: list[str] = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
        self._first: int = first_line
        self._at: int = 0
        self._problems: list[str] = []
        self._style: list[str] = []
        self._in_blocks: set[int] = set()
        """The lines that belong to a block, where a tab is a letter like any other."""

    # --- lines ---

    def _report(self, what: str, line: int | None = None) -> None:
        if len(self._problems) < _MOST_PROBLEMS:
            self._problems.append(f"line {self._first + (self._at if line is None else line)}: {what}")

    def _skip_empty(self) -> None:
        while self._at < len(self._lines) and _is_empty(self._lines[self._at]):
            self._at += 1

    @property
    def _line(self) -> str | None:
        return self._lines[self._at] if self._at < len(self._lines) else None

    def _follows(self, indent: int) -> bool:
        """Whether the next line with content belongs to something that is indented so far."""
        self._skip_empty()
        line = self._line
        return line is not None and _indent(line) > indent

    # --- the document ---

    def document(self) -> Parsed:
        for number, each in enumerate(self._lines):
            if _ODD.search(each):
                self._report("there is a control character", number)
            if _MARKER.match(each):
                self._report("a document ends or begins here", number)
        self._skip_empty()
        values: dict[str, Value] = {}
        indent = _indent(self._line or "")
        while (line := self._line) is not None:
            if _indent(line) != indent:
                self._report("the indentation does not fit")
                self._at += 1
            elif (pair := self._pair()) is not None:
                self._keep(values, *pair, indent=indent)
            else:
                self._report("this is not 'key: value'")
                self._at += 1
            self._skip_empty()
        for number, each in enumerate(self._lines):
            if "\t" in each and number not in self._in_blocks:
                self._report("there is a tab; use spaces", number)
        return Parsed(values, tuple(self._problems), tuple(self._style))

    def _keep(self, values: dict[str, Value], key: str, rest: str, *, indent: int) -> None:
        if key in values:
            self._report(f"the key {key!r} is there twice")
        number = self._at
        value = self._value(rest, indent)
        if key not in values:  # the first one: it is what people see
            values[key] = value
        if self._at == number:
            self._at += 1  # whatever went wrong, go on

    def _pair(self) -> tuple[str, str] | None:
        """The key of this line and the text after it; None if it has none."""
        return _split_key((self._line or "").strip(" \t"))

    # --- values ---

    def _value(self, rest: str, indent: int) -> Value:
        """The value whose text begins behind its key, or on the lines below."""
        if rest and not rest.startswith("#"):
            return self._inline(rest, indent)
        self._at += 1
        self._skip_empty()
        line = self._line
        if line is None:
            return ""
        inner = _indent(line)
        content = line.strip(" ")
        if _is_item(content) and inner >= indent:
            return self._list(inner)
        if inner <= indent:
            return ""
        if _split_key(content) is not None:
            return self._map(inner)
        return self._text(content, indent)

    def _inline(self, rest: str, indent: int) -> Value:
        if rest[0] == "[":
            return self._flow_list(rest)
        if rest[0] == "{":
            return self._flow_map(rest)
        return self._text(rest, indent)

    def _map(self, indent: int) -> dict[str, str]:
        values: dict[str, str] = {}
        while (line := self._line) is not None and _indent(line) == indent:
            pair = self._pair()
            if pair is None:
                self._report("this is not 'key: value'")
                self._at += 1
            else:
                self._keep_text(values, *pair, indent=indent)
            self._skip_empty()
        if (line := self._line) is not None and _indent(line) > indent:
            self._report("the indentation does not fit")
            self._skip_deeper(indent - 1)
        return values

    def _keep_text(self, values: dict[str, str], key: str, rest: str, *, indent: int) -> None:
        if key in values:
            self._report(f"the key {key!r} is there twice")
        number, value = self._at, self._deep_text(rest, indent)
        values.setdefault(key, value)
        if self._at == number:
            self._at += 1

    def _deep_text(self, rest: str, indent: int) -> str:
        """A value inside a map or list: a text; anything more is too deep."""
        if rest and not rest.startswith("#"):
            if rest[0] in "[{":
                self._report("maps and lists inside maps and lists are not read")
                self._at += 1
                self._skip_deeper(indent)
                return rest
            return self._text(rest, indent)
        self._at += 1
        self._skip_empty()
        line = self._line
        if line is None or (_indent(line) <= indent and not (_is_item(line.strip(" ")) and _indent(line) == indent)):
            return ""
        content = line.strip(" ")
        if _is_item(content) or _split_key(content) is not None:
            self._report("maps and lists inside maps and lists are not read")
            start = self._at
            self._at += 1
            self._skip_deeper(indent)
            return "\n".join(each.strip() for each in self._lines[start : self._at])
        return self._text(content, indent)

    def _skip_deeper(self, indent: int) -> None:
        while (line := self._line) is not None and (_is_empty(line) or _indent(line) > indent):
            self._at += 1

    def _list(self, indent: int) -> list[str]:
        items: list[str] = []
        while (line := self._line) is not None and _indent(line) == indent and _is_item(line.strip(" ")):
            rest = line.strip(" ")[1:].lstrip(" \t")
            if _is_item(rest) or (rest and _split_key(rest) is not None):
                self._report("maps and lists inside maps and lists are not read")
                self._at += 1
                self._skip_deeper(indent)
                items.append(rest)
            elif rest and not rest.startswith("#"):
                items.append(self._deep_text(rest, indent))
            else:
                items.append(self._item_below(indent))
            self._skip_empty()
        return items

    def _item_below(self, indent: int) -> str:
        number = self._at
        self._at += 1
        if not self._follows(indent):
            return ""
        self._at = number
        return self._deep_text("", indent)

    # --- scalars ---

    def _text(self, rest: str, indent: int) -> str:
        """A scalar that begins with this text on the current line, and goes on below where it is indented further."""
        first = rest[0]
        if first in "'\"":
            return self._quoted(rest)
        if first in "|>":
            return self._block(rest, indent)
        if first in _INDICATORS or (first in "-?:" and rest[1:2] in ("", " ", "\t")):
            self._report(f"a value cannot begin with {first!r}; put it in quotes")
        return self._plain(rest, indent)

    def _plain(self, rest: str, indent: int) -> str:
        lines = [self._plain_line(rest)]
        ended = lines[0] != rest.rstrip(" \t")
        self._at += 1
        while (line := self._line) is not None:
            content = line.strip(" \t")
            if content and (_indent(line) <= indent or content.startswith("#")):
                break
            if content and ended:
                self._report("there is text after a comment")
            text = self._plain_line(content)
            ended = ended or text != content
            lines.append(text)
            self._at += 1
        if (line := self._line) is not None and line.strip(" \t").startswith("#") and self._follows(indent):
            self._report("there is text after a comment")
            self._skip_deeper(indent)
        while len(lines) > 1 and not lines[-1]:
            lines.pop()
        return folded(lines)

    def _plain_line(self, text: str) -> str:
        found = _COMMENT.search(text)
        if found:
            text = text[: found.start()]
        text = text.rstrip(" \t")
        if re.search(r":(?:[ \t]|$)", text):
            self._report("a text with ': ' in it must be quoted")
        return text

    def _quoted(self, rest: str) -> str:
        text = rest
        end = quoted_end(text)
        while end < 0 and self._at + 1 < len(self._lines):
            self._at += 1
            text += "\n" + (self._line or "")
            end = quoted_end(text)
        if end < 0:
            self._report("a quote is never closed")
            self._at += 1
            return text[1:].strip()
        after = text[end + 1 :].strip(" \t")
        if after and not re.match(r"[ \t]+#", text[end + 1 :]):
            self._report("there is text after a quoted value")
        try:
            value = unquoted(text[: end + 1])
        except ValueError as error:
            self._report(str(error))
            value = text[1:end]
        self._at += 1
        return value

    def _block(self, rest: str, indent: int) -> str:
        header = BLOCK_HEADER.fullmatch(rest)
        if header is None:
            self._report(f"{rest[0]!r} begins a block of lines; put the value in quotes")
            return self._plain(rest, indent)
        digit, chomping = header[2] or header[5], header[3] or header[4] or ""
        self._at += 1
        lines: list[str] = []
        inner = indent + int(digit) if digit else 0
        while (line := self._line) is not None:
            blank = not line.strip(" ")
            if not inner and not blank:
                if _indent(line) <= indent:
                    break
                inner = _indent(line)
                if any(len(each) > inner for each in lines):
                    self._report("an empty line is indented further than the text")
                lines = ["" for _ in lines]
            if inner and not blank and _indent(line) < inner:
                if _indent(line) > indent and not line.strip(" ").startswith("#"):
                    self._report("the indentation does not fit")
                break
            lines.append(line[inner:] if inner else line)
            self._in_blocks.add(self._at)
            self._at += 1
        if not inner:
            lines = ["" for _ in lines]
        return block_scalar(lines, header[1], chomping)

    # --- flow style ---

    def _flow_list(self, rest: str) -> list[str]:
        parts = self._flow(rest, "]", "a list")
        return [self._flow_text(part) for part in parts]

    def _flow_map(self, rest: str) -> dict[str, str]:
        values: dict[str, str] = {}
        for part in self._flow(rest, "}", "a map"):
            pair = _split_key(part)
            if pair is None:
                self._report("this is not 'key: value'", self._at - 1)
                continue
            if pair[0] in values:
                self._report(f"the key {pair[0]!r} is there twice", self._at - 1)
            values.setdefault(pair[0], self._flow_text(pair[1]))
        return values

    def _flow(self, rest: str, closing: str, what: str) -> list[str]:
        """The parts of `[a, b]`, on one line; more than that is reported."""
        self._style.append(f"line {self._first + self._at}: {what} in brackets")
        parts, at, start = list[str](), 1, 1
        while at < len(rest) and rest[at] != closing:
            if rest[at] in "'\"" and not rest[start:at].strip(" "):
                end = quoted_end(rest[at:])
                at = len(rest) if end < 0 else at + end
            elif rest[at] in "[]{}":
                self._report("brackets inside brackets are not read")
            elif rest[at] == ",":
                parts.append(rest[start:at].strip(" \t"))
                start = at + 1
            at += 1
        if at >= len(rest):
            self._report(f"{what} in brackets must be closed on the same line")
        if rest[at + 1 :].strip(" \t") and not re.match(r"[ \t]+#", rest[at + 1 :]):
            self._report("there is text after a closing bracket")
        last = rest[start:at].strip(" \t")
        if last:
            parts.append(last)
        if not all(parts):
            self._report("there is nothing between two commas")
        self._at += 1
        return [part for part in parts if part]

    def _flow_text(self, part: str) -> str:
        if part[:1] in ("'", '"'):
            end = quoted_end(part)
            if end == len(part) - 1:
                try:
                    return unquoted(part)
                except ValueError as error:
                    self._report(str(error), self._at - 1)
                    return part[1:end]
        if not part or part[0] in _INDICATORS or part[0] in "-?:" or re.search(r"[:#?]", part):
            self._report("inside brackets, put this in quotes", self._at - 1)
        return part


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _is_empty(line: str) -> bool:
    content = line.strip(" \t")
    return not content or content.startswith("#")


def _is_item(content: str) -> bool:
    return content[:1] == "-" and content[1:2] in ("", " ", "\t")


def _split_key(content: str) -> tuple[str, str] | None:
    """`key: value` as key and value; None if it is not of that form."""
    if content[:1] in ("'", '"'):
        end = quoted_end(content)
        after = content[end + 1 :].lstrip(" \t") if end > 0 else ""
        if not after.startswith(":") or after[1:2] not in ("", " ", "\t"):
            return None
        try:
            return unquoted(content[: end + 1]), after[1:].strip(" \t")
        except ValueError:
            return None
    if not content or content[0] in _INDICATORS or _is_item(content) or content[:2] in ("? ", "?", ": "):
        return None
    found = re.search(r":(?=[ \t]|$)", content)
    if found is None or ((comment := _COMMENT.search(content)) is not None and comment.start() < found.start()):
        return None
    key = content[: found.start()].rstrip(" \t")
    return (key, content[found.end() :].strip(" \t")) if key else None
