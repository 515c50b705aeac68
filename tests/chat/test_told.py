"""A crash inside a turn is told, however deep and however the turn is taken; the model reads what it always read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dragoman import AsyncChatClient, ChatClient, ToolCall, agent_tool, tool
from dragoman.simulator import Reply, Simulator
from tests.logs import crashes, never_set_up


@tool
def broken() -> str:
    """Fail."""
    raise LookupError("no such row")


@tool
async def abroken() -> str:
    """Fail."""
    raise LookupError("no such row")


def plain(model: str, tools: Any, place: Any) -> None:
    with ChatClient(model, tools, **place) as talk:
        talk.chat("Go.")


def streamed(model: str, tools: Any, place: Any) -> None:
    with ChatClient(model, tools, **place) as talk, talk.stream_chat("Go.") as stream:
        for _ in stream:
            pass


def on_a_loop(model: str, tools: Any, place: Any) -> None:
    async def main() -> None:
        async with AsyncChatClient(model, tools, **place) as talk:
            await talk.chat("Go.")

    asyncio.run(main())


def in_a_notebook(model: str, tools: Any, place: Any) -> None:
    async def cell() -> None:
        plain(model, tools, place)

    asyncio.run(cell())


@pytest.mark.parametrize("crashing", [broken, abroken])
@pytest.mark.parametrize("take", [plain, streamed, on_a_loop, in_a_notebook])
@pytest.mark.parametrize("depth", [0, 2])
def test_a_crash_is_told_once_in_a_turn(take: Callable[..., None], crashing: Any, depth: int) -> None:
    def answer(request: Any) -> Reply:
        [offered] = [each["function"]["name"] for each in request.body["tools"]]
        calls = sum([each["role"] == "tool" for each in request.body["messages"]])
        if calls < (2 if offered == crashing.name else 1):
            return Reply(ToolCall(f"c{calls}", offered, "{}" if offered == crashing.name else '{"prompt": "x"}'))
        return Reply("It did not work.")

    with Simulator(answer) as simulator, never_set_up() as stderr:
        place: Any = {"key": "k", "base_url": simulator.base_url("openai")}
        tools = [crashing]
        for level in range(depth):
            tools = [agent_tool(f"agent{level}", "Ask.", "openai:gpt-4o", tools, **place)]
        take("openai:gpt-4o", tools, place)
    assert crashes(stderr) == [f"tool {crashing.name} crashed", "LookupError: no such row"]
    texts = [each["content"] for sent in simulator.requests for each in sent.body["messages"] if each["role"] == "tool"]
    assert f"Error: executing tool '{crashing.name}': LookupError: no such row" in texts
    assert not any("Traceback" in text for text in texts)
