"""What is kept of how a turn went, and the timeline that is made of it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from dragoman import AsyncChatClient, ChatClient, Conversation, MemoryStore, Message, Text, ToolCall, ToolResult, tool
from dragoman.conversation import TextDelta, conversation_from_json, conversation_to_json
from dragoman.simulator import Drip, Reply, Simulator, Status
from dragoman.stores import AsyncStore, resume
from dragoman.web import Turn, timeline


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


SCRIPT = [
    Status(503, headers={"retry-after": "0"}),
    Reply(ToolCall("1", "weather", '{"city": "Lyon"}'), ToolCall("2", "weather", '{"city": "Oslo"}')),
    "Take a coat.",
]


def options(simulator: Simulator) -> dict[str, Any]:
    return {"key": "any", "base_url": simulator.base_url("openai")}


def plain(simulator: Simulator, store: MemoryStore) -> Conversation:
    with ChatClient("openai:gpt-4o", [weather], store=store, **options(simulator)) as client:
        with client.stream_chat("The weather?") as stream:
            for _ in stream:
                pass
        return resume(store, client.id or "").conversation


def on_a_loop(simulator: Simulator, store: MemoryStore) -> Conversation:
    async def talk() -> Conversation:
        kept = AsyncStore(store)
        async with AsyncChatClient("openai:gpt-4o", [weather], store=kept, **options(simulator)) as client:
            async with client.stream_chat("The weather?") as stream:
                async for _ in stream:
                    pass
            found = resume(store, client.id or "").conversation
        kept._workers().shutdown()
        return found

    return asyncio.run(talk())


@pytest.mark.parametrize("colour", [plain, on_a_loop])
def test_timeline_of_a_stored_turn(colour: Any) -> None:
    with Simulator(SCRIPT) as simulator, MemoryStore() as store:
        talk = colour(simulator, store)
    [turn] = timeline(conversation_from_json(conversation_to_json(talk)))
    first, *tools, last = turn.spans
    assert [span.kind for span in turn.spans] == ["model", "tool", "tool", "model"]
    failed, done = first.attempts
    assert (failed.status, done.outcome) == (503, "ok")
    assert failed.start <= failed.end <= done.start <= (first.first_token or 0.0) <= done.end
    for span in turn.spans:
        assert span.start is not None
        assert span.end is not None
        assert 0 <= span.start <= span.end <= turn.seconds
    assert all((first.end or 0) <= (each.start or 0) + 0.05 <= (last.start or 0) + 0.1 for each in tools)


def test_timeline_includes_a_stopped_answer() -> None:
    slow = Reply("word " * 500, faults=[Drip(200, 0.01)])
    with (
        Simulator([slow]) as simulator,
        MemoryStore() as store,
        ChatClient("openai:gpt-4o", store=store, **options(simulator)) as client,
    ):
        with client.stream_chat("Talk.") as stream:
            for event in stream:
                if isinstance(event, TextDelta):
                    stream.cancel()
        [turn] = timeline(client.conversation)
    assert turn.spans[0].failed
    assert turn.seconds > 0


def test_timeline_without_times() -> None:
    with Simulator(["Hello."]) as simulator, ChatClient("openai:gpt-4o", **options(simulator)) as client:
        client.chat("Hi")
        assert client.history[-1].account is None
    old = Conversation(messages=(Message.user("Hi"), Message.assistant("Hello."), Message.user("unanswered")))
    [turn] = timeline(old)
    assert turn == Turn(message=0, title="Hi", spans=turn.spans)
    assert [(span.start, span.end) for span in turn.spans] == [(None, None)]


def test_time_without_zone_is_utc() -> None:
    calls = [ToolCall(name, "look", "{}") for name in ("a", "b")]
    began = datetime(2024, 5, 1, 12, tzinfo=UTC)
    results = [
        ToolResult("a", "look", (Text("x"),), began=began, duration=1.0),
        ToolResult("b", "look", (Text("x"),), began=began.replace(tzinfo=None, second=2), duration=1.0),
    ]
    talk = Conversation().plus(Message.user("look"), Message.assistant(*calls), Message.tool(results))
    [turn] = timeline(talk)
    assert (turn.began, turn.seconds) == (began, 3.0)
