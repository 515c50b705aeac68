from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.conversation import (
    Json,
    Media,
    Message,
    Text,
    ToolCall,
    ToolResult,
    message_to_json,
)
from dragoman.errors import ToolExecutionError
from dragoman.tools import Tool, ToolConfig, ToolExecutor, tool
from dragoman.tools.call import failure, success
from tests.tools.cases import Runner, aecho, both_colours, call, one, wait_until

PICTURE = Media.from_bytes(b"png", "image/png")


@pytest.mark.parametrize(
    ("returned", "content"),
    [
        ("text", (Text("text"),)),
        (Text("block"), (Text("block"),)),
        ([Text("a"), PICTURE], (Text("a"), PICTURE)),
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


def test_a_file_is_read_when_the_tool_returns_it(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"png")
    there, gone = Media.from_path(tmp_path / "a.png"), Media.from_path(tmp_path / "b.png")
    for returned in (there, ToolResult("", "", (there,))):
        with ToolExecutor([Tool.from_schema(lambda given=returned: given, name="give")]) as executor:
            [part] = executor.execute(call("give")).content
        assert isinstance(part, Media)
        assert part.data == b"png"
    with ToolExecutor([Tool.from_schema(lambda: gone, name="give")]) as executor:
        assert "'b.png' is not a file that can be sent" in executor.execute(call("give")).text


SMALL = ToolConfig(max_result_size=10, max_media_size=3)


@both_colours
@pytest.mark.parametrize(
    ("returned", "begins", "notes"),
    [
        ("0123456789", "0123456789", 0),
        ("0123456789x", "0123456789\n[Cut here: the result is longer than 10 characters", 1),
        (list(range(9)), "[0,1,2,3,4\n[Cut here", 1),
        ([Text("01234"), Text("5678"), Text("9x"), Text("more")], "01234\n5678\n9\n[Cut here", 1),
        ([Text("")] * 2_000, "\n\n\n", 1),
        (PICTURE, "", 0),
        (
            [Media.from_bytes(b"larger", "image/png"), Text("a")],
            "[Left out: image of 6 bytes, too large to be read.]\na",
            1,
        ),
        (
            ToolResult("", "", (Text("a"),), structured=Json(msgspec.Raw(b'"0123456789"'))),
            "a\n[Left out: the struct",
            1,
        ),
        (ValueError("no luck at all"), "executing \n[Cut here", 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_too_large_for_a_model_is_cut_with_a_note(
    execute_all: Runner, returned: object, begins: str, notes: int
) -> None:
    def give() -> Any:
        if isinstance(returned, ValueError):
            raise returned
        return returned

    result = one(execute_all(ToolExecutor([tool(give)], SMALL), [call("give")]))
    assert result.text.startswith(begins)
    assert (result.text.count("[Cut here") + result.text.count("[Left out")) == notes
    assert result.structured is None
    assert len(result.content) <= 1_001


@both_colours
def test_a_plain_function_may_return_a_coroutine(execute_all: Runner) -> None:
    def sneaky(text: str) -> Any:
        return aecho(text)

    assert one(execute_all(ToolExecutor([sneaky]), [call("sneaky", '{"text": "x"}')])).text == "x"
    with ToolExecutor([sneaky]) as executor:
        assert executor.execute(call("sneaky", '{"text": "x"}')).text == "x"


@both_colours
def test_a_returned_coroutine_that_comes_too_late_is_closed(execute_all: Runner) -> None:
    too_late = threading.Event()

    @tool(timeout=0.05)
    def sneaky(text: str) -> Any:
        too_late.wait(10)
        return aecho(text)

    executor = ToolExecutor([sneaky])
    assert one(execute_all(executor, [call("sneaky", '{"text": "x"}')])).error_type == "timeout"
    too_late.set()
    wait_until(lambda: executor.abandoned == 0)  # a coroutine that nobody closes is a warning, and so an error here


CALL = ToolCall("1", "give")


def test_text_that_utf8_cannot_carry_is_made_visible() -> None:
    result = success(CALL, "caf\udce9 für 2 €", 0.0)
    assert result.text == "caf\\udce9 für 2 €"
    message_to_json(Message.tool([result, failure(CALL, ToolExecutionError("\ud800"), 0.0)]))
