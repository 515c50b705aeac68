"""Limits of calls: abort, budgets, retries, time, and how many run at once."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dragoman.conversation import Conversation, Message, ToolCall
from dragoman.errors import ConfigurationError, ToolAbortedError, ToolExecutionError
from dragoman.tools import RetryConfig, ToolConfig, ToolContext, ToolErrorHandling, ToolExecutor, ToolRun, tool
from tests.tools.cases import NO_WAIT, Runner, aecho, boom, call, echo, one, run_plain, wait_until


def test_abort_really_aborts_and_loses_nothing(execute_all: Runner) -> None:
    release = threading.Event()

    @tool
    def slow() -> str:
        release.wait(30)
        return "late"

    executor = ToolExecutor(
        [slow, boom, echo],
        ToolConfig(tool_error_handling="abort", max_parallel_tools=2),  # type: ignore[arg-type] -- as a file says it
    )
    calls = [call("slow"), call("boom", id="2"), call("echo", '{"text": "x"}', "3")]
    with pytest.raises(ToolAbortedError, match="no luck") as caught:
        execute_all(executor, calls)
    release.set()
    assert [r.error_type for r in caught.value.results] == ["cancelled", "execution", "cancelled"]
    assert "tool 'boom' failed and the run was aborted" in caught.value.results[2].text
    assert isinstance(caught.value.__cause__, ToolExecutionError)


def test_only_allowed_tools_run(execute_all: Runner) -> None:
    executor = ToolExecutor([echo, aecho], ToolConfig(allowed_tools=frozenset(["aecho"])))
    result = one(execute_all(executor, [call("echo", '{"text": "x"}')]))
    assert result.error_type == "not_found"
    assert "'aecho'" in result.text


def test_budgets_hold_over_a_run(execute_all: Runner) -> None:
    twice = tool(echo.function, name="twice", budget=2)
    executor = ToolExecutor([twice, echo], ToolConfig(budgets={"echo": 1, "twice": 99}))
    text = '{"text": "x"}'
    run = ToolRun()
    first = execute_all(executor, [call("twice", text), call("echo", text, "2")], run)
    second = execute_all(executor, [call("twice", text), call("echo", text, "2"), call("twice", text, "3")], run)
    assert [r.error_type for r in first.results] == [None, None]
    assert [r.error_type for r in second.results] == [None, "budget", "budget"]
    assert "2 times" in second.results[2].text


@pytest.mark.parametrize(
    "settings",
    [
        {"max_parallel_tools": 0},
        {"max_iterations": -1},
        {"execution_timeout": -1.0},
        {"run_timeout": float("nan")},
        {"budgets": {"x": -1}},
        {"max_result_size": -1},
        {"tool_error_handling": "nonsense"},
        {"allowed_tools": "read_file"},  # not every tool whose name is a part of it
        {"retry": 3},
        {"tool_eror_handling": "abort"},
    ],
)
def test_senseless_configuration_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        ToolConfig(**settings)
    with pytest.raises(ConfigurationError, match="jitter"):
        RetryConfig(jitter=-1)


def test_a_budget_holds_under_many_threads() -> None:
    run, together = ToolRun(), threading.Barrier(8)

    def spend(_: int) -> int:
        together.wait()
        return sum(run.spend("f", 50) for _ in range(50))

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(spend, range(8))) == run.counts["f"] == 50
    assert run.spend("g", None)


class Flaky:
    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.attempts: list[int] = []

    def __call__(self, context: ToolContext[None]) -> str:
        self.attempts.append(context.attempt)
        if len(self.attempts) <= self.failures:
            raise OSError("not now")
        return "done"


RETRY = ToolConfig(tool_error_handling=ToolErrorHandling.RETRY, retry=NO_WAIT)
CONTINUE = ToolConfig(retry=NO_WAIT)


@pytest.mark.parametrize(
    ("config", "retries", "failures", "attempts", "ok"),
    [
        (CONTINUE, None, 1, 1, False),  # nobody allowed a retry
        (CONTINUE, 2, 2, 3, True),  # the tool allows it
        (CONTINUE, 1, 5, 2, False),
        (RETRY, None, 2, 3, True),  # the policy allows it
        (RETRY, None, 9, 3, False),
        (RETRY, 0, 1, 1, False),  # the tool forbids it
    ],
)
def test_retries_where_the_tool_or_the_policy_allows_them(
    execute_all: Runner, config: ToolConfig, retries: int | None, failures: int, attempts: int, ok: bool
) -> None:
    flaky = Flaky(failures)
    result = one(execute_all(ToolExecutor([tool(flaky, name="flaky", retries=retries)], config), [call("flaky")]))
    assert flaky.attempts == list(range(1, attempts + 1))
    assert one(execute_all(ToolExecutor([tool(echo.function, name="e", retries=5)], config), [call("e")])).retries == 0
    assert (result.is_error, result.retries) == (not ok, attempts - 1)


def test_a_timeout_is_retried_too(execute_all: Runner) -> None:
    attempts: list[int] = []

    @tool(timeout=0.05, retries=1)
    async def slow_at_first(context: ToolContext[None]) -> str:
        attempts.append(context.attempt)
        await asyncio.sleep(0 if context.attempt == 2 else 30)
        return "done"

    config = ToolConfig(retry=RetryConfig(backoff_base=0.1, jitter=0))
    result = one(execute_all(ToolExecutor([slow_at_first], config), [call("slow_at_first")]))
    assert (result.text, result.retries, attempts) == ("done", 1, [1, 2])
    assert result.duration is not None
    assert result.duration >= 0.15, "the wait between them is really taken"


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
    wait_until(lambda: executor.abandoned == 0)


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


def test_a_tool_sees_its_context(execute_all: Runner) -> None:
    conversation = Conversation().plus(Message.user("hi"))

    @tool(timeout=60)
    def look(context: ToolContext[list[str]]) -> list[object]:
        context.deps.append("seen")
        context.logger.info("hello")
        context.raise_if_cancelled()
        left = context.remaining is not None and 0 < context.remaining <= 60
        same = context.conversation is conversation
        return [same, left, context.attempt, context.logger.name, context.cancelled]

    deps: list[str] = []
    result = one(execute_all(ToolExecutor([look]), [call("look")], ToolRun(conversation=conversation, deps=deps)))
    assert result.value == [True, True, 1, "dragoman.tools.look", False]
    assert deps == ["seen"]


@pytest.mark.parametrize("kind", ["plain tool", "async tool"])
def test_the_cap_on_parallel_calls_is_kept_and_used(execute_all: Runner, kind: str) -> None:
    lock, now, most = threading.Lock(), 0, 0
    together = threading.Barrier(3, timeout=10)

    def enter(change: int) -> None:
        nonlocal now, most
        with lock:
            now += change
            most = max(most, now)

    def plain() -> None:
        enter(1)
        together.wait()  # passes only if three calls really run at the same time
        enter(-1)

    async def on_loop() -> None:
        enter(1)
        await asyncio.to_thread(together.wait)
        enter(-1)

    only = tool(plain if kind == "plain tool" else on_loop, name="t")
    calls = [call("t", id=str(i)) for i in range(9)]
    executed = execute_all(ToolExecutor([only], ToolConfig(max_parallel_tools=3)), calls)
    assert [result.is_error for result in executed.results] == [False] * 9
    assert most == 3


@pytest.mark.parametrize("cap", [1, 5])
def test_context_variables_reach_the_tool(execute_all: Runner, cap: int) -> None:
    user = contextvars.ContextVar("user", default="nobody")

    @tool
    def plain() -> str:
        threads.add(threading.current_thread())
        return user.get()

    @tool
    async def on_loop() -> str:
        return user.get()

    threads: set[threading.Thread] = set()
    token = user.set("me")
    try:
        calls = [call("plain"), call("on_loop", id="2")]
        executed = execute_all(ToolExecutor([plain, on_loop], ToolConfig(max_parallel_tools=cap)), calls)
    finally:
        user.reset(token)
    assert [result.text for result in executed.results] == ["me", "me"]
    # With a cap of one a plain program's functions stay in its own thread.
    assert (threads == {threading.current_thread()}) == (cap == 1 and execute_all is run_plain)


def test_what_a_plain_tool_gives_the_event_loop_to_do_is_done_before_its_result_is_known() -> None:
    async def main() -> None:
        loop, seen = asyncio.get_running_loop(), list[str]()

        @tool
        def tell(text: str) -> None:
            loop.call_soon_threadsafe(seen.append, text)

        def slow(call: ToolCall, run: ToolRun):  # type: ignore[no-untyped-def]
            if call.id == "2":  # meanwhile the first one ends, and the loop cannot know
                time.sleep(0.2)
            yield

        executor = ToolExecutor([tell], middleware=[slow], on_result=lambda call, _: seen.append(f"result {call.id}"))
        async with executor:
            await executor.aexecute_all([call("tell", '{"text": "told 1"}'), call("tell", '{"text": "told 2"}', "2")])
        assert [each for each in seen if each.endswith("1")] == ["told 1", "result 1"]

    asyncio.run(main())


def test_async_tools_of_a_plain_program_share_one_loop_that_ends_with_the_executor() -> None:
    threads: set[str] = set()

    @tool
    async def where() -> None:
        threads.add(f"{threading.current_thread().name} {id(asyncio.get_running_loop())}")

    before = threading.active_count()
    with ToolExecutor([where]) as executor:
        for _ in range(3):
            executor.execute_all([call("where"), call("where", id="2")])
    assert len(threads) == 1
    wait_until(lambda: threading.active_count() <= before)
