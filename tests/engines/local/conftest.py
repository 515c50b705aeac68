"""The programs that run models for these tests are their own, and are not kept in memory for long."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.engines.local import server
from tests.engines.local.running import Stand

os.environ.setdefault("DRAGOMAN_LOCAL_IDLE", "30")


@pytest.fixture(scope="session", autouse=True)
def _own_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        directory = tmp_path_factory.mktemp("cache") / "dragoman" / "servers"  # as of a program with this cache
        patch.setattr(server, "_directory", lambda: directory)
        yield
        server.stop_models()


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    """Models whose words are scripted."""
    made = Stand(tmp_path, monkeypatch)
    yield made
    made.close()
