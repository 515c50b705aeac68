"""The scenarios of the chat client with the claude program: the same conversations come of them as with every API.

Against a stand-in, always; and against the real program, where it is installed. All twelve apply.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.simulator import Simulator
from tests.chat import scenarios
from tests.chat.scenarios import SCENARIOS, Scenario, check
from tests.chat.talking import WAYS
from tests.engines.claude_cli.stages import MODEL, ClaudeStage, claude_script, install_stand_in, real_program
from tests.engines.talking import MODELS

every_scenario = pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, an empty PATH but for the shell, and three other models to switch to."""
    empty = tmp_path / "home"
    empty.mkdir()
    monkeypatch.setenv("HOME", str(empty))
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    others = [MODELS["openai_chat"], MODELS["anthropic"], MODELS["gemini"]]
    monkeypatch.setattr(scenarios, "MODELS", {model: model for model in [MODEL, *others]})
    return empty


def _play(scenario: Scenario, way: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
    with Simulator(claude_script(scenario.replies)) as simulator:
        check(scenario, ClaudeStage(simulator, way))


@every_way
@every_scenario
def test_scenario_with_a_stand_in(
    scenario: Scenario, way: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = install_stand_in(tmp_path / "bin")
    _play(scenario, way, program.parent, monkeypatch)


@pytest.mark.slow
@pytest.mark.skipif(real_program() is None, reason="the claude program is not installed: see docs/claude.md")
@every_way
@every_scenario
def test_scenario_with_the_real_program(
    scenario: Scenario, way: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "claude").symlink_to(str(real_program()))
    _play(scenario, way, directory, monkeypatch)
