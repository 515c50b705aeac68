"""S4, row by row: the helpers."""

from __future__ import annotations

import pytest

from dragoman import (
    Conversation,
    Message,
    ScriptedEngine,
    ToolCall,
    ToolConfig,
    ToolRegistry,
    errors,
    run_tool_calling_loop,
    tool,
)
from dragoman.loop import append_tool_results, execute_tool_calls, extract_tool_calls

ASKED = Conversation().plus(Message.user("Add."))
CALL = ToolCall("c1", "add", '{"a": 1, "b": 2}')


@tool
def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


def test_the_engine_has_one_job_and_leaves_tool_calls_as_they_are() -> None:
    replied = ScriptedEngine([Message.assistant(CALL)]).run_inference(ASKED, tools=[add.spec])
    assert replied.pending_tool_calls == (CALL,)
    assert len(replied.messages) == 2


def test_run_tool_calling_loop() -> None:
    talk = run_tool_calling_loop(ScriptedEngine([Message.assistant(CALL), "Three."]), ASKED, ToolRegistry([add]))
    assert talk.text == "Three."


def test_usable_one_by_one_in_a_hand_written_loop() -> None:
    engine, talk = ScriptedEngine([Message.assistant(CALL), "Three."]), ASKED
    while calls := extract_tool_calls(talk := engine.run_inference(talk)):
        talk = append_tool_results(talk, execute_tool_calls(calls, [add]))
    assert talk.text == "Three."


def test_reaching_the_limit_returns_the_conversation_with_the_error_max_iterations_n_reached() -> None:
    engine = ScriptedEngine([Message.assistant(CALL)] * 9)
    with pytest.raises(errors.StepLimitError) as caught:
        run_tool_calling_loop(engine, ASKED, [add], ToolConfig(max_iterations=4))
    assert caught.value.message == "max iterations (4) reached"
    assert len(caught.value.conversation.messages) == 1 + 4 * 2
    assert caught.value.conversation.is_valid
