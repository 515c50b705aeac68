from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from typing import Any

import msgspec
import pytest

from dragoman.conversation import (
    Conversation,
    Json,
    Media,
    Message,
    Text,
    ToolCall,
    ToolFinished,
    ToolResult,
    ToolStarted,
)
from dragoman.errors import ConfigurationError, ToolAbortedError, ToolCancelledError, ToolExecutionError
from dragoman.tools import (
    Executed,
    RetryConfig,
    Tool,
    ToolConfig,
    ToolContext,
    ToolErrorHandling,
    ToolExecutor,
    ToolRun,
    tool,
)
from tests.tools.execution.colours import Runner, both_colours, one

NO_WAIT = RetryConfig(backoff_base=0)


@tool
def echo(text: str) -> str:
    return text


@tool
async def aecho(text: str) -> str:
    await asyncio.sleep(0)
    return text


@tool
def boom() -> None:
    raise ValueError("no luck")


@tool
async def aboom() -> None:
    raise ValueError("no luck")


def call(name: str, arguments: str = "", id: str = "1") -> ToolCall:
    return ToolCall(id, name, arguments)


# --- every call has its result ---------------------------------------------------------------------------------------


@both_colours
@pytest.mark.parametrize("name", ["echo", "aecho"])
def test_tools_of_both_kinds_run_in_both_colours(execute_all: Runner, name: str) -> None:
    result = one(execute_all(ToolExecutor([echo, aecho]), [call(name, '{"text": "hi"}')]))
    assert (result.text, result.is_error, result.name, result.call_id, result.retries) == ("hi", False, name, "1", 0)
    assert result.duration is not None


@both_colours
@pytest.mark.parametrize("name", ["boom", "aboom"])
def test_a_crashing_tool_becomes_an_error_result(execute_all: Runner, name: str) -> None:
    result = one(execute_all(ToolExecutor([boom, aboom]), [call(name)]))
    assert result.is_error
    assert result.error_type == "execution"
    assert result.text == f"executing tool '{name}': ValueError: no luck"


@both_colours
def test_an_unknown_tool_names_the_nearest(execute_all: Runner) -> None:
    result = one(execute_all(ToolExecutor([echo]), [call("ecko")]))
    assert (result.error_type, result.text) == ("not_found", "tool 'ecko' not found. Did you mean 'echo'?")


@both_colours
@pytest.mark.parametrize("arguments", ['{"text": 3}', "{}", '{"text": "x", "more": 1}', "[1]", '{"text"', "nonsense"])
def test_arguments_that_do_not_fit_are_told_in_one_line(execute_all: Runner, arguments: str) -> None:
    result = one(execute_all(ToolExecutor([echo]), [call("echo", arguments)]))
    assert result.error_type == "validation"
    assert result.text.startswith("invalid arguments for tool 'echo': ")
    assert "\n" not in result.text


@both_colours
def test_a_call_that_broke_off_is_not_run(execute_all: Runner) -> None:
    broken = ToolCall("1", "echo", '{"text": "x"}', partial=True)
    assert one(execute_all(ToolExecutor([echo]), [broken])).error_type == "validation"
    with ToolExecutor([echo]) as executor:
        assert executor.execute(broken).error_type == "validation"


@both_colours
@pytest.mark.parametrize("exit_kind", [SystemExit, KeyboardInterrupt])
def test_a_tool_cannot_end_the_program(execute_all: Runner, exit_kind: type[BaseException]) -> None:
    def leave() -> None:
        raise exit_kind("bye")

    # Two calls: each runs in its own thread, where Ctrl-C of the user never arrives.
    executed = execute_all(ToolExecutor([leave]), [call("leave"), call("leave", id="2")])
    assert [result.error_type for result in executed.results] == ["execution", "execution"]


@both_colours
def test_an_async_tool_cannot_end_the_program(execute_all: Runner) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    result = one(execute_all(ToolExecutor([leave]), [call("leave")]))
    assert (result.error_type, "SystemExit: 3" in result.text) == ("execution", True)


