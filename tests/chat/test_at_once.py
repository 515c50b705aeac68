"""One client in many hands: whatever they do at the same time, everybody gets a clear answer and nothing is lost."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Loaded before the threads start: pytest rewrites the modules of its plugins, ours too, and Python cannot parse in two
# threads at once.
import dragoman.chat.answers
import dragoman.chat.ledger  # noqa: F401
from dragoman.chat import AsyncChatClient, ChatClient
from dragoman.conversation import Message, ToolCall
from dragoman.engines import ScriptedEngine
from dragoman.errors import (
    ConcurrentUseError,
    ConfigurationError,
    InvalidConversationError,
    LimitReachedError,
    OverloadedError,
    StoppedError,
)
from dragoman.simulator import Reply, Request, Simulator
from dragoman.stores import SqliteStore, resume
from dragoman.tools import approve, tool
from dragoman.transport import AsyncioTransport, PoolLimits
from tests.chat.talking import threads_left
from tests.engines.talking import MODELS, every_dialect


@tool
def note(number: int) -> int:
    """Note it."""
    return number


@tool
async def anote(number: int) -> int:
    """Note it."""
    await asyncio.sleep(0)
    return number


@tool(requires_approval=True)
def guarded(number: int) -> int:
    """Note it, if somebody says yes."""
    return number


TOOLS = [note, anote, guarded]


@pytest.fixture(autouse=True)
def _threads_change_often() -> Iterator[None]:
    # Where threads change that often, a tracer (that of coverage, say) fails to install itself in new ones.
    before, traced = sys.getswitchinterval(), threading.gettrace()
    sys.setswitchinterval(1e-5)
    threading.settrace(None)
    yield
    threading.settrace(traced)
    sys.setswitchinterval(before)


def _replies(dice: random.Random) -> Iterator[Any]:
    for number in range(100_000):
        rolled = dice.random()
        if rolled < 0.5:
            yield "Words."
        elif rolled < 0.6:
            yield OverloadedError("busy")
        else:
            names = dice.choices(["note", "anote", "guarded"], k=dice.randint(1, 3))
            calls = [ToolCall(f"c{i}", name, f'{{"number": {number}}}') for i, name in enumerate(names)]
            yield Message.assistant("So.", *calls)


class Hand:
    """One of those who use the client."""

    def __init__(self, client: ChatClient, name: int) -> None:
        self.client = client
        self.dice = random.Random(name)
        self.name = name
        self.added: list[str] = []
        self.failed: list[BaseException] = []
        names = ["chat", "chat", "stream", "add", "add", "cancel", "fork", "switch", "tools", "resume", "ask", "save"]
        self.ways: list[Callable[[], object]] = [getattr(self, name) for name in names]
        self.thread = threading.Thread(target=self.work)

    def work(self) -> None:
        for _ in range(25):
            try:
                self.dice.choice(self.ways)()
                _ = (self.client.usage, self.client.pending, self.client.id, repr(self.client))
            except (ConcurrentUseError, OverloadedError, LimitReachedError, StoppedError):
                pass
            except BaseException as error:  # noqa: BLE001 -- whatever else it is, the test wants to know
                self.failed.append(error)

    def chat(self) -> None:
        self.client.chat("Hello")

    def stream(self) -> None:
        leaves = self.dice.randint(0, 15)
        with self.client.stream_chat("Hello") as stream:
            for number, _ in enumerate(stream):
                if number == leaves:
                    break

    def add(self) -> None:
        text = f"note {self.name}.{len(self.added)}"
        self.client.add(text)
        self.added.append(text)

    def cancel(self) -> None:
        self.client.cancel()

    def fork(self) -> None:
        with self.client.fork() as branch:
            _ = branch.conversation

    def switch(self) -> None:
        self.client.switch(ScriptedEngine(_replies(self.dice), piece=2))

    def tools(self) -> None:
        self.client.set_tools(TOOLS)

    def resume(self) -> None:
        if self.client.history:
            try:
                self.client.resume(*[approve(each.call) for each in self.client.pending])
            except ConfigurationError as error:  # another hand went on after this one had looked
                if "does not wait for an answer" not in str(error):
                    raise
            except InvalidConversationError as error:  # what it saw was the beginning of a turn that left no trace
                if "no message that a model could answer" not in str(error):
                    raise

    def ask(self) -> None:
        self.client.ask("How are you?")

    def save(self) -> None:
        self.client.save()


@pytest.mark.parametrize("rounds", [pytest.param(60, id="without a store"), pytest.param(8, id="with a store")])
def test_threads_may_do_anything_at_any_moment(rounds: int, tmp_path: Path) -> None:
    before = threading.enumerate()  # also what a test that failed has left
    with SqliteStore(tmp_path / "talks.db") as kept:
        store = kept if rounds < 20 else None
        for number in range(rounds):
            engine = ScriptedEngine(_replies(random.Random(number)), piece=2)
            with ChatClient(engine, TOOLS, store=store) as client:
                hands = [Hand(client, 10 * number + index) for index in range(4)]
                for hand in hands:
                    hand.thread.start()
                for hand in hands:
                    hand.thread.join(120)
                assert not any(hand.thread.is_alive() for hand in hands)
                assert [hand.failed for hand in hands] == [[]] * 4
                heard = [message.text for message in (*client.history, *client._held.queue) if message.role == "user"]
                for hand in hands:
                    assert [text for text in heard if text.startswith(f"note {hand.name}.")] == hand.added
                client.switch(ScriptedEngine(["Fine."] * 30))
                assert client.chat("And now?").text == "Fine."
                assert client.conversation.is_valid
                if store is not None:
                    assert resume(store, client.id or "").conversation == client.conversation
    assert not threads_left(before)


def _said(request: Request) -> Reply | str:
    return "Done." if request.tool_results else Reply("So.", ToolCall("1", "anote", '{"number": 1}'))


@every_dialect
def test_a_plain_client_works_where_an_event_loop_runs(model: str) -> None:
    async def main(options: dict[str, Any]) -> None:
        with ChatClient(model, TOOLS, **options) as client:
            assert str(client.chat("Hello")) == "Done."
            assert client.stream_chat("Hello", lambda _: None).text == "Done."

    with Simulator(_said) as simulator:
        asyncio.run(main({"base_url": simulator.base_url(model.partition(":")[0]), "key": "k"}))
        assert simulator.wait_until_idle()


def test_a_timeout_at_any_moment_leaves_an_async_client_that_goes_on() -> None:
    model = MODELS["anthropic"]

    async def main(options: dict[str, Any]) -> None:
        transport = AsyncioTransport(limits=PoolLimits(idle=0))  # each request on a connection of its own
        async with AsyncChatClient(model, TOOLS, transport=transport, **options) as client:
            for number in range(40):
                try:
                    async with asyncio.timeout(0.0003 * number):
                        async with client.stream_chat(f"Hello {number}") as stream:
                            async for _ in stream:
                                pass
                except TimeoutError:
                    pass
                assert client.conversation.is_valid
            assert str(await client.chat("And now?")) == "Done."
        assert not asyncio.all_tasks() - {asyncio.current_task()}

    with Simulator(_said) as simulator:
        asyncio.run(main({"base_url": simulator.base_url(model.partition(":")[0]), "key": "k"}))
        assert simulator.wait_until_idle()
