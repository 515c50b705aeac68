"""Who closes what: engines and executors are closed once, when the last one who needs them is done."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.chat import AsyncChatClient, ChatClient
from dragoman.conversation import Conversation, Message, RunEnded, TextDelta, ToolCall
from dragoman.engines import AsyncScriptedEngine, ProviderFactory, ScriptedEngine, factory
from dragoman.errors import ConfigurationError, LossyConversionError
from dragoman.loop import Cancelled
from dragoman.providers import ModelOptions
from dragoman.tools import tool
from tests.chat.talking import AsyncTalk, PlainTalk, Talk, threads_left


class Counted:
    """How often an engine was closed, and whether it was used afterwards."""

    closed = 0
    lossy = False

    def _next(self, *arguments: Any) -> Any:
        assert not self.closed, "used after it was closed"
        return super()._next(*arguments)  # type: ignore[misc]

    def losses(self, conversation: Conversation) -> Any:
        return ("all of it",) if self.lossy else ()


class Plain(Counted, ScriptedEngine):
    def close(self) -> None:
        self.closed += 1


class OnLoop(Counted, AsyncScriptedEngine):
    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1


class Making(ProviderFactory):
    """Makes engines and remembers them."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def _kept(self, engine: Any, model: str, options: Any) -> Any:
        engine.lossy = model == "lossy"
        engine.options = options.get("options", ModelOptions())
        self.made.append(engine)
        return engine

    def engine(self, model: str, **options: Any) -> Any:
        return self._kept(Plain(_script(), piece=4, name=f"counted:{model}"), model, options)

    def async_engine(self, model: str, **options: Any) -> Any:
        return self._kept(OnLoop(_script(), piece=4, name=f"counted:{model}"), model, options)


def _script() -> list[Any]:
    return ["A long story."] * 50


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> Iterator[Making]:
    found, before = Making(), threading.enumerate()
    monkeypatch.setitem(factory._registered, "counted", found)
    yield found
    assert not threads_left(before)


def _talk(colour: str, tools: Any = (), **options: Any) -> Talk:
    return (PlainTalk if colour == "plain" else AsyncTalk)("counted:one", tools, streamed=False, **options)


def _closed(talk: Talk) -> None:
    talk.do("aclose" if isinstance(talk, AsyncTalk) else "close")


def test_an_engine_is_closed_once_and_one_that_was_given_is_not(colour: str, making: Making) -> None:
    talk = _talk(colour)
    talk.chat("a")
    _closed(talk)
    _closed(talk)
    talk.close()
    assert [engine.closed for engine in making.made] == [1]
    given: Any = Plain(["x"]) if colour == "plain" else OnLoop(["x"])
    own = (PlainTalk if colour == "plain" else AsyncTalk)(given, streamed=False)
    own.close()
    assert given.closed == 0


