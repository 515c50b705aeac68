"""The rules of protocol.py, checked on every store: sync and async, open and sealed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from msgspec import Raw, structs

from dragoman.conversation import Conversation, Media, Message, Opaque, Text, Thinking, ToolCall, ToolSpec, Usage
from dragoman.errors import (
    ConversationError,
    InvalidCursorError,
    InvalidSnapshotIDError,
    SnapshotNotFoundError,
    StoreConflictError,
    StoreError,
)
from dragoman.stores import (
    ConversationStore,
    JournalEntry,
    MessageAdded,
    Page,
    Snapshot,
    ToolCallBegun,
    ToolCallDone,
    resume,
)
from dragoman.stores.listing import summary_of
from dragoman.stores.snapshot import inner_id, new_id
from tests.rounds import rounds
from tests.stores.backends import BACKENDS
from tests.stores.cases import CALL, HOSTILE_IDS, NOON, RESULT, TOOL, Opener, after, chain, first, pages
from tests.strategies import conversations


@pytest.fixture(params=BACKENDS)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens the same store each time, as another process would."""
    backend = BACKENDS[request.param]
    with backend.around(tmp_path):
        yield lambda: backend.open(tmp_path)


@pytest.fixture
def store(opener: Opener) -> Iterator[ConversationStore]:
    with opener() as store:
        yield store


# --- saving, loading, deleting ---------------------------------------------------------------------------------------


def test_a_saved_snapshot_can_be_loaded(store: ConversationStore, opener: Opener) -> None:
    odd = "a\0b \\x41 \\000 'quoted' $1 %s {s} \u202e \U0001f600 \uffff"
    media = Media(kind="image", mime_type="image/png", path="/no/such/file.png")  # reading it would fail
    said = Conversation(odd, metadata={odd: odd, "user": 7, "tags": ["a"]}).plus(
        Message.user(odd, media),
        Message.assistant(Thinking("hm", "anthropic", signature="s"), CALL),
        Message.tool([RESULT]),
        Message.assistant(Opaque("gemini", Raw(b'{"x":  1.50}')), "21 degrees."),
    )
    snapshot = Snapshot.first(said, provider=odd, model=odd, title=odd, tools=[TOOL])
    store.save(snapshot)
    store.record(snapshot.id, [MessageAdded(said.messages[0])], after=0)
    assert store.load(snapshot.id) == snapshot
    with opener() as another:
        loaded = another.load(snapshot.id)
        assert resume(another, snapshot.id).conversation == said.plus(said.messages[0])
    assert loaded == snapshot
    assert bytes(loaded.tools[0].parameters) == bytes(TOOL.parameters)
    assert loaded.messages[3].blocks[0] == Opaque("gemini", Raw(b'{"x":  1.50}'))
    assert loaded.created_at == snapshot.created_at
    assert [item.title for item in store.list(provider=odd, text="A\0B").items] == [odd]
    assert store.list(provider="\ud800").items == store.list(text="\ud800").items == ()
    assert not store.can_search or [item.id for item in store.search("QUOTED 😀 %s").items] == [snapshot.id]


def test_any_conversation_survives(tmp_path: Path) -> None:
    """One test for several stores: generating conversations takes longer than saving them."""
    with ExitStack() as stack:
        stores: list[ConversationStore] = []
        for name in ("file", "sqlite", "sqlite-sealed", "postgres"):
            place = tmp_path / name
            place.mkdir()
            stack.enter_context(BACKENDS[name].around(place))
            stores.append(stack.enter_context(BACKENDS[name].open(place)))

        @settings(max_examples=rounds(60))
        @given(before=conversations, later=conversations)
        def survives(before: Conversation, later: Conversation) -> None:
            one = Snapshot.first(before, provider="p", model="m")
            two = one.next(later)
            three = two.next(before.plus(*later.messages))
            for store in stores:
                for snapshot in (one, two, three):
                    store.save(snapshot)
                assert [store.load(each.id) for each in (one, two, three)] == [one, two, three]

        survives()


