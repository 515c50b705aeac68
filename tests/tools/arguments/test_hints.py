"""What each form of hint means: the schema, the values that fit, and the problems of those that do not."""

from __future__ import annotations

import datetime as dt
import enum
import json
import pathlib
import re
import sys
import typing
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence, Set
from dataclasses import dataclass, field
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    Never,
    NewType,
    Optional,
    Required,
    TypedDict,
    TypeVar,
)

import annotated_types as at
import jsonschema_rs
import msgspec
import pydantic  # noqa: F401 -- what msgspec cannot check is left to it
import pytest
import typing_extensions
from msgspec import Meta

from dragoman.errors import ToolDefinitionError
from dragoman.tools import InvalidArguments, decoder_of_type, schema_of_type, tool
from tests.tools.cases import arguments_of, values_of

INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
STRING = {"type": "string"}
NULL = {"type": "null"}
PATH = {"type": "string", "format": "path"}
T = TypeVar("T")
Bounded = TypeVar("Bounded", bound=int)
UserId = NewType("UserId", int)
Age = NewType("Age", Annotated[int, "In years."])
Pair = typing_extensions.TypeAliasType("Pair", tuple[T, T], type_params=(T,))
Json = typing_extensions.TypeAliasType("Json", "dict[str, Json] | list[Json] | str | int | None")
Even = typing_extensions.TypeAliasType("Even", "list[Odd] | None")
Odd = typing_extensions.TypeAliasType("Odd", "list[Even]")
# The names that typing had before Python 3.9; users' code still has them.
OLD_LIST, OLD_TUPLE, OLD_DICT = (vars(typing)[name] for name in ("List", "Tuple", "Dict"))


class Color(enum.Enum):
    """A colour of light."""

    RED = "red"
    GREEN = "green"


class Rate(enum.Enum):
    HALF = 0.5
    FULL = "full"


class Corner(enum.Enum):
    LEFT = (0, 1)
    RIGHT = (1, 1)
    BOTH = 2


class Empty(enum.Enum):
    pass


@dataclass
class Impossible:
    number: complex


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    """A point in the plane.

    Attributes:
        x: How far to the right.
    """

    x: int
    y: int = 0


@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list)


class Size(NamedTuple):
    width: int
    height: int = 1


class Margin(NamedTuple):
    width: int
    height: int = 1


class Options(TypedDict, total=False):
    name: Required[str]
    limit: int


class Account(msgspec.Struct):
    name: str
    age: int = 0


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog", forbid_unknown_fields=True):
    good: bool = True


class Leaf(msgspec.Struct):
    size: int = 0


class Branch(msgspec.Struct):
    parts: list[Branch | Leaf] = []


