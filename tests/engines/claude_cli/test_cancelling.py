"""A reply that nobody wants to the end, at every event of it: the conversation goes on, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.chat import AsyncChatClient, ChatClient
from dragoman.conversation import Conversation, Event, Message, TextDelta, ToolCall
from dragoman.engines import AsyncClaudeEngine, ClaudeEngine
from dragoman.simulator import Chunking, Reply, Request, Simulator
from dragoman.tools import tool
from tests.engines.claude_cli.programs import BEGINS, CALM, LINGERS, OPENS_TEXT, SPEAKS, START, Programs, programs
from tests.engines.claude_cli.stages import as_the_program_names_them
from tests.processes import children

__all__ = ["programs"]


@tool
def weather(city: str) -> str:
    """What the weather is like."""
    return f"rain in {city}"


def answering(request: Request) -> Any:
    if b"And you?" in request.raw:
        return "Fine."
    if request.tool_results:
        return Reply("It rains, and it will rain.", chunking=Chunking(delta=9))
    if "eather" in request.last_user_text:
        return Reply("I look.", ToolCall("c1", "weather", '{"city": "Lyon"}'), chunking=Chunking(delta=4))
    return "Hello."


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator(as_the_program_names_them(answering)) as running:
        yield running


@pytest.fixture(autouse=True)
def _leaves_nothing() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before


def options(programs: Programs, simulator: Simulator) -> dict[str, Any]:
    return {
        "settings": programs.acting(),
        "key": "k",
        "base_url": simulator.base_url("anthropic"),
        "timeouts": CALM,
    }


EVENTS = 26
"""More than the turn has: the last numbers let it come to its end."""


@pytest.mark.parametrize("count", range(EVENTS))
def test_cancelled_after_any_event(count: int, programs: Programs, simulator: Simulator) -> None:
    with ClaudeEngine("m", **options(programs, simulator)) as engine, ChatClient(engine, [weather]) as client:
        seen: list[Event] = []

        def stop(event: Event) -> bool:
            seen.append(event)
            return len(seen) <= count

        client.stream_chat("Weather in Lyon?", stop)
        assert client.conversation.is_valid
        assert client.chat("And you?").text == "Fine."
        assert client.conversation.is_valid


@pytest.mark.parametrize("count", range(0, EVENTS, 3))
def test_cancelled_after_any_event_on_a_loop(count: int, programs: Programs, simulator: Simulator) -> None:
    async def main() -> None:
        async with AsyncClaudeEngine("m", **options(programs, simulator)) as engine:
            client = AsyncChatClient(engine, [weather])
            seen: list[Event] = []

            def stop(event: Event) -> bool:
                seen.append(event)
                return len(seen) <= count

            await client.stream_chat("Weather in Lyon?", stop)
            assert client.conversation.is_valid
            assert (await client.chat("And you?")).text == "Fine."
            await client.aclose()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_what_was_cut_off_is_told_to_the_next_program(programs: Programs, simulator: Simulator) -> None:
    before = children()
    with ClaudeEngine("m", **options(programs, simulator)) as engine, ChatClient(engine, [weather]) as client:
        client.stream_chat("Weather in Lyon?", lambda event: not isinstance(event, TextDelta))
        assert children() == before  # it was killed, with all that it had started
        client.chat("And you?")
        assert "interrupted" in simulator.requests[-1].raw.decode()


@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.05, 0.1, 0.2, 0.4])
def test_a_task_that_is_cancelled_at_any_time(seconds: float, programs: Programs) -> None:
    async def main() -> None:
        settings = programs.playing([*START, BEGINS, OPENS_TEXT, SPEAKS, LINGERS])
        async with AsyncClaudeEngine("m", settings=settings, timeouts=CALM) as engine:
            asking = asyncio.create_task(engine.reply(Conversation().plus(Message.user("Hello"))))
            await asyncio.sleep(seconds)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_stream_that_is_never_read(programs: Programs, simulator: Simulator) -> None:
    with ClaudeEngine("m", **options(programs, simulator)) as engine:
        with engine.stream(Conversation().plus(Message.user("Hello"))):
            pass
        assert not simulator.requests
