from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.mcp.client.colours import COLOURS, Colour, nothing_left


@pytest.fixture(params=COLOURS, ids=lambda colour: colour.__name__)
def colour(request: pytest.FixtureRequest) -> Colour:
    return request.param


@pytest.fixture(autouse=True)
def _leaves_nothing() -> Iterator[None]:
    with nothing_left():
        yield
