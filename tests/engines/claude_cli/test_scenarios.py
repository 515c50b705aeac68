"""The scenarios of the chat client with the claude program: the same conversations come of them as with every API.

Against a stand-in, always; and against the real program, where it is installed. All twelve apply.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from dragoman.simulator import Simulator
from tests.chat import scenarios
from tests.chat.scenarios import SCENARIOS, check
from tests.chat.talking import WAYS
from tests.engines.claude_cli.stages import MODEL, ClaudeStage, claude_script, install_stand_in, real_program
from tests.engines.talking import MODELS
from tests.rounds import PROFILE

REAL = [
    pytest.mark.slow,
    pytest.mark.skipif(real_program() is None, reason="the claude program is not installed: see docs/claude.md"),
]


def _cases() -> Iterator[Any]:
    """The stand-in plays each scenario in every way, the real program in one, all four in turn."""
    for name, turn in zip(SCENARIOS, cycle(WAYS), strict=False):
        for way in WAYS:
            yield pytest.param(name, way, None, id=f"{name}-{way}-stand-in")
            if way == turn or PROFILE == "thorough":
                yield pytest.param(name, way, real_program(), id=f"{name}-{way}-real", marks=REAL)


@pytest.mark.parametrize(("name", "way", "program"), list(_cases()))
def test_scenario(name: str, way: str, program: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an empty home, a PATH with the program and the shell, and three other models to switch to."""
    scenario = SCENARIOS[name]
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
