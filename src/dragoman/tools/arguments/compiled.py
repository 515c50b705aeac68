"""The arguments of a tool: what the model is told of them, and how its JSON becomes a call.

Owns: Arguments, compiled once for each tool, from a function's hints or from a JSON Schema.
Must not know: what the tool does, how it is run, how hints are read (hints/).

`decode` is the fast path, for a function msgspec's own decoder in C. It says only that something is wrong; `recover`
then reads the same text slowly, forgives what models get wrong without harm, and otherwise says all that is wrong.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import msgspec

from .hints.compile import TOO_DEEP, parse_text, read_text
from .hints.defaults import MISSING
from .hints.node import decode_marker
from .hints.records import Record
from .json_values import deeper_than, is_object
from .normalise import normalise
from .problems import InvalidArguments, Problem, expected
from .schemas import Definitions
from .signature import Parameter, name_of, parameters_of

__all__ = ["Arguments", "InvalidArguments", "arguments_of_function", "arguments_of_schema"]

_NOTHING: Mapping[str, str] = MappingProxyType({})

DEEPEST = 200
"""How far arguments may be nested for a schema: the schema library uses the stack, and the text is a stranger's."""

_IMMUTABLE = (type(None), bool, int, float, str, bytes)


class Arguments(msgspec.Struct, frozen=True, eq=False):
    """How a model's JSON becomes a call."""

    schema: dict[str, object]
    """JSON Schema of type object."""
    notes: tuple[str, ...]
    """What was rewritten in a given schema, one line each, with the JSON pointer."""
    decode: Callable[[str], object]
    """From JSON text to the decoded arguments. Any exception means no more than that `recover` must be asked."""
    recover: Callable[[str], object]
    """The same slowly and leniently; raises InvalidArguments."""
    positional: Callable[[object], tuple[object, ...]]
    """From the decoded arguments to positional arguments."""
    keywords: Callable[[object], dict[str, object]] | None
    """From the decoded arguments to keyword arguments; None if there are none."""


def arguments_of_function(
    fn: Callable[..., object], *, skip: int = 0, descriptions: Mapping[str, str] = _NOTHING
) -> Arguments:
    """The arguments of a function, by its hints; its first `skip` parameters are not the model's business."""
    parameters = parameters_of(fn, skip, descriptions)
    attributes = [_attribute(index, parameter.name) for index, parameter in enumerate(parameters)]
    struct = _struct(parameters, attributes)
    record = Record(name_of(fn), lambda values: struct(**values), noun="argument")
    record.fields = tuple(parameter.field for parameter in parameters)
    for field, attribute in zip(record.fields, attributes, strict=True):
        field.name = attribute
    definitions = Definitions()
    positional, keywords = _getters(parameters, attributes)
    return Arguments(
        schema=definitions.document(record.own_schema(definitions)),
        notes=(),
        decode=msgspec.json.Decoder(struct, dec_hook=decode_marker).decode,
        recover=lambda text: read_text(record, _parsed(text)),
        positional=positional,
        keywords=keywords,
    )


def _attribute(index: int, name: str) -> str:
    return f"argument_{index}" if name.startswith("__") else name  # a Struct has its own use for such names


def _struct(parameters: Sequence[Parameter], attributes: Sequence[str]) -> type[msgspec.Struct]:
    fields = [
        (attribute, cast("Any", parameter.field.node.wire()), _declared(parameter))
        for attribute, parameter in zip(attributes, parameters, strict=True)
    ]
    # gc=False: it lives for one call and nothing points back to it, and the collector costs a seventh of the decoding.
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True, gc=False)


def _declared(parameter: Parameter) -> Any:
    """The field of the Struct. The call must get the very object that the function declares, also if it can change."""
    default, key = parameter.default, parameter.field.key
    if default is MISSING:
        return msgspec.field(name=key)
    if type(default) in _IMMUTABLE:
        return msgspec.field(default=default, name=key)
    return msgspec.field(default_factory=lambda: default, name=key)


def _getters(
    parameters: Sequence[Parameter], attributes: Sequence[str]
) -> tuple[Callable[[object], tuple[object, ...]], Callable[[object], dict[str, object]] | None]:
    if not any(parameter.by_keyword for parameter in parameters):
        return cast("Callable[[object], tuple[object, ...]]", msgspec.structs.astuple), None
    pairs = list(zip(parameters, attributes, strict=True))
    named = [(parameter.name, attribute) for parameter, attribute in pairs if parameter.by_keyword]
    placed = [attribute for parameter, attribute in pairs if not parameter.by_keyword]

    def keywords(decoded: object) -> dict[str, object]:
        return {name: getattr(decoded, attribute) for name, attribute in named}

    if len(placed) > 1:
        return cast("Callable[[object], tuple[object, ...]]", operator.attrgetter(*placed)), keywords
    return (lambda decoded: tuple(getattr(decoded, attribute) for attribute in placed)), keywords


def _parsed(text: str) -> object:
    """The JSON of a call; models write nothing at all where there is nothing to say."""
    return parse_text(text) if text.strip() else {}


def arguments_of_schema(schema: Mapping[str, object]) -> Arguments:
    """The arguments that a JSON Schema describes; decoded they are a dict, and go to the function by keyword."""
    from .json_schema import compile_schema  # it loads the schema library

    normal, notes = normalise(schema)
    checker = compile_schema(normal)
    parse = msgspec.json.Decoder(dict[str, Any]).decode
    fits = checker.fits

    def decode(text: str) -> object:
        value = parse(text)
        if text.count("[") + text.count("{") <= DEEPEST and fits(value):
            return value
        raise ValueError(text)

    def recover(text: str) -> object:
        value = _parsed(text)
        if not is_object(value):
            raise InvalidArguments([Problem((), expected("object", value))])
        if deeper_than(DEEPEST, value):
            raise InvalidArguments([Problem((), TOO_DEEP)])
        problems = checker.problems(value)
        if problems and (said := _without_needless_nulls(value, normal)) != value and not checker.problems(said):
            return said
        if problems:
            raise InvalidArguments(problems)
        return value

    return Arguments(
        schema=normal, notes=notes, decode=decode, recover=recover, positional=_no_positional, keywords=_all_keywords
    )


def _without_needless_nulls(value: dict[str, object], schema: Mapping[str, object]) -> dict[str, object]:
    """The arguments that were really given: strict modes let a model say null where it means to leave one out."""
    required = cast("list[str]", schema.get("required", []))
    return {name: item for name, item in value.items() if item is not None or name in required}


def _no_positional(_: object) -> tuple[object, ...]:
    return ()


def _all_keywords(decoded: object) -> dict[str, object]:
    return cast("dict[str, object]", decoded)
