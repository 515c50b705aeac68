"""The journal: its entries as JSON, and what is made of them and the newest snapshot."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from dragoman.conversation import Conversation, Message, Text, ToolCall, ToolResult
from dragoman.errors import SnapshotCorruptError, SnapshotError, SnapshotVersionError, StoreConflictError
from dragoman.stores import (
    AsyncStore,
    JournalEntry,
    MemoryStore,
    MessageAdded,
    Recovered,
    Snapshot,
    ToolCallBegun,
    ToolCallDone,
    aresume,
    entry_to_json,
    recovered,
    resume,
)
from dragoman.stores.journal import _check, entry_from_json
from tests.strategies import call_blocks, messages, result_blocks

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


class Restless(MemoryStore):
    """Somebody saves each time after the newest snapshot was read."""

    restless = 0

    def latest(self, id: str) -> Snapshot:
        found = super().latest(id)
        if self.restless:
            self.restless -= 1
            self.save(found.next(found.conversation))
        return found


async def _resume_on_a_loop(store: Restless) -> Recovered:
    async with AsyncStore(store) as on_loop:
        return await aresume(on_loop, SNAPSHOT.id)


@pytest.mark.parametrize("ask", [lambda store: resume(store, SNAPSHOT.id), lambda s: asyncio.run(_resume_on_a_loop(s))])
def test_snapshot_and_journal_belong_together(ask: object) -> None:
    with Restless() as store:
        store.save(SNAPSHOT)
        store.restless = 3
        newest = ask(store).snapshot
        assert store.restless == 0
        assert newest.parent not in {None, SNAPSHOT.id}
    with Restless() as store:
        store.save(SNAPSHOT)
        store.restless = 100
        with pytest.raises(StoreConflictError, match="faster"):
            ask(store)


# --- entries as JSON -------------------------------------------------------------------------------------------------

entries: st.SearchStrategy[JournalEntry] = st.one_of(
    st.builds(MessageAdded, messages),
    st.builds(ToolCallBegun, call_blocks),
    st.builds(ToolCallDone, result_blocks),
)


@given(entries)
def test_a_round_trip_changes_nothing(entry: JournalEntry) -> None:
    assert entry_from_json(entry_to_json(entry)) == entry


def written(kind: str, message: bytes) -> bytes:
    return b'{"type":"%s","check":"%s","message":%s}' % (kind.encode(), _check(kind, message).encode(), message)


def test_an_unknown_kind_is_of_a_newer_version() -> None:
    with pytest.raises(SnapshotVersionError):
        entry_from_json(written("agent_asked", b'{"role":"user"}'))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b'{"type":"message_added"}',
        b'{"type":"message_added","check":"","message":{"role":"user"}}',
        written("message_added", b"[]"),
        written("tool_call_begun", b'{"role":"assistant"}'),
        written("tool_call_begun", b'{"role":"user","blocks":[{"type":"tool_call","id":"1","name":"f"}]}'),
        written("tool_call_done", b'{"role":"tool","blocks":[{"type":"text","text":"x"}]}'),
    ],
)
def test_what_is_no_entry_is_a_typed_error(data: bytes) -> None:
    with pytest.raises(SnapshotCorruptError):
        entry_from_json(data)


@given(entries, st.integers(0, 10**6), st.binary(min_size=1, max_size=3))
def test_damaged_bytes_are_noticed(entry: JournalEntry, where: int, noise: bytes) -> None:
    whole = entry_to_json(entry)
    at = where % len(whole)
    with suppress(SnapshotError):
        assert entry_from_json(whole[:at] + noise + whole[at + len(noise) :]) == entry
