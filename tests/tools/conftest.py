from __future__ import annotations

import pytest

from tests.tools.cases import Runner, run_async, run_plain


@pytest.fixture(params=[run_plain, run_async], ids=["plain", "async"])
def execute_all(request: pytest.FixtureRequest) -> Runner:
    """Each test that asks for it runs in both colours."""
    return request.param
