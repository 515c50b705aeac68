"""A turn that is stopped: where it stood, who stopped it, and how long that took.

`python -m tests.chat.stops` tries every phase, way and stop once and prints a table with the milliseconds from the stop
to the moment at which the caller has the client back.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

from dragoman.conversation import RunEnded
from dragoman.engines import AsyncClaudeEngine, ClaudeEngine
from dragoman.loop import Ending, Limits, LoopHooks, LoopRun
from dragoman.simulator import Reply, Stall
from dragoman.transport import RetryPolicy, Timeouts
from tests.chat.talking import WAYS, AsyncTalk, PlainTalk
from tests.engines.claude_cli.programs import CALM, HANGS, REPLY, Programs
from tests.engines.local.running import Stand
from tests.transport.server import Exchange, Server, deaf_server, full_server

PHASES = ("connecting", "TLS", "sending", "head", "stream", "between attempts", "claude program", "local model")
STOPS = ("cancel", "close", "deadline", "leaving")
_WAIT = {"TLS": 2.0, "sending": 2.0, "claude program": 1.0, "local model": 1.0}
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
    left: frozenset[str]
    """Descriptors that are still open."""
    goes_on: bool | None
    """Whether the client could be used again; None where the server cannot answer or the client is closed."""


class _Begun(LoopHooks):
    """Says when the model is asked: a stop that comes earlier stops nothing."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def before_model(self, run: LoopRun) -> None:
        self.event.set()


class _Provider:
    """Stalls in one phase, until it is told to answer. Of an engine: what stalls is its program, in mid-sentence."""

    def __init__(self, stack: ExitStack, phase: str, *, on_loop: bool) -> None:
        self.answers = False
        self.phase = phase
        self.prompt = "Hello"
        self.server = stack.enter_context(Server({"*": self._handle}))
        self.requests: Callable[[], int] = lambda: len(self.server.requests)
        self.model: Any = "openai:gpt-4o"
        self.options: dict[str, Any] = {}
        url = f"{self.server.url}/v1"
        match phase:
            case "connecting":
                url = f"http://127.0.0.1:{stack.enter_context(full_server())}/v1"
            case "TLS":
                url = f"https://127.0.0.1:{stack.enter_context(deaf_server())}/v1"
            case "sending":
                url, self.prompt = f"http://127.0.0.1:{stack.enter_context(deaf_server())}/v1", "x" * 12_000_000
            case "claude program":
                self._programs = Programs(Path(stack.enter_context(TemporaryDirectory())))
                settings = self._programs.playing(HANGS["in a text"])
                self.model = (AsyncClaudeEngine if on_loop else ClaudeEngine)("m", settings=settings, timeouts=CALM)
                return
            case "local model":
                folder, patch = Path(stack.enter_context(TemporaryDirectory())), pytest.MonkeyPatch()
                stack.callback(patch.undo)
                story = Reply("Once upon a time. " * 50, faults=[Stall(after=4000)])
                stand = Stand(folder, patch)
                stack.callback(stand.close)
                self.model, self.requests = stand.play([story, "Hi."]), lambda: len(stand.simulator.requests)
                return
            case _:
                pass
        timeouts, retry = Timeouts(connect=60, read=60), RetryPolicy(longest_advice=60)
        self.options = {"key": "k", "base_url": url, "timeouts": timeouts, "retry": retry}

    def answer(self) -> None:
        self.answers = True
        if self.phase == "claude program":
            self.model.settings = self._programs.playing(REPLY)

    def close(self, talk: PlainTalk | AsyncTalk) -> None:
        """Close an engine that was given to the client, and so is not the client's to close."""
        if isinstance(self.model, AsyncClaudeEngine) and isinstance(talk, AsyncTalk):
            talk.runner.run(self.model.aclose())
        elif isinstance(self.model, ClaudeEngine):
            self.model.close()

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


def _descriptors() -> frozenset[str]:
    gc.collect()
    links = Path("/proc/self/fd")
    return frozenset(str(link.readlink()) for link in links.glob("*") if link.exists())


def try_stop(phase: str, way: str, how: str) -> Stopped:
    """Stop one turn."""
    before = _descriptors()
    seen = _try_stop(phase, way, how)
    return seen._replace(left=_descriptors() - before)


def _try_stop(phase: str, way: str, how: str) -> Stopped:
    kind, streamed = WAYS[way]
    wait = _WAIT.get(phase, _USUAL_WAIT)
    with ExitStack() as stack:
        provider = _Provider(stack, phase, on_loop=kind is AsyncTalk)
        talk = kind(
            provider.model,
            streamed=streamed,
            on_limit="return",
            limits=Limits(seconds=wait if how == "deadline" else None),
            hooks=[begun := _Begun()],
            **provider.options,
        )
        stack.callback(talk.close)
        stack.callback(provider.close, talk)
        stopped_at, outcome = _stop(talk, how, provider.prompt, wait, begun.event)
        took = time.monotonic() - stopped_at
        requests = provider.requests()
        goes_on = None
        if how != "close" and phase not in ("connecting", "TLS", "sending"):
            provider.answer()
            patient = {"limits": Limits(seconds=60)}
            said = talk.do("ask", "Again?", str, **patient)
            goes_on = said in ("Hi.", "Once") and talk.client.conversation.is_valid
            requests = provider.requests() if phase == "claude program" else requests + 1
        time.sleep(0.05)
        return Stopped(took, outcome, requests, provider.requests() - requests, frozenset(), goes_on)


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
    """Everything that makes sense: only a stream stalls in mid-stream, and only a stream that has begun can be left."""
    speaking = ("stream", "claude program", "local model")
    return [
        (phase, way, how)
        for phase in PHASES
        for way in WAYS
        for how in STOPS
        if (phase != "stream" or way.endswith("stream"))
        and (how != "leaving" or (phase in speaking and way.endswith("stream")))
    ]


def half_of_them() -> list[tuple[str, str, str]]:
    """Every phase with every stop in both colours, whole replies and streams in turn where both make sense."""
    ways: dict[tuple[str, str, str], list[str]] = {}
    for phase, way, how in combinations():
        ways.setdefault((phase, how, way.partition("-")[0]), []).append(way)
    return [(phase, fitting[at % len(fitting)], how) for at, ((phase, how, _), fitting) in enumerate(ways.items())]


def main() -> None:
    say = sys.stdout.write
    say(f"{'phase':<18}{'way':<14}{'stop':<10}{'ms':>7}  ended, requests after it, descriptors left, goes on\n")
    for phase, way, how in combinations():
        seen = try_stop(phase, way, how)
        goes_on = "-" if seen.goes_on is None else seen.goes_on
        shown = f"{type(seen.ending).__name__}, {seen.further}, {len(seen.left)}, {goes_on}"
        say(f"{phase:<18}{way:<14}{how:<10}{1000 * seen.seconds:7.1f}  {shown}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
