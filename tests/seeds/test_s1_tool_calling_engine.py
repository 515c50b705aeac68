"""S1: the rows about the tool-calling engine that no other test shows."""

from __future__ import annotations

import dragoman
from dragoman import (
    Conversation,
    Message,
    Orchestrator,
    ScriptedEngine,
    ToolCall,
    ToolCallDelta,
    ToolRegistry,
    tool,
)
from dragoman.simulator import Reply, Simulator

CALL = ToolCall("c1", "add", '{"a": 1, "b": 41}')
ASKED = Conversation().plus(Message.user("Add."))


@tool
def add(a: int, b: int = 2) -> int:
    """The sum of two numbers."""
    return a + b


def test_stream_chunk_partial_tool_call_arguments_arrive_while_streaming() -> None:
    script = [Reply(CALL)]
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
        with Orchestrator(ScriptedEngine([Message.assistant(CALL), "Three."]), ToolRegistry([add])) as loop:
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
