from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType

import pytest

from dragoman.errors import ToolExecutionError, ToolNotFoundError, ToolValidationError
from dragoman.tools import aexecute_tool, atool_result_or_error, execute_tool, tool, tool_result_or_error


@tool
def echo(text: str) -> str:
    return text


@tool
def boom() -> None:
    raise ValueError("no luck")


TOOLS = {"echo": echo, "boom": boom}


@pytest.mark.parametrize(
    "arguments", ['{"text": "hi"}', b'{"text": "hi"}', {"text": "hi"}, MappingProxyType({"text": "hi"})]
)
def test_found(arguments: str | bytes | Mapping[str, object]) -> None:
    assert execute_tool(TOOLS, "echo", arguments) == "hi"
    assert asyncio.run(aexecute_tool(TOOLS, "echo", arguments)) == "hi"


def test_not_found_names_the_tool() -> None:
    with pytest.raises(ToolNotFoundError, match="tool 'ecco' not found") as caught:
        execute_tool(TOOLS, "ecco")
    assert caught.value.tool_name == "ecco"
    with pytest.raises(ToolNotFoundError):
        asyncio.run(aexecute_tool(TOOLS, "ecco"))


def test_a_failing_tool_is_a_wrapped_error_that_names_it() -> None:
    with pytest.raises(ToolExecutionError, match="executing tool 'boom': ValueError: no luck") as caught:
        execute_tool(TOOLS, "boom")
    assert isinstance(caught.value.__cause__, ValueError)
    assert (caught.value.tool_name, caught.value.type) == ("boom", "execution")


def test_wrong_arguments_are_a_typed_error_with_the_raw_text() -> None:
    with pytest.raises(ToolValidationError, match="text") as caught:
        execute_tool(TOOLS, "echo", '{"txt": 1}')
    assert caught.value.details == '{"txt": 1}'
    with pytest.raises(ToolValidationError):
        execute_tool(TOOLS, "echo", b"\xff")


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("echo", '{"text": "hi"}', "hi"),
        ("ecco", "", "tool 'ecco' not found. Did you mean 'echo'?"),
        ("boom", "", "executing tool 'boom': ValueError: no luck"),
    ],
)
def test_result_or_error_never_raises_for_a_tool(name: str, arguments: str, text: str) -> None:
    assert tool_result_or_error(TOOLS, name, arguments) == text
    assert asyncio.run(atool_result_or_error(TOOLS, name, arguments)) == text
