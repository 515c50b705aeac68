"""The fixture `simulator`, for users' tests.

In the conftest.py of your tests:

    pytest_plugins = ["dragoman.simulator.pytest_plugin"]

and in a test:

    def test_greeting(simulator):
        simulator.play(["Hello!"])
        ...  # a client with base_url=simulator.base_url("openai") gets "Hello!"
        assert simulator.requests[0].last_user_text == "Hi"
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .server import Simulator


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    """A running simulator. It repeats what the user said until `simulator.play(...)` gives it a script."""
    with Simulator() as running:
        yield running