def test_many_threads_may_close_a_client_at_once(making: Making) -> None:
    for _ in range(50):
        client = ChatClient("counted:one")
        branch = client.fork()
        threads = [threading.Thread(target=client.close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert making.made[-1].closed == 0  # the branch needs it
        branch.chat("a")
        branch.close()
        assert making.made[-1].closed == 1


def test_a_switch_closes_what_it_leaves(colour: str, making: Making) -> None:
    talk = _talk(colour)
    talk.chat("a")
    talk.do("switch", "counted:two")
    assert [engine.closed for engine in making.made] == [1, 0]
    with pytest.raises(LossyConversionError):
        talk.do("switch", "counted:lossy", strict=True)
    assert [engine.closed for engine in making.made] == [1, 0, 1]  # the one that was refused is not left open
    talk.do("switch", talk.client.engine)  # to itself
    talk.chat("b")
    talk.close()
    assert [engine.closed for engine in making.made] == [1, 1, 1]


def test_branches_outlive_their_origin_and_keep_the_model_that_it_has_left(colour: str, making: Making) -> None:
    talk = _talk(colour)
    origin, branch = talk.client, talk.do("fork")
    talk.do("switch", "counted:two")
    talk.client = branch
    grandchild = talk.do("fork")
    for client, closed in ((branch, [0, 0]), (origin, [0, 1])):
        talk.client = client
        talk.chat("a")
        _closed(talk)
        assert [engine.closed for engine in making.made] == closed
    talk.client = grandchild
    talk.chat("b")
    talk.close()
    assert [engine.closed for engine in making.made] == [1, 1]


def test_what_a_switch_is_told_is_not_forgotten(colour: str, making: Making) -> None:
    talk = _talk(colour, options=ModelOptions(temperature=0.1))
    talk.do("switch", "counted:two")
    talk.chat("a")
    talk.do("switch", "counted:three", options=ModelOptions(temperature=0.9))
    talk.chat("b")
    asked = [engine.calls[0].options.temperature for engine in making.made[1:]]
    assert asked == [0.1, 0.9]
    engine: Any = Plain(["x"]) if colour == "plain" else OnLoop(["x"])
    with pytest.raises(ConfigurationError, match="'key' cannot be combined with an engine"):
        talk.do("switch", engine, key="k")
    with pytest.raises(ConfigurationError, match="'transport' cannot be combined with an engine"):
        talk.do("switch", engine, transport=object())
    talk.close()


def test_a_client_that_is_closed_in_a_turn_stops_it_and_closes_when_it_has(making: Making) -> None:
    started, release = threading.Event(), threading.Event()

    @tool
    def slow(number: int) -> int:
        """Takes its time."""
        started.set()
        release.wait(30)
        return number

    @tool
    async def aslow(number: int) -> int:
        """Takes its time."""
        await asyncio.sleep(30)
        return number

    client = ChatClient("counted:one", [slow, aslow])
    engine = making.made[0]
    calls = Message.assistant(ToolCall("1", "slow", '{"number": 1}'), ToolCall("2", "aslow", '{"number": 2}'))
    engine._replies = iter([calls, "never"])
    ended: list[Any] = []
    turn = threading.Thread(target=lambda: ended.append(client.chat("Go.")))
    turn.start()
    started.wait(30)
    client.close()
    turn.join(30)
    release.set()
    assert isinstance(ended[0].ending, Cancelled)
    assert client.conversation.is_valid
    assert engine.closed == 1
    with pytest.raises(ConfigurationError, match="closed"):
        client.chat("More.")


def test_an_async_client_that_is_closed_in_a_turn_stops_it(making: Making) -> None:
    async def main() -> None:
        started = asyncio.Event()

        @tool
        async def slow(number: int) -> int:
            """Takes its time."""
            started.set()
            await asyncio.sleep(30)
            return number

        client = AsyncChatClient("counted:one", [slow])
        making.made[0]._replies = iter([Message.assistant(ToolCall("1", "slow", '{"number": 1}')), "never"])
        turn = asyncio.create_task(client.chat("Go."))
        await started.wait()
        await client.aclose()
        assert isinstance((await turn).ending, Cancelled)
        assert making.made[0].closed == 1
        assert not asyncio.all_tasks() - {asyncio.current_task()}

    asyncio.run(main())


def test_a_stream_that_is_still_read_ends_when_the_client_is_closed(making: Making) -> None:
    with ChatClient("counted:one") as client:
        events = iter(client.stream_chat("Tell."))
        next(events)
    assert making.made[0].closed == 1
    *_, last = events
    assert isinstance(last, RunEnded)
    assert last.ending == "cancelled"


def test_a_client_that_is_dropped_is_not_kept_alive() -> None:
    client = ChatClient(ScriptedEngine(["A long story."] * 3, piece=2))
    client.chat("a")
    for event in client.stream_chat("b"):
        if isinstance(event, TextDelta):
            break
    gone = weakref.ref(client)
    client.close()
    del client
    gc.collect()
    assert gone() is None
