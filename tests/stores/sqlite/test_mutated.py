"""Damaged databases: what comes out is what was written, or a typed error."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from dragoman.conversation import Message
from dragoman.errors import DragomanError
from dragoman.stores.journal import MessageAdded
from dragoman.stores.sealing import AesGcmSealing, Sealing
from dragoman.stores.snapshot import Snapshot
from dragoman.stores.sqlite import SqliteStore, database
from tests.rounds import rounds
from tests.stores.contract import after, chain

STEPS = [MessageAdded(Message.user("a step"))]
DAMAGES = rounds(500)
"""For each of two ways to do damage, sealed and not."""


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not what is tested here, and takes most of the time."""
    monkeypatch.setattr(database, "_SETTINGS", (*database._SETTINGS, "PRAGMA synchronous = OFF"))


def made(path: Path, sealing: Sealing | None) -> list[Snapshot]:
    with SqliteStore(path, sealing=sealing) as store:
        points = chain(store, 3, said="the weather in Lyon") + chain(store, 1)
        cut = points[2].next(points[2].conversation.up_to(1))
        store.save(cut)
        store.record(cut.id, STEPS, after=0)
        return [*points, cut]


def use(path: Path, points: list[Snapshot], sealing: Sealing | None) -> int:
    """Try everything; the number of errors, which are ours."""
    failed = 0
    with SqliteStore(path, sealing=sealing, timeout=0.1) as store:

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
        page = ask(store.list)
        failed += len(page.unreadable) if page else 0
        ask(lambda: store.list(text="weather", provider="openai"))
        ask(lambda: store.history(points[0].id))
        if store.can_search:
            ask(lambda: store.search("weather"))
            ask(lambda: store.search("in"))
        newest = ask(lambda: store.latest(points[0].id))
        journal = ask(lambda: store.journal(points[0].id))
        ask(lambda: store.record(points[-1].id, STEPS, after=1))
        if isinstance(newest, Snapshot) and journal is not None:
            ask(lambda: store.save(after(newest, "on"), after=2))
        ask(store.reseal)
        ask(lambda: store.delete(points[3].id))
    return failed


def other_bytes(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice([1, 1, 3, 40])):
        at = draw.randrange(len(data))
        match draw.randrange(4):
            case 0:
                data[at] ^= 1 << draw.randrange(8)
            case 1:
                data[at : at + 8] = draw.randbytes(8)
            case 2:
                page = at // 4096 * 4096
                data[page : page + 4096] = bytes(4096)
            case _:
                del data[max(100, at) :]
                break
    path.write_bytes(data)


def other_values(path: Path, draw: random.Random) -> None:
    connection = sqlite3.connect(path)
    tables = {
        "chain": ["key", "root", "newest", "rank", "provider"],
        "snapshot": ["id", "chain", "place", "generation", "summary", "body"],
        "generation": ["chain", "number", "base", "shared"],
        "message": ["key", "chain", "generation", "position", "body"],
        "journal": ["chain", "position", "body"],
        "setting": ["name", "value"],
    }
    table = draw.choice(list(tables))
    column = draw.choice(tables[table])
    values = [None, 0, 1, -1, 2**62, 1.5, "", "x", "\x00", b"", b"\xff\xfe", b"{}", draw.randbytes(20)]
    with suppress(sqlite3.Error), connection:
        if draw.random() < 0.15:
            connection.execute(f"DELETE FROM {table} ORDER BY random() LIMIT 1")
        elif draw.random() < 0.3:
            connection.execute(f"UPDATE {table} SET {column} = substr({column}, 1, length({column}) / 2)")
        elif draw.random() < 0.3:
            connection.execute(f"UPDATE {table} SET {column} = CAST(x'c328' AS TEXT) WHERE random() % 2")
        else:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE random() % 2", (draw.choice(values),))
    connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("damage", [other_bytes, other_values])
@pytest.mark.parametrize("sealing", [None, AesGcmSealing(bytes(range(32)))], ids=["open", "sealed"])
def test_damage_is_a_typed_error(
    tmp_path: Path, damage: Callable[[Path, random.Random], None], sealing: Sealing | None
) -> None:
    whole = tmp_path / "whole.db"
    points = made(whole, sealing)
    assert use_copy(whole, tmp_path, points, sealing, lambda path, draw: None, 0) == 0
    failed = [use_copy(whole, tmp_path, points, sealing, damage, seed) for seed in range(DAMAGES)]
    assert sum(map(bool, failed)) > DAMAGES // 10  # the damage is real


def use_copy(
    whole: Path,
    place: Path,
    points: list[Snapshot],
    sealing: Sealing | None,
    damage: Callable[[Path, random.Random], None],
    seed: int,
) -> int:
    path = place / "damaged.db"
    for part in place.glob("damaged.db*"):
        part.unlink()
    path.write_bytes(whole.read_bytes())
    damage(path, random.Random(seed))
    return use(path, points, sealing)
