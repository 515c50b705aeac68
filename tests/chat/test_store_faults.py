"""A store that fails, at any write and in any way: nothing is lost, nothing runs twice, the error is the first one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dragoman._stepping import step
from dragoman.chat import AsyncChatClient, ChatClient
from dragoman.chat.ledger import Ledger, Place
from dragoman.conversation import Conversation, Message, Text, TextDelta, ToolCall, Usage
from dragoman.engines import AsyncScriptedEngine, ScriptedEngine
from dragoman.errors import (
    ConfigurationError,
    OverloadedError,
    StoreConflictError,
    StoreUnavailableError,
)
from dragoman.loop import Summarise
from dragoman.stores import (
    AsyncStore,
    BlockingStore,
    ConversationStore,
    FileStore,
    JournalEntry,
    MemoryStore,
    MessageAdded,
    SqliteStore,
    conversation_id,
    resume,
)
from dragoman.tools import ToolConfig, approve
from tests.chat.failing import Died, FailingStore, Tools
from tests.chat.talking import WAYS, AsyncTalk, Talk

STORES: dict[str, Callable[[Path], ConversationStore]] = {
    "file": lambda path: FileStore(path / "talks"),
    "sqlite": lambda path: SqliteStore(path / "talks.db"),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with STORES[request.param](tmp_path) as found:
        yield found


# What writes is the same for streams and for both stores, so that not every way needs to fail at every write.
pairs = pytest.mark.parametrize(
    ("store", "way"), [("file", "plain-whole"), ("sqlite", "async-stream")], indirect=["store"]
)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return request.param


def call(id: str, name: str = "note") -> ToolCall:
    return ToolCall(id, name, f'{{"what": "{id}"}}')


FULL = Message(role="assistant", blocks=(Text("Then."),), usage=Usage(input=950, output=40))
SCRIPT = [
    Message.assistant("First.", call("a"), call("b")),
    FULL,
    Message.assistant(call("c"), call("d", "delete")),
    "Done.",
]
SUMMARY = "A summary."


def _script() -> list[Any]:
    """Two turns with tools, an approval, and a history that is shortened in between."""
    return [SCRIPT[0], SCRIPT[1], SUMMARY, SCRIPT[2], SCRIPT[3]]


def _talk(way: str, script: list[Any], store: Any, tools: Tools, **options: Any) -> Talk:
    kind, streamed = WAYS[way]
    on_loop = kind is AsyncTalk
    engine: Any = (AsyncScriptedEngine if on_loop else ScriptedEngine)(script, piece=4)
    engine.profile = engine.profile.with_changes(context_window=1000)
    return kind(
        engine,
        tools.all(),
        streamed=streamed,
        store=AsyncStore(store) if on_loop else store,
        context=[Summarise(keep=1)],
        **options,
    )


def _turns(talk: Talk) -> None:
    """Go on with the two turns from wherever they stand."""
    for _ in range(20):
        users = [message.text for message in talk.client.history if message.role == "user"]
        last = talk.client.conversation.last
        if talk.client.pending:
            talk.chat(None, *[approve(each.call) for each in talk.client.pending])
        elif last is None:
            talk.chat("One.")
        elif last.role != "assistant":
            talk.chat()
        elif "Two." not in users:
            talk.chat("Two.")
        else:
            return
    pytest.fail("it does not come to an end")


def _how_many_writes(way: str, path: Path) -> int:
    with SqliteStore(path / "counted.db") as store:
        counting = FailingStore(store, -1)
        tools = Tools()
        talk = _talk(way, _script(), counting, tools)
        _turns(talk)
        talk.close()
        assert sum(tools.ran.values()) == 4
        return counting.writes


# --- it fails once, and the program goes on --------------------------------------------------------------------------


@pytest.mark.slow
@pairs
@pytest.mark.parametrize("after", [False, True], ids=["undone", "done all the same"])
def test_a_failed_write_ends_the_turn_and_the_next_one_continues(
    store: ConversationStore, way: str, after: bool, tmp_path: Path
) -> None:
    writes = _how_many_writes(way, tmp_path)
    assert writes > 10
    for at in range(writes):
        tools, failing = Tools(), FailingStore(store, at, after=after)
        # Replies that were lost with their turn are given again.
        talk = _talk(way, [_reply] * 40, failing, tools)
        with pytest.raises(StoreUnavailableError, match="disk is full"):
            _turns(talk)
        assert talk.client.conversation.is_valid or talk.client.pending
        _turns(talk)
        talk.do("save")
        conversation = talk.client.conversation
        assert conversation.is_valid
        assert resume(store, talk.client.id or "").conversation == conversation
        assert set(tools.ran.values()) <= {1}, f"ran twice at write {at}: {tools.ran}"
        talk.close()


def _reply(asked: Any) -> Message | str:
    """What the model says next, from what it was sent."""
    messages = asked.conversation.messages
    if messages[-1].text.startswith("Summarise"):
        return SUMMARY
    last = max(index for index, message in enumerate(messages) if message.role == "user")
    steps = len([message for message in messages[last:] if message.role == "assistant"])
    turn = SCRIPT[:2] if messages[last].text.endswith("One.") else SCRIPT[2:]
    return turn[min(steps, 1)]


# --- the program dies ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pairs
@pytest.mark.parametrize("after", [False, True], ids=["undone", "done"])
def test_a_program_that_dies_at_any_write_is_continued_by_another(
    store: ConversationStore, way: str, after: bool, tmp_path: Path
) -> None:
    writes = _how_many_writes(way, tmp_path)
    for at in range(writes):
        before, tools = {item.id for item in store.list().items}, Tools()
        dying = FailingStore(store, at, after=after, dies=True)
        talk = _talk(way, [_reply] * 40, dying, tools)
        with pytest.raises(Died):
            _turns(talk)
        talk.close()
        ran = Counter(tools.ran)
        left = [item for item in store.list().items if item.id not in before]
        other = _talk(way, [_reply] * 40, store, tools)
        if left:
            (found,) = left
            other.do("restore", found.id)
        # What was summarised is in earlier points of the chain.
        points = [store.load(point.id).conversation for item in left for point in store.history(item.id).items]
        told = [*[message for point in points for message in point.messages], *other.client.history]
        known = {result.call_id for message in told for result in message.tool_results}
        doubtful = {each.call.id for each in other.client.uncertain}
        assert set(ran) <= known | doubtful, f"write {at}: a call that ran is neither known nor reported"
        _turns(other)
        assert other.client.conversation.is_valid
        assert resume(store, other.client.id or "").conversation == other.client.conversation
        twice = {id for id, times in tools.ran.items() if times > 1}
        assert twice <= doubtful, f"write {at}: {twice} ran again without being asked about"
        other.close()
        store.delete(other.client.id or "")


# --- cancelled while it writes ---------------------------------------------------------------------------------------


class Slow(AsyncStore):
    """Tells when a write is under way."""

    def __init__(self, store: ConversationStore, at: int) -> None:
        super().__init__(store)
        self.at = at
        self.writes = 0
        self.writing = asyncio.Event()

    async def _told(self) -> None:
        if self.writes == self.at:
            self.writing.set()
        self.writes += 1

    async def save(self, snapshot: Any, *, after: int = 0) -> None:
        await self._told()
        await super().save(snapshot, after=after)

    async def record(self, id: str, entries: Any, *, after: int) -> int:
        await self._told()
        return await super().record(id, entries, after=after)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_survives_cancellation_during_a_write(tmp_path: Path, streamed: bool, times: int) -> None:
    async def main(at: int, path: Path) -> bool:
        tools, plain = Tools(), SqliteStore(path)
        store = Slow(plain, at)
        async with AsyncChatClient(AsyncScriptedEngine([_reply] * 9), tools.all(), store=store) as client:

            async def turn() -> None:
                if streamed:
                    await client.stream_chat("One.", lambda _: None)
                else:
                    await client.chat("One.")

            task = asyncio.create_task(turn())
            writing = asyncio.create_task(store.writing.wait())
            await asyncio.wait([task, writing], return_when=asyncio.FIRST_COMPLETED)
            reached = writing.done()
            for _ in range(times):
                task.cancel()
                await asyncio.sleep(0)
            writing.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert client.conversation.is_valid
            await client.chat("Two.")
            found = await asyncio.to_thread(resume, plain, client.id or "")
            assert found.conversation == client.conversation
            assert set(tools.ran.values()) <= {1}
        await store.aclose()
        return reached

    at = 0
    while asyncio.run(main(at, tmp_path / f"{at}.db")):
        at += 1
    assert at > 5


# --- two errors at once ----------------------------------------------------------------------------------------------


def test_the_first_error_is_raised_whoever_leaves(tmp_path: Path, way: str) -> None:
    """The model's is not hidden by the store's, nor the store's first by its second; nor is one lost by leaving."""
    with SqliteStore(tmp_path / "talks.db") as store:
        talk = _talk(way, [OverloadedError("busy"), "A long story."], FailingStore(store, 1, last=True), Tools())
        with pytest.raises(OverloadedError, match="busy") as caught:
            talk.chat("One.")
        assert "disk is full" in "".join(caught.value.__notes__)
        talk.close()
        talk = _talk(way, ["x"], FailingStore(store, 1, last=True), Tools())
        with pytest.raises(StoreUnavailableError, match=r"full at write 2\."):
            talk.chat("One.")
        talk.close()
        client = ChatClient(ScriptedEngine(["A long story."], piece=2), store=FailingStore(store, 1, last=True))
        stream = client.stream_chat("Tell.")
        for event in stream:
            if isinstance(event, TextDelta):
                break
        with pytest.raises(StoreUnavailableError):
            stream.close()
        client.close()


