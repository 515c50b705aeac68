"""Stop means stop: wherever a turn stands, whoever stops it, in both colours."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from dragoman import ChatClient
from dragoman.errors import LimitReachedError, RequestTimeoutError, StoppedError
from dragoman.loop import Cancelled, LimitReached, Limits
from dragoman.transport import RetryPolicy, Timeouts
from tests.chat.stops import combinations, half_of_them, try_stop
from tests.chat.talking import threads_left
from tests.rounds import PROFILE
from tests.transport.server import Exchange, Script, Server


async def _silent(exchange: Exchange) -> None:
    await exchange.forever()


def _silent_after(what: Callable[[], object]) -> Script:
    """Does this once a request is there, and answers nothing."""

    async def handle(exchange: Exchange) -> None:
        what()
        await exchange.forever()

    return handle


# `python -m tests.chat.stops` and a thorough run try them all.
CHOSEN = combinations() if PROFILE == "thorough" else half_of_them()


@pytest.mark.parametrize(("phase", "way", "how"), CHOSEN)
def test_a_turn_that_is_stopped_ends_at_once(phase: str, way: str, how: str) -> None:
    before = threading.enumerate()
    seen = try_stop(phase, way, how)
    # Whatever waits on would have ended by an error of the transport; `python -m tests.chat.stops` shows the times.
    assert isinstance(seen.ending, LimitReached if how == "deadline" else Cancelled)
    assert seen.requests <= 2
    assert seen.further == 0
    assert seen.goes_on is not False
    assert not seen.left
    assert threads_left(before) == []


def test_a_cancelled_question_and_a_missed_deadline_are_errors() -> None:
    def cancel() -> None:
        if len(server.requests) == 1:
            client.cancel()

    silent = _silent_after(cancel)
    with Server({"*": silent}) as server, ChatClient("openai:gpt-4o", key="k", base_url=server.url) as client:
        with pytest.raises(StoppedError, match="cancelled"):
            client.ask("How many?", int)
        with pytest.raises(LimitReachedError, match="0.2 seconds"):
            client.ask("How many?", int, limits=Limits(seconds=0.2))
        with pytest.raises(LimitReachedError, match="0.2 seconds") as caught:
            client.chat("Hello", limits=Limits(seconds=0.2))
        assert [message.text for message in caught.value.conversation.messages] == ["Hello"]
        assert client.history == (), "nothing was done, so that it can be said again"


def test_a_signal_handler_may_cancel_what_its_own_thread_waits_for() -> None:
    silent = _silent_after(lambda: os.kill(os.getpid(), signal.SIGUSR1))
    with Server({"*": silent}) as server, ChatClient("openai:gpt-4o", key="k", base_url=server.url) as client:
        before = signal.signal(signal.SIGUSR1, lambda *_: client.cancel())
        try:
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