class Camel(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    first_name: str


@dataclass
class Base:
    """Described here."""

    a: int
    shared: ClassVar[int] = 1


@dataclass
class Derived(Base):
    b: str = "b"
    counted: int = field(init=False, default=5)


@dataclass
class Checked:
    a: int

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("a must\nbe positive")
        if self.a == 0:
            raise KeyError


@dataclass
class Nest(Generic[T]):
    value: T
    others: list[Nest[T]] = field(default_factory=list)


class IntNest(Nest[int]):
    pass


class Whole(TypedDict):
    a: int


class More(Whole, total=False):
    b: typing_extensions.Required[str]
    c: typing_extensions.ReadOnly[typing_extensions.NotRequired[float]]
    d: bool


def array(items: object = None, **more: object) -> dict[str, object]:
    return {"type": "array", **({} if items is None else {"items": items}), **more}


def fixed(*items: object) -> dict[str, object]:
    return {"type": "array", "prefixItems": [*items], "items": False, "minItems": len(items), "maxItems": len(items)}


def record(required: str, *, closed: bool = True, **properties: object) -> dict[str, object]:
    schema: dict[str, object] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required.split()
    return {**schema, "additionalProperties": False} if closed else schema


def text(form: str) -> dict[str, object]:
    return {"type": "string", "format": form}


RIGHT = {**INTEGER, "description": "How far to the right."}
POINT = {**record("x", x=RIGHT, y={**INTEGER, "default": 0}), "description": "A point in the plane."}
SIZE = record("width", width=INTEGER, height={**INTEGER, "default": 1})
TREE = record("value", value=INTEGER, children=array({"$ref": "#/$defs/Tree"}, default=[]))
CAT = record("type lives", closed=False, type={**STRING, "enum": ["cat"]}, lives=INTEGER)
DOG = record("type", type={**STRING, "enum": ["dog"]}, good={"type": "boolean", "default": True})
DECIMAL = {"anyOf": [NUMBER, text("decimal")]}
NO_FORM = "fits none of the 2 forms of {} allowed here, the nearest fails as follows; "

try:
    set(json.loads("[[1]]"))
except TypeError as error:
    UNHASHABLE = str(error)
    """What Python says of a list in a set; newer ones in other words."""
ANY = ""
"""Any text with what was expected and what it got; the words are tested in test_json_schema.py."""
Row_ = tuple[object, dict[str, object], dict[str, object], dict[str, str]]
"""A hint, its schema, JSON texts with their values, JSON texts with their problems."""

SINGLE: list[Row_] = [
    (bool, {"type": "boolean"}, {"true": True}, {"1": ANY}),
    (
        int,
        INTEGER,
        {"5": 5, "5.0": 5, "1e3": 1000, "123456789012345678901": 123456789012345678901},
        {'"5"': ANY, "5.5": ANY, "1e20": "Expected `int`, got `float`", "true": ANY, "null": ANY},
    ),
    (float, NUMBER, {"5": 5.0, "2.5": 2.5}, {'"x"': ANY}),
    (str, STRING, {'"ä"': "ä"}, {"[1]": ANY}),
    (None, NULL, {"null": None}, {"0": ANY}),
    (Any, {}, {"1": 1, "[null]": [None]}, {}),
    (bytes, {**STRING, "contentEncoding": "base64"}, {'"aGk="': b"hi"}, {'"!"': "Invalid base64 encoded string"}),
    (
        Decimal,
        DECIMAL,
        {"1.10": Decimal("1.10"), '"1.10"': Decimal("1.10"), "2": Decimal(2)},
        {'"x"': "Invalid decimal string"},
    ),
    (
        dt.datetime,
        text("date-time"),
        {'"2026-01-31T12:00:00Z"': dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)},
        {'"today"': "Invalid RFC3339 encoded datetime", "5": ANY},
    ),
    (
        dt.date,
        text("date"),
        {'"2026-01-31"': dt.date(2026, 1, 31)},
        {'"x"': "Invalid RFC3339 encoded date"},
    ),
    (dt.time, text("time"), {'"12:30:00"': dt.time(12, 30)}, {}),
    (uuid.UUID, text("uuid"), {'"00000000-0000-0000-0000-000000000001"': uuid.UUID(int=1)}, {}),
    (pathlib.Path, PATH, {'"a/b"': pathlib.Path("a/b")}, {"1": ANY}),
    (UserId, INTEGER, {"1": 1}, {'"x"': ANY}),
    (Bounded, INTEGER, {"1": 1}, {'"x"': ANY}),
    (T, {}, {"1": 1}, {}),
]

