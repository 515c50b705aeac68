"""A client with a store: every step is safe before its effect is seen, and a killed process is continued."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.chat import ChatClient
from dragoman.conversation import Conversation, Message, ToolCall
from dragoman.engines import AsyncScriptedEngine, ScriptedEngine
from dragoman.errors import ConfigurationError, OverloadedError, StoreConflictError
from dragoman.loop import DropToolResults, LoopHooks, LoopRun
from dragoman.stores import AsyncStore, MessageAdded, SqliteStore, ToolCallBegun, ToolCallDone, resume
from dragoman.tools import approve, deny, tool
from tests.chat.scenarios import add, delete
from tests.chat.talking import ROOT, AsyncTalk, PlainTalk, Start, Talk

ADDING = Message.assistant(ToolCall("c1", "add", '{"a": 1, "b": 2}'))
BOTH = Message.assistant(ToolCall("c1", "add", '{"a": 1, "b": 2}'), ToolCall("c2", "delete", '{"path": "a"}'))


class Kept:
    """A store that both colours use, and a second look at it from outside."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outside = SqliteStore(path)

    def talk(self, colour: str, script: list[Any], tools: Any = (add, delete), **options: Any) -> Talk:
        if colour == "plain":
            return PlainTalk(ScriptedEngine(script), tools, streamed=False, store=SqliteStore(self.path), **options)
        store = AsyncStore(SqliteStore(self.path))
        return AsyncTalk(AsyncScriptedEngine(script), tools, streamed=False, store=store, **options)

    def close(self, *talks: Talk) -> None:
        for talk in talks:
            store = talk.client._store
            talk.close()
            (store.store if isinstance(store, AsyncStore) else store).close()

    def conversation(self, talk: Talk) -> Conversation:
        return resume(self.outside, talk.client.id or "").conversation


@pytest.fixture
def kept(tmp_path: Path) -> Any:
    found = Kept(tmp_path / "talks.db")
    yield found
    found.outside.close()


def test_every_turn_is_a_point_of_the_chain(kept: Kept, colour: str) -> None:
    talk = kept.talk(colour, ["One.", "Two."])
    talk.chat("a")
    talk.chat("b")
    points = kept.outside.history(talk.client.id or "").items
    assert len(points) == 3  # before the first answer, and after each turn
    assert kept.conversation(talk) == talk.client.conversation
    saved = talk.do("save")
    assert saved.id == points[0].id  # nothing new, nothing written
    assert saved.root == talk.client.id
    kept.close(talk)


def test_each_step_is_in_the_journal_before_the_next_one_begins(kept: Kept, colour: str) -> None:
    seen: list[Any] = []

    def look(_call: Any) -> str:
        newest = kept.outside.list().items[0]
        seen.append([type(entry) for entry in kept.outside.journal(newest.id).entries])
        return "Three."

    @tool
    def peek(a: int, b: int) -> int:
        """Looks into the store while it runs."""
        newest = kept.outside.list().items[0]
        seen.append([type(entry) for entry in kept.outside.journal(newest.id).entries])
        return a + b

    called = Message.assistant(ToolCall("c1", "peek", '{"a": 1, "b": 2}'))
    talk = kept.talk(colour, [called, look], [peek])
    talk.chat("Add.")
    assert seen == [
        [MessageAdded, ToolCallBegun],
        [MessageAdded, ToolCallBegun, ToolCallDone, MessageAdded],
    ]
    assert kept.outside.journal(talk.client.id or "").entries == ()  # the turn's snapshot covers it all
    kept.close(talk)


def test_a_failed_turn_leaves_the_store_as_the_client_is(kept: Kept, colour: str) -> None:
    talk = kept.talk(colour, ["One.", OverloadedError("busy"), ADDING, OverloadedError("busy")])
    talk.chat("a")
    with pytest.raises(OverloadedError):
        talk.chat("b")
    assert kept.conversation(talk) == talk.client.conversation
    assert len(talk.client.history) == 2
    with pytest.raises(OverloadedError):
        talk.chat("c")
    assert kept.conversation(talk) == talk.client.conversation
    assert [message.role for message in talk.client.history[-2:]] == ["assistant", "tool"]
    kept.close(talk)


def test_a_pause_for_approval_is_kept_and_resumed_elsewhere(kept: Kept, colour: str) -> None:
    talk = kept.talk(colour, [BOTH])
    talk.chat("Do both.")
    id = talk.client.id
    kept.close(talk)
    other = kept.talk(colour, ["Done."])
    other.do("restore", id)
    (pending,) = other.client.pending
    assert pending.call.name == "delete"
    assert other.do("resume", approve(pending.call)).text == "Done."
    assert [result.text for result in other.client.history[2].tool_results] == ["3", "deleted a"]
    assert kept.conversation(other) == other.client.conversation
    kept.close(other)


