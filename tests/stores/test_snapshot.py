from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from dragoman.conversation import Conversation, Message, ToolSpec
from dragoman.errors import InvalidSnapshotIDError, SnapshotError
from dragoman.stores import Snapshot
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
        Snapshot.first(SAID, provider="p", model="m", ids=lambda: bad)


def test_what_does_not_fit_a_chain_is_refused() -> None:
    one, two = new_id(), new_id()
    common = {"provider": "p", "model": "m", "conversation": SAID, "created_at": datetime.now(UTC)}
    for root, parent in ((two, None), (one, two), (two, one)):
        with pytest.raises(SnapshotError, match="does not fit into a chain"):
            Snapshot(id=one, root=root, parent=parent, **common)


def test_times_are_kept_in_utc() -> None:
    east = datetime(2026, 1, 1, 5, tzinfo=timezone(timedelta(hours=5)))
    assert Snapshot.first(SAID, provider="p", model="m", clock=lambda: east).created_at == datetime(
        2026, 1, 1, tzinfo=UTC
    )
    with pytest.raises(SnapshotError, match="time zone"):
        Snapshot.first(SAID, provider="p", model="m", clock=lambda: datetime(2026, 1, 1))  # noqa: DTZ001
