"""Gemini's own schemas: the subset of OpenAPI that `parameters` and `responseSchema` take.

Owns: writing nodes as such schemas. There is one type and `nullable` instead of a list of types, no references, listed
values are texts, and beside `anyOf` nothing may stand.
Must not know: how schemas are read.

Where a model takes `parametersJsonSchema` and `responseJsonSchema` none of this is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import msgspec

from .node import Node
from .notes import Notes, described, joined
from .positions import without_positions
from .read import Reader
from .rules import GEMINI
from .words import LIMITED_TYPE, Schema, distinct, kind_is_limited, kind_of, ordered, shown

__all__ = ["Writer"]

DEEPEST_RECURSION: Final = 2
"""How often a schema may contain itself before it is cut."""
MOST_NODES: Final = 2_000
"""References are written out, and what is referred to twice doubles; beyond this size they are cut."""

_ANY: Final = ("string", "number", "boolean", "object", "array", "null")
_ANY_ITEM: Final = ("string", "number", "boolean", "object")
"""Items must be described, and those of an array in an array would have to be described again, without an end."""


class Writer:
    """Writes one document."""

    def __init__(self, reader: Reader, notes: Notes) -> None:
        self._reader: Reader = reader
        self._notes: Notes = notes
        self._open: list[str] = []
        """References that are being written out, the outermost first."""
        self._nodes: int = 0

    def root(self, node: Node) -> Schema:
        """The root, which is an object."""
        return self._one(node, "object")

    def schema(self, node: Node) -> Schema:
        """One node."""
        self._nodes += 1
        if node.ref is not None:
            return self._reference(node, node.ref)
        if node.never:
            self._notes.lost(node.at, "nothing fits, but that cannot be said")
            node = Node(at=node.at, told={"description": "Nothing fits here."})
        if node.any_of:
            return self._union([self.schema(one) for one in node.any_of], node.told, nullable=False)
        if node.prefix:
            node = without_positions(node, self._notes, length=True)
        types = node.plausible_types
        if node.types is None:
            self._notes.rewritten(f"{node.at}/type", f"added: {', '.join(types)}" if types else "added: any of them")
        types = types or _ANY
        kinds = [kind for kind in types if kind != "null"]
        if node.values is not None:
            written = self._listed(node)
        else:
            written = [self._one(node.with_changes(told={}), kind) for kind in kinds]
        nullable = "null" in types and (node.values is None or None in node.values)
        return self._union(written, node.told, nullable=nullable)

    def _union(self, written: list[Schema], told: Mapping[str, object], *, nullable: bool) -> Schema:
        """Any one of these; words and `nullable` move into them, since nothing may stand beside `anyOf`."""
        flat: list[Schema] = []
        for one in written:
            inner = one.get("anyOf")
            flat.extend(cast("list[Schema]", inner) if inner is not None else [one])
        nullable = nullable or any(one["type"] == "NULL" for one in flat)
        kept = distinct([{**one, "nullable": True} if nullable else one for one in flat if one["type"] != "NULL"])
        if not kept:
            return _worded({"type": "NULL"}, told)
        if len(kept) == 1:
            return _worded(kept[0], told)
        words = joined(told.get("title"), told.get("description"))
        if "default" in told:
            words = joined(words, f"Default: {_json(told['default'])}.")
        return {"anyOf": [_worded(kept[0], {"description": words} if words else {}), *kept[1:]]}

    def _one(self, node: Node, kind: str) -> Schema:
        """A node of one type."""
        schema: Schema = {"type": kind.upper()}
        schema |= {word: value for word, value in node.limits.items() if GEMINI.applies(word, value, kind)}
        hidden = {
            word: value
            for word, value in node.described.items()
            if word not in LIMITED_TYPE or kind_is_limited(word, [kind])
        }
        if kind == "object":
            schema |= self._members(node)
        elif kind == "array":
            schema |= self._elements(node)
        text = described(schema.get("description"), hidden)
        return _worded({**schema, "description": text} if text else schema, node.told)

    # --- listed values -----------------------------------------------------------------------------------------------

    def _listed(self, node: Node) -> list[Schema]:
        """Values as texts, since others are refused; as limits or as a type, where that says the same."""
        values = distinct([value for value in node.values or () if value is not None])
        schemas: list[Schema] = []
        texts = [value for value in values if isinstance(value, str)]
        flags = [value for value in values if isinstance(value, bool)]
        numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        if numbers and (bounds := _bounds(numbers)) is not None:
            schemas.append(bounds)
            self._notes.rewritten(f"{node.at}/enum", f"{shown(numbers)} -> minimum and maximum")
        elif numbers:
            texts.extend(_json(number) for number in numbers)
            self._notes.rewritten(f"{node.at}/enum", f"{shown(numbers)} -> texts, and so they come back")
        if len(flags) == 1:
            self._notes.only_described(node.at, "enum", flags)
            schemas.append({"type": "BOOLEAN", "description": f"Must be {_json(flags[0])}."})
        elif flags:
            schemas.append({"type": "BOOLEAN"})
        if "" in texts:
            self._notes.rewritten(f"{node.at}/enum", "the empty text removed, it is refused")
            texts = [text for text in texts if text]
            if not texts:
                schemas.append({"type": "STRING", "maxLength": 0})
        if texts:
            schemas.append({"type": "STRING", "enum": list(dict.fromkeys(texts))})
        hidden = described(None, dict(node.described))
        return [_worded(schema, {"description": hidden} if hidden else {}) for schema in schemas]

    # --- objects and arrays ------------------------------------------------------------------------------------------

    def _members(self, node: Node) -> Schema:
        """The part of a schema that is about objects."""
        properties = {name: sub for name, sub in node.properties.items() if not sub.never}
        for name, sub in node.properties.items():
            if sub.never:
                self._notes.lost(sub.at, f"{name!r} is forbidden, now it is only not mentioned")
        for name in node.required:
            if name not in node.properties:
                self._notes.rewritten(f"{node.at}/required", f"{name!r} is described as any value")
                properties[name] = Node(at=f"{node.at}/properties/{name}")
        if node.others is not None and node.others.never:
            what = "removed, only declared properties are written anyway"
            self._notes.rewritten(f"{node.at}/additionalProperties", what)
        written = {name: self.schema(sub) for name, sub in properties.items()}
        schema: Schema = {"properties": written} if written or not node.at else {}
        required = [name for name in node.required if name in properties]
        return {**schema, "required": required} if required else schema

    def _elements(self, node: Node) -> Schema:
        """The part of a schema that is about arrays; items must be described."""
        if node.items is not None and node.items.never:
            self._notes.rewritten(f"{node.at}/items", "nothing fits, so there are none")
            return {"maxItems": 0, "items": {"type": "STRING"}}
        if node.items is None or node.items.unlimited:
            self._notes.rewritten(f"{node.at}/items", f"added: {', '.join(_ANY_ITEM)}")
            item = node.items or Node(at=f"{node.at}/items")
            return {"items": self.schema(item.with_types(_ANY_ITEM))}
        return {"items": self.schema(node.items)}

    # --- references --------------------------------------------------------------------------------------------------

    def _reference(self, node: Node, pointer: str) -> Schema:
        target = self._reader.target(pointer)
        name = pointer.rpartition("/")[2] or "the whole"
        if self._open.count(pointer) >= DEEPEST_RECURSION or self._nodes > MOST_NODES:
            why = "contains itself" if pointer in self._open else "is too large to be written out again"
            self._notes.lost(node.at, f"{name} {why}: cut off")
            told = {"description": joined(node.told.get("description"), f"Of the same form as {name}.")}
            return self.schema(Node(at=node.at, types=self._reader.expanded(target).plausible_types or None, told=told))
        self._open.append(pointer)
        if pointer not in self._open[:-1]:
            self._notes.rewritten(node.at, f"{name} written out")
        schema = self.schema(target.telling(node.told))
        self._open.pop()
        return schema


def _bounds(numbers: list[int | float]) -> Schema | None:
    """Integers without a gap, as limits."""
    if any(kind_of(number) != "integer" for number in numbers):
        return None
    whole = sorted({int(number) for number in numbers})
    if whole[-1] - whole[0] + 1 != len(whole):
        return None
    return {"type": "INTEGER", "minimum": whole[0], "maximum": whole[-1]}


def _worded(schema: Schema, told: Mapping[str, object]) -> Schema:
    """A schema with annotations; its own description comes last."""
    whole = {**schema, **told}
    text = joined(told.get("description"), schema.get("description"))
    if text:
        whole["description"] = text
    default = whole.get("default")
    if "enum" in whole and default is not None and not isinstance(default, str):
        whole["default"] = _json(default)
    return ordered(whole)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
