"""Instructions and tools of the moment on a worker, and many tools."""

from __future__ import annotations

from typing import Any

from dragoman import RunContext
from dragoman.conversation import Message, ToolCall
from dragoman.engines import AsyncScriptedEngine
from dragoman.temporal import Agent
from dragoman.tools import FIND_TOOLS, AnyTool, tool
from tests.chat.killed_moment import LOOKING, MANY, TOOLS
from tests.loops import on_loop
from tests.temporal.server import TemporalServer
from tests.temporal.test_conversation import talking


@tool
def log_in(user: str) -> str:
    """Say who you are."""
    return f"hello {user}"


@tool
def read_account() -> str:
    """How much there is."""
    return "17 euros"


def results(run: RunContext[Any]) -> int:
    return sum(len(message.tool_results) for message in run.conversation.messages)


@on_loop
async def test_functions_are_asked_on_the_worker(server: TemporalServer) -> None:
    def of_the_moment(run: RunContext[str]) -> list[AnyTool]:
        return [read_account] if results(run) == 1 else [log_in]

    async def now(run: RunContext[str]) -> str:
        return f"{run.deps} has {results(run)} results."

    script = [
        Message.assistant(ToolCall("c1", "log_in", '{"user": "Ada"}')),
        Message.assistant(ToolCall("c2", "read_account", "{}")),
        "You have 17 euros.",
    ]
    model = AsyncScriptedEngine(script)
    agent = Agent(model, of_the_moment, system=["Be brief.", now], deps="Ada")
    async with talking(server, {"teller": agent}) as talk:
        assert (await talk.say("How much?")).text == "You have 17 euros."
    assert [call.conversation.system for call in model.calls] == [
        f"Be brief.\n\nAda has {count} results." for count in range(3)
    ]
    assert [[spec.name for spec in call.tools] for call in model.calls] == [["log_in"], ["read_account"], ["log_in"]]
    told = [result.text for message in model.calls[-1].conversation.messages for result in message.tool_results]
    assert told == ["hello Ada", "17 euros"]


@on_loop
async def test_many_tools_are_searched_on_the_worker(server: TemporalServer) -> None:
    model = AsyncScriptedEngine([LOOKING, Message.assistant(ToolCall("c2", "send_mail", "{}")), "Sent."])
    async with talking(server, {"clerk": Agent(model, TOOLS, tool_config=MANY)}) as talk:
        assert (await talk.say("How much?")).text == "Sent."
    found = [FIND_TOOLS, "send_mail"]
    assert [[spec.name for spec in call.tools] for call in model.calls] == [[FIND_TOOLS], found, found]
