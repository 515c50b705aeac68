"""A chat with many tools of the moment that kills itself: `python -m tests.chat.killed_moment store where`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from dragoman import RunContext
from dragoman.chat import ChatClient
from dragoman.conversation import Message, ToolCall
from dragoman.engines import ScriptedEngine
from dragoman.loop import LoopHooks, LoopRun
from dragoman.stores import SqliteStore
from dragoman.tools import AnyTool, Tool, ToolConfig

LOOKING = Message.assistant(ToolCall("c1", "find_tools", '{"query": "send mail", "limit": 1}'))
MANY = ToolConfig(search=5)


def _make(name: str) -> AnyTool:
    return Tool.from_schema(lambda: f"{name} done", name=name, description=name.replace("_", " "))


TOOLS = [_make(f"{what}_{thing}") for what in ("send", "delete", "count") for thing in ("mail", "file", "page")]


def tools(_run: RunContext[Any]) -> list[AnyTool]:
    """The tools of any moment."""
    return TOOLS


class Dying(LoopHooks):
    """Ends the process in the middle of a search, or when its result is known."""

    def __init__(self, where: str) -> None:
        self.where = where

    def tool_started(self, run: LoopRun, call: ToolCall) -> None:
        if self.where == "in the search":
            os.kill(os.getpid(), signal.SIGKILL)

    def before_model(self, run: LoopRun) -> None:
        if self.where == "after the search" and run.replies:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    path, place = sys.argv[1:]
    ChatClient(ScriptedEngine([LOOKING]), tools, tool_config=MANY, store=SqliteStore(path), hooks=[Dying(place)]).chat(
        "Send it."
    )