MANY: list[Row_] = [
    *((hint, array(), {"[1, null]": [1, None]}, {"{}": ANY}) for hint in (list, OLD_LIST)),
    (
        list[int],
        array(INTEGER),
        {"[1, 2]": [1, 2], "[1.0]": [1]},
        {'[1, "x", []]': '[1]: expected integer, got string "x"; [2]: expected integer, got array []'},
    ),
    *(
        (hint, array(INTEGER), {"[1]": [1]}, {"1": ANY})
        for hint in (OLD_LIST[int], Sequence[int], Collection[int], Iterable[int])
    ),
    *((hint, array(), {"[1]": (1,)}, {}) for hint in (tuple, OLD_TUPLE)),
    (tuple[int, ...], array(INTEGER), {"[1]": (1,)}, {"1": ANY}),
    (
        tuple[int, str],
        fixed(INTEGER, STRING),
        {'[1, "a"]': (1, "a")},
        {"[1]": ANY, "[1, 2]": "[1]: expected string, got integer 2"},
    ),
    *(
        (hint, array(INTEGER, uniqueItems=True), {"[1]": kind({1})}, {"1": ANY})
        for hint, kind in ((set[int], set), (frozenset[int], frozenset), (Set[int], set))
    ),
    (set[Any], array(uniqueItems=True), {"[1]": {1}}, {"[[1]]": UNHASHABLE}),
    *(
        (hint, {"type": "object"}, {'{"a": 1}': {"a": 1}}, {"[]": ANY})
        for hint in (dict, OLD_DICT, Mapping, dict[str, Any], dict[Any, Any])
    ),
    *(
        (
            hint,
            {"type": "object", "additionalProperties": INTEGER},
            {'{"a": 1}': {"a": 1}, '{"a": 1.0}': {"a": 1}},
            {'{"a b": "x"}': '["a b"]: expected integer, got string "x"'},
        )
        for hint in (dict[str, int], Mapping[str, int], MutableMapping[str, int])
    ),
    (
        dict[int, str],
        {"type": "object", "propertyNames": {"pattern": "^-?[0-9]+$"}, "additionalProperties": STRING},
        {'{"1": "a"}': {1: "a"}},
        {
            '{"x": "a"}': 'x: as a name in an object: string "x" does not match "^-?[0-9]+$"',
            '{"1": 2}': '["1"]: expected string, got integer 2',
        },
    ),
    (
        dict[Level, int],
        {"type": "object", "propertyNames": {"enum": ["1", "2"]}, "additionalProperties": INTEGER},
        {'{"1": 1}': {Level.LOW: 1}},
        {'{"3": 1}': '["3"]: as a name in an object: expected one of "1", "2", got string "3"'},
    ),
]

