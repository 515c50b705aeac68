"""The same scenarios with every provider, in both colours, streamed and not: the same conversations come of them."""

from __future__ import annotations

import pytest

from dragoman.simulator import Simulator
from tests.chat.scenarios import SCENARIOS, check, script
from tests.chat.talking import WAYS, Stage
from tests.engines.talking import MODELS
from tests.rounds import PROFILE


def _chosen() -> list[tuple[str, str, str]]:
    """All of them in a thorough run; else each scenario with every provider in one way, and the ways in turn."""
    ways, chosen = list(WAYS), list[tuple[str, str, str]]()
    for first, scenario in enumerate(SCENARIOS):
        for place, dialect in enumerate(MODELS):
            fitting = ways if PROFILE == "thorough" else [ways[(first + place) % len(ways)]]
            chosen += [(scenario, dialect, way) for way in fitting]
    return chosen


@pytest.mark.parametrize(("scenario", "dialect", "way"), _chosen())
def test_scenario(scenario: str, dialect: str, way: str) -> None:
    told = SCENARIOS[scenario]
    with Simulator(script(told.replies)) as simulator:
        check(told, Stage(simulator, MODELS[dialect], way))
        assert simulator.wait_until_idle()
