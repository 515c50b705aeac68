"""What tests of the claude program share: programs in an empty home, a model behind them, and nothing left of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.conversation import ToolCall
from dragoman.simulator import Reply, Request, Simulator
from tests.engines.claude_cli.programs import Programs
from tests.engines.claude_cli.stages import as_the_program_names_them
from tests.processes import children


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    return Programs(tmp_path)


@pytest.fixture(autouse=True)
def _leaves_nothing() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before, "a program, or what is left of it, is still there"


def _answer(request: Request) -> Any:
    """Looks at the weather if asked about it, and else counts."""
    if b"And you?" in request.raw:
        return "Fine."
    if request.tool_results:
        return Reply("It rains, and it will rain.", delta=9)
    if "eather" in request.last_user_text.rpartition("</conversation>")[2]:
        look = ToolCall(f"c{request.number}", "weather", '{"city": "Lyon"}')
        return Reply("I look.", look, delta=4)
    return f"Answer {request.number}."


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator(as_the_program_names_them(_answer)) as running:
        yield running
