"""What a hint means, as a row of a table, and the one check that every row goes through."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import jsonschema_rs
import msgspec
import pytest

from dragoman.tools.arguments.reader import InvalidArguments, arguments_of_function, decoder_of_type, schema_of_type

INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
STRING = {"type": "string"}
NULL = {"type": "null"}


class Case(NamedTuple):
    """What a hint means."""

    hint: object
    schema: dict[str, object]
    good: dict[str, object]
    """JSON text, and what it becomes."""
    bad: dict[str, str]
    """JSON text, and what is said of it."""
    forgiven: frozenset[str] = frozenset()
    """What the decoder takes although the schema does not offer it."""


def name(case: object) -> str:
    """How a case is called in the list of tests."""
    return str(case.hint)[:60] if isinstance(case, Case) else str(case)


def check(case: Case) -> None:
    """The schema, alone and as a parameter what fits and what does not, and that the schema agrees."""
    schema = schema_of_type(case.hint)
    assert schema == case.schema
    assert jsonschema_rs.meta.is_valid(schema)
    validator = jsonschema_rs.Draft202012Validator(schema)
    for text in case.good:
        assert validator.is_valid(json.loads(text)) == (text not in case.forgiven), text
    _check_type(case)
    _check_parameter(case)


def _check_type(case: Case) -> None:
    decode = decoder_of_type(case.hint)
    for text, value in case.good.items():
        decoded = decode(text)
        assert decoded == value
        assert type(decoded) is type(value)
    for text, message in case.bad.items():
        with pytest.raises(InvalidArguments) as caught:
            decode(text)
        assert str(caught.value) == message


def _check_parameter(case: Case) -> None:
    """The decoder may take another way than for the type alone; quick or slow, the answers are the same."""

    def tool(value: Any) -> None: ...

    tool.__annotations__["value"] = case.hint
    arguments = arguments_of_function(tool)
    for text, value in case.good.items():
        raw = f'{{"value": {text}}}'
        assert arguments.positional(arguments.recover(raw)) == (value,)
        try:
            decoded = arguments.decode(raw)
        except (ValueError, msgspec.MsgspecError):
            continue  # only `recover` forgives
        assert arguments.positional(decoded) == (value,)
    for text, message in case.bad.items():
        raw = f'{{"value": {text}}}'
        with pytest.raises((ValueError, TypeError, msgspec.MsgspecError)):
            arguments.decode(raw)
        with pytest.raises(InvalidArguments) as caught:
            arguments.recover(raw)
        found = [str(problem).removeprefix("value").lstrip(".:").strip() for problem in caught.value.problems]
        assert "; ".join(found) == message
