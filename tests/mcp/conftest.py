from __future__ import annotations

import pytest

from tests.mcp.client.colours import COLOURS, Colour, nothing_left
from tests.mcp.server.doors import DOORS, ERAS, Door


@pytest.fixture(params=COLOURS, ids=lambda colour: colour.__name__)
def colour(request: pytest.FixtureRequest) -> Colour:
    return request.param


@pytest.fixture(params=DOORS, ids=lambda door: door.__name__)
def door(request: pytest.FixtureRequest) -> Door:
    return request.param


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


_leaves_nothing = pytest.fixture(autouse=True)(nothing_left)
