"""The vocabulary of JSON Schema, what each provider takes of it, and the notes on what was changed.

Owns: the tables. Their sources are named beside them; all were looked up in autumn 2026.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeGuard, TypeVar

import msgspec
from msgspec import Struct

_T = TypeVar("_T")
Schema: TypeAlias = dict[str, object]

JSON_TYPES: Final = ("object", "array", "string", "integer", "number", "boolean", "null")

META: Final = frozenset(["$anchor", "$comment", "$dynamicAnchor", "$id", "$schema", "$vocabulary", "id"])
"""Keywords about the document, not about values."""

ANNOTATIONS: Final = frozenset(["title", "description", "default", "examples", "example", "deprecated"])
"""Keywords that forbid nothing."""

_NUMBERS: Final = frozenset(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"])
_LIMITS: Final[dict[str, Iterable[str]]] = {
    "string": ("minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"),
    "number": _NUMBERS,
    "array": ("minItems", "maxItems", "uniqueItems"),
    "object": ("minProperties", "maxProperties"),
}
LIMITED_TYPE: Final[dict[str, str]] = {word: kind for kind, words in _LIMITS.items() for word in words}
"""Keywords that limit the values of one type and hold no schema."""

_CONDITIONS: Final = frozenset(["if", "then", "else", "not", "contains", "propertyNames", "contentSchema"])
_UNEVALUATED: Final = frozenset(["unevaluatedItems", "unevaluatedProperties"])
_DEPENDENT: Final = frozenset(["dependencies", "dependentRequired", "dependentSchemas"])
_OTHERS: Final = frozenset(["$dynamicRef", "$recursiveRef", "maxContains", "minContains", "patternProperties"])
ONLY_DESCRIBED: Final = _CONDITIONS | _UNEVALUATED | _DEPENDENT | _OTHERS
"""Keywords that no strict subset has."""

HOLDS_ONE: Final = _CONDITIONS | _UNEVALUATED | {"additionalItems", "additionalProperties", "items"}
HOLDS_LIST: Final = frozenset(["allOf", "anyOf", "items", "oneOf", "prefixItems"])
HOLDS_MAP: Final = frozenset(["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"])
_VALUES: Final = frozenset(["$ref", "const", "enum", "nullable", "required", "type"])
KNOWN: Final = ONLY_DESCRIBED | HOLDS_ONE | HOLDS_LIST | HOLDS_MAP | ANNOTATIONS | META | LIMITED_TYPE.keys() | _VALUES

_KINDS: Final[dict[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


def is_object(value: object) -> TypeGuard[Schema]:
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def kind_of(value: object) -> str:
    """JSON's name for the type of a decoded value. A number without a fraction is an integer, however it is written."""
    if isinstance(value, float) and value.is_integer():
        return "integer"
    return _KINDS.get(type(value), "")


def kind_is_one_of(kind: str, types: Iterable[str]) -> bool:
    """Whether a value of a kind is of one of the types; an integer is a number too."""
    return kind in types or (kind == "integer" and "number" in types)


def kind_is_limited(word: str, types: Iterable[str]) -> bool:
    """Whether a limit means something to values of one of the types."""
    if word == "format":  # OpenAPI has formats for numbers as well
        return any(kind in ("string", "integer", "number") for kind in types)
    limited = LIMITED_TYPE[word]
    return any(kind == limited or (kind == "integer" and limited == "number") for kind in types)


def _key(value: object) -> object:
    """The same for equal JSON values, and for no others: to Python 1 and True are equal, to JSON they are not."""
    if is_object(value):
        return frozenset([(name, _key(sub)) for name, sub in value.items()])
    return tuple(map(_key, value)) if is_array(value) else (type(value) is bool, value)


def same(a: object, b: object) -> bool:
    return a == b and _key(a) == _key(b)


def distinct(values: Iterable[_T]) -> list[_T]:
    """The values, each once."""
    found: dict[object, _T] = {}
    for value in values:
        found.setdefault(_key(value), value)
    return list(found.values())


def members_of(schema: Schema) -> Schema:
    """The properties of a schema."""
    return found if is_object(found := schema.get("properties")) else {}


def required_of(schema: Schema) -> list[str]:
    found = schema.get("required")
    return [name for name in found if isinstance(name, str)] if is_array(found) else []


def as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def join_texts(*texts: object) -> str:
    return " ".join(dict.fromkeys(text.strip() for text in texts if isinstance(text, str) and text.strip()))


def map_subschemas(schema: Schema, at: str, change: Callable[[object, str], object]) -> Schema:
    """A copy with every direct subschema replaced by `change` of it and of its pointer."""
    copy: Schema = {}
    for word, value in schema.items():
        if word in HOLDS_MAP and is_object(value):
            copy[word] = {name: change(sub, f"{at}/{word}/{escape(name)}") for name, sub in value.items()}
        elif word in HOLDS_LIST and is_array(value):
            copy[word] = [change(sub, f"{at}/{word}/{index}") for index, sub in enumerate(value)]
        else:
            copy[word] = change(value, f"{at}/{word}") if word in HOLDS_ONE else value
    return copy


# --- notes ------------------------------------------------------------------------------------------------------------


class Note(Struct, frozen=True):
    """One change, at one place of the given schema."""

    at: str
    """JSON pointer; empty for the root."""
    text: str
    lossy: bool = False
    """What is sent allows values that the given schema does not: whoever gets the values must check them."""

    def __str__(self) -> str:
        return f"{self.at or '/'}: {self.text}"


