"""What fits two schemas at once, as one schema: how `allOf`, and keywords beside `$ref` or `anyOf`, are merged.

Owns: the merging of two nodes.
Must not know: any provider's rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from .node import Node, alternatives, kind_is_one_of, kinds_of, overlaid
from .notes import Notes
from .words import JSON_TYPES, Schema, same

__all__ = ["Meeting", "without_impossible_objects"]

MOST_ALTERNATIVES: Final = 64
"""Alternatives of alternatives multiply; beyond this many the second ones are only described."""

_HIGHER: Final = frozenset(["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"])
_LOWER: Final = frozenset(["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"])


class Meeting:
    """Merges nodes. `expand` gives what a reference means."""

    def __init__(self, notes: Notes, expand: Callable[[Node], Node]) -> None:
        self._notes: Notes = notes
        self._expand: Callable[[Node], Node] = expand

    def meet(self, a: Node, b: Node) -> Node:
        """What fits both. Annotations of the first come first."""
        if a.never or b.never:
            return Node(at=a.at, types=())
        if a.unlimited or b.unlimited:
            limited = b if a.unlimited else a
            return limited.with_changes(at=a.at, told=overlaid(a.told, b.told), described=self._described(a, b))
        if a.ref is not None or b.ref is not None:
            if a.ref == b.ref:
                return a.with_changes(told=overlaid(a.told, b.told))
            return self.meet(self._expand(a), self._expand(b))
        if a.any_of or b.any_of:
            return self._distributed(a, b)
        return self._merged(a, b)

    def _distributed(self, a: Node, b: Node) -> Node:
        told = overlaid(a.told, b.told)
        bare_a, bare_b = a.with_changes(told={}), b.with_changes(told={})
        of_a, of_b = a.any_of or (bare_a,), b.any_of or (bare_b,)
        if len(of_a) * len(of_b) > MOST_ALTERNATIVES:
            self._notes.lost(b.at, f"{len(of_a) * len(of_b)} alternatives are too many, some are left out")
            return a
        return alternatives([self.meet(x, y) for x in of_a for y in of_b], a.at, told)

    def _merged(self, a: Node, b: Node) -> Node:
        limits, clashing = self._limits(a, b)
        node = Node(
            at=a.at,
            told=overlaid(a.told, b.told),
            described=_also(self._described(a, b), clashing),
            types=_types(a.types, b.types),
            values=_values(a.values, b.values),
            const=a.const or b.const,
            limits=limits,
            properties=self._properties(a, b),
            required=tuple(dict.fromkeys([*a.required, *b.required])),
            others=self._maybe(a.others, b.others),
            patterned=a.patterned or b.patterned,
            items=self._maybe(a.items, b.items),
            prefix=self._prefix(a, b),
        )
        if node.values is not None:
            node = node.with_types(kinds_of(node.values) if node.types is None else node.types)
        return without_impossible_objects(node.pruned())

    def _maybe(self, a: Node | None, b: Node | None) -> Node | None:
        return self.meet(a, b) if a is not None and b is not None else a or b

    def _properties(self, a: Node, b: Node) -> dict[str, Node]:
        found: dict[str, Node] = {}
        for name in dict.fromkeys([*a.properties, *b.properties]):
            of_a, of_b = a.properties.get(name, a.others), b.properties.get(name, b.others)
            met = self._maybe(of_a, of_b)
            if met is not None:
                found[name] = met
        return found

    def _prefix(self, a: Node, b: Node) -> tuple[Node, ...]:
        found: list[Node] = []
        for index in range(max(len(a.prefix), len(b.prefix))):
            of_a = a.prefix[index] if index < len(a.prefix) else a.items
            of_b = b.prefix[index] if index < len(b.prefix) else b.items
            met = self._maybe(of_a, of_b)
            if met is not None:
                found.append(met)
        return tuple(found)

    def _limits(self, a: Node, b: Node) -> tuple[Schema, Schema]:
        """The tighter limit of each kind; and those that cannot be said together."""
        limits: Schema = dict(a.limits)
        clashing: Schema = {}
        for word, value in b.limits.items():
            before = limits.get(word)
            if before is None or same(before, value):
                limits[word] = value
            elif (tighter := _tighter(word, before, value)) is not None:
                limits[word] = tighter
            else:
                self._notes.only_described(b.at, word, value)
                clashing[word] = value
        return limits, clashing

    @staticmethod
    def _described(a: Node, b: Node) -> Schema:
        return _also(dict(a.described), dict(b.described))


def _also(first: Schema, second: Schema) -> Schema:
    if first.keys() & second.keys():
        return first if same(first, second) else {"allOf": [first, second]}
    return {**first, **second}


def _tighter(word: str, a: object, b: object) -> object:
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return None
    if word in _HIGHER:
        return max(a, b)
    if word in _LOWER:
        return min(a, b)
    if word == "multipleOf" and isinstance(a, int) and isinstance(b, int):
        return math.lcm(a, b)
    return True if word == "uniqueItems" else None


def _types(a: tuple[str, ...] | None, b: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if a is None or b is None:
        return b if a is None else a
    return tuple(
        kind for kind in JSON_TYPES if kind_is_one_of(kind, a) and kind_is_one_of(kind, b) and _named(kind, a, b)
    )


def _named(kind: str, a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    """Integers are kept by name only where one side names them without naming all numbers."""
    return kind != "integer" or not ("number" in a and "number" in b)


def _values(a: tuple[object, ...] | None, b: tuple[object, ...] | None) -> tuple[object, ...] | None:
    if a is None or b is None:
        return b if a is None else a
    return tuple(value for value in a if any(same(value, other) for other in b))


def without_impossible_objects(node: Node) -> Node:
    """No object fits if a property must be there that nothing fits."""
    if not any(_impossible(node, name) for name in node.required):
        return node
    types = node.types if node.types is not None else tuple(kind for kind in JSON_TYPES if kind != "integer")
    return node.with_types(tuple(kind for kind in types if kind != "object"))


def _impossible(node: Node, name: str) -> bool:
    if name in node.properties:
        return node.properties[name].never
    return node.others is not None and node.others.never and not node.patterned
