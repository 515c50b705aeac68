"""Types of answers: the schema that is asked for, and reading what comes back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

import jsonschema_rs
import msgspec
import pydantic
import pytest

from dragoman import Message
from dragoman.chat import answer_type, generate_schema
from dragoman.conversation import Text
from dragoman.errors import ConfigurationError, InvalidAnswerError


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Line:
    """One line of an invoice."""

    what: str
    price: float
    count: int = 1


@dataclass
class Invoice:
    """What is to be paid."""

    number: str
    lines: list[Line]
    paid: bool = False
    colour: Colour | None = None
    tags: dict[str, int] = field(default_factory=dict)


class Address(TypedDict, total=False):
    street: str
    number: int


class Point(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    x: int
    y: Annotated[int, msgspec.Meta(ge=0)] = 0


class Person(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(ge=0, description="In years.")
    friends: list[Person] = []


@pytest.mark.parametrize(
    ("target", "text", "value"),
    [
        (Line, '{"what": "pen", "price": 2}', Line("pen", 2.0)),
        (Person, '{"name": "Ada", "age": 36}', Person(name="Ada", age=36)),
        (list[Point], '[{"x": 1}]', [Point(1)]),
        (Literal["yes", 3], "3", 3),
        ({"type": "integer"}, "5", 5),
    ],
    ids=str,
)
def test_an_answer_of_each_kind(target: Any, text: str, value: object) -> None:
    schema = generate_schema(target)
    jsonschema_rs.meta.validate(schema)
    assert jsonschema_rs.is_valid(schema, json.loads(text))
    assert answer_type(target).decode(text) == value
    schema["changed"] = True
    assert "changed" not in generate_schema(target)


class Open(msgspec.Struct):
    x: int = 0


class Animal(pydantic.BaseModel):
    legs: int = 4


@pytest.mark.parametrize(
    ("target", "text", "value"),
    [
        (Line | Address, '{"street": "Rue A"}', {"street": "Rue A"}),
        (Open | Line, '{"what": "pen", "price": 2}', Line("pen", 2.0)),  # though the first one would take anything
        (Animal | Person, '{"name": "Ada", "age": 36}', Person(name="Ada", age=36)),
        (Animal | Open | None, '{"x": 1}', Open(1)),
        (Animal | Open | None, "null", None),
        (Animal | Open, "{}", Animal()),  # where all fit alike, the first
        (list[Animal | Line], '[{"what": "pen", "price": 2}, {"legs": 6}]', [Line("pen", 2.0), Animal(legs=6)]),
    ],
    ids=str,
)
def test_the_best_alternative_is_chosen(target: Any, text: str, value: object) -> None:
    assert answer_type(target).decode(text) == value


def test_an_alternative_that_almost_fits_is_not_taken_for_another() -> None:
    with pytest.raises(InvalidAnswerError) as caught:
        answer_type(Person | Animal).decode('{"name": "Ada", "age": "young"}')
    assert caught.value.problems == (
        'age: expected a valid integer, unable to parse string as an integer, got string "young"',
    )


def test_names() -> None:
    assert answer_type(Invoice).name == "Invoice"
    assert answer_type(list[int]).name == "answer"
    assert answer_type(Literal["a"]).name == "answer"
    assert answer_type({"title": "Größe der Stadt!", "type": "integer"}).name == "Gr_e_der_Stadt"
    assert answer_type(Invoice, name="x" * 100).name == "x" * 64
    assert answer_type(Invoice, name="???").name == "answer"
    wanted = answer_type(Invoice, name="bill", description="To be paid.").response_format
    assert wanted is not None
    assert (wanted.name, wanted.description) == ("bill", "To be paid.")
    described = answer_type(Invoice).response_format
    assert described is not None
    assert described.description == "What is to be paid."
    once = answer_type(Invoice)
    assert answer_type(once) is once
    assert repr(once) == "<AnswerType Invoice>"


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ('{"number": 5}', ("number: expected string, got integer 5", "lines: expected array, but it is missing")),
        (
            '{"number": "1", "lines": [{"what": "a", "price": "x"}]}',
            ('lines[0].price: expected number, got string "x"',),
        ),
        ('{"number": "1", "lines": [], "piad": true}', ("piad: unknown field; did you mean paid?",)),
        ('{"number": "1", "lines": [], "colour": "green"}', None),
        ("[]", ("expected object, got array []",)),
        ("", None),
        ("It is 5.", None),
        ('{"number": "1", "lines": []', None),
        ("[" * 100_000, None),
        ('{"number": "\ud800"}', None),
    ],
)
def test_problems_are_described_for_the_model(text: str, problems: tuple[str, ...] | None) -> None:
    with pytest.raises(InvalidAnswerError) as caught:
        answer_type(Invoice).decode(text)
    assert caught.value.text == text
    assert caught.value.problems
    if problems is not None:
        assert caught.value.problems == problems
    assert all("\n" not in problem and len(problem) < 600 for problem in caught.value.problems)


def test_many_problems_are_counted() -> None:
    text = json.dumps({"number": "1", "lines": [{} for _ in range(9)]})
    with pytest.raises(InvalidAnswerError, match="and 13 more") as caught:
        answer_type(Invoice).decode(text)
    assert len(caught.value.problems) == 18


CAT = {"properties": {"k": {"const": "cat"}, "m": {"type": ["integer", "null"]}}, "required": ["k", "m"]}
DOG = {"properties": {"k": {"const": "dog"}, "m": {"type": "integer"}}, "required": ["k"]}
NESTED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kept": {"type": ["string", "null"]},
        "unit": {"type": "string"},
        "inside": {"$ref": "#"},
        "all": {"type": "array", "items": {"$ref": "#"}},
        "pet": {"oneOf": [CAT, DOG], "properties": {"name": {"type": "string"}}},
    },
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"unit": null, "kept": null}', {"kept": None}),
        ('{"inside": null, "all": [{"unit": null}]}', {"all": [{}]}),
        ('{"pet": {"k": "cat", "m": null, "name": null}}', {"pet": {"k": "cat", "m": None}}),
        ('{"pet": {"k": "dog", "m": null}}', {"pet": {"k": "dog"}}),
    ],
)
def test_null_for_an_absent_property_is_removed(text: str, value: object) -> None:
    assert answer_type(NESTED).decode(text) == value
    assert answer_type(Invoice).decode('{"number": "1", "lines": [], "paid": null}') == Invoice("1", [])
    many = [{"what": "a", "price": 1.5, "count": None} for _ in range(50)]
    found = answer_type(Invoice).decode(json.dumps({"number": "1", "lines": many}))
    assert found == Invoice("1", [Line("a", 1.5)] * 50), "however many there are"


def test_any_number_of_nulls_is_removed() -> None:
    lines = [{"what": "x", "price": 1, "count": None}] * 100
    assert answer_type(Invoice).decode(json.dumps({"number": "1", "lines": lines})).lines == [Line("x", 1)] * 100
    schema = {"properties": {"all": {"items": {"properties": {"unit": {"type": "string"}}}}}}
    assert answer_type(schema).decode(json.dumps({"all": [{"unit": None}] * 100})) == {"all": [{}] * 100}


def test_nulls_are_removed_on_any_level() -> None:
    kinds = [f"block{number}" for number in range(4)]
    inner = {"type": "array", "items": {"anyOf": [{"$ref": f"#/$defs/{kind}"} for kind in kinds]}}
    blocks = {
        kind: {
            "properties": {"kind": {"const": kind}, "note": {"type": "string"}, "inner": inner},
            "required": ["kind", "inner"],
            "additionalProperties": False,
        }
        for kind in kinds
    }
    given: list[object] = []
    wanted: list[object] = []
    for level in range(20):
        given = [{"kind": kinds[level % 4], "note": None, "inner": given}]
        wanted = [{"kind": kinds[level % 4], "inner": wanted}]
    schema = {"type": "object", "properties": {"inner": inner}, "$defs": blocks}
    assert answer_type(schema).decode(json.dumps({"inner": given})) == {"inner": wanted}


def test_a_property_of_an_alternative_that_was_not_meant_is_removed_if_it_is_null() -> None:
    forms = [
        {
            "properties": {"k": {"const": kind}, kind: {"type": "string"}},
            "required": ["k"],
            "additionalProperties": False,
        }
        for kind in ("cat", "dog")
    ]
    schema = {"type": "object", "oneOf": forms}
    assert answer_type(schema).decode('{"k": "dog", "dog": "x", "cat": null}') == {"k": "dog", "dog": "x"}


def test_properties_may_be_called_by_numbers() -> None:
    decoder = answer_type({"properties": {"1": {"properties": {"2": {"type": "string"}}}}})
    assert decoder.decode('{"1": {"2": null}}') == {"1": {}}
    with pytest.raises(InvalidAnswerError, match="expected string, got integer 3"):
        decoder.decode('{"1": {"2": 3}}')


def test_a_raw_schema() -> None:
    schema = {"type": "array", "items": {"type": "integer", "minimum": 0}}
    wanted = answer_type(schema)
    assert wanted.schema == schema
    assert wanted.decode("[1]") == [1]
    with pytest.raises(InvalidAnswerError) as caught:
        wanted.decode('[1, "x", -1]')
    assert caught.value.problems == (
        '[1]: expected integer, got string "x"',
        "[2]: integer -1 is less than the minimum of 0",
    )
    with pytest.raises(InvalidAnswerError, match="nested too deeply"):
        answer_type({}).decode("[" * 500 + "]" * 500)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ({"type": "arr"}, "not valid at /type"),
        ({"a": object()}, "not JSON"),
        ({"$ref": "https://elsewhere.test/schema"}, "nothing is fetched"),
        (lambda: None, "cannot be of this type"),
    ],
)
def test_unusable_types_are_refused(target: object, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        answer_type(target)


def test_text_is_text() -> None:
    wanted = answer_type(str)
    assert wanted.response_format is None
    assert wanted.decode('{"not": json}') == '{"not": json}'
    assert wanted.read(Message.assistant(Text("Well,"), Text(" yes."))) == "Well, yes."


@pytest.mark.parametrize("prompted", [False, True])
def test_words_around_an_answer_are_ignored_if_it_was_only_prompted(prompted: bool) -> None:
    wanted = answer_type(Point)
    fenced = Message.assistant('Here it is:\n```json\n{"x": 1}\n```\nAnything else?')
    assert wanted.read(fenced, prompted=prompted) == Point(1)
    wordy = Message.assistant('Sure [as you like]! {"x": 1} is it {really}.')
    if not prompted:
        with pytest.raises(InvalidAnswerError):
            wanted.read(wordy)
    else:
        with pytest.raises(InvalidAnswerError):
            wanted.read(Message.assistant("No JSON at all."), prompted=True)
        assert wanted.read(wordy, prompted=True) == Point(1)
