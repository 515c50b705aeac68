from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from dragoman.errors import SnapshotCorruptError, SnapshotError, SnapshotVersionError
from dragoman.stores import JournalEntry, MessageAdded, ToolCallBegun, ToolCallDone, entry_to_json
from dragoman.stores.journal import _check, entry_from_json
from tests.strategies import call_blocks, messages, result_blocks, times

entries: st.SearchStrategy[JournalEntry] = st.one_of(
    st.builds(MessageAdded, messages),
    st.builds(ToolCallBegun, call_blocks, st.none() | times),
    st.builds(ToolCallDone, result_blocks, st.none() | times),
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