# --- who else writes -------------------------------------------------------------------------------------------------


class Overtaken(FailingStore):
    """Fails, and somebody else writes something of the same length in its place."""

    def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int:
        try:
            return super().record(id, entries, after=after)
        except StoreUnavailableError:
            self.store.record(id, [MessageAdded(Message.user("Me first."))], after=after)
            raise


def test_a_doubtful_write_is_not_confused_with_another_programs(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "talks.db") as store:
        failing = Overtaken(store, 3)
        with ChatClient(ScriptedEngine(["One.", "Two.", "Three."]), store=failing) as client:
            client.chat("a")  # saved, recorded, saved
            with pytest.raises(StoreUnavailableError):
                client.chat("b")
            with pytest.raises(StoreConflictError):
                client.chat("c")
            assert [message.text for message in client.history] == ["a", "One."]
            found = resume(store, client.id or "").conversation
            assert [message.text for message in found.messages] == ["a", "One.", "Me first."]
            with client.fork() as branch:  # its own way
                assert str(branch.chat("d")) == "Two."
            client.restore(client.id or "")  # or theirs
            assert str(client.chat("e")) == "Three."


def test_a_store_of_the_other_colour_is_refused_at_once(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "talks.db") as store:
        with pytest.raises(ConfigurationError, match=r"AsyncStore\(store\)"):
            AsyncChatClient(AsyncScriptedEngine([]), store=store)  # type: ignore[arg-type]
        on_loop = AsyncStore(store)
        with pytest.raises(ConfigurationError, match="The store is async, but this client is not"):
            ChatClient(ScriptedEngine([]), store=on_loop)  # type: ignore[arg-type]
        on_loop._threads.shutdown()


