"""Validation against a JSON Schema, with problems in words that a model can act on.

Owns: the only import of the schema library; its users import this module when the first schema is needed.
Nothing is ever fetched: a schema that refers to another document is refused.
"""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any, cast

import jsonschema_rs
import msgspec
from jsonschema_rs import ValidationError

from dragoman.errors import ToolDefinitionError

from .problems import (
    MANY_PROBLEMS,
    Path,
    Problem,
    deeper_than,
    expected,
    is_array,
    is_object,
    join_words,
    kind_of,
    one_of,
    unknown,
)
from .schemas import Schema, measure

_PHRASES = {
    "falseSchema": "nothing",
    "uniqueItems": "array without repeated items",
    "minimum": "{kind} >= {limit}",
    "maximum": "{kind} <= {limit}",
    "exclusiveMinimum": "{kind} > {limit}",
    "exclusiveMaximum": "{kind} < {limit}",
    "multipleOf": "{kind} that is a multiple of {limit}",
    "pattern": "string that matches {limit}",
    "minLength": "string with {limit} or more characters",
    "maxLength": "string with {limit} or fewer characters",
    "minItems": "array with {limit} or more items",
    "maxItems": "array with {limit} or fewer items",
    "minProperties": "object with {limit} or more properties",
    "maxProperties": "object with {limit} or fewer properties",
}
"""What was expected, by the keyword that failed."""
_FORMATS: dict[str, tuple[type, str]] = {
    "date-time": (datetime.datetime, "date-time such as 2026-01-31T12:00:00Z"),
    "date": (datetime.date, "date such as 2026-01-31"),
    "time": (datetime.time, "time such as 12:00:00"),
    "duration": (datetime.timedelta, "duration such as P1DT2H30M"),
    "uuid": (uuid.UUID, "uuid such as 123e4567-e89b-12d3-a456-426614174000"),
    "decimal": (decimal.Decimal, "number"),
}
"""The formats of types that hints may name: the type that must be able to read the text, and its words."""


_MOST_BRANCHES = 512


class Checker:
    """A compiled schema; one that is too large raises ToolDefinitionError.

    `formats`: that a text is a date or the like is checked too, as msgspec reads it. `noun`: a name at the root.
    """

    def __init__(self, schema: Schema, *, formats: bool = False, noun: str = "argument") -> None:
        self._recursion: int = measure(schema)
        self._schema: Schema = schema
        self._noun: str = noun
        checks: Any = {name: partial(_reads_as, kind) for name, (kind, _) in _FORMATS.items()} if formats else None
        self._validator: Any = jsonschema_rs.Draft202012Validator(
            schema, retriever=_refuse, validate_formats=formats, formats=checks
        )
        self.fits: Callable[[object], bool] = self._validator.is_valid
        """Whether a value fits."""

    def problems(self, value: object) -> list[Problem]:
        """Everything that does not fit, up to a sensible number."""
        if self._is_endless(value):
            return [Problem((), "it does not fit, and it is nested too deeply to say where")]
        errors = islice(self._validator.iter_errors(value), MANY_PROBLEMS)
        return self._explain_all(sorted(errors, key=lambda error: error.kind.name == "required"), value)

    def unwanted_nulls(self, value: object) -> list[Path]:
        """Where a declared property is null and must not be: models say null where they mean to leave it out."""
        found: list[Path] = []
        if self._is_endless(value):
            return found
        errors: list[ValidationError] = list(islice(self._validator.iter_errors(value), MANY_PROBLEMS))
        for error in errors:
            path = _path_of(error, value)
            if path and error.instance is None and _is_declared(path[-1], error.evaluation_path):
                found.append(path)
            branches: list[list[ValidationError]] = cast("Any", error.kind).as_dict().get("context", [])
            errors.extend(inner for branch in branches for inner in branch)
        return found

    def _is_endless(self, value: object) -> bool:
        """Whether to list the problems of a value could take for ever, though to check it does not.

        Where a schema refers back to itself several times, each level of the value may have to be explained as often.
        """
        return self._recursion > 1 and deeper_than(int(math.log(_MOST_BRANCHES, self._recursion)), value)

    def _explain_all(self, errors: Iterable[ValidationError], root: object) -> list[Problem]:
        # A value of the wrong type is none of the listed values either, and that is one problem.
        return list(dict.fromkeys(problem for error in errors for problem in self._explain(error, root)))

    def _explain(self, error: ValidationError, root: object) -> list[Problem]:
        path = _path_of(error, root)
        details = error.kind.as_dict()
        keyword, value = error.kind.name, error.instance
        if "context" in details and keyword in ("anyOf", "oneOf"):
            return self._explain_choice(path, value, details["context"], root)
        if "property" in details:  # `required` and `dependentRequired`
            declared = _type_words(self._properties_beside(error).get(details["property"]))
            return [Problem((*path, details["property"]), f"expected {declared or 'a value'}, but it is missing")]
        if keyword == "falseSchema" and error.schema_path[-1:] == ["additionalProperties"]:
            # With no property declared the library names the first value only.
            value = _value_at(root, path)
            details = {"unexpected": list(value)}
        if "unexpected" in details and is_object(value):  # `additionalProperties` and `unevaluatedProperties`
            known, noun = self._properties_beside(error), "field" if path else self._noun
            return [Problem((*path, name), unknown(name, known, noun, taken=value)) for name in details["unexpected"]]
        if keyword == "propertyNames":
            inner = cast("ValidationError", details["error"])
            text = "; ".join(problem.text for problem in self._explain(inner, root))
            return [Problem((*path, str(inner.instance)), f"as a name in an object: {text}")]
        if keyword in ("type", "format"):
            return [Problem(path, expected(_type_words(self._schema_beside(error)), value))]
        if keyword in ("enum", "const"):
            values = details.get("options") or [details.get("expected_value")]
            return [Problem(path, expected(one_of(values), value))]
        if keyword in _PHRASES:
            limit = next(iter(details.values()), None)
            return [Problem(path, expected(_PHRASES[keyword].format(kind=kind_of(value), limit=limit), value))]
        return [Problem(path, error.message)]

    def _explain_choice(
        self, path: Path, value: object, branches: list[list[ValidationError]], root: object
    ) -> list[Problem]:
        if not all(branches):  # `oneOf`, and more than one of them fits
            return [Problem(path, expected("a value that fits exactly one of the allowed forms", value))]
        words: dict[str, None] = {}
        near: list[list[ValidationError]] = []
        for branch in branches:
            own = [error for error in branch if len(error.instance_path) == len(path) and error.kind.name == "type"]
            words.update(dict.fromkeys(_type_words(self._schema_beside(error)) for error in own))
            if not own:
                near.append(branch)
        if not near:
            return [Problem(path, expected(join_words(list(words)), value))]
        # A tag says which form was meant: what it does not name is not near.
        inner = [error for branch in near for error in branch if len(error.instance_path) == len(path) + 1]
        tags = [error for error in inner if error.kind.name == "enum"]
        untagged = [branch for branch in near if not any(error in tags for error in branch)]
        if not untagged and len({tuple(error.instance_path) for error in tags}) == 1:
            values = [option for error in tags for option in error.kind.as_dict().get("options", [])]
            return [Problem(_path_of(tags[0], root), expected(one_of(values), tags[0].instance))]
        near = untagged or near
        nearest = self._explain_all(min(near, key=len), root)
        if len(near) == 1:
            return nearest
        text = f"fits none of the {len(near)} forms of {kind_of(value)} allowed here, the nearest fails as follows"
        return [Problem(path, text), *nearest]

    def _properties_beside(self, error: ValidationError) -> dict[str, object]:
        properties = self._schema_beside(error).get("properties")
        return properties if is_object(properties) else {}

    def _schema_beside(self, error: ValidationError) -> dict[str, object]:
        place = _value_at(self._schema, error.schema_path[:-1])
        return place if is_object(place) else {}


