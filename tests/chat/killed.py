"""A chat that kills itself at a given place: `python -m tests.chat.killed store log where idempotent`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from dragoman.chat import ChatClient
from dragoman.conversation import Message, ToolCall, ToolResult
from dragoman.engines import ScriptedEngine
from dragoman.loop import LoopHooks, LoopRun
from dragoman.stores import SqliteStore
from dragoman.tools import Tool, tool

ADDING = Message.assistant(ToolCall("c1", "add", '{"a": 1, "b": 2}'))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def logging_tool(log: Path, *, idempotent: bool, dies: bool = False) -> Tool[..., Any]:
    """Adds, and writes down that it ran."""

    @tool(idempotent=idempotent)
    def add(a: int, b: int) -> int:
        """The sum of two numbers."""
        with log.open("a") as file:
            file.write("ran\n")
        if dies:
            die()
        return a + b

    return add


class Dying(LoopHooks):
    """Ends the process at one of the phases."""

    def __init__(self, where: str) -> None:
        self.where = where

    def before_tools(self, run: LoopRun, calls: tuple[ToolCall, ...]) -> None:
        if self.where == "before the tool":
            die()

    def after_tools(self, run: LoopRun, results: tuple[ToolResult, ...]) -> None:
        if self.where == "after the tool":
            die()


def main(store: str, log: str, where: str, idempotent: str) -> None:
    def first(_call: Any) -> Message:
        if where == "in the model's reply":
            die()
        return ADDING

    def second(_call: Any) -> str:
        die()
        return ""

    tools = [logging_tool(Path(log), idempotent=idempotent == "True", dies=where == "in the tool")]
    ChatClient(ScriptedEngine([first, second]), tools, store=SqliteStore(store), hooks=[Dying(where)]).chat("Add.")


if __name__ == "__main__":
    main(*sys.argv[1:])