def test_an_exception_whose_text_fails_is_still_only_a_failed_tool() -> None:
    class Mean(Exception):
        def __str__(self) -> str:
            raise RuntimeError("ha")

    def mean() -> None:
        raise Mean

    with ToolExecutor([mean]) as executor:
        assert executor.execute(call("mean")).text == "executing tool 'mean': Mean"


@both_colours
def test_a_tool_may_choose_the_text_of_its_failure(execute_all: Runner) -> None:
    def picky() -> None:
        raise ToolExecutionError("Only on weekdays.")

    assert one(execute_all(ToolExecutor([picky]), [call("picky")])).text == "Only on weekdays."


@both_colours
def test_results_keep_the_order_of_the_calls(execute_all: Runner) -> None:
    @tool
    def nap(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    naps = [0.05, 0.0, 0.03, 0.01]
    executed = execute_all(ToolExecutor([nap]), [call("nap", f'{{"seconds": {s}}}', str(s)) for s in naps])
    assert [result.call_id for result in executed.results] == [str(s) for s in naps]


@both_colours
def test_no_calls_no_results(execute_all: Runner) -> None:
    assert execute_all(ToolExecutor([echo]), []) == Executed(())


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    "function",
    [
        lambda: None,
        lambda: "text",
        lambda: {"a": 1},
        lambda: aecho("later"),
        lambda: ToolResult("", "", (Text("its own"),), is_error=True),
        lambda: [object()],
        lambda: _raise(ValueError("no luck")),
        lambda: _raise(ToolExecutionError("Only on weekdays.")),
        lambda: _raise(SystemExit(3)),
        lambda: _raise(StopIteration()),
    ],
)
def test_the_quick_way_gives_what_the_machinery_gives(function: Any, caplog: pytest.LogCaptureFixture) -> None:
    with ToolExecutor([tool(function, name="f")]) as executor, caplog.at_level(logging.INFO, "dragoman.tools"):
        quick, slow = executor.execute(call("f", "{}")), executor.execute(call("f", "{}"), ToolRun())
    assert quick.duration is not None
    assert msgspec.structs.replace(quick, duration=None) == msgspec.structs.replace(slow, duration=None)
    assert len(caplog.records) == 2


# --- what a tool may return ------------------------------------------------------------------------------------------


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


def test_a_tool_may_have_the_last_word_on_its_result() -> None:
    def judge() -> ToolResult:
        return ToolResult("?", "?", (Text("guilty"),), is_error=True)

    with ToolExecutor([judge]) as executor:
        result = executor.execute(call("judge"))
    assert (result.call_id, result.name, result.text, result.is_error) == ("1", "judge", "guilty", True)


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


# --- at once, and how many -------------------------------------------------------------------------------------------


@both_colours
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


def test_a_cap_of_one_stays_in_the_callers_thread() -> None:
    @tool
    def where() -> str:
        return threading.current_thread().name

    with ToolExecutor([where], ToolConfig(max_parallel_tools=1)) as executor:
        texts = [r.text for r in executor.execute_all([call("where"), call("where", id="2")]).results]
    assert texts == [threading.current_thread().name] * 2


@both_colours
def test_context_variables_reach_the_tool(execute_all: Runner) -> None:
    user = contextvars.ContextVar("user", default="nobody")

    @tool
    def plain() -> str:
        return user.get()

    @tool
    async def on_loop() -> str:
        return user.get()

    token = user.set("me")
    try:
        executed = execute_all(ToolExecutor([plain, on_loop]), [call("plain"), call("on_loop", id="2")])
    finally:
        user.reset(token)
    assert [result.text for result in executed.results] == ["me", "me"]


def test_async_tools_work_where_a_loop_is_already_running() -> None:
    async def notebook() -> str:
        with ToolExecutor([aecho]) as executor:  # plain use inside a running loop, as in a notebook cell
            return executor.execute(call("aecho", '{"text": "x"}')).text

    assert asyncio.run(notebook()) == "x"


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
    assert threading.active_count() <= before + 0


# --- time ------------------------------------------------------------------------------------------------------------


