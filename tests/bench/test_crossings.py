"""A plain turn can be followed: through few files, with few changes of room."""

from __future__ import annotations

import pytest

from bench.crossings import MODELS, cross


@pytest.mark.parametrize("dialect", MODELS)
def test_a_plain_turn_stays_in_few_files(dialect: str) -> None:
    crossed = cross(dialect)
    assert len(crossed.files) <= 18, crossed.files
    assert crossed.changes <= 20, crossed.calls
