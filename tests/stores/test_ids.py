from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import InvalidSnapshotIDError
from dragoman.stores import ErrInvalidSnapshotID, snapshot, validate_snapshot_id
from dragoman.stores.snapshot import new_id


@pytest.fixture(autouse=True)
def time_goes_on_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests look into the future; the ids of other tests should not start from there."""
    monkeypatch.setattr(snapshot, "_last", snapshot._last)


def test_new_ids_are_canonical_uuids_of_version_7() -> None:
    made = new_id()
    validate_snapshot_id(made)
    assert str(UUID(made)) == made
    assert UUID(made).version == 7
    assert UUID(made).variant == "specified in RFC 4122"


def test_they_carry_the_time() -> None:
    # Far in the future, so that it is later than any id of this process.
    made = new_id(clock=lambda: 9_000_000_000_123 * 1_000_000 + 456)
    assert UUID(made).int >> 80 == 9_000_000_000_123


def test_later_ids_are_greater_also_when_the_clock_stands_or_goes_back() -> None:
    times = iter([9_100_000_000_000, 9_100_000_000_000, 9_050_000_000_000, 9_100_000_000_001] * 500)
    made = [new_id(clock=lambda: next(times) * 1_000_000) for _ in range(2000)]
    assert made == sorted(set(made))


def test_they_do_not_run_out_within_a_millisecond() -> None:
    made = [new_id(clock=lambda: 9_200_000_000_000 * 1_000_000, random=lambda n: b"\xff" * n) for _ in range(100)]
    assert made == sorted(set(made))
    for each in made:
        validate_snapshot_id(each)


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
