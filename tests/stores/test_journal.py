from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.conversation import Conversation, Message, Text, ToolCall, ToolResult
from dragoman.errors import StoreConflictError
from dragoman.stores import (
    AsyncStore,
    Journal,
    JournalEntry,
    MessageAdded,
    Snapshot,
    SqliteStore,
    ToolCallBegun,
    ToolCallDone,
    aresume,
    recovered,
    resume,
)

SNAPSHOT = Snapshot.first(Conversation("s").plus(Message.user("pay both")), provider="p", model="m")
ONE, TWO = ToolCall("1", "pay", '{"to":"a"}'), ToolCall("2", "pay", '{"to":"b"}')
PAID_ONE, PAID_TWO = ToolResult("1", "pay", (Text("done"),)), ToolResult("2", "pay", (Text("done"),))
REPLY = Message.assistant(ONE, TWO)


def test_without_entries_it_is_the_snapshot() -> None:
    found = recovered(SNAPSHOT, ())
    assert found.conversation is SNAPSHOT.conversation
    assert (found.done_results, found.uncertain_calls, found.position) == ((), (), 0)


@pytest.mark.parametrize(
    ("entries", "done", "uncertain"),
    [
        ([MessageAdded(REPLY)], (), ()),
        ([MessageAdded(REPLY), ToolCallBegun(ONE)], (), (ONE,)),
        ([MessageAdded(REPLY), ToolCallBegun(ONE), ToolCallBegun(TWO)], (), (ONE, TWO)),
        ([MessageAdded(REPLY), ToolCallBegun(ONE), ToolCallBegun(TWO), ToolCallDone(PAID_TWO)], (PAID_TWO,), (ONE,)),
        (
            [
                MessageAdded(REPLY),
                ToolCallBegun(ONE),
                ToolCallBegun(TWO),
                ToolCallDone(PAID_TWO),
                ToolCallDone(PAID_ONE),
            ],
            (PAID_TWO, PAID_ONE),
            (),
        ),
        # Run again after a crash, and then crashed again.
        ([MessageAdded(REPLY), ToolCallBegun(ONE), ToolCallBegun(ONE), ToolCallDone(PAID_ONE)], (PAID_ONE,), ()),
        ([MessageAdded(REPLY), ToolCallBegun(ONE), ToolCallDone(PAID_ONE), ToolCallBegun(ONE)], (), (ONE,)),
        # A result without a beginning: the permission check said no, for example.
        ([MessageAdded(REPLY), ToolCallDone(PAID_ONE)], (PAID_ONE,), ()),
    ],
)
def test_what_is_done_and_what_is_uncertain(
    entries: list[JournalEntry], done: tuple[ToolResult, ...], uncertain: tuple[ToolCall, ...]
) -> None:
    found = recovered(SNAPSHOT, entries)
    assert found.conversation.messages == (*SNAPSHOT.messages, REPLY)
    assert found.done_results == done
    assert found.uncertain_calls == uncertain
    assert found.position == len(entries)


def test_answered_calls_are_settled_even_if_their_ids_come_again() -> None:
    answer = Message.tool([PAID_ONE, PAID_TWO])
    steps: list[JournalEntry] = [
        MessageAdded(REPLY),
        ToolCallBegun(ONE),
        ToolCallDone(PAID_ONE),
        ToolCallBegun(TWO),
        ToolCallDone(PAID_TWO),
        MessageAdded(answer),
    ]
    found = recovered(SNAPSHOT, steps)
    assert (found.done_results, found.uncertain_calls) == ((), ())
    assert found.conversation.is_valid
    again = recovered(SNAPSHOT, [*steps, MessageAdded(REPLY), ToolCallBegun(ONE)])
    assert (again.done_results, again.uncertain_calls) == ((), (ONE,))


def test_the_calls_of_a_snapshot_may_be_carried_out_after_it() -> None:
    waiting = SNAPSHOT.next(SNAPSHOT.conversation.plus(REPLY))
    found = recovered(waiting, [ToolCallBegun(TWO), ToolCallDone(PAID_TWO), ToolCallBegun(ONE)])
    assert found.conversation.pending_tool_calls == (ONE, TWO)
    assert (found.done_results, found.uncertain_calls) == ((PAID_TWO,), (ONE,))


class Restless(SqliteStore):
    """Somebody saves each time after the newest snapshot was read."""

    restless = 0

    def latest(self, id: str) -> Snapshot:
        found = super().latest(id)
        if self.restless:
            self.restless -= 1
            self.save(found.next(found.conversation))
        return found


@pytest.mark.parametrize("colour", ["plain", "async"])
def test_snapshot_and_journal_belong_together(tmp_path: Path, colour: str) -> None:
    store = Restless(tmp_path / "store.db")
    store.save(SNAPSHOT)
    asking: dict[str, Callable[[], object]] = {
        "plain": lambda: resume(store, SNAPSHOT.id),
        "async": lambda: asyncio.run(_resumed_async(store)),
    }
    store.restless = 3
    asking[colour]()
    assert store.restless == 0
    store.restless = 100
    with pytest.raises(StoreConflictError, match="faster"):
        resume(store, SNAPSHOT.id)
    store.close()


async def _resumed_async(store: SqliteStore) -> None:
    shell = AsyncStore(store)
    found = await aresume(shell, SNAPSHOT.id)
    assert found.snapshot == store.latest(SNAPSHOT.id)
    shell._threads.shutdown()


def test_a_journal_says_where_to_go_on() -> None:
    journal = Journal(snapshot=SNAPSHOT.id, entries=(MessageAdded(REPLY),))
    assert journal.position == 1
    assert structs.replace(journal, entries=()).position == 0
