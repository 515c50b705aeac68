"""Snapshots, their ids and their JSON form."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import Raw

from dragoman.conversation import Conversation, Message, ToolSpec
from dragoman.errors import (
    InvalidSnapshotIDError,
    SnapshotCorruptError,
    SnapshotError,
    SnapshotVersionError,
)
from dragoman.stores import (
    Snapshot,
    conversation_id,
    snapshot_from_json,
    snapshot_to_json,
    validate_snapshot_id,
)
from dragoman.stores.snapshot import SNAPSHOT_VERSION, new_id, title_of
from tests.rounds import rounds
from tests.strategies import conversations, json_values, names, texts

SAID = Conversation("Be brief.", (Message.user("Hello there"),), {"user": 1})
TOOL = ToolSpec(name="weather")


def test_a_chain_and_a_fork() -> None:
    one = Snapshot.first(SAID, provider="openai", model="gpt-5", tools=[TOOL])
    assert (one.root, one.parent, one.forked_from, one.version) == (one.id, None, None, 1)
    assert (one.system_prompt, one.messages, one.metadata) == ("Be brief.", SAID.messages, {"user": 1})
    assert (one.tools, one.title, one.created_at.tzinfo) == ((TOOL,), "Hello there", UTC)
    two = one.next(SAID.plus(Message.assistant("Hi")))
    assert (two.root, two.parent, two.provider, two.model, two.tools) == (one.id, one.id, "openai", "gpt-5", (TOOL,))
    assert (two.title, two.id > one.id) == ("Hello there", True)
    assert (two.next(SAID).root, two.next(SAID).parent) == (one.id, two.id)
    fork = two.fork()
    assert (fork.root, fork.parent, fork.forked_from, fork.conversation) == (fork.id, None, two.id, two.conversation)
    assert fork.next(SAID).forked_from == two.id


def test_a_title_is_one_short_line_of_the_first_user_message() -> None:
    silent = Snapshot.first(Conversation("s"), provider="p", model="m")
    assert (silent.title, silent.next(SAID).title) == ("", "Hello there")
    assert title_of(Conversation(messages=(Message.user("  a\n b\t c "),))) == "a b c"
    long = title_of(Conversation(messages=(Message.assistant("no"), Message.user("word " * 100))))
    assert len(long) <= 80
    assert long.endswith("…")


def test_an_invalid_chain_is_refused() -> None:
    one, two = new_id(), new_id()
    common = {"provider": "p", "model": "m", "conversation": SAID, "created_at": datetime.now(UTC)}
    for root, parent in ((two, None), (one, two), (two, one)):
        with pytest.raises(SnapshotError, match="does not fit into a chain"):
            Snapshot(id=one, root=root, parent=parent, **common)


def test_times_are_stored_in_utc() -> None:
    east = datetime(2026, 1, 1, 5, tzinfo=timezone(timedelta(hours=5)))
    assert Snapshot.first(SAID, provider="p", model="m", created_at=east).created_at == datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(SnapshotError, match="time zone"):
        Snapshot.first(SAID, provider="p", model="m", created_at=datetime(2026, 1, 1))  # noqa: DTZ001


# --- ids -------------------------------------------------------------------------------------------------------------


def test_new_ids_are_uuids_of_version_7() -> None:
    before = time.time_ns() // 1_000_000
    made = [new_id() for _ in range(5000)]
    validate_snapshot_id(made[0])
    assert str(UUID(made[0])) == made[0]
    assert (UUID(made[0]).version, UUID(made[0]).variant) == (7, "specified in RFC 4122")
    assert all(before <= UUID(each).int >> 80 <= time.time_ns() // 1_000_000 for each in made)
    assert len(set(made)) == len(made)


@given(st.text(max_size=40) | st.sampled_from([None, 7, b"018f3c5e-7a10-7cc3-98c4-dc0c0c07398f", ["x"], "../x"]))
def test_invalid_ids_are_refused(odd: str) -> None:
    with pytest.raises(InvalidSnapshotIDError):
        validate_snapshot_id(odd)
    if odd is not None:
        with pytest.raises(InvalidSnapshotIDError):
            Snapshot.first(SAID, provider="p", model="m", id=odd)


def test_a_name_always_has_the_same_id() -> None:
    validate_snapshot_id("f47ac10b-58cc-4372-a567-0e02b2c3d479")  # other versions are valid, too
    assert conversation_id("telegram:42") == "5a402dc6-fe12-5544-8a49-71d92e091dac"
    assert len({conversation_id(name) for name in ("", "a", "b", "A", "ä", "a\0")}) == 6
    chosen = Snapshot.first(SAID, provider="p", model="m", id=conversation_id("a"))
    assert (chosen.id, chosen.root) == (conversation_id("a"),) * 2


# --- as JSON ---------------------------------------------------------------------------------------------------------

VERSION_1 = (Path(__file__).parent / "fixtures" / "snapshot-v1.json").read_bytes()

specs = st.builds(
    ToolSpec,
    name=names,
    description=texts,
    parameters=json_values.map(lambda value: Raw(json.dumps(value).encode())),
    strict=st.none() | st.booleans(),
    tags=st.lists(texts, max_size=2).map(tuple),
)


@settings(max_examples=rounds(100))
@given(conversations, texts, st.lists(specs, max_size=2))
def test_a_round_trip_changes_nothing(said: Conversation, text: str, tools: list[ToolSpec]) -> None:
    snapshot = Snapshot.first(said, provider=text, model=text, tools=tools, title=text)
    later = snapshot.next(said)
    for each in (snapshot, later, later.fork()):
        written = snapshot_to_json(each)
        assert snapshot_from_json(written) == snapshot_from_json(written.decode()) == each
        assert snapshot_to_json(snapshot_from_json(written)) == written


def test_version_1_can_still_be_read() -> None:
    snapshot = snapshot_from_json(VERSION_1)
    assert snapshot.id == "018f3c5e-7a10-7cc3-98c4-dc0c0c07398f"
    assert snapshot.root == snapshot.parent == "018f3c5e-7a10-7cc3-98c4-dc0c0c070001"
    assert snapshot.forked_from == "f47ac10b-58cc-4372-a567-0e02b2c3d479"
    assert (snapshot.provider, snapshot.model, snapshot.title) == ("anthropic", "claude-sonnet-4-5", "Weather in Lyon")
    assert [message.role for message in snapshot.messages] == ["user", "assistant", "tool", "assistant"]
    assert snapshot.conversation.text == "It is 21 degrees in Lyon."
    assert snapshot.metadata == {"user": 7}
    assert [tool.name for tool in snapshot.tools] == ["weather"]
    assert snapshot.created_at.isoformat() == "2026-03-01T12:00:00.000123+00:00"
    assert snapshot.version == SNAPSHOT_VERSION


def changed(**members: object) -> bytes:
    return json.dumps({**json.loads(VERSION_1), **members}).encode()


NEWER = {"format": "dragoman.conversation", "version": 9, "conversation": {}}


@pytest.mark.parametrize("members", [{"version": 2}, {"version": 10**6, "x": 1, "tools": 7}, {"conversation": NEWER}])
def test_newer_versions_are_refused(members: dict[str, object]) -> None:
    with pytest.raises(SnapshotVersionError, match=r"version (2|1000000|9).*Upgrade dragoman"):
        snapshot_from_json(changed(**members))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b'{"format":"dragoman.snapshot","version":1}',
        changed(format="dragoman.conversation"),
        *[changed(version=version) for version in (0, -1, "1", 1.5)],
        *[changed(id=id) for id in ("../../etc/passwd", "018F3C5E-7A10-7CC3-98C4-DC0C0C07398F", None)],
        changed(parent=None),
        changed(root="018f3c5e-7a10-7cc3-98c4-dc0c0c07398f"),
        *[changed(created_at=time) for time in ("yesterday", "2026-03-01T12:00:00", "9999-99-99T12:00:00Z")],
        *[changed(tools=tools) for tools in ([{"description": "no name"}], {}, [7])],
        changed(conversation=[]),
        changed(conversation={"format": "dragoman.conversation", "version": 1, "conversation": {"messages": 7}}),
        changed(handler="os.system"),
        b'{"format":"dragoman.snapshot","version":1,"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_an_invalid_snapshot_is_a_typed_error(data: bytes) -> None:
    with pytest.raises(SnapshotCorruptError):
        snapshot_from_json(data)


@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=3), st.booleans())
def test_damaged_bytes_never_crash(where: int, noise: bytes, cut: bool) -> None:
    at = where % len(VERSION_1)
    with suppress(SnapshotError):
        snapshot_from_json(VERSION_1[:at] if cut else VERSION_1[:at] + noise + VERSION_1[at + len(noise) :])


def test_unknown_fields_of_a_tool_are_kept_and_import_nothing() -> None:
    tool = {"name": "this", "parameters": {"$ref": "antigravity"}, "function": "antigravity.geohash", "b": {"c": 1.0}}
    before = set(sys.modules)
    snapshot = snapshot_from_json(changed(tools=[tool]))
    assert set(sys.modules) == before
    assert json.loads(snapshot_to_json(snapshot))["tools"] == [tool]
