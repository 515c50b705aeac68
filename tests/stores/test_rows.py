from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dragoman.conversation import Conversation, Message, message_to_json
from dragoman.errors import SnapshotCorruptError
from dragoman.stores import Snapshot, json_form
from dragoman.stores.json_form import EMPTY, assemble, body_from_json, body_to_json, digest_after
from tests.strategies import conversations

SAID = Conversation("s").plus(*[Message.user(str(number)) for number in range(5)])
SNAPSHOT = Snapshot.first(SAID, provider="p", model="m")


@given(conversations)
def test_a_snapshot_divided_and_put_together_is_the_same(conversation: Conversation) -> None:
    snapshot = Snapshot.first(conversation, provider="p", model="m")
    body = body_from_json(body_to_json(snapshot))
    again = assemble(body, [message_to_json(message) for message in snapshot.messages])
    assert again == snapshot
    assert digest_after(again.messages) == body.digest


def test_the_size_of_a_body_does_not_depend_on_the_history() -> None:
    longer = SNAPSHOT.next(SAID.plus(*[Message.user("x" * 1000)] * 90))
    assert abs(len(body_to_json(longer)) - len(body_to_json(SNAPSHOT))) < 100


def test_digests_tell_histories_apart() -> None:
    whole = digest_after(SAID.messages)
    assert digest_after(()) == EMPTY
    assert digest_after(SAID.messages[3:], digest_after(SAID.messages[:3])) == whole
    swapped = (SAID.messages[1], SAID.messages[0], *SAID.messages[2:])
    others = [SAID.messages[:4], SAID.messages[1:], swapped, (*SAID.messages, Message.user("5"))]
    assert len({whole, *map(digest_after, others)}) == 5


def test_digests_are_remembered_and_not_mistaken_in_another_place(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = tuple([Message.user(str(number)) for number in range(5)])
    assert digest_after(fresh) == digest_after(SAID.messages)
    monkeypatch.setattr(json_form, "message_to_json", None)  # from here on nothing can be written again
    assert digest_after(fresh) == digest_after(SAID.messages)
    monkeypatch.undo()
    assert digest_after(fresh[1:]) == digest_after([structs.replace(message) for message in fresh[1:]])


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found[:-1],
        lambda found: [*found, found[0]],
        lambda found: found[::-1],
        lambda found: [found[0].replace(b"0", b"9"), *found[1:]],
        lambda found: [],
    ],
)
def test_other_messages_are_noticed(change: st.SearchStrategy[list[bytes]]) -> None:
    body = body_from_json(body_to_json(SNAPSHOT))
    with pytest.raises(SnapshotCorruptError):
        assemble(body, change([message_to_json(message) for message in SAID.messages]))


@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=3))
def test_a_changed_body_is_noticed(where: int, noise: bytes) -> None:
    whole = body_to_json(SNAPSHOT)
    at = where % len(whole)
    try:
        body = body_from_json(whole[:at] + noise + whole[at + len(noise) :])
        assert assemble(body, [message_to_json(message) for message in SAID.messages]) == SNAPSHOT
    except SnapshotCorruptError:
        pass


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"count":1,"digest":"","snapshot":7}', b'{"count":0,"digest":"%%","snapshot":{}}']
)
def test_a_damaged_body_is_a_typed_error(data: bytes) -> None:
    with pytest.raises(SnapshotCorruptError):
        assemble(body_from_json(data), [])
