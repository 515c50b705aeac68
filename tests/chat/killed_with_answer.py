"""A chat that is asked for a value and kills itself: `python -m tests.chat.killed_with_answer store log where`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman.chat import ChatClient
from dragoman.conversation import Message, ToolCall
from dragoman.engines import Reply, ScriptedEngine
from dragoman.loop import LoopHooks, LoopRun
from dragoman.stores import SqliteStore
from dragoman.tools import Tool, tool
from tests.chat.killed import die


@dataclass
class Place:
    """A place and its weather."""

    city: str
    rainy: bool


GOOD = '{"city":"Lyon","rainy":true}'
WRONG = '{"city":"Lyon"}'


def logging_tool(log: Path) -> Tool[..., Any]:
    """Tells the weather, and writes down that it ran."""

    @tool
    def weather(city: str) -> str:
        """What the weather is like."""
        with log.open("a") as file:
            file.write("ran\n")
        return f"rain in {city}"

    return weather


class Dying(LoopHooks):
    """Ends the process when the model has answered, and the answer is kept."""

    def after_model(self, run: LoopRun, reply: Reply) -> None:
        if reply.message.text == GOOD:
            die()


def main(store: str, log: str, where: str) -> None:
    def dying(_call: Any) -> str:
        die()
        return ""

    looks = Message.assistant(ToolCall("c1", "weather", '{"city": "Lyon"}'))
    replies = [looks, GOOD] if where == "after the answer" else [looks, WRONG, dying]
    hooks = [Dying()]
    client = ChatClient(ScriptedEngine(replies), [logging_tool(Path(log))], store=SqliteStore(store), hooks=hooks)
    client.chat("Weather in Lyon?", answer=Place)


if __name__ == "__main__":
    main(*sys.argv[1:])
