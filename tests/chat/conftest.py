from __future__ import annotations

from pathlib import Path

import pytest

from tests.chat.surroundings import Surroundings


@pytest.fixture
def here(tmp_path: Path) -> Surroundings:
    """A user and a project in a directory of their own."""
    return Surroundings(tmp_path)