@both_colours
@pytest.mark.parametrize("by_config", [True, False])
def test_a_plain_tool_that_takes_too_long_is_abandoned_and_counted(execute_all: Runner, by_config: bool) -> None:
    release = threading.Event()

    def hang() -> None:
        release.wait(30)

    hanging = tool(hang) if by_config else tool(hang, timeout=0.05)
    executor = ToolExecutor([hanging, echo], ToolConfig(execution_timeout=0.05 if by_config else None))
    executed = execute_all(executor, [call("hang"), call("echo", '{"text": "x"}', "2")])
    assert [result.error_type for result in executed.results] == ["timeout", None]
    assert "did not finish within 0.05 seconds" in executed.results[0].text
    assert executor.abandoned == 1
    release.set()
    deadline = time.monotonic() + 10
    while executor.abandoned and time.monotonic() < deadline:
        time.sleep(0.01)
    assert executor.abandoned == 0


@both_colours
def test_an_async_tool_that_takes_too_long_is_cancelled(execute_all: Runner) -> None:
    seen: list[str] = []

    @tool(timeout=0.05)
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
def test_the_runs_own_deadline_holds_over_several_batches(execute_all: Runner) -> None:
    now = 100.0
    executor = ToolExecutor([echo], ToolConfig(run_timeout=5), clock=lambda: now)
    run = ToolRun()
    assert one(execute_all(executor, [call("echo", '{"text": "x"}')], run)).text == "x"
    assert run.deadline == 105.0
    now = 106.0
    assert one(execute_all(executor, [call("echo", '{"text": "x"}')], run)).error_type == "timeout"


@both_colours
def test_the_runs_own_deadline_cuts_what_is_running(execute_all: Runner) -> None:
    release = threading.Event()

    @tool(timeout=30)
    def hang() -> None:
        release.wait(30)

    executor = ToolExecutor([hang], ToolConfig(run_timeout=0.05, max_parallel_tools=1))
    executed = execute_all(executor, [call("hang"), call("hang", id="2")])
    release.set()
    assert [result.error_type for result in executed.results] == ["timeout", "timeout"]


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


def test_a_context_without_a_deadline() -> None:
    @tool
    def look(context: ToolContext[None]) -> bool:
        return context.remaining is None and not context.cancelled

    with ToolExecutor([look]) as executor:
        assert executor.execute(call("look")).value is True


# --- retries ---------------------------------------------------------------------------------------------------------


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


@both_colours
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
    assert (result.is_error, result.retries) == (not ok, attempts - 1)


@both_colours
def test_a_timeout_is_retried_too(execute_all: Runner) -> None:
    attempts: list[int] = []

    @tool(timeout=0.05, retries=1)
    async def slow_at_first(context: ToolContext[None]) -> str:
        attempts.append(context.attempt)
        await asyncio.sleep(0 if context.attempt == 2 else 30)
        return "done"

    result = one(execute_all(ToolExecutor([slow_at_first], CONTINUE), [call("slow_at_first")]))
    assert (result.text, result.retries, attempts) == ("done", 1, [1, 2])


@both_colours
def test_what_cannot_end_better_is_not_retried(execute_all: Runner) -> None:
    executor = ToolExecutor([tool(echo.function, name="echo", retries=5)], RETRY)
    assert one(execute_all(executor, [call("echo", "{}")])).retries == 0


def test_waiting_between_retries_grows_and_varies() -> None:
    retry = RetryConfig(backoff_base=1, backoff_factor=2, backoff_max=5, jitter=0.5)
    assert [retry.delay(n, 0.5) for n in (1, 2, 3, 4, 5000)] == [1, 2, 4, 5, 5]
    assert (retry.delay(1, 0.0), retry.delay(1, 1.0)) == (0.5, 1.5)


@both_colours
def test_the_wait_is_really_taken(execute_all: Runner) -> None:
    config = ToolConfig(retry=RetryConfig(backoff_base=0.1, jitter=0))
    result = one(execute_all(ToolExecutor([tool(Flaky(1), name="flaky", retries=1)], config), [call("flaky")]))
    assert result.duration is not None
    assert result.duration >= 0.1


# --- abort, limits ---------------------------------------------------------------------------------------------------


