"""Limits on values: bounds, lengths, patterns.

Owns: what `Annotated[int, Ge(1)]` and its like mean: the check, the schema keywords, the msgspec form, the message.
Must not know: in which library's words the limit was written (annotations.py), and other kinds of nodes.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, cast

import msgspec

from dragoman.tools.arguments.problems import limit_text
from dragoman.tools.arguments.schemas import Definitions, Schema

from .node import Measure, Node, decodable, marker, mismatch

__all__ = ["Limit", "LimitKind", "Limited"]

LimitKind: TypeAlias = Literal[
    "ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern", "tz", "predicate"
]


class Limit(NamedTuple):
    """One limit. `foreign`: msgspec would not see it in the hint as it was written."""

    kind: LimitKind
    value: Any
    foreign: bool = True


_BOUNDS = ("ge", "gt", "le", "lt")
_LENGTHS = ("min_length", "max_length")

_ALLOWED: dict[Measure, tuple[str, ...]] = {
    "integer": (*_BOUNDS, "multiple_of"),
    "number": (*_BOUNDS, "multiple_of"),
    "decimal": (*_BOUNDS, "multiple_of"),
    "moment": (*_BOUNDS, "tz"),
    "span": _BOUNDS,
    "string": (*_LENGTHS, "pattern"),
    "bytes": _LENGTHS,
    "array": _LENGTHS,
    "object": _LENGTHS,
}

_UNITS = {"string": "character", "bytes": "byte", "array": "item", "object": "property"}

_NUMERIC = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_KEYWORDS: dict[str, dict[str, str]] = {
    "integer": _NUMERIC,
    "number": _NUMERIC,
    "decimal": _NUMERIC,
    "string": {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"},
    "array": {"min_length": "minItems", "max_length": "maxItems"},
    "object": {"min_length": "minProperties", "max_length": "maxProperties"},
}

_TIGHTEST: dict[str, Callable[[Sequence[Any]], Any]] = {
    "ge": max,
    "gt": max,
    "le": min,
    "lt": min,
    "min_length": max,
    "max_length": min,
}
"""Of several limits of one kind the one that counts; of the other kinds every one counts."""


def _is_multiple(value: Any, step: Any) -> bool:
    return math.fmod(value, step) == 0 if isinstance(value, float) else value % step == 0


_HOLDS: dict[LimitKind, Callable[[Any, Any], bool]] = {
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
    "multiple_of": _is_multiple,
    "min_length": lambda value, least: len(value) >= least,
    "max_length": lambda value, most: len(value) <= most,
    "pattern": lambda value, pattern: re.search(pattern, value) is not None,
    "tz": lambda value, wanted: (value.tzinfo is not None) == wanted,
    "predicate": lambda value, predicate: bool(predicate(value)),
}


class Limited(Node):
    """A value of some kind, within limits."""

    def __init__(self, inner: Node, limits: Sequence[Limit]) -> None:
        self.inner: Node = inner
        self.limits: tuple[Limit, ...] = tuple(limits)
        self.expected: str = inner.expected
        self.kinds: frozenset[str] = inner.kinds
        self.measure: Measure | None = inner.measure
        self.hashable: bool | None = inner.hashable
        self.tag: tuple[str, object] | None = inner.tag
        self.verbatim: bool = not any(limit.foreign for limit in limits)

    @staticmethod
    def allows(node: Node, kind: LimitKind) -> bool:
        """Whether a limit of this kind makes sense for a node."""
        return kind == "predicate" or (node.measure is not None and kind in _ALLOWED[node.measure])

    def children(self) -> tuple[Node, ...]:
        return (self.inner,)

    def read(self, value: object, lenient: bool) -> object:
        result = self.inner.read(value, lenient)
        for limit in self.limits:
            try:
                holds = _HOLDS[limit.kind](result, limit.value)
            except Exception as error:  # noqa: BLE001 -- predicates are the user's code, and dates may not compare
                raise mismatch(f"{self.inner.expected} {self._text(limit)} ({error})", value) from None
            if not holds:
                raise mismatch(f"{self.inner.expected} {self._text(limit)}", value)
        return result

    def _text(self, limit: Limit) -> str:
        if limit.kind == "tz":
            return "with a time zone" if limit.value else "without a time zone"
        if limit.kind == "predicate":
            return f"that satisfies {getattr(limit.value, '__name__', limit.value)}"
        return limit_text(limit.kind, limit.value, _UNITS.get(self.measure or "", "item"))

    def _grouped(self) -> dict[str, list[Any]]:
        groups: dict[str, list[Any]] = {}
        for limit in self.limits:
            groups.setdefault(limit.kind, []).append(limit.value)
        return {kind: [_TIGHTEST[kind](group)] if kind in _TIGHTEST else group for kind, group in groups.items()}

    def schema(self, definitions: Definitions) -> Schema:
        schema = self.inner.schema(definitions)
        keywords = _KEYWORDS.get(self.measure or "", {})
        found: Schema = {}
        further: list[Schema] = []
        for kind, values in self._grouped().items():
            if kind in keywords:
                found[keywords[kind]] = _json_number(values[0])
                further.extend({keywords[kind]: _json_number(value)} for value in values[1:])
        if further:
            found["allOf"] = further
        if self.measure == "decimal":  # the bounds of the number; those of its text cannot be told
            number, text = cast("list[Schema]", schema["anyOf"])
            return {"anyOf": [{**number, **found}, text]}
        untold = [limit for limit in self.limits if limit.kind not in keywords and limit.kind != "predicate"]
        if untold:  # JSON Schema has no keyword for it
            schema["description"] = f"Only values {' and '.join(map(self._text, untold))}."
        return {**schema, **found}

    def wire(self) -> object:
        groups = self._grouped()
        if "predicate" in groups or any(len(group) > 1 for group in groups.values()):
            return marker(self)
        try:
            meta = msgspec.Meta(**{kind: group[0] for kind, group in groups.items()})
        except (TypeError, ValueError):
            return marker(self)  # msgspec takes fewer combinations and types than we do
        wire = Annotated[cast("Any", self.inner.wire()), meta]
        return wire if decodable(wire) else marker(self)


def _json_number(value: Any) -> object:
    """A bound as JSON can hold it: Decimal and Fraction become plain numbers."""
    if isinstance(value, (int, float, str)):
        return value
    return int(value) if value == int(value) else float(value)
