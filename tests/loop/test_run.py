"""One run: its history, errors, tool choice and approval."""

from __future__ import annotations

from dragoman.conversation import (
    Failed,
    Message,
    OneTool,
    StopReason,
    Text,
    ToolCall,
)
from dragoman.errors import ConfigurationError, OverloadedError, ToolAbortedError
from dragoman.loop import AwaitApproval, Done
from dragoman.providers import ModelOptions
from dragoman.tools import ToolConfig, ToolErrorHandling, approve, deny, tool
from tests.loop.running import ASKED, Way, add, calls, every_way

SCRIPT = [Message.assistant("I add.", *calls(1, 2).blocks), "Three and four."]


@tool
def fails() -> str:
    """Never works."""
    message = "no"
    raise RuntimeError(message)


@tool(requires_approval=True)
def guarded(a: int, b: int) -> int:
    """A sum that somebody has to approve."""
    return a + b


# --- the history -----------------------------------------------------------------------------------------------------


@every_way
def test_the_text_of_all_steps_is_kept(way: Way) -> None:
    result = way(SCRIPT).result
    assert [message.text for message in result.conversation.messages if message.role == "assistant"] == [
        "I add.",
        "Three and four.",
    ]
    assert result.conversation.is_valid
    assert isinstance(result.ending, Done)
    assert (result.spent.steps, result.spent.tool_calls, len(result.replies)) == (2, 2, 2)


@every_way
def test_a_provider_error_carries_the_conversation_so_far(way: Way) -> None:
    ran = way([calls(1), OverloadedError("busy")])
    assert isinstance(ran.error, OverloadedError)
    assert not ran.events or isinstance(ran.events[-1], Failed)
    assert ran.error.conversation is not None
    assert [message.role for message in ran.error.conversation.messages] == ["user", "assistant", "tool"]
    assert ran.error.conversation.is_valid


@every_way
def test_abort_really_aborts_and_keeps_every_result(way: Way) -> None:
    config = ToolConfig(tool_error_handling=ToolErrorHandling.ABORT)
    ran = way([Message.assistant(ToolCall("1", "fails", "{}"), *calls(2).blocks), "never"], [fails, add], ASKED, config)
    assert isinstance(ran.error, ToolAbortedError)
    assert ran.error.conversation is not None
    assert ran.error.conversation.is_valid
    assert len(ran.calls) == 1


@every_way
def test_an_empty_reply_ends_the_run(way: Way) -> None:
    ran = way([Message(role="assistant", stop_reason=StopReason.REFUSAL)])
    assert isinstance(ran.result.ending, Done)
    assert ran.result.ending.stop_reason is StopReason.REFUSAL
    assert ran.result.conversation == ASKED


@every_way
def test_a_call_cut_off_at_the_token_limit_keeps_the_history_valid(way: Way) -> None:
    cut = Message.assistant("Well", ToolCall("1", "add", '{"a": 1', partial=True))
    ran = way([Message(role="assistant", blocks=cut.blocks, stop_reason=StopReason.MAX_TOKENS)])
    assert ran.result.conversation.is_valid
    assert ran.result.text == "Well"


@every_way
def test_a_paused_turn_goes_on(way: Way) -> None:
    paused = Message(role="assistant", blocks=(Text("Searching"),), stop_reason=StopReason.PAUSED)
    ran = way([paused, "Found."])
    assert ran.result.text == "Found."
    assert len(ran.calls) == 2


# --- tool choice -----------------------------------------------------------------------------------------------------


@every_way
def test_a_forced_tool_choice_applies_to_the_first_step_only(way: Way) -> None:
    for choice in ("required", OneTool("add")):
        ran = way([calls(1), "Three."], options=ModelOptions(tool_choice=choice))
        assert ran.choices == [choice, "auto"]
    ran = way([calls(1), "Three."], [add], ASKED, ToolConfig(tool_choice="required"))
    assert ran.choices == ["required", "auto"]
    # Nor does it hold again after an approval.
    options = ModelOptions(tool_choice="required")
    paused = way([calls(1, name="guarded")], [guarded], options=options).result
    answers = [approve(paused.pending[0].call)]
    ran = way(["Done."], [guarded], paused.conversation, approvals=answers, options=options)
    assert ran.choices == ["auto"]
    ran = way(["x"], (), options=options)  # without tools it is an error, before anything is sent
    assert isinstance(ran.error, ConfigurationError)
    assert ran.calls == []


@every_way
def test_only_allowed_tools_are_offered_and_none_when_tools_are_off(way: Way) -> None:
    assert [len(call.tools) for call in way(["x"], [add, fails], ASKED, ToolConfig(enabled=False)).calls] == [0]
    allowed = way(["x"], [add, fails], ASKED, ToolConfig(allowed_tools=frozenset(["add"]))).calls
    assert [[spec.name for spec in call.tools] for call in allowed] == [["add"]]


# --- approval --------------------------------------------------------------------------------------------------------


@every_way
def test_the_loop_returns_with_pending_calls_and_goes_on_when_they_are_answered(way: Way) -> None:
    script = [Message.assistant(*calls(1, name="guarded").blocks, *calls(2).blocks)]
    ran = way(script, [guarded, add])
    assert isinstance(ran.result.ending, AwaitApproval)
    ((pending,), conversation) = ran.result.pending, ran.result.conversation
    assert repr(ran.result) == "<RunResult await_approval (1 call waits): ''>"
    assert "await approval (1 call waits)" in ran.result._repr_html_()
    assert [result.call_id for result in conversation.messages[-1].tool_results] == ["c2"]

    approved = way(["Done."], [guarded, add], conversation, approvals=[approve(pending.call)])
    assert [result.value for result in approved.result.conversation.messages[2].tool_results] == [3, 4]
    denied = way(["Done."], [guarded, add], conversation, approvals=[deny(pending.call, reason="not today")])
    assert "not today" in denied.result.conversation.messages[2].tool_results[0].text
    other = ToolCall(pending.call.id, pending.call.name, '{"a": 9, "b": 9}')
    assert "or was made with other arguments" in str(
        way(["Done."], [guarded, add], conversation, approvals=[approve(other)]).error
    )


@every_way
def test_an_approval_is_used_up_by_the_call_that_it_was_for(way: Way) -> None:
    conversation = ASKED.plus(calls(1, name="guarded"))
    again = [calls(1, name="guarded"), "Done."]  # a provider that gives the same id again
    ran = way(again, [guarded], conversation, approvals=[approve(conversation.pending_tool_calls[0])])
    assert isinstance(ran.result.ending, AwaitApproval)
    assert ran.result.spent.tool_calls == 1
    # A person's no holds even for a call that needs no approval.
    conversation = ASKED.plus(calls(1))
    ran = way(["Done."], [add], conversation, approvals=[deny(conversation.pending_tool_calls[0], reason="stop")])
    assert "stop" in ran.result.conversation.messages[2].tool_results[0].text


@every_way
def test_an_answer_to_a_call_that_is_not_pending_is_an_error(way: Way) -> None:
    early = approve(calls(1, name="guarded").tool_calls[0])
    ran = way([calls(1, name="guarded")], [guarded], approvals=[early])
    assert isinstance(ran.error, ConfigurationError)
    assert "does not wait for an answer" in ran.error.message
    assert ran.calls == []
