"""Any type, any value: the decoder agrees with the schema."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Optional

import annotated_types as at
import jsonschema_rs
import pytest
from hypothesis import example, given, strategies as st

from dragoman.tools import InvalidArguments, decoder_of_type, schema_of_type
from tests.tools.arguments.test_hints import Color, Level, Options, Point, Size, Tree
from tests.tools.cases import arguments_of, values_of

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
hints = st.recursive(
    st.sampled_from(PLAIN),
    lambda inner: (
        inner.map(lambda hint: list[hint])  # type: ignore[valid-type]
        | inner.map(lambda hint: dict[str, hint])  # type: ignore[valid-type]
        | inner.map(lambda hint: Optional[hint])  # noqa: UP045 -- `None | None` fails
        | st.tuples(inner, inner).map(lambda two: tuple[two[0], two[1]])  # type: ignore[misc]
    ),
    max_leaves=3,
)


@example(dict[str, tuple[bool, bool]], {"value": None})  # a key that has the name of the parameter is not declared
@given(hints, json_values)
def test_the_schema_and_the_decoder_agree_on_any_value(hint: Any, instance: object) -> None:
    """Types only: what a format such as `date` allows, a JSON Schema does not check."""

    def tool(value: Any) -> None: ...

    tool.__annotations__["value"] = hint
    arguments = arguments_of(tool)
    decode, schema, text = decoder_of_type(hint), schema_of_type(hint), json.dumps(instance)
    assert jsonschema_rs.meta.is_valid(schema)
    if jsonschema_rs.Draft202012Validator(schema).is_valid(instance):
        assert values_of(arguments, f'{{"value": {text}}}') == (decode(text),)
    else:
        with pytest.raises(InvalidArguments, match=r"\A.+\Z"):
            decode(text)
        with pytest.raises(InvalidArguments, match=r"\A.+\Z"):
            arguments.decode(f'{{"value": {text}}}')