CHOICES: list[Row_] = [
    (
        Literal["a", "b"],
        {**STRING, "enum": ["a", "b"]},
        {'"a"': "a"},
        {'"c"': ANY, "[]": ANY},
    ),
    (
        Literal["a", 1, True, None],
        {"enum": ["a", 1, True, None]},
        {'"a"': "a", "1": 1, "true": True, "null": None, "1.0": 1},
        {"0": ANY},
    ),
    (
        Color,
        {**STRING, "description": "A colour of light.", "enum": ["red", "green"]},
        {'"red"': Color.RED},
        {'"blue"': ANY},
    ),
    (
        Level,
        {**INTEGER, "description": "(1 = LOW, 2 = HIGH)", "enum": [1, 2]},
        {"2": Level.HIGH, "2.0": Level.HIGH},
        {"3": ANY},
    ),
    (
        Rate,
        {"description": '(0.5 = HALF, "full" = FULL)', "enum": [0.5, "full"]},
        {"0.5": Rate.HALF, '"full"': Rate.FULL},
        {'"HALF"': 'expected one of 0.5, "full", got string "HALF"', "[]": ANY},
    ),
    (
        Corner | None,  # by name: JSON has no tuples
        {"anyOf": [{**STRING, "enum": ["LEFT", "RIGHT", "BOTH"]}, NULL]},
        {'"LEFT"': Corner.LEFT, '"BOTH"': Corner.BOTH, "null": None},
        {"2": ANY, "[0, 1]": ANY},
    ),
    (
        Literal[Level.LOW, Color.RED, Corner.LEFT],
        {"enum": [1, "red", "LEFT"]},
        {"1": Level.LOW, "1.0": Level.LOW, '"red"': Color.RED, '"LEFT"': Corner.LEFT},
        {"2": 'expected one of 1, "red", "LEFT", got integer 2', "true": ANY},
    ),
    (Optional[int], {"anyOf": [INTEGER, NULL]}, {"1": 1, "null": None}, {}),  # noqa: UP045 -- the old form
    (int | str | None, {"anyOf": [INTEGER, STRING, NULL]}, {"1": 1, '"1"': "1", "1.0": 1}, {"[]": ANY}),
    (int | float, NUMBER, {"1": 1, "1.0": 1.0}, {'"x"': ANY}),
    (
        list[int] | list[str],
        {"anyOf": [array(INTEGER), array(STRING)]},
        {"[1]": [1], '["a"]': ["a"], "[1.0]": [1]},
        {'[1, "a"]': NO_FORM.format("array") + '[1]: expected integer, got string "a"', "1": ANY},
    ),
    (
        dt.datetime | dt.date | str,
        {"anyOf": [text("date-time"), text("date"), STRING]},
        {
            '"2026-01-31"': dt.date(2026, 1, 31),
            '"2026-01-31T00:00:00"': dt.datetime(2026, 1, 31),  # noqa: DTZ001 -- a naive one is what was sent
            '"x"': "x",
        },
        {},
    ),
    (
        Color | str,
        {"anyOf": [{**STRING, "description": "A colour of light.", "enum": ["red", "green"]}, STRING]},
        {'"red"': Color.RED, '"blue"': "blue"},
        {"1": 'expected one of "red", "green" or string, got integer 1'},
    ),
    (
        Point | Size | None,
        {"anyOf": [POINT, SIZE, NULL]},
        {'{"x": 1}': Point(1), '{"width": 2}': Size(2), "null": None},
        {
            '{"x": "a"}': NO_FORM.format("object") + 'x: expected integer, got string "a"',
            "3": "expected object or null, got integer 3",
        },
    ),
    (
        Cat | Dog | None,
        {"anyOf": [CAT, DOG, NULL]},
        {'{"type": "cat", "lives": 9}': Cat(9), '{"type": "dog"}': Dog(), '{"type": "cat", "lives": 9.0}': Cat(9)},
        {
            '{"type": "cow"}': 'type: expected one of "cat", "dog", got string "cow"',
            '{"type": "cat", "lives": "x"}': 'lives: expected integer, got string "x"',
            '{"type": "dog", "god": 1}': "god: unknown field; did you mean good?",
        },
    ),
]

RECORDS: list[Row_] = [
    (
        Point,
        POINT,
        {'{"x": 1}': Point(1, 0), '{"x": 1, "y": 2.0}': Point(1, 2)},
        {
            "{}": "x: expected integer, but it is missing",
            '{"x": 1, "Y": 2}': "Y: unknown field; did you mean y?",
            '{"x": 1, "other": 2}': "other: unknown field; known are: x, y",
            "[1]": ANY,
        },
    ),
    (
        Tree,
        {**TREE, "$defs": {"Tree": TREE}},
        {'{"value": 1, "children": [{"value": 2}]}': Tree(1, [Tree(2)])},
        {'{"value": 1, "children": [{"value": "x"}]}': 'children[0].value: expected integer, got string "x"'},
    ),
    (Size, SIZE, {'{"width": 3}': Size(3)}, {"[3]": ANY}),
    (
        Options,
        record("name", name=STRING, limit=INTEGER),
        {'{"name": "a"}': {"name": "a"}, '{"name": "a", "limit": 1}': {"name": "a", "limit": 1}},
        {'{"limit": "x"}': 'limit: expected integer, got string "x"; name: expected string, but it is missing'},
    ),
    (
        Account,
        record("name", closed=False, name=STRING, age={**INTEGER, "default": 0}),
        {'{"name": "a", "unknown": 1}': Account("a"), '{"name": "a", "age": 1.0, "unknown": 1}': Account("a", 1)},
        {'{"name": 1}': "name: expected string, got integer 1"},
    ),
    (
        Camel,
        record("firstName", firstName=STRING),
        {'{"firstName": "a"}': Camel("a")},
        {'{"firstName": 1}': "firstName: expected string, got integer 1"},
    ),
    (
        Derived,  # its base's docstring is not its own, and what is counted is no argument
        record("a", a=INTEGER, b={**STRING, "default": "b"}),
        {'{"a": 1}': Derived(1)},
        {'{"a": 1, "counted": 2}': "counted: unknown field; known are: a, b"},
    ),
    (
        list[Checked],
        array(record("a", a=INTEGER)),
        {'[{"a": 1}]': [Checked(1)]},
        {'[{"a": 1}, {"a": -1}]': "[1]: a must be positive", '[{"a": 0}]': "[0]: KeyError"},
    ),
    (
        More,
        record("a b", a=INTEGER, b=STRING, c=NUMBER, d={"type": "boolean"}),
        {'{"a": 1, "b": ""}': {"a": 1, "b": ""}},
        {},
    ),
    (Pair[int], fixed(INTEGER, INTEGER), {"[1, 2]": (1, 2)}, {'[1, "a"]': '[1]: expected integer, got string "a"'}),
]

