"""The journal: its entries as JSON, and how a conversation is recovered from it."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, strategies as st

from dragoman.conversation import Conversation, Message, Text, ToolCall, ToolResult, Usage
from dragoman.errors import SnapshotCorruptError, SnapshotVersionError, StoreConflictError
from dragoman.stores import (
    AsyncStore,
    JournalEntry,
    MemoryStore,
    MessageAdded,
    Recovered,
    Snapshot,
    ToolCallBegun,
    ToolCallDone,
    ToolCallPaused,
    aresume,
    entry_to_json,
    recovered,
    resume,
)
from dragoman.stores.journal import entry_from_json
from dragoman.tools import PendingApproval
from tests.strategies import call_blocks, messages, result_blocks, usages

SNAPSHOT = Snapshot.first(Conversation("s").plus(Message.user("pay both")), provider="p", model="m")
ONE, TWO = ToolCall("1", "pay", '{"to":"a"}'), ToolCall("2", "pay", '{"to":"b"}')
PAID_ONE, PAID_TWO = ToolResult("1", "pay", (Text("done"),)), ToolResult("2", "pay", (Text("done"),))
BEGUN_ONE, BEGUN_TWO, DONE_ONE, DONE_TWO = (*map(ToolCallBegun, (ONE, TWO)), *map(ToolCallDone, (PAID_ONE, PAID_TWO)))
REPLY = Message.assistant(ONE, TWO)
ASKED, ANSWERED = MessageAdded(REPLY), MessageAdded(Message.tool([PAID_ONE, PAID_TWO]))


@pytest.mark.parametrize(
    ("entries", "done", "uncertain"),
    [
        ([], (), ()),
        ([ASKED], (), ()),
        ([ASKED, BEGUN_ONE], (), (ONE,)),
        ([ASKED, BEGUN_ONE, BEGUN_TWO], (), (ONE, TWO)),
        ([ASKED, BEGUN_ONE, BEGUN_TWO, DONE_TWO], (PAID_TWO,), (ONE,)),
        ([ASKED, BEGUN_ONE, BEGUN_TWO, DONE_TWO, DONE_ONE], (PAID_TWO, PAID_ONE), ()),
        # Run again after a crash, with a second crash.
        ([ASKED, BEGUN_ONE, BEGUN_ONE, DONE_ONE], (PAID_ONE,), ()),
        ([ASKED, BEGUN_ONE, DONE_ONE, BEGUN_ONE], (), (ONE,)),
        # A result without a start, such as a denied call.
        ([ASKED, DONE_ONE], (PAID_ONE,), ()),
        # Answered; and a later reply with the same ids, which some providers reuse.
        ([ASKED, BEGUN_ONE, DONE_ONE, BEGUN_TWO, DONE_TWO, ANSWERED], (), ()),
        ([ASKED, BEGUN_ONE, DONE_ONE, BEGUN_TWO, DONE_TWO, ANSWERED, ASKED, BEGUN_ONE], (), (ONE,)),
        # The calls of the snapshot itself.
        ([BEGUN_TWO, DONE_TWO, BEGUN_ONE], (PAID_TWO,), (ONE,)),
    ],
)
def test_done_results_and_uncertain_calls(
    entries: list[JournalEntry], done: tuple[ToolResult, ...], uncertain: tuple[ToolCall, ...]
) -> None:
    found = recovered(SNAPSHOT, entries)
    added = [entry.message for entry in entries if isinstance(entry, MessageAdded)]
    assert found.conversation == SNAPSHOT.conversation.plus(*added)
    assert (found.done_results, found.uncertain_calls, found.position) == (done, uncertain, len(entries))


class Restless(MemoryStore):
    """Saves a new snapshot each time after the newest one was read."""

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
def test_resume_returns_a_matching_snapshot_and_journal(ask: object) -> None:
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


def _paused(call: ToolCall, inside: list[tuple[ToolCall, str]], used: Usage | None) -> ToolCallPaused:
    waiting = [PendingApproval(call=each, reason=why, within=call, used=used) for each, why in inside]
    return ToolCallPaused(call, tuple(waiting))


# --- entries as JSON -------------------------------------------------------------------------------------------------


@given(
    st.builds(MessageAdded, messages)
    | st.builds(ToolCallBegun, call_blocks)
    | st.builds(ToolCallDone, result_blocks)
    | st.builds(_paused, call_blocks, st.lists(st.tuples(call_blocks, st.text()), min_size=1), st.none() | usages)
)
def test_a_round_trip_changes_nothing(entry: JournalEntry) -> None:
    assert entry_from_json(entry_to_json(entry)) == entry


def test_an_unknown_kind_is_a_version_error() -> None:
    with pytest.raises(SnapshotVersionError):
        entry_from_json(b'{"type":"agent_asked","message":{"role":"user"}}')


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b'{"type":"message_added"}',
        b'{"type":"message_added","message":[]}',
        b'{"type":"tool_call_begun","message":{"role":"assistant"}}',
        b'{"type":"tool_call_begun","message":{"role":"user","blocks":[{"type":"tool_call","id":"1","name":"f"}]}}',
        b'{"type":"tool_call_done","message":{"role":"tool","blocks":[{"type":"text","text":"x"}]}}',
        b'{"type":"tool_call_paused","message":{"role":"assistant","blocks":[{"type":"tool_call","id":"1","name":"f"}]}}',
        b'{"type":"tool_call_paused","message":{"role":"assistant"},"reasons":["why"]}',
    ],
)
def test_an_invalid_entry_is_a_typed_error(data: bytes) -> None:
    with pytest.raises(SnapshotCorruptError):
        entry_from_json(data)
