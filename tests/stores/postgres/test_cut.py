"""A connection that breaks while a transaction is being committed: whether it was, only the server knows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from dragoman.conversation import Message
from dragoman.errors import SnapshotNotFoundError, StoreUnavailableError
from dragoman.stores.journal import MessageAdded
from dragoman.stores.protocol import ConversationStore
from tests.stores.contract import after, chain, first
from tests.stores.postgres.cutting import Proxy, proxy_to
from tests.stores.postgres.test_faults import COLOURS, Opened, goes_on
from tests.stores.postgres_server import Server

STEPS = [MessageAdded(Message.user("a step"))]
BOTH = pytest.mark.parametrize("arrives", [True, False])


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with proxy_to(server) as proxy:
        yield proxy


def eventually(look: Callable[[], bool]) -> bool:
    """The server may take a moment to read what had arrived."""
    for _ in range(200):
        if look():
            return True
        time.sleep(0.01)
    return False


@COLOURS
@BOTH
def test_a_save_is_done_all_the_same(server: Server, proxy: Proxy, schema: str, opened: Opened, arrives: bool) -> None:
    with opened(proxy.conninfo, schema=schema) as store:
        points = chain(store, 2)
        for begin in (lambda: after(points[-1], "x"), lambda: first("another")):
            snapshot = begin()
            proxy.cut_next_commit(arrives=arrives)
            store.save(snapshot)
            assert store.load(snapshot.id) == snapshot
        assert proxy.cuts == 2
        assert len(store.history(points[0].id).items) == 3


@COLOURS
@BOTH
def test_a_record_says_that_nobody_knows(
    server: Server, proxy: Proxy, schema: str, opened: Opened, arrives: bool
) -> None:
    with opened(proxy.conninfo, schema=schema) as store:
        [one] = chain(store, 1)
        proxy.cut_next_commit(arrives=arrives)
        with pytest.raises(StoreUnavailableError, match=r"nobody knows.*Look before you try again: journal"):
            store.record(one.id, STEPS, after=0)
        assert proxy.cuts == 1
        assert eventually(lambda: store.journal(one.id).position == (1 if arrives else 0))
        at = store.journal(one.id).position
        assert store.record(one.id, STEPS, after=at) == at + 1


@COLOURS
@BOTH
def test_a_delete_says_that_nobody_knows(
    server: Server, proxy: Proxy, schema: str, opened: Opened, arrives: bool
) -> None:
    def is_gone(store: ConversationStore, id: str) -> bool:
        try:
            store.load(id)
        except SnapshotNotFoundError:
            return True
        return False

    with opened(proxy.conninfo, schema=schema) as store:
        points = chain(store, 2)
        proxy.cut_next_commit(arrives=arrives)
        with pytest.raises(StoreUnavailableError, match="nobody knows"):
            store.delete(points[0].id)
        if arrives:
            assert eventually(lambda: is_gone(store, points[0].id))
        else:
            goes_on(store, points)