LIMITS: list[Row_] = [
    (
        Annotated[int, at.Interval(ge=1, lt=5), "How many."],
        {**INTEGER, "minimum": 1, "exclusiveMaximum": 5, "description": "How many."},
        {"1": 1, "4.0": 4},
        {"0": ANY, "5": ANY},
    ),
    (
        Annotated[Annotated[int, at.Ge(1)] | None, at.Le(5)],
        {"anyOf": [{**INTEGER, "minimum": 1, "maximum": 5}, NULL]},
        {"3": 3, "null": None},
        {"6": ANY},
    ),
    (
        Annotated[int | Literal["all"], at.Ge(1)],
        {"anyOf": [{**INTEGER, "minimum": 1}, {**STRING, "enum": ["all"]}]},
        {"1": 1, '"all"': "all"},
        {"0": ANY, '"some"': ANY},
    ),
    (
        Annotated[float, at.MultipleOf(0.5), at.Gt(0)],
        {**NUMBER, "multipleOf": 0.5, "exclusiveMinimum": 0},
        {"1.5": 1.5},
        {"0.75": ANY},
    ),
    (
        Annotated[str, Meta(pattern="^a", min_length=2)],
        {**STRING, "minLength": 2, "pattern": "^a"},
        {'"ab"': "ab"},
        {'"ba"': ANY},
    ),
    (
        Annotated[dict[str, int], at.MinLen(1)],
        {"type": "object", "additionalProperties": INTEGER, "minProperties": 1},
        {'{"a": 1}': {"a": 1}},
        {"{}": ANY},
    ),
    (
        Annotated[
            int, Meta(description="An age.", examples=[3], extra_json_schema={"x-unit": "year"}), at.Unit("a"), None
        ],
        {**INTEGER, "description": "An age.", "examples": [3], "x-unit": "year"},
        {"1": 1},
        {},
    ),
    (
        Annotated[Age, at.Ge(1)],
        {**INTEGER, "minimum": 1, "description": "In years."},
        {"1": 1},
        {"0": ANY},
    ),
    (
        list[Annotated[Point, "A corner."]],
        array({**POINT, "description": "A corner. A point in the plane."}),
        {'[{"x": 1}]': [Point(1)]},
        {},
    ),
    # --- checked by pydantic
    (
        Annotated[dt.date, at.Ge(dt.date(2026, 1, 1))],
        text("date"),
        {'"2026-01-01"': dt.date(2026, 1, 1)},
        {'"2025-01-01"': 'expected greater than or equal to 2026-01-01, got string "2025-01-01"'},
    ),
    (
        Annotated[int, at.Ge(1), at.Ge(3)],
        {**INTEGER, "minimum": 3},
        {"3": 3},
        {"2": ANY},
    ),
]