@both_colours
def test_abort_really_aborts_and_loses_nothing(execute_all: Runner) -> None:
    release = threading.Event()

    @tool
    def slow() -> str:
        release.wait(30)
        return "late"

    executor = ToolExecutor(
        [slow, boom, echo], ToolConfig(tool_error_handling=ToolErrorHandling.ABORT, max_parallel_tools=2)
    )
    calls = [call("slow"), call("boom", id="2"), call("echo", '{"text": "x"}', "3")]
    with pytest.raises(ToolAbortedError, match="no luck") as caught:
        execute_all(executor, calls)
    release.set()
    assert [r.error_type for r in caught.value.results] == ["cancelled", "execution", "cancelled"]
    assert "tool 'boom' failed and the run was aborted" in caught.value.results[2].text
    assert isinstance(caught.value.__cause__, ToolExecutionError)


@both_colours
def test_only_allowed_tools_run(execute_all: Runner) -> None:
    executor = ToolExecutor([echo, aecho], ToolConfig(allowed_tools=frozenset(["aecho"])))
    result = one(execute_all(executor, [call("echo", '{"text": "x"}')]))
    assert result.error_type == "not_found"
    assert "'aecho'" in result.text


@both_colours
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
    ],
)
def test_senseless_configuration_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        ToolConfig(**settings)
    with pytest.raises(ConfigurationError, match="jitter"):
        RetryConfig(jitter=-1)


# --- cancellation ----------------------------------------------------------------------------------------------------


@both_colours
def test_cancelling_the_run_ends_it_with_a_result_for_every_call(execute_all: Runner) -> None:
    run = ToolRun()

    @tool
    def waits(context: ToolContext[None]) -> str:
        threading.Timer(0.05, run.cancel).start()
        while not context.cancelled:
            time.sleep(0.005)
        context.raise_if_cancelled()
        return "never"

    executor = ToolExecutor([waits, echo], ToolConfig(max_parallel_tools=2))
    calls = [call("waits"), call("waits", id="2"), call("echo", '{"text": "x"}', "3")]
    executed = execute_all(executor, calls, run)
    assert [r.error_type for r in executed.results] == ["cancelled"] * 3
    assert one(execute_all(executor, [call("echo", '{"text": "x"}')], run)).error_type == "cancelled"


def test_cancelling_the_task_leaves_complete_results_and_nothing_running() -> None:
    cleaned: list[str] = []

    @tool
    async def waits() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            cleaned.append("cleaned up")

    async def main() -> None:
        async with ToolExecutor([waits, echo]) as executor:
            batch = executor.batch([call("waits"), call("echo", '{"text": "x"}', "2")])
            one_is_done = asyncio.Event()

            async def consume() -> None:
                async for event in executor.aevents(batch):
                    if isinstance(event, ToolFinished):
                        one_is_done.set()

            task = asyncio.create_task(consume())
            await one_is_done.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [r.error_type for r in batch.results] == ["cancelled", None]
            assert cleaned == ["cleaned up"]
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_an_async_tool_that_is_cancelled_from_elsewhere_has_its_result() -> None:
    @tool
    async def gives_up() -> None:
        raise asyncio.CancelledError

    async def main() -> ToolResult:
        async with ToolExecutor([gives_up]) as executor:
            return await executor.aexecute(call("gives_up"))

    assert asyncio.run(main()).error_type == "cancelled"
    with ToolExecutor([gives_up]) as executor:
        assert executor.execute(call("gives_up")).error_type == "cancelled"


def test_ctrl_c_in_the_callers_thread_goes_through_and_leaves_complete_results() -> None:
    @tool
    def interrupted() -> None:
        raise KeyboardInterrupt

    with ToolExecutor([interrupted, echo], ToolConfig(max_parallel_tools=1)) as executor:
        batch = executor.batch([call("echo", '{"text": "x"}'), call("interrupted", id="2"), call("echo", "{}", "3")])
        with pytest.raises(KeyboardInterrupt):
            list(executor.events(batch))
    assert [r.error_type for r in batch.results] == [None, "cancelled", "cancelled"]


