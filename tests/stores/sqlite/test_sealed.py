"""Sealed files: what can be seen without the key, what happens to records that were moved, and sealing again."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from dragoman.conversation import Conversation, Message, ToolSpec
from dragoman.errors import ConfigurationError, SnapshotCorruptError, SnapshotError, SnapshotSealError, StoreError
from dragoman.stores.journal import MessageAdded
from dragoman.stores.sealing import AesGcmSealing
from dragoman.stores.snapshot import Snapshot
from dragoman.stores.sqlite import SqliteStore
from tests.stores.contract import after, chain, first

OLD, NEW = bytes(range(32)), bytes(range(1, 33))
SECRET = "xyzzyplugh"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def talk(store: SqliteStore) -> list[Snapshot]:
    """A conversation with the secret in every place that holds text."""
    said = Conversation(f"system {SECRET}", metadata={SECRET: SECRET}).plus(Message.user(f"user {SECRET}"))
    tool = ToolSpec(name=SECRET, description=SECRET)
    points = [Snapshot.first(said, provider=f"provider-{SECRET}", model=f"model-{SECRET}", tools=[tool])]
    store.save(points[0])
    points.append(after(points[0], f"more {SECRET}"))
    store.save(points[1])
    store.record(points[1].id, [MessageAdded(Message.user(f"journal {SECRET}"))], after=0)
    return points


def everything(path: Path) -> bytes:
    return b"".join([part.read_bytes() for part in sorted(path.parent.glob(path.name + "*"))])


def test_without_the_key_nothing_can_be_read(path: Path) -> None:
    with SqliteStore(path, sealing=AesGcmSealing(OLD)) as store:
        points = talk(store)
        assert store.load(points[1].id) == points[1]
        assert store.list(text=SECRET[:5]).items[0].id == points[1].id
        assert not store.list(provider="other").items
    assert SECRET.encode() not in everything(path)
    with SqliteStore(path) as blind:
        for ask in (
            lambda: blind.load(points[0].id),
            lambda: blind.latest(points[0].id),
            lambda: blind.journal(points[0].id),
            lambda: blind.history(points[0].id),
            blind.list,
            lambda: blind.search("x"),
            lambda: blind.save(first("x")),
            lambda: blind.save(after(points[1], "x"), after=1),
            lambda: blind.record(points[1].id, [], after=1),
            blind.reseal,
        ):
            with pytest.raises(SnapshotSealError):
                ask()
    assert b"first" not in everything(path)


def test_plain_lists_show_summaries_and_nothing_else(path: Path) -> None:
    with SqliteStore(path, sealing=AesGcmSealing(OLD), listing="plain") as store:
        points = talk(store)
    assert b"user " + SECRET.encode() in everything(path)  # the title
    for hidden in (b"more ", b"system ", b"journal "):
        assert hidden + SECRET.encode() not in everything(path)
    with SqliteStore(path) as blind:
        assert [item.id for item in blind.list(provider=f"provider-{SECRET}").items] == [points[1].id]
        assert len(blind.history(points[0].id).items) == 2
        with pytest.raises(SnapshotSealError):
            blind.load(points[0].id)


def test_the_wrong_key(path: Path) -> None:
    with SqliteStore(path, sealing=AesGcmSealing(OLD)) as store:
        points = talk(store)
    with SqliteStore(path, sealing=AesGcmSealing(NEW)) as store:
        with pytest.raises(SnapshotSealError):
            store.load(points[0].id)
        with pytest.raises(SnapshotSealError):
            store.save(after(points[1], "x"), after=1)
        page = store.list()
        assert (page.items, [each.id for each in page.unreadable]) == ((), [points[1].id])


def test_modes_do_not_mix(path: Path) -> None:
    with SqliteStore(path) as store:
        [one] = chain(store, 1)
    with SqliteStore(path, sealing=AesGcmSealing(OLD)) as store:
        with pytest.raises(ConfigurationError, match="not sealed"):
            store.save(first("x"))
        with pytest.raises(SnapshotError):
            store.load(one.id)
    other = path.with_name("other.db")
    with SqliteStore(other, sealing=AesGcmSealing(OLD)) as store:
        chain(store, 1)
    wrong = SqliteStore(other, sealing=AesGcmSealing(OLD), listing="plain")
    with wrong, pytest.raises(ConfigurationError, match="listing='sealed'"):
        wrong.save(first("x"))


def test_a_sealed_store_is_not_searched(path: Path) -> None:
    with SqliteStore(path, sealing=AesGcmSealing(OLD)) as store:
        assert not store.can_search
        with pytest.raises(StoreError, match="cannot be searched"):
            store.search("x")


MOVED = """
    UPDATE snapshot SET id = 'x' || id WHERE rowid = 1;
    UPDATE snapshot SET id = (SELECT substr(id, 2) FROM snapshot WHERE rowid = 1) WHERE rowid = 3;
    UPDATE snapshot SET chain = 1, place = 9 WHERE rowid = 3;
