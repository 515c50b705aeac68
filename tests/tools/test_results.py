from __future__ import annotations

import dataclasses
import datetime
from pathlib import PurePosixPath

import msgspec
import pydantic
import pytest

from dragoman.conversation import Json, Message, ToolCall, message_to_json
from dragoman.errors import ToolExecutionError
from dragoman.tools.call import content_of, failure, success

CALL = ToolCall("1", "give")


@dataclasses.dataclass
class Point:
    x: int
    when: datetime.date


class Model(pydantic.BaseModel):
    name: str
    when: datetime.date


class Record(msgspec.Struct):
    a: int


@pytest.mark.parametrize(
    ("value", "json"),
    [
        (Point(1, datetime.date(2026, 1, 2)), '{"x":1,"when":"2026-01-02"}'),
        (Model(name="n", when=datetime.date(2026, 1, 2)), '{"name":"n","when":"2026-01-02"}'),
        ([Model(name="n", when=datetime.date(2026, 1, 2))], '[{"name":"n","when":"2026-01-02"}]'),
        (Record(3), '{"a":3}'),
        (PurePosixPath("a/b"), '"a/b"'),
        ({"path": PurePosixPath("a")}, '{"path":"a"}'),
        (float("nan"), "null"),
    ],
)
def test_ordinary_python_values_become_json(value: object, json: str) -> None:
    [part] = content_of(value)
    assert isinstance(part, Json)
    assert part.text == json


def test_text_that_utf8_cannot_carry_is_made_visible() -> None:
    result = success(CALL, "caf\udce9 für 2 €", 0.0)
    assert result.text == "caf\\udce9 für 2 €"
    message_to_json(Message.tool([result, failure(CALL, ToolExecutionError("\ud800"), 0.0)]))


def test_a_value_that_contains_itself_is_the_tools_failure() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ToolExecutionError, match="cannot read"):
        success(CALL, endless, 0.0)