def test_leaving_the_events_early_cancels_the_rest() -> None:
    release = threading.Event()

    @tool
    def slow() -> None:
        release.wait(30)

    with ToolExecutor([slow, echo]) as executor:
        batch = executor.batch([call("slow"), call("echo", '{"text": "x"}', "2")])
        events = executor.events(batch)
        for event in events:
            if isinstance(event, ToolFinished):
                break
        events.close()
        assert [r.error_type for r in batch.results] == ["cancelled", None]
        assert executor.abandoned == 1
        release.set()


def test_a_batch_that_never_ran_counts_as_cancelled() -> None:
    with ToolExecutor([echo]) as executor:
        assert [r.error_type for r in executor.batch([call("echo")]).results] == ["cancelled"]


def test_raise_if_cancelled() -> None:
    run = ToolRun()
    run.cancel()
    heard: list[str] = []
    forget = run.on_cancel(lambda: heard.append("late"))
    assert heard == ["late"]
    forget()
    run.cancel()
    assert heard == ["late"]
    context = ToolContext(
        call_id="1",
        tool_name="f",
        deps=None,
        conversation=Conversation(),
        deadline=None,
        clock=time.monotonic,
        cancelled=lambda: run.cancelled,
        logger=logging.getLogger("x"),
    )
    with pytest.raises(ToolCancelledError, match="'f'"):
        context.raise_if_cancelled()


# --- what is seen of it ----------------------------------------------------------------------------------------------


def test_events_come_in_pairs_with_the_id_of_the_call() -> None:
    with ToolExecutor([echo, boom]) as executor:
        batch = executor.batch([call("echo", '{"text": "x"}'), call("boom", id="2"), call("nope", id="3")])
        events = list(executor.events(batch))
    started = [event.call.id for event in events if isinstance(event, ToolStarted)]
    finished = [event.result.call_id for event in events if isinstance(event, ToolFinished)]
    assert sorted(started) == sorted(finished) == ["1", "2", "3"]
    for id_ in ("1", "2", "3"):
        kinds = [type(e) for e in events if (e.call.id if isinstance(e, ToolStarted) else e.result.call_id) == id_]
        assert kinds == [ToolStarted, ToolFinished]


@both_colours
def test_the_hook_sees_every_call_once(execute_all: Runner) -> None:
    seen: list[tuple[str, str | None]] = []
    executor = ToolExecutor([echo, boom], on_result=lambda c, r: seen.append((c.id, r.error_type)))
    execute_all(executor, [call("echo", '{"text": "x"}'), call("boom", id="2"), call("nope", id="3")])
    assert sorted(seen) == [("1", None), ("2", "execution"), ("3", "not_found")]


def test_a_failing_hook_does_not_hurt_the_call(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_call: ToolCall, _result: ToolResult) -> None:
        raise RuntimeError("hook")

    with ToolExecutor([echo], on_result=broken) as executor:
        assert executor.execute(call("echo", '{"text": "x"}')).text == "x"
    assert "the on_result hook failed for tool echo" in caplog.text


def test_one_log_line_for_each_call_without_the_users_data(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.tools")
    with ToolExecutor([echo, boom]) as executor:
        executor.execute(call("echo", '{"text": "my secret"}'))
        executor.execute(call("boom", id="2"))
    good, bad = caplog.records
    assert (good.levelno, bad.levelno) == (logging.INFO, logging.WARNING)
    assert "tool=echo call_id=1 outcome=ok" in good.message
    assert "arguments=<21 characters> result=<9 characters>" in good.message
    assert "outcome=execution" in bad.message
    assert good.tool_call["tool"] == "echo"  # type: ignore[attr-defined]
    assert "secret" not in caplog.text


def test_values_are_logged_only_when_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.tools")
    with ToolExecutor([echo], log_values=True) as executor:
        executor.execute(call("echo", '{"text": "' + "long " * 1000 + '"}'))
    assert "long long" in caplog.text
    assert len(caplog.records[0].message) < 5000


def test_without_logging_set_up_nothing_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    with ToolExecutor([boom]) as executor:
        executor.execute(call("boom"))
    assert capfd.readouterr() == ("", "")