@pytest.mark.parametrize("row", [*SINGLE, *MANY, *CHOICES, *RECORDS, *LIMITS], ids=lambda row: str(row[0])[:60])
def test_hint(row: Row_) -> None:
    """Check the schema, and good and bad values, as a type and as a parameter."""
    hint, schema, good, bad = row
    assert schema_of_type(hint) == schema
    assert jsonschema_rs.meta.is_valid(schema)
    validator = jsonschema_rs.Draft202012Validator(schema)
    decode = decoder_of_type(hint)

    def tool(value: Any) -> None: ...

    tool.__annotations__["value"] = hint
    arguments = arguments_of(tool)
    for given, value in good.items():
        decoded = decode(given)
        assert (decoded, type(decoded)) == (value, type(value))
        assert values_of(arguments, f'{{"value": {given}}}') == (value,)
        assert validator.is_valid(json.loads(given)) or "null" in given
    for given, message in bad.items():
        with pytest.raises(InvalidArguments) as caught:
            decode(given)
        problem = str(caught.value)
        assert problem == message or (
            message == ANY and re.fullmatch(r"expected .*, got .*|.* (is|has|does) .*", problem)
        )
        with pytest.raises(InvalidArguments) as caught:
            arguments.decode(f'{{"value": {given}}}')
        found = [str(problem).removeprefix("value").lstrip(".:").strip() for problem in caught.value.problems]
        assert "; ".join(found) == problem


@pytest.mark.parametrize("hint", [Nest[int], IntNest])
def test_generic_classes_and_their_subclasses(hint: object) -> None:
    properties: Any = schema_of_type(hint)["properties"]
    assert properties["value"] == INTEGER
    decoder_of_type(hint)('{"value": 1}')
    with pytest.raises(InvalidArguments, match='others\\[0\\].value: expected integer, got string "x"'):
        decoder_of_type(hint)('{"value": 1, "others": [{"value": "x"}]}')


