"""From a value that fits what was sent to one that fits the given schema.

Owns: undoing the two rewrites that change values. In OpenAI's strict subset every property is required, so an optional
one may be null instead; where the given schema does not allow null, a null there means that the property is absent. In
Gemini's schemas listed numbers are texts; they become numbers again.
Must not know: validation. What does not fit stays as it is, and the tool's own check says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from .document import Document, reference_of
from .words import Schema, is_array, is_object, kind_of

__all__ = ["restored"]

_ALTERNATIVES: Final = ("anyOf", "oneOf")


def restored(value: object, schema: dict[str, object]) -> object:
    """A copy of the value as the given schema wants it: without nulls for absent properties, numbers as numbers."""
    return _Restorer(Document(schema)).value(value, [schema])


class _Restorer:
    def __init__(self, document: Document) -> None:
        self._document: Document = document
        self._answers: dict[tuple[object, ...], bool | None] = {}
        """What was found out before: a definition may be referred to from very many places."""

    def value(self, value: object, schemas: list[object]) -> object:
        visited: set[str] = set()
        applied = [one for schema in schemas for one in self._applied(schema, visited)]
        if is_array(value):
            return [self.value(item, _of_item(applied, index)) for index, item in enumerate(value)]
        if isinstance(value, str):
            fits = all(self._may_be(schema, "string", frozenset(), text=value) for schema in schemas)
            return value if fits else _listed(value, applied)
        if not is_object(value):
            return value
        return {
            name: self.value(sub, _of_property(applied, name))
            for name, sub in value.items()
            if sub is not None or not self._means_absent(name, schemas)
        }

    def _means_absent(self, name: str, schemas: list[object]) -> bool:
        """Whether null is not what the schemas want of a property, and they can do without it."""
        nothing: frozenset[str] = frozenset()
        if any(self._requires(schema, name, nothing) for schema in schemas):
            return False
        return any(self._lets_be_null(schema, name, nothing) is False for schema in schemas)

    def _target(self, schema: Schema, seen: frozenset[str]) -> tuple[object, frozenset[str]]:
        """What a schema refers to; nothing if it was followed before."""
        reference = reference_of(schema)
        pointer = self._document.pointer(reference, "") if reference is not None else None
        if pointer is None or pointer in seen:
            return True, seen
        return self._document.at(pointer), seen | {pointer}

    def _applied(self, schema: object, visited: set[str]) -> Iterator[Schema]:
        """The schema and all that stand beside it: references, `allOf`, and every alternative."""
        if is_object(schema):
            yield schema
            target, known = self._target(schema, frozenset(visited))
            visited |= known
            yield from self._applied(target, visited)
            for word in ("allOf", *_ALTERNATIVES):
                for member in _array(schema.get(word)):
                    yield from self._applied(member, visited)

    def _forms(self, schema: Schema, seen: frozenset[str]) -> Iterator[list[object]]:
        """Alternatives, as far as objects can have them."""
        for word in _ALTERNATIVES:
            branches = [one for one in _array(schema.get(word)) if self._may_be(one, "object", seen)]
            if branches:
                yield branches

    def _requires(self, schema: object, name: str, seen: frozenset[str]) -> bool:
        if not is_object(schema):
            return False
        key = ("requires", id(schema), name)
        if key not in self._answers:
            self._answers[key] = self._really_requires(schema, name, seen)
        return self._answers[key] is True

    def _really_requires(self, schema: Schema, name: str, seen: frozenset[str]) -> bool:
        target, known = self._target(schema, seen)
        return (
            name in _array(schema.get("required"))
            or self._requires(target, name, known)
            or any(self._requires(member, name, seen) for member in _array(schema.get("allOf")))
            or any(all(self._requires(one, name, seen) for one in forms) for forms in self._forms(schema, seen))
        )

    def _lets_be_null(self, schema: object, name: str, seen: frozenset[str]) -> bool | None:
        """Whether a property may be null; None if the schema says nothing of it."""
        if not is_object(schema):
            return None
        key = ("null", id(schema), name)
        if key not in self._answers:
            self._answers[key] = self._really_lets_be_null(schema, name, seen)
        return self._answers[key]

    def _really_lets_be_null(self, schema: Schema, name: str, seen: frozenset[str]) -> bool | None:
        properties = schema.get("properties")
        said: list[bool | None] = []
        if is_object(properties) and name in properties:
            said.append(self._may_be(properties[name], "null", frozenset()))
        target, known = self._target(schema, seen)
        said.append(self._lets_be_null(target, name, known))
        said.extend(self._lets_be_null(member, name, seen) for member in _array(schema.get("allOf")))
        for forms in self._forms(schema, seen):
            answers = [self._lets_be_null(one, name, seen) for one in forms]
            # Strict objects have declared properties only: where it is not declared it was not written.
            said.append(False if False in answers and True not in answers else None)
        return False if False in said else True if True in said else None

    def _may_be(self, schema: object, kind: str, seen: frozenset[str], text: str | None = None) -> bool:
        """Whether a value of a type, or a particular text, may fit; in doubt it may."""
        if not is_object(schema):
            return schema is True
        key = ("may be", id(schema), kind, text)
        if key not in self._answers:
            self._answers[key] = self._may_really_be(schema, kind, seen, text)
        return self._answers[key] is True

    def _may_really_be(self, schema: Schema, kind: str, seen: frozenset[str], text: str | None) -> bool:
        kinds = schema.get("type")
        types = _array(kinds) if is_array(kinds) else [kinds, "null" if schema.get("nullable") is True else kinds]
        if kinds is not None and kind not in types:
            return False
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if is_array(values) and not any(kind_of(value) == kind and text in (None, value) for value in values):
            return False
        target, known = self._target(schema, seen)
        return (
            self._may_be(target, kind, known, text)
            and all(self._may_be(member, kind, seen, text) for member in _array(schema.get("allOf")))
            and all(
                any(self._may_be(one, kind, seen, text) for one in branches)
                for word in _ALTERNATIVES
                if (branches := _array(schema.get(word)))
            )
        )


def _listed(text: str, schemas: list[Schema]) -> object:
    """The number that a text stands for, if such a number is listed."""
    listed: list[object] = []
    for schema in schemas:
        values = schema.get("enum")
        listed.extend(values if is_array(values) else [schema["const"]] if "const" in schema else [])
    return next((value for value in listed if kind_of(value) in ("integer", "number") and _json(value) == text), text)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _array(value: object) -> list[object]:
    return value if is_array(value) else []


def _of_property(schemas: list[Schema], name: str) -> list[object]:
    return [
        properties[name] for one in schemas if is_object(properties := one.get("properties")) and name in properties
    ]


def _of_item(schemas: list[Schema], index: int) -> list[object]:
    found: list[object] = []
    for schema in schemas:
        first = schema.get("prefixItems")
        if is_array(first) and index < len(first):
            found.append(first[index])
        elif (items := schema.get("items")) is not None and not is_array(items):
            found.append(items)
    return found
