"""A local model whose words are scripted: the simulator stands in for the program that runs one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.engines.local import server
from dragoman.engines.local.process import Launch
from dragoman.errors import LocalModelError
from dragoman.simulator import Simulator
from tests.engines.local.test_models import gguf


class Program:
    """What stands in for the child."""

    def __init__(self, address: str, launch: Launch) -> None:
        self.address, self.key, self.launch = address, "the-child's-key", launch
        self.alive = True
        self.pid = 0

    hopeless: LocalModelError | None = None

    def ends_within(self, _seconds: float) -> bool:
        return not self.alive

    def stop(self) -> None:
        self.alive = False


class Stand:
    """A simulator that is run as if it were a model."""

    def __init__(self, simulator: Simulator, model: str) -> None:
        self.simulator = simulator
        self.model = model
        self.programs: list[Program] = []

    def start(self, launch: Launch) -> Program:
        address = self.simulator.base_url("llamacpp").removesuffix("/v1")
        self.programs.append(Program(address, launch))
        return self.programs[-1]

    @property
    def alive(self) -> int:
        return sum(program.alive for program in self.programs)


@contextmanager
def scripted(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **head: Any) -> Iterator[Stand]:
    """A model of this script; its name is `stand.model`."""
    file = gguf(tmp_path / "m.gguf", **head)
    with Simulator(script) as simulator:
        stand = Stand(simulator, f"local:{file}")
        monkeypatch.setattr(server, "start", stand.start)
        monkeypatch.setattr(server, "ensure_installed", lambda: None)
        yield stand
        assert not server._shared, "somebody did not give the model back"
        assert simulator.wait_until_idle()
