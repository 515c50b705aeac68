"""500 watchers of streams on one process: CPU and memory of each, beside a Starlette app that streams the same bytes.

    python bench/watchers.py

Three servers, each in a process of its own, one after the other, watched by 500 connections from another process:

    starlette   StreamingResponse over a list of frames that grows; what a program without us would write
    one turn    one turn of ours that all of them watch
    own turns   500 conversations with a turn each, through the app for `useChat`: loop, events, encoder and all
                (in a store in memory); the model is a script with the same pace
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

WATCHERS: Final = 500
FRAMES: Final = 200
PACE: Final = 0.05
TEXT: Final = "twelve bytes"


# --- servers ----------------------------------------------------------------------------------------------------------


def starlette_app() -> Any:
    from starlette.applications import Starlette
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    frames: list[bytes] = []
    changed = asyncio.Condition()
    started: list[asyncio.Task[None]] = []

    async def produce() -> None:
        for frame in _frames():
            await asyncio.sleep(PACE)
            async with changed:
                frames.append(frame)
                changed.notify_all()

    async def stream() -> AsyncIterator[bytes]:
        place = 0
        while place < FRAMES:
            async with changed:
                while len(frames) == place:
                    await changed.wait()
            yield b"".join(frames[place:])
            place = len(frames)

    async def watch(_: Any) -> StreamingResponse:
        if not started:
            started.append(asyncio.create_task(produce()))
        return StreamingResponse(stream(), media_type="text/event-stream")

    return Starlette(routes=[Route("/watch", watch, methods=["POST"])])


def one_turn_app() -> Any:
    from dragoman.web.log import EventStream, FrameLog

    log = FrameLog()
    started: list[asyncio.Task[None]] = []

    async def produce() -> None:
        for _ in range(FRAMES):
            await asyncio.sleep(PACE)
            log.append(_DATA)
        log.close()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if not started:
            started.append(asyncio.create_task(produce()))
        await receive()
        await EventStream(log)(scope, receive, send)

    return app


def own_turns_app() -> Any:
    from dragoman import AsyncEngine, Conversation, MemoryStore, Message
    from dragoman.engines import MessageCall
    from dragoman.web import FrontEnd

    class PacedCall(MessageCall):
        async def advance(self) -> None:
            await asyncio.sleep(PACE)
            await super().advance()

    class Paced(AsyncEngine):
        name = "paced:model"

        def call(self, conversation: Conversation, tools: Sequence[Any], options: Any, *, stream: bool) -> PacedCall:
            async def answer() -> Message:
                return Message.assistant(TEXT * FRAMES)

            return PacedCall(answer, piece=len(TEXT))

    return FrontEnd(Paced(), store=MemoryStore())


_DATA: Final = json.dumps({"type": "text-delta", "id": "1.0", "delta": TEXT}, separators=(",", ":")).encode()


def _frames() -> list[bytes]:
    return [b"id: %d\ndata: %b\n\n" % (number + 1, _DATA) for number in range(FRAMES)]


APPS: Final = {"starlette": starlette_app, "one turn": one_turn_app, "own turns": own_turns_app}


def serve(name: str) -> None:
    """Serve until standard input closes, saying what was used each time that it is asked."""
    from dragoman.web import WebServer

    with WebServer(APPS[name]()) as server:
        print(server.port, flush=True)
        for _ in sys.stdin:
            used = resource.getrusage(resource.RUSAGE_SELF)
            print(json.dumps({"cpu": used.ru_utime + used.ru_stime, "memory": _memory()}), flush=True)


def _memory() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123 -- a file of the kernel
        return int(file.read().split()[1]) * resource.getpagesize()


# --- watchers ---------------------------------------------------------------------------------------------------------


async def watch(port: int, path: str, number: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    message = {"id": f"talk-{number}", "messages": [{"role": "user", "parts": [{"type": "text", "text": "Hi"}]}]}
    body = json.dumps(message).encode()
    writer.write(
        b"POST %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
        % (path.encode(), len(body), body)
    )
    read = 0
    while piece := await reader.read(65_536):
        read += piece.count(b"data: ")
    writer.close()
    return read


async def watch_all(port: int, path: str, ask: Any) -> tuple[list[int], dict[str, Any]]:
    watching = [asyncio.create_task(watch(port, path, number)) for number in range(WATCHERS)]
    await asyncio.sleep(FRAMES * PACE / 2)
    during = await asyncio.to_thread(ask)
    return await asyncio.gather(*watching), during


def measure(name: str) -> dict[str, Any]:
    command = [sys.executable, __file__, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        source, sink = process.stdout, process.stdin

        def ask() -> dict[str, Any]:
            sink.write("\n")
            sink.flush()
            return json.loads(source.readline())

        port = int(source.readline())
        before = ask()
        path = "/chat" if name == "own turns" else "/watch"
        began = time.perf_counter()
        read, during = asyncio.run(watch_all(port, path, ask))
        seconds = time.perf_counter() - began
        after = ask()
        sink.close()
    assert min(read) >= FRAMES, f"{name}: a watcher has missed something"
    return {
        "server": name,
        "cpu for each, ms": round((after["cpu"] - before["cpu"]) / WATCHERS * 1000, 2),
        "memory for each, kB": round((during["memory"] - before["memory"]) / WATCHERS / 1000, 1),
        "frames": sum(read),
        "seconds": round(seconds, 1),
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(sys.argv[1])
    else:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        for each in APPS:
            print(json.dumps(measure(each)), flush=True)
