"""Any type, any value: the decoder gives back what was encoded, and agrees with the schema and with pydantic."""

from __future__ import annotations

import datetime as dt
import json
import pathlib
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal, Optional

import annotated_types as at
import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, strategies as st

from dragoman.tools import InvalidArguments, decoder_of_type, schema_of_type
from dragoman.tools.arguments.reader import arguments_of_function
from tests.tools.arguments.test_hints import Color, Level, Options, Point, Size, Tree
from tests.tools.cases import values_of


class Account(msgspec.Struct, frozen=True):
    name: str
    where: pathlib.PurePosixPath = pathlib.PurePosixPath()


# --- types and their values ------------------------------------------------------------------------------------------

Typed = tuple[Any, st.SearchStrategy[Any]]
"""A type and a strategy for values of it."""

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
integers = st.integers(-(2**70), 2**70)
moments = st.datetimes(timezones=st.just(dt.UTC)) | st.datetimes()

SINGLE: list[Typed] = [
    (bool, st.booleans()),
    (int, integers),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (str, text),
    (None, st.none()),
    (bytes, st.binary(max_size=8)),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (dt.datetime, moments),
    (dt.date, st.dates()),
    (dt.time, st.times()),
    (dt.timedelta, st.timedeltas(dt.timedelta(-1000), dt.timedelta(1000))),
    (uuid.UUID, st.uuids()),
    (pathlib.PurePosixPath, st.builds(pathlib.PurePosixPath, st.text("ab/.", max_size=8))),
    (Color, st.sampled_from(Color)),
    (Level, st.sampled_from(Level)),
    (Literal["a", 1, True, None], st.sampled_from(["a", 1, True, None])),
    (Annotated[int, at.Interval(ge=0, lt=10)], st.integers(0, 9)),
    (Annotated[str, msgspec.Meta(min_length=1, max_length=3)], text.filter(lambda value: 1 <= len(value) <= 3)),
    (Point, st.builds(Point, integers, integers)),
    (Size, st.builds(Size, integers, integers)),
    (Account, st.builds(Account, text, st.builds(pathlib.PurePosixPath, st.text("ab/", max_size=5)))),
    (Options, st.fixed_dictionaries({"name": text}, optional={"limit": integers})),
    (
        Tree,
        st.recursive(
            st.builds(Tree, integers),
            lambda child: st.builds(Tree, integers, st.lists(child, max_size=2)),
            max_leaves=5,
        ),
    ),
]
HASHABLE = [typed for typed in SINGLE if typed[0] not in (Point, Options, Tree)]
NAMES = [typed for typed in SINGLE if typed[0] in (str, int, dt.date, uuid.UUID, Color, Level)]


def _many(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    return (
        inner.map(lambda typed: (list[typed[0]], st.lists(typed[1], max_size=3)))  # type: ignore[name-defined]
        | inner.map(lambda typed: (tuple[typed[0], ...], st.lists(typed[1], max_size=3).map(tuple)))  # type: ignore[name-defined]
        | st.tuples(inner, inner).map(
            lambda two: (tuple[two[0][0], two[1][0]], st.tuples(two[0][1], two[1][1]))  # type: ignore[name-defined]
        )
        | st.tuples(st.sampled_from(NAMES), inner).map(
            lambda two: (dict[two[0][0], two[1][0]], st.dictionaries(two[0][1], two[1][1], max_size=3))  # type: ignore[name-defined]
        )
        | inner.map(lambda typed: (Optional[typed[0]], typed[1] | st.none()))  # noqa: UP045 -- `None | None` fails
    )


types: st.SearchStrategy[Typed] = st.recursive(
    st.sampled_from(SINGLE)
    | st.sampled_from(HASHABLE).map(lambda typed: (set[typed[0]], st.sets(typed[1], max_size=3))),  # type: ignore[name-defined]
    _many,
    max_leaves=4,
)


def encode(value: object) -> str:
    """A value as a model would write it."""
    return msgspec.json.encode(_plain(value)).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, Size):
        return value._asdict()
    if isinstance(value, Point | Tree):
        return {name: _plain(item) for name, item in vars(value).items()}
    if isinstance(value, Account):
        return {"name": value.name, "where": str(value.where)}
    if isinstance(value, dict):
        return {_name(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63:
        return msgspec.Raw(str(value).encode())
    return str(value) if isinstance(value, pathlib.PurePath) else value


def _name(key: Any) -> str:
    plain = _plain(key)
    encoded = msgspec.json.encode(plain).decode()
    return json.loads(encoded) if encoded.startswith('"') else encoded


@given(st.data())
def test_decoding_gives_back_what_was_encoded_and_the_schema_accepts_it(data: st.DataObject) -> None:
    hint, values = data.draw(types)
    value = data.draw(values)

    def tool(value: Any) -> None: ...

    tool.__annotations__["value"] = hint
    arguments = arguments_of_function(tool)
    raw = f'{{"value": {encode(value)}}}'
    assert values_of(arguments, raw) == (value,)
    assert decoder_of_type(hint)(encode(value)) == value
    schema = schema_of_type(hint)
    assert jsonschema_rs.meta.is_valid(schema)
    assert jsonschema_rs.Draft202012Validator(schema).is_valid(json.loads(encode(value)))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-100, 100) | st.floats(-100, 100) | st.sampled_from(["a", "red", "1", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["x", "y", "value", "children", "width", "limit", "name", "1"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)

PLAIN: list[Any] = [
    *(bool, int, float, str, None, Color, Level, Literal["a", 1, True, None], Annotated[int, at.Interval(ge=0, lt=10)]),
    *(Point, Tree, Size, Options, list[int], list[str] | list[int], tuple[int, str], dict[str, int | None]),
    *(dict[int, str], int | str, float | int | None, Point | Size | None, list[Point | int], Color | str | bool),
    Tree | list[Tree],
]


@given(st.sampled_from(PLAIN), json_values)
def test_the_schema_and_the_decoder_agree_on_any_value(hint: Any, instance: object) -> None:
    """Types only: what a format such as `date` allows, a JSON Schema does not check."""
    decode = decoder_of_type(hint)
    if jsonschema_rs.Draft202012Validator(schema_of_type(hint)).is_valid(instance):
        decode(json.dumps(instance))
    else:
        with pytest.raises(InvalidArguments, match=r"\A.+\Z"):
            decode(json.dumps(instance))
