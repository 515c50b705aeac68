"""What comes of a call: its result, what the model reads of it, and who is told."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent import futures
from pathlib import Path
from types import MappingProxyType
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
from dragoman.errors import ToolError, ToolExecutionError, ToolNotFoundError, ToolValidationError
from dragoman.tools import (
    Tool,
    ToolConfig,
    ToolExecutor,
    aexecute_tool,
    atool_result_or_error,
    execute_tool,
    tool,
    tool_result_or_error,
)
from dragoman.tools.call import failure, success
from tests.logs import never_set_up
from tests.tools.cases import Runner, aboom, aecho, boom, call, echo, one, wait_until

LUCK = "ValueError: no luck"


@pytest.mark.parametrize(
    ("name", "arguments", "error", "text"),
    [
        ("echo", '{"text": "hi"}', None, "hi"),
        ("aecho", '{"text": "hi"}', None, "hi"),
        ("boom", "", "execution", f"executing tool 'boom': {LUCK}"),
        ("aboom", "", "execution", f"executing tool 'aboom': {LUCK}"),
        ("picky", "", "execution", "Only on weekdays."),
        ("ecko", "", "not_found", "tool 'ecko' not found. Did you mean 'echo'"),
        *(
            ("echo", arguments, "validation", "invalid arguments for tool 'echo': ")
            for arguments in ('{"text": 3}', "{}", '{"text": "x", "more": 1}', "[1]", '{"text"', "nonsense")
        ),
    ],
)
def test_what_comes_of_a_call(execute_all: Runner, name: str, arguments: str, error: str | None, text: str) -> None:
    def picky() -> None:
        raise ToolExecutionError("Only on weekdays.")

    result = one(execute_all(ToolExecutor([echo, aecho, boom, aboom, picky]), [call(name, arguments)]))
    assert (result.error_type, result.is_error, result.retries) == (error, error is not None, 0)
    assert (result.name, result.call_id) == (name, "1")
    assert result.duration is not None
    assert result.text.startswith(text)
    assert "\n" not in result.text


def test_a_call_that_broke_off_is_not_run(execute_all: Runner) -> None:
    broken = ToolCall("1", "echo", '{"text": "x"}', partial=True)
    assert one(execute_all(ToolExecutor([echo]), [broken])).error_type == "validation"


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("cap", [1, 5])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "kind",
    [SystemExit, GeneratorExit, asyncio.CancelledError, futures.CancelledError, StopIteration, KeyboardInterrupt],
)
def test_whatever_a_tool_raises_is_its_result(
    execute_all: Runner, count: int, cap: int, is_async: bool, kind: type[BaseException]
) -> None:
    def leave() -> None:
        raise kind("bye")

    async def aleave() -> None:
        raise kind("bye")

    if kind is KeyboardInterrupt and (is_async or cap == 1):
        pytest.skip("it may be the user's")  # in a worker thread Ctrl-C never arrives, so there it is the tool's
    leaving = tool(aleave if is_async else leave, name="leave")
    calls = [call("leave", id=str(number)) for number in range(count)]
    executed = execute_all(ToolExecutor([leaving], ToolConfig(max_parallel_tools=cap)), calls)
    expected = "cancelled" if kind.__name__ == "CancelledError" else "execution"
    assert [result.error_type for result in executed.results] == [expected] * count


def test_the_hook_sees_every_call_once_and_hurts_none_where_it_fails(
    execute_all: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[str, str | None]] = []

    def hook(made: ToolCall, result: ToolResult) -> None:
        seen.append((made.id, result.error_type))
        raise RuntimeError("hook")

    calls = [call("echo", '{"text": "x"}'), call("boom", id="2"), call("nope", id="3")]
    executed = execute_all(ToolExecutor([echo, boom], on_result=hook), calls)
    assert sorted(seen) == [("1", None), ("2", "execution"), ("3", "not_found")]
    assert executed.results[0].text == "x"
    assert "the on_result hook failed for tool echo" in caplog.text


def test_one_log_line_for_each_call_without_the_users_data(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.tools")
    with ToolExecutor([echo, boom]) as executor:
        executor.execute(call("echo", '{"text": "my secret"}'))
        executor.execute(call("boom", id="2"))
    good, crash, bad = caplog.records
    assert crash.message == "tool boom crashed"
    assert (good.levelno, bad.levelno) == (logging.INFO, logging.WARNING)
    assert "tool=echo call_id=1 outcome=ok" in good.message
    assert "arguments=<21 characters> result=<9 characters>" in good.message
    assert "outcome=execution" in bad.message
    assert good.tool_call["tool"] == "echo"  # type: ignore[attr-defined]
    assert "secret" not in caplog.text


def test_without_logging_set_up_nothing_is_written_of_what_the_model_reads(execute_all: Runner) -> None:
    with never_set_up() as stderr:
        execute_all(ToolExecutor([echo]), [call("echo", '{"text": "my secret"}'), call("echo", id="2"), call("nope")])
    assert stderr.getvalue() == ""


PICTURE = Media.from_bytes(b"png", "image/png")


@pytest.mark.parametrize(
    ("returned", "content"),
    [
        ("text", (Text("text"),)),
        (Text("block"), (Text("block"),)),
        ([Text("a"), PICTURE], (Text("a"), PICTURE)),
        (None, "null"),
        (1, "1"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ([], "[]"),
        ({1}, "[1]"),
        (b"\0", '"AA=="'),
    ],
)
def test_text_and_blocks_are_taken_as_they_are_and_data_becomes_json(returned: object, content: Any) -> None:
    with ToolExecutor([Tool.from_schema(lambda: returned, name="give")]) as executor:
        result = executor.execute(call("give"))
    assert result.content == ((Json(msgspec.Raw(content.encode())),) if isinstance(content, str) else content)


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
LARGE, LONG = Media.from_bytes(b"larger", "image/png"), Json(msgspec.Raw(b'"0123456789"'))


@pytest.mark.parametrize(
    ("returned", "begins", "notes"),
    [
        ("0123456789", "0123456789", 0),
        ("0123456789x", "0123456789\n[Cut here: the result is longer than 10 characters", 1),
        (list(range(9)), "[0,1,2,3,4\n[Cut here", 1),
        ([Text("01234"), Text("5678"), Text("9x"), Text("more")], "01234\n5678\n9\n[Cut here", 1),
        ([Text("")] * 2_000, "\n\n\n", 1),
        (PICTURE, "", 0),
        ([LARGE, Text("a")], "[Left out: image of 6 bytes, too large to be read.]\na", 1),
        (ToolResult("", "", (Text("a"),), structured=LONG), "a\n[Left out: the struct", 1),
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


def test_a_plain_function_may_return_a_coroutine(execute_all: Runner) -> None:
    def sneaky(text: str) -> Any:
        return aecho(text)

    assert one(execute_all(ToolExecutor([sneaky]), [call("sneaky", '{"text": "x"}')])).text == "x"


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


def test_an_abandoned_function_ends_even_if_its_event_loop_no_longer_runs() -> None:
    too_late = threading.Event()

    @tool(timeout=0.05)
    def sneaky(text: str) -> Any:
        too_late.wait(10)
        return aecho(text)

    executor, loop = ToolExecutor([sneaky]), asyncio.new_event_loop()
    result = loop.run_until_complete(executor.aexecute(call("sneaky", '{"text": "x"}')))
    assert (result.error_type, executor.abandoned) == ("timeout", 1)
    too_late.set()
    wait_until(lambda: executor.abandoned == 0)
    loop.close()


def test_a_returned_coroutine_that_cannot_be_awaited_is_an_error_of_its_call() -> None:
    def sneaky(text: str) -> Any:
        return aecho(text)

    async def outer() -> str:
        return executor.execute(call("sneaky", '{"text": "x"}')).text

    executor = ToolExecutor([sneaky, outer])
    result = executor.execute(call("outer"))
    assert not result.is_error
    assert "would block their event loop" in result.text


CALL = ToolCall("1", "give")


def test_text_that_utf8_cannot_carry_is_made_visible() -> None:
    result = success(CALL, "caf\udce9 für 2 €", 0.0)
    assert result.text == "caf\\udce9 für 2 €"
    message_to_json(Message.tool([result, failure(CALL, ToolExecutionError("\ud800"), 0.0)]))


TOOLS = {"echo": echo, "boom": boom}


@pytest.mark.parametrize(
    ("name", "arguments", "text", "error"),
    [
        *(
            ("echo", arguments, "hi", None)
            for arguments in ('{"text": "hi"}', b'{"text": "hi"}', {"text": "hi"}, MappingProxyType({"text": "hi"}))
        ),
        ("ecco", "", "tool 'ecco' not found. Did you mean 'echo'?", ToolNotFoundError),
        ("boom", "", "executing tool 'boom': ValueError: no luck", ToolExecutionError),
        ("echo", '{"txt": 1}', "invalid arguments for tool 'echo': txt: unknown field", ToolValidationError),
        ("echo", b"\xff", "invalid arguments for tool 'echo': not valid JSON", ToolValidationError),
    ],
)
def test_one_tool_by_its_name(name: str, arguments: Any, text: str, error: type[ToolError] | None) -> None:
    assert tool_result_or_error(TOOLS, name, arguments).startswith(text)
    assert asyncio.run(atool_result_or_error(TOOLS, name, arguments)).startswith(text)
    for execute in (execute_tool, lambda *given: asyncio.run(aexecute_tool(*given))):
        if error is None:
            assert execute(TOOLS, name, arguments) == text
            continue
        with pytest.raises(error) as caught:
            execute(TOOLS, name, arguments)
        assert str(caught.value).startswith(text)
        assert caught.value.tool_name == name
        if error is ToolExecutionError:
            assert isinstance(caught.value.__cause__, ValueError)
        if error is ToolValidationError and isinstance(arguments, str):
            assert caught.value.details == arguments  # the raw text
