"""Regular expressions, as JSON Schema has them, turned into grammars.

Owns: reading the expressions that people write in schemas: literals, classes, groups, alternatives, repetition, and
anchors at the ends.
Must not know: JSON Schema. What cannot be a grammar (look-around, back references, word boundaries, anchors in the
middle) raises NotRegular, and the caller says that the pattern is not enforced.
"""

from __future__ import annotations

import re
from typing import Final

from .characters import CHARACTER, Ranges, complement, normal, one_of, spelled
from .gbnf import MOST_REPETITIONS, either, literal, repeated, sequence

__all__ = ["NotRegular", "matching"]

_DIGITS: Final[Ranges] = ((0x30, 0x39),)
_WORD: Final[Ranges] = normal([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
_SPACE: Final[Ranges] = normal(
    [(9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F),
     (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)]
)  # fmt: skip
_DOT: Final[Ranges] = complement(normal([(10, 10), (13, 13), (0x2028, 0x2029)]))
_CLASSES: Final[dict[str, Ranges]] = {
    "d": _DIGITS,
    "D": complement(_DIGITS),
    "w": _WORD,
    "W": complement(_WORD),
    "s": _SPACE,
    "S": complement(_SPACE),
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_CODE: Final = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}")
_COUNT: Final = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_TIMES: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_WITHOUT_END: Final = 200
"""How often something may come that may come any number of times: a small model may not find the end by itself."""
_ANYTHING: Final = repeated(CHARACTER, 0, _WITHOUT_END)


class NotRegular(Exception):  # noqa: N818 -- not a failure: the pattern is then not enforced
    """The expression cannot be written as a grammar, or is none."""


def matching(pattern: str) -> str:
    """The inside of a JSON string that the pattern is found in."""
    return _Pattern(pattern).whole()


class _Pattern:
    def __init__(self, text: str) -> None:
        self._text: str = text
        self._at: int = 0

    def whole(self) -> str:
        options: list[str] = []
        while True:
            free_start = not self._took("^")
            inside = self._terms()
            free_end = not self._took("$")
            options.append(sequence(_ANYTHING if free_start else "", inside, _ANYTHING if free_end else ""))
            if not self._took("|"):
                break
        if self._at < len(self._text):
            raise NotRegular
        return either(options)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _took(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _next(self) -> str:
        letter = self._peek()
        if not letter:
            raise NotRegular
        self._at += 1
        return letter

    def _alternatives(self) -> str:
        options = [self._terms()]
        while self._took("|"):
            options.append(self._terms())
        return either(options)

    def _terms(self) -> str:
        found: list[str] = []
        while (letter := self._peek()) and letter not in "|)$":
            if letter in "^*+?":
                raise NotRegular
            found.append(self._times(self._atom()))
        return sequence(*found)

    def _times(self, atom: str) -> str:
        least: int
        most: int | None
        if (times := _TIMES.get(self._peek())) is not None:
            self._at += 1
            least, most = times
        elif (count := _COUNT.match(self._text, self._at)) is not None:
            self._at = count.end()
            least = int(count[1])
            most = least if count[2] is None else int(count[3]) if count[3] else None
        else:
            return atom
        self._took("?")  # how greedy it is makes no difference to what fits
        if self._peek() in ("*", "+", "?") and self._peek():
            raise NotRegular
        if max(least, most or 0) > MOST_REPETITIONS or (most is not None and most < least):
            raise NotRegular
        return repeated(atom, least, least + _WITHOUT_END if most is None else most)

    def _atom(self) -> str:
        letter = self._next()
        if letter == "(":
            return self._group()
        if letter == "[":
            return one_of(self._class())
        if letter == ".":
            return one_of(_DOT)
        if letter == "\\":
            return self._escaped()
        return literal(spelled(letter))

    def _group(self) -> str:
        if self._took("?"):
            if self._took("<"):
                if self._peek() in ("=", "!"):
                    raise NotRegular
                while self._next() != ">":
                    pass
            elif not self._took(":"):
                raise NotRegular
        inside = self._alternatives()
        if not self._took(")"):
            raise NotRegular
        return inside

    def _escaped(self) -> str:
        if (known := _CLASSES.get(self._peek())) is not None:
            self._at += 1
            return one_of(known)
        point = self._point()
        return one_of(((point, point),))

    def _point(self) -> int:
        """The character that an escape stands for; the backslash has been read."""
        code = _CODE.match(self._text, self._at)
        if code is not None:
            self._at = code.end()
            point = int(code[1] or code[2] or code[3], 16)
            if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
                raise NotRegular
            return point
        letter = self._next()
        if letter in _CONTROLS:
            if letter == "0" and self._peek().isdigit():
                raise NotRegular
            return ord(_CONTROLS[letter])
        if letter.isalnum():  # a boundary, a back reference, a property of Unicode
            raise NotRegular
        return ord(letter)

    def _class(self) -> Ranges:
        negated = self._took("^")
        found: list[tuple[int, int]] = []
        while not self._took("]"):
            first = self._class_item()
            if not isinstance(first, int):
                found += first
                continue
            last = first
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                end = self._class_item()
                if not isinstance(end, int) or end < first:
                    raise NotRegular
                last = end
            found.append((first, last))
        ranges = normal(found)
        return complement(ranges) if negated else ranges

    def _class_item(self) -> int | Ranges:
        letter = self._next()
        if letter != "\\":
            return ord(letter)
        if (known := _CLASSES.get(self._peek())) is not None:
            self._at += 1
            return known
        return 8 if self._took("b") else self._point()
