"""The keywords of JSON Schema, and which of them each strict style takes.

The sources are named beside the tables; all were looked up in autumn 2026.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from msgspec import Struct

from dragoman.tools import is_array, is_object

from .document import META, Schema, properties_of, required_of

ANNOTATIONS: Final = frozenset(["title", "description", "default", "examples", "example", "deprecated"])
"""Keywords that forbid nothing."""

_NUMBERS: Final = frozenset(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"])
LIMITED_TYPE: Final[dict[str, str]] = {
    **dict.fromkeys(["minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"], "string"),
    **dict.fromkeys(_NUMBERS, "number"),
    **dict.fromkeys(["minItems", "maxItems", "uniqueItems"], "array"),
    **dict.fromkeys(["minProperties", "maxProperties"], "object"),
}
"""The type whose values a keyword limits, for keywords that contain no schema."""
NO_LIMITS: Final[Schema] = {
    **dict.fromkeys(["minLength", "minItems", "minProperties"], 0),
    **dict.fromkeys(["uniqueItems", "unevaluatedProperties"], False),
}
"""Values of keywords that limit nothing in a strict style, where only declared properties are allowed anyway."""
IMPLIED_TYPE: Final[dict[str, str]] = {
    **LIMITED_TYPE,
    **dict.fromkeys(["properties", "required", "additionalProperties", "patternProperties"], "object"),
    **dict.fromkeys(["items", "prefixItems"], "array"),
}
"""The type that a keyword is about: `{"minLength": 1}` means strings."""

_CONDITIONS: Final = frozenset(["not", "if", "then", "else", "contains", "minContains", "maxContains", "propertyNames"])
_DEPENDENT: Final = frozenset(["dependencies", "dependentRequired", "dependentSchemas"])
_OTHERS: Final = frozenset(["$dynamicRef", "$recursiveRef", "allOf", "anyOf", "contentSchema", "patternProperties"])
ONLY_DESCRIBED: Final = _CONDITIONS | _DEPENDENT | _OTHERS | {"unevaluatedItems", "unevaluatedProperties"}
"""Constraints that no strict style has."""
_WRITTEN: Final = frozenset(["$defs", "const", "definitions", "enum", "type"])
KNOWN: Final = ONLY_DESCRIBED | ANNOTATIONS | META | IMPLIED_TYPE.keys() | _WRITTEN


class Rules(Struct, frozen=True, kw_only=True):
    """What a strict style allows. All of them want objects with declared properties only."""

    default: bool = True
    """Whether it takes `default`."""
    limits: frozenset[str]
    """Limits that it enforces; the others are only described."""
    formats: frozenset[str]
    unknown_in_patterns: str
    """A regular expression that finds what it does not understand in a pattern."""
    highest_min_items: int | None = None
    all_required: bool = False
    """Whether every property must be required: an optional one is then one that may be null."""
    recursive: bool = True
    inline_references: bool = False
    """With annotations beside a reference: write its target in place, instead of the reference inside `anyOf`."""
    max_sizes: Mapping[str, int] = {}
    """Sizes of one schema."""
    max_total_sizes: Mapping[str, int] = {}
    """Sizes of all strict schemas of a request together."""


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
    max_sizes={
        "properties": 5000,
        "levels of nesting": 10,
        "listed values": 1000,
        "characters in one list of values": 15_000,
        "characters in names and values": 120_000,
    },
)

# platform.claude.com/docs/en/build-with-claude/structured-outputs: JSON Schema limitations, pattern support, schema
# complexity limits. The limits on optional and union parameters are for all strict schemas of a request together; one
# schema that exceeds them alone can never be sent. Large repetitions in a pattern are refused; "large" is undefined.
ANTHROPIC: Final = Rules(
    limits=frozenset(["pattern", "format", "minItems"]),
    formats=_FORMATS | {"uri"},
    unknown_in_patterns=_LOOK_AROUND + r"|\\[bB1-9k]|\(\?P?[<P]|\{\d{3,}|\{\d*,\d{3,}",
    highest_min_items=1,
    recursive=False,
    inline_references=True,
    max_total_sizes={"strict schemas": 20, "optional properties": 24, "properties of more than one type": 16},
)


def exceeded_limits(schemas: Sequence[object], limits: Mapping[str, int]) -> list[str]:
    """The limits that these strict schemas together exceed."""
    sizes = _measure(schemas) if limits else Counter[str]()
    over = [(what, most) for what, most in limits.items() if sizes[what] > most]
    return [f"{sizes[what]} {what}, at most {most} are allowed" for what, most in over]


def _measure(schemas: Sequence[object]) -> Counter[str]:
    """What providers count in schemas, by the names that `Rules` uses."""
    sizes = Counter({"strict schemas": len(schemas)})
    for schema, depth in [visited for root in schemas for visited in _walk(root)]:
        properties, values = properties_of(schema), schema.get("enum")
        if "properties" in schema or "items" in schema:
            sizes["levels of nesting"] = max(sizes["levels of nesting"], depth)
        texts = [len(value) for value in values if isinstance(value, str)] if is_array(values) else []
        names = sum(map(len, [*properties, *cast("Schema", schema.get("$defs", {}))]))
        sizes["characters in names and values"] += names + sum(texts)
        if len(texts) > 250:
            longest = max(sizes["characters in one list of values"], sum(texts))
            sizes["characters in one list of values"] = longest
        sizes["listed values"] += len(values) if is_array(values) else 0
        sizes["properties of more than one type"] += is_array(schema.get("type")) or "anyOf" in schema
        sizes["properties"] += len(properties)
        sizes["optional properties"] += len(properties) - len(required_of(schema))
    return sizes


def _walk(schema: object, depth: int = 1) -> Iterator[tuple[Schema, int]]:
    """Every schema inside a strict one, with its level of nesting."""
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
