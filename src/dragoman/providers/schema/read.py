"""From a raw JSON Schema to nodes: a simple form in which no two keywords say the same thing.

Owns: references within one document (nothing is ever fetched); reading each keyword once, in the light of a
provider's rules; merging what holds at once (`allOf`, keywords beside `$ref` or `anyOf`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Final

import msgspec
from msgspec import Struct

from dragoman.errors import ToolDefinitionError

from .rules import (
    JSON_TYPES,
    KNOWN,
    LIMITED_TYPE,
    ONLY_DESCRIBED,
    Notes,
    Rules,
    Schema,
    as_json,
    escape,
    is_array,
    is_object,
    join_texts,
    kind_is_limited,
    kind_is_one_of,
    kind_of,
    same,
    shorten,
)

_NOTHING: Final[Mapping[str, object]] = {}
_MOST_ALTERNATIVES: Final = 64
"""Alternatives of alternatives multiply; beyond this many the second ones are left out."""
_PERCENT: Final = re.compile(rb"%([0-9a-fA-F]{2})")
_NO_NUMBERS: Final = frozenset(["pattern", "format", "contentEncoding", "contentMediaType", "uniqueItems"])
_LIMIT_NOTHING: Final[Mapping[str, object]] = {"minLength": 0, "minItems": 0, "minProperties": 0, "uniqueItems": False}


def reference_of(schema: Schema) -> str | None:
    """What a schema refers to, if it does."""
    return found if isinstance(found := schema.get("$ref"), str) else None


class Document:
    """One schema, and what its references point at."""

    def __init__(self, root: Schema) -> None:
        self.root: Schema = root

    def pointer(self, reference: str, at: str) -> str:
        """The JSON pointer that a reference means. Raises if it is to another document or to nothing."""
        base, _, fragment = reference.partition("#")
        if base and base != self.root.get("$id"):
            raise ToolDefinitionError(
                f"The schema refers to another document at {at or '/'}: {reference}. Nothing is fetched.",
                hint="Put the definition under $defs of the same schema and refer to it by #/$defs/...",
            )
        pointer = _PERCENT.sub(lambda match: bytes([int(match[1], 16)]), fragment.encode()).decode(errors="replace")
        if (pointer and not pointer.startswith("/")) or self.at(pointer) is None:
            message = f"The schema refers to nothing at {at or '/'}: there is no {reference}."
            raise ToolDefinitionError(message, hint="Add the definition under $defs, and refer to it by #/$defs/...")
        return pointer

    def at(self, pointer: str) -> object:
        """The schema at a pointer; None if there is none."""
        place: object = self.root
        for step in pointer.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if is_object(place):
                place = place.get(name)
            elif is_array(place) and name.isdecimal() and int(name) < len(place):
                place = place[int(name)]
            else:
                return None
        return place if is_object(place) or isinstance(place, bool) else None


class Node(Struct, frozen=True, kw_only=True):
    """What a schema allows: a reference, or alternatives, or all the rest; besides those only words."""

    at: str
    """Where it is in the given schema, for notes."""
    annotations: Mapping[str, object] = _NOTHING
    """Title, description, default."""
    described: Mapping[str, object] = _NOTHING
    """Limits that can only be described to the model."""
    ref: str | None = None
    """A JSON pointer into the document."""
    any_of: tuple[Node, ...] = ()
    types: tuple[str, ...] | None = None
    """None: any type. Empty: nothing fits."""
    values: tuple[object, ...] | None = None
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
        said = self.ref is not None or self.any_of or self.types is not None or self.values is not None
        return not said and not self.plausible_types

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

    def with_changes(self, **changes: object) -> Node:
        """This node with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def with_words(self, a: Node, b: Node) -> Node:
        """This node with the annotations and descriptions of two others: both texts, else what comes first."""
        annotations: Schema = {**b.annotations, **a.annotations}
        if text := join_texts(a.annotations.get("description"), b.annotations.get("description")):
            annotations["description"] = text
        return self.with_changes(annotations=annotations, described=_merge_described(a.described, b.described))

    def with_types(self, types: Iterable[str]) -> Node:
        """This node for these types only, without what it says of others."""
        types, values = tuple(types), self.values
        if values is not None:
            values = tuple(value for value in values if kind_is_one_of(kind_of(value), types))
            types = types if values else ()
        node = self.with_changes(
            types=types,
            values=values,
            limits={word: value for word, value in self.limits.items() if kind_is_limited(word, types)},
            described={
                word: value
                for word, value in self.described.items()
                if word not in LIMITED_TYPE or kind_is_limited(word, types)
            },
        )
        if "object" not in types:
            node = node.with_changes(properties={}, required=(), others=None, patterned=False)
        return node if "array" in types else node.with_changes(items=None, prefix=())

    def simplified(self) -> Node:
        """This node without types that nothing fits, and without what is said of types that it does not allow."""
        types = self.types
        if self.values is not None:
            kinds = dict.fromkeys(map(kind_of, self.values))
            listed = tuple(kind for kind in kinds if kind != "integer" or "number" not in kinds)
            types = listed if types is None else types
        if any(self._forbids(name) for name in self.required):  # then no object fits
            types = tuple(
                kind for kind in types or JSON_TYPES if kind not in ("object", *([] if types else ["integer"]))
            )
        return self if types is None else self.with_types(types)

    def _forbids(self, name: str) -> bool:
        if name in self.properties:
            return self.properties[name].never
        return self.others is not None and self.others.never and not self.patterned


