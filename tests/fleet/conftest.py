"""The server, a schema of its own for each test, and a simulated provider."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dragoman.simulator import Simulator
from tests.fleet.program import script
from tests.stores.conftest import schema, server

__all__ = ["schema", "server"]


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator(script) as running:
        yield running
