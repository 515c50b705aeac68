"""A local model whose words are scripted: the simulator stands in for the program that runs one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.engines.local import server
from dragoman.engines.local.server import ModelServer
from dragoman.engines.local.storage import try_lock
from dragoman.simulator import Simulator
from tests.engines.local.test_models import gguf


class Program:
    """What stands in for the child: a lock that is held, and a file about it."""

    def __init__(self, address: str, state: Path, model: Path, context: int) -> None:
        self.context = context
        self._lock = os.open(state.with_suffix(".lock"), os.O_RDWR | os.O_CREAT)
        assert try_lock(self._lock)
        self.server = ModelServer(address=address, key="the-child's-key", pid=0, model=str(model), context=context)
        state.write_bytes(msgspec.json.encode(self.server))

    def die(self) -> None:
        """As if it were killed: the file stays."""
        os.close(self._lock)
        self._lock = -1

    def poll(self) -> int:
        """As of the process that was started, which has ended well."""
        return 0

    wait = poll


class Stand:
    """A simulator that is run as if it were a model."""

    def __init__(self, simulator: Simulator, model: str) -> None:
        self.simulator = simulator
        self.model = model
        self.programs: list[Program] = []

    def spawn(self, state: Path, model: Path, context: int) -> Program:
        address = self.simulator.base_url("llamacpp").removesuffix("/v1")
        self.programs.append(Program(address, state, model, context))
        return self.programs[-1]


@contextmanager
def scripted(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **head: Any) -> Iterator[Stand]:
    """A model of this script; its name is `stand.model`."""
    file = gguf(tmp_path / "m.gguf", **head)
    with Simulator(script) as simulator:
        stand = Stand(simulator, f"local:{file}")
        monkeypatch.setattr(server, "_directory", lambda: tmp_path / "servers")
        monkeypatch.setattr(server, "_spawn", stand.spawn)
        monkeypatch.setattr(server, "ensure_installed", lambda: None)
        try:
            yield stand
        finally:
            for program in stand.programs:
                if program._lock >= 0:
                    program.die()
        assert simulator.wait_until_idle()
