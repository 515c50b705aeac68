"""A schema in a simple form, in which no two keywords say the same thing.

Owns: Node, which has alternatives but no `allOf`, `oneOf` or `not`, and whose alternatives are complete by themselves.
Must not know: where a schema comes from and what is written of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from .notes import joined
from .words import LIMITED_TYPE, Schema, kind_is_limited, kind_of, same

__all__ = ["Node", "alike", "alternatives", "kind_is_one_of", "kinds_of", "overlaid"]

_NOTHING: Mapping[str, object] = {}


class Node(Struct, frozen=True, kw_only=True):
    """What a schema allows. Either a reference, or alternatives, or all the rest; besides those only what is told."""

    at: str
    """Where it is in the given schema, for notes."""
    told: Mapping[str, object] = _NOTHING
    """Annotations: title, description, default."""
    described: Mapping[str, object] = _NOTHING
    """Limits that can only be described to the model."""
    ref: str | None = None
    """A JSON pointer into the document."""
    any_of: tuple[Node, ...] = ()
    types: tuple[str, ...] | None = None
    """None: any type. Empty: nothing fits."""
    values: tuple[object, ...] | None = None
    const: bool = False
    """Whether the one value was given by `const`."""
    limits: Mapping[str, object] = _NOTHING
    properties: Mapping[str, Node] = {}
    required: tuple[str, ...] = ()
    others: Node | None = None
    """What other properties must fit; None if nothing is said."""
    patterned: bool = False
    """Whether there are properties known by patterns of their names."""
    items: Node | None = None
    prefix: tuple[Node, ...] = ()

    @property
    def never(self) -> bool:
        """Whether nothing fits."""
        return self.types == ()

    @property
    def unlimited(self) -> bool:
        """Whether everything fits."""
        return self.ref is None and self.types is None and self.values is None and not (self.any_of or self._shaped)

    @property
    def _shaped(self) -> bool:
        """Whether it limits the values of some type."""
        return bool(
            self.limits
            or self.properties
            or self.required
            or self.others is not None
            or self.patterned
            or self.items is not None
            or self.prefix
        )

    @property
    def plausible_types(self) -> tuple[str, ...]:
        """The types that its limits are about, for a node that names none: `{"minLength": 1}` means strings."""
        if self.types is not None:
            return self.types
        about = [LIMITED_TYPE[word] for word in self.limits]
        if self.properties or self.required or self.others is not None or self.patterned:
            about.append("object")
        if self.items is not None or self.prefix:
            about.append("array")
        return tuple(dict.fromkeys(about))

    def telling(self, told: Mapping[str, object]) -> Node:
        """This node with further annotations; what is given here comes first."""
        return self.with_changes(told=overlaid(told, self.told)) if told else self

    def with_changes(self, **changes: object) -> Node:
        """This node with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def with_types(self, types: tuple[str, ...]) -> Node:
        """This node for these types only; values of other types are left out."""
        values = self.values
        if values is not None:
            values = tuple(value for value in values if kind_is_one_of(kind_of(value), types))
            if not values:
                types = ()
        return self.with_changes(types=types, values=values)

    def pruned(self) -> Node:
        """Without what is said of types that it does not allow."""
        types = self.types
        if types is None:
            return self
        about = {word: value for word, value in self.limits.items() if kind_is_limited(word, types)}
        words = {
            word: value
            for word, value in self.described.items()
            if word not in LIMITED_TYPE or kind_is_limited(word, types)
        }
        node = self.with_changes(limits=about, described=words)
        if "object" not in types:
            node = node.with_changes(properties={}, required=(), others=None, patterned=False)
        return node if "array" in types else node.with_changes(items=None, prefix=())


def kinds_of(values: Iterable[object]) -> tuple[str, ...]:
    """The types of values; all integers are numbers."""
    kinds = dict.fromkeys(kind_of(value) for value in values)
    return tuple(kind for kind in kinds if kind != "integer" or "number" not in kinds)


def kind_is_one_of(kind: str, types: tuple[str, ...]) -> bool:
    """Whether a value of a kind is of one of the types; an integer is a number too."""
    return kind in types or (kind == "integer" and "number" in types)


def overlaid(first: Mapping[str, object], second: Mapping[str, object]) -> Schema:
    """Annotations of two schemas for the same value: both descriptions, else what comes first."""
    both: Schema = {**second, **first}
    description = joined(first.get("description"), second.get("description"))
    return {**both, "description": description} if description else both


def alternatives(nodes: Iterable[Node], at: str, told: Mapping[str, object] = _NOTHING) -> Node:
    """Any one of these, each once; the node itself if there is only one."""
    found: list[Node] = []
    for node in nodes:
        for one in node.any_of if node.any_of and not node.told else (node,):
            if not one.never and not any(alike(one, other) for other in found):
                found.append(one)
    if not found:
        return Node(at=at, types=())
    if len(found) == 1:
        return found[0].telling(told)
    free = next((node for node in found if node.unlimited), None)
    if free is not None:
        return Node(at=at, told=told, described=free.described)
    return Node(at=at, told=told, any_of=tuple(found))


def alike(a: Node, b: Node) -> bool:
    """Whether two nodes mean and tell the same; where they come from makes no difference."""
    return (
        (a.ref, a.types, a.required, a.patterned, a.const) == (b.ref, b.types, b.required, b.patterned, b.const)
        and same(dict(a.told), dict(b.told))
        and same(dict(a.described), dict(b.described))
        and same(dict(a.limits), dict(b.limits))
        and same(None if a.values is None else list(a.values), None if b.values is None else list(b.values))
        and list(a.properties) == list(b.properties)
        and _all_alike(a.properties.values(), b.properties.values())
        and _all_alike(a.any_of, b.any_of)
        and _all_alike(a.prefix, b.prefix)
        and _both_alike(a.items, b.items)
        and _both_alike(a.others, b.others)
    )


def _all_alike(a: Iterable[Node], b: Iterable[Node]) -> bool:
    first, second = list(a), list(b)
    return len(first) == len(second) and all(map(alike, first, second))


def _both_alike(a: Node | None, b: Node | None) -> bool:
    return a is b if a is None or b is None else alike(a, b)
