"""Every fault of the simulator, in every dialect and both colours, streamed and whole.

Each ends in the complete message, or in a typed error with everything that was received; never in a hang, never in a
silent success, and with no connection or task left behind.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.conversation import Completed, Failed, ReplyStarted, TextDelta, ToolCall, fold
from dragoman.engines import async_engine, engine
from dragoman.errors import (
    AuthenticationError,
    ConnectionFailedError,
    InvalidRequestError,
    OverloadedError,
    PermissionDeniedError,
    ProviderError,
    RateLimitError,
    RequestTimeoutError,
)
from dragoman.simulator import FAULTS, Reply, Request, Simulator
from dragoman.transport import RetryPolicy, Timeouts
from tests.engines.talking import (
    ASKED,
    Talk,
    ask_on_loop,
    ask_plain,
    async_stream,
    every_dialect,
    every_way,
    plain_stream,
    plain_whole,
)
from tests.providers.openai_chat import wire as chat
from tests.transport.replies import DIALECTS, Say
from tests.transport.server import Exchange, Server

TEXT = "Here is the wéather you asked for, in some detail. "
CALL = ToolCall("call_1", "weather", '{"city": "Paris", "days": 3}')
Colour = tuple[Callable[..., Any], Talk]
every_colour = pytest.mark.parametrize(
    "colour", [(engine, ask_plain), (async_engine, ask_on_loop)], ids=["plain", "async"]
)


# In a stream the provider says itself when a reply is complete; that the connection breaks after that loses nothing.
HARMLESS_AFTER_THE_END = {"length_too_long"}


def _said(fault: str) -> Reply:
    return Reply(TEXT, CALL, faults=[FAULTS[fault]])


@pytest.mark.parametrize("fault", FAULTS)
@every_dialect
@every_way
def test_every_fault_ends_well_or_in_a_typed_error(way: Talk, model: str, fault: str) -> None:
    streamed = "stream" in way.__name__
    with Simulator(lambda _request: _said(fault), longest_pause=10.0) as simulator:
        outcome = way(simulator, model)
        assert simulator.wait_until_idle(), "a connection was left open"
    effect = FAULTS[fault].effect(streamed=streamed)
    if streamed and fault in HARMLESS_AFTER_THE_END:
        effect = "unclear" if "gemini" in model else "none"  # Gemini's streams have no mark of their end
    if outcome.error is None:
        assert effect in ("none", "unclear"), "a damaged reply was taken for a complete one"
        assert outcome.reply is not None
        message = outcome.reply.message
        assert not message.interrupted
        if effect == "none":
            assert message.text == TEXT
            [call] = message.tool_calls
            assert (call.name, call.parsed) == (CALL.name, CALL.parsed)
            assert call.id
    else:
        assert effect != "none", f"a reply that was in order was refused: {outcome.error}"
        assert type(outcome.error) is not Exception
        if streamed:
            assert outcome.reply is not None
            assert outcome.reply.message.interrupted
            assert isinstance(outcome.events[-1], Failed)
            assert not any(isinstance(event, Completed) for event in outcome.events)
            assert TEXT.startswith(outcome.reply.message.text) or effect == "unclear"
    if streamed and outcome.reply is not None:
        # What was told is what is there.
        told = "".join(event.text for event in outcome.events if isinstance(event, TextDelta))
        assert told == outcome.reply.message.text
        assert fold(outcome.events) == outcome.reply.message


KINDS: dict[str, type[ProviderError]] = {
    "status_400": InvalidRequestError,
    "status_401": AuthenticationError,
    "status_403": PermissionDeniedError,
    "status_408": RequestTimeoutError,
    "status_429": RateLimitError,
    "status_503": OverloadedError,
    "status_529": OverloadedError,
    "silence": RequestTimeoutError,
    "stall": RequestTimeoutError,
    "no_response_close": ConnectionFailedError,
    "no_response_reset": ConnectionFailedError,
}


@pytest.mark.parametrize("fault", KINDS)
@every_dialect
def test_the_kind_of_error_says_what_to_do(model: str, fault: str) -> None:
    for way in (plain_stream, async_stream):
        with Simulator(lambda _request: _said(fault), longest_pause=10.0) as simulator:
            outcome = way(simulator, model)
        assert type(outcome.error) is KINDS[fault]
        assert outcome.error is not None
        assert outcome.error.hint
        assert "test-key" not in str(outcome.error)


@every_dialect
@every_way
def test_what_can_be_tried_again_is_and_the_ledger_tells(way: Talk, model: str) -> None:
    script = [FAULTS["status_429_retry_after_ms"], FAULTS["no_response_close"], "Hello."]
    with Simulator(script) as simulator:
        outcome = way(simulator, model, retry=RetryPolicy(max_attempts=4, first_wait=0.01))
        assert len(simulator.requests) >= 2
    assert outcome.error is None
    assert outcome.reply is not None
    assert outcome.reply.message.text == "Hello."
    assert [attempt.status for attempt in outcome.reply.attempts] == [429, None, 200]
    assert outcome.reply.attempts[-1].outcome == "ok"
    assert outcome.reply.attempts[1].waited == pytest.approx(0.02)


@pytest.mark.parametrize("name", ["anthropic", "openai_chat", "openai_responses"])
@every_colour
def test_what_breaks_before_the_answer_has_begun_is_tried_again(colour: Colour, name: str) -> None:
    """A provider that accepts the request, says so, even what it costs, and then fails."""
    dialect, say = DIALECTS[name], Say("All of it.", pieces=2)

    async def answer(exchange: Exchange) -> None:
        first = len(server.requests) == 1
        await exchange.start(headers={"content-type": "text/event-stream"})
        for event in dialect.stream(say)[: 1 if first else None]:
            await exchange.chunk(event)
        if first:
            exchange.hang_up()
        else:
            await exchange.end()

    policy = RetryPolicy(max_attempts=2, first_wait=0.01)
    with Server({"*": answer}) as server:
        base_url = f"{server.url}{dialect.base}"
        make, ask = colour
        outcome = ask(lambda: make(dialect.model, key="k", base_url=base_url, retry=policy), ASKED, stream=True)
    assert outcome.error is None
    assert outcome.reply.message.text == say.text
    assert [attempt.number for attempt in outcome.reply.attempts] == [1, 2]
    assert sum(isinstance(event, ReplyStarted) for event in outcome.events) == 1


@every_dialect
@every_way
def test_the_end_that_the_dialect_names_is_the_end(way: Talk, model: str) -> None:
    """The server leaves the connection open, and nobody waits until it closes it, or for the read limit."""
    patient = Timeouts(read=60.0)
    with Simulator(lambda _request: _said("stall_at_end"), longest_pause=30.0) as simulator:
        began = time.monotonic()
        outcome = way(simulator, model, timeouts=patient)
        assert time.monotonic() - began < 15
    assert outcome.error is None
    assert outcome.reply is not None
    assert not outcome.reply.message.interrupted


@every_dialect
def test_nothing_is_retried_once_something_was_told(model: str) -> None:
    asked: list[Request] = []

    def cut_at_first(request: Request) -> Reply:
        asked.append(request)
        return _said("cut_close") if len(asked) == 1 else Reply("All of it.")

    policy = RetryPolicy(max_attempts=3, first_wait=0.01)
    with Simulator(cut_at_first) as simulator:
        outcome = plain_stream(simulator, model, retry=policy)
        assert outcome.error is not None
        assert len(asked) == 1
        asked.clear()
        whole = plain_whole(simulator, model, retry=policy)  # nothing was told of the first attempt
        assert whole.reply is not None
        assert whole.reply.message.text == "All of it."
        assert len(asked) == 2


@every_dialect
def test_closing_a_stream_releases_the_connection_and_keeps_what_came(model: str) -> None:
    with Simulator(lambda _request: _said("drip"), longest_pause=10.0) as simulator:
        base_url = simulator.base_url(model.partition(":")[0])
        with engine(model, base_url=base_url, key="k") as talker:
            with talker.stream(ASKED) as stream:
                next(event for event in stream if isinstance(event, TextDelta))
            assert stream.message.interrupted
            assert TEXT.startswith(stream.message.text)
        assert simulator.wait_until_idle()

        async def main() -> None:
            async with async_engine(model, base_url=base_url, key="k") as talker:

                async def consume() -> None:
                    async with talker.stream(ASKED) as stream:
                        streams.append(stream)
                        async for event in stream:
                            if isinstance(event, TextDelta):
                                begun.set()

                streams: list[object] = []
                begun = asyncio.Event()
                task = asyncio.create_task(consume())
                await begun.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert streams[0].message.interrupted  # type: ignore[attr-defined]

        asyncio.run(main())
        assert simulator.wait_until_idle()


GEMINI = "gemini:gemini-3-flash-preview"


def _counted(text: str, output: int) -> bytes:
    counts = {"promptTokenCount": 3, "candidatesTokenCount": output, "totalTokenCount": 3 + output}
    chunk = {"candidates": [{"content": {"parts": [{"text": text}]}}], "usageMetadata": counts}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


@every_colour
def test_what_a_broken_stream_has_cost_is_known(colour: Colour) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.start(headers={"content-type": "text/event-stream"})
        for event in (_counted("a", 1), _counted("b", 2)):
            await exchange.chunk(event)
        exchange.hang_up()

    with Server({"*": answer}) as server:
        make, ask = colour
        outcome = ask(lambda: make(GEMINI, key="k", base_url=server.url), ASKED, stream=True)
    assert isinstance(outcome.error, ConnectionFailedError)
    message = outcome.reply.message
    assert (message.text, message.interrupted) == ("ab", True)
    assert message.usage is not None
    assert message.usage.output == 2


@every_colour
def test_a_reply_that_had_ended_is_complete_although_the_connection_breaks(colour: Colour) -> None:
    counted = chat.chunk(choices=[], usage=chat.USAGE)
    body = chat.stream(chat.chunk({"content": "All of it."}), chat.chunk({}, "stop"), counted, done=False)

    async def answer(exchange: Exchange) -> None:
        await exchange.start(headers={"content-type": "text/event-stream"})
        await exchange.chunk(body)
        exchange.hang_up()

    with Server({"*": answer}) as server:
        make, ask = colour
        outcome = ask(lambda: make("openai:gpt-4o", key="k", base_url=server.url), ASKED, stream=True)
    assert outcome.error is None
    assert (outcome.reply.message.text, outcome.reply.message.interrupted) == ("All of it.", False)
    assert outcome.reply.message.usage is not None
