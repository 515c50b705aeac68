"""How the ready tools are defined."""

from __future__ import annotations

import pytest

from dragoman.errors import ToolValidationError
from dragoman.toolkit.decorator import ready
from dragoman.tools.executor import execute_tool
from tests.toolkit.calling import bad, call, good


@ready(name="Greet", needs=["name"], read_only=True, tags=["x"])
def greet(*, name: str = "", times: int, loudly: bool = False) -> str:
    """Greet somebody.

    Args:
        name: Whom.
        times: How often.
    """
    return " ".join([f"hi {name}"] * times)


def test_it_is_an_ordinary_tool_that_says_what_it_needs() -> None:
    assert (greet.name, greet.description, greet.options.read_only) == ("Greet", "Greet somebody.", True)
    assert greet.spec.schema["required"] == ["name", "times"]
    assert greet.spec.schema["properties"]["name"] == {"type": "string", "description": "Whom."}
    assert good(call(greet, name="you", times=2.0)) == greet(name="you", times=2) == "hi you hi you"


@pytest.mark.parametrize("arguments", [{"times": 1}, {"name": "", "times": 1}, {"name": None, "times": 1}])
def test_what_is_not_there_or_empty_is_missing(arguments: dict[str, object]) -> None:
    assert bad(call(greet, **arguments), "validation") == "missing name argument"
    with pytest.raises(ToolValidationError) as caught:
        execute_tool([greet], "Greet", arguments)
    assert (str(caught.value), caught.value.tool_name) == ("missing name argument", "Greet")


def test_other_problems_have_the_words_of_the_tool_layer() -> None:
    assert "times" in bad(call(greet, name="x"), "validation")
    assert "did you mean times?" in bad(call(greet, name="x", tiems=1), "validation")
