from __future__ import annotations

import time
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from dragoman.errors import InvalidSnapshotIDError
from dragoman.stores import ErrInvalidSnapshotID, validate_snapshot_id
from dragoman.stores.snapshot import new_id


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
