"""S1: the rows about the tool-calling engine that no other test shows."""

from __future__ import annotations

import threading

import pytest

import dragoman
from dragoman import (
    Conversation,
    Message,
    Orchestrator,
    ScriptedEngine,
    ToolCall,
    ToolCallDelta,
    ToolRegistry,
    errors,
    tool,
)
from dragoman.conversation import ToolExample
from dragoman.simulator import Reply, Simulator

ASKED = Conversation().plus(Message.user("Add."))


@tool(examples=[ToolExample({"a": 1, "b": 2}, 3, "a small sum")], tags=["maths"], version="1.2")
def add(a: int, b: int = 2) -> int:
    """The sum of two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


@tool
def fail() -> None:
    """Never works."""
    message = "broken"
    raise RuntimeError(message)


def _call(name: str = "add", arguments: str = '{"a": 1}') -> ToolCall:
    return ToolCall("c1", name, arguments)


def test_tool_registry_register_get_list_unregister_clone_merge_thread_safe() -> None:
    registry = ToolRegistry([add])
    copy = registry.clone()
    copy.register(fail)
    assert [each.name for each in registry.list()] == ["add"]
    assert [each.name for each in registry.merge(ToolRegistry([fail])).list()] == ["add", "fail"]
    copy.unregister("add")
    with pytest.raises(errors.ToolNotFoundError):
        copy.get("add")
    shared = ToolRegistry()

    def fill(number: int) -> None:
        for index in range(20):
            shared.register(add.renamed(f"t{number}_{index}"))

    threads = [threading.Thread(target=fill, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(shared) == 160


def test_stream_chunk_partial_tool_call_arguments_arrive_while_streaming() -> None:
    script = [Reply(_call(arguments='{"a": 1, "b": 41}'))]
    with (
        Simulator(script) as simulator,
        dragoman.engine("openai:gpt-4o", key="k", base_url=simulator.base_url("openai")) as engine,
        engine.stream(ASKED, tools=[add.spec]) as stream,
    ):
        pieces = [event.arguments for event in stream if isinstance(event, ToolCallDelta)]
    assert len(pieces) > 1
    assert "".join(pieces) == '{"a": 1, "b": 41}'


def test_inference_orchestrator_run_and_stream() -> None:
    for streamed in (False, True):
        with Orchestrator(ScriptedEngine([Message.assistant(_call()), "Three."]), ToolRegistry([add])) as loop:
            if streamed:
                with loop.stream(ASKED) as stream:
                    list(stream)
                assert stream.result.text == "Three."
            else:
                assert loop.run(ASKED).text == "Three."


def test_tool_adapter_validate_definition_and_provider_limits() -> None:
    report = dragoman.check([add.renamed("no good name!").spec], "openai:gpt-4o")
    assert report
    from dragoman.providers import profile_of

    assert profile_of("openai", "gpt-4o").tool_limits.max_tools == 128
    assert profile_of("anthropic", "claude-sonnet-4-5").tool_limits.max_name_length == 128
    assert profile_of("gemini", "gemini-2.5-flash").tool_limits.max_tools == 512