def alternatives(nodes: Iterable[Node], at: str) -> Node:
    """Any one of these; the node itself if there is only one."""
    found = [
        one
        for node in nodes
        for one in (node.any_of if node.any_of and not node.annotations and not node.described else (node,))
        if not one.never
    ]
    if len(found) <= 1:
        return found[0] if found else Node(at=at, types=())
    free = next((node for node in found if node.unlimited), None)
    return Node(at=at, described=free.described) if free is not None else Node(at=at, any_of=tuple(found))


class Reader:
    """Reads one document for one provider."""

    def __init__(self, document: Document, rules: Rules, notes: Notes) -> None:
        self.document: Document = document
        self._rules: Rules = rules
        self._notes: Notes = notes
        self._targets: dict[str, Node] = {}
        self._under_way: set[str] = set()

    def target(self, pointer: str) -> Node:
        """What a reference points at."""
        if pointer not in self._targets:
            self._under_way.add(pointer)
            self._targets[pointer] = node = self.node(self.document.at(pointer), pointer)
            self._under_way.discard(pointer)
            seen = {pointer}
            while node.ref is not None and node.ref not in self._under_way:
                if node.ref in seen:
                    raise ToolDefinitionError(f"The schema refers to itself and to nothing else at {pointer or '/'}.")
                seen.add(node.ref)
                node = self.target(node.ref)
        return self._targets[pointer]

    def expand(self, node: Node) -> Node:
        """The node itself, or what it refers to, with its own words before those of the target."""
        while node.ref is not None:
            if node.ref in self._under_way:
                self._notes.lost(node.at, "refers to a schema that contains it: merged without it")
                return node.with_changes(ref=None)
            target = self.target(node.ref)
            node = target.with_words(node, target)
        return node

    def node(self, schema: object, at: str) -> Node:
        """A schema as a node."""
        if isinstance(schema, bool):
            return Node(at=at) if schema else Node(at=at, types=())
        if not is_object(schema):
            raise ToolDefinitionError(f"{at} of the schema must be a schema, not {shorten(schema)}.")
        parts = [self._own(schema, at)]
        if (reference := reference_of(schema)) is not None:
            pointer = self.document.pointer(reference, at)
            parts.append(Node(at=at, types=()) if self.document.at(pointer) is False else Node(at=at, ref=pointer))
        parts.extend(self._each(schema.get("allOf"), f"{at}/allOf"))
        for word in ("anyOf", "oneOf"):
            if branches := self._each(schema.get(word), f"{at}/{word}"):
                if word == "oneOf":
                    self._notes.lost(f"{at}/oneOf", "written as anyOf: a value may fit more than one form")
                parts.append(alternatives(branches, at))
        return reduce(self._merge, parts).with_changes(at=at)

    def _each(self, schemas: object, at: str) -> list[Node]:
        return [self.node(sub, f"{at}/{index}") for index, sub in enumerate(schemas if is_array(schemas) else [])]

    # --- one schema without its combinators ---------------------------------------------------------------------------

    def _own(self, schema: Schema, at: str) -> Node:
        types = self._types(schema, at)
        described = self._only_described(schema, at)
        limits = self._limits(schema, types, described, at)
        values = self._values(schema, described, at)
        if values is None and "enum" in described and types is None:
            types = tuple(dict.fromkeys(kind_of(value) for value in _array(described["enum"])))
        items, prefix = self._items(schema, at)
        others = schema.get("additionalProperties")
        return Node(
            at=at,
            annotations=self._annotations(schema, at),
            described=described,
            types=types,
            values=values,
            limits=limits,
            properties={
                name: self.node(sub, f"{at}/properties/{escape(name)}")
                for name, sub in _object(schema.get("properties")).items()
            },
            required=tuple(name for name in _array(schema.get("required")) if isinstance(name, str)),
            others=None if others is None else self.node(others, f"{at}/additionalProperties"),
            patterned=bool(schema.get("patternProperties")),
            items=items,
            prefix=prefix,
        ).simplified()

    def _annotations(self, schema: Schema, at: str) -> Schema:
        found = {word: text for word in ("title", "description") if isinstance(text := schema.get(word), str)}
        words: list[str] = []
        whole: Schema = dict(found)
        if "default" in schema and "default" in self._rules.annotations:
            whole["default"] = schema["default"]
        elif "default" in schema:
            words.append(f"Default: {as_json(schema['default'])}.")
            self._notes.rewritten(f"{at}/default", "told in the description")
        examples = [*_array(schema.get("examples")), *([schema["example"]] if "example" in schema else [])]
        if examples:
            words.append(f"Examples: {', '.join(map(as_json, examples))}.")
            self._notes.rewritten(f"{at}/examples", "told in the description")
        if schema.get("deprecated") is True:
            words.append("Deprecated.")
        if words:
            whole["description"] = join_texts(found.get("description"), *words)
        for word in schema.keys() - KNOWN:
            self._notes.rewritten(f"{at}/{word}", "removed, the provider does not know it")
        return whole

    def _types(self, schema: Schema, at: str) -> tuple[str, ...] | None:
        if "type" not in schema:
            return None
        written = schema["type"]
        # Upper case is how Gemini writes them.
        words = [str(word).lower() for word in (written if is_array(written) else [written])]
        if not words or not all(word in JSON_TYPES for word in words):
            self._notes.lost(f"{at}/type", f"{shorten(written)} is no type, read as any")
            return None
        if schema.get("nullable") is True:
            words.append("null")
        return tuple(dict.fromkeys(word for word in words if word != "integer" or "number" not in words))

    def _only_described(self, schema: Schema, at: str) -> Schema:
        found = {
            word: schema[word]
            for word in sorted(ONLY_DESCRIBED & schema.keys())
            if (schema[word] not in (True, {}) or word in ("not", "contains"))
            and not (word == "unevaluatedProperties" and schema[word] is False)  # only declared ones are written
        }
        for word, value in found.items():
            self._notes.only_described(at, word, value)
        return found

    def _items(self, schema: Schema, at: str) -> tuple[Node | None, tuple[Node, ...]]:
        items, first, place = schema.get("items"), schema.get("prefixItems"), "prefixItems"
        if is_array(items):  # how it was written before 2020-12
            items, first, place = schema.get("additionalItems"), items, "items"
        prefix = self._each(first, f"{at}/{place}")
        impossible = next((index for index, node in enumerate(prefix) if node.never), None)
        if impossible is not None:  # then no array is longer
            return prefix[impossible], tuple(prefix[:impossible])
        return (None if items is None else self.node(items, f"{at}/items")), tuple(prefix)

    def _values(self, schema: Schema, described: Schema, at: str) -> tuple[object, ...] | None:
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if not is_array(values):
            return None
        if schema.get("nullable") is True and None not in values:
            values = [*values, None]
        if not self._rules.strict or not any(kind_of(value) in ("array", "object") for value in values):
            return tuple(values)
        self._notes.only_described(at, "enum", values)
        described["enum"] = values
        return None

    def _limits(self, schema: Schema, types: tuple[str, ...] | None, described: Schema, at: str) -> Schema:
        """The limits that the provider knows; the others are added to what is only described."""
        limits: Schema = {}
        for given, value in schema.items():
            word = given
            if given in ("minimum", "maximum") and schema.get(exclusive := f"exclusive{given.title()}") is True:
                word = exclusive  # as draft 4 and OpenAPI 3.0 write it
            if word not in LIMITED_TYPE or (types is not None and not kind_is_limited(word, types)):
                continue
            if (given.startswith("exclusive") and isinstance(value, bool)) or same(value, _LIMIT_NOTHING.get(word)):
                continue
            if word not in _NO_NUMBERS and kind_of(value) not in ("integer", "number"):
                self._notes.lost(f"{at}/{word}", f"{shorten(value)} is no number, removed")
                continue
            tighter = _tighter(word, limits.get(word), value) if self._knows(word, value, types) else None
            if tighter is not None:
                limits[word] = tighter
            else:
                described[word] = value
                self._notes.only_described(at, word, value)
        return limits

    def _knows(self, word: str, value: object, types: tuple[str, ...] | None) -> bool:
        rules = self._rules
        if word not in rules.limits:
            return False
        if word == "format":
            return any(rules.takes(word, value, kind) for kind in types or ("string",))
        if word == "pattern":
            return isinstance(value, str) and re.search(rules.unknown_in_patterns, value) is None
        if word == "minItems" and rules.highest_min_items is not None:
            return isinstance(value, int) and value <= rules.highest_min_items
        return True

    # --- what holds at once -------------------------------------------------------------------------------------------

    def _merge(self, a: Node, b: Node) -> Node:
        """What fits both. Words of the first come first."""
        if a.never or b.never:
            return Node(at=a.at, types=())
        if a.unlimited or b.unlimited or (a.ref is not None and a.ref == b.ref):
            return (b if a.unlimited else a).with_words(a, b)
        if a.ref is not None or b.ref is not None:
            return self._merge(self.expand(a), self.expand(b))
        return self._distribute(a, b) if a.any_of or b.any_of else self._merge_plain(a, b)

    def _distribute(self, a: Node, b: Node) -> Node:
        """What stands beside alternatives goes into each of them; its words stay outside."""
        of_a = a.any_of or (a.with_changes(annotations={}, described={}),)
        of_b = b.any_of or (b.with_changes(annotations={}, described={}),)
        if len(of_a) * len(of_b) > _MOST_ALTERNATIVES:
            self._notes.lost(b.at, f"{len(of_a) * len(of_b)} alternatives are too many, some are left out")
            return a.with_words(a, b)
        both = alternatives([self._merge(x, y) for x in of_a for y in of_b], a.at)
        return both.with_words(Node(at=a.at).with_words(a, b), both)

    def _merge_plain(self, a: Node, b: Node) -> Node:
        limits, clashing = self._merge_limits(a, b)
        names = dict.fromkeys([*a.properties, *b.properties])
        places = range(max(len(a.prefix), len(b.prefix)))
        properties = {
            name: self._merge_said([a.properties.get(name, a.others), b.properties.get(name, b.others)])
            for name in names
        }
        prefix = [
            self._merge_said([node.prefix[index] if index < len(node.prefix) else node.items for node in (a, b)])
            for index in places
        ]
        merged = Node(
            at=a.at,
            described=clashing,
            types=merge_types(a.types, b.types),
            values=_merge_values(a.values, b.values),
            limits=limits,
            properties={name: node for name, node in properties.items() if node is not None},
            required=tuple(dict.fromkeys([*a.required, *b.required])),
            others=self._merge_said([a.others, b.others]),
            patterned=a.patterned or b.patterned,
            items=self._merge_said([a.items, b.items]),
            prefix=tuple(node for node in prefix if node is not None),
        )
        return merged.with_words(Node(at=a.at).with_words(a, b), merged).simplified()

    def _merge_said(self, nodes: Sequence[Node | None]) -> Node | None:
        said = [node for node in nodes if node is not None]
        return reduce(self._merge, said) if said else None

    def _merge_limits(self, a: Node, b: Node) -> tuple[Schema, Schema]:
        """The tighter limit of each kind; and those that cannot be said together."""
        limits: Schema = dict(a.limits)
        clashing: Schema = {}
        for word, value in b.limits.items():
            tighter = _tighter(word, limits.get(word), value)
            if tighter is not None:
                limits[word] = tighter
            else:
                self._notes.only_described(b.at, word, value)
                clashing[word] = value
        return limits, clashing