# --- ids -------------------------------------------------------------------------------------------------------------


def test_a_branch_has_no_id_until_it_is_saved(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "talks.db") as store, ChatClient(ScriptedEngine(["One."]), store=store) as client:
        client.chat("a")
        with client.fork() as branch:
            assert branch.id is None
            saved = branch.save()
            assert branch.id == saved.id != client.id
            assert saved.forked_from == store.latest(client.id or "").id


def test_a_reply_interrupted_by_a_crash_can_be_continued(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "talks.db") as store:
        dying = FailingStore(store, 2, dies=True)
        client = ChatClient(ScriptedEngine([Message.assistant("I delete.", call("d", "delete"))], piece=4), store=dying)
        with suppress(Died):
            for event in client.stream_chat("Delete."):
                if type(event).__name__ == "ToolCallEnded":
                    client.cancel()
        client.close()
        with ChatClient(ScriptedEngine(["Fine."]), store=store) as other:
            other.restore(store.list().items[0].id)
            assert other.history[1].interrupted
            assert other.conversation.is_valid
            assert other.pending == ()
            assert str(other.chat("Go on.")) == "Fine."


def _dies_in_a_tool(store: ConversationStore, tools: Tools, *calls: ToolCall) -> str:
    """The id of a conversation of a program that died while its first tool ran."""
    dying = FailingStore(store, 3, dies=True)  # saved, the reply and the beginning recorded; then the result
    one_by_one = ToolConfig(max_parallel_tools=1)
    client = ChatClient(ScriptedEngine([Message.assistant(*calls)]), tools.all(), store=dying, tool_config=one_by_one)
    with pytest.raises(Died):
        client.chat("Go.")
    client.close()
    return store.list().items[0].id


