from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.mcp.server.doors import DOORS, ERAS


@pytest.fixture(params=DOORS, ids=lambda door: door.__name__)
def door(request: pytest.FixtureRequest) -> Callable[..., object]:
    return request.param


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param
