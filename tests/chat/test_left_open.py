"""Streams that are still open when their event loop ends: each is closed once, in order, without a complaint."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman import AsyncChatClient, AsyncOrchestrator, Conversation, Message, ToolCall, agent_tool, tool
from dragoman._observer import observe
from dragoman.engines import async_engine
from dragoman.simulator import Reply, Simulator

SOURCES = Path(str(dragoman.__file__)).parent


@tool
async def look() -> str:
    """Look."""
    await asyncio.sleep(0)
    return "nothing"


class Observation:
    """Observes everything and keeps nothing, so that runs are wrapped."""

    def run(self, *_: object, **_more: object) -> Observation:
        return self

    model_call = tool_call = save = run

    def enter(self) -> object:
        return None

    def leave(self, before: object) -> None: ...

    def mark(self) -> None: ...

    def reference(self) -> Mapping[str, str]:
        return {}

    def end(self, *_: object, **_more: object) -> None: ...


def client(url: str) -> AsyncChatClient:
    research = agent_tool("research", "Ask.", "openai:gpt-4o", [look], key="k", base_url=url)
    return AsyncChatClient("openai:gpt-4o", [look, research], key="k", base_url=url)


def typed(url: str) -> AsyncIterator[object]:
    return aiter(client(url).stream_chat("Go.", answer=str))


def plain(url: str) -> AsyncIterator[object]:
    return aiter(client(url).stream_chat("Go."))


def orchestrated(url: str) -> AsyncIterator[object]:
    made = AsyncOrchestrator(async_engine("openai:gpt-4o", key="k", base_url=url), [look])
    return aiter(made.stream(Conversation().plus(Message.user("Go."))))


def asked(url: str) -> AsyncIterator[object]:
    engine = async_engine("openai:gpt-4o", key="k", base_url=url)
    return aiter(engine.stream(Conversation().plus(Message.user("Go."))))


def answer(request: Any) -> Reply:
    roles = [each["role"] for each in request.body["messages"]]
    if roles.count("tool") == 0:
        names = [each["function"]["name"] for each in request.body.get("tools", ())]
        return Reply(
            "I look.",
            *[
                ToolCall(f"c{index}", name, '{"prompt": "x"}' if name == "research" else "{}")
                for index, name in enumerate(names)
            ],
        )
    return Reply("There is nothing to be seen.")


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("kind", [plain, typed, orchestrated, asked])
def test_a_stream_left_after_any_event_is_closed_with_its_loop(
    kind: Callable[[str], AsyncIterator[object]], caplog: pytest.LogCaptureFixture, *, observed: bool
) -> None:
    kept: list[object] = []

    async def leave(url: str, after: int) -> bool:
        events = kind(url)
        kept.append(events)  # else it would be closed as garbage
        for _ in range(after):
            if await anext(events, None) is None:
                return False
        return True

    observe(Observation() if observed else None)  # type: ignore[arg-type]
    try:
        with Simulator(answer) as simulator:
            count = 0
            while asyncio.run(leave(simulator.base_url("openai"), count + 1)):
                count += 1
    finally:
        observe(None)
    assert count > 3
    assert [each.message for each in caplog.records if each.name == "asyncio"] == []
    kept.clear()
    gc.collect()  # here, where the connections of clients that nobody has closed may be dropped


def test_a_turn_whose_loop_ends_before_its_task_is_closed_with_it(caplog: pytest.LogCaptureFixture) -> None:
    with Simulator(lambda _: Reply("x", ToolCall("1", "look", "{}"))) as simulator:
        talk = client(simulator.base_url("openai"))
        loop = asyncio.new_event_loop()
        task = loop.create_task(talk.chat("Go."))
        loop.run_until_complete(asyncio.sleep(0.001))
        loop.run_until_complete(loop.shutdown_asyncgens())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.run_until_complete(talk.aclose())
        loop.close()
    assert [each.message for each in caplog.records if each.name == "asyncio"] == []


def test_no_generator_is_read_inside_another_one_but_as_an_inner_one() -> None:
    """`Inner` keeps it from the event loop; `aclosing` does not."""
    for file in SOURCES.rglob("*.py"):
        assert not re.search(r"import .*\baclosing\b", file.read_text(encoding="utf-8")), f"{file.name}: use Inner"
