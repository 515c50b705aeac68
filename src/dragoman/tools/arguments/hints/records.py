"""Objects with named fields: what dataclasses, TypedDicts, NamedTuples, Structs and a function's arguments share.

Owns: the Record node: which fields are required, which are unknown, how the object is built and described.
Must not know: where the fields come from (classes.py, signature.py).
"""

from __future__ import annotations

from collections.abc import Callable

from dragoman.tools.arguments.json_values import is_array, is_object, shown
from dragoman.tools.arguments.problems import MismatchError, Problem, missing, unknown
from dragoman.tools.arguments.schemas import Definitions, Schema, described

from .defaults import MISSING, json_default
from .node import Node, decodable, marker, mismatch, reachable

__all__ = ["Field", "Record"]

SHOWN_ERROR = 200


class Field:
    """One field: its name in Python, its key in JSON, what it holds."""

    __slots__ = ("default", "description", "key", "name", "node", "required")

    def __init__(
        self, name: str, node: Node, *, key: str = "", required: bool, default: object = MISSING, description: str = ""
    ) -> None:
        self.name: str = name
        self.key: str = key or name
        self.node: Node = node
        self.required: bool = required
        self.default: object = default
        self.description: str = description

    def schema(self, definitions: Definitions) -> Schema:
        """What the model is told of this field; a description beside the type wins over one from elsewhere."""
        schema = self.node.schema(definitions)
        if not self.node.annotated:
            schema = described(schema, self.description)
        if self.default is not MISSING:
            shown_as = json_default(self.default, self.node)
            if shown_as is not MISSING:
                schema["default"] = shown_as
        return schema


class Record(Node):
    """An object with named fields. Made without them and filled later, since a type may contain itself."""

    def __init__(
        self,
        name: str,
        build: Callable[[dict[str, object]], object],
        *,
        closed: bool = True,
        native: object = None,
        tag: tuple[str, object] | None = None,
        as_array: bool = False,
        hashable: bool | None = None,
        noun: str = "field",
    ) -> None:
        self.name: str = name
        self.fields: tuple[Field, ...] = ()
        self.description: str = ""
        self.expected: str = "array" if as_array else "object"
        self.kinds: frozenset[str] = frozenset({self.expected})
        self.verbatim: bool = native is not None
        self.hashable: bool | None = hashable
        self.tag: tuple[str, object] | None = tag
        self._build: Callable[[dict[str, object]], object] = build
        # Whether a key that is no field is an error.
        self._closed: bool = closed
        # The hint, if msgspec decodes such objects itself (children apart).
        self._native: object = native
        # Written as an array: the tag if there is one, then the fields in order.
        self._as_array: bool = as_array
        self._noun: str = noun

    def children(self) -> tuple[Node, ...]:
        return tuple(field.node for field in self.fields)

    def schema(self, definitions: Definitions) -> Schema:
        return definitions.reference(self, self.name, lambda: self.own_schema(definitions))

    def own_schema(self, definitions: Definitions) -> Schema:
        """The schema itself, where `schema` is a reference to it."""
        schema: Schema = {"type": self.expected}
        if self.description:
            schema["description"] = self.description
        properties = {field.key: field.schema(definitions) for field in self.fields}
        required = [field.key for field in self.fields if field.required]
        if self.tag:
            properties = {self.tag[0]: {"type": "string", "enum": [self.tag[1]]}, **properties}
            required = [self.tag[0], *required]
        if self._as_array:
            return {**schema, "prefixItems": list(properties.values()), "minItems": len(required)}
        schema["properties"] = properties
        if required:
            schema["required"] = required
        if self._closed:
            schema["additionalProperties"] = False
        return schema

    def wire(self) -> object:
        verbatim = all(node.verbatim for node in reachable(self))
        return self._native if verbatim and decodable(self._native) else marker(self)

    def read(self, value: object, lenient: bool) -> object:
        if self._as_array and is_array(value):
            return self._read_array(value, lenient)
        if self._as_array or not is_object(value):
            raise mismatch(self.expected, value)
        return self._read_object(value, lenient)

    def _read_array(self, items: list[object], lenient: bool) -> object:
        keys = [*([self.tag[0]] if self.tag else []), *(field.key for field in self.fields)]
        try:
            return self._read_object(dict(zip(keys, items, strict=False)), lenient)
        except MismatchError as error:
            places = {key: index for index, key in enumerate(keys)}
            moved = [((places[str(path[0])], *path[1:]) if path else path, text) for path, text in error.problems]
            raise MismatchError([Problem(path, text) for path, text in moved]) from None

    def _read_object(self, given: dict[str, object], lenient: bool) -> object:
        values: dict[str, object] = {}
        problems: list[Problem] = []
        known = 0
        for field in self.fields:
            item = given.get(field.key, MISSING)
            if item is not MISSING:
                known += 1
                try:
                    values[field.name] = field.node.read(item, lenient)
                except MismatchError as error:
                    # Strict modes of providers let a model say null where it means to leave an argument out.
                    if item is not None or field.required or not lenient:
                        problems.extend(error.under(field.key))
            elif field.required:
                problems.append(Problem((field.key,), missing(field.node.expected)))
        if self.tag and self.tag[0] in given:
            known += 1
            if given[self.tag[0]] != self.tag[1]:
                problems.extend(mismatch(shown(self.tag[1]), given[self.tag[0]]).under(self.tag[0]))
        if self._closed and len(given) > known:
            problems.extend(self._unknown(given))
        if problems:
            raise MismatchError(problems)
        return self._built(values)

    def _unknown(self, given: dict[str, object]) -> list[Problem]:
        keys = [field.key for field in self.fields]
        strangers = (name for name in given if name not in keys and name != (self.tag and self.tag[0]))
        return [Problem((name,), unknown(name, keys, self._noun, taken=given)) for name in strangers]

    def _built(self, values: dict[str, object]) -> object:
        try:
            return self._build(values)
        except Exception as error:  # noqa: BLE001 -- __init__ and __post_init__ are the user's code, and may check
            raise MismatchError([Problem((), str(error)[:SHOWN_ERROR] or type(error).__name__)]) from None
