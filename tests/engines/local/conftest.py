"""The mark of tests that run a real model."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "local_model: runs a real model; skipped where its runtime or its file is not here"
    )
