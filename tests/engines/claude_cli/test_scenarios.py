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

REAL = pytest.param(
    real_program(),
    id="real",
    marks=[
        pytest.mark.slow,
        pytest.mark.skipif(real_program() is None, reason="the claude program is not installed: see docs/claude.md"),
    ],
)


@pytest.mark.parametrize("program", [pytest.param(None, id="stand-in"), REAL])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_scenario(
    scenario: Scenario, way: str, program: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an empty home, a PATH with the program and the shell, and three other models to switch to."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    others = [MODELS["openai_chat"], MODELS["anthropic"], MODELS["gemini"], MODELS["bedrock"]]
    monkeypatch.setattr(scenarios, "MODELS", {model: model for model in [MODEL, *others]})
    directory = tmp_path / "bin"
    if program is None:
        install_stand_in(directory)
    else:
        directory.mkdir()
        (directory / "claude").symlink_to(program)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
    with Simulator(claude_script(scenario.replies)) as simulator:
        check(scenario, ClaudeStage(simulator, way))