def test_an_uncertain_call_waits_for_an_answer_or_a_prompt(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "talks.db") as store:
        tools = Tools()
        id = _dies_in_a_tool(store, tools, call("a"))
        again = Message.assistant(call("a"))  # the model tries the very same, under the same id
        with ChatClient(ScriptedEngine([again, "Done."]), tools.all(), store=store) as client:
            client.restore(id)
            assert client.pending == client.uncertain != ()
            assert client.resume().pending == client.uncertain  # no answer, nothing happens
            assert tools.ran["a"] == 1
            assert client.chat("Try again.").text == "Done."
            assert client.uncertain == ()
            assert tools.ran["a"] == 2
            assert client.conversation.is_valid


@pytest.mark.parametrize("how", ["resume", "save", "fail", "fork", "beside another call"])
def test_uncertain_calls_stay_uncertain_for_the_next_program(store: ConversationStore, how: str) -> None:
    tools = Tools()
    beside = how == "beside another call"
    calls = [call("a"), call("d", "delete"), call("n")] if beside else [call("a")]
    id = _dies_in_a_tool(store, tools, *calls)
    for _ in range(3):  # one program after the other looks at it and leaves it as it is
        with ChatClient(ScriptedEngine([OverloadedError("busy")]), tools.all(), store=store) as other:
            other.restore(id)
            assert [each.call.id for each in other.uncertain] == ["a"]
            if how == "save":
                other.save()
            elif how == "fail":
                with pytest.raises(OverloadedError):
                    other.chat("Forget it.")
            elif how == "fork":
                with other.fork() as branch:
                    id = branch.save().id
            else:
                answers = [approve(each.call) for each in other.pending if each.call.id == "d"]
                other.resume(*answers)
    assert tools.ran == ({"a": 1, "d": 1, "n": 1} if beside else {"a": 1})
    with ChatClient(ScriptedEngine(["Done."]), tools.all(), store=store) as last:
        last.restore(id)
        assert last.resume(*[approve(each.call) for each in last.uncertain]).text == "Done."
        assert last.conversation.is_valid
        assert resume(store, last.id or "").conversation == last.conversation
        assert last.uncertain == ()
    assert tools.ran["a"] == 2


# --- an id that was chosen -------------------------------------------------------------------------------------------

CHOSEN = conversation_id("telegram:42")


def _ledger(store: ConversationStore, model: str = "m") -> Ledger:
    return Ledger(lambda: ("p", model, ()), id=CHOSEN, store=BlockingStore(store))


def test_another_client_with_the_same_id_is_noticed() -> None:
    """Also not where nobody knows whether the first save was carried out."""
    said = Conversation().plus(Message.user("Hi."))
    for interrupted in (False, True):
        with MemoryStore() as store:
            other, mine = _ledger(store, "another"), _ledger(store)
            step(other.write(other.step, said))
            mine.place = Place(doubt=mine.step(said) if interrupted else None)
            with pytest.raises(StoreConflictError, match=CHOSEN):
                step(mine.write(mine.step, said))
            assert store.latest(CHOSEN).model == "another"
