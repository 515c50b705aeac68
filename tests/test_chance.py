"""Chance: within its bounds, and not the same twice."""

from __future__ import annotations

import os
from statistics import mean

import pytest

from dragoman._chance import chance


def test_it_is_spread_over_all_of_its_range() -> None:
    found = [chance() for _ in range(2_000)]
    assert all(0 <= each < 1 for each in found)
    assert len(set(found)) > 1_990
    assert 0.4 < mean(found) < 0.6
    assert min(found) < 0.05
    assert max(found) > 0.95


@pytest.mark.parametrize(("bits", "expected"), [(b"\x00" * 7, 0.0), (b"\xff" * 7, 1 - 2**-53)])
def test_the_ends_of_the_range(bits: bytes, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda _: bits)
    assert chance() == expected < 1
