"""The notation of llama.cpp's grammars.

Owns: quoting, and a grammar under construction: named rules, each body once.
Must not know: what the rules are for.

An expression is a text in that notation which can stand anywhere in a sequence; `either` and `optional` put the
parentheses that this needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["MOST_REPETITIONS", "Grammar", "Impossible", "either", "literal", "optional", "repeated", "sequence"]

MOST_REPETITIONS: Final = 2000
"""Beyond this llama.cpp refuses a grammar."""

_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9]+")
_ATOM: Final = re.compile(r'[a-z][a-zA-Z0-9-]*|\[(?:[^\]\\]|\\.)*\]|"(?:[^"\\]|\\.)*"')
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Impossible(Exception):  # noqa: N818 -- not a failure: the caller leaves the branch out
    """Nothing fits."""


def literal(text: str) -> str:
    """Exactly this text."""
    return '"' + "".join([_ESCAPES.get(letter) or _visible(letter) for letter in text]) + '"'


def _visible(letter: str) -> str:
    return letter if ord(letter) >= 0x20 and ord(letter) != 0x7F else f"\\x{ord(letter):02X}"


def sequence(*parts: str) -> str:
    """One after the other; empty parts are left out."""
    return " ".join([part for part in parts if part])


def either(options: Iterable[str]) -> str:
    """One of these, each once. An empty one means that there may be nothing."""
    distinct = list(dict.fromkeys(options))
    if not distinct:
        raise Impossible
    found = [option for option in distinct if option]
    if len(found) < len(distinct):
        return optional(either(found)) if found else ""
    return found[0] if len(found) == 1 else f"({' | '.join(found)})"


def optional(part: str) -> str:
    """This or nothing."""
    return f"{_grouped(part)}?" if part else ""


def repeated(part: str, least: int = 0, most: int | None = None) -> str:
    """This so many times; `most` None is without end."""
    if most is not None and most < least:
        raise Impossible
    if most == 0 or not part:
        return ""
    if (least, most) == (1, 1):
        return part
    if (least, most) == (0, 1):
        return optional(part)
    bounds = {0: "*", 1: "+"}.get(least, f"{{{least},}}") if most is None else f"{{{least},{most}}}"
    if most == least:
        bounds = f"{{{least}}}"
    return _grouped(part) + bounds


def _grouped(part: str) -> str:
    return part if _ATOM.fullmatch(part) or _is_group(part) else f"({part})"


def _is_group(part: str) -> bool:
    """Whether the first parenthesis closes at the very end."""
    if not part.startswith("("):
        return False
    depth, place = 0, 0
    while place < len(part):
        quoted = re.compile(r'\[(?:[^\]\\]|\\.)*\]|"(?:[^"\\]|\\.)*"').match(part, place)
        if quoted is not None:
            place = quoted.end()
            continue
        depth += {"(": 1, ")": -1}.get(part[place], 0)
        place += 1
        if depth == 0:
            break
    return place == len(part)


class Grammar:
    """Rules under construction."""

    def __init__(self) -> None:
        self._bodies: dict[str, str | None] = {}
        self._names: dict[str, str] = {}

    def rule(self, hint: str, body: str) -> str:
        """The name of a rule with this body; the same name for the same body."""
        if body not in self._names:
            self._names[body] = name = self.reserved(hint)
            self._bodies[name] = body
        return self._names[body]

    def reserved(self, hint: str) -> str:
        """A free name, for a rule that is defined later: it may refer to itself."""
        wanted = _NOT_IN_NAMES.sub("-", hint).strip("-").lower()
        wanted = wanted if wanted[:1].isalpha() and wanted != "root" else f"x-{wanted}".rstrip("-")
        name, number = wanted, 2
        while name in self._bodies:
            name, number = f"{wanted}-{number}", number + 1
        self._bodies[name] = None
        return name

    def define(self, name: str, body: str) -> None:
        """Give a reserved name its body."""
        self._bodies[name] = body

    def copy(self) -> Grammar:
        """A grammar with the same rules, which grows by itself."""
        copy = Grammar()
        copy._bodies, copy._names = dict(self._bodies), dict(self._names)
        return copy

    def text(self, root: str) -> str:
        """The whole grammar, beginning with the root."""
        rules = [f"root ::= {root}", *[f"{name} ::= {body}" for name, body in self._bodies.items() if body is not None]]
        return "\n".join(rules) + "\n"
