"""What each provider takes of JSON Schema beyond the shape of objects and arrays, as data.

Owns: the tables. Sources are named beside them; all were looked up in autumn 2026.
Must not know: how a schema is read or written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from .words import kind_is_limited

__all__ = ["ANTHROPIC", "GEMINI", "OPENAI", "Rules"]


class Rules(Struct, frozen=True, kw_only=True):
    """What may stand in a schema."""

    annotations: frozenset[str]
    """Annotations that it takes; the others are put into words."""
    limits: frozenset[str]
    """Limits that it knows; the others are only described."""
    formats: Mapping[str, frozenset[str]]
    """By type, the formats that it knows."""
    unknown_in_patterns: str
    """A regular expression that finds what it does not understand in a pattern."""
    highest_min_items: int | None = None
    complex_values: bool = False
    """Whether arrays and objects may be listed as values."""
    # --- objects ---
    closes_objects: bool = True
    """Whether objects must say that they have no other properties; otherwise they cannot say it."""
    all_required: bool = False
    """Whether every property must be required: an optional one is then one that may be null."""
    recursive: bool = False
    reference_beside_words: bool = False
    """Whether a reference may be wrapped in `anyOf` so that words can stand beside it; otherwise it is written out."""
    # --- sizes of one schema ---
    most_properties: int | None = None
    deepest: int | None = None
    most_values: int | None = None
    longest_values: int | None = None
    """Characters of one list of more than 250 values."""
    most_characters: int | None = None
    """Of all names and values together."""
    # --- sizes of all strict schemas of a request together ---
    most_schemas: int | None = None
    most_optional: int | None = None
    most_unions: int | None = None

    def takes_format(self, value: object, kind: str) -> bool:
        """Whether a format may stand beside a type."""
        return value in self.formats.get(kind, ())

    def applies(self, word: str, value: object, kind: str) -> bool:
        """Whether a limit may stand beside a type, and means something to it."""
        return self.takes_format(value, kind) if word == "format" else kind_is_limited(word, [kind])


_COMMON_FORMATS: Final = frozenset(
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"]
)
_LOOK_AROUND: Final = r"\(\?<?[=!]"

# developers.openai.com/api/docs/guides/structured-outputs#supported-schemas. `minLength` and `maxLength` are not among
# the supported properties there, and openai-node's helpers.md says that they can be refused, like `default`. A look-
# around in a pattern is refused too. "$ref cannot have keywords {'description'}" is the answer to words beside `$ref`.
OPENAI: Final = Rules(
    annotations=frozenset(["title", "description"]),
    limits=frozenset(
        [
            "pattern",
            "format",
            "multipleOf",
            "maximum",
            "exclusiveMaximum",
            "minimum",
            "exclusiveMinimum",
            "minItems",
            "maxItems",
        ]
    ),
    formats={"string": _COMMON_FORMATS},
    unknown_in_patterns=_LOOK_AROUND,
    all_required=True,
    recursive=True,
    reference_beside_words=True,
    most_properties=5000,
    deepest=10,
    most_values=1000,
    longest_values=15_000,
    most_characters=120_000,
)

# platform.claude.com/docs/en/build-with-claude/structured-outputs: JSON Schema limitations, pattern support, schema
# complexity limits. The limits on optional and union parameters are for all strict schemas of a request together; one
# schema that is beyond them alone can never be sent. Large repetitions in a pattern are refused; "large" is not said.
ANTHROPIC: Final = Rules(
    annotations=frozenset(["title", "description", "default"]),
    limits=frozenset(["pattern", "format", "minItems"]),
    formats={"string": _COMMON_FORMATS | {"uri"}},
    unknown_in_patterns=_LOOK_AROUND + r"|\\[bB1-9k]|\(\?P?[<P]|\{\d{3,}|\{\d*,\d{3,}",
    highest_min_items=1,
    most_schemas=20,
    most_optional=24,
    most_unions=16,
)

# The Schema of ai.google.dev/api/caching, and what the service answers: "only 'enum' and 'date-time' are supported for
# STRING type"; unknown fields (`const`, `$ref`, `additionalProperties`, `multipleOf`, `examples`) are refused. Formats
# of numbers say nothing to a model, and reports differ on which are taken, so only those of integers are sent.
GEMINI: Final = Rules(
    annotations=frozenset(["title", "description", "default"]),
    limits=frozenset(
        [
            "pattern",
            "format",
            "minimum",
            "maximum",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
        ]
    ),
    formats={"string": frozenset(["date-time", "enum"]), "integer": frozenset(["int32", "int64"])},
    unknown_in_patterns=_LOOK_AROUND,
    closes_objects=False,
)
