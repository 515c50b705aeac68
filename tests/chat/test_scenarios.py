"""The same scenarios with every provider, in both colours, streamed and not: the same conversations come of them."""

from __future__ import annotations

import pytest

from dragoman.simulator import Simulator
from tests.chat.scenarios import SCENARIOS, Scenario, check, script
from tests.chat.talking import WAYS, Stage
from tests.engines.talking import MODELS


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_scenario(scenario: Scenario, model: str, way: str) -> None:
    with Simulator(script(scenario.replies)) as simulator:
        check(scenario, Stage(simulator, model, way))
        assert simulator.wait_until_idle()
