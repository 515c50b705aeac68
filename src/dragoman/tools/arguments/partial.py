"""What there is of a JSON value that is still arriving.

Owns: from the beginning of a JSON text to the value of what is complete in it, and what of that fits a schema of which
nothing is asked for yet.
"""

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
    """The value of what is complete in the beginning of a JSON text, or UNSET if nothing is, or if it is no JSON.

    Members and items are there from their value's first sign on: lists, objects and texts as far as they have come,
    numbers when they are complete. `ended`: nothing more comes.
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
        elif token["text"] == word:  # without its end
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
    """Whether a text in this place is the name of a member."""
    return closing[-1:] == ["}"] and before in ("{", ",")


# --- what fits so far -------------------------------------------------------------------------------------------------

_NOT_YET: Final = frozenset(
    {"contains", "dependentRequired", "dependentSchemas", "else", "if", "minContains", "minItems", "minLength"}
    | {"minProperties", "not", "required", "then", "unevaluatedItems", "unevaluatedProperties"}
)
"""What cannot be asked of a value that is not complete."""
_ROUNDS: Final = 10


class PartialReader:
    """Reads the beginnings of a JSON text as far as they fit a schema."""

    def __init__(self, schema: Mapping[str, object]) -> None:
        from .json_schema import Checker, compile_schema  # it loads the schema library

        self._checker: Checker | None = None
        with suppress(ToolDefinitionError):  # a pattern that only Python understands, say: all that comes counts
            self._checker = compile_schema(_relax(dict(schema)))

    def read(self, text: str, *, ended: bool = False) -> object | UnsetType:
        """What there is and fits: members and items that do not are left out. UNSET if that is nothing."""
        value = read_beginning(text, ended=ended)
        if value is UNSET or deeper_than(DEEPEST, value):
            return UNSET
        for _ in range(_ROUNDS):
            if self._checker is None or self._checker.fits(value):
                return value
            # From the end, so that places before it stay what they are.
            for path in sorted({problem.path for problem in self._checker.problems(value)}, key=_order, reverse=True):
                if not path:
                    return UNSET
                _drop(value, path)
        return UNSET


def _relax(schema: Schema) -> Schema:
    left = {keyword: value for keyword, value in schema.items() if keyword not in _NOT_YET}
    if "oneOf" in left:  # more than one of them may fit so far
        left["anyOf"] = [*cast("list[object]", left.pop("oneOf")), *cast("list[object]", left.get("anyOf", ()))]
    return map_subschemas(left, _relax)


def _order(path: Path) -> list[tuple[int, str]]:
    return [(step, "") if isinstance(step, int) else (0, step) for step in path]


def _drop(value: Any, path: Path) -> None:
    for step in path[:-1]:
        value = value[step]
    value.pop(path[-1])
