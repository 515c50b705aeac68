from __future__ import annotations

import pytest

from tests.mcp.client.colours import COLOURS, Colour, nothing_left
from tests.mcp.server.doors import MEETINGS, Door


@pytest.fixture(params=COLOURS, ids=lambda colour: colour.__name__)
def colour(request: pytest.FixtureRequest) -> Colour:
    return request.param


@pytest.fixture(params=MEETINGS, ids=lambda meeting: f"{meeting[0].__name__}-{meeting[1]}")
def meeting(request: pytest.FixtureRequest) -> tuple[Door, str]:
    return request.param


@pytest.fixture
def door(meeting: tuple[Door, str]) -> Door:
    return meeting[0]


@pytest.fixture
def era(meeting: tuple[Door, str]) -> str:
    return meeting[1]


_leaves_nothing = pytest.fixture(autouse=True)(nothing_left)


@pytest.fixture(autouse=True)
def _quick_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.mcp.connection.BACKOFF", 0.01)
