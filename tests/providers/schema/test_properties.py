"""Whatever the schema: the output obeys the style's rules, allows no more than it claims, and is stable."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

import jsonschema_rs
import pytest

from dragoman.errors import ToolDefinitionError
from dragoman.providers.profile import SchemaStyle
from dragoman.providers.schema import Conversion, convert
from dragoman.tools import compile_schema, forgive
from tests.providers.schema.checkers import CHECKERS, STYLES
from tests.providers.schema.generated import instances, seeded
from tests.rounds import rounds

every_style = pytest.mark.parametrize("style", STYLES)


def converted(schema: dict[str, Any], style: SchemaStyle) -> Conversion | None:
    """The conversion; None for schemas that nothing can fit, which are refused."""
    try:
        return convert(schema, style, strict=True)
    except ToolDefinitionError as error:
        if "root allows none" not in error.message:
            raise
        return None


def check(schema: dict[str, Any], style: SchemaStyle, choose: Callable[[int], int]) -> None:
    """Everything that must hold of one schema in one style."""
    before = json.dumps(schema)
    done = converted(schema, style)
    assert json.dumps(schema) == before
    if done is None:
        return
    obeys_the_rules(done, style)
    is_stable(schema, done, style)
    notes_are_lines(done)
    if done.exact:
        allows_no_more(schema, done, choose)


def obeys_the_rules(done: Conversion, style: SchemaStyle) -> None:
    rules = CHECKERS["json_schema" if done.reason else style]
    assert rules(done.schema) == [], json.dumps(done.schema)
    assert jsonschema_rs.meta.is_valid(done.schema)


def is_stable(schema: dict[str, Any], done: Conversion, style: SchemaStyle) -> None:
    """The same input gives the same bytes, and what was converted needs no further conversion."""
    twin = converted(copy.deepcopy(schema), style)
    assert twin is not None
    assert json.dumps(twin.schema) == json.dumps(done.schema)
    again = converted(done.schema, style)
    assert again is not None
    assert json.dumps(again.schema) == json.dumps(done.schema)
    assert again.exact
    assert bool(again.reason) == bool(done.reason)


def notes_are_lines(done: Conversion) -> None:
    for line in done.lines:
        assert "\n" not in line
        assert line.removeprefix("not strict: ").startswith("/")


def allows_no_more(schema: dict[str, Any], done: Conversion, choose: Callable[[int], int]) -> None:
    """Whatever fits what is sent fits the given schema."""
    sent, wanted = compile_schema(done.schema), compile_schema(schema)
    for _ in range(5):
        value = instances(done.schema, choose)
        if sent.fits(value):
            assert wanted.fits(forgive(value, wanted.unwanted_nulls(value))), json.dumps([schema, done.schema, value])


@every_style
@pytest.mark.parametrize("tame", [False, True])
def test_random_schemas(style: SchemaStyle, tame: bool) -> None:
    for seed in range(rounds(800)):
        schema = seeded(seed, tame=tame)
        try:
            check(schema, style, Random(seed).randrange)
        except AssertionError as error:
            error.add_note(f"seed {seed}: {json.dumps(schema)}")
            raise


@every_style
def test_simple_schemas_are_converted_without_loss(style: SchemaStyle) -> None:
    """The tests above would prove little if most conversions were lossy or given up."""
    done = [found for seed in range(300) if (found := converted(seeded(seed, tame=True), style)) is not None]
    assert sum(one.exact and not one.reason for one in done) > 100
