"""The pieces of a loop, and the loop in one call."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.engines import AsyncScriptedEngine, ScriptedEngine
from dragoman.errors import ConfigurationError
from dragoman.loop import (
    AsyncOrchestrator,
    Orchestrator,
    aexecute_tool_calls,
    arun_tool_calling_loop,
    execute_tool_calls,
    run_tool_calling_loop,
)
from dragoman.providers import ModelOptions
from dragoman.tools import ToolConfig, ToolExecutor
from tests.loop.running import ASKED, add, calls


def test_both_colours_give_the_same() -> None:
    script = [calls(1), "Three."]
    plain = run_tool_calling_loop(ScriptedEngine(script), ASKED, [add])
    on_loop = asyncio.run(arun_tool_calling_loop(AsyncScriptedEngine(script), ASKED, [add]))
    assert [message.text for message in plain.messages] == [message.text for message in on_loop.messages]
    results = asyncio.run(aexecute_tool_calls(calls(1).tool_calls, [add]))
    assert [result.value for result in results] == [3]


def test_an_executor_is_used_as_it_is_and_left_open() -> None:
    with ToolExecutor([add]) as executor:
        assert execute_tool_calls(calls(1).tool_calls, executor)[0].value == 3
        assert run_tool_calling_loop(ScriptedEngine([calls(1), "x"]), ASKED, executor).text == "x"
        assert asyncio.run(aexecute_tool_calls(calls(1).tool_calls, executor))[0].value == 3
        assert executor.execute(calls(1).tool_calls[0]).value == 3


def test_an_executor_with_a_second_config_is_refused() -> None:
    with ToolExecutor([add]) as executor, pytest.raises(ConfigurationError, match="config of its own"):
        Orchestrator(ScriptedEngine([]), executor, ToolConfig())
    with ToolExecutor([add]) as executor, pytest.raises(ConfigurationError, match="config of its own"):
        execute_tool_calls(calls(1).tool_calls, executor, ToolConfig())
    with ToolExecutor([add]) as executor, pytest.raises(ConfigurationError, match="config of its own"):
        asyncio.run(aexecute_tool_calls(calls(1).tool_calls, executor, ToolConfig()))


def test_what_the_engine_was_made_with_is_asked_for_unless_the_loop_says_otherwise() -> None:
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


def test_an_orchestrator_by_a_models_name_makes_and_closes_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with Orchestrator("openai:gpt-4o", [add]) as loop:
        assert loop.engine.name == "openai:gpt-4o"

    async def main() -> str:
        async with AsyncOrchestrator("openai:gpt-4o", [add]) as loop:
            return loop.engine.name

    assert asyncio.run(main()) == "openai:gpt-4o"
