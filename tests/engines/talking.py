"""Talking to the simulator in all dialects and both colours, written once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from dragoman.conversation import Conversation, Message, ReplyEvent, ToolSpec
from dragoman.engines import EngineOptions, Reply, async_engine, engine
from dragoman.errors import ProviderError
from dragoman.providers import ModelOptions
from dragoman.simulator import Simulator
from dragoman.transport import RetryPolicy, Timeouts

MODELS = {
    "openai_chat": "openai:gpt-4o",
    "openai_responses": "openai-responses:gpt-5-mini",
    "anthropic": "anthropic:claude-sonnet-4-5",
    "gemini": "gemini:gemini-2.5-flash",
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
    error: ProviderError | None


Talk = Callable[..., Outcome]


def _options(simulator: Simulator, model: str, **more: object) -> EngineOptions:
    base_url = simulator.base_url(model.partition(":")[0])
    return {"base_url": base_url, "key": "test-key", "retry": ONCE, "timeouts": IMPATIENT, **more}  # type: ignore[typeddict-item]


def plain_whole(simulator: Simulator, model: str, conversation: Conversation = ASKED, **more: object) -> Outcome:
    tools, options = _asked(more)
    with engine(model, **_options(simulator, model, **more)) as talker:
        try:
            return Outcome(talker.reply(conversation, tools=tools, options=options), [], None)
        except ProviderError as error:
            return Outcome(None, [], error)


def plain_stream(simulator: Simulator, model: str, conversation: Conversation = ASKED, **more: object) -> Outcome:
    tools, options = _asked(more)
    events: list[ReplyEvent] = []
    with engine(model, **_options(simulator, model, **more)) as talker:
        with talker.stream(conversation, tools=tools, options=options) as stream:
            try:
                events.extend(stream)
            except ProviderError as error:
                return Outcome(stream.reply, events, error)
        return Outcome(stream.reply, events, None)


def async_whole(simulator: Simulator, model: str, conversation: Conversation = ASKED, **more: object) -> Outcome:
    tools, options = _asked(more)

    async def main() -> Outcome:
        async with async_engine(model, **_options(simulator, model, **more)) as talker:
            try:
                return Outcome(await talker.reply(conversation, tools=tools, options=options), [], None)
            except ProviderError as error:
                return Outcome(None, [], error)

    return _run(main)


def async_stream(simulator: Simulator, model: str, conversation: Conversation = ASKED, **more: object) -> Outcome:
    tools, options = _asked(more)

    async def main() -> Outcome:
        events: list[ReplyEvent] = []
        async with async_engine(model, **_options(simulator, model, **more)) as talker:
            async with talker.stream(conversation, tools=tools, options=options) as stream:
                try:
                    async for event in stream:
                        events.append(event)  # noqa: PERF401 -- what came before an error counts
                except ProviderError as error:
                    return Outcome(stream.reply, events, error)
            return Outcome(stream.reply, events, None)

    return _run(main)


def _asked(more: dict[str, object]) -> tuple[Sequence[ToolSpec], ModelOptions | None]:
    return more.pop("tools", ()), more.pop("ask", None)  # type: ignore[return-value]


def _run(main: Callable[[], object]) -> Outcome:
    async def checked() -> object:
        outcome = await main()  # type: ignore[misc]
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left behind: {left}"
        return outcome

    return asyncio.run(checked())  # type: ignore[return-value]


WAYS: dict[str, Talk] = {
    "plain-whole": plain_whole,
    "plain-stream": plain_stream,
    "async-whole": async_whole,
    "async-stream": async_stream,
}

every_dialect = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
