"""JSON Schemas of all sorts, and values for them, for property tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any
from urllib.parse import quote, unquote

DEFINITIONS = ("Tree", "pair of/things", "Leaf")
NAMES = ("a", "b", "kind", "x/y", "ü ~ 1")
PATTERNS = {"^a+$": "aaa", "[0-9]{2}": "42", "^(?!x)y": "y", r"\bword\b": "a word"}
TEXTS = ("", "a", "aaa", "42", "y", "a word", "2020-01-01", "1", "2.5")
SCALARS: tuple[Any, ...] = (None, True, False, 0, 1, 2, 3, -1, 2.5, 1.0, *TEXTS)
TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")

_LIMITS: dict[str, tuple[Any, ...]] = {
    "minLength": (0, 1, 3),
    "maxLength": (0, 2, 4),
    "pattern": tuple(PATTERNS),
    "format": ("date", "date-time", "uri", "int32", "float", "odd"),
    "minimum": (-1, 0, 2),
    "maximum": (1, 2, 2.5, 10),
    "exclusiveMinimum": (-1, 0, 0.5),
    "exclusiveMaximum": (3, 2.5),
    "multipleOf": (1, 2, 0.5),
    "minItems": (0, 1, 2),
    "maxItems": (0, 1, 3),
    "uniqueItems": (True, False),
    "minProperties": (0, 1, 2),
    "maxProperties": (0, 1, 3),
}
_WORDS: dict[str, tuple[Any, ...]] = {
    "description": ("A text.", "Another\nline"),
    "title": ("Title",),
    "default": SCALARS,
    "examples": ([1, "a"], []),
    "deprecated": (True, False),
    "$comment": ("nothing",),
    "x-internal": ({"type": "string", "$ref": "https://elsewhere"},),
}


def reference(name: str) -> str:
    return "#/$defs/" + quote(name.replace("/", "~1"), safe="~")


class Maker:
    """Makes schemas by choosing numbers below a given one.

    References that hold at the same place only lead to later definitions, so that none is endless.
    """

    def __init__(self, choose: Callable[[int], int], *, tame: bool = False) -> None:
        self.choose = choose
        self.tame = tame
        """Only what all strict styles can say exactly, but combined in any way."""

    def one_of(self, things: Sequence[Any]) -> Any:
        return things[self.choose(len(things))]

    def one_in(self, number: int) -> bool:
        return self.choose(number) == number - 1

    def several(self, things: Sequence[Any], most: int) -> list[Any]:
        return list(dict.fromkeys(self.one_of(things) for _ in range(self.choose(most + 1))))

    def some(self, table: dict[str, tuple[Any, ...]], most: int) -> dict[str, Any]:
        return {word: self.one_of(table[word]) for word in self.several(list(table), most)}

    def value(self, depth: int = 2) -> Any:
        form = self.choose(4) if depth else 0
        if form == 2:
            return [self.value(depth - 1) for _ in range(self.choose(3))]
        if form == 3:
            return {name: self.value(depth - 1) for name in self.several(NAMES, 2)}
        return self.one_of(SCALARS)

    def child(self, depth: int) -> Any:
        return self.schema(depth - 1, below=-1)

    def schema(self, depth: int, below: int) -> Any:
        """`below`: definitions with a higher index than this may be referred to in place."""
        if self.tame:
            makers = [self.tame_type, self.tame_type, self.tame_values, self.reference]
            makers += [self.tame_object, self.tame_object, self.tame_array, self.tame_union] if depth > 0 else []
            return self.one_of(makers)(depth, below)
        makers = [self.typed, self.typed, self.typed, self.plain, self.values, self.boolean, self.reference]
        makers += [self.object, self.object, self.array, self.combined, self.combined] if depth > 0 else []
        return self.one_of(makers)(depth, below)

    def tame_type(self, depth: int, below: int) -> Any:
        types = self.several(TYPES[2:], 2) or ["string"]
        return {"type": types[0] if len(types) == 1 else types, **self.some({"title": ("Title",)}, 1)}

    def tame_values(self, depth: int, below: int) -> Any:
        return {"enum": [self.one_of(SCALARS) for _ in range(1 + self.choose(4))]}

    def tame_array(self, depth: int, below: int) -> Any:
        return {"type": "array", "items": self.child(depth)}

    def tame_object(self, depth: int, below: int) -> Any:
        names = self.several(NAMES, 3) or ["a"]
        schema: dict[str, Any] = {"type": "object", "properties": {name: self.child(depth) for name in names}}
        if self.one_in(2):
            schema["required"] = self.several(names, 3)
        return {**schema, "additionalProperties": False} if self.one_in(3) else schema

    def tame_union(self, depth: int, below: int) -> Any:
        word = self.one_of(["anyOf", "allOf", "oneOf"])
        schema = self.tame_object(depth - 1, below) if self.one_in(3) else {}
        return {**schema, word: [self.schema(depth - 1, below) for _ in range(1 + self.choose(3))]}

    def boolean(self, depth: int, below: int) -> Any:
        return not self.one_in(4)

    def reference(self, depth: int, below: int) -> Any:
        targets = DEFINITIONS[below + 1 :]
        if not targets:
            return {}
        schema = {"$ref": reference(self.one_of(targets))}
        if self.tame:
            return {**schema, **self.some({"description": ("Beside a reference.",)}, 1)}
        return {**schema, **self.some(_WORDS, 1), **(self.some(_LIMITS, 1) if self.one_in(3) else {})}

    def plain(self, depth: int, below: int) -> Any:
        return {**self.some(_LIMITS, 2), **self.some(_WORDS, 2)}

    def typed(self, depth: int, below: int) -> Any:
        types = self.several(TYPES, 2) or ["string"]
        return {"type": types[0] if len(types) == 1 else types, **self.plain(depth, below)}

    def values(self, depth: int, below: int) -> Any:
        if self.one_in(2):
            return {"const": self.value()}
        schema: dict[str, Any] = {"enum": [self.value(1) for _ in range(1 + self.choose(4))]}
        return {**schema, "type": self.one_of(TYPES)} if self.one_in(2) else schema

    def object(self, depth: int, below: int) -> Any:
        names = self.several(NAMES, 3)
        schema: dict[str, Any] = {"type": "object", **self.some(_WORDS, 1), **self.some(_LIMITS, 1)}
        schema["properties"] = {name: self.child(depth) for name in names}
        if self.one_in(2):
            schema["required"] = self.several([*names, "a"], 2)
        others = self.one_of(["absent", "absent", "closed", "closed", "open", "schema"])
        if others != "absent":
            schema["additionalProperties"] = {"closed": False, "open": True}.get(others, self.child(depth))
        if self.one_in(6):
            del schema["type"]
        if self.one_in(10):
            schema["patternProperties"] = {"^a": self.child(depth)}
        return schema

    def array(self, depth: int, below: int) -> Any:
        schema: dict[str, Any] = {"type": "array", **self.some(_WORDS, 1), **self.some(_LIMITS, 1)}
        form = self.one_of(["items", "items", "items", "tuple", "open tuple", "bare"])
        if form == "items":
            schema["items"] = self.child(depth)
        elif form != "bare":
            schema["prefixItems"] = [self.child(depth) for _ in range(1 + self.choose(2))]
            if form == "tuple":
                schema["items"] = False
        return schema

    def combined(self, depth: int, below: int) -> Any:
        base = self.object(depth - 1, below) if self.one_in(2) else self.some(_WORDS, 1)
        for word in self.several(["anyOf", "allOf", "oneOf", "not", "if"], 2) or ["anyOf"]:
            if word in ("not", "if"):
                base[word] = self.schema(depth - 1, below)
            else:
                base[word] = [self.schema(depth - 1, below) for _ in range(1 + self.choose(3))]
            if word == "if":
                base["then"] = self.schema(depth - 1, below)
        return base

    def document(self) -> dict[str, Any]:
        """A schema whose root is most often an object."""
        form = self.choose(8)
        if self.tame:
            return {**self.tame_object(3, -1), "$defs": {n: self.schema(2, DEFINITIONS.index(n)) for n in DEFINITIONS}}
        root = self.combined(3, -1) if form in (5, 6) else self.object(3, -1)
        if form == 7:
            root = {"$ref": reference(self.one_of(DEFINITIONS)), **self.some(_WORDS, 1)}
        definitions = {name: self.schema(2, index) for index, name in enumerate(DEFINITIONS)}
        return {**root, "$defs": definitions}


def seeded(seed: int, *, tame: bool = False) -> dict[str, Any]:
    """A schema by a number."""
    return Maker(Random(seed).randrange, tame=tame).document()


def instances(schema: Any, choose: Callable[[int], int], root: Any = None, depth: int = 6) -> Any:
    """A value that is likely to fit a schema of the simple kinds that a conversion writes."""
    maker = Maker(choose)
    root = schema if root is None else root
    if depth <= 0 or not isinstance(schema, dict) or maker.one_in(30):
        return maker.value()
    if "$ref" in schema:
        target = root
        for step in unquote(schema["$ref"]).split("/")[1:]:
            target = target[step.replace("~1", "/").replace("~0", "~")]
        return instances(target, choose, root, depth - 1)
    if "anyOf" in schema:
        return instances(maker.one_of(schema["anyOf"]), choose, root, depth)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return maker.one_of(schema["enum"])
    types = schema.get("type", TYPES)
    return _of_type(types if isinstance(types, str) else maker.one_of(types), schema, maker, root, depth)


def _of_type(kind: str, schema: Any, maker: Maker, root: Any, depth: int) -> Any:
    if kind == "object":
        properties, required = schema.get("properties", {}), schema.get("required", [])
        return {
            name: instances(sub, maker.choose, root, depth - 1)
            for name, sub in properties.items()
            if name in required or maker.one_in(2)
        }
    if kind == "array":
        least = schema.get("minItems", 0)
        length = min(least + maker.choose(3), max(least, schema.get("maxItems", 3)))
        return [instances(schema.get("items", {}), maker.choose, root, depth - 1) for _ in range(length)]
    if kind in ("integer", "number"):
        low, high = int(schema.get("minimum", -1)), int(schema.get("maximum", 12))
        number = low + maker.choose(min(28, max(1, high - low + 1)))
        return number if kind == "integer" or maker.one_in(2) else maker.one_of([0.5, 1.0, 2.5, -0.5])
    return {
        "string": maker.one_of([*TEXTS, *PATTERNS.values()]),
        "boolean": maker.one_in(2),
        "null": None,
    }[kind]
