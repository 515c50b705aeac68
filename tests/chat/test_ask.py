"""Typed answers: tool-free, in the history, for one question alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from dragoman.chat import ChatClient, answer_type
from dragoman.conversation import Message, StopReason, Text, ToolCall
from dragoman.engines import ScriptedEngine
from dragoman.errors import InvalidAnswerError, OverloadedError
from tests.chat.scenarios import add
from tests.chat.talking import Start


@dataclass
class Invoice:
    """An invoice."""

    number: str
    total: float


GOOD = '{"number": "A-1", "total": 9.5}'
SCHEMA = {"type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"]}


@pytest.mark.parametrize(
    ("wanted", "text", "value"),
    [
        (Invoice, GOOD, Invoice("A-1", 9.5)),
        (SCHEMA, GOOD, {"number": "A-1", "total": 9.5}),
        (int, "42", 42),
        (str, "plain words", "plain words"),
    ],
    ids=str,
)
def test_the_answer_is_of_the_type_that_was_asked_for(start: Start, wanted: Any, text: str, value: Any) -> None:
    talk = start([text])
    assert talk.do("ask", "Which?", wanted) == value
    assert [message.text for message in talk.client.history] == ["Which?", text]  # the answer joins the history


def test_without_a_type_the_answer_is_text_or_what_the_client_was_made_for(start: Start) -> None:
    assert start(["words"]).do("ask", "Which?") == "words"
    assert start([GOOD], answer=answer_type(Invoice)).do("ask", "Which?") == Invoice("A-1", 9.5)


def test_it_is_tool_free_and_the_schema_does_not_leak(start: Start) -> None:
    talk = start([GOOD, "Bye."], [add])
    talk.do("ask", "Which?", Invoice)
    talk.chat("Thanks.")
    asked, thanked = talk.client.engine.calls  # type: ignore[attr-defined]
    assert asked.tools == ()
    assert asked.options.response_format.name == "Invoice"
    assert [spec.name for spec in thanked.tools] == ["add"]
    assert thanked.options.response_format is None


def test_a_wrong_answer_is_asked_for_again_with_what_is_wrong(start: Start) -> None:
    talk = start(['{"number": "A-1"}', GOOD])
    assert talk.do("ask", "Which?", Invoice) == Invoice("A-1", 9.5)
    assert "total" in talk.client.history[2].text
    assert len(talk.client.history) == 4
    assert talk.client.conversation.is_valid


def test_once_or_as_often_as_the_caller_says_and_then_the_error_has_the_raw_text(start: Start) -> None:
    for script, given in ((["no idea", "none at all", GOOD], {}), (["none at all", GOOD], {"retries": 0})):
        talk = start(script)
        with pytest.raises(InvalidAnswerError) as caught:
            talk.do("ask", "Which?", Invoice, **given)
        assert caught.value.text == "none at all"
        assert caught.value.problems
        assert talk.client.conversation.text == "none at all"  # what was said is not lost
    assert start(["no", "no", "no", GOOD]).do("ask", "Which?", Invoice, retries=3) == Invoice("A-1", 9.5)


@pytest.mark.parametrize(("reason", "hint"), [(StopReason.MAX_TOKENS, "max_tokens"), (StopReason.REFUSAL, "declined")])
def test_an_answer_that_cannot_get_better_is_not_asked_for_again(start: Start, reason: StopReason, hint: str) -> None:
    cut = Message(role="assistant", blocks=(Text('{"number": "A'),), stop_reason=reason)
    talk = start([cut, GOOD])
    with pytest.raises(InvalidAnswerError, match=hint):
        talk.do("ask", "Which?", Invoice)


def test_a_question_that_nobody_answered_leaves_no_trace(start: Start) -> None:
    talk = start([OverloadedError("busy"), GOOD])
    with pytest.raises(OverloadedError):
        talk.do("ask", "Which?", Invoice)
    assert talk.client.history == ()
    assert talk.do("ask", "Which?", Invoice) == Invoice("A-1", 9.5)
    talk = start(["many", OverloadedError("busy")])  # nor does a correction
    with pytest.raises(OverloadedError):
        talk.do("ask", "How many?", int)
    assert [message.text for message in talk.client.history] == ["How many?", "many"]


def test_a_model_that_calls_a_tool_all_the_same_does_not_spoil_the_history(start: Start) -> None:
    called = Message.assistant(ToolCall("1", "add", "{}"))
    talk = start([called, GOOD], [add])
    assert talk.do("ask", "Which?", Invoice) == Invoice("A-1", 9.5)
    assert talk.client.conversation.is_valid


def test_asking_of_a_stateless_client_keeps_nothing() -> None:
    with ChatClient(ScriptedEngine([GOOD]), stateless=True) as client:
        assert client.ask("Which?", Invoice) == Invoice("A-1", 9.5)
        assert client.history == ()
