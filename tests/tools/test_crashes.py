"""A crash of the program's own code during a call is logged, also where logging was never set up."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, Protocol

import pytest

from dragoman.conversation import ToolCall, ToolResult
from dragoman.errors import ToolExecutionError
from dragoman.tools import (
    Allow,
    Paused,
    RetryConfig,
    Tool,
    ToolConfig,
    ToolContext,
    ToolErrorHandling,
    ToolExecutor,
    ToolRun,
    tool,
)
from tests.logs import crashes, never_set_up
from tests.tools.cases import NO_WAIT, Runner, aboom, aecho, boom, call, echo


@pytest.mark.parametrize("crashing", [boom, aboom])
def test_a_crash_is_told_once_for_each_tool_and_kind_of_error_in_a_run(
    execute_all: Runner, crashing: Tool[[], Any]
) -> None:
    with never_set_up() as told:
        kinds: Iterator[Exception] = iter([KeyError("a"), KeyError("b"), OSError("c"), KeyError("d")])

        def varied() -> None:
            raise next(kinds)

        run, name = ToolRun(), crashing.name
        calls = [call(each, id=str(index)) for index, each in enumerate([name, "varied", "varied", name, "varied"])]
        one_at_a_time = ToolConfig(max_parallel_tools=1)
        execute_all(ToolExecutor([crashing, varied], one_at_a_time), calls, run)
        execute_all(ToolExecutor([crashing, varied], one_at_a_time), [call(name), call("varied")], run)
        said = [f"tool {name} crashed", "ValueError: no luck"]
        assert crashes(told) == [*said, "tool varied crashed", "KeyError: 'a'", "tool varied crashed", "OSError: c"]
        assert told.getvalue().count('raise ValueError("no luck")') == 1  # the line of the tool itself
        execute_all(ToolExecutor([crashing]), [call(name)])
        assert crashes(told)[-2:] == said  # in another run


def meant() -> None:
    raise ToolExecutionError("Only on weekdays.")


async def cancelled() -> None:
    raise asyncio.CancelledError


def slow() -> None:
    time.sleep(0.05)


def paused() -> None:
    raise Paused(())


@pytest.mark.parametrize("function", [meant, cancelled, slow, paused, echo, aecho])
def test_what_the_model_is_meant_to_read_is_no_crash(
    execute_all: Runner, function: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with never_set_up() as told:

        def denies(*_: object) -> object:
            raise ToolExecutionError("not this one")

        name = getattr(function, "__name__", "") or function.name
        limited = tool(function, timeout=0.001) if function is slow else function
        one = call(name)
        assert execute_all(ToolExecutor([limited]), [one]).results[0].is_error  # echo: its arguments are wrong
        assert execute_all(ToolExecutor([limited], permission=denies), [one]).results[0].is_error  # type: ignore[arg-type]
        assert execute_all(ToolExecutor([boom]), [call("nope")]).results[0].is_error
        assert told.getvalue() == ""


def test_a_retry_that_works_is_no_crash_and_one_that_does_not_is_one(execute_all: Runner) -> None:
    with never_set_up() as told:
        left = [ValueError("first")]

        def flaky() -> str:
            if left:
                raise left.pop()
            return "well"

        config = ToolConfig(
            retry=RetryConfig(max_retries=1, backoff_base=0), tool_error_handling=ToolErrorHandling.RETRY
        )
        assert execute_all(ToolExecutor([flaky], config), [call("flaky")]).results[0].text == "well"
        assert told.getvalue() == ""
        assert execute_all(ToolExecutor([boom], config), [call("boom")]).results[0].retries == 1
        assert crashes(told) == ["tool boom crashed", "ValueError: no luck"]


def test_a_crash_after_the_run_was_cancelled_is_none(execute_all: Runner) -> None:
    with never_set_up() as told:
        run = ToolRun()

        def ends_it() -> None:
            run.cancel()
            raise ConnectionError("its socket was shut down")

        assert execute_all(ToolExecutor([ends_it]), [call("ends_it")], run).results[0].is_error
        assert told.getvalue() == ""


# --- what else of the program's own code may crash --------------------------------------------------------------------


def enters(_call: ToolCall, _run: ToolRun) -> Generator[ToolCall | None, ToolResult, ToolResult | None]:
    raise KeyError("in")
    yield None


def leaves(_call: ToolCall, _run: ToolRun) -> Generator[ToolCall | None, ToolResult, ToolResult | None]:
    yield None
    raise KeyError("out")


def hides(_call: ToolCall, _run: ToolRun) -> Generator[ToolCall | None, ToolResult, ToolResult | None]:
    yield None
    return ToolResult("", "", ())


async def later(*_: object) -> Allow:
    raise KeyError("later")


def crash(*_: object) -> Any:
    raise KeyError("at once")


class Unreadable:
    pass


def returns_anything() -> object:
    return Unreadable()


def leaves_program() -> None:
    sys.exit(3)


class Make(Protocol):
    def __call__(self) -> ToolExecutor: ...


@pytest.mark.parametrize(
    ("make", "name", "text", "lines"),
    [
        (
            lambda: ToolExecutor([echo], middleware=[enters]),
            "echo",
            "executing tool 'echo': KeyError: 'in'",
            ["a middleware crashed in a call of echo", "KeyError: 'in'"],
        ),
        (
            lambda: ToolExecutor([echo], middleware=[leaves]),
            "echo",
            "executing tool 'echo': KeyError: 'out'",
            ["a middleware crashed in a call of echo", "KeyError: 'out'"],
        ),
        (
            lambda: ToolExecutor([boom], middleware=[hides]),
            "boom",
            "",
            ["tool boom crashed", "ValueError: no luck"],
        ),
        (
            lambda: ToolExecutor([echo], permission=crash),
            "echo",
            "the call of 'echo' was denied: the permission check failed (KeyError: 'at once').",
            ["the permission check crashed, so the call of echo was denied", "KeyError: 'at once'"],
        ),
        (
            lambda: ToolExecutor([echo], permission=later),
            "echo",
            "the call of 'echo' was denied: the permission check failed (KeyError: 'later').",
            ["the permission check crashed, so the call of echo was denied", "KeyError: 'later'"],
        ),
        (
            lambda: ToolExecutor([echo], permission=lambda *_: True),  # type: ignore[arg-type,return-value]
            "echo",
            "the call of 'echo' was denied: the permission check failed (TypeError: it returned a bool",
            [
                "the permission check crashed, so the call of echo was denied",
                "TypeError: it returned a bool, not Allow, Deny or Ask",
            ],
        ),
        (
            lambda: ToolExecutor([tool(echo.function, requires_approval=crash)]),
            "echo",
            "the call of 'echo' was denied: the permission check failed (KeyError: 'at once').",
            ["requires_approval of tool echo crashed, so the call of echo was denied", "KeyError: 'at once'"],
        ),
        (
            lambda: ToolExecutor([echo], on_result=crash),
            "echo",
            "x",
            ["the on_result hook failed for tool echo", "KeyError: 'at once'"],
        ),
        (
            lambda: ToolExecutor([returns_anything]),
            "returns_anything",
            "tool 'returns_anything' returned a value that the model cannot read",
            ["tool returns_anything crashed", "TypeError: a value of type Unreadable cannot be written as JSON"],
        ),
        (
            lambda: ToolExecutor([leaves_program]),
            "leaves_program",
            "executing tool 'leaves_program': SystemExit: 3",
            ["tool leaves_program crashed", "SystemExit: 3"],
        ),
    ],
)
def test_each_function_of_the_program_that_crashes_is_told_and_the_model_reads_what_it_did(
    execute_all: Runner, make: Make, name: str, text: str, lines: list[str]
) -> None:
    with never_set_up() as told:
        arguments = '{"text": "x"}' if name == "echo" else ""
        run = ToolRun()
        for _ in range(2):
            [result] = execute_all(make(), [call(name, arguments)], run).results
            assert result.text.startswith(text)
            assert "Traceback" not in result.text
        assert crashes(told) == lines


# --- what is written --------------------------------------------------------------------------------------------------


class Database:
    pass


Short = ToolContext[Database]


def written(context: ToolContext[Database], query: str) -> None:
    raise AttributeError("'NoneType' object has no attribute 'find'")


def by_another_name(context: Short, query: str) -> None:
    raise AttributeError("no")


def anything(context: ToolContext[object], query: str) -> None:
    raise AttributeError("no")


def either(context: ToolContext[Database | None], query: str) -> None:
    raise AttributeError("no")


def evaluated(context: Any, query: str) -> None:
    raise AttributeError("no")


evaluated.__annotations__["context"] = ToolContext[Database]


def forward(context: Any, query: str) -> None:
    raise AttributeError("no")


forward.__annotations__["context"] = ToolContext["Database"]


class Holder:
    @tool
    def method(self, context: ToolContext[Database], query: str) -> None:
        raise AttributeError("no")


@pytest.mark.parametrize("function", [written, by_another_name, evaluated, forward, Holder().method])
def test_deps_that_were_forgotten_are_named(function: Callable[..., None]) -> None:
    with never_set_up() as told:
        given = function if isinstance(function, Tool) else tool(function)
        with ToolExecutor([given]) as executor:
            result = executor.execute(call(given.name, '{"query": "x"}'))
            wanted = f"tool {given.name} crashed: it wants context.deps of type Database, and deps= was not given"
            assert crashes(told)[0] == wanted
            assert "deps" not in result.text  # for the model nothing changes
            executor.execute(call(given.name, '{"query": "x"}'), ToolRun(deps=Database()))
        assert crashes(told)[2] == f"tool {given.name} crashed"


@pytest.mark.parametrize("function", [anything, either])
def test_deps_that_may_be_none_are_not_missed(function: Callable[..., None]) -> None:
    with never_set_up() as told:
        with ToolExecutor([function]) as executor:
            executor.execute(call(function.__name__, '{"query": "x"}'))
        assert crashes(told)[0] == f"tool {function.__name__} crashed"


@pytest.mark.parametrize("is_set_up", [True, False])
def test_the_errors_text_is_escaped_and_no_argument_is_written(
    monkeypatch: pytest.MonkeyPatch, *, is_set_up: bool
) -> None:
    with never_set_up() as told:

        def fails(word: str) -> None:
            raise ValueError("\x1b]0;title\a and \u202e")

        if is_set_up:
            handler = logging.StreamHandler(told)
            handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
            monkeypatch.setattr(logging.getLogger("dragoman"), "handlers", [handler])
        with ToolExecutor([fails]) as executor:
            executor.execute(call("fails", '{"word": "a secret word"}'))
        text = told.getvalue()
        assert r"ValueError: \u001b]0;title\u0007 and \u202e" in text
        assert "secret" not in text
        assert "\x1b" not in text
        assert ("WARNING dragoman.tools tool fails crashed\nTraceback" in text) is is_set_up


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")

    @property
    def __notes__(self) -> list[str]:
        raise RuntimeError("nor this")


def test_an_error_that_cannot_be_shown_is_named(execute_all: Runner) -> None:
    with never_set_up() as told:

        def fails() -> None:
            raise Hostile

        [result] = execute_all(
            ToolExecutor([tool(fails, retries=0)], ToolConfig(retry=NO_WAIT)), [call("fails")]
        ).results
        assert result.text == "executing tool 'fails': Hostile"
        assert crashes(told) == ["tool fails crashed", "Hostile (its traceback cannot be shown)"]
