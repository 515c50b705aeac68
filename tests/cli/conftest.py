"""A home directory of its own for every test of the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import Surroundings


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    home = tmp_path / "home"
    home.mkdir()
    return Surroundings(home, monkeypatch)
