"""Validation against a JSON Schema.

Owns: the only import of the schema library; its user imports this module when the first schema is compiled.
Must not know: where schemas come from. Nothing is ever fetched: a schema that refers to another document is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import jsonschema_rs
from jsonschema_rs import ValidationError

from dragoman.errors import ToolDefinitionError

from .json_values import is_array, is_object, kind_of
from .problems import MANY_PROBLEMS, Path, Problem, expected, limit_text, listed, missing, no_form_fits, one_of, unknown
from .schemas import Schema

__all__ = ["Checker", "compile_schema"]

_LIMITS = {
    "minimum": ("ge", ""),
    "maximum": ("le", ""),
    "exclusiveMinimum": ("gt", ""),
    "exclusiveMaximum": ("lt", ""),
    "multipleOf": ("multiple_of", ""),
    "pattern": ("pattern", ""),
    "minLength": ("min_length", "character"),
    "maxLength": ("max_length", "character"),
    "minItems": ("min_length", "item"),
    "maxItems": ("max_length", "item"),
    "minProperties": ("min_length", "property"),
    "maxProperties": ("max_length", "property"),
}


class Checker:
    """A compiled schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema: Schema = schema
        self._validator: Any = jsonschema_rs.Draft202012Validator(schema, retriever=_refuse)
        self.fits: Callable[[object], bool] = self._validator.is_valid
        """Whether a value fits."""

    def problems(self, value: object) -> list[Problem]:
        """Everything that does not fit, up to a sensible number."""
        return self._told(islice(self._validator.iter_errors(value), MANY_PROBLEMS), value)

    def _told(self, errors: Iterable[ValidationError], root: object) -> list[Problem]:
        return [problem for error in errors for problem in self._one(error, root)]

    def _one(self, error: ValidationError, root: object) -> list[Problem]:
        path: Path = tuple(error.instance_path)
        details = error.kind.as_dict()
        keyword, value = error.kind.name, error.instance
        if "context" in details and keyword in ("anyOf", "oneOf"):
            return self._choices(path, value, details["context"], root)
        if "property" in details:  # `required` and `dependentRequired`
            declared = _type_of(self._properties(error).get(details["property"]))
            return [Problem((*path, details["property"]), missing(declared or "a value"))]
        if keyword == "falseSchema" and error.schema_path[-1:] == ["additionalProperties"]:
            # With no property declared the library names the first value only.
            value, details = _at(root, path), {"unexpected": list(_at(root, path))}
        if "unexpected" in details and is_object(value):  # `additionalProperties` and `unevaluatedProperties`
            known, noun = self._properties(error), "field" if path else "argument"
            return [Problem((*path, name), unknown(name, known, noun, taken=value)) for name in details["unexpected"]]
        if keyword == "type":
            return [Problem(path, expected(_type_of(self._beside(error)), value))]
        return [Problem(path, _text(keyword, value, details) or error.message)]

    def _choices(self, path: Path, value: object, branches: list[list[ValidationError]], root: object) -> list[Problem]:
        failed = [branch for branch in branches if branch]
        if len(failed) < len(branches):  # `oneOf`, and more than one of them fits
            return [Problem(path, expected("a value that fits exactly one of the allowed forms", value))]
        kinds: dict[str, None] = {}
        near: list[list[ValidationError]] = []
        for branch in failed:
            types = [error for error in branch if error.kind.name == "type" and tuple(error.instance_path) == path]
            kinds.update(dict.fromkeys(kind for error in types for kind in error.kind.as_dict()["types"]))
            if not types:
                near.append(branch)
        if not near:
            return [Problem(path, expected(listed(list(kinds)), value))]
        nearest = self._told(min(near, key=len), root)
        return nearest if len(near) == 1 else [Problem(path, no_form_fits(len(near), value)), *nearest]

    def _properties(self, error: ValidationError) -> dict[str, object]:
        """The properties declared beside the keyword that failed."""
        properties = self._beside(error).get("properties")
        return properties if is_object(properties) else {}

    def _beside(self, error: ValidationError) -> dict[str, object]:
        """The schema that holds the keyword that failed."""
        place: Any = self._schema
        for step in error.schema_path[:-1]:
            place = place[step]
        return place if is_object(place) else {}


def _refuse(uri: str) -> Any:
    raise ValueError(f"nothing is fetched, not even {uri}")


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def _type_of(schema: object) -> str:
    """The type that a schema declares, for a message."""
    kind = schema.get("type") if is_object(schema) else None
    return kind if isinstance(kind, str) else listed([str(word) for word in kind]) if is_array(kind) else ""


def _text(keyword: str, value: object, details: Mapping[str, Any]) -> str:
    if keyword == "falseSchema":
        return expected("nothing", value)
    if keyword == "enum":
        return expected(one_of(details["options"]), value)
    if keyword == "const":
        return expected(one_of([details["expected_value"]]), value)
    if keyword == "uniqueItems":
        return expected("array without repeated items", value)
    if keyword in _LIMITS:
        kind, unit = _LIMITS[keyword]
        (limit,) = details.values()
        return expected(f"{kind_of(value)} {limit_text(kind, limit, unit or 'item')}", value)
    return ""


def compile_schema(schema: Schema) -> Checker:
    """Compile a schema; raises ToolDefinitionError if it is none, or if it refers to another document."""
    try:
        return Checker(schema)
    except ValidationError as error:
        place = "".join(f"/{step}" for step in error.instance_path) or "the root"
        message = f"The JSON Schema is not valid at {place}: {error.message}."
        raise ToolDefinitionError(message, hint="Correct the schema; JSON Schema 2020-12 is what counts.") from None
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        message = f"The JSON Schema cannot be used: {error}."
        raise ToolDefinitionError(message, hint="Correct the schema; JSON Schema 2020-12 is what counts.") from None
