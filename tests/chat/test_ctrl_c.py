"""Ctrl-C at any moment leaves a client that is free, with a history that is valid and complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from dragoman.chat import ChatClient
from dragoman.conversation import Message, ToolCall
from dragoman.engines import ScriptedEngine
from dragoman.stores import SqliteStore, resume
from dragoman.tools import approve
from tests.chat.failing import Tools
from tests.chat.interrupting import Interrupting, in_a_thread_of_its_own
from tests.rounds import PROFILE

# An interrupt between making a coroutine and stepping it leaves one that nobody awaits; Python says so, and no more.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

BOTH = Message.assistant("Both.", ToolCall("c1", "note", '{"what": "a"}'), ToolCall("c2", "delete", '{"what": "b"}'))


def _whole(client: ChatClient) -> None:
    client.add("Before.")
    paused = client.chat("Do both.")
    client.add("Quickly.")
    client.resume(*[approve(each.call) for each in paused.pending])


def _streamed(client: ChatClient) -> None:
    client.add("Before.")
    client.stream_chat("Do both.", lambda _: None)
    client.add("Quickly.")
    with client.stream_chat(approvals=[approve(each.call) for each in client.pending]) as stream:
        for _ in stream:
            pass


def _asked(client: ChatClient) -> None:
    client.add("Before.")
    client.ask("How many?", int)


def _reply(asked: Any) -> Message | str:
    if asked.options.response_format is not None:
        return "12"
    messages = asked.conversation.messages
    if "Again." in [message.text for message in messages]:
        return "At your service."
    return "Done." if any(message.role == "tool" for message in messages) else BOTH


SCENARIOS: dict[str, Callable[[ChatClient], None]] = {"whole": _whole, "streamed": _streamed, "asked": _asked}


def _interrupted(at: int, scenario: Callable[[ChatClient], None], client: ChatClient) -> tuple[bool, str]:
    interrupting = Interrupting(at)
    try:
        with interrupting.at_work():
            scenario(client)
    except KeyboardInterrupt:
        # Still in here: whoever retries at once must not be kept out by what the traceback holds on to.
        where = interrupting.where
        conversation = client.conversation
        assert conversation.is_valid or client.pending, where
        assert str(client.chat("Again.")) == "At your service.", where
        return True, where
    return False, ""


def _check(client: ChatClient, tools: Tools, where: str) -> None:
    assert client.conversation.is_valid, where
    assert set(tools.ran.values()) <= {1}, where
    texts = Counter(message.text for message in client.history if message.role == "user")
    assert texts["Again."] == 1, where
    assert set(texts.values()) == {1}, where
    if texts["Do both."]:
        assert texts["Before."] == 1, where
    results = [result for message in client.history for result in message.tool_results]
    for what in list(tools.ran):  # whatever was begun is in the history
        assert any(what in result.text or result.is_error for result in results), where


def _many_moments(scenario: Callable[[ChatClient], None], directory: Path | None) -> None:
    """Every moment in a thorough run, else every third; with a store in this directory, which then holds what the
    client has, fewer."""
    at, step = 0, 1 if PROFILE == "thorough" else 3
    with nullcontext() if directory is None else SqliteStore(directory / "talks.db") as store:
        while True:
            tools = Tools()
            with ChatClient(ScriptedEngine([_reply] * 20, piece=4), tools.all(), store=store) as client:
                came, where = _interrupted(at, scenario, client)
                if not came:
                    break
                _check(client, tools, where)
                if store is not None:
                    assert resume(store, client.id or "").conversation == client.conversation, where
            at += step if store is None else 11 * step
    assert at > 100


@pytest.mark.parametrize("kept", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "with a store"])
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_ctrl_c_at_any_moment_leaves_a_client_that_goes_on(
    scenario: Callable[[ChatClient], None], kept: bool, tmp_path: Path
) -> None:
    in_a_thread_of_its_own(lambda: _many_moments(scenario, tmp_path if kept else None))