"""


@pytest.mark.parametrize(
    "swap",
    [
        "UPDATE message SET body = (SELECT body FROM message ORDER BY key DESC LIMIT 1)",
        "UPDATE snapshot SET body = (SELECT body FROM snapshot ORDER BY rowid DESC LIMIT 1)",
        MOVED,
        "UPDATE message SET position = position + 10; UPDATE message SET position = 11 - position",
    ],
)
def test_records_that_were_moved_are_not_taken(path: Path, swap: str) -> None:
    with SqliteStore(path, sealing=AesGcmSealing(OLD)) as store:
        one = chain(store, 2)
        chain(store, 2, said="another")
    connection = sqlite3.connect(path)
    connection.executescript(swap)
    connection.close()
    with SqliteStore(path, sealing=AesGcmSealing(OLD)) as store:
        assert True in [refused(store, point) for point in one]


def refused(store: SqliteStore, point: Snapshot) -> bool:
    """Whether the store refuses to load it; what it does not refuse must be right."""
    try:
        assert store.load(point.id) == point
    except SnapshotCorruptError:
        return True
    return False


def test_entries_of_another_time_are_not_taken(path: Path) -> None:
    with SqliteStore(path, sealing=AesGcmSealing(OLD)) as store:
        [one] = chain(store, 1)
        store.record(one.id, [MessageAdded(Message.user("pay 5"))], after=0)
        [old] = store._database.read(lambda connection: connection.execute("SELECT body FROM journal").fetchone())
        two = after(one, "pay 5")
        store.save(two, after=1)
        store._database.write(lambda connection: connection.execute("INSERT INTO journal VALUES (1, 1, ?)", (old,)))
        with pytest.raises(SnapshotCorruptError):
            store.journal(two.id)


# --- again -----------------------------------------------------------------------------------------------------------


def all_of(store: SqliteStore, points: list[Snapshot]) -> None:
    for point in points:
        assert store.load(point.id) == point
    assert store.journal(points[0].id).position == 1
    assert points[-1].id in [item.id for item in store.list().items]


def resealed(store: SqliteStore, limit: int) -> tuple[int, ...]:
    steps = []
    cursor = None
    for _ in range(100):
        step = store.reseal(limit=limit, cursor=cursor)
        assert not step.unreadable
        steps.append(step.done)
        cursor = step.cursor
        if cursor is None:
            break
    return tuple(steps)


def test_a_new_key(path: Path) -> None:
    with SqliteStore(path, sealing=AesGcmSealing(OLD)) as store:
        points = talk(store)
        others = [chain(store, 2) for _ in range(4)]
    with SqliteStore(path, sealing=AesGcmSealing(NEW, older=[OLD])) as store:
        store.save(after(others[0][-1], "under both keys"))
        step = store.reseal(limit=2)
        assert (step.done, step.total) == (2, 5)
        assert step.cursor is not None
        all_of(store, points)  # in the middle of it
        assert resealed(store, 2) == (2, 2, 1)
    with SqliteStore(path, sealing=AesGcmSealing(NEW)) as store:
        all_of(store, points)
        for other in others:
            assert [store.load(each.id) for each in other] == other
    with SqliteStore(path, sealing=AesGcmSealing(OLD)) as store, pytest.raises(SnapshotSealError):
        store.load(points[0].id)


def test_records_without_a_key_are_named_and_left(path: Path) -> None:
    with SqliteStore(path, sealing=AesGcmSealing(OLD)) as store:
        points = talk(store)
    with SqliteStore(path, sealing=AesGcmSealing(NEW)) as store:
        assert store.reseal().unreadable == (points[0].root,)
    with SqliteStore(path, sealing=AesGcmSealing(OLD)) as store:
        all_of(store, points)


def test_sealing_a_store_that_was_not(path: Path) -> None:
    with SqliteStore(path) as store:
        points = talk(store)
        later = chain(store, 1)
    sealing = AesGcmSealing(OLD, accept_plain=True)
    with SqliteStore(path, sealing=sealing) as store:
        assert resealed(store, 1) == (1, 1)
        store.compact()
    assert SECRET.encode() not in everything(path)
    assert SECRET[:3].encode() not in everything(path)
    with SqliteStore(path, sealing=AesGcmSealing(OLD)) as store:
        all_of(store, points)
        assert [item.id for item in store.list().items] == [points[1].id, later[0].id]


def test_showing_and_hiding_lists(path: Path) -> None:
    with SqliteStore(path, sealing=AesGcmSealing(OLD)) as store:
        points = talk(store)
    with SqliteStore(path, sealing=AesGcmSealing(OLD), listing="plain") as store:
        resealed(store, 10)
    with SqliteStore(path) as blind:
        assert [item.id for item in blind.list(provider=f"provider-{SECRET}", since=points[1].created_at).items] == [
            points[1].id
        ]
    with SqliteStore(path, sealing=AesGcmSealing(OLD, accept_plain=True)) as store:
        resealed(store, 10)
        store.compact()
        all_of(store, points)
    assert SECRET.encode() not in everything(path)
