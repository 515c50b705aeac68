"""Nulls that stand for absent properties: models write null where they mean to leave a property out.

Strict schemas even make them do so. The schema is walked along the value, so the cost does not multiply with the
alternatives on each level, as that of listing every problem does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from .problems import Path, is_array, is_object, kind_of
from .schemas import Schema, find_target

# Each schema comes with whether it is one of several alternatives; if not, a value must fit it.


def unwanted_nulls(root: Schema, value: object) -> list[Path]:
    """Where a declared property is null and must not be."""
    found: list[Path] = []
    known: dict[int, bool] = {}
    """Whether schemas take null, by their ids."""

    def is_refused(declared: Sequence[tuple[object, bool]]) -> bool:
        for sub, _ in declared:
            if id(sub) not in known:
                known[id(sub)] = _takes_null(root, sub, frozenset())
        alternatives = [known[id(sub)] for sub, is_one in declared if is_one]
        required = [known[id(sub)] for sub, is_one in declared if not is_one]
        return not all(required) or (bool(alternatives) and not any(alternatives))

    def visit(value: object, schemas: Sequence[tuple[object, bool]], path: Path) -> None:
        every = [part for schema, is_one in schemas for part in _expand(root, schema, is_one, set())]
        every = list({(id(schema), is_one): (schema, is_one) for schema, is_one in every}.values())
        parts = [(schema, is_one) for schema, is_one in every if _may_fit(schema, value)]
        if is_array(value):
            for index, item in enumerate(value):
                visit(item, [(_item(schema, index), is_one) for schema, is_one in parts], (*path, index))
        elif is_object(value):
            for name, member in value.items():
                declared = _declared(name, parts)
                if isinstance(member, list | dict):
                    others = [(sub, is_one) for schema, is_one in parts for sub in _undeclared(schema)]
                    visit(cast("object", member), declared or others, (*path, name))
                elif member is None and (is_refused(declared) if declared else _declared(name, every)):
                    found.append((*path, name))

    visit(value, [(root, False)], ())
    return found


def _expand(root: Schema, schema: object, is_one: bool, followed: set[str]) -> Iterator[tuple[Schema, bool]]:
    """A schema, and those that it refers to or combines."""
    if not is_object(schema):
        return
    yield schema, is_one
    target = schema.get("$ref")
    if isinstance(target, str) and target not in followed:
        followed.add(target)
        yield from _expand(root, find_target(root, target), is_one, followed)
    for word in ("allOf", "anyOf", "oneOf"):
        for branch in _branches(schema, word):
            yield from _expand(root, branch, is_one or word != "allOf", followed)


def _may_fit(schema: Schema, value: object) -> bool:
    """Whether the types and the listed values of a schema, and of its properties, allow a value."""
    members = value if is_object(value) else {}
    return _allows(schema, value) and all(
        _allows(sub, members[name])
        for name, sub in _properties(schema).items()
        if is_object(sub) and members.get(name) is not None
    )


def _takes_null(root: Schema, schema: object, followed: frozenset[str]) -> bool:
    if not is_object(schema):
        return schema is True
    if not _allows(schema, None) or ("not" in schema and _takes_null(root, schema["not"], followed)):
        return False
    target = schema.get("$ref")
    if isinstance(target, str) and target not in followed:
        followed |= {target}
        if not _takes_null(root, find_target(root, target), followed):
            return False
    takes = {
        word: [_takes_null(root, branch, followed) for branch in _branches(schema, word)]
        for word in ("allOf", "anyOf", "oneOf")
    }
    return all(takes["allOf"]) and all(any(takes[word]) for word in ("anyOf", "oneOf") if takes[word])


def _allows(schema: Schema, value: object) -> bool:
    """Whether the types and the listed values of a schema itself allow a value."""
    types, kind = schema.get("type", []), kind_of(value)
    types = types if is_array(types) else [types]
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    is_number = kind in ("integer", "number") and ("integer" in types or "number" in types)
    return (not types or kind in types or is_number) and (not is_array(values) or value in values)


def _branches(schema: Schema, word: str) -> list[object]:
    return branches if is_array(branches := schema.get(word)) else []


def _properties(schema: Schema) -> Schema:
    return properties if is_object(properties := schema.get("properties")) else {}


def _declared(name: str, parts: Sequence[tuple[Schema, bool]]) -> list[tuple[object, bool]]:
    return [(_properties(schema)[name], is_one) for schema, is_one in parts if name in _properties(schema)]


def _undeclared(schema: Schema) -> list[object]:
    """The schemas of properties that are not declared."""
    patterns = schema.get("patternProperties")
    return [schema.get("additionalProperties"), *(patterns.values() if is_object(patterns) else [])]


def _item(schema: Schema, index: int) -> object:
    prefix = schema.get("prefixItems")
    return prefix[index] if is_array(prefix) and index < len(prefix) else schema.get("items")
