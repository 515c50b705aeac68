"""A reply that nobody wants to the end, at every event of it: the conversation goes on, and nothing is left behind."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman._stop import Stop, stopping
from dragoman.chat import AsyncChatClient, ChatClient
from dragoman.conversation import Conversation, Event, Message, TextDelta, ToolCall
from dragoman.engines import AsyncClaudeEngine, ClaudeEngine
from dragoman.errors import StoppedError
from dragoman.simulator import Reply, Request, Simulator
from dragoman.tools import tool
from tests.engines.claude_cli.programs import CALM, HANGS, REPLY, Programs, programs
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
        return Reply("It rains, and it will rain.", delta=9)
    if "eather" in request.last_user_text:
        return Reply("I look.", ToolCall("c1", "weather", '{"city": "Lyon"}'), delta=4)
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


HELLO = Conversation().plus(Message.user("Hello"))
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
        settings = programs.playing(HANGS["in a text"])
        async with AsyncClaudeEngine("m", settings=settings, timeouts=CALM) as engine:
            asking = asyncio.create_task(engine.reply(HELLO))
            await asyncio.sleep(seconds)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def read_all(engine: ClaudeEngine, *, streamed: bool) -> str:
    if not streamed:
        return engine.reply(HELLO).message.text
    with engine.stream(HELLO) as stream:
        list(stream)
    return stream.message.text


@pytest.mark.parametrize("how", ["cancelled", "deadline"])
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("steps", HANGS.values(), ids=HANGS.keys())
def test_stopped_from_another_thread(how: str, *, streamed: bool, steps: list[Any], programs: Programs) -> None:
    before = threading.active_count()
    with ClaudeEngine("m", settings=programs.playing(steps), timeouts=CALM) as engine:
        stop = Stop(None if how == "cancelled" else time.monotonic() + 0.3)
        canceller = threading.Timer(0.3 if how == "cancelled" else 30, stop.cancel)
        canceller.start()
        with stopping(stop), pytest.raises(StoppedError) as caught:
            read_all(engine, streamed=streamed)
        canceller.cancel()
        canceller.join()
        assert caught.value.reason == how
        assert threading.active_count() == before
        engine.settings = programs.playing(REPLY)
        assert read_all(engine, streamed=streamed) == "Hi."


def test_the_end_of_a_stopped_program_is_not_waited_for(programs: Programs) -> None:
    took: list[float] = []
    with ClaudeEngine("m", settings=programs.playing(HANGS["in a text"]), timeouts=CALM) as engine:
        for _ in range(3):  # the machine may be busy once
            stop, cancelled = Stop(), [0.0]

            def cancel(stop: Stop = stop, cancelled: list[float] = cancelled) -> None:
                cancelled[0] = time.monotonic()
                stop.cancel()

            with stopping(stop), pytest.raises(StoppedError), engine.stream(HELLO) as stream:  # noqa: PT012 -- in its midst
                for _event in stream:
                    threading.Timer(0.05, cancel).start()
            took.append(time.monotonic() - cancelled[0])
    assert min(took) < 0.2


def test_a_stream_that_is_never_read(programs: Programs, simulator: Simulator) -> None:
    with ClaudeEngine("m", **options(programs, simulator)) as engine:
        with engine.stream(HELLO):
            pass
        assert not simulator.requests
