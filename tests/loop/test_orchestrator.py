"""The pieces of a loop, and the loop in one call."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.engines import ScriptedEngine
from dragoman.errors import ConfigurationError
from dragoman.loop import (
    AsyncOrchestrator,
    Orchestrator,
    aexecute_tool_calls,
    execute_tool_calls,
    run_tool_calling_loop,
)
from dragoman.providers import ModelOptions
from dragoman.tools import ToolConfig, ToolExecutor
from tests.loop.running import ASKED, add, calls


def test_a_given_executor_is_left_open_and_takes_no_second_config() -> None:
    with ToolExecutor([add]) as executor:
        assert execute_tool_calls(calls(1).tool_calls, executor)[0].value == 3
        assert run_tool_calling_loop(ScriptedEngine([calls(1), "x"]), ASKED, executor).text == "x"
        assert asyncio.run(aexecute_tool_calls(calls(1).tool_calls, executor))[0].value == 3
        assert executor.execute(calls(1).tool_calls[0]).value == 3
        for use in (
            lambda: Orchestrator(ScriptedEngine([]), executor, ToolConfig()),
            lambda: execute_tool_calls(calls(1).tool_calls, executor, ToolConfig()),
            lambda: asyncio.run(aexecute_tool_calls(calls(1).tool_calls, executor, ToolConfig())),
        ):
            with pytest.raises(ConfigurationError, match="config of its own"):
                use()


def test_the_options_of_the_engine_are_defaults() -> None:
    engine = ScriptedEngine(["x", "y"])
    engine.options = ModelOptions(temperature=0.5)
    with Orchestrator(engine) as loop:
        loop.run(ASKED)
    with Orchestrator(engine, options=ModelOptions(seed=1)) as loop:
        loop.run(ASKED)
    assert [call.options for call in engine.calls] == [
        ModelOptions(temperature=0.5),
        ModelOptions(temperature=0.5, seed=1),
    ]


def test_an_orchestrator_closes_the_engine_it_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with Orchestrator("openai:gpt-4o", [add]) as loop:
        assert loop.engine.name == "openai:gpt-4o"

    async def main() -> str:
        async with AsyncOrchestrator("openai:gpt-4o", [add]) as loop:
            return loop.engine.name

    assert asyncio.run(main()) == "openai:gpt-4o"
