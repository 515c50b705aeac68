"""Parses JSON that is still arriving: the value so far, without the parts that do not fit a schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, UnsetType

from dragoman._decoding import decode
from dragoman.errors import ToolDefinitionError

from .problems import Path
from .schemas import Schema, map_subschemas

_TOKEN: Final = re.compile(r'(?P<open>[\[{])|(?P<close>[\]}])|(?P<sign>[,:])|(?P<text>")|[^\s\[\]{},:"]+')
_PART: Final = re.compile(r'(?:[^"\\]+|\\u[0-9a-fA-F]{4}|\\[^u]){1,1000}')
"""A part of a string. Its size is bounded, because Python remembers each repetition until the match is done."""
_HALF: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")
"""The first half of a pair of escapes for one character."""
_WORDS: Final = ("true", "false", "null")


def read_beginning(text: str, *, ended: bool = False) -> object | UnsetType:
    """The value of an incomplete JSON text; UNSET if there is none yet, or if the text is not JSON.

    Lists, objects and strings are included as far as they have arrived, numbers when they are complete. `ended`: the
    text is complete.
    """
    closing: list[str] = []
    kept, cut, before = 0, "", ""
    for kind, start, end in _tokens(text):
        word = text[start:end]
        if kind == "open":
            closing.append("}" if word == "{" else "]")
            kept = end
        elif kind == "close":
            if not closing:
                return UNSET
            closing.pop()
            kept = end
        elif kind == "unclosed":
            if not _is_name(closing, before):
                kept, cut = start + _without_half(word), '"'
            break
        elif kind == "text":
            if not _is_name(closing, before):
                kept = end
        elif kind != "sign" and (ended or end < len(text) or word in _WORDS):
            kept = end
        before = word
        if kept and not closing:
            break
    if not kept:
        return UNSET
    try:
        return decode(text[:kept] + cut + "".join(reversed(closing)))
    except (ValueError, msgspec.DecodeError):
        return UNSET


def _tokens(text: str) -> Iterator[tuple[str, int, int]]:
    """The kind, beginning and end of each token."""
    at = 0
    while token := _TOKEN.search(text, at):
        kind, at = token.lastgroup or "word", token.end()
        if kind == "text":
            while part := _PART.match(text, at):
                at = part.end()
            is_closed = text.startswith('"', at)
            kind, at = ("text", at + 1) if is_closed else ("unclosed", at)
        yield kind, token.start(), at


def _without_half(word: str) -> int:
    """The length of an unclosed string without the first half of a pair of escapes at its end."""
    half = _HALF.search(word, max(0, len(word) - 6))
    if half is None:
        return len(word)
    before = word[: half.start()]
    is_escaped = (len(before) - len(before.rstrip("\\"))) % 2
    return len(word) if is_escaped else half.start()


def _is_name(closing: list[str], before: str) -> bool:
    """Whether a string in this place is the name of a member."""
    return closing[-1:] == ["}"] and before in ("{", ",")


# --- against a schema -------------------------------------------------------------------------------------------------

_NOT_YET: Final = frozenset(
    {"contains", "dependentRequired", "dependentSchemas", "else", "if", "minContains", "minItems", "minLength"}
    | {"minProperties", "not", "required", "then", "unevaluatedItems", "unevaluatedProperties"}
)
"""Keywords that an incomplete value may fail."""
_ROUNDS: Final = 10


class PartialReader:
    """Parses incomplete JSON texts as far as they fit a schema."""

    def __init__(self, schema: Mapping[str, object]) -> None:
        from .json_schema import Checker, compile_schema  # it loads the schema library

        self._checker: Checker | None = None
        with suppress(ToolDefinitionError):  # such as a pattern that only Python supports: nothing is left out
            self._checker = compile_schema(_relax(dict(schema)))

    def read(self, text: str, *, ended: bool = False) -> object | UnsetType:
        """The value so far, without members and items that do not fit; UNSET if there is none."""
        value = read_beginning(text, ended=ended)
        if value is UNSET:
            return UNSET
        for _ in range(_ROUNDS):
            if self._checker is None or self._checker.fits(value):
                return value
            # From the end, so that earlier paths stay valid.
            for path in sorted({problem.path for problem in self._checker.problems(value)}, key=_order, reverse=True):
                if not path:
                    return UNSET
                _drop(value, path)
        return UNSET


def _relax(schema: Schema) -> Schema:
    relaxed = {keyword: value for keyword, value in schema.items() if keyword not in _NOT_YET}
    if "oneOf" in relaxed:  # more than one of them may fit so far
        relaxed["anyOf"] = [
            *cast("list[object]", relaxed.pop("oneOf")),
            *cast("list[object]", relaxed.get("anyOf", ())),
        ]
    return map_subschemas(relaxed, _relax)


def _order(path: Path) -> list[tuple[int, str]]:
    return [(step, "") if isinstance(step, int) else (0, step) for step in path]


def _drop(value: Any, path: Path) -> None:
    for step in path[:-1]:
        value = value[step]
    value.pop(path[-1])
