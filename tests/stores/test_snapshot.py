"""Snapshots and their ids."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from dragoman.conversation import Conversation, Message, ToolSpec
from dragoman.errors import InvalidSnapshotIDError, SnapshotError
from dragoman.stores import ErrInvalidSnapshotID, Snapshot, conversation_id, validate_snapshot_id
from dragoman.stores.snapshot import new_id, title_of

SAID = Conversation("Be brief.", (Message.user("Hello there"),), {"user": 1})
TOOL = ToolSpec(name="weather")


def test_a_first_snapshot_is_its_own_root() -> None:
    snapshot = Snapshot.first(SAID, provider="openai", model="gpt-5", tools=[TOOL])
    assert (snapshot.root, snapshot.parent, snapshot.forked_from) == (snapshot.id, None, None)
    assert (snapshot.system_prompt, snapshot.messages, snapshot.metadata) == ("Be brief.", SAID.messages, {"user": 1})
    assert snapshot.tools == (TOOL,)
    assert snapshot.title == "Hello there"
    assert snapshot.created_at.tzinfo is UTC
    assert snapshot.version == 1


def test_the_next_one_keeps_what_is_not_given() -> None:
    one = Snapshot.first(SAID, provider="openai", model="gpt-5", tools=[TOOL])
    two = one.next(SAID.plus(Message.assistant("Hi")))
    assert (two.root, two.parent, two.provider, two.model, two.tools) == (one.id, one.id, "openai", "gpt-5", (TOOL,))
    assert two.title == "Hello there"
    assert two.id > one.id
    three = two.next(SAID, provider="gemini", model="pro", tools=[], title="")
    assert (three.root, three.parent) == (one.id, two.id)
    assert (three.provider, three.model, three.tools, three.title) == ("gemini", "pro", (), "")


def test_a_title_comes_as_soon_as_somebody_speaks() -> None:
    silent = Snapshot.first(Conversation("s"), provider="p", model="m")
    assert silent.title == ""
    assert silent.next(SAID).title == "Hello there"


def test_a_fork_begins_a_chain_and_remembers_where() -> None:
    one = Snapshot.first(SAID, provider="p", model="m")
    fork = one.fork()
    assert (fork.root, fork.parent, fork.forked_from) == (fork.id, None, one.id)
    assert fork.conversation == one.conversation
    assert fork.next(SAID).forked_from == one.id


def test_titles_are_one_short_line() -> None:
    assert title_of(Conversation(messages=(Message.user("  a\n b\t c "),))) == "a b c"
    long = title_of(Conversation(messages=(Message.assistant("no"), Message.user("word " * 100))))
    assert len(long) <= 80
    assert long.endswith("…")


@pytest.mark.parametrize("bad", ["", "x", "../x"])
def test_ids_are_checked(bad: str) -> None:
    with pytest.raises(InvalidSnapshotIDError):
        Snapshot.first(SAID, provider="p", model="m", id=bad)


def test_what_does_not_fit_a_chain_is_refused() -> None:
    one, two = new_id(), new_id()
    common = {"provider": "p", "model": "m", "conversation": SAID, "created_at": datetime.now(UTC)}
    for root, parent in ((two, None), (one, two), (two, one)):
        with pytest.raises(SnapshotError, match="does not fit into a chain"):
            Snapshot(id=one, root=root, parent=parent, **common)


def test_times_are_kept_in_utc() -> None:
    east = datetime(2026, 1, 1, 5, tzinfo=timezone(timedelta(hours=5)))
    assert Snapshot.first(SAID, provider="p", model="m", created_at=east).created_at == datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(SnapshotError, match="time zone"):
        Snapshot.first(SAID, provider="p", model="m", created_at=datetime(2026, 1, 1))  # noqa: DTZ001


# --- ids -------------------------------------------------------------------------------------------------------------


def test_new_ids_are_canonical_uuids_of_version_7() -> None:
    made = new_id()
    validate_snapshot_id(made)
    assert str(UUID(made)) == made
    assert UUID(made).version == 7
    assert UUID(made).variant == "specified in RFC 4122"


def test_they_carry_the_time_and_are_never_the_same() -> None:
    before = time.time_ns() // 1_000_000
    made = [new_id() for _ in range(5000)]
    times = [UUID(each).int >> 80 for each in made]
    assert all(before <= each <= time.time_ns() // 1_000_000 for each in times)
    assert len(set(made)) == len(made)


@given(st.text(max_size=40))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ErrInvalidSnapshotID):
        validate_snapshot_id(text)


@pytest.mark.parametrize("odd", [None, 7, b"018f3c5e-7a10-7cc3-98c4-dc0c0c07398f", ["x"]])
def test_what_is_no_text_is_refused_too(odd: str) -> None:
    with pytest.raises(InvalidSnapshotIDError):
        validate_snapshot_id(odd)


def test_ids_of_other_versions_are_taken() -> None:
    validate_snapshot_id("f47ac10b-58cc-4372-a567-0e02b2c3d479")


def test_a_name_of_ones_own_has_an_id_and_always_the_same() -> None:
    assert conversation_id("telegram:42") == "5a402dc6-fe12-5544-8a49-71d92e091dac"
    assert len({conversation_id(name) for name in ("", "a", "b", "A", "ä", "a\0")}) == 6
    chosen = Snapshot.first(SAID, provider="p", model="m", id=conversation_id("a"))
    assert (chosen.id, chosen.root) == (conversation_id("a"),) * 2
    assert chosen.fork(id=conversation_id("b")).root == conversation_id("b")
