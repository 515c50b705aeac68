"""Replies without content: asked again once, and then the end of the run; and how every ending is told."""

from __future__ import annotations

from typing import get_args

import pytest

from dragoman.conversation import (
    BROKEN_OFF,
    CUT_OFF,
    Block,
    Ended,
    Message,
    RunEnded,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from dragoman.engines import ScriptedEngine
from dragoman.errors import LimitReachedError
from dragoman.loop import ENDINGS, Done, Ending, Limits, NoAnswer, Orchestrator
from dragoman.providers import ModelOptions
from dragoman.toolkit import CallbackResponder
from dragoman.toolkit.responder import responder_tools
from dragoman.tools import tool
from tests.loop.running import ASKED, Way, calls, every_way


def reply(*blocks: Block, stop: StopReason = StopReason.END) -> Message:
    return Message(role="assistant", blocks=blocks, stop_reason=stop)


EMPTY = [reply(), reply(Text("")), reply(Text(" \n")), reply(Thinking("Hm.", "scripted"), Text(""))]
PROMISED = (StopReason.TOOL_CALLS, StopReason.PAUSED, StopReason.OTHER)
LOST = reply(ToolCall("1", "add", '{"a": 1', partial=True), stop=StopReason.MAX_TOKENS)
CUT = reply(ToolCall("1", "add", '{"a": 1, "b": 2}'), stop=StopReason.MAX_TOKENS)


@every_way
@pytest.mark.parametrize("empty", [*EMPTY, *[reply(stop=stop) for stop in PROMISED], LOST])
def test_an_empty_reply_is_asked_again_once(way: Way, empty: Message) -> None:
    ran = way([calls(1), empty, "Three."], options=ModelOptions(tool_choice="auto"))
    assert isinstance(ran.result.ending, Done)
    assert (ran.result.text, ran.result.spent.model_calls, ran.result.spent.steps) == ("Three.", 3, 3)
    assert ran.calls[1].conversation == ran.calls[2].conversation
    assert [message.role[0] for message in ran.result.conversation.messages] == ["u", "a", "t", "a"]
    assert len(ran.result.replies) == 3


def test_so_is_one_that_failed_at_a_call() -> None:
    """Gemini's MALFORMED_FUNCTION_CALL; a scripted stream cannot say so."""
    engine = ScriptedEngine([reply(Thinking("Hm.", "scripted"), stop=StopReason.ERROR), "Three."])
    with Orchestrator(engine) as loop:
        assert loop.run(ASKED).text == "Three."


@every_way
@pytest.mark.parametrize("empty", [*EMPTY, LOST])
def test_the_second_empty_reply_in_a_row_is_an_ending(
    way: Way, empty: Message, caplog: pytest.LogCaptureFixture
) -> None:
    earlier = ASKED.plus(Message.assistant("Earlier."), Message.user("And now?"))
    ran = way([empty, empty, "never"], (), earlier)
    assert isinstance(ran.result.ending, NoAnswer)
    assert (ran.result.conversation, len(ran.calls)) == (earlier, 2)
    assert str(ran.result) == ran.result.text == empty.text, "not the answer of an earlier turn"
    assert "no_answer" in repr(ran.result)
    assert ran.result.note == str(ran.result.ending)
    assert caplog.messages == [f"scripted:model: {ran.result.note}"]
    if ran.events:
        assert isinstance(ran.events[-1], RunEnded)
        assert (ran.events[-1].ending, ran.events[-1].note) == ("no_answer", ran.result.note)


@every_way
def test_the_count_begins_anew_after_a_reply_that_says_something(way: Way) -> None:
    ran = way([reply(), calls(1), reply(), "Three."])
    assert isinstance(ran.result.ending, Done)
    assert len(ran.calls) == 4


@every_way
def test_an_empty_reply_and_one_whose_calls_were_cut_are_two_in_a_row(way: Way) -> None:
    for script in ([reply(), CUT, "never"], [CUT, reply(), "never"]):
        ran = way(script)
        assert isinstance(ran.result.ending, NoAnswer)
        assert ran.result.stop_reason is StopReason.MAX_TOKENS
        assert ran.result.conversation.is_valid
        assert len(ran.calls) == 2


@every_way
@pytest.mark.parametrize(
    "stop",
    [*CUT_OFF, StopReason.STOP_SEQUENCE],
)
def test_a_reply_that_was_refused_filtered_or_cut_before_it_began_is_the_last(way: Way, stop: StopReason) -> None:
    ran = way([reply(stop=stop), "never"])
    assert isinstance(ran.result.ending, Done)
    assert (ran.result.stop_reason, len(ran.calls)) == (stop, 1)
    assert ran.result.conversation == ASKED


@every_way
def test_the_same_is_asked_again(way: Way) -> None:
    ran = way([reply(), calls(1), "Three."], options=ModelOptions(tool_choice="required"))
    assert ran.choices == ["required", "required", "auto"]


@every_way
def test_limits_count_the_second_question(way: Way) -> None:
    assert isinstance(way([reply(), "never"], limits=Limits(model_calls=1)).error, LimitReachedError)
    assert isinstance(way([reply(), "never"], limits=Limits(steps=1)).error, LimitReachedError)
    for first, shown in ((reply(), "limit_reached"), (CUT, "limit_reached (max_tokens)")):
        result = way([first, "never"], limits=Limits(steps=1), on_limit="return").result
        assert repr(result) == f"<RunResult {shown}: ''>", "the stop reason only if something is missing"


@every_way
def test_nothing_is_asked_again_if_a_tool_of_this_turn_has_spoken(way: Way) -> None:
    told: list[str] = []

    @tool(speaks=True)
    def post(text: str) -> ToolResult:
        """Post to the channel."""
        told.append(text)
        return ToolResult("", "", (Text("posted"),), is_error=text == "fail")

    tools = [*responder_tools(CallbackResponder(update=told.append, reaction=told.append)), post]
    for name, arguments in (
        ("send_update", '{"message": "Half done."}'),
        ("react_emoji", '{"emoji": "+1"}'),
        ("post", '{"text": "Hi."}'),
    ):
        ran = way([Message.assistant(ToolCall("1", name, arguments)), reply(), "never"], tools)
        assert (ran.result.ending, len(ran.calls)) == (Done(ran.result.replies[-1].message), 2)
        # In a later turn it counts no more.
        later = ran.result.conversation.plus(Message.user("And now?"))
        assert way([reply(), "Now."], tools, later).result.text == "Now."
    ran = way([Message.assistant(ToolCall("1", "post", '{"text": "fail"}')), reply(), "Sorry."], tools)
    assert ran.result.text == "Sorry."


# --- what is told ----------------------------------------------------------------------------------------------------


@every_way
@pytest.mark.parametrize("stop", CUT_OFF)
def test_an_answer_that_was_cut_is_visible_and_stays_as_it_is(
    way: Way, stop: StopReason, caplog: pytest.LogCaptureFixture
) -> None:
    ran = way([reply(Text("One and two are"), stop=stop)])
    assert isinstance(ran.result.ending, Done)
    assert str(ran.result) == ran.result.text == "One and two are"
    assert ran.result.stop_reason is ran.result.ending.stop_reason is stop
    assert repr(ran.result) == f"<RunResult done ({stop.value}): 'One and two are'>"
    assert CUT_OFF[stop] in ran.result.note
    assert caplog.messages == [f"scripted:model: {ran.result.note}"]


@every_way
def test_of_a_whole_answer_nothing_is_said(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    ran = way(["Three."])
    assert (ran.result.note, ran.result.stop_reason, caplog.messages) == ("", StopReason.END, [])
    assert repr(ran.result) == "<RunResult done: 'Three.'>"


def test_every_stop_reason_and_every_ending_has_its_place() -> None:
    """A new one belongs into one of these tables, and into each `match` over endings, which the type checker finds."""
    whole = {StopReason.END, StopReason.TOOL_CALLS, StopReason.STOP_SEQUENCE, StopReason.PAUSED, StopReason.OTHER}
    assert {*whole, *CUT_OFF, *BROKEN_OFF} == set(StopReason)
    assert len(whole) + len(CUT_OFF) + len(BROKEN_OFF) == len(StopReason)
    assert set(ENDINGS) == set(get_args(Ending))
    assert sorted(ENDINGS.values()) == sorted(get_args(Ended))
