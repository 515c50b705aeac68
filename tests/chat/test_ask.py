"""Typed answers: tool-free, in the history, for one question alone."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dragoman.chat import ChatClient, answer_type
from dragoman.conversation import Message, ToolCall
from dragoman.engines import ScriptedEngine
from dragoman.errors import OverloadedError
from tests.chat.scenarios import add
from tests.chat.talking import Start


@dataclass
class Invoice:
    """An invoice."""

    number: str
    total: float


GOOD = '{"number": "A-1", "total": 9.5}'


def test_the_answer_joins_the_history(start: Start) -> None:
    talk = start([GOOD])
    assert talk.do("ask", "Which?", Invoice) == Invoice("A-1", 9.5)
    assert [message.text for message in talk.client.history] == ["Which?", GOOD]


def test_the_default_type_is_text_or_that_of_the_client(start: Start) -> None:
    assert start(["words"]).do("ask", "Which?") == "words"
    assert start([GOOD], answer=answer_type(Invoice)).do("ask", "Which?") == Invoice("A-1", 9.5)


def test_a_question_uses_no_tools_and_its_schema_does_not_leak(start: Start) -> None:
    talk = start([GOOD, "Bye."], [add])
    talk.do("ask", "Which?", Invoice)
    talk.chat("Thanks.")
    asked, thanked = talk.client.engine.calls  # type: ignore[attr-defined]
    assert asked.tools == ()
    assert asked.options.response_format.name == "Invoice"
    assert [spec.name for spec in thanked.tools] == ["add"]
    assert thanked.options.response_format is None


def test_a_wrong_answer_is_corrected(start: Start) -> None:
    talk = start(['{"number": "A-1"}', GOOD])
    assert talk.do("ask", "Which?", Invoice) == Invoice("A-1", 9.5)
    assert "total" in talk.client.history[2].text
    assert len(talk.client.history) == 4
    assert talk.client.conversation.is_valid


def test_an_unanswered_question_leaves_no_trace(start: Start) -> None:
    talk = start([OverloadedError("busy"), GOOD])
    with pytest.raises(OverloadedError):
        talk.do("ask", "Which?", Invoice)
    assert talk.client.history == ()
    assert talk.do("ask", "Which?", Invoice) == Invoice("A-1", 9.5)
    talk = start(["many", OverloadedError("busy")])  # nor does a correction
    with pytest.raises(OverloadedError):
        talk.do("ask", "How many?", int)
    assert [message.text for message in talk.client.history] == ["How many?", "many"]


def test_an_unwanted_tool_call_keeps_the_history_valid(start: Start) -> None:
    called = Message.assistant(ToolCall("1", "add", "{}"))
    talk = start([called, GOOD], [add])
    assert talk.do("ask", "Which?", Invoice) == Invoice("A-1", 9.5)
    assert talk.client.conversation.is_valid


def test_a_stateless_client_keeps_no_question() -> None:
    with ChatClient(ScriptedEngine([GOOD]), stateless=True) as client:
        assert client.ask("Which?", Invoice) == Invoice("A-1", 9.5)
        assert client.history == ()
