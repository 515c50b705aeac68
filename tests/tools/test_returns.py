from __future__ import annotations

from typing import Any

import pytest

from dragoman.conversation import (
    Json,
    Media,
    Text,
)
from dragoman.tools import Tool, ToolConfig, ToolExecutor, tool
from tests.tools.cases import aecho, call
from tests.tools.colours import Runner, both_colours, one


@pytest.mark.parametrize(
    ("returned", "content"),
    [
        ("text", (Text("text"),)),
        (Text("block"), (Text("block"),)),
        ([Text("a"), Media.from_path("a.png")], (Text("a"), Media.from_path("a.png"))),
    ],
)
def test_text_and_blocks_are_taken_as_they_are(returned: object, content: tuple[object, ...]) -> None:
    with ToolExecutor([Tool.from_schema(lambda: returned, name="give")]) as executor:
        assert executor.execute(call("give")).content == content


@pytest.mark.parametrize(
    ("returned", "text"),
    [(None, "null"), (1, "1"), ({"a": [1, None]}, '{"a":[1,null]}'), ([], "[]"), ({1}, "[1]"), (b"\0", '"AA=="')],
)
def test_data_becomes_json(returned: object, text: str) -> None:
    with ToolExecutor([Tool.from_schema(lambda: returned, name="give")]) as executor:
        result = executor.execute(call("give"))
    assert isinstance(result.content[0], Json)
    assert result.text == text


def test_what_cannot_be_json_is_the_tools_failure() -> None:
    give: Any = lambda: object()  # noqa: E731, PLW0108
    with ToolExecutor([Tool.from_schema(give, name="give"), tool(give, name="plain")]) as executor:
        for name in ("give", "plain"):
            result = executor.execute(call(name))
            assert result.error_type == "execution"
            assert "type object cannot be written as JSON" in result.text


@both_colours
def test_a_plain_function_may_return_a_coroutine(execute_all: Runner) -> None:
    def sneaky(text: str) -> Any:
        return aecho(text)

    assert one(execute_all(ToolExecutor([sneaky]), [call("sneaky", '{"text": "x"}')])).text == "x"
    with ToolExecutor([sneaky]) as executor:
        assert executor.execute(call("sneaky", '{"text": "x"}')).text == "x"


@both_colours
def test_a_returned_coroutine_that_comes_too_late_is_closed(execute_all: Runner) -> None:
    now = 0.0

    @tool(timeout=1)
    def sneaky(text: str) -> Any:
        nonlocal now
        now = 5.0
        return aecho(text)

    executor = ToolExecutor([sneaky], ToolConfig(run_timeout=3), clock=lambda: now)
    assert one(execute_all(executor, [call("sneaky", '{"text": "x"}')])).error_type == "timeout"