def test_every_snapshot_can_be_loaded_after_the_history_was_cut_or_replaced(store: ConversationStore) -> None:
    points = chain(store, 5)
    for next_said in (
        points[4].conversation.up_to(2),
        points[4].conversation.up_to(2).plus(Message.user("another way")),
        Conversation("New rules.", (Message.user("a summary"),)),
        Conversation("New rules.", (Message.user("a summary"), Message.user("and on"))),
        points[4].conversation,
    ):
        points.append(points[-1].next(next_said))
        store.save(points[-1])
    for point in points:
        assert store.load(point.id) == point
        assert store.latest(point.id) == points[-1]


def test_a_fork_is_a_separate_conversation(store: ConversationStore) -> None:
    points = chain(store, 3)
    fork = points[1].fork()
    store.save(fork)
    longer = after(fork, "elsewhere")
    store.save(longer)
    assert store.latest(fork.id) == longer
    assert store.latest(points[0].id) == points[2]
    assert store.load(longer.id).forked_from == points[1].id
    store.delete(points[0].id)
    assert store.load(fork.id) == fork
    assert store.load(longer.id) == longer


def test_saving_the_same_snapshot_again_does_nothing(store: ConversationStore) -> None:
    points = chain(store, 3)
    store.record(points[2].id, [MessageAdded(Message.user("x"))], after=0)
    for point in points:
        store.save(point)
    assert store.latest(points[0].id) == points[2]
    assert len(store.history(points[0].id).items) == 3
    assert store.journal(points[0].id).position == 1


def test_another_snapshot_under_a_taken_id_is_a_conflict(store: ConversationStore) -> None:
    one, two = chain(store, 2)
    other = one.conversation.plus(Message.user("other"))
    for changed in (
        Snapshot.first(other, provider="p", model="m", id=one.id),
        Snapshot.first(other, provider="p", model="m", id=two.id),
        structs.replace(one.next(other), id=two.id),
        structs.replace(two, title="other"),
    ):
        with pytest.raises(StoreConflictError):
            store.save(changed)
    assert store.load(one.id) == one
    assert store.load(two.id) == two


def test_only_the_newest_of_the_same_chain_can_be_followed(store: ConversationStore) -> None:
    one, two = chain(store, 2)
    [other] = chain(store, 1)
    for rival in (
        after(one, "something else"),
        after(first("not there"), "hi"),
        structs.replace(after(other, "odd"), root=one.id),
    ):
        with pytest.raises(StoreConflictError):
            store.save(rival)
        with pytest.raises(SnapshotNotFoundError):
            store.load(rival.id)
    assert (store.latest(one.id), store.latest(other.id)) == (two, other)


def test_data_that_is_not_json_is_refused_and_changes_nothing(store: ConversationStore) -> None:
    [one] = chain(store, 1)
    for odd in (
        one.next(Conversation("\ud800")),
        one.next(Conversation(metadata={"a": object()})),
        after(one, "fine", "\ud800"),
        structs.replace(first("x"), tools=(ToolSpec(name="\ud800"),)),
        *[structs.replace(first("x"), **{name: "\ud800"}) for name in ("provider", "title", "model")],
    ):
        with pytest.raises(ConversationError, match="cannot be written as JSON"):
            store.save(odd)
    assert store.latest(one.id) == one
    assert len(store.list().items) == 1


def test_inner_conversations_are_deleted_with_the_outer_one(store: ConversationStore) -> None:
    def saved(id: str) -> str:
        store.save(Snapshot.first(Conversation(), provider="scripted", model="one", id=id))
        return id

    mine, other = saved(new_id()), saved(new_id())
    part, of_other, alone = saved(inner_id(mine, "1")), saved(inner_id(other, "1")), saved(inner_id(mine, "2"))
    saved(inner_id(part, "1"))
    store.delete(alone)
    assert len(store.list().items) == 5
    store.delete(mine)
    assert {each.root for each in store.list().items} == {other, of_other}


