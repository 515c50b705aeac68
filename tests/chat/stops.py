"""A turn that is stopped: where it stood, who stopped it, and how long that took.

`python -m tests.chat.stops` tries every phase, way and stop once and prints a table with the milliseconds from the stop
to the moment at which the caller has the client back.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from contextlib import ExitStack
from typing import NamedTuple

from dragoman.conversation import RunEnded
from dragoman.loop import Ending, Limits, LoopHooks, LoopRun
from dragoman.transport import RetryPolicy, Timeouts
from tests.chat.talking import WAYS, AsyncTalk, PlainTalk
from tests.transport.server import Exchange, Server, deaf_server, full_server

PHASES = ("connecting", "TLS", "sending", "head", "stream", "between attempts")
STOPS = ("cancel", "close", "deadline", "leaving")
_WAIT = {"TLS": 2.0, "sending": 2.0}
_USUAL_WAIT = 0.3
"""Seconds until a model call is stopped; by then it stands in its phase. Certificates and a long prompt take longer."""
_HEAD = b'{"id":"1","model":"m","choices":[{"index":0,'
_DELTA = b"data: " + _HEAD + b'"delta":{"role":"assistant","content":"Once"}}]}\n\n'
_WHOLE = _HEAD + b'"message":{"role":"assistant","content":"Hi."},"finish_reason":"stop"}]}'
_STREAMED = _DELTA + b"data: " + _HEAD + b'"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class Stopped(NamedTuple):
    """What came of a turn that was stopped."""

    seconds: float
    """From the stop to the end."""
    ending: Ending | None
    requests: int
    """How many were made, and how many more until a moment later."""
    further: int
    goes_on: bool | None
    """Whether the client could be used again; None where the server cannot answer or the client is closed."""


class _Begun(LoopHooks):
    """Says when the model is asked: a stop that comes earlier stops nothing."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def before_model(self, run: LoopRun) -> None:
        self.event.set()


class _Provider:
    """Stalls in one phase, until it is told to answer."""

    def __init__(self, stack: ExitStack, phase: str) -> None:
        self.answers = False
        self.phase = phase
        self.server = stack.enter_context(Server({"*": self._handle}))
        self.prompt = "Hello"
        match phase:
            case "connecting":
                self.url = f"http://127.0.0.1:{stack.enter_context(full_server())}/v1"
            case "TLS":
                self.url = f"https://127.0.0.1:{stack.enter_context(deaf_server())}/v1"
            case "sending":
                self.url, self.prompt = f"http://127.0.0.1:{stack.enter_context(deaf_server())}/v1", "x" * 12_000_000
            case _:
                self.url = f"{self.server.url}/v1"

    async def _handle(self, exchange: Exchange) -> None:
        if self.answers:
            streamed = b'"stream":true' in exchange.body
            kind = "text/event-stream" if streamed else "application/json"
            await exchange.reply(_STREAMED if streamed else _WHOLE, headers={"content-type": kind})
        elif self.phase == "between attempts":
            await exchange.reply(b"{}", 503, headers={"retry-after": "50"})
        else:
            if self.phase == "stream":
                await exchange.start(headers={"content-type": "text/event-stream"})
                await exchange.chunk(_DELTA)
            await exchange.forever()


def try_stop(phase: str, way: str, how: str) -> Stopped:
    """Stop one turn."""
    kind, streamed = WAYS[way]
    wait = _WAIT.get(phase, _USUAL_WAIT)
    with ExitStack() as stack:
        provider = _Provider(stack, phase)
        talk = kind(
            "openai:gpt-4o",
            streamed=streamed,
            key="k",
            base_url=provider.url,
            timeouts=Timeouts(connect=60, read=60),
            retry=RetryPolicy(longest_advice=60),
            on_limit="return",
            limits=Limits(seconds=wait if how == "deadline" else None),
            hooks=[begun := _Begun()],
        )
        stack.callback(talk.close)
        stopped_at, outcome = _stop(talk, how, provider.prompt, wait, begun.event)
        took = time.monotonic() - stopped_at
        requests = len(provider.server.requests)
        goes_on = None
        if how != "close" and phase in ("head", "stream", "between attempts"):
            provider.answers = True
            goes_on = str(talk.chat("Again?")) in ("Hi.", "Once") and talk.client.conversation.is_valid
            requests += 1
        time.sleep(0.05)
        return Stopped(took, outcome, requests, len(provider.server.requests) - requests, goes_on)


def _stop(
    talk: PlainTalk | AsyncTalk, how: str, prompt: str, wait: float, begun: threading.Event
) -> tuple[float, Ending | None]:
    """Begin a turn and have it stopped: when, and how the turn ended."""
    if how == "leaving":
        return _leave(talk, prompt)
    if how == "deadline":
        began = time.monotonic()
        return began + wait, talk.chat(prompt).ending
    if isinstance(talk, AsyncTalk) and how == "close":
        return _close_beside(talk, prompt, wait, begun)
    stopped_at: list[float] = []

    def stop() -> None:
        begun.wait(60)
        time.sleep(wait)
        stopped_at.append(time.monotonic())
        talk.client.cancel() if how == "cancel" else talk.do("close")

    stopping = threading.Thread(target=stop)
    stopping.start()
    ending = talk.chat(prompt).ending
    stopping.join()
    return stopped_at[0], ending


def _close_beside(talk: AsyncTalk, prompt: str, wait: float, begun: threading.Event) -> tuple[float, Ending | None]:
    """In a task of the same loop."""

    async def main() -> tuple[float, Ending | None]:
        turn = talk.client.stream_chat(prompt, lambda _: None) if talk.streamed else talk.client.chat(prompt)
        task = asyncio.ensure_future(turn)
        await asyncio.to_thread(begun.wait, 60)
        await asyncio.sleep(wait)
        at = time.monotonic()
        await talk.client.aclose()
        return at, (await task).ending

    return talk.runner.run(main())


def _leave(talk: PlainTalk | AsyncTalk, prompt: str) -> tuple[float, Ending | None]:
    """Leave a stream behind its first piece of text."""
    if isinstance(talk, PlainTalk):
        with talk.client.stream_chat(prompt) as stream:
            for event in stream:
                if getattr(event, "text", None):
                    break
            at = time.monotonic()
        return at, stream.result.ending

    async def main() -> tuple[float, Ending | None]:
        async with talk.client.stream_chat(prompt) as stream:
            async for event in stream:
                assert not isinstance(event, RunEnded)
                if getattr(event, "text", None):
                    break
            at = time.monotonic()
        return at, stream.result.ending

    return talk.runner.run(main())


def combinations() -> list[tuple[str, str, str]]:
    """Everything that makes sense: only a stream stalls in mid-stream, and only there somebody can leave it."""
    return [
        (phase, way, how)
        for phase in PHASES
        for way in WAYS
        for how in STOPS
        if (phase != "stream" or way.endswith("stream")) and (how != "leaving" or phase == "stream")
    ]


def main() -> None:
    say = sys.stdout.write
    say(f"{'phase':<18}{'way':<14}{'stop':<10}{'ms':>7}  ended, requests after it, goes on\n")
    for phase, way, how in combinations():
        seen = try_stop(phase, way, how)
        shown = f"{type(seen.ending).__name__}, {seen.further}, {'-' if seen.goes_on is None else seen.goes_on}"
        say(f"{phase:<18}{way:<14}{how:<10}{1000 * seen.seconds:7.1f}  {shown}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
