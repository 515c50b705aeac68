"""All functions of the Berkeley Function-Calling Leaderboard in all styles, as the official SDKs' types have them."""

from __future__ import annotations

import json
from functools import cache

import jsonschema_rs
import pytest

from dragoman.providers.profile import SchemaStyle
from dragoman.providers.schema import Conversion, convert as conversion
from dragoman.tools import AnyTool, Tool
from tests.providers.schema.checkers import CHECKERS, STYLES
from tests.tools.arguments.test_bfcl import data_directory, functions_of, lines_of

FUNCTIONS = 3_526


@cache
def tools() -> tuple[AnyTool, ...]:
    """The functions as tools, which is how they would be sent: their odd types are put right by then."""
    folder = data_directory()
    if folder is None:
        pytest.skip("the data of bfcl-eval is not installed; `dev.py` installs it from requirements/data.lock")
    paths = [path for path in sorted(folder.rglob("*.json")) if "possible_answer" not in path.parts]
    found = [one for path in paths for entry in lines_of(path) for one in functions_of(entry)]
    return tuple(
        Tool.from_schema(_nothing, one["parameters"], name=one["name"], description=one["description"])
        for one in {json.dumps(one, sort_keys=True): one for one in found}.values()
    )


def _nothing(**_arguments: object) -> None:
    pass


@cache
def conversions(style: SchemaStyle) -> tuple[Conversion, ...]:
    return tuple(conversion(tool.spec.schema, style, strict=True) for tool in tools())


@pytest.mark.parametrize("style", STYLES)
def test_all_functions_obey_the_rules_of_every_style(style: SchemaStyle) -> None:
    assert len(tools()) == FUNCTIONS
    for done in conversions(style):
        rules = CHECKERS["json_schema" if done.reason else style]
        assert rules(done.schema) == []
        assert jsonschema_rs.meta.is_valid(done.schema)


@pytest.mark.parametrize(
    ("style", "strict", "exact"), [("openai_strict", 3_374, 3_526), ("anthropic_strict", 3_372, 3_524)]
)
def test_nearly_all_functions_can_be_strict(style: SchemaStyle, strict: int, exact: int) -> None:
    """The numbers are what was found; they change only if a rule changes."""
    assert sum(not done.reason for done in conversions(style)) == strict
    assert sum(done.exact for done in conversions(style)) == exact


def test_plain_schemas_are_unchanged() -> None:
    for tool, done in zip(tools(), conversions("json_schema"), strict=True):
        assert done.schema == tool.spec.schema
        assert done.lines == ()
