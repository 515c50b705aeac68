"""What a model call costs the client: `python bench/model_call.py` in the development environment.

CPU time of this process, against a loopback server in another one, in interleaved rounds of one run; ratios to a
hand-written floor (a raw socket, or an asyncio stream, and msgspec from and into plain structs). Wanted: a turn at most
3.5 times the floor, a streamed chunk with every event delivered at most 4.5 times, a turn on a long history (each time
one new message behind a history that was sent before) at most 3 times.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import time
from collections.abc import Awaitable, Callable

import msgspec
from server import CHUNKS, serving

from dragoman.conversation import Conversation, Message
from dragoman.engines.factory import async_engine, engine

ROUNDS = 9
TURNS = 150
STREAMS = 3
HISTORIES = (10, 100, 1_000, 10_000)
ASKED = Conversation("Be brief.").plus(Message.user("Hello"))


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None


class _Body(msgspec.Struct):
    choices: list[_Choice]


_decoder = msgspec.json.Decoder(_Body)


class _Said(msgspec.Struct):
    role: str
    content: str


_HELLO = [_Said("system", "Be brief."), _Said("user", "Hello")]


def _history(count: int) -> list[_Said]:
    """As long as a message of a chat mostly is."""
    return [_Said("assistant" if n % 2 else "user", f"Message number {n}: {'words ' * 30}") for n in range(count)]


def _conversation(said: list[_Said]) -> Conversation:
    speakers = {"user": Message.user, "assistant": Message.assistant}
    return Conversation("Be brief.").plus(*[speakers[each.role](each.content) for each in said])


def _request(port: int, said: list[_Said], *, stream: bool) -> bytes:
    body = msgspec.json.encode({"model": "gpt-4o", "messages": said, "stream": stream})
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer k\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _events(buffer: bytes, texts: list[str | None]) -> bytes:
    *frames, rest = buffer.split(b"\n\n")
    for frame in frames:
        data = frame[frame.find(b"data: ") + 6 :]
        if data.startswith(b"{"):
            delta = _decoder.decode(data).choices[0].delta
            texts.append(delta.content if delta else None)
    return rest


class Floor:
    """The least that a plain client can do."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def turn(self, said: list[_Said] = _HELLO) -> str | None:
        self._socket.sendall(_request(self._port, said, stream=False))
        data = self._socket.recv(65536)
        while b"\r\n\r\n" not in data:
            data += self._socket.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.rpartition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(body) < length:
            body += self._socket.recv(65536)
        message = _decoder.decode(body).choices[0].message
        return message.content if message else None

    def stream(self) -> int:
        self._socket.sendall(_request(self._port, _HELLO, stream=True))
        texts: list[str | None] = []
        buffer = b""
        while not buffer.endswith(b"0\r\n\r\n"):
            buffer = _events(buffer + self._socket.recv(65536), texts)
        return len(texts)


class AsyncFloor:
    """The least that a client on an event loop can do with asyncio's streams."""

    def __init__(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._port, self._reader, self._writer = port, reader, writer

    async def turn(self, said: list[_Said] = _HELLO) -> str | None:
        self._writer.write(_request(self._port, said, stream=False))
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.rpartition(b"content-length: ")[2].partition(b"\r\n")[0])
        message = _decoder.decode(await self._reader.readexactly(length)).choices[0].message
        return message.content if message else None

    async def stream(self) -> int:
        self._writer.write(_request(self._port, _HELLO, stream=True))
        texts: list[str | None] = []
        buffer = b""
        while not buffer.endswith(b"0\r\n\r\n"):
            buffer = _events(buffer + await self._reader.read(65536), texts)
        return len(texts)


def _cpu(work: Callable[[], object], times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times * 1e6


async def _acpu(work: Callable[[], Awaitable[object]], times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        await work()
    return (time.process_time() - start) / times * 1e6


def _table(kind: str, samples: dict[str, list[float]]) -> None:
    rows = [("turn", 1, "≤ 3.5"), ("chunk", CHUNKS, "≤ 4.5")]
    rows += [(f"on {count:,}", 1, "≤ 3" if count >= 1_000 else "no target") for count in HISTORIES]
    for what, per, limit in rows:
        pairs = list(zip(samples[f"floor {what}"], samples[f"dragoman {what}"], strict=True))
        floor, ours = (statistics.median(values) / per for values in zip(*pairs, strict=True))
        ratio = statistics.median([mine / least for least, mine in pairs])
        print(f"{kind:<6}{what:<10}floor {floor:9.2f} µs   dragoman {ours:9.2f} µs   {ratio:5.2f} × ({limit})")


def plain(port: int) -> None:
    floor = Floor(port)
    with engine("openai:gpt-4o", base_url=f"http://127.0.0.1:{port}/v1", key="k") as ours:

        def stream() -> int:
            with ours.stream(ASKED) as events:
                return sum(1 for _ in events)

        works: dict[str, tuple[Callable[[], object], int]] = {
            "floor turn": (floor.turn, TURNS),
            "dragoman turn": (lambda: ours.run_inference(ASKED), TURNS),
            "floor chunk": (floor.stream, STREAMS),
            "dragoman chunk": (stream, STREAMS),
        }
        for count in HISTORIES:
            said, times = _history(count), max(3, min(TURNS, 10_000 // count))
            before = _conversation(said)
            ours.run_inference(before)
            works[f"floor on {count:,}"] = (lambda said=said: floor.turn([*said, _HELLO[1]]), times)
            works[f"dragoman on {count:,}"] = (
                lambda b=before: ours.run_inference(b.plus(Message.user("Hello"))),
                times,
            )
        samples: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(ROUNDS):
            for name, (work, times) in works.items():
                samples[name].append(_cpu(work, times))
    _table("plain", samples)


async def on_loop(port: int) -> None:
    floor = AsyncFloor(port, *await asyncio.open_connection("127.0.0.1", port))
    async with async_engine("openai:gpt-4o", base_url=f"http://127.0.0.1:{port}/v1", key="k") as ours:

        async def stream() -> int:
            count = 0
            async with ours.stream(ASKED) as events:
                async for _ in events:
                    count += 1
            return count

        works: dict[str, tuple[Callable[[], Awaitable[object]], int]] = {
            "floor turn": (floor.turn, TURNS),
            "dragoman turn": (lambda: ours.run_inference(ASKED), TURNS),
            "floor chunk": (floor.stream, STREAMS),
            "dragoman chunk": (stream, STREAMS),
        }
        for count in HISTORIES:
            said, times = _history(count), max(3, min(TURNS, 10_000 // count))
            before = _conversation(said)
            await ours.run_inference(before)
            works[f"floor on {count:,}"] = (lambda said=said: floor.turn([*said, _HELLO[1]]), times)
            works[f"dragoman on {count:,}"] = (
                lambda b=before: ours.run_inference(b.plus(Message.user("Hello"))),
                times,
            )
        samples: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(ROUNDS):
            for name, (work, times) in works.items():
                samples[name].append(await _acpu(work, times))
    _table("async", samples)


if __name__ == "__main__":
    with serving() as port:
        plain(port)
        asyncio.run(on_loop(port))
