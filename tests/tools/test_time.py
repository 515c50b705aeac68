from __future__ import annotations

import asyncio
import threading
import time

import pytest

from dragoman.conversation import (
    Conversation,
    Message,
)
from dragoman.tools import ToolConfig, ToolContext, ToolExecutor, ToolRun, tool
from tests.tools.cases import Runner, both_colours, call, echo, one


@both_colours
@pytest.mark.parametrize("by_config", [True, False])
def test_a_plain_tool_that_takes_too_long_is_abandoned_and_counted(execute_all: Runner, by_config: bool) -> None:
    release = threading.Event()

    def hang() -> None:
        release.wait(30)

    hanging = tool(hang) if by_config else tool(hang, timeout=0.5)
    executor = ToolExecutor([hanging, echo], ToolConfig(execution_timeout=0.5 if by_config else None))
    executed = execute_all(executor, [call("hang"), call("echo", '{"text": "x"}', "2")])
    assert [result.error_type for result in executed.results] == ["timeout", None]
    assert "did not finish within 0.5 seconds" in executed.results[0].text
    assert executor.abandoned == 1
    release.set()
    deadline = time.monotonic() + 10
    while executor.abandoned and time.monotonic() < deadline:
        time.sleep(0.01)
    assert executor.abandoned == 0


@both_colours
def test_an_async_tool_that_takes_too_long_is_cancelled(execute_all: Runner) -> None:
    seen: list[str] = []

    @tool(timeout=0.5)
    async def hang() -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    executor = ToolExecutor([hang])
    assert one(execute_all(executor, [call("hang")])).error_type == "timeout"
    assert seen == ["cancelled"]
    assert executor.abandoned == 0


@both_colours
@pytest.mark.parametrize("count", [1, 2])
def test_a_tool_that_returns_when_its_time_is_over_is_too_late(execute_all: Runner, count: int) -> None:
    @tool(timeout=0.01)
    def cooperative(context: ToolContext[None]) -> str:
        while not context.cancelled:
            pass
        return "in time, it thinks"

    @tool(timeout=0.01)
    async def acooperative(context: ToolContext[None]) -> str:
        while not context.cancelled:  # it keeps the loop from looking at the clock
            pass
        return "in time, it thinks"

    executor = ToolExecutor([cooperative, acooperative])
    for _ in range(10):
        for name in ("cooperative", "acooperative"):
            results = execute_all(executor, [call(name, id=str(number)) for number in range(count)]).results
            assert [result.error_type for result in results] == ["timeout"] * count


def test_an_async_tool_that_refuses_to_be_cancelled_is_not_waited_for() -> None:
    release = threading.Event()

    @tool(timeout=0.01)
    async def stubborn() -> None:
        while not release.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue

    async def main() -> str | None:
        async with ToolExecutor([stubborn]) as executor:
            result = await executor.aexecute(call("stubborn"))
            release.set()
            return result.error_type

    assert asyncio.run(main()) == "timeout"


@both_colours
def test_a_tool_sees_its_context(execute_all: Runner) -> None:
    conversation = Conversation().plus(Message.user("hi"))

    @tool(timeout=60)
    def look(context: ToolContext[list[str]]) -> dict[str, object]:
        context.deps.append("seen")
        context.logger.info("hello")
        context.raise_if_cancelled()
        return {
            "same": context.conversation is conversation,
            "left": context.remaining is not None and 0 < context.remaining <= 60,
            "attempt": context.attempt,
            "logger": context.logger.name,
            "cancelled": context.cancelled,
        }

    deps: list[str] = []
    result = one(execute_all(ToolExecutor([look]), [call("look")], ToolRun(conversation=conversation, deps=deps)))
    assert result.value == {
        "same": True,
        "left": True,
        "attempt": 1,
        "logger": "dragoman.tools.look",
        "cancelled": False,
    }
    assert deps == ["seen"]
