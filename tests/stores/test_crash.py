"""Killed at random points; see crash.py for the whole number of kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.conversation import Conversation
from dragoman.errors import SnapshotNotFoundError
from dragoman.stores import Snapshot
from dragoman.stores.snapshot import new_id
from tests.stores.backends import SHARED
from tests.stores.crash import Told, check, kill_many


@pytest.mark.slow
@pytest.mark.parametrize("backend", SHARED)
def test_nothing_acknowledged_is_lost(backend: str, tmp_path: Path) -> None:
    assert kill_many(backend, tmp_path, 25) > 0


@pytest.mark.parametrize("backend", SHARED)
def test_the_check_can_fail(backend: str, tmp_path: Path) -> None:
    snapshot = Snapshot.first(Conversation(), provider="p", model="m")
    right = Told({snapshot.id: 0}, {snapshot.id: 0}, set())
    with SHARED[backend].around(tmp_path):
        with SHARED[backend].open(tmp_path) as store:
            store.save(snapshot)
        check(backend, tmp_path, right)
        for wrong in (
            Told({new_id(): 1}, {}, set()),
            Told({snapshot.id: 1}, {}, set()),
            Told({}, {snapshot.id: 1}, set()),
        ):
            with pytest.raises((AssertionError, SnapshotNotFoundError)):
                check(backend, tmp_path, wrong)
