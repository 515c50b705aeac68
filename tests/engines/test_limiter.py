"""The limiter: never over the limit, first come first served, and calls that leave do not block others."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given, settings, strategies as st

from dragoman import AsyncChatClient, ChatClient, Limits
from dragoman._stepping import step
from dragoman._stop import Stop, stopping
from dragoman.engines import Fallback, RateLimiter, ScriptedEngine, async_engine, engine
from dragoman.engines.limiter import MINUTE, Line, Place
from dragoman.errors import ProviderError, RateLimitError, StoppedError
from dragoman.providers import WireRequest
from dragoman.simulator import Reply, Request, Simulator, Stall, Status
from dragoman.transport import RetryPolicy, Timeouts
from tests.engines.talking import ASKED

MODEL = "openai:gpt-4o"


class _Crowd:
    """Any number of callers in a line, on a fake clock."""

    limiter = RateLimiter(requests=4, tokens=100, concurrency=3)

    def __init__(self) -> None:
        self.line, self.now = Line(self.limiter), 0.0
        self.waiting: list[Place] = []
        self.busy: list[Place] = []
        self.admitted: list[tuple[float, Place]] = []
        self.closed_until = 0.0
        self.woken: set[Place] = set()
        self.ever_woken: set[Place] = set()

    def _settle(self) -> None:
        """Those that were woken ask, and those that were admitted are recorded: from the front, and no others."""
        while self.woken:
            place = self.woken.pop()
            wait = self.line.ask(place, self.now)
            assert place.entry is not None or wait is None or wait > 0
        while self.waiting and self.waiting[0].entry is not None:
            place = self.waiting.pop(0)
            recent = [each.tokens for at, each in self.admitted if at + MINUTE > self.now]
            assert len(recent) < 4
            assert len(self.busy) < 3
            assert not recent or sum(recent) + place.tokens <= 100, "too many tokens in a minute"
            assert self.now >= self.closed_until
            self.busy.append(place)
            self.admitted.append((self.now, place))
        assert all(place.entry is None for place in self.waiting), "not in order"
        assert not self.waiting or self.waiting[0] in self.ever_woken, "the first in line does not know it"

    def join(self, number: int) -> None:
        place = Place(number * 5, lambda: (self.woken.add(place), self.ever_woken.add(place)))
        self.line.join(place)
        self.waiting.append(place)
        self.line.ask(place, self.now)
        self._settle()

    def cancel(self, number: int) -> None:
        if self.waiting:
            place = self.waiting.pop(number % len(self.waiting))
            self.line.leave(place, self.now)
            self.woken.discard(place)
            self._settle()

    def finish(self, number: int, *, tokens: int | None = None) -> None:
        if self.busy:
            place = self.busy.pop(number % len(self.busy))
            self.line.leave(place, self.now, tokens=tokens)
            place.tokens = place.tokens if tokens is None else tokens
            self._settle()

    def correct(self, number: int) -> None:
        self.finish(number, tokens=number * 2)

    def refuse(self, number: int) -> None:
        self.line.close(number, self.now)
        self.closed_until = max(self.closed_until, self.now + number)

    def wait(self, number: int) -> None:
        """Only the first in line watches the time."""
        until = self.now + number * 1.3
        while self.waiting and self.now < until:
            wait = self.line.ask(self.waiting[0], self.now)
            self._settle()
            if wait is None or self.now + wait > until:
                break
            self.now += wait
        self.now = max(self.now, until)
        if self.waiting:
            self.line.ask(self.waiting[0], self.now)
        self._settle()

    def end(self) -> None:
        """When everybody finishes, everybody gets exactly one turn."""
        for _ in range(200):
            while self.busy:
                self.finish(0)
            if not self.waiting:
                break
            self.wait(30)
        assert not self.waiting, "somebody waits forever"
        assert len({id(place) for _, place in self.admitted}) == len(self.admitted)


_STEPS = st.sampled_from(["join", "join", "join", "cancel", "finish", "correct", "refuse", "wait"])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(_STEPS, st.integers(0, 30)), max_size=60))
def test_never_over_the_limit_and_in_order(steps: list[tuple[str, int]]) -> None:
    crowd = _Crowd()
    for what, number in steps:
        getattr(crowd, what)(number)
    crowd.end()


def _places(line: Line, tokens: list[int], now: float = 0.0) -> list[Place]:
    places = [Place(each, lambda: None) for each in tokens]
    for place in places:
        line.join(place)
    line.ask(places[0], now)
    return places


def _admitted(places: list[Place]) -> list[bool]:
    return [place.entry is not None for place in places]


def test_limits_in_headers_are_respected() -> None:
    line = Line(RateLimiter(concurrency=100))
    headers = {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "2",
        "x-ratelimit-reset-requests": "58s",
    }
    line.learn(headers, 0.0, time.time())
    places = _places(line, [1] * 5)
    assert _admitted(places) == [True, True, False, False, False]
    assert line.ask(places[2], 0.5) == pytest.approx(0.5), "one more each second, as the limit refills"
    assert line.ask(places[2], 2.0) == 0.0
    assert _admitted(places) == [True, True, True, True, False]
    line.learn({**headers, "x-ratelimit-remaining-requests": "60"}, 2.0, time.time())
    assert _admitted(places) == [True] * 5, "the provider knows better"


def test_tokens_are_corrected_after_the_call() -> None:
    line = Line(RateLimiter(tokens=100))
    first, second = _places(line, [60, 60])
    assert line.ask(second, 0.0) == MINUTE
    line.leave(first, 1.0, tokens=20)
    assert second.entry is not None
    [large] = _places(line, [500], 2.0)
    assert line.ask(large, 3.0) == pytest.approx(58.0)
    assert line.ask(large, 61.0) == 0.0, "a request over the limit goes alone"


def test_a_dropped_call_frees_its_place() -> None:
    line = Line(RateLimiter(concurrency=1))
    first, second = _places(line, [1, 1])
    assert line.ask(second, 0.0) is None
    del first
    gc.collect()
    assert line.ask(second, 1.0) == 0.0


def test_leaving_while_others_are_admitted() -> None:
    """As when the garbage collector closes a stream at that moment."""
    line = Line(RateLimiter(concurrency=1))
    [first] = _places(line, [1])
    line.ask(first, 0.0)
    second, third = Place(1, lambda: line.leave(first, 0.0)), Place(1, bool)
    line.join(second)
    line.join(third)
    asking = threading.Thread(target=line.ask, args=(third, 0.0), daemon=True)
    asking.start()
    asking.join(20)
    assert not asking.is_alive(), "deadlock"
    assert _admitted([second, third]) == [True, False]


# --- through engines --------------------------------------------------------------------------------------------------


def _at(simulator: Simulator, limiter: RateLimiter, key: str) -> dict[str, Any]:
    return {"key": key, "base_url": simulator.base_url("openai"), "limiter": limiter}


def test_sync_and_async_callers_in_all_threads_share_one_line() -> None:
    limiter, concurrent = RateLimiter(concurrency=2), list[int]()

    def answer(_request: Request) -> Reply:
        concurrent.append(len(line._busy))
        return Reply("Hello.", faults=[Stall(0.02, "head", go_on=True)])

    with Simulator(answer, longest_pause=10.0) as simulator:
        options = _at(simulator, limiter, "one-line")
        line: Any = engine(MODEL, **options)._line  # type: ignore[attr-defined]

        def plain() -> None:
            with engine(MODEL, **options) as talker:
                talker.reply(ASKED)
                with talker.stream(ASKED) as stream:
                    list(stream)

        async def on_loop() -> None:
            async def one() -> None:
                async with async_engine(MODEL, **options) as talker:
                    await talker.reply(ASKED)

            await asyncio.gather(*[one() for _ in range(6)])

        threads = [threading.Thread(target=plain) for _ in range(4)]
        threads.append(threading.Thread(target=lambda: asyncio.run(on_loop())))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads), "somebody still waits"
        assert len(simulator.requests) == 14
        assert max(concurrent) <= 2


def test_waits_are_recorded_and_a_refusal_closes_the_line_for_all() -> None:
    busy = Status(429, headers={"retry-after-ms": "300"})
    with Simulator([busy, "Hello.", "Hello."]) as simulator:
        options = _at(simulator, RateLimiter(concurrency=10), "closed")
        with engine(MODEL, **options, retry=RetryPolicy(max_attempts=1)) as first, engine(MODEL, **options) as second:
            with pytest.raises(RateLimitError):
                first.reply(ASKED)
            [attempt] = second.reply(ASKED).attempts
            assert attempt.queued > 0.1
            assert second.reply(ASKED).attempts[0].queued < attempt.queued
        with engine(MODEL, key="another", base_url=options["base_url"], limiter=options["limiter"]) as other:
            simulator.play(["Hello."])
            assert other.reply(ASKED).attempts[0].queued < 0.1, "another key has its own line"


def test_a_dropped_stream_frees_its_place_at_once() -> None:
    long = Reply("Hello. " * 50_000)
    with Simulator([long]) as simulator, engine(MODEL, **_at(simulator, RateLimiter(concurrency=1), "drop")) as one:
        gc.disable()
        try:
            stream = one.stream(ASKED)
            next(iter(stream))
            line = cast("Any", one)._line
            assert len(line._busy) == 1
            del stream
            assert len(line._busy) == 0
        finally:
            gc.enable()


def test_a_long_wait_that_the_provider_asks_for_fails_at_once() -> None:
    with Simulator([Status(429, headers={"retry-after": "3000"})]) as simulator:
        options = _at(simulator, RateLimiter(concurrency=10), "long")
        with engine(MODEL, **options) as one:
            for code in (None, "limiter"):  # the first is refused by the provider, the second by the limiter
                with pytest.raises(RateLimitError) as caught:
                    one.reply(ASKED)
                assert (caught.value.code == "limiter") is (code == "limiter")
                assert caught.value.retry_after == pytest.approx(3000, abs=60)
            chain = engine([one, ScriptedEngine(["Here."], name="b:two")])
            assert chain.reply(ASKED).message.provider == "b"
        assert len(simulator.requests) == 1


def test_requests_that_no_model_reads_use_no_tokens() -> None:
    with Simulator(["Hello."]) as simulator:
        options = _at(simulator, RateLimiter(tokens=1000), "upload")
        with engine(MODEL, **options, timeouts=Timeouts(total=5.0)) as one:
            with suppress(ProviderError):
                step(cast("Any", one).exchange(WireRequest(path="/files", body=b"x" * 100_000)).body())
            assert one.reply(ASKED).attempts[0].queued < 1


@pytest.fixture(name="full")
def _full() -> Any:
    """An engine whose line is full, and its options."""
    with Simulator(["Hello."]) as simulator:
        options = _at(simulator, RateLimiter(requests=1), f"full-{time.monotonic()}")
        with engine(MODEL, **options) as talker:
            talker.reply(ASKED)
            yield talker, options


def test_a_wait_that_is_too_long_fails_at_once(full: Any) -> None:
    talker, options = full
    with engine(MODEL, **options, timeouts=Timeouts(total=5.0)) as hurried, pytest.raises(RateLimitError) as caught:
        hurried.reply(ASKED)
    assert caught.value.code == "limiter"
    assert "may wait 5.0 s" in caught.value.message
    assert len(caught.value.attempts) == 1
    with (
        ChatClient(talker, limits=Limits(seconds=7.0)) as client,
        pytest.raises(RateLimitError, match=r"7\.0 s|6\.9 s"),
    ):
        client.chat("Hi")
    chain = engine([hurried, ScriptedEngine(["Here."], name="b:two")], fallback=Fallback())
    assert chain.reply(ASKED).message.provider == "b"
    assert chain.health[0].state == "closed", "it says nothing about the provider"  # type: ignore[attr-defined]


def test_waiting_can_be_cancelled(full: Any) -> None:
    talker, options = full
    stop = Stop()
    threading.Timer(0.1, stop.cancel).start()
    with stopping(stop), pytest.raises(StoppedError):
        talker.reply(ASKED)
    with ChatClient(talker) as client:
        threading.Timer(0.1, client.cancel).start()
        assert client.chat("Hi").ending.__class__.__name__ == "Cancelled"

    async def main() -> None:
        async with async_engine(MODEL, **options) as other:
            task = asyncio.create_task(other.reply(ASKED))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with AsyncChatClient(other) as client:
                asyncio.get_running_loop().call_later(0.1, client.cancel)
                assert (await client.chat("Hi")).ending.__class__.__name__ == "Cancelled"

    asyncio.run(main())
    assert not talker._line._waiting


def test_ctrl_c_leaves_nothing_in_the_line() -> None:
    line, looked = Line(RateLimiter(requests=1)), list[int]()
    _places(line, [1])

    def clock() -> float:
        looked.append(len(line._waiting))
        if len(looked) == 1:
            raise KeyboardInterrupt
        return 0.0

    with pytest.raises(KeyboardInterrupt):
        step(line.enter(1, clock, blocking=True, limit=None, name=MODEL))
    assert looked == [1, 1]
    assert not line._waiting


def test_a_limiter_without_limits_is_off() -> None:
    talker: Any = engine(MODEL, key="k", limiter=RateLimiter())
    assert talker._line is None
    assert engine(MODEL, key="k", limiter=RateLimiter(requests=7))._line is (  # type: ignore[attr-defined]
        engine("openai:gpt-5", key="k", limiter=RateLimiter(requests=7))._line  # type: ignore[attr-defined]
    )
