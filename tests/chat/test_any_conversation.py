"""Whatever a model says and whatever a program does with its client: the history is valid, complete and kept."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from dragoman.conversation import Message, StopReason, Text, Thinking, ToolCall, Usage
from dragoman.engines import AsyncScriptedEngine, ScriptedEngine
from dragoman.errors import (
    ConcurrentUseError,
    ConversationError,
    DragomanError,
    OverloadedError,
    StoreError,
)
from dragoman.loop import Cancelled, DropToolResults, Limits, LoopHooks, Summarise
from dragoman.stores import AsyncStore, JournalEntry, SqliteStore, ToolCallBegun, resume
from dragoman.tools import ToolConfig, ToolErrorHandling, approve, deny
from tests.chat.failing import Tools
from tests.chat.talking import WAYS, AsyncTalk, Talk
from tests.rounds import PROFILE

NAMES = ["note", "anote", "delete", "fail", "nowhere"]


class Noting(SqliteStore):
    """Remembers which calls it was told of."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.begun: set[str] = set()

    def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int:
        entries = tuple(entries)
        done = super().record(id, entries, after=after)
        self.begun |= {entry.call.arguments for entry in entries if isinstance(entry, ToolCallBegun)}
        return done


class NotingTools(Tools):
    """Check, when they run, that the store knows."""

    def __init__(self, store: Noting) -> None:
        super().__init__()
        self.store = store

    def run(self, what: str) -> str:
        assert f'{{"what": "{what}"}}' in self.store.begun
        return super().run(what)


class Moody(LoopHooks):
    """Fails at one of the phases, once."""

    def __init__(self, at: int | None) -> None:
        self.left = at

    def _look(self, *_: object) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                message = "a hook does not like this"
                raise RuntimeError(message)

    before_model = after_model = before_tools = tool_started = tool_finished = after_tools = _look


# --- what a model may say ---------------------------------------------------------------------------------------------

_numbers = itertools.count()
_calls = st.tuples(
    st.sampled_from(["c1", "c2", "c3", "c1", "c2", ""]),
    st.sampled_from(NAMES),
    st.sampled_from(["good", "good", "good", "bad", "cut"]),
)
_reasons = st.sampled_from([None, None, None, *StopReason])
_replies = st.one_of(
    st.just("words"),
    st.just("words"),
    st.just("empty"),
    st.just("busy"),
    st.just("broken"),
    st.tuples(st.booleans(), st.lists(_calls, max_size=4), _reasons, st.sampled_from([None, 10, 1000])),
)


def _reply(plan: Any) -> Any:
    match plan:
        case "words":
            return "12"
        case "empty":
            return Message.assistant()
        case "busy":
            return OverloadedError("busy")
        case "broken":
            return _raise
    spoken, calls, reason, tokens = plan
    blocks: list[Any] = [Thinking("hm", "scripted"), Text("So.")] if spoken else []
    for id, name, kind in calls:
        arguments = f'{{"what": "{next(_numbers)}"}}'
        arguments = {"good": arguments, "bad": '{"x": 1}', "cut": arguments[:6]}[kind]
        blocks.append(ToolCall(id, name, arguments, partial=kind == "cut"))
    usage = None if tokens is None else Usage(input=tokens, output=1)
    return Message(role="assistant", blocks=tuple(blocks), stop_reason=reason, usage=usage)


def _raise(_call: Any) -> str:
    message = "the engine has a bug"
    raise RuntimeError(message)


# --- what a program may do --------------------------------------------------------------------------------------------

_events = st.integers(0, 12)
_actions = st.one_of(
    st.tuples(
        st.just("chat"),
        st.just(True),
        st.one_of(st.none(), st.tuples(st.sampled_from(["leave", "cancel", "raise", "add"]), _events)),
    ),
    st.tuples(st.just("chat"), st.booleans(), st.none()),
    st.tuples(st.just("answer"), st.integers(0, 15), st.booleans()),
    st.just(("add",)),
    st.just(("ask",)),
    st.just(("save",)),
    st.just(("restore",)),
    st.just(("fork",)),
    st.just(("switch",)),
    st.just(("set_tools",)),
)
_limits = st.sampled_from(
    [
        Limits(),
        Limits(steps=2),
        Limits(steps=0),
        Limits(tool_calls=1),
        Limits(model_calls=2),
        Limits(tokens=900),
        Limits(seconds=0),
    ]
)
_setups = st.fixed_dictionaries(
    {
        "limits": _limits,
        "on_limit": st.sampled_from(["raise", "return"]),
        "context": st.sampled_from([[], [DropToolResults(keep=0)], [Summarise(keep=1)]]),
        "handling": st.sampled_from([ToolErrorHandling.CONTINUE, ToolErrorHandling.ABORT]),
        "fails_at": st.one_of(st.none(), st.integers(0, 20)),
    }
)


class Stopped(Exception):
    """Raised by a callback."""