def test_a_deleted_conversation_is_gone(store: ConversationStore) -> None:
    points = chain(store, 3)
    [kept] = chain(store, 1)
    store.record(points[2].id, [MessageAdded(Message.user("x"))], after=0)
    store.delete(points[1].id)
    for point in points:
        for ask in (store.load, store.latest, store.history, store.journal, store.delete):
            with pytest.raises(SnapshotNotFoundError):
                ask(point.id)
    with pytest.raises(StoreConflictError):
        store.save(after(points[2], "too late"))
    assert [item.id for item in store.list().items] == [kept.id]
    store.save(points[0])  # and its id may be used again
    assert store.journal(points[0].id).position == 0


def test_a_long_history_and_large_messages(store: ConversationStore) -> None:
    snapshot = first(*[f"message {number}" for number in range(300)], "x" * 3_000_000)
    store.save(snapshot)
    longer = after(snapshot, "y" * 1_000_000)
    store.save(longer)
    assert store.load(snapshot.id) == snapshot
    assert store.latest(snapshot.id) == longer


# --- ids, lists, histories and searches ------------------------------------------------------------------------------


def test_hostile_and_unknown_ids_are_refused(store: ConversationStore) -> None:
    asked = (store.load, store.latest, store.history, store.delete, store.journal)
    record = [MessageAdded(Message.user("x"))]
    assert store.list() == Page()
    for _ in range(2):  # on an empty store, then on one that was used
        for ask in (*asked, lambda id: store.record(id, record, after=0)):
            with pytest.raises(SnapshotNotFoundError):
                ask(new_id())
            for text in HOSTILE_IDS:
                with pytest.raises(InvalidSnapshotIDError):
                    ask(text)
        assert not store.list().items
        chain(store, 1)
        store.delete(store.list().items[0].id)
    assert not store.list().items


def test_a_list_shows_the_newest_of_each_conversation(store: ConversationStore) -> None:
    one = first("the first", at=NOON)
    two = first("the second", at=NOON + timedelta(minutes=1), provider="gemini")
    store.save(one)
    store.save(two)
    assert store.list().items == (summary_of(two), summary_of(one))
    later = after(one, "again", at=NOON + timedelta(minutes=2))
    store.save(later)
    assert store.list().items == (summary_of(later), summary_of(two))
    assert store.list().items[0].message_count == 2
    assert store.list().items[0].title == "the first"


@pytest.mark.parametrize(("model", "cost"), [("gpt-5", 11.25), ("nobody", None)])
def test_lists_and_searches_show_the_cost(store: ConversationStore, model: str, cost: float | None) -> None:
    usage = Usage(input=1_000_000, output=1_000_000)
    asked = first("what does it cost", at=NOON)
    store.save(asked)
    said = Message(role="assistant", blocks=(Text("this"),), provider="openai", model=model, usage=usage)
    answered = asked.next(asked.conversation.plus(said))
    store.save(answered)
    store.save(answered)  # the same one
    assert [each.cost for each in store.list().items] == [cost]
    assert [each.cost for each in store.history(asked.id).items] == [cost, 0.0]
    if store.can_search:
        assert [each.cost for each in store.search("cost").items] == [cost]


