"""A simulator for the tests of a file, which play their own scripts on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dragoman.simulator import Simulator


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    """What would last until a client gives up lasts a moment here."""
    with Simulator(longest_pause=0.1) as running:
        yield running