class Notes:
    """Notes in the order in which they came up, each once."""

    def __init__(self) -> None:
        self._all: dict[Note, None] = {}

    def rewritten(self, at: str, text: str) -> None:
        """Said differently, or narrowed: whatever fits what is sent fits the given schema."""
        self._all[Note(at, text)] = None

    def lost(self, at: str, text: str) -> None:
        self._all[Note(at, text, lossy=True)] = None

    def only_described(self, at: str, word: str, value: object) -> None:
        """A limit that the provider does not know; it stands in the description now."""
        self.lost(f"{at}/{word}", f"{shorten(value)} is only in the description")

    @property
    def all(self) -> tuple[Note, ...]:
        return tuple(self._all)


def shorten(value: object) -> str:
    """The value as JSON, cut to a length that fits a note."""
    text = as_json(value)
    return text if len(text) <= 60 else text[:59] + "…"


# --- rules ------------------------------------------------------------------------------------------------------------


class Rules(Struct, frozen=True, kw_only=True):
    """What may stand in a strict schema; objects have declared properties only."""

    default: bool = True
    """Whether it takes `default`."""
    limits: frozenset[str]
    """Limits that it knows; the others are only described."""
    formats: frozenset[str]
    unknown_in_patterns: str
    """A regular expression that finds what it does not understand in a pattern."""
    highest_min_items: int | None = None
    all_required: bool = False
    """Whether every property must be required: an optional one is then one that may be null."""
    recursive: bool = True
    bare_references: bool = False
    """Words beside a reference: write it out in place, or else wrap it in `anyOf`."""
    # --- sizes of one schema, and of all strict schemas of a request together ---
    most_each: Mapping[str, int] = {}
    most_together: Mapping[str, int] = {}


_FORMATS: Final = frozenset(["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"])
_LOOK_AROUND: Final = r"\(\?<?[=!]"

# developers.openai.com/api/docs/guides/structured-outputs#supported-schemas. `minLength` and `maxLength` are not among
# the supported properties there, and openai-node's helpers.md says that they can be refused, like `default`. A look-
# around in a pattern is refused too. "$ref cannot have keywords {'description'}" is the answer to words beside `$ref`.
OPENAI: Final = Rules(
    default=False,
    limits=_NUMBERS | {"pattern", "format", "minItems", "maxItems"},
    formats=_FORMATS,
    unknown_in_patterns=_LOOK_AROUND,
    all_required=True,
    most_each={
        "properties": 5000,
        "levels of nesting": 10,
        "listed values": 1000,
        "characters in one list of values": 15_000,
        "characters in names and values": 120_000,
    },
)

# platform.claude.com/docs/en/build-with-claude/structured-outputs: JSON Schema limitations, pattern support, schema
# complexity limits. The limits on optional and union parameters are for all strict schemas of a request together; one
# schema that is beyond them alone can never be sent. Large repetitions in a pattern are refused; "large" is not said.
ANTHROPIC: Final = Rules(
    limits=frozenset(["pattern", "format", "minItems"]),
    formats=_FORMATS | {"uri"},
    unknown_in_patterns=_LOOK_AROUND + r"|\\[bB1-9k]|\(\?P?[<P]|\{\d{3,}|\{\d*,\d{3,}",
    highest_min_items=1,
    recursive=False,
    bare_references=True,
    most_together={"strict schemas": 20, "optional properties": 24, "properties of more than one type": 16},
)


def _walk(schema: object, depth: int = 1) -> Iterator[tuple[Schema, int]]:
    """Every schema of a strict one, with the level of nesting that it is at."""
    if is_object(schema):
        yield schema, depth
        for word, deeper in (("properties", depth + 1), ("$defs", 1)):
            if is_object(members := schema.get(word)):
                for sub in members.values():
                    yield from _walk(sub, deeper)
        yield from _walk(schema.get("items"), depth + 1)
        if is_array(branches := schema.get("anyOf")):
            for branch in branches:
                yield from _walk(branch, depth)


def count_sizes(schemas: Sequence[object]) -> Counter[str]:
    """What providers count in schemas, by the names that `Rules` has for it."""
    sizes = Counter({"strict schemas": len(schemas)})
    for schema, depth in [found for root in schemas for found in _walk(root)]:
        if "properties" in schema or "items" in schema:
            sizes["levels of nesting"] = max(sizes["levels of nesting"], depth)
        if is_array(values := schema.get("enum")):
            length = sum(len(value) for value in values if isinstance(value, str))
            sizes["listed values"] += len(values)
            sizes["characters in names and values"] += length
            if len(values) > 250:
                most = max(sizes["characters in one list of values"], length)
                sizes["characters in one list of values"] = most
        sizes["properties of more than one type"] += is_array(schema.get("type")) or "anyOf" in schema
        for word in ("properties", "$defs"):
            if is_object(members := schema.get(word)):
                sizes["characters in names and values"] += sum(map(len, members))
        if is_object(properties := schema.get("properties")):
            required = schema.get("required")
            sizes["properties"] += len(properties)
            sizes["optional properties"] += len(properties) - (len(required) if is_array(required) else 0)
    return sizes


def excesses(schemas: Sequence[object], limits: Mapping[str, int]) -> tuple[str, ...]:
    """The limits that these strict schemas together are beyond."""
    sizes = count_sizes(schemas) if limits else Counter[str]()
    beyond = [(what, most) for what, most in limits.items() if sizes[what] > most]
    return tuple([f"{sizes[what]} {what}, at most {most} are allowed" for what, most in beyond])
