"""Objects with named fields: dataclass, TypedDict, NamedTuple and msgspec.Struct."""

from __future__ import annotations

import pathlib
from collections import namedtuple
from dataclasses import dataclass, field
from typing import NamedTuple, NotRequired, Required, TypedDict

import msgspec
import pytest

from tests.tools.arguments.cases import INTEGER, NULL, STRING, Case, check, name


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


Bag = namedtuple("Bag", "size color", defaults=["red"])


class Options(TypedDict, total=False):
    name: Required[str]
    limit: int


class Filter(TypedDict):
    field: str
    negate: NotRequired[bool]


class Account(msgspec.Struct):
    name: str
    age: int = 0


class Node(msgspec.Struct):
    value: int
    next: Node | None = None


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Row(msgspec.Struct, array_like=True):
    key: str
    count: int = 1


class TaggedRow(msgspec.Struct, array_like=True, tag="row"):
    key: pathlib.Path


class Camel(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    first_name: str


class Partial(msgspec.Struct):
    value: int | msgspec.UnsetType = msgspec.UNSET


class WithPath(msgspec.Struct):
    path: pathlib.Path


POINT = {
    "type": "object",
    "description": "A point in the plane.",
    "properties": {"x": {"type": "integer", "description": "How far to the right."}, "y": {**INTEGER, "default": 0}},
    "required": ["x"],
    "additionalProperties": False,
}
TREE = {
    "type": "object",
    "properties": {"value": INTEGER, "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}, "default": []}},
    "required": ["value"],
    "additionalProperties": False,
}
NODE = {
    "type": "object",
    "properties": {"value": INTEGER, "next": {"anyOf": [{"$ref": "#/$defs/Node"}, NULL], "default": None}},
    "required": ["value"],
}

CASES = [
    Case(
        Point,
        POINT,
        {'{"x": 1}': Point(1, 0), '{"x": 1, "y": 2.0}': Point(1, 2)},
        {
            "{}": "x: expected integer, but it is missing",
            '{"x": 1, "Y": 2}': "Y: unknown field; did you mean y?",
            '{"x": 1, "other": 2}': "other: unknown field; known are: x, y",
            "[1]": "expected object, got array [1]",
        },
    ),
    Case(
        Tree,
        {**TREE, "$defs": {"Tree": TREE}},
        {'{"value": 1, "children": [{"value": 2}]}': Tree(1, [Tree(2)])},
        {
            '{"value": 1, "children": [{"value": 2, "children": [{}]}]}': "children[0].children[0].value: "
            "expected integer, but it is missing"
        },
    ),
    Case(
        Size,
        {
            "type": "object",
            "properties": {"width": INTEGER, "height": {**INTEGER, "default": 1}},
            "required": ["width"],
            "additionalProperties": False,
        },
        {'{"width": 3}': Size(3)},
        {"[3]": "expected object, got array [3]"},
    ),
    Case(
        Bag,
        {
            "type": "object",
            "properties": {"size": {}, "color": {"default": "red"}},
            "required": ["size"],
            "additionalProperties": False,
        },
        {'{"size": 3}': Bag(3)},
        {"{}": "size: expected a value, but it is missing"},
    ),
    Case(
        Options,
        {
            "type": "object",
            "properties": {"name": STRING, "limit": INTEGER},
            "required": ["name"],
            "additionalProperties": False,
        },
        {'{"name": "a"}': {"name": "a"}, '{"name": "a", "limit": 1}': {"name": "a", "limit": 1}},
        {'{"limit": "x"}': 'limit: expected integer, got string "x"; name: expected string, but it is missing'},
    ),
    Case(
        Filter,
        {
            "type": "object",
            "properties": {"field": STRING, "negate": {"type": "boolean"}},
            "required": ["field"],
            "additionalProperties": False,
        },
        {'{"field": "a"}': {"field": "a"}},
        {"{}": "field: expected string, but it is missing"},
    ),
    Case(
        Account,
        {
            "type": "object",
            "properties": {"name": STRING, "age": {**INTEGER, "default": 0}},
            "required": ["name"],
        },
        {'{"name": "a", "unknown": 1}': Account("a"), '{"name": "a", "age": 1.0, "unknown": 1}': Account("a", 1)},
        {'{"name": 1}': "name: expected string, got integer 1"},
    ),
    Case(
        Node,
        {**NODE, "$defs": {"Node": NODE}},
        {'{"value": 1, "next": {"value": 2}}': Node(1, Node(2))},
        {'{"value": 1, "next": {"value": "x"}}': 'next.value: expected integer, got string "x"'},
    ),
    Case(
        Cat,
        {
            "type": "object",
            "properties": {"type": {"type": "string", "enum": ["cat"]}, "lives": INTEGER},
            "required": ["type", "lives"],
        },
        {'{"type": "cat", "lives": 9}': Cat(9), '{"lives": 9}': Cat(9)},
        {'{"type": "dog", "lives": 9}': 'type: expected "cat", got string "dog"'},
        forgiven=frozenset({'{"lives": 9}'}),  # where only one is possible, msgspec needs no tag
    ),
    Case(
        Row,
        {"type": "array", "prefixItems": [STRING, {**INTEGER, "default": 1}], "minItems": 1},
        {'["a"]': Row("a"), '["a", 2.0]': Row("a", 2)},
        {"[1]": "[0]: expected string, got integer 1", "{}": "expected array, got object {}"},
    ),
    Case(
        TaggedRow,
        {
            "type": "array",
            "prefixItems": [{"type": "string", "enum": ["row"]}, {"type": "string", "format": "path"}],
            "minItems": 2,
        },
        {'["row", "a"]': TaggedRow(pathlib.Path("a"))},
        {'["other", "a"]': '[0]: expected "row", got string "other"'},
    ),
    Case(
        Camel,
        {
            "type": "object",
            "properties": {"firstName": STRING},
            "required": ["firstName"],
            "additionalProperties": False,
        },
        {'{"firstName": "a"}': Camel("a")},
        {
            '{"first_name": "a"}': "first_name: unknown field; did you mean firstName?; "
            "firstName: expected string, but it is missing"
        },
    ),
    Case(
        Partial, {"type": "object", "properties": {"value": INTEGER}}, {"{}": Partial(), '{"value": 1}': Partial(1)}, {}
    ),
    Case(
        WithPath,
        {"type": "object", "properties": {"path": {"type": "string", "format": "path"}}, "required": ["path"]},
        {'{"path": "a", "unknown": 1}': WithPath(pathlib.Path("a"))},
        {'{"path": 1}': "path: expected string, got integer 1"},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=name)
def test_hint(case: Case) -> None:
    check(case)