def _refuse(uri: str) -> Any:
    raise ValueError(f"nothing is fetched, not even {uri}")


def _reads_as(kind: type, text: str) -> bool:
    try:
        msgspec.convert(text, kind)
    except (msgspec.ValidationError, ValueError, OverflowError):
        return False
    return True


def _is_declared(name: object, keywords: Iterable[object]) -> bool:
    """Whether the way through a schema led to the value at its end by a property of that name."""
    steps, by_name = iter(keywords), None
    for step in steps:
        if step == "properties":
            by_name = next(steps, None)
        elif step in ("additionalProperties", "patternProperties", "items", "prefixItems"):
            by_name = None
    return by_name == name


def _path_of(error: ValidationError, root: Any) -> Path:
    """Where the value is that does not fit; the library says 1 for the name "1" too."""
    path: Path = ()
    for step in error.instance_path:
        here: Any = str(step) if is_object(root) else step
        path, root = (*path, here), cast("Any", root)[here]
    return path


def _value_at(value: Any, path: Iterable[Any]) -> Any:
    for step in path:
        value = value[step]
    return value


def _type_words(schema: object) -> str:
    if not is_object(schema):
        return ""
    kind, form, values = schema.get("type"), schema.get("format"), schema.get("enum")
    if is_array(values):
        return one_of(values)
    if kind == "string" and form in _FORMATS:
        return f"string with a {_FORMATS[str(form)][1]}"
    return kind if isinstance(kind, str) else join_words([str(word) for word in kind]) if is_array(kind) else ""


def compile_schema(schema: Schema) -> Checker:
    """Compile a schema; raises ToolDefinitionError if it is none, too large, or refers to another document."""
    try:
        return Checker(schema)
    except ValidationError as error:
        place = "".join(f"/{step}" for step in error.instance_path) or "the root"
        message = f"The JSON Schema is not valid at {place}: {error.message}."
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        message = f"The JSON Schema cannot be used: {error}."
    raise ToolDefinitionError(message, hint="Correct the schema; JSON Schema 2020-12 is what counts.")