REFUSED = {
    "Callable": (Callable[[int], int], "cannot be expressed in JSON"),
    "complex": (complex, "complex cannot be expressed in JSON"),
    "a class": (pytest.Config, "Config cannot be expressed in JSON"),
    "type": (type[int], "cannot be expressed in JSON"),
    "Never": (Never, "Never cannot be expressed in JSON"),
    "a tuple of unknown length": (tuple[int, *tuple[str, ...]], "cannot be expressed in JSON"),
    "inside a dataclass": (list[Impossible], "in Impossible, complex cannot be expressed in JSON"),
    "an Enum without members": (Empty, "Empty has no members"),
    "inside a union": (int | complex, "complex cannot be expressed in JSON"),
    "a string": ("int", "the forward reference 'int' was not resolved"),
    "not a type": (5, "5 cannot be expressed in JSON"),
    "bytes in Literal": (Literal[b"a"], "has no JSON form"),
    "a set of lists": (set[list[int]], "a set cannot hold mutable values"),
    "names that are booleans": (dict[bool, int], "cannot be a name in a JSON object"),
    "a limit on the wrong type": (Annotated[bool, Meta(ge=1)], "the limit ge=1 cannot be checked on bool"),
    "a limit on no member of a union": (Annotated[bool | None, Meta(ge=1)], "cannot be checked on bool | None"),
    "a second limit of one kind": (Annotated[str, Meta(pattern="a"), Meta(pattern="b")], "cannot be checked on str"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_hints_are_refused(name: str) -> None:
    hint, message = REFUSED[name]
    with pytest.raises(ToolDefinitionError) as caught:
        schema_of_type(hint)
    assert message in caught.value.message
    assert caught.value.hint


def test_a_limit_that_only_pydantic_can_check_is_refused_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pydantic")
    for hint in (Annotated[Decimal, at.Ge(1)], Annotated[str, at.Predicate(str.islower)]):
        with pytest.raises(ToolDefinitionError, match="cannot be checked on") as caught:
            schema_of_type(hint)
        assert "import pydantic" in str(caught.value.hint)


def test_a_class_that_is_used_twice_is_defined_once() -> None:
    def tool(size: Size, sizes: list[Size], margin: Margin) -> None: ...

    schema: Any = arguments_of(tool).schema
    reference = {"$ref": "#/$defs/Size"}
    assert schema["properties"] == {"size": reference, "sizes": array(reference), "margin": SIZE}
    assert schema["$defs"] == {"Size": SIZE}


def test_open_forms_of_a_recursive_class_are_told_apart_by_their_names() -> None:
    given = '{"parts": [{"size": 1}, {"parts": [{"size": 2}]}]}'
    assert decoder_of_type(Branch)(given) == Branch([Leaf(1), Branch([Leaf(2)])])


def test_annotations_may_name_a_class_of_a_factory_that_has_returned() -> None:
    def factory() -> Callable[..., object]:
        class Local(typing.TypedDict):
            x: int

        def tool(value: Local) -> Local:
            return Local(x=value["x"] + offset)

        arguments_of(tool)  # when `offset` is not assigned yet
        offset = 1
        return tool

    assert values_of(arguments_of(factory()), '{"value": {"x": 1}}') == ({"x": 1},)


def test_recursive_aliases() -> None:
    def tool(value: Json) -> None: ...

    arguments = arguments_of(tool)
    inside = {"$ref": "#/$defs/Json"}
    schema = {"anyOf": [{"type": "object", "additionalProperties": inside}, array(inside), STRING, INTEGER, NULL]}
    assert arguments.schema["properties"] == {"value": inside}
    assert arguments.schema["$defs"] == {"Json": schema}
    given = '{"value": {"a": [1, null, {"b": "c"}]}}'
    assert values_of(arguments, given) == ({"a": [1, None, {"b": "c"}]},)
    with pytest.raises(InvalidArguments, match=r"^value"):
        arguments.decode('{"value": {"a": [true]}}')
    assert decoder_of_type(Odd)("[null, [[null]]]") == [None, [[None]]]
    with pytest.raises(InvalidArguments, match=r"^\[0\]: expected array or null, got integer 1$"):
        decoder_of_type(Odd)("[1]")


NEW_SYNTAX = """
from dataclasses import dataclass

type Json = dict[str, Json] | list[Json] | str | int | None
type Pair[T] = tuple[T, T]

@dataclass
class Box[T: (int, str)]:
    value: T

def tool[T: int](json: Json, pair: Pair[int], box: Box[int], some: T) -> None: ...
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax is of Python 3.12")
def test_aliases_and_generics_in_the_syntax_of_python_3_12() -> None:
    names: dict[str, Any] = {"__name__": __name__}
    exec(NEW_SYNTAX, names)
    arguments = arguments_of(names["tool"])
    given = '{"json": {"a": [1]}, "pair": [1, 2], "box": {"value": 3}, "some": 4}'
    assert values_of(arguments, given) == ({"a": [1]}, (1, 2), names["Box"](3), 4)
    with pytest.raises(InvalidArguments) as caught:
        arguments.decode('{"json": true, "pair": [1], "box": {"value": "x"}, "some": "y"}')
    assert [problem.path for problem in caught.value.problems] == [("json",), ("pair",), ("box", "value"), ("some",)]


def test_changing_a_schema_changes_no_other_tool() -> None:
    def first(x: list[int]) -> None:
        """First."""

    def second(x: list[int]) -> None:
        """Second."""

    schema: Any = tool(first).arguments.schema
    schema["properties"]["x"]["items"]["minimum"] = 7
    assert tool(second).arguments.schema["properties"]["x"]["items"] == {"type": "integer"}
