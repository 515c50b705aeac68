"""A chat with an agent that kills itself at a given place: `python -m tests.chat.killed_agents store log where`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from dragoman.chat import ChatClient, agent_tool, handoff
from dragoman.conversation import Message, ToolCall
from dragoman.engines import ScriptedEngine
from dragoman.stores import SqliteStore
from dragoman.tools import AnyTool, tool

ASKING = Message.assistant(ToolCall("c1", "clerk", '{"prompt": "Do it."}'))
TWO_STEPS = [
    Message.assistant(ToolCall("c1", "note", '{"text": "first"}')),
    Message.assistant(ToolCall("c1", "note", '{"text": "second"}')),
]
HANDING = Message.assistant(ToolCall("c1", "clerk", "{}"))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def make_tools(
    log: Path, replies: list[Any], *, dies: str = "", asks: bool = False, hands_over: bool = False
) -> list[AnyTool]:
    """An agent with a tool that writes down that it ran, and may not survive it."""

    @tool(requires_approval=asks)
    def note(text: str) -> str:
        """Write it down."""
        with log.open("a") as file:
            file.write(f"{text}\n")
        if dies == text:
            die()
        return f"noted {text}"

    engine = ScriptedEngine(replies, name="scripted:clerk")
    if hands_over:
        return [handoff("clerk", "Takes over.", engine, [note], system="You are the clerk.")]
    return [agent_tool("clerk", "Does things.", engine, [note])]


def main(store: str, log: str, where: str) -> None:
    def dying(_call: Any) -> str:
        die()
        return ""

    replies: list[Any] = [*TWO_STEPS, "Both are noted."]
    if where == "in the agent's model":
        replies[1] = dying
    if where == "in the caller's model":
        outer: list[Any] = [ASKING, dying]
    elif where == "behind a handoff":
        outer, replies = [HANDING], [dying]
    else:
        outer = [ASKING, "Done."]
    tools = make_tools(
        Path(log),
        replies,
        dies="second" if where == "in the agent's tool" else "",
        asks=where == "at a pause",
        hands_over=where == "behind a handoff",
    )
    ChatClient(ScriptedEngine(outer), tools, store=SqliteStore(store), system="You are the front.").chat("Please.")
    die()


if __name__ == "__main__":
    main(*sys.argv[1:])
