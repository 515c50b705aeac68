"""Parses JSON that is still arriving: the value so far, without the parts that do not fit a schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, UnsetType

from dragoman.errors import ToolDefinitionError

from .problems import Path, deeper_than
from .reader import DEEPEST
from .schemas import Schema, map_subschemas

_ESCAPED: Final = r'"[^"\\]*+(?:\\(?:u[0-9a-fA-F]{4}|[^u])[^"\\]*+)*+'
_TOKEN: Final = re.compile(
    rf'(?P<open>[\[{{])|(?P<close>[\]}}])|(?P<sign>[,:])|(?P<text>{_ESCAPED})"?|[^\s\[\]{{}},:"]+'
)
_HALF: Final = re.compile(r"(?<!\\)(?:\\\\)*+(\\u[dD][89abAB][0-9a-fA-F]{2})\Z")
"""The first half of a pair of escapes for one character."""
_WORDS: Final = ("true", "false", "null")


def read_beginning(text: str, *, ended: bool = False) -> object | UnsetType:
    """The value of an incomplete JSON text; UNSET if there is none yet, or if the text is not JSON.

    Lists, objects and strings are included as far as they have arrived, numbers when they are complete. `ended`: the
    text is complete.
    """
    closing: list[str] = []
    kept, cut, before = 0, "", ""
    for token in _TOKEN.finditer(text):
        word = token[0]
        if token["open"]:
            closing.append("}" if word == "{" else "]")
            kept = token.end()
        elif token["close"]:
            if not closing:
                return UNSET
            closing.pop()
            kept = token.end()
        elif token["text"] is None:
            if not token["sign"] and (ended or token.end() < len(text) or word in _WORDS):
                kept = token.end()
        elif token["text"] == word:  # not closed
            if not _is_name(closing, before):
                half = _HALF.search(word)
                kept, cut = token.start() + (len(word) if half is None else half.start(1)), '"'
            break
        elif not _is_name(closing, before):
            kept = token.end()
        before = word
        if kept and not closing:
            break
    if not kept:
        return UNSET
    try:
        return cast("object", msgspec.json.decode(text[:kept] + cut + "".join(reversed(closing))))
    except (ValueError, msgspec.DecodeError, RecursionError):
        return UNSET


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
        if value is UNSET or deeper_than(DEEPEST, value):
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
