from __future__ import annotations

import asyncio

import pytest

from dragoman.tools import RetryConfig, ToolConfig, ToolContext, ToolErrorHandling, ToolExecutor, tool
from tests.tools.cases import NO_WAIT, call, echo
from tests.tools.colours import Runner, both_colours, one


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


@both_colours
def test_the_wait_is_really_taken(execute_all: Runner) -> None:
    config = ToolConfig(retry=RetryConfig(backoff_base=0.1, jitter=0))
    result = one(execute_all(ToolExecutor([tool(Flaky(1), name="flaky", retries=1)], config), [call("flaky")]))
    assert result.duration is not None
    assert result.duration >= 0.1
