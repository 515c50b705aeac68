"""Validation against a JSON Schema, with problems that a model can act on.

The only import of the schema library; other modules import this one when they need the first schema.
Nothing is ever fetched: a schema that refers to another document is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, cast

import jsonschema_rs
from jsonschema_rs import ValidationError

from dragoman._decoding import deeper_than
from dragoman.errors import ToolDefinitionError

from .nulls import unwanted_nulls
from .problems import (
    MANY_PROBLEMS,
    Path,
    Problem,
    expected,
    is_array,
    is_object,
    join_words,
    kind_of,
    one_of,
    shown,
    unknown,
)
from .schemas import Schema, measure

_MASK = "\0"
"""Stands for the value in the library's messages: it may be large."""
_MOST_BRANCHES = 2_000
"""They take about 0.2 s to explain."""


class Checker:
    """A compiled schema: see `compile_schema`."""

    def __init__(self, schema: Schema) -> None:
        self._recursion: int = measure(schema)
        self._schema: Schema = schema
        self._validator: Any = jsonschema_rs.Draft202012Validator(schema, retriever=_refuse, mask=_MASK)
        self.fits: Callable[[object], bool] = self._validator.is_valid
        """Whether a value fits."""

    def problems(self, value: object) -> list[Problem]:
        """Everything that does not fit, up to a sensible number."""
        if self._is_endless(value):
            return [Problem((), "it does not fit, and it is nested too deeply to say where")]
        errors = islice(self._validator.iter_errors(value), MANY_PROBLEMS)
        return self._explain_all(sorted(errors, key=lambda error: error.kind.name == "required"), value)

    def unwanted_nulls(self, value: object) -> list[Path]:
        """Where a declared property is null and must not be: models write null instead of leaving a field out."""
        return unwanted_nulls(self._schema, value)

    def _is_endless(self, value: object) -> bool:
        """Whether listing the problems could take forever, although validation does not.

        If a schema refers to itself several times, also by way of others, each level of the value may multiply the
        work.
        """
        return self._recursion > 1 and deeper_than(int(math.log(_MOST_BRANCHES, self._recursion)), value)

    def _explain_all(self, errors: Iterable[ValidationError], root: object) -> list[Problem]:
        # A value of the wrong type is also none of the listed values, which is one problem.
        return list(dict.fromkeys(problem for error in errors for problem in self._explain(error, root)))

    def _explain(self, error: ValidationError, root: object) -> list[Problem]:
        path, beside = _path_of(error, root), self._schema_beside(error)
        details = error.kind.as_dict()
        keyword, value = error.kind.name, error.instance
        declared = beside.get("properties")
        properties = declared if is_object(declared) else {}
        if "context" in details and keyword in ("anyOf", "oneOf"):
            return self._explain_choice(path, value, details["context"], root)
        if "property" in details:  # `required` and `dependentRequired`
            wanted = _type_words(properties.get(details["property"])) or "a value"
            return [Problem((*path, details["property"]), f"expected {wanted}, but it is missing")]
        if keyword == "falseSchema" and error.schema_path[-1:] == ["additionalProperties"]:
            # If no property is declared the library names the first value only.
            value = _value_at(root, path)
            details = {"unexpected": list(value)}
        if "unexpected" in details and is_object(value):  # `additionalProperties` and `unevaluatedProperties`
            return [Problem((*path, name), unknown(name, properties, value)) for name in details["unexpected"]]
        if keyword == "propertyNames":
            inner = cast("ValidationError", details["error"])
            text = "; ".join(problem.text for problem in self._explain(inner, root))
            return [Problem((*path, str(inner.instance)), f"as a name in an object: {text}")]
        if keyword == "type":
            return [Problem(path, expected(_type_words(beside), value))]
        if keyword in ("enum", "const"):
            return [Problem(path, expected(one_of(_allowed(error)), value))]
        return [Problem(path, _message(error))]

    def _explain_choice(
        self, path: Path, value: object, branches: list[list[ValidationError]], root: object
    ) -> list[Problem]:
        if not all(branches):  # `oneOf`, and more than one of them fits
            return [Problem(path, expected("a value that fits exactly one of the allowed forms", value))]
        types: dict[str, None] = {}
        near: list[list[ValidationError]] = []
        for branch in branches:
            own = [error for error in branch if len(error.instance_path) == len(path) and error.kind.name == "type"]
            types.update(dict.fromkeys(_type_words(self._schema_beside(error)) for error in own))
            if not own:
                near.append(branch)
        if not near:
            return [Problem(path, expected(join_words(list(types)), value))]
        # A branch whose tag does not match is not the one that was meant.
        tags = [error for branch in near for error in branch if _is_tag(error, path)]
        untagged = [branch for branch in near if not any(error in tags for error in branch)]
        if not untagged and len({tuple(error.instance_path) for error in tags}) == 1:
            values = [value for error in tags for value in _allowed(error)]
            return [Problem(_path_of(tags[0], root), expected(one_of(values), tags[0].instance))]
        near = untagged or near
        nearest = self._explain_all(min(near, key=len), root)
        if len(near) == 1:
            return nearest
        text = f"fits none of the {len(near)} forms of {kind_of(value)} allowed here, the nearest fails as follows"
        return [Problem(path, text), *nearest]

    def _schema_beside(self, error: ValidationError) -> dict[str, object]:
        place = _value_at(self._schema, error.schema_path[:-1])
        return place if is_object(place) else {}


def _is_tag(error: ValidationError, path: Path) -> bool:
    """Whether a field of the object at this path has none of its allowed values."""
    return error.kind.name in ("enum", "const") and len(error.instance_path) == len(path) + 1


def _allowed(error: ValidationError) -> list[object]:
    details = error.kind.as_dict()
    return details.get("options") or [details.get("expected_value")]


def _message(error: ValidationError) -> str:
    return error.message.replace(_MASK, f"{kind_of(error.instance)} {shown(error.instance)}")


def _refuse(uri: str) -> Any:
    raise ValueError(f"nothing is fetched, not even {uri}")


def _path_of(error: ValidationError, root: Any) -> Path:
    """The path to the value that does not fit; the library has the number 1 for the name "1", too."""
    path: Path = ()
    for step in error.instance_path:
        here: Any = str(step) if is_object(root) else step
        path, root = (*path, here), cast("Any", root)[here]
    return path


def _value_at(value: Any, path: Iterable[Any]) -> Any:
    for step in path:
        value = value[str(step) if is_object(value) else step]
    return value


def _type_words(schema: object) -> str:
    if not is_object(schema):
        return ""
    kind, values = schema.get("type"), schema.get("enum")
    if is_array(values):
        return one_of(values)
    return kind if isinstance(kind, str) else join_words([str(word) for word in kind]) if is_array(kind) else ""


def compile_schema(schema: Schema) -> Checker:
    """Compile a schema; raises ToolDefinitionError if it is invalid, too large, or refers to another document."""
    try:
        return Checker(schema)
    except ValidationError as error:
        place = "".join(f"/{step}" for step in error.instance_path) or "the root"
        message = f"The JSON Schema is not valid at {place}: {_message(error)}."
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        message = f"The JSON Schema cannot be used: {error}."
    raise ToolDefinitionError(message, hint="Correct the schema; JSON Schema 2020-12 is what counts.")