def test_pages_contain_everything_once(store: ConversationStore) -> None:
    # Five in each minute: the order must not depend on times alone.
    saved = [first(f"{n}", at=NOON + timedelta(minutes=n // 5)) for n in range(23)]
    for snapshot in saved:
        store.save(snapshot)
    for limit in (1, 4, 23, 100):
        found = pages(lambda cursor, limit=limit: store.list(limit=limit, cursor=cursor))
        assert [item.created_at for item in found] == sorted([s.created_at for s in saved], reverse=True)
        assert {item.id for item in found} == {s.id for s in saved}
        assert len(found) == 23


def test_filters(store: ConversationStore) -> None:
    def titles(**which: object) -> list[str]:
        return [item.title.removeprefix("Größe ") for item in store.list(**which).items]

    for number in range(12):
        provider = "gemini" if number % 3 else "openai"
        store.save(first(f"Größe {number}", provider=provider, at=NOON + timedelta(hours=number)))
    for which, expected in (
        ({"provider": "openai"}, ["9", "6", "3", "0"]),
        ({"provider": "open"}, []),
        ({"text": "größe 1"}, ["11", "10", "1"]),
        ({"text": "GRÖßE 1", "provider": "gemini"}, ["11", "10", "1"]),
        ({"text": "100%"}, []),
        ({"text": "_"}, []),
    ):
        assert titles(**which) == expected, which
    assert len(pages(lambda cursor: store.list(text="größe", provider="gemini", limit=3, cursor=cursor))) == 8


def test_histories_have_pages(store: ConversationStore) -> None:
    points = chain(store, 11)
    chain(store, 2)
    expected = [summary_of(point) for point in reversed(points)]
    assert list(store.history(points[4].id).items) == expected
    for limit in (1, 3, 11):
        found = pages(lambda cursor, limit=limit: store.history(points[0].id, limit=limit, cursor=cursor))
        assert found == expected


def test_invalid_limits_and_cursors_are_refused(store: ConversationStore) -> None:
    one, *_ = chain(store, 3)
    chain(store, 1)
    for limit in (0, -1, 100_000, True):
        for ask in (lambda n: store.list(limit=n), lambda n: store.history(one.id, limit=n)):
            with pytest.raises(InvalidCursorError):
                ask(limit)
    good, of_history = store.list(limit=1).cursor, store.history(one.id, limit=1).cursor
    assert good is not None
    assert of_history is not None
    for bad in ("", "x", good[:-4], "é", "\x00", good + "AAAA", of_history, "W10=", "x" * 5000):
        with pytest.raises(InvalidCursorError):
            store.list(cursor=bad)
    with pytest.raises(InvalidCursorError):
        store.history(one.id, cursor=good)
    with pytest.raises(InvalidCursorError):
        store.list(cursor=good, provider="openai")


def test_search(store: ConversationStore) -> None:
    if not store.can_search:
        with pytest.raises(StoreError):
            store.search("x")
        return
    weather = chain(store, 2, said="What is the weather in Lyon?")[-1]
    cooking = chain(store, 2, said='How do I cook "rice" for 20 people? 100% sure')[-1]
    chinese = chain(store, 1, said="今天天气怎么样")[-1]

    def found(text: str) -> set[str]:
        return {item.id for item in pages(lambda cursor: store.search(text, limit=1, cursor=cursor))}

    for words, expected in (
        ("weather", {weather.id}),
        ("WEATH lyon", {weather.id}),
        ("lyon rice", set()),
        ('"rice"', {cooking.id}),
        ("turn 1", {weather.id, cooking.id}),
        ("天气", {chinese.id}),
        ("20", {cooking.id}),
        ("100%", {cooking.id}),
        ("NOT weather", set()),
    ):
        assert found(words) == expected, words
    for odd in ('"', "*", "AND", "a OR b", "(", "\x00", "col:x", "-", "'; DROP TABLE x", "", "  ", "\ud800"):
        found(odd)
    store.delete(weather.id)
    assert found("weather") == set()


# --- the journal -----------------------------------------------------------------------------------------------------


def test_the_next_save_clears_the_journal(store: ConversationStore, opener: Opener) -> None:
    [one] = chain(store, 1)
    assert store.journal(one.id).entries == ()
    reply = Message.assistant(CALL)
    steps: list[JournalEntry] = [MessageAdded(reply), ToolCallBegun(CALL), ToolCallDone(RESULT)]
    assert store.record(one.id, steps[:1], after=0) == 1
    assert store.record(one.id, steps[1:], after=1) == 3
    with opener() as another:
        journal = another.journal(one.id)
    assert (journal.snapshot, journal.entries, journal.position) == (one.id, tuple(steps), 3)
    two = one.next(one.conversation.plus(reply, Message.tool([RESULT])))
    store.save(two, after=3)
    journal = store.journal(one.id)
    assert (journal.snapshot, journal.entries) == (two.id, ())
    assert store.record(two.id, steps[:1], after=0) == 1


def test_saving_without_knowing_all_entries_is_a_conflict(store: ConversationStore) -> None:
    [one] = chain(store, 1)
    store.record(one.id, [MessageAdded(Message.user("x"))] * 2, after=0)
    two = after(one, "x", "x")
    for seen in (0, 1, 3):
        with pytest.raises(StoreConflictError):
            store.save(two, after=seen)
    assert store.journal(one.id).position == 2
    store.save(two, after=2)
    with pytest.raises(StoreConflictError):
        store.save(after(two, "y"), after=1)


def test_recording_the_same_step_twice_is_a_conflict(store: ConversationStore) -> None:
    with pytest.raises(StoreConflictError):
        store.save(first("x"), after=1)  # a first snapshot covers no journal
    one, two = chain(store, 2)
    step = [ToolCallBegun(CALL)]
    assert store.record(two.id, step, after=0) == 1
    for id, position in ((two.id, 0), (two.id, 2), (two.id, -1), (one.id, 0), (one.id, 1)):
        with pytest.raises(StoreConflictError):
            store.record(id, step, after=position)
    assert (store.journal(one.id).snapshot, store.journal(one.id).entries) == (two.id, tuple(step))


def test_all_entries_are_written_or_none(store: ConversationStore) -> None:
    [one] = chain(store, 1)
    good, bad = MessageAdded(Message.user("x")), MessageAdded(Message.user("\ud800"))
    with pytest.raises(ConversationError):
        store.record(one.id, [good, bad], after=0)
    assert store.journal(one.id).entries == ()
    assert store.record(one.id, [], after=0) == 0
    with pytest.raises(StoreConflictError):
        store.record(one.id, [], after=1)


def test_resume_returns_the_conversation_with_its_journal(store: ConversationStore) -> None:
    points, [other] = chain(store, 2), chain(store, 1)
    pay = ToolCall("call_2", "pay", "{}")
    reply = Message.assistant(CALL, pay)
    steps: list[JournalEntry] = [MessageAdded(reply), ToolCallBegun(CALL), ToolCallBegun(pay), ToolCallDone(RESULT)]
    store.record(points[1].id, steps, after=0)
    store.record(other.id, steps[:1], after=0)
    store.delete(other.id)
    found = resume(store, points[0].id)
    assert found.snapshot == points[1]
    assert found.conversation == points[1].conversation.plus(reply)
    assert (found.done_results, found.uncertain_calls, found.position) == ((RESULT,), (pay,), 4)


# --- threads, rivals, and the end of a store -------------------------------------------------------------------------


def test_threads_share_a_store(store: ConversationStore) -> None:
    def talk(number: int) -> list[Snapshot]:
        return chain(store, 5, said=f"thread {number}")

    with ThreadPoolExecutor(6) as threads:
        chains = list(threads.map(talk, range(12)))
    assert len(pages(lambda cursor: store.list(limit=5, cursor=cursor))) == 12
    for points in chains:
        assert [store.load(point.id) for point in points] == points


def test_only_one_of_several_concurrent_saves_succeeds(store: ConversationStore, opener: Opener) -> None:
    [one] = chain(store, 1)
    rivals = [after(one, f"rival {number}") for number in range(6)]
    start = threading.Barrier(6)

    def compete(rival: Snapshot) -> bool:
        with opener() as mine:
            start.wait(30)
            try:
                mine.save(rival)
            except StoreConflictError:
                return False
            return True

    with ThreadPoolExecutor(6) as threads:
        won = list(threads.map(compete, rivals))
    assert won.count(True) == 1
    assert store.latest(one.id) == rivals[won.index(True)]
    assert len(store.history(one.id).items) == 2


def test_a_closed_store_raises(opener: Opener) -> None:
    store = opener()
    [one] = chain(store, 1)
    store.close()
    store.close()
    for ask in (
        lambda: store.save(after(one, "x")),
        lambda: store.load(one.id),
        store.list,
        lambda: store.journal(one.id),
        lambda: store.delete(one.id),
        lambda: store.record(one.id, [], after=0),
    ):
        with pytest.raises(StoreError):
            ask()
    with opener() as again:
        assert again.load(one.id) == one
