"""A tool that asks somebody (it raises Paused) asks the same after a restart, wherever the conversation is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.chat import ChatClient
from dragoman.conversation import Message, ToolCall, Usage
from dragoman.engines import AsyncScriptedEngine, ScriptedEngine
from dragoman.loop import UNCERTAIN
from dragoman.stores import AsyncStore, ConversationStore, MemoryStore, conversation_id
from dragoman.tools import Paused, PendingApproval, ToolConfig, ToolContext, approve, tool
from tests.chat.talking import AsyncTalk, PlainTalk, Talk
from tests.stores.backends import BACKENDS

ID = conversation_id("asked")
HELD = ToolCall("1", "travel", '{"to": "Lyon"}')


def question(what: str) -> ToolCall:
    return ToolCall(what, "person", json.dumps({"question": what}))


@tool
def travel(context: ToolContext[Any], to: str) -> str:
    """Ask when, and then how."""
    answers: list[str] = []
    for what in ("when", "how"):
        answer = context.answer_about(question(what))
        if answer is None and not answers:
            context.used(Usage(input=10, output=1, charged=0.5))
            raise Paused([PendingApproval(call=question(each), reason=f"{each} to {to}?") for each in ("when", "how")])
        answers.append("?" if answer is None else answer.reason)
    return f"To {to}: {' '.join(answers)}."


@pytest.fixture(params=BACKENDS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], ConversationStore]]:
    backend = BACKENDS[request.param]
    with backend.around(tmp_path):
        yield lambda: backend.open(tmp_path)


def begin(colour: str, script: list[Any], store: ConversationStore, tools: Any = (travel,)) -> Talk:
    kind, engine = (PlainTalk, ScriptedEngine) if colour == "plain" else (AsyncTalk, AsyncScriptedEngine)
    kept = store if colour == "plain" else AsyncStore(store)
    return kind(engine(script), list(tools), streamed=False, store=kept, id=ID)


def waits(talk: Talk) -> list[tuple[Any, ...]]:
    return [(each.call.id, each.call.name, each.reason, each.within, each.used) for each in talk.client.pending]


@pytest.mark.parametrize("again", [1, 2])
def test_the_question_of_a_tool_survives_a_restart(
    opened: Callable[[], ConversationStore], colour: str, again: int
) -> None:
    with opened() as store:
        talk = begin(colour, [Message.assistant(HELD)], store)
        talk.chat("To Lyon.")
        asked, used = waits(talk), talk.client.usage
        assert [each[:4] for each in asked] == [
            ("1>when", "person", "when to Lyon?", HELD),
            ("1>how", "person", "how to Lyon?", HELD),
        ]
        talk.close()
    for _ in range(again):  # being looked at changes nothing
        with opened() as store:
            talk = begin(colour, ["Have a nice trip."], store)
            talk.do("restore", ID)
            assert (waits(talk), talk.client.usage, talk.client.uncertain) == (asked, used, ())
            talk.do("save")
            talk.close()
    with opened() as store:
        talk = begin(colour, ["Have a nice trip."], store)
        talk.do("restore", ID)
        answers = [
            approve(each.call, reason=word)
            for each, word in zip(talk.client.pending, ("today", "by train"), strict=True)
        ]
        assert talk.chat(None, *answers).text == "Have a nice trip."
        assert talk.client.history[2].tool_results[0].text == "To Lyon: today by train."
        talk.do("restore", ID)
        assert waits(talk) == []
        talk.close()


def test_the_question_is_kept_before_the_turn_ends(opened: Callable[[], ConversationStore]) -> None:
    """Another process looks while another tool of the same reply runs."""
    seen: list[Any] = []

    @tool
    def look() -> str:
        """What another process would find if this one died now."""
        with opened() as other, ChatClient(ScriptedEngine([]), [travel], store=other) as client:
            client.restore(ID)
            seen.extend([(each.call.id, each.reason) for each in client.pending])
        return "Seen."

    both = Message.assistant(HELD, ToolCall("2", "look", "{}"))
    with opened() as store:
        one = ToolConfig(max_parallel_tools=1)
        with ChatClient(ScriptedEngine([both]), [travel, look], store=store, id=ID, tool_config=one) as client:
            client.chat("To Lyon.")
    assert seen == [("1>when", "when to Lyon?"), ("1>how", "how to Lyon?"), ("2", UNCERTAIN)]


def test_a_fork_asks_the_same(colour: str) -> None:
    with MemoryStore() as store:
        talk = begin(colour, [Message.assistant(HELD), "Have a nice trip."], store)
        talk.chat("To Lyon.")
        fork = talk.client.fork() if colour == "plain" else talk.do("fork")
        assert [each.call for each in fork.pending] == [each.call for each in talk.client.pending]
        talk.close()


def test_what_a_tool_used_before_it_was_refused_is_counted(colour: str) -> None:
    with MemoryStore() as store:
        talk = begin(colour, [Message.assistant(HELD), "As you like."], store)
        talk.chat("To Lyon.")
        talk.chat("Never mind.")
        (result,) = talk.client.history[2].tool_results
        assert (result.is_error, result.usage) == (True, Usage(input=10, output=1, total=11, charged=0.5))
        talk.close()