def test_two_clients_on_one_conversation_conflict_and_nothing_is_overwritten(kept: Kept, colour: str) -> None:
    one = kept.talk(colour, ["One.", "Two."])
    one.chat("a")
    two = kept.talk(colour, ["Other."])
    two.do("restore", one.client.id)
    two.chat("b")
    with pytest.raises(StoreConflictError):
        one.chat("c")
    assert [message.text for message in kept.conversation(two).messages] == ["a", "One.", "b", "Other."]
    kept.close(one, two)


def test_the_same_step_of_another_process_is_not_taken_for_ones_own(kept: Kept, colour: str) -> None:
    class Faster(LoopHooks):
        """Another process goes on with the conversation, and begins the same call a moment earlier."""

        def before_tools(self, run: LoopRun, calls: tuple[ToolCall, ...]) -> None:
            [item] = kept.outside.list().items
            journal = kept.outside.journal(item.root)
            kept.outside.record(journal.snapshot, map(ToolCallBegun, calls), after=journal.position)

    talk = kept.talk(colour, [ADDING], hooks=[Faster()])
    with pytest.raises(StoreConflictError):
        talk.chat("Add.")
    found = resume(kept.outside, str(talk.client.id))
    assert found.conversation.messages[-1].tool_calls == found.uncertain_calls == ADDING.tool_calls
    kept.close(talk)


def test_going_on_from_an_older_point_begins_a_conversation_of_its_own(kept: Kept, colour: str) -> None:
    talk = kept.talk(colour, ["One.", "Two.", "Three."])
    talk.chat("a")
    early = talk.do("save")
    talk.chat("b")
    first = talk.client.id
    talk.do("restore", early)
    talk.chat("c")
    assert talk.client.id != first
    assert [message.text for message in kept.conversation(talk).messages] == ["a", "One.", "c", "Three."]
    assert len(kept.outside.list().items) == 2
    kept.close(talk)


def test_a_shortened_history_keeps_the_long_one_in_the_chain(kept: Kept) -> None:
    engine = ScriptedEngine([ADDING, "Three.", ADDING, "Three again."])
    engine.profile = engine.profile.with_changes(context_window=10)
    with (
        SqliteStore(kept.path) as store,
        ChatClient(engine, [long], store=store, context=[DropToolResults(keep=0)]) as client,
    ):
        client.chat("Add.")
        client.chat("Add again.")
        assert "dropped" in client.history[2].tool_results[0].text
        points = [kept.outside.load(point.id) for point in kept.outside.history(client.id or "").items]
        results = [result for point in points for message in point.messages for result in message.tool_results]
        assert any("xxxx" in result.text for result in results)


@tool(name="add")
def long(a: int, b: int) -> str:
    """A long answer."""
    return "x" * 1000


def test_what_needs_a_store_or_cannot_have_one_is_refused(start: Start, kept: Kept) -> None:
    with pytest.raises(ConfigurationError, match="no store"):
        start([]).do("restore", "0190163d-8694-739b-aea5-966c26f8ad91")
    with pytest.raises(ConfigurationError, match="stateless"):
        ChatClient(ScriptedEngine([]), store=kept.outside, stateless=True)


# --- kill -9 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where", ["in the model's reply", "before the tool", "in the tool", "after the tool", "in the second reply"]
)
@pytest.mark.parametrize("idempotent", [False, True])
def test_a_killed_process_is_continued(kept: Kept, tmp_path: Path, where: str, idempotent: bool) -> None:
    log = tmp_path / "ran"
    command = [sys.executable, "-m", "tests.chat.killed", str(kept.path), str(log), where, str(idempotent)]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    before = log.read_text().split() if log.exists() else []
    conversation_id = kept.outside.list().items[0].id

    from tests.chat.killed import logging_tool

    with SqliteStore(kept.path) as store:
        replies = ["Done."] if before or where != "in the model's reply" else [ADDING, "Done."]
        with ChatClient(ScriptedEngine(replies), [logging_tool(log, idempotent=idempotent)], store=store) as client:
            client.restore(conversation_id)
            uncertain = where == "in the tool" and not idempotent
            assert bool(client.uncertain) == uncertain
            if uncertain:
                # It is reported, and not run again nor told to the model unless somebody says so.
                assert client.chat().pending == client.uncertain
                result = client.resume(deny(client.uncertain[0].call, reason="unknown whether it was done"))
            else:
                result = client.chat()
            assert result.text == "Done."
            assert client.conversation.is_valid
            assert [message.role for message in client.history] == ["user", "assistant", "tool", "assistant"]
    ran = log.read_text().split() if log.exists() else []
    expected = {"in the tool": 2 if idempotent else 1}.get(where, 1)
    assert len(ran) == expected  # a completed call is never run again
