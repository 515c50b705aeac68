"""What a model call costs through an engine, without loop and chat client: `python bench/model_call.py`.

CPU time of this process in interleaved rounds of one run, as a multiple of the floor (bench/contenders/floor.py).
Wanted: a turn at most 3.5 times the floor (2.5 on an event loop), a streamed chunk with every event delivered at most
3 times, a turn on a long history (each time one new message behind a history that was sent before) at most 3 times.
Each turn has a message that was never sent, as turns have. What a caller of a chat client pays, and peers, are in
bench/run.py.

Before that, where a turn goes: the same request, sent by the floor and by the standard library's `http.client` (with
the reply as bytes, not read any further), and through our own transport and each of the layers above it.
"""

from __future__ import annotations

import asyncio
import http.client
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.contenders import floor
from bench.contenders.common import BASES, KEY, MODELS, PROMPT, SYSTEM, said
from bench.processors import take_clients
from bench.server import serving
from bench.wire import CHUNKS
from dragoman._stepping import step
from dragoman.chat import ChatClient
from dragoman.conversation import Conversation, Message
from dragoman.engines import async_engine, engine
from dragoman.transport import HttpRequest, SocketTransport, Transport

DIALECT = "openai_chat"
ROUNDS = 15
TURNS = 150
STREAMS = 3
HISTORIES = (10, 100, 1_000, 10_000)
BEGUN = Conversation(SYSTEM)


class Pair(NamedTuple):
    """The same work, done by the floor and by an engine."""

    least: Callable[[], object]
    ours: Callable[[], object]
    times: int
    per: int
    limit: str


def _asked() -> Conversation:
    return BEGUN.plus(Message.user(PROMPT))


def _history(count: int) -> Conversation:
    speakers = {"user": Message.user, "assistant": Message.assistant}
    return BEGUN.plus(*[speakers[each.role](each.text) for each in said(count)])


def _limit(count: int) -> str:
    return "≤ 3" if count >= 1_000 else "no target"


def _times(count: int) -> int:
    return max(3, min(TURNS, 10_000 // count))


def _print(colour: str, what: str, pair: Pair, samples: list[tuple[float, float]]) -> None:
    least, ours = (statistics.median(values) / pair.times / pair.per * 1e6 for values in zip(*samples, strict=True))
    ratio = statistics.median([mine / theirs for theirs, mine in samples])
    print(f"{colour:<6}{what:<10}floor {least:9.2f} µs   engine {ours:9.2f} µs   {ratio:5.2f} × ({pair.limit})")


def layers(root: str) -> None:
    """Each does more than the one before."""
    address = root.removeprefix("http://")
    bare, theirs = floor.Plain(root, DIALECT), http.client.HTTPConnection(address)
    model = f"openai:{MODELS[DIALECT]}"
    with (
        engine(model, base_url=root + BASES[DIALECT], key=KEY) as ours,
        ChatClient(ours, system=SYSTEM, stateless=True) as client,
        SocketTransport() as transport,
    ):
        request = ours.call(_asked(), (), None, stream=False).request
        path, headers, body = request.url.removeprefix(root), dict(request.headers), request.body

        def with_http_client() -> bytes:
            theirs.request("POST", path, body, headers)
            return theirs.getresponse().read()

        works: dict[str, Callable[[], object]] = {
            "floor": bare.turn,
            "http.client": with_http_client,
            "our transport": lambda: step(_read(transport, request)),
            "engine": lambda: ours.run_inference(_asked()),
            "chat client": lambda: str(client.chat(PROMPT)),
        }
        samples = [[_cpu(work, TURNS) / TURNS for work in works.values()] for _ in range(ROUNDS)]
    for at, name in enumerate(works):
        cpu, ratio = (statistics.median(found) for found in zip(*[(s[at], s[at] / s[0]) for s in samples], strict=True))
        print(f"layer {name:<15}{cpu * 1e6:9.2f} µs   {ratio:5.2f} × the floor")
    theirs.close()
    bare.close()


async def _read(transport: Transport, request: HttpRequest) -> bytes:
    return await (await transport.open(request)).read()


def plain(root: str) -> None:
    bare = floor.Plain(root, DIALECT)
    with engine(f"openai:{MODELS[DIALECT]}", base_url=root + BASES[DIALECT], key=KEY) as ours:

        def stream() -> int:
            with ours.stream(_asked()) as events:
                return sum(1 for _ in events)

        pairs = {
            "turn": Pair(bare.turn, lambda: ours.run_inference(_asked()), TURNS, 1, "≤ 3.5"),
            "chunk": Pair(bare.stream, stream, STREAMS, CHUNKS, "≤ 3"),
        }
        for count in HISTORIES:
            before = ours.run_inference(_history(count - 2).plus(Message.user(PROMPT)))
            pairs[f"on {count:,}"] = Pair(
                bare.history(count),
                lambda before=before: ours.run_inference(before.plus(Message.user(PROMPT))),
                _times(count),
                1,
                _limit(count),
            )
        for what, pair in pairs.items():
            samples = [(_cpu(pair.least, pair.times), _cpu(pair.ours, pair.times)) for _ in range(ROUNDS)]
            _print("plain", what, pair, samples)
    bare.close()


async def on_loop(root: str) -> None:
    bare = floor.OnLoop(root, DIALECT)
    async with async_engine(f"openai:{MODELS[DIALECT]}", base_url=root + BASES[DIALECT], key=KEY) as ours:

        async def stream() -> int:
            count = 0
            async with ours.stream(_asked()) as events:
                async for _ in events:
                    count += 1
            return count

        pairs = {
            "turn": Pair(bare.turn, lambda: ours.run_inference(_asked()), TURNS, 1, "≤ 2.5"),
            "chunk": Pair(bare.stream, stream, STREAMS, CHUNKS, "≤ 3"),
        }
        for count in HISTORIES:
            before = await ours.run_inference(_history(count - 2).plus(Message.user(PROMPT)))
            pairs[f"on {count:,}"] = Pair(
                bare.history(count),
                lambda before=before: ours.run_inference(before.plus(Message.user(PROMPT))),
                _times(count),
                1,
                _limit(count),
            )
        for what, pair in pairs.items():
            samples = [(await _acpu(pair.least, pair.times), await _acpu(pair.ours, pair.times)) for _ in range(ROUNDS)]
            _print("async", what, pair, samples)
    await bare.aclose()


def _cpu(work: Callable[[], object], times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        work()
    return time.process_time() - start


async def _acpu(work: Callable[[], object], times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        awaited = work()
        assert isinstance(awaited, Awaitable)
        await awaited
    return time.process_time() - start


if __name__ == "__main__":
    with serving() as port:
        take_clients()
        layers(f"http://127.0.0.1:{port}")
        plain(f"http://127.0.0.1:{port}")
        asyncio.run(on_loop(f"http://127.0.0.1:{port}"))
