"""Whatever tools do, every call has exactly one result, in the order of the calls."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeAlias

import pytest
from hypothesis import given, settings, strategies as st

from dragoman.conversation import ToolCall, ToolFinished, ToolStarted
from dragoman.errors import ToolAbortedError
from dragoman.tools import RetryConfig, ToolConfig, ToolContext, ToolErrorHandling, ToolExecutor, ToolRun, tool
from tests.tools.cases import Runner, both_colours

Behaviour: TypeAlias = Literal["ok", "fail", "slow", "exit", "odd", "cancel", "flaky"]
NAP = 0.002


def behave(how: Behaviour, context: ToolContext[ToolRun]) -> object:
    match how:
        case "ok":
            return how
        case "fail":
            raise ValueError(how)
        case "slow":
            time.sleep(NAP * 20)
        case "exit":
            raise SystemExit(1)
        case "odd":
            return object()
        case "cancel":
            context.deps.cancel()
        case "flaky":
            if context.attempt == 1:
                raise OSError(how)
    return how


@tool(timeout=NAP * 10, retries=1)
def plain(context: ToolContext[ToolRun], how: str) -> object:
    return behave(how, context)  # type: ignore[arg-type]


@tool(timeout=NAP * 10, retries=1)
async def on_loop(context: ToolContext[ToolRun], how: str) -> object:
    if how == "slow":
        await asyncio.sleep(NAP * 20)
    return behave(how, context)  # type: ignore[arg-type]


@tool
def unlimited(context: ToolContext[ToolRun], how: str) -> object:
    return behave(how, context)  # type: ignore[arg-type]


behaviours = st.sampled_from(["ok", "fail", "slow", "exit", "odd", "cancel", "flaky"])
tool_names = st.sampled_from(["plain", "on_loop", "unlimited", "missing"])
arguments = st.one_of(
    behaviours.map(lambda how: f'{{"how": "{how}"}}'), st.sampled_from(["", "{", "[1]", '{"how": 1}'])
)
calls = st.lists(st.tuples(tool_names, arguments), max_size=7).map(
    lambda pairs: [ToolCall(str(i), name, text) for i, (name, text) in enumerate(pairs)]
)
configs = st.builds(
    ToolConfig,
    max_parallel_tools=st.integers(1, 4),
    tool_error_handling=st.sampled_from(ToolErrorHandling),
    run_timeout=st.none() | st.just(NAP * 30),
    retry=st.just(RetryConfig(max_retries=1, backoff_base=NAP / 2)),
    budgets=st.sampled_from([{}, {"plain": 1}]),
)

ERROR_TYPES = {None, "validation", "execution", "timeout", "not_found", "budget", "cancelled"}


@both_colours
@settings(max_examples=60)
@given(calls=calls, config=configs)
def test_one_result_for_every_call_in_order(execute_all: Runner, calls: list[ToolCall], config: ToolConfig) -> None:
    run = ToolRun()
    run.deps = run
    try:
        results = execute_all(ToolExecutor([plain, on_loop, unlimited], config), calls, run).results
    except ToolAbortedError as aborted:
        assert config.tool_error_handling is ToolErrorHandling.ABORT
        results = aborted.results
    assert [result.call_id for result in results] == [call.id for call in calls]
    assert [result.name for result in results] == [call.name for call in calls]
    assert {result.error_type for result in results} <= ERROR_TYPES
    assert all(result.is_error == (result.error_type is not None) for result in results)
    assert all(result.content for result in results)


@settings(max_examples=40)
@given(calls=calls, config=configs, stop_after=st.integers(0, 8))
def test_leaving_at_any_point_still_gives_every_call_its_result(
    calls: list[ToolCall], config: ToolConfig, stop_after: int
) -> None:
    run = ToolRun()
    run.deps = run
    with ToolExecutor([plain, on_loop, unlimited], config) as executor:
        batch = executor.batch(calls, run)
        events = executor.events(batch)
        seen = [event for event, _ in zip(events, range(stop_after), strict=False)]
        events.close()
    assert [result.call_id for result in batch.results] == [call.id for call in calls]
    finished = [event.result for event in seen if isinstance(event, ToolFinished)]
    by_id = {result.call_id: result for result in batch.results}
    assert all(by_id[result.call_id] is result for result in finished)  # what was told is what stays
    started = [event.call.id for event in seen if isinstance(event, ToolStarted)]
    assert len(started) == len(set(started))
    assert {result.call_id for result in finished} <= set(started)


@pytest.mark.slow
def test_many_threads_may_share_one_executor() -> None:
    @tool
    def double(n: int) -> int:
        return 2 * n

    @tool
    async def adouble(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    def work(seed: int) -> None:
        for first in range(seed * 1000, seed * 1000 + 200, 10):
            batch = [
                ToolCall(str(n), "double" if n % 2 else "adouble", f'{{"n": {n}}}') for n in range(first, first + 4)
            ]
            assert [each.value for each in executor.execute_all(batch).results] == [2 * int(each.id) for each in batch]

    with ToolExecutor([double, adouble], ToolConfig(max_parallel_tools=3)) as executor, ThreadPoolExecutor(10) as pool:
        list(pool.map(work, range(10)))
