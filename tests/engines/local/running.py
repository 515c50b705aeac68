"""A local model whose words are scripted: the simulator stands in for the program that runs one."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.engines import Engine, engine
from dragoman.engines.local import server
from dragoman.engines.local.server import ModelServer
from dragoman.engines.local.storage import try_lock
from dragoman.simulator import Simulator
from tests.chat.talking import WAYS, AsyncTalk, PlainTalk
from tests.engines.local.test_models import gguf


class Program:
    """What stands in for the child: a lock that is held, and a file about it."""

    def __init__(self, address: str, state: Path, model: Path, context: int) -> None:
        self.context = context
        self._lock = os.open(state.with_suffix(".lock"), os.O_RDWR | os.O_CREAT)
        assert try_lock(self._lock)
        self.server = ModelServer(address=address, key="the-child's-key", pid=0, model=str(model), context=context)
        state.write_bytes(msgspec.json.encode(self.server))
        self._state = os.open(state, os.O_RDWR)
        assert try_lock(self._state)

    def die(self) -> None:
        """As if it were killed: the file stays."""
        if self._lock >= 0:
            os.close(self._lock)
            os.close(self._state)
        self._lock = -1

    def poll(self) -> int:
        """As of the process that was started, which has ended well."""
        return 0

    wait = poll


class Stand:
    """Simulators that are run as if they were models."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs: list[Program] = []
        self._tmp_path = tmp_path
        self._stack = ExitStack()
        monkeypatch.setattr(server, "_directory", lambda: tmp_path / "servers")
        monkeypatch.setattr(server, "_spawn", self.spawn)

    def play(self, script: Any, **head: Any) -> str:
        """A model of this script, by its name."""
        self.simulator = self._stack.enter_context(Simulator(script))
        return f"local:{gguf(self._tmp_path / 'm.gguf', **head)}"

    def talk(self, script: Any, way: str, tools: Sequence[Any] = (), **options: Any) -> PlainTalk | AsyncTalk:
        """A chat with a model of this script."""
        kind, streamed = WAYS[way]
        made = kind(self.play(script), tools, streamed=streamed, **options)
        self._stack.callback(made.close)
        return made

    def engine(self, script: Any, head: dict[str, Any] | None = None, **options: Any) -> Engine:
        """An engine for a model of this script."""
        return self._stack.enter_context(engine(self.play(script, **(head or {})), **options))

    def spawn(self, state: Path, model: Path, context: int) -> Program:
        address = self.simulator.base_url("llamacpp").removesuffix("/v1")
        self.programs.append(Program(address, state, model, context))
        return self.programs[-1]

    @property
    def requests(self) -> list[dict[str, Any]]:
        """What the models were asked."""
        return [json.loads(request.raw) for request in self.simulator.requests]

    def close(self) -> None:
        simulator = self.simulator
        with self._stack:
            for program in self.programs:
                program.die()
        assert simulator.wait_until_idle()
