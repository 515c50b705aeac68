"""What a model call costs the client: `python bench/model_call.py` in the development environment.

CPU time of this process, against a loopback server in another one, in interleaved rounds of one run; ratios to a
hand-written floor (a raw socket, or an asyncio stream, and msgspec into plain structs). Wanted: a turn at most 3.5
times the floor, a streamed chunk with every event delivered at most 4.5 times.
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
ASKED = Conversation("Be brief.").plus(Message.user("Hello"))


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None


class _Body(msgspec.Struct):
    choices: list[_Choice]


_decoder = msgspec.json.Decoder(_Body)


def _request(port: int, *, stream: bool) -> bytes:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    body = msgspec.json.encode({"model": "gpt-4o", "messages": messages, "stream": stream})
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

    def turn(self) -> str | None:
        self._socket.sendall(_request(self._port, stream=False))
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
        self._socket.sendall(_request(self._port, stream=True))
        texts: list[str | None] = []
        buffer = b""
        while not buffer.endswith(b"0\r\n\r\n"):
            buffer = _events(buffer + self._socket.recv(65536), texts)
        return len(texts)


class AsyncFloor:
    """The least that a client on an event loop can do with asyncio's streams."""

    def __init__(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._port, self._reader, self._writer = port, reader, writer

    async def turn(self) -> str | None:
        self._writer.write(_request(self._port, stream=False))
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.rpartition(b"content-length: ")[2].partition(b"\r\n")[0])
        message = _decoder.decode(await self._reader.readexactly(length)).choices[0].message
        return message.content if message else None

    async def stream(self) -> int:
        self._writer.write(_request(self._port, stream=True))
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
    medians = {name: statistics.median(values) for name, values in samples.items()}
    for what, per, limit in (("turn", 1, 3.5), ("chunk", CHUNKS, 4.5)):
        floor, ours = medians[f"floor {what}"] / per, medians[f"dragoman {what}"] / per
        print(f"{kind:<6}{what:<7}floor {floor:8.2f} µs   dragoman {ours:8.2f} µs   {ours / floor:5.2f} × (≤ {limit})")


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
        samples: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(ROUNDS):
            for name, (work, times) in works.items():
                samples[name].append(_cpu(work, times))
    _table("plain", samples)


async def on_loop(port: int) -> None:
    floor = AsyncFloor(port, *await asyncio.open_connection("127.0.0.1", port))
    async with async_engine("openai:gpt-4o", base_url=f"http://127.0.0.1:{port}/v1", key="k") as ours:

        async def turn() -> object:
            return await ours.run_inference(ASKED)

        async def stream() -> int:
            count = 0
            async with ours.stream(ASKED) as events:
                async for _ in events:
                    count += 1
            return count

        works: dict[str, tuple[Callable[[], Awaitable[object]], int]] = {
            "floor turn": (floor.turn, TURNS),
            "dragoman turn": (turn, TURNS),
            "floor chunk": (floor.stream, STREAMS),
            "dragoman chunk": (stream, STREAMS),
        }
        samples: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(ROUNDS):
            for name, (work, times) in works.items():
                samples[name].append(await _acpu(work, times))
    _table("async", samples)


if __name__ == "__main__":
    with serving() as port:
        plain(port)
        asyncio.run(on_loop(port))
