"""Where the scenarios play with the claude program: the stand-in or the real one, in front of the simulator."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from dragoman.conversation import ToolCall
from dragoman.simulator import Reply, Request, Simulator
from dragoman.transport import Timeouts
from tests.chat.scenarios import script
from tests.chat.talking import Stage
from tests.engines.talking import ONCE

STAND_IN = Path(__file__).with_name("stand_in.py")
MODEL = "claude-local:claude-sonnet-4-5"
PATIENT = Timeouts(connect=10.0, read=60.0, total=120.0)

_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>\s*", re.DOTALL)


def real_program() -> str | None:
    """The real program, where it is installed; see docs/claude.md for the command."""
    root = Path(__file__).resolve().parents[3]
    installed = root / ".dev" / "cache" / "npm" / "claude-code" / "node_modules"
    # The package for this machine: the one above it is a shell around it that needs its install script.
    inside = sorted(installed.glob("@anthropic-ai/claude-code-*/claude"))
    named = os.environ.get("DRAGOMAN_CLAUDE") or next(iter(inside), installed / ".bin" / "claude")
    return shutil.which(str(named))


def install_stand_in(directory: Path) -> Path:
    """A program `claude` in this directory that is the stand-in."""
    directory.mkdir(exist_ok=True)
    program = directory / "claude"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{STAND_IN}" "$@"\n')
    program.chmod(0o755)
    return program


def as_the_program_names_them(said: Callable[[Request], Any]) -> Callable[[Request], Any]:
    """A script whose calls name our tools as the program's model knows them."""

    def named(request: Request) -> Any:
        reply = said(request)
        if not isinstance(reply, Reply):
            return reply
        blocks = [_named(block, request.tools) for block in reply.blocks]
        return Reply(*blocks, delta=reply.delta, usage=reply.usage)

    return named


def _named(block: Any, tools: Sequence[str]) -> Any:
    if isinstance(block, ToolCall) and f"mcp__dragoman__{block.name}" in tools:
        return msgspec.structs.replace(block, name=f"mcp__dragoman__{block.name}")
    return block


class _Seen:
    """The simulator, without what the program asks and adds on its own account."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator

    @property
    def requests(self) -> list[Request]:
        return [
            replace(request, user_texts=tuple(_REMINDER.sub("", text) for text in request.user_texts))
            for request in self._simulator.requests
            if request.dialect != "unknown"
        ]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulator, name)


class ClaudeStage(Stage):
    """A stage on which `claude-local` is reached by way of a program."""

    def __init__(self, simulator: Simulator, way: str) -> None:
        super().__init__(_Seen(simulator), MODEL, way)  # type: ignore[arg-type]

    def base_url(self, model: str) -> str:
        provider = model.partition(":")[0]
        return self.simulator.base_url("anthropic" if provider == "claude-local" else provider)

    def engine_options(self, model: str) -> dict[str, Any]:
        return {"base_url": self.base_url(model), "key": "test-key", "retry": ONCE, "timeouts": PATIENT}


def claude_script(replies: Sequence[Any]) -> Callable[[Request], Any]:
    """A scenario's replies, for a simulator behind the program."""
    return as_the_program_names_them(script(replies))