class Story:
    """A client, what is done with it, and what must be true afterwards."""

    def __init__(self, way: str, path: Path, script: list[Any], setup: dict[str, Any]) -> None:
        self.way = way
        self.store = Noting(path)
        self.tools = NotingTools(self.store)
        self.on_loop = WAYS[way][0] is AsyncTalk
        self.replies = itertools.chain([_reply(plan) for plan in script], itertools.repeat("12"))
        self.setup = setup
        self.said: Counter[str] = Counter()
        self.number = 0
        kind, streamed = WAYS[way]
        self.talk: Talk = kind(
            self._engine(),
            self.tools.all(),
            streamed=streamed,
            store=AsyncStore(self.store) if self.on_loop else self.store,
            tool_config=ToolConfig(tool_error_handling=setup["handling"], max_parallel_tools=3),
            hooks=[Moody(setup["fails_at"])],
            limits=setup["limits"],
            on_limit=setup["on_limit"],
            context=setup["context"],
        )

    def _engine(self) -> Any:
        engine: Any = (AsyncScriptedEngine if self.on_loop else ScriptedEngine)(self.replies, piece=3)
        engine.profile = engine.profile.with_changes(context_window=1000)
        return engine

    def _text(self) -> str:
        self.number += 1
        return f"words {self.number}"

    def do(self, action: tuple[Any, ...]) -> None:
        try:
            getattr(self, f"_{action[0]}")(*action[1:])
        except (ConcurrentUseError, ConversationError, StoreError):
            raise
        except (DragomanError, RuntimeError, Stopped):
            pass
        self.check()

    def _chat(self, speaks: bool, meanwhile: tuple[str, int] | None) -> None:
        speaks = speaks or not self.talk.client.history
        text = self._text() if speaks else None
        events = itertools.count()

        def callback(_event: Any) -> bool | None:
            if meanwhile is not None and next(events) == meanwhile[1]:
                match meanwhile[0]:
                    case "leave":
                        return False
                    case "cancel":
                        self.talk.client.cancel()
                    case "raise":
                        raise Stopped
                    case _:
                        self._add()
            return None

        result = self.talk.chat(text, callback=callback)
        if text is not None and not isinstance(result.ending, Cancelled):  # who leaves early may say it again
            self.said[text] += 1

    def _answer(self, which: int, speaks: bool) -> None:
        pending = self.talk.client.pending
        speaks = speaks or not self.talk.client.history
        answers = [
            approve(each.call) if which & 1 else deny(each.call, reason="no")
            for index, each in enumerate(pending)
            if which >> (index + 1) & 1
        ]
        self.talk.chat(self._text() if speaks else None, *answers)

    def _add(self) -> None:
        text = self._text()
        self.talk.client.add(text)
        self.said[text] += 1

    def _ask(self) -> None:
        self.talk.do("ask", self._text(), int)

    def _save(self) -> None:
        saved = self.talk.do("save")
        assert saved.conversation == self.talk.client.conversation

    def _restore(self) -> None:
        if self.talk.client._held.queue:  # what waits to join the history is the client's alone
            return
        self.talk.do("save")
        before = self.talk.client.conversation
        self.talk.do("restore", self.talk.client.id)
        assert self.talk.client.conversation == before

    def _fork(self) -> None:
        old = self.talk.client
        branch = self.talk.do("fork")
        self.talk.do("aclose" if self.on_loop else "close")
        assert branch.conversation == old.conversation
        self.talk.client = branch

    def _switch(self) -> None:
        self.talk.do("switch", self._engine())

    def _set_tools(self) -> None:
        self.talk.client.set_tools(self.tools.all())

    def check(self) -> None:
        client = self.talk.client
        conversation = client.conversation
        assert conversation.is_valid or client.pending, conversation.problems
        assert [each.call for each in client.pending] == list(conversation.pending_tool_calls)
        assert client._run is None
        assert client._holder is None
        assert set(self.tools.ran.values()) <= {1}
        if not self.setup["context"] or isinstance(self.setup["context"][0], DropToolResults):
            heard = Counter([m.text for m in (*conversation.messages, *client._held.queue) if m.role == "user"])
            assert all(times == 1 for text, times in heard.items() if text.startswith("words"))
            assert all(heard[text] == 1 for text in self.said), self.said - heard

    def end(self) -> None:
        """It can be continued, and the store has it all."""
        self.setup["fails_at"] = None
        client = self.talk.client
        options = {**client._runtime.options, "hooks": (), "limits": Limits()}
        client._set(client._held, client._runtime._replace(options=options))
        self.replies = itertools.repeat("12")
        self.talk.do("switch", self._engine())
        assert self.talk.chat("Go on.").text == "12"
        self.check()
        assert client.conversation.is_valid
        assert resume(self.store, client.id or "").conversation == client.conversation

    def close(self) -> None:
        self.talk.close()
        self.store.close()


@pytest.mark.parametrize("way", WAYS if PROFILE == "thorough" else ["plain-stream", "async-whole"])
@settings(max_examples=settings().max_examples // 2, deadline=None)
@given(script=st.lists(_replies, max_size=12), actions=st.lists(_actions, min_size=1, max_size=8), setup=_setups)
def test_any_conversation_stays_valid_and_complete(
    way: str, script: list[Any], actions: list[tuple[Any, ...]], setup: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = Story(way, Path(folder) / "talks.db", script, setup)
        try:
            for action in actions:
                story.do(action)
            story.end()
        finally:
            story.close()
