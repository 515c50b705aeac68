"""Errors of the server: which are tried again, how often, and what the rest are called."""

from __future__ import annotations

import pytest

from dragoman.errors import DragomanError, SnapshotCorruptError, StoreError, StoreUnavailableError
from dragoman.stores.postgres.troubles import Failure, Retries


class ServerError(Exception):
    def __init__(self, sqlstate: str | None, text: str = "the server's words") -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


def retries(*, repeatable: bool = True, hide: str = "") -> Retries:
    return Retries(repeatable=repeatable, hide=hide, random=lambda: 1.0)


@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_who_got_in_anothers_way_tries_again_at_growing_intervals(code: str) -> None:
    tries = retries(repeatable=False)
    pauses = [tries.pause(Failure(ServerError(code), "committing", lost=False)) for _ in range(10)]
    assert pauses == sorted(pauses)
    assert 0 < sum(pauses) < 60
    with pytest.raises(StoreUnavailableError, match="busy"):
        tries.pause(Failure(ServerError(code), "committing", lost=False))


@pytest.mark.parametrize("stage", ["working", "committing"])
def test_a_lost_connection_is_replaced_a_few_times(stage: str) -> None:
    tries = retries()
    for _ in range(3):
        assert tries.pause(Failure(ServerError(None), stage, lost=True)) == 0
    with pytest.raises(StoreUnavailableError, match="broke"):
        tries.pause(Failure(ServerError(None), stage, lost=True))


def test_what_may_have_been_done_is_not_done_again() -> None:
    tries = retries(repeatable=False)
    assert tries.pause(Failure(ServerError("57P01"), "working", lost=True)) == 0
    with pytest.raises(StoreUnavailableError, match=r"nobody knows.*Look before you try again"):
        tries.pause(Failure(ServerError("57P01"), "committing", lost=True))


def test_a_silent_server_is_not_waited_for_again() -> None:
    with pytest.raises(StoreUnavailableError):
        retries().pause(Failure(ServerError(None), "working", lost=True, silent=True))
    with pytest.raises(StoreUnavailableError, match="nobody knows"):
        retries(repeatable=False).pause(Failure(ServerError(None), "committing", lost=True, silent=True))


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        ("53100", StoreUnavailableError, "disk of the database is full"),
        ("53300", StoreUnavailableError, "resources"),
        ("25006", StoreUnavailableError, "read-only"),
        ("55P03", StoreUnavailableError, "busy"),
        ("57014", StoreUnavailableError, "busy"),
        ("58030", StoreUnavailableError, "trouble with its disk"),
        ("42501", StoreError, "does not allow"),
        ("42P01", StoreError, "gone"),
        ("3D000", StoreError, "no such database"),
        ("54000", StoreError, "more than the database can hold"),
        ("XX001", SnapshotCorruptError, "damaged"),
        ("99999", StoreError, "refused"),
        (None, StoreError, "refused"),
    ],
)
def test_the_rest_are_typed(code: str | None, kind: type[DragomanError], text: str) -> None:
    with pytest.raises(kind, match=text) as caught:
        retries().pause(Failure(ServerError(code), "working", lost=False))
    assert type(caught.value) is kind
    assert "the server's words" in str(caught.value)
    assert caught.value.hint


def test_a_password_is_not_repeated() -> None:
    failure = Failure(ServerError(None, "no host 'pa55word@db'"), "connecting", lost=True)
    with pytest.raises(StoreUnavailableError, match="no host '…@db'"):
        retries(hide="pa55word").pause(failure)
