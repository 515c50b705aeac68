from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.conversation import Conversation, Message
from dragoman.errors import ConfigurationError, InvalidCursorError, SnapshotCorruptError
from dragoman.stores import Snapshot
from dragoman.stores.listing import (
    check_limit,
    make_cursor,
    microseconds,
    read_cursor,
    summary_from_json,
    summary_of,
    summary_to_json,
)
from tests.strategies import times


def test_a_summary_is_the_snapshot_without_its_messages() -> None:
    snapshot = Snapshot.first(Conversation("s").plus(Message.user("hi")), provider="p", model="m").fork()
    summary = summary_of(snapshot)
    for name in ("id", "root", "parent", "forked_from", "provider", "model", "title", "created_at"):
        assert getattr(summary, name) == getattr(snapshot, name)
    assert summary.message_count == 1
    assert summary_from_json(summary_to_json(summary)) == summary


@pytest.mark.parametrize("data", [b"", b"{}", b"null", b"\xff", b'{"id":1}', b"[" * 10_000])
def test_a_damaged_summary_is_a_typed_error(data: bytes) -> None:
    with pytest.raises(SnapshotCorruptError):
        summary_from_json(data)


def test_cursors_come_back() -> None:
    assert read_cursor("list", make_cursor("list", (7, "x")), tuple[int, str]) == (7, "x")


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda data: base64.urlsafe_b64encode(data).decode()))
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidCursorError):
        read_cursor("list", text, tuple[int, str])


def test_cursors_of_other_lists_are_refused() -> None:
    made = make_cursor("list", (7, "x"))
    for kind, type in (("history", tuple[int, str]), ("list", tuple[int]), ("list", tuple[str, str])):
        with pytest.raises(InvalidCursorError):
            read_cursor(kind, made, type)


def test_limits() -> None:
    assert [check_limit(limit) for limit in (1, 50, 1000)] == [1, 50, 1000]
    for limit in (0, -1, 1001, True):
        with pytest.raises(InvalidCursorError):
            check_limit(limit)


@given(times)
def test_times_as_numbers_are_exact(time: datetime) -> None:
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds(time)) == time


def test_a_time_needs_a_zone() -> None:
    with pytest.raises(ConfigurationError):
        microseconds(datetime(2026, 1, 1))  # noqa: DTZ001
