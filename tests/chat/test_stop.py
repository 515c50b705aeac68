"""Stop means stop: wherever a turn stands, whoever stops it, in both colours."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from dragoman import AsyncChatClient, ChatClient, ModelOptions
from dragoman.errors import LimitReachedError, RequestTimeoutError, StoppedError
from dragoman.loop import Cancelled, LimitReached, Limits
from dragoman.transport import RetryPolicy, Timeouts
from tests.chat.stops import combinations, try_stop
from tests.chat.talking import Start, threads_left
from tests.transport.server import Exchange, Server


async def _silent(exchange: Exchange) -> None:
    await exchange.forever()


@pytest.mark.parametrize(("phase", "way", "how"), combinations())
def test_a_turn_that_is_stopped_ends_at_once(phase: str, way: str, how: str) -> None:
    seen = try_stop(phase, way, how)
    # Whatever waits on would have ended by an error of the transport; `python -m tests.chat.stops` shows the times.
    assert isinstance(seen.ending, LimitReached if how == "deadline" else Cancelled)
    assert seen.requests <= 2
    assert seen.further == 0
    assert seen.goes_on is not False
    assert threads_left() == []


def test_a_question_that_is_cancelled_says_so() -> None:
    with Server({"*": _silent}) as server, ChatClient("openai:gpt-4o", key="k", base_url=server.url) as client:
        timer = threading.Timer(0.2, client.cancel)
        timer.start()
        with pytest.raises(StoppedError, match="cancelled"):
            client.ask("How many?", int)
        with pytest.raises(LimitReachedError, match="0.2 seconds"):
            client.ask("How many?", int, limits=Limits(seconds=0.2))
        assert client.history == ()


def test_a_signal_handler_may_cancel_what_its_own_thread_waits_for() -> None:
    with Server({"*": _silent}) as server, ChatClient("openai:gpt-4o", key="k", base_url=server.url) as client:
        before = signal.signal(signal.SIGUSR1, lambda *_: client.cancel())
        try:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            assert isinstance(client.chat("Hello").ending, Cancelled)
        finally:
            signal.signal(signal.SIGUSR1, before)


def test_the_total_limit_holds_for_all_attempts_together() -> None:
    async def busy(exchange: Exchange) -> None:
        await exchange.reply(b"{}", 503, headers={"retry-after": "1"})

    hasty = {"timeouts": Timeouts(total=1.5), "retry": RetryPolicy(max_attempts=50)}
    with Server({"*": busy}) as server, ChatClient("openai:gpt-4o", key="k", base_url=server.url, **hasty) as client:
        with pytest.raises(Exception, match=".") as caught:
            client.chat("Hello")
        assert len(server.requests) == 2
        assert [attempt.number for attempt in caught.value.attempts] == [1, 2]
        assert "1.5 s in all" in caught.value.attempts[-1].outcome
    with Server({"*": _silent}) as server, ChatClient("openai:gpt-4o", key="k", base_url=server.url, **hasty) as client:
        with pytest.raises(RequestTimeoutError):
            client.chat("Hello")
        assert len(server.requests) == 1


def test_a_deadline_is_an_error_unless_it_is_to_be_returned(start: Start) -> None:
    with Server({"*": _silent}) as server:
        for kind in (ChatClient, AsyncChatClient):
            assert kind("openai:gpt-4o", key="k", base_url=server.url).engine.options == ModelOptions()
        with ChatClient("openai:gpt-4o", key="k", base_url=server.url, limits=Limits(seconds=0.2)) as client:
            with pytest.raises(LimitReachedError, match="0.2 seconds"):
                client.chat("Hello")
            assert client.history == ()
