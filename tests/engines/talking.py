"""Talking to the simulator in all dialects and both colours, written once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from dragoman.conversation import Conversation, Message, ReplyEvent
from dragoman.engines import AsyncEngine, Reply, async_engine, engine
from dragoman.errors import DragomanError
from dragoman.simulator import Simulator
from dragoman.transport import RetryPolicy, Timeouts

MODELS = {
    "openai_chat": "openai:gpt-4o",
    "openai_responses": "openai-responses:gpt-5-mini",
    "anthropic": "anthropic:claude-sonnet-4-5",
    "gemini": "gemini:gemini-2.5-flash",
    "bedrock": "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0",
}
"""A model for each dialect."""

ASKED = Conversation("Be brief.").plus(Message.user("Hello"))
ONCE = RetryPolicy(max_attempts=1)
IMPATIENT = Timeouts(connect=5.0, read=0.5, total=20.0)


class Outcome(NamedTuple):
    """What a caller has in hand afterwards."""

    reply: Reply | None
    """None: nothing came back but the error."""
    events: list[ReplyEvent]
    error: Any


Talk = Callable[..., Outcome]


def ask_plain(make: Callable[[], Any], conversation: Conversation, *, stream: bool, **asked: Any) -> Outcome:
    """Ask an engine of a plain program; what was received before an error counts."""
    events: list[ReplyEvent] = []
    streaming: Any = None
    with make() as talker:
        try:
            if not stream:
                return Outcome(talker.reply(conversation, **asked), [], None)
            with talker.stream(conversation, **asked) as streaming:
                events.extend(streaming)
        except DragomanError as error:
            return Outcome(streaming and streaming.reply, events, error)
        return Outcome(streaming.reply, events, None)


def ask_on_loop(make: Callable[[], Any], conversation: Conversation, *, stream: bool, **asked: Any) -> Outcome:
    """Ask an engine on an event loop, on which no task may be left behind."""
    events: list[ReplyEvent] = []

    async def main() -> Outcome:
        streaming: Any = None
        async with make() as talker:
            try:
                if not stream:
                    return Outcome(await talker.reply(conversation, **asked), [], None)
                async with talker.stream(conversation, **asked) as streaming:
                    async for event in streaming:
                        events.append(event)  # noqa: PERF401 -- what came before an error counts
            except DragomanError as error:
                return Outcome(streaming and streaming.reply, events, error)
            return Outcome(streaming.reply, events, None)

    async def checked() -> Outcome:
        outcome = await main()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left behind: {left}"
        return outcome

    return asyncio.run(checked())


def close_both(talk: Any, made: Any) -> None:
    """Close a talk (see tests.chat.talking) and the engine that it was given."""
    if isinstance(made, AsyncEngine):
        talk.runner.run(made.aclose())
    else:
        made.close()
    talk.close()


def split_asked(more: dict[str, Any]) -> dict[str, Any]:
    """What belongs to the call, taken out of what belongs to the engine."""
    return {"tools": more.pop("tools", ()), "options": more.pop("ask", None)}


def _way(make: Any, ask: Talk, *, stream: bool) -> Talk:
    def way(simulator: Simulator, model: str, conversation: Conversation = ASKED, **more: Any) -> Outcome:
        asked, base_url = split_asked(more), simulator.base_url(model.partition(":")[0])
        options = {"base_url": base_url, "key": "test-key", "retry": ONCE, "timeouts": IMPATIENT, **more}
        return ask(lambda: make(model, **options), conversation, stream=stream, **asked)

    way.__name__ = "stream" if stream else "whole"
    return way


plain_whole, plain_stream = [_way(engine, ask_plain, stream=stream) for stream in (False, True)]
async_whole, async_stream = [_way(async_engine, ask_on_loop, stream=stream) for stream in (False, True)]
WAYS: dict[str, Talk] = {
    "plain-whole": plain_whole,
    "plain-stream": plain_stream,
    "async-whole": async_whole,
    "async-stream": async_stream,
}

every_dialect = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
