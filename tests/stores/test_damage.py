"""Damaged stores return what was written, or raise a typed error."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from dragoman.conversation import Conversation, Message
from dragoman.errors import DragomanError, SnapshotCorruptError
from dragoman.stores import ConversationStore, MessageAdded, Snapshot, SqliteStore
from tests.rounds import rounds
from tests.stores.backends import SEALED, SHARED, hurry
from tests.stores.cases import after, chain

STEPS = [MessageAdded(Message.user("a step"))]
DAMAGES = rounds(300)
"""For each kind of damage."""

Harm = Callable[[Path, random.Random], None]


def fill(store: ConversationStore) -> list[Snapshot]:
    points = chain(store, 3, said="the weather in Lyon") + chain(store, 1)
    cut = points[2].next(points[2].conversation.up_to(1).plus(Message.user("another way")))
    store.save(cut)
    store.record(cut.id, STEPS, after=0)
    return [*points, cut]


def use(store: ConversationStore, points: list[Snapshot]) -> int:
    """Try everything, and return the number of typed errors."""
    failed = 0

    def ask(work: Callable[[], object]) -> object:
        nonlocal failed
        try:
            return work()
        except DragomanError:
            failed += 1
            return None

    for point in points:
        loaded = ask(lambda point=point: store.load(point.id))
        assert loaded is None or loaded == point
    for listed in (store.list, lambda: store.history(points[0].id)):
        page = ask(listed)
        failed += len(page.unreadable) if page else 0  # type: ignore[attr-defined]
    ask(lambda: store.list(text="weather", provider="openai", limit=1))
    if store.can_search:
        ask(lambda: store.search("weather"))
        ask(lambda: store.search("in"))
    newest = ask(lambda: store.latest(points[0].id))
    journal = ask(lambda: store.journal(points[0].id))
    assert journal is None or journal.entries == tuple(STEPS)  # type: ignore[attr-defined]
    ask(lambda: store.record(points[-1].id, STEPS, after=1))
    if isinstance(newest, Snapshot) and journal is not None:
        longer = after(newest, "on")
        if ask(lambda: (store.save(longer, after=2), True)):
            assert store.load(longer.id) == longer  # what is acknowledged is there, whatever the damage
    ask(lambda: store.delete(points[3].id))
    return failed


def check_damage(
    points: list[Snapshot], opened: Callable[[], ConversationStore], damage: Callable[[random.Random | None], None]
) -> None:
    """Damage a store again and again, and use it; every error must be a typed one."""
    broken = 0
    for seed in range(-1, DAMAGES):
        damage(random.Random(seed) if seed >= 0 else None)
        with opened() as store:
            failed = use(store, points)
        assert seed >= 0 or failed == 0
        broken += bool(failed)
    assert broken > DAMAGES // 10  # the damage is real


# --- bytes of files --------------------------------------------------------------------------------------------------


def other_bytes(path: Path, draw: random.Random) -> None:
    """Change one file."""
    files = sorted(each for each in path.rglob("*") if each.is_file() and each.stat().st_size)
    file = draw.choice(files)
    data = bytearray(file.read_bytes())
    for _ in range(draw.choice([1, 1, 3, 40])):
        at = draw.randrange(len(data) + 1)
        match draw.randrange(7):
            case 0 if data:
                data[at % len(data)] ^= 1 << draw.randrange(8)
            case 1:
                data[at : at + 8] = draw.randbytes(8)
            case 2:
                del data[max(100, at) :]
            case 3:
                data[at:at] = draw.randbytes(draw.randrange(1, 40))
            case 4:
                page = at // 4096 * 4096
                data[page : page + 4096] = bytes(4096)
            case 5:
                data[at : at + 64] = bytes(64)
            case _:
                other = draw.choice(files).read_bytes()
                data[:] = other if draw.random() < 0.5 else data[:at] + other[at:]
    if draw.random() < 0.1 and len(files) > 1:
        file.unlink()
    else:
        file.write_bytes(data)


# --- values in tables ------------------------------------------------------------------------------------------------

TABLES = {
    "chain": {"root": "text", "newest": "text", "place": "bigint", "position": "bigint", "rank": "bigint"},
    "snapshot": {
        "id": "text", "root": "text", "place": "bigint", "line": "bigint", "length": "bigint", "body": "bytea",
    },
    "message": {"root": "text", "line": "bigint", "position": "bigint", "body": "bytea"},
    "journal": {"root": "text", "position": "bigint", "body": "bytea"},
    "words": {"root": "text", "text": "bytea"},
    "setting": {"name": "text", "value": "text"},
}  # fmt: skip
VALUES: dict[str, list[object]] = {
    "text": ["", "x", "mode", "sealed", "open", "018f3c5e-7a10-7cc3-98c4-dc0c0c07398f"],
    "bigint": [0, -1, 1, 7, 2**62, -(2**63), None],
    "bytea": [b"", b"{}", b"[]", b"null", b"\xff\x00", b'{"count":1}', b"\xd7DGS", b"\xd7DGS\x01" + bytes(60)],
}
ODD = [None, 1.5, "", "\x00", b"\xff\xfe", 2**62]
"""Values that SQLite allows in any column."""


def change_of(draw: random.Random, odd: list[object]) -> tuple[str, tuple[object, ...]]:
    """A random statement that damages some rows of one table."""
    table = draw.choice(["snapshot", "message", *TABLES])
    column, kind = draw.choice(list(TABLES[table].items()))
    some = "WHERE random() < 0.5" if not odd else "WHERE random() > 0"
    match draw.randrange(5):
        case 0:
            return f"DELETE FROM {{s}}{table} {some}", ()
        case 1 if kind == "bytea":
            return f"UPDATE {{s}}{table} SET {column} = substr({column}, 1, length({column}) / 2) {some}", ()
        case 2:
            other = f"(SELECT {column} FROM {{s}}{table} ORDER BY random() LIMIT 1)"
            return f"UPDATE {{s}}{table} SET {column} = {other} {some}", ()
        case _:
            return f"UPDATE {{s}}{table} SET {column} = {{v}} {some}", (draw.choice(VALUES[kind] + odd),)


def other_values(path: Path, draw: random.Random) -> None:
    connection = sqlite3.connect(path / "store.db")
    for _ in range(100):  # until a row was changed
        sql, values = change_of(draw, ODD)
        with suppress(sqlite3.Error), connection:
            if connection.execute(sql.format(s="", v="?"), values).rowcount:
                break
    connection.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "harm", "options"),
    [
        ("file", other_bytes, {}),
        ("file", other_bytes, SEALED),
        ("sqlite", other_bytes, {}),
        ("sqlite", other_bytes, SEALED),
        ("sqlite", other_values, {}),
        ("sqlite", other_values, SEALED),
    ],
)
def test_damaged_files(
    backend: str, harm: Harm, options: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    monkeypatch.setattr("os.fsync", lambda _fd: None)
    with SHARED[backend].open(tmp_path / "whole", **options) as store:
        points = fill(store)

    def damage(draw: random.Random | None) -> None:
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(tmp_path / "whole", tmp_path / "copy")
        if draw is not None:
            harm(tmp_path / "copy", draw)

    check_damage(points, lambda: SHARED[backend].open(tmp_path / "copy", timeout=0.1, **options), damage)


def test_a_snapshot_that_was_moved_to_another_conversation_is_noticed(tmp_path: Path) -> None:
    first, other = [Snapshot.first(Conversation().plus(Message.user(said)), provider="p", model="m") for said in "ab"]
    with SqliteStore(tmp_path / "store.db") as store:
        store.save(first)
        store.save(first.next(first.conversation.plus(Message.assistant("x"))))
        store.save(other)
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("UPDATE snapshot SET root = ?, place = 99 WHERE id = ?", (other.id, first.id))
    connection.close()
    with SqliteStore(tmp_path / "store.db") as store, pytest.raises(SnapshotCorruptError):
        store.journal(first.id)


@pytest.mark.slow
def test_damaged_values_in_postgres(tmp_path: Path) -> None:
    backend = SHARED["postgres"]
    with backend.around(tmp_path):
        with backend.open(tmp_path, **SEALED) as store:
            points = fill(store)
        conninfo, schema = (tmp_path / "address").read_text(encoding="utf-8").splitlines()
        with psycopg.connect(conninfo, autocommit=True) as connection:
            for index in ("chain_by_rank", "snapshot_by_place"):  # which would prevent some damage
                connection.execute(f"DROP INDEX {schema}.{index}".encode())
            anew = ["BEGIN"]
            for table in (f"{schema}.{table}" for table in TABLES):
                connection.execute(f"CREATE TABLE {table}_kept AS TABLE {table}".encode())
                anew.append(f"DELETE FROM {table}; INSERT INTO {table} TABLE {table}_kept")

            def damage(draw: random.Random | None) -> None:
                connection.execute("; ".join([*anew, "COMMIT"]).encode())
                for _ in range(0 if draw is None else 100):  # until a row was changed
                    sql, values = change_of(draw, [])
                    with suppress(psycopg.Error):
                        if connection.execute(sql.format(s=f"{schema}.", v="%s").encode(), values or None).rowcount:
                            return

            check_damage(points, lambda: backend.open(tmp_path, timeout=5, **SEALED), damage)
