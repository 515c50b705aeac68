"""What stands beside a type in `Annotated`: descriptions and limits, in the words of several libraries.

Owns: reading msgspec.Meta, annotated-types, pydantic's Field, plain strings and `Doc`, and putting them on a node.
Must not know: how a hint becomes a node. It imports neither annotated-types nor pydantic: who uses them has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec

from dragoman.tools.arguments.schemas import Definitions, Schema, described

from .choices import AnyOf
from .limits import Limit, Limited, LimitKind
from .node import Measure, Node, UnsupportedError

__all__ = ["Annotations", "Described", "annotations_of", "is_pydantic_field", "limited"]

_META_LIMITS: tuple[LimitKind, ...] = (
    "ge",
    "gt",
    "le",
    "lt",
    "multiple_of",
    "min_length",
    "max_length",
    "pattern",
    "tz",
)
_ANNOTATED_TYPES: dict[str, LimitKind] = {
    "Ge": "ge",
    "Gt": "gt",
    "Le": "le",
    "Lt": "lt",
    "MultipleOf": "multiple_of",
    "MinLen": "min_length",
    "MaxLen": "max_length",
}


class Annotations:
    """What was found beside a type."""

    def __init__(self) -> None:
        self.limits: list[Limit] = []
        self.schema: Schema = {}
        """Keywords for the schema: description, examples and whatever the user added."""
        self.alias: str = ""
        self.beyond_us: bool = False
        """Something that only pydantic can honour, such as a validator function."""

    def describe(self, text: object) -> None:
        """The first description counts."""
        if isinstance(text, str) and text.strip():
            self.schema.setdefault("description", text.strip())


def annotations_of(metadata: Iterable[object]) -> Annotations:
    """Everything that is understood of the metadata; what nobody here knows is ignored, as PEP 593 asks."""
    found = Annotations()
    for item in metadata:
        _take(item, found)
    return found


def _take(item: object, found: Annotations) -> None:
    name, module = type(item).__name__, type(item).__module__
    if isinstance(item, str):
        found.describe(item)
    elif isinstance(item, msgspec.Meta):
        _take_meta(item, found)
    elif is_pydantic_field(item):
        _take_pydantic_field(item, found)
    elif getattr(item, "__is_annotated_types_grouped_metadata__", False):  # Interval, Len, StringConstraints
        for part in cast("Iterable[object]", item):
            _take(part, found)
    elif module == "annotated_types":
        found.limits.extend(_annotated_type(item, name))
    elif module.startswith("pydantic") or hasattr(item, "__get_pydantic_core_schema__"):
        general = vars(item) if name == "_PydanticGeneralMetadata" else {}
        said = {key: value for key, value in general.items() if value is not None}
        if said.keys() == {"pattern"} and isinstance(said["pattern"], str):
            found.limits.append(Limit("pattern", said["pattern"]))
        else:
            found.beyond_us = True
    else:
        found.describe(getattr(item, "documentation", None))


def _annotated_type(item: Any, name: str) -> Iterator[Limit]:
    if name in _ANNOTATED_TYPES:
        kind = _ANNOTATED_TYPES[name]
        yield Limit(kind, getattr(item, kind))
    elif name == "Predicate":
        yield Limit("predicate", item.func)
    elif name == "Timezone":
        if item.tz is not None and item.tz is not ...:
            fix = "Use Timezone(...) for any zone, and convert in the function."
            raise UnsupportedError(f"{item!r} has no JSON form", fix)
        yield Limit("tz", item.tz is ...)


def _take_meta(meta: msgspec.Meta, found: Annotations) -> None:
    found.describe(meta.description)
    if meta.examples is not None:
        found.schema["examples"] = list(meta.examples)
    found.schema.update(meta.extra_json_schema or {})
    for kind in _META_LIMITS:
        value = getattr(meta, kind)
        if value is not None:
            found.limits.append(Limit(kind, value, foreign=False))


def is_pydantic_field(item: object) -> bool:
    """Whether this is what pydantic's `Field(...)` returns."""
    return type(item).__name__ == "FieldInfo" and type(item).__module__.startswith("pydantic")


def _take_pydantic_field(field: Any, found: Annotations) -> None:
    found.describe(field.description)
    if field.examples is not None:
        found.schema["examples"] = list(field.examples)
    if isinstance(field.json_schema_extra, dict):
        found.schema.update(cast("Schema", field.json_schema_extra))
    alias = field.validation_alias or field.alias
    found.alias = alias if isinstance(alias, str) else found.alias
    found.beyond_us = found.beyond_us or field.discriminator is not None
    for part in cast("Sequence[object]", field.metadata):
        _take(part, found)


class Described(Node):
    """A node with something more to say in its schema."""

    def __init__(self, inner: Node, extra: Schema) -> None:
        self.inner: Node = inner
        self.extra: Schema = {keyword: value for keyword, value in extra.items() if keyword != "description"}
        self.annotated: str = str(extra.get("description", ""))
        self.expected: str = inner.expected
        self.kinds: frozenset[str] = inner.kinds
        self.measure: Measure | None = inner.measure
        self.hashable: bool | None = inner.hashable
        self.tag: tuple[str, object] | None = inner.tag

    def children(self) -> tuple[Node, ...]:
        return (self.inner,)

    def schema(self, definitions: Definitions) -> Schema:
        return {**described(self.inner.schema(definitions), self.annotated), **self.extra}

    def read(self, value: object, lenient: bool) -> object:
        return self.inner.read(value, lenient)

    def wire(self) -> object:
        return self.inner.wire()


def limited(node: Node, limits: Sequence[Limit]) -> Node:
    """The node within limits; those on a union go to the members that they can apply to."""
    if not limits:
        return node
    if isinstance(node, Described):
        return Described(limited(node.inner, limits), {"description": node.annotated, **node.extra})
    if isinstance(node, Limited):
        return limited(node.inner, [*node.limits, *limits])
    if isinstance(node, AnyOf) and all(limit.kind != "predicate" for limit in limits):
        members = [limited(member, [limit for limit in limits if _applies(member, limit)]) for member in node.members]
        for limit in limits:
            if not any(_applies(member, limit) for member in node.members):
                raise _inapplicable(node, limit)
        return AnyOf(members)
    for limit in limits:
        if not Limited.allows(node, limit.kind):
            raise _inapplicable(node, limit)
    return Limited(node, limits)


def _applies(node: Node, limit: Limit) -> bool:
    if isinstance(node, AnyOf):
        return any(_applies(member, limit) for member in node.members)
    return Limited.allows(node, limit.kind)


def _inapplicable(node: Node, limit: Limit) -> UnsupportedError:
    return UnsupportedError(
        f"the limit {limit.kind}={limit.value!r} does not apply to {node.expected}",
        "Remove the limit, or put it on the type that it is meant for.",
    )
