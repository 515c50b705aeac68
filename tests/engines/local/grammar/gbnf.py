"""A second, slow reading of llama.cpp's grammars: what they accept, and texts made of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

_TOKEN = re.compile(
    r'\s*(?:(?P<literal>"(?:[^"\\]|\\.)*")|(?P<set>\[(?:[^\]\\]|\\.)*\])|(?P<name>[a-zA-Z][a-zA-Z0-9-]*)'
    r"|(?P<count>\{\d+(?:,\d*)?\})|(?P<mark>[()|*+?]))"
)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_SHORT = {"n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True)
class Literal:
    text: str


@dataclass(frozen=True)
class Set:
    negated: bool
    ranges: tuple[tuple[int, int], ...]

    def holds(self, letter: str) -> bool:
        return any(first <= ord(letter) <= last for first, last in self.ranges) != self.negated


@dataclass(frozen=True)
class Name:
    name: str


@dataclass(frozen=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Either:
    options: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    part: Node
    least: int
    most: int | None


Node = Literal | Set | Name | Sequence | Either | Repeat


def _unescaped(text: str) -> Iterator[str]:
    place = 0
    while place < len(text):
        escape = _ESCAPE.match(text, place)
        if escape is None:
            yield text[place]
            place += 1
            continue
        code = escape[1] or escape[2] or escape[3]
        yield chr(int(code, 16)) if code else _SHORT.get(escape[4], escape[4])
        place = escape.end()


class _Body:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        place = 0
        while place < len(text.rstrip()):
            token = _TOKEN.match(text, place)
            assert token is not None, f"cannot be read: {text[place : place + 40]!r}"
            assert token.lastgroup is not None
            self.tokens.append((token.lastgroup, token[token.lastgroup]))
            place = token.end()
        self.at = 0

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def either(self) -> Node:
        options = [self.sequence()]
        while self.peek() == ("mark", "|"):
            self.at += 1
            options.append(self.sequence())
        return options[0] if len(options) == 1 else Either(tuple(options))

    def sequence(self) -> Node:
        parts: list[Node] = []
        while self.peek()[0] != "end" and self.peek()[1] not in ("|", ")"):
            parts.append(self.repeat())
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def repeat(self) -> Node:
        part = self.atom()
        kind, text = self.peek()
        if kind == "count":
            self.at += 1
            least, comma, most = text[1:-1].partition(",")
            return Repeat(part, int(least), (int(most) if most else None) if comma else int(least))
        if kind == "mark" and text in "*+?":
            self.at += 1
            return Repeat(part, int(text == "+"), 1 if text == "?" else None)
        return part

    def atom(self) -> Node:
        kind, text = self.peek()
        self.at += 1
        if kind == "literal":
            return Literal("".join(_unescaped(text[1:-1])))
        if kind == "name":
            return Name(text)
        if kind == "set":
            return self.set(text[1:-1])
        assert text == "(", f"{text!r} where something should begin"
        inside = self.either()
        assert self.peek() == ("mark", ")")
        self.at += 1
        return inside

    @staticmethod
    def set(text: str) -> Set:
        negated = text.startswith("^")
        # A dash that was escaped is a letter.
        marked = text[1:] if negated else text
        letters: list[str] = []
        place = 0
        while place < len(marked):
            escape = _ESCAPE.match(marked, place)
            if escape is None:
                letters.append(
                    "range" if marked[place] == "-" and letters and place + 1 < len(marked) else marked[place]
                )
                place += 1
            else:
                letters += _unescaped(escape[0])
                place = escape.end()
        ranges: list[tuple[int, int]] = []
        index = 0
        while index < len(letters):
            if letters[index + 1 : index + 2] == ["range"]:
                ranges.append((ord(letters[index]), ord(letters[index + 2])))
                index += 3
            else:
                ranges.append((ord(letters[index]), ord(letters[index])))
                index += 1
        return Set(negated, tuple(ranges))


class Reading:
    """A grammar that was read."""

    def __init__(self, text: str) -> None:
        self.rules: dict[str, Node] = {}
        for line in text.splitlines():
            name, _, body = line.partition(" ::= ")
            assert name not in self.rules, f"{name} is there twice"
            self.rules[name] = _Body(body).either()
        names = {node.name for rule in self.rules.values() for node in _inside(rule) if isinstance(node, Name)}
        assert names <= self.rules.keys(), f"not there: {names - self.rules.keys()}"
        for name in self.rules:
            self._refuse_left_recursion(name, frozenset())
        self._depths = self._least_depths()

    # --- what llama.cpp refuses ---

    def _refuse_left_recursion(self, name: str, seen: frozenset[str]) -> None:
        assert name not in seen, f"{name} begins with itself"
        for first in self._firsts(self.rules[name]):
            self._refuse_left_recursion(first, seen | {name})

    def _firsts(self, node: Node) -> set[str]:
        match node:
            case Name():
                return {node.name}
            case Either():
                return set().union(*map(self._firsts, node.options))
            case Repeat():
                return self._firsts(node.part)
            case Sequence():
                found: set[str] = set()
                for part in node.parts:
                    found |= self._firsts(part)
                    if not self._may_be_empty(part):
                        break
                return found
        return set()

    def _may_be_empty(self, node: Node) -> bool:
        match node:
            case Literal():
                return not node.text
            case Set():
                return False
            case Name():
                return self._may_be_empty(self.rules[node.name])
            case Either():
                return any(map(self._may_be_empty, node.options))
            case Sequence():
                return all(map(self._may_be_empty, node.parts))
            case Repeat():
                return node.least == 0 or self._may_be_empty(node.part)

    # --- what it accepts ---

    def accepts(self, text: str) -> bool:
        @cache
        def ends(name: str, at: int) -> frozenset[int]:
            return frozenset(walk(self.rules[name], at))

        def walk(node: Node, at: int) -> Iterator[int]:
            match node:
                case Literal():
                    if text.startswith(node.text, at):
                        yield at + len(node.text)
                case Set():
                    if at < len(text) and node.holds(text[at]):
                        yield at + 1
                case Name():
                    yield from ends(node.name, at)
                case Either():
                    for option in node.options:
                        yield from walk(option, at)
                case Sequence():
                    places = {at}
                    for part in node.parts:
                        places = {end for place in places for end in walk(part, place)}
                    yield from places
                case Repeat():
                    yield from repeat(node, at)

        def repeat(node: Repeat, at: int) -> set[int]:
            found: set[int] = {at} if node.least == 0 else set()
            places, count = {at}, 0
            while places and (node.most is None or count < node.most):
                places = {end for place in places for end in walk(node.part, place)}
                count += 1
                if count >= node.least:
                    if places <= found:
                        break
                    found |= places
            return found

        return len(text) in ends("root", 0)

    # --- texts made of it ---

    def _least_depths(self) -> dict[str, float]:
        """How deep each rule goes at least; endless where it never ends."""
        depths = dict.fromkeys(self.rules, float("inf"))
        while True:
            fresh = {name: 1 + self._depth(rule, depths) for name, rule in self.rules.items()}
            if fresh == depths:
                return depths
            depths = fresh

    def _depth(self, node: Node, depths: dict[str, float]) -> float:
        match node:
            case Name():
                return depths[node.name]
            case Either():
                return min(self._depth(option, depths) for option in node.options)
            case Sequence():
                return max((self._depth(part, depths) for part in node.parts), default=0)
            case Repeat():
                return self._depth(node.part, depths) if node.least else 0
        return 0

    @property
    def ends(self) -> bool:
        """Whether anything at all can be written by it."""
        return self._depths["root"] < float("inf")

    def made(self, choose: Callable[[int], int], depth: int = 8) -> str:
        """A text that the grammar accepts, made by choosing numbers below a given one."""
        return self._made(self.rules["root"], choose, depth)

    def _made(self, node: Node, choose: Callable[[int], int], depth: int) -> str:
        match node:
            case Literal():
                return node.text
            case Set():
                return self._letter(node, choose)
            case Name():
                return self._made(self.rules[node.name], choose, depth - 1)
            case Either():
                options = [o for o in node.options if self._depth(o, self._depths) <= depth] or [
                    min(node.options, key=lambda o: self._depth(o, self._depths))
                ]
                return self._made(options[choose(len(options))], choose, depth)
            case Sequence():
                return "".join([self._made(part, choose, depth) for part in node.parts])
            case Repeat():
                most = node.least + 3 if node.most is None else min(node.most, node.least + 3)
                if self._depth(node.part, self._depths) > depth:
                    most = node.least
                count = node.least + choose(most - node.least + 1)
                return "".join([self._made(node.part, choose, depth) for _ in range(count)])

    @staticmethod
    def _letter(node: Set, choose: Callable[[int], int]) -> str:
        if node.negated:
            letters = [letter for letter in ' aZ0"\\\n-.ü漢😀~' if node.holds(letter)]
            return letters[choose(len(letters))]
        first, last = node.ranges[choose(len(node.ranges))]
        return chr(first + choose(min(last - first + 1, 29)))


def _inside(node: Node) -> Iterator[Node]:
    yield node
    match node:
        case Either():
            for option in node.options:
                yield from _inside(option)
        case Sequence():
            for part in node.parts:
                yield from _inside(part)
        case Repeat():
            yield from _inside(node.part)
        case _:
            return