def _merge_described(a: Mapping[str, object], b: Mapping[str, object]) -> Schema:
    first, second = dict(a), dict(b)
    if first.keys() & second.keys():
        return first if same(first, second) else {"allOf": [first, second]}
    return {**first, **second}


def merge_types(a: tuple[str, ...] | None, b: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The types of values that are of both; None: any."""
    if a is None or b is None:
        return b if a is None else a
    both = [kind for kind in JSON_TYPES if kind_is_one_of(kind, a) and kind_is_one_of(kind, b)]
    return tuple(kind for kind in both if kind != "integer" or "number" not in both)


def _merge_values(a: tuple[object, ...] | None, b: tuple[object, ...] | None) -> tuple[object, ...] | None:
    if a is None or b is None:
        return b if a is None else a
    return tuple(value for value in a if any(same(value, other) for other in b))


def _tighter(word: str, a: object, b: object) -> object:
    """The limit that holds where both do; None if it cannot be said as one."""
    if a is None or same(a, b):
        return b
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return None
    if word == "multipleOf":
        return math.lcm(a, b) if isinstance(a, int) and isinstance(b, int) else None
    return min(a, b) if "max" in word.lower() else max(a, b)


def _object(value: object) -> Schema:
    return value if is_object(value) else {}


def _array(value: object) -> list[object]:
    return value if is_array(value) else []
