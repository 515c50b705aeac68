"""What stands beside a type in `Annotated`: descriptions and limits, in the words of several libraries.

Owns: reading msgspec.Meta, annotated-types, pydantic's Field, plain strings and `Doc`, and the keywords of JSON Schema
for limits. It imports neither annotated-types nor pydantic: who uses them has them.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from .schemas import Schema

_NUMERIC = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_ITEMS = {"min_length": "minItems", "max_length": "maxItems"}
LIMIT_KEYWORDS: Mapping[type | None, Mapping[str, str]] = {
    int: _NUMERIC,
    float: _NUMERIC,
    str: {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"},
    list: _ITEMS,
    tuple: _ITEMS,
    set: _ITEMS,
    frozenset: _ITEMS,
    dict: {"min_length": "minProperties", "max_length": "maxProperties"},
    bytes: {"min_length": "", "max_length": ""},
    datetime.datetime: {"tz": ""},
    datetime.time: {"tz": ""},
}
"""The limits that msgspec checks on each type, with their keywords in JSON Schema if it has them."""

_ANNOTATED_TYPES = {
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

    def __init__(self, metadata: Iterable[object] = ()) -> None:
        self.limits: dict[str, Any] = {}
        """By msgspec's names: ge, max_length, pattern …"""
        self.schema: Schema = {}
        """Keywords for the schema: description, examples and whatever the user added."""
        self.alias: str = ""
        self.unusual: object = None
        """Something that only pydantic can honour, such as a validator function or a second limit of one kind."""
        self.has_meta: bool = False
        """Whether msgspec.Meta sets a limit: pydantic would not see it."""
        for item in metadata:
            self._take(item)

    def _take(self, item: Any) -> None:
        name, module = type(item).__name__, type(item).__module__
        if isinstance(item, msgspec.Meta):
            self._take_keywords(item.description, item.examples, item.extra_json_schema)
            for kind in (*_ANNOTATED_TYPES.values(), "pattern", "tz"):
                self.has_meta = self.has_meta or getattr(item, kind) is not None
                self._take_limit(kind, getattr(item, kind), item)
        elif is_pydantic_field(item):
            self._take_keywords(item.description, item.examples, item.json_schema_extra)
            alias = item.validation_alias or item.alias
            self.alias = alias if isinstance(alias, str) else self.alias
            self.unusual = self.unusual or (item if item.discriminator is not None else None)
            for part in item.metadata:
                self._take(part)
        elif getattr(item, "__is_annotated_types_grouped_metadata__", False):  # Interval, Len, StringConstraints
            for part in item:
                self._take(part)
        elif name in _ANNOTATED_TYPES and module == "annotated_types":
            kind = _ANNOTATED_TYPES[name]
            self._take_limit(kind, getattr(item, kind), item)
        elif module == "annotated_types" and name in ("Predicate", "Timezone"):
            self.unusual = item
        elif module.startswith("pydantic") or hasattr(item, "__get_pydantic_core_schema__"):
            general = vars(item) if name == "_PydanticGeneralMetadata" else {}
            said = {key: value for key, value in general.items() if value is not None}
            if said.keys() == {"pattern"} and isinstance(said["pattern"], str):
                self._take_limit("pattern", said["pattern"], item)
            else:
                self.unusual = item
        else:  # what nobody here knows is ignored, as PEP 593 asks
            self._take_keywords(item if isinstance(item, str) else getattr(item, "documentation", None))

    def _take_limit(self, kind: str, value: object, item: object) -> None:
        if value is not None:
            self.unusual = item if kind in self.limits else self.unusual
            self.limits[kind] = value

    def _take_keywords(self, description: object, examples: Any = None, extra: object = None) -> None:
        if isinstance(description, str) and description.strip():  # the first one counts
            self.schema.setdefault("description", description.strip())
        if examples is not None:
            self.schema["examples"] = list(examples)
        if isinstance(extra, dict):
            self.schema.update(cast("Schema", extra))


def is_pydantic_field(item: object) -> bool:
    """Whether this is what pydantic's `Field(...)` returns."""
    return type(item).__name__ == "FieldInfo" and type(item).__module__.startswith("pydantic")
