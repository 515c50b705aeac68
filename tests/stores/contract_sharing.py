"""Threads, rivals, and the end of a store."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dragoman.errors import (
    StoreConflictError,
    StoreError,
)
from dragoman.stores.protocol import ConversationStore
from dragoman.stores.snapshot import Snapshot
from tests.stores.cases import Opener, Suite, after, chain, pages


class SharingContract(Suite):
    def test_threads_share_a_store(self, store: ConversationStore) -> None:
        def talk(number: int) -> list[Snapshot]:
            return chain(store, 5, said=f"thread {number}")

        with ThreadPoolExecutor(6) as threads:
            chains = list(threads.map(talk, range(12)))
        assert len(pages(lambda cursor: store.list(limit=5, cursor=cursor))) == 12
        for points in chains:
            assert [store.load(point.id) for point in points] == points

    def test_of_rivals_one_wins_and_the_others_know(self, store: ConversationStore, opener: Opener) -> None:
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

    def test_a_closed_store_says_so(self, opener: Opener) -> None:
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
