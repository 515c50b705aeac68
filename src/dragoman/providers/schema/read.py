"""From a raw JSON Schema to nodes.

Owns: reading each keyword once, in the light of a provider's rules; what the provider cannot enforce is put into words.
Must not know: how the provider's schema is written (closed.py, gemini.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import reduce
from typing import Final

import msgspec

from dragoman.errors import ToolDefinitionError

from .document import REFERENCES, Document, reference_of
from .meet import Meeting, without_impossible_objects
from .node import Node, alternatives, kind_is_one_of, kinds_of
from .notes import Notes, joined
from .rules import Rules
from .words import (
    ANNOTATIONS,
    JSON_TYPES,
    LIMITED_TYPE,
    META,
    Schema,
    is_array,
    is_object,
    is_true_schema,
    kind_is_limited,
    kind_of,
    same,
    shown,
)

__all__ = ["Reader"]

_ONLY_DESCRIBED: Final = frozenset(
    [
        "contains",
        "contentSchema",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "if",
        "maxContains",
        "minContains",
        "not",
        "patternProperties",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
_STRUCTURE: Final = frozenset(
    [
        "$defs",
        "additionalItems",
        "additionalProperties",
        "allOf",
        "anyOf",
        "const",
        "definitions",
        "enum",
        "items",
        "nullable",
        "oneOf",
        "prefixItems",
        "properties",
        "required",
        "type",
        *REFERENCES,
    ]
)
_KNOWN: Final = _ONLY_DESCRIBED | _STRUCTURE | ANNOTATIONS | META | LIMITED_TYPE.keys()
_PLAIN_NUMBERS: Final = frozenset(LIMITED_TYPE) - {
    "pattern",
    "format",
    "contentEncoding",
    "contentMediaType",
    "uniqueItems",
}
# Limits that limit nothing.
_IDLE: Final[tuple[tuple[str, object], ...]] = (
    ("minLength", 0),
    ("minItems", 0),
    ("minProperties", 0),
    ("uniqueItems", False),
)


class Reader:
    """Reads one document for one provider."""

    def __init__(self, document: Document, rules: Rules, notes: Notes) -> None:
        self._document: Document = document
        self._rules: Rules = rules
        self._notes: Notes = notes
        self._meeting: Meeting = Meeting(notes, self.expanded)
        self._targets: dict[str, Node] = {}
        self._under_way: set[str] = set()

    def target(self, pointer: str) -> Node:
        """What a reference points at."""
        if pointer not in self._targets:
            self._under_way.add(pointer)
            self._targets[pointer] = node = self.node(self._document.at(pointer), pointer)
            self._under_way.discard(pointer)
            self._leads_somewhere(node, pointer)
        return self._targets[pointer]

    def _leads_somewhere(self, node: Node, pointer: str) -> None:
        """Refuse references that only lead to each other."""
        seen = {pointer}
        while node.ref is not None and node.ref not in self._under_way:
            if node.ref in seen:
                raise ToolDefinitionError(f"The schema refers to itself and to nothing else at {pointer or '/'}.")
            seen.add(node.ref)
            node = self.target(node.ref)

    def expanded(self, node: Node) -> Node:
        """The node itself, or what it refers to, with its own annotations before those of the target."""
        while node.ref is not None:
            if node.ref in self._under_way:
                self._notes.lost(node.at, "refers to a schema that contains it: merged without it")
                return Node(at=node.at, told=node.told)
            node = self.target(node.ref).telling(node.told)
        return node

    def node(self, schema: object, at: str) -> Node:
        """A schema as a node."""
        if not is_object(schema):
            if isinstance(schema, bool):
                return Node(at=at) if schema else Node(at=at, types=())
            raise ToolDefinitionError(f"{at} of the schema must be a schema, not {shown(schema)}.")
        parts = [self._plain(schema, at)]
        if (reference := reference_of(schema)) is not None:
            pointer = self._document.pointer(reference, at)
            parts.append(Node(at=at, types=()) if self._document.at(pointer) is False else Node(at=at, ref=pointer))
        if is_array(members := schema.get("allOf")):
            parts.extend(self.node(member, f"{at}/allOf/{index}") for index, member in enumerate(members))
        parts.extend(
            self._alternatives(branches, word, f"{at}/{word}")
            for word in ("anyOf", "oneOf")
            if is_array(branches := schema.get(word)) and branches
        )
        return reduce(self._meeting.meet, parts).with_changes(at=at)

    def _alternatives(self, branches: list[object], word: str, at: str) -> Node:
        nodes = [self.node(branch, f"{at}/{index}") for index, branch in enumerate(branches)]
        if word == "oneOf":
            if all(self._apart(a, b) for index, a in enumerate(nodes) for b in nodes[:index]):
                self._notes.rewritten(at, "written as anyOf; the forms exclude each other")
            else:
                self._notes.lost(at, "written as anyOf: a value may fit more than one form")
        return alternatives(nodes, at)

    def _apart(self, a: Node, b: Node, levels: int = 4) -> bool:
        """Whether two nodes certainly have no value in common. Recursive ones are looked at a few levels deep."""
        if not levels:
            return False
        a, b = (self._peeked(node) for node in (a, b))
        if a.never or b.never:
            return True
        if a.any_of or b.any_of:
            return all(self._apart(x, y, levels - 1) for x in a.any_of or (a,) for y in b.any_of or (b,))
        if a.types is None or b.types is None:
            return False
        common = [kind for kind in JSON_TYPES if kind_is_one_of(kind, a.types) and kind_is_one_of(kind, b.types)]
        if not common or (a.values is not None and b.values is not None and _no_common_value(a.values, b.values)):
            return True
        return common == ["object"] and any(
            name in a.properties
            and name in b.properties
            and self._apart(a.properties[name], b.properties[name], levels - 1)
            for name in a.required
            if name in b.required
        )

    def _peeked(self, node: Node) -> Node:
        return node if node.ref is None or node.ref in self._under_way else self._peeked(self.target(node.ref))

    # --- one schema without its combinators -------------------------------------------------------------------------

    def _plain(self, schema: Schema, at: str) -> Node:
        types = self._types(schema, at)
        described = self._only_described(schema, at)
        limits = self._limits(schema, types, described, at)
        properties = _object(schema.get("properties"))
        items, prefix = self._items(schema, at)
        node = Node(
            at=at,
            told=self._told(schema, at),
            described=described,
            types=types,
            limits=limits,
            properties={name: self.node(sub, f"{at}/properties/{_step(name)}") for name, sub in properties.items()},
            required=tuple(name for name in _array(schema.get("required")) if isinstance(name, str)),
            others=self._others(schema, at),
            patterned=bool(_object(schema.get("patternProperties"))),
            items=items,
            prefix=prefix,
        )
        return without_impossible_objects(self._valued(node, schema, at).pruned())

    def _told(self, schema: Schema, at: str) -> Schema:
        told = {word: schema[word] for word in ("title", "description", "default") if word in schema}
        words: list[str] = []
        if "default" in told and "default" not in self._rules.annotations:
            words.append(f"Default: {_json(told.pop('default'))}.")
            self._notes.rewritten(f"{at}/default", "told in the description")
        examples = [*_array(schema.get("examples")), *([schema["example"]] if "example" in schema else [])]
        if examples:
            words.append(f"Examples: {', '.join(_json(example) for example in examples)}.")
            self._notes.rewritten(f"{at}/examples", "told in the description")
        if schema.get("deprecated") is True:
            words.append("Deprecated.")
        told = {word: text for word, text in told.items() if word == "default" or isinstance(text, str)}
        if words:
            told["description"] = joined(told.get("description"), *words)
        for word in schema:
            if word not in _KNOWN:
                self._notes.removed(at, word)
        return told

    def _types(self, schema: Schema, at: str) -> tuple[str, ...] | None:
        if "type" not in schema:
            return None
        written = schema["type"]
        # Upper case is how Gemini writes them.
        words = [str(word).lower() for word in (written if is_array(written) else [written])]
        if not words or not all(word in JSON_TYPES for word in words):
            self._notes.lost(f"{at}/type", f"{shown(written)} is no type, read as any")
            return None
        if schema.get("nullable") is True:
            words.append("null")
        if "number" in words:
            words = [word for word in words if word != "integer"]
        return tuple(dict.fromkeys(words))

    def _only_described(self, schema: Schema, at: str) -> Schema:
        found: Schema = {}
        for word in sorted(_ONLY_DESCRIBED & schema.keys()):
            value = schema[word]
            if is_true_schema(value) and word not in ("not", "contains"):
                continue
            if word == "unevaluatedProperties" and value is False:
                continue  # no provider writes properties that are not declared
            found[word] = value
            self._notes.only_described(at, word, value)
        others = schema.get("additionalProperties")
        if is_object(others) and others and not self._rules.closes_objects:
            found["additionalProperties"] = others
            self._notes.only_described(at, "additionalProperties", others)
        return found

    def _others(self, schema: Schema, at: str) -> Node | None:
        value = schema.get("additionalProperties")
        return None if value is None else self.node(value, f"{at}/additionalProperties")

    def _items(self, schema: Schema, at: str) -> tuple[Node | None, tuple[Node, ...]]:
        items, first = schema.get("items"), schema.get("prefixItems")
        place = "prefixItems"
        if is_array(items):  # how it was written before 2020-12
            items, first, place = schema.get("additionalItems"), items, "items"
        prefix = [self.node(sub, f"{at}/{place}/{index}") for index, sub in enumerate(_array(first))]
        impossible = next((index for index, node in enumerate(prefix) if node.never), None)
        if impossible is not None:  # then no array is longer
            return prefix[impossible], tuple(prefix[:impossible])
        return (None if items is None else self.node(items, f"{at}/items")), tuple(prefix)

    def _valued(self, node: Node, schema: Schema, at: str) -> Node:
        """The node with its listed values, if it has any."""
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if not is_array(values):
            return node
        if schema.get("nullable") is True and None not in values:
            values = [*values, None]
        if not self._rules.complex_values and any(kind_of(value) in ("array", "object") for value in values):
            self._notes.only_described(at, "enum", values)
            node = node.with_changes(described={**node.described, "enum": values})
            kinds = kinds_of(values)
            return node.with_types(kinds if node.types is None else _common(kinds, node.types))
        node = node.with_changes(values=tuple(values), const="const" in schema)
        return node.with_types(kinds_of(values) if node.types is None else node.types)

    # --- limits ------------------------------------------------------------------------------------------------------

    def _limits(self, schema: Schema, types: tuple[str, ...] | None, described: Schema, at: str) -> Schema:
        """The limits that the provider knows; the others are added to what is only described."""
        limits: Schema = {}
        for word, value in _with_numeric_exclusives(schema).items():
            if word not in LIMITED_TYPE or (types is not None and not kind_is_limited(word, types)):
                continue
            if any(word == idle and same(value, nothing) for idle, nothing in _IDLE):
                continue
            if word in _PLAIN_NUMBERS and kind_of(value) not in ("integer", "number"):
                self._notes.lost(f"{at}/{word}", f"{shown(value)} is no number, removed")
            elif self._knows(word, value, types):
                limits[word] = _tightest(word, value, limits.get(word))
            elif (nearest := _inclusive(word, value)) is not None and nearest[0] in self._rules.limits:
                name, bound = nearest
                if types == ("integer",):
                    self._notes.rewritten(f"{at}/{word}", f"{shown(value)} -> {name} {bound}")
                else:
                    bound = described[word] = value
                    self._notes.only_described(at, word, value)
                limits[name] = _tightest(name, bound, limits.get(name))
            else:
                described[word] = value
                self._notes.only_described(at, word, value)
        return limits

    def _knows(self, word: str, value: object, types: tuple[str, ...] | None) -> bool:
        rules = self._rules
        if word not in rules.limits:
            return False
        if word == "format":
            return any(rules.takes_format(value, kind) for kind in types or ("string",))
        if word == "pattern":
            return isinstance(value, str) and re.search(rules.unknown_in_patterns, value) is None
        if word == "minItems" and rules.highest_min_items is not None:
            return isinstance(value, int) and value <= rules.highest_min_items
        return True


def _with_numeric_exclusives(schema: Schema) -> Mapping[str, object]:
    """Draft 4 wrote `"minimum": 0, "exclusiveMinimum": true`."""
    copy = schema
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        written = schema.get(exclusive)
        if isinstance(written, bool):
            copy = {word: value for word, value in copy.items() if word != exclusive}
            if written and inclusive in copy:
                copy = {(exclusive if word == inclusive else word): value for word, value in copy.items()}
    return copy


def _inclusive(word: str, value: object) -> tuple[str, object] | None:
    """An exclusive limit of integers, as an inclusive one."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if word == "exclusiveMinimum":
        return "minimum", math.floor(value) + 1
    if word == "exclusiveMaximum":
        return "maximum", math.ceil(value) - 1
    return None


def _tightest(word: str, a: object, b: object) -> object:
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return a if b is None else b
    return min(a, b) if word.startswith("max") else max(a, b)


def _no_common_value(a: tuple[object, ...], b: tuple[object, ...]) -> bool:
    return not any(same(value, other) for value in a for other in b)


def _common(kinds: tuple[str, ...], types: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(kind for kind in kinds if kind_is_one_of(kind, types))


def _object(value: object) -> Schema:
    return value if is_object(value) else {}


def _array(value: object) -> list[object]:
    return value if is_array(value) else []


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _step(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
