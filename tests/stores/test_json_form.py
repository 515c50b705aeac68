from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from msgspec import Raw

from dragoman.conversation import Conversation, ToolSpec
from dragoman.errors import ConversationError, SnapshotCorruptError, SnapshotError, SnapshotVersionError
from dragoman.stores import Snapshot, snapshot_from_json, snapshot_to_json
from dragoman.stores.snapshot import SNAPSHOT_VERSION
from tests.strategies import conversations, json_values, names, texts

FIXTURES = Path(__file__).parent / "fixtures"

specs = st.builds(
    ToolSpec,
    name=names,
    description=texts,
    parameters=json_values.map(lambda value: Raw(json.dumps(value).encode())),
    strict=st.none() | st.booleans(),
    tags=st.lists(texts, max_size=2).map(tuple),
)
snapshots = st.builds(
    lambda said, provider, model, tools, title: Snapshot.first(
        said, provider=provider, model=model, tools=tools, title=title
    ),
    conversations,
    texts,
    texts,
    st.lists(specs, max_size=2),
    texts,
)


@given(snapshots)
def test_a_round_trip_changes_nothing(snapshot: Snapshot) -> None:
    written = snapshot_to_json(snapshot)
    assert snapshot_from_json(written) == snapshot
    assert snapshot_from_json(written.decode()) == snapshot
    assert snapshot_to_json(snapshot_from_json(written)) == written
    later = snapshot.next(snapshot.conversation)
    assert snapshot_from_json(snapshot_to_json(later)) == later
    fork = later.fork()
    assert snapshot_from_json(snapshot_to_json(fork)) == fork


def test_the_form_of_version_1_is_read_for_ever() -> None:
    snapshot = snapshot_from_json((FIXTURES / "snapshot-v1.json").read_bytes())
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
    document = json.loads((FIXTURES / "snapshot-v1.json").read_bytes())
    return json.dumps({**document, **members}).encode()


def test_newer_versions_are_refused() -> None:
    with pytest.raises(SnapshotVersionError, match="version 2.*Upgrade dragoman"):
        snapshot_from_json(changed(version=2))
    with pytest.raises(SnapshotVersionError):
        snapshot_from_json(changed(version=10**6, unknown="x", tools=7))
    newer = {"format": "dragoman.conversation", "version": 9, "conversation": {}}
    with pytest.raises(SnapshotVersionError):
        snapshot_from_json(changed(conversation=newer))


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
        changed(version=0),
        changed(version=-1),
        changed(version="1"),
        changed(version=1.5),
        changed(id="../../etc/passwd"),
        changed(id="018F3C5E-7A10-7CC3-98C4-DC0C0C07398F"),
        changed(id=None),
        changed(parent=None),
        changed(root="018f3c5e-7a10-7cc3-98c4-dc0c0c07398f"),
        changed(created_at="yesterday"),
        changed(created_at="2026-03-01T12:00:00"),
        changed(created_at="9999-99-99T12:00:00Z"),
        changed(tools=[{"description": "no name"}]),
        changed(tools={}),
        changed(tools=[7]),
        changed(conversation=[]),
        changed(conversation={"format": "dragoman.conversation", "version": 1, "conversation": {"messages": 7}}),
        changed(handler="os.system"),
        b'{"format":"dragoman.snapshot","version":1,"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_is_no_snapshot_is_a_typed_error(data: bytes) -> None:
    with pytest.raises(SnapshotCorruptError):
        snapshot_from_json(data)


@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=3), st.booleans())
def test_damaged_bytes_are_read_or_refused_but_never_crash(where: int, noise: bytes, cut: bool) -> None:
    written = (FIXTURES / "snapshot-v1.json").read_bytes()
    at = where % len(written)
    damaged = written[:at] if cut else written[:at] + noise + written[at + len(noise) :]
    with suppress(SnapshotError):
        snapshot_from_json(damaged)


def test_reading_imports_nothing() -> None:
    data = changed(tools=[{"name": "this", "parameters": {"$ref": "antigravity"}, "function": "antigravity.geohash"}])
    before = set(sys.modules)
    snapshot = snapshot_from_json(data)
    assert set(sys.modules) == before
    assert json.loads(snapshot_to_json(snapshot))["tools"][0]["function"] == "antigravity.geohash"  # kept as data


def test_unknown_fields_of_tools_survive() -> None:
    data = changed(tools=[{"name": "f", "later": {"b": 1.0}, "added": [1]}])
    again = json.loads(snapshot_to_json(snapshot_from_json(data)))
    assert again["tools"] == [{"name": "f", "later": {"b": 1.0}, "added": [1]}]


def test_what_json_cannot_carry_is_a_typed_error() -> None:
    for snapshot in (
        Snapshot.first(Conversation("\ud800"), provider="p", model="m"),
        Snapshot.first(Conversation(), provider="p", model="m", title="\ud800"),
        Snapshot.first(Conversation(), provider="p", model="m", tools=[ToolSpec(name="\ud800")]),
    ):
        with pytest.raises(ConversationError, match="cannot be written as JSON"):
            snapshot_to_json(snapshot)
