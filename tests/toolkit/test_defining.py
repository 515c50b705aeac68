"""How the ready tools are defined."""

from __future__ import annotations

import pytest

from dragoman.errors import ToolValidationError
from dragoman.toolkit.defining import ready
from dragoman.tools.executor import execute_tool
from tests.toolkit.calling import bad, call, good


@ready(name="Greet", filled=["name"], read_only=True, tags=["x"])
def greet(name: str, times: int, loudly: bool = False) -> str:
    """Greet somebody.

    Args:
        name: Whom.
        times: How often.
    """
    return " ".join([f"hi {name}"] * times)


def test_it_is_an_ordinary_tool() -> None:
    assert (greet.name, greet.description, greet.options.read_only, greet.spec.tags) == (
        "Greet",
        "Greet somebody.",
        True,
        ("x",),
    )
    assert greet.spec.schema["required"] == ["name", "times"]
    assert greet("you", 1) == "hi you"
    assert good(call(greet, name="you", times=2)) == "hi you hi you"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "missing name argument; missing times argument"),
        ({"times": 1}, "missing name argument"),
        ({"name": "", "times": 1}, "missing name argument"),
        ({"name": None, "times": 1}, "missing name argument"),
        ({"name": "x"}, "missing times argument"),
        ({"name": "x", "tiems": 1}, "missing times argument; tiems: unknown argument; did you mean times?"),
        ({"times": "often"}, 'missing name argument; times: expected integer, got string "often"'),
    ],
)
def test_what_is_missing_is_told_in_these_words(arguments: dict[str, object], text: str) -> None:
    assert bad(call(greet, **arguments), "validation") == text
    with pytest.raises(ToolValidationError) as caught:
        execute_tool([greet], "Greet", arguments)
    assert (str(caught.value), caught.value.tool_name) == (text, "Greet")


@pytest.mark.parametrize("arguments", ["[]", "null", "{", '"x"', "", "[" * 5000])
def test_arguments_that_are_no_object(arguments: str) -> None:
    with pytest.raises(ToolValidationError):
        execute_tool([greet], "Greet", arguments)


def test_other_problems_keep_their_words() -> None:
    assert "loudly: expected boolean" in bad(call(greet, name="x", times=1, loudly="very"), "validation")


def test_what_is_forgiven_elsewhere_is_forgiven_here() -> None:
    assert good(call(greet, name="x", times=2.0, loudly=None)) == "hi x hi x"
    assert bad(call(greet, name="", times=2.0, loudly=None), "validation") == "missing name argument"
