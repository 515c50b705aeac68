"""What a fleet costs: `python bench/fleet.py [--conversations 1000] [--workers 4]` in the development environment.

Conversations of one turn with three tool calls each, so four calls of a model that takes 300 ms to answer, by

    fleet        workers in processes of their own, over one PostgreSQL that waits for the disk
    store        one process with asyncio and AsyncChatClient, with a store in the same PostgreSQL
    alone        the same without a store

with as many conversations under way at once. Shown are turns a second, what a turn takes beyond the 1.2 s that the
model needs, and seconds of processor time for each turn, in our processes and in PostgreSQL's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dragoman import AsyncChatClient, tool
from dragoman.fleet import Agent, AsyncFleet, Worker
from dragoman.stores import AsyncStore, PostgresStore
from tests.stores.postgres_server import fresh_server

ROOT = Path(__file__).resolve().parent.parent
LATENCY = 0.3
CALLS = 3
DISK = {"fsync": "on", "full_page_writes": "on", "max_connections": "200", "shared_buffers": "256MB"}


@tool
async def look(number: int) -> str:
    """Look something up."""
    return f"found {number}"


# --- the model -------------------------------------------------------------------------------------------------------


def reply(said: dict[str, object], reason: str) -> bytes:
    body = json.dumps(
        {
            "id": "r",
            "object": "chat.completion",
            "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", **said}, "finish_reason": reason}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
        }
    ).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def call(number: int) -> dict[str, object]:
    function = {"name": "look", "arguments": f'{{"number": {number}}}'}
    return {"content": None, "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}]}


REPLIES = [*[reply(call(number), "tool_calls") for number in range(CALLS)], reply({"content": "done"}, "stop")]


class Model(asyncio.Protocol):
    """Answers by the number of results in the request, after a while."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        if end and len(body) >= int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]):
            self._data = b""
            answer = REPLIES[min(body.count(b'"role":"tool"'), CALLS)]
            asyncio.get_running_loop().call_later(LATENCY, self._transport.write, answer)


async def serve_model() -> None:
    server = await asyncio.get_running_loop().create_server(Model, "127.0.0.1", 0, backlog=2000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(1e6)


# --- what carries the turns out --------------------------------------------------------------------------------------


def work(port: str, url: str, concurrency: str) -> None:
    agent = Agent("openai-compatible:m", [look], base_url=f"http://127.0.0.1:{port}/v1", key="k")
    Worker(url, {"a": agent}, concurrency=int(concurrency), schema="bench").serve()


async def talk_alone(port: int, url: str, count: int, at_once: int) -> None:
    store = AsyncStore(PostgresStore(url, schema="alone"), threads=8) if url else None
    base = f"http://127.0.0.1:{port}/v1"
    first = AsyncChatClient("openai-compatible:m", [look], base_url=base, key="k")

    async def talk() -> None:
        async with AsyncChatClient(first.engine, [look], store=store) as client:
            assert str(await client.chat("Look three things up.")) == "done"

    if store is not None:
        await store.list(limit=1)
    await measure(talk, at_once, at_once)  # connections are made, statements are prepared
    before = resource.getrusage(resource.RUSAGE_SELF)
    took, wall = await measure(talk, count, at_once)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"wall": wall, "took": took, "cpu": cpu}), flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until somebody has looked at the server
    await first.aclose()
    if store is not None:
        await store.aclose()


async def measure(talk: Callable[[], Awaitable[None]], count: int, at_once: int) -> tuple[list[float], float]:
    """How long each of so many took, with so many at once, and all of them."""
    took: list[float] = []
    left = iter(range(count))

    async def one_by_one() -> None:
        for _ in left:
            began = time.perf_counter()
            await talk()
            took.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*[one_by_one() for _ in range(at_once)])
    return took, time.perf_counter() - began


# --- putting it together ---------------------------------------------------------------------------------------------


@contextmanager
def child(*words: object) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, __file__, *map(str, words)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def processor_time(processes: list[psutil.Process]) -> float:
    return sum(each.cpu_times().user + each.cpu_times().system for each in processes if each.is_running())


def server_processes(directory: Path) -> list[psutil.Process]:
    found = [
        each for each in psutil.process_iter(["cmdline"]) if str(directory) in " ".join(each.info["cmdline"] or ())
    ]
    servers = [each for each in found if "postgres" in each.name()]
    return [*servers, *[below for each in servers for below in each.children(recursive=True)]]


def show(name: str, took: list[float], wall: float, cpu: float, database: float) -> None:
    count, added = len(took), sorted(each - (CALLS + 1) * LATENCY for each in took)
    p50, p99 = (1000 * added[int(count * share)] for share in (0.5, 0.99))
    print(f"{name:<6} {count / wall:6.1f} turns/s   added {p50:5.0f} ms p50 {p99:5.0f} ms p99", end="   ")
    print(f"CPU {1000 * cpu / count:5.2f} ms a turn = {count / cpu:4.0f} turns/s a core", end="   ")
    print(f"PostgreSQL {1000 * database / count:5.2f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a fleet costs.")
    parser.add_argument("--conversations", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--at-once", type=int, default=100)
    given = parser.parse_args()
    count, at_once = given.conversations, given.at_once
    print(f"{count} conversations, {at_once} at once; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    with fresh_server(DISK) as server, child("--model") as model, ExitStack() as stack:
        assert model.stdout is not None
        port = int(model.stdout.readline())
        for name, url in (("alone", ""), ("store", server.conninfo)):
            before = processor_time(server_processes(server.directory))
            with child("--alone", port, url, count, at_once) as process:
                assert process.stdout is not None
                found = json.loads(process.stdout.readline())
                database = processor_time(server_processes(server.directory)) - before if url else 0.0
            show(name, found["took"], found["wall"], found["cpu"], database)
        share = -(-at_once // given.workers)
        workers = [stack.enter_context(child("--work", port, server.conninfo, share)) for _ in range(given.workers)]
        with_fleet = asyncio.run(_measure_fleet(server.conninfo, server.directory, workers, count, at_once))
        show("fleet", *with_fleet)


async def _measure_fleet(
    url: str, directory: Path, workers: list[subprocess.Popen[str]], count: int, at_once: int
) -> tuple[list[float], float, float, float]:
    processes = [psutil.Process(each.pid) for each in workers]
    async with AsyncFleet(url, schema="bench") as fleet:
        await fleet.install()
        while not await fleet.status():  # noqa: ASYNC110 -- a worker in another process
            await asyncio.sleep(0.1)

        async def talk() -> None:
            turn = await fleet.submit("Look three things up.", agent="a")
            assert str(await fleet.wait(turn, 300)) == "done"

        await measure(talk, 2 * at_once, at_once)  # connections are made, statements are prepared
        before, of_server = processor_time(processes), server_processes(directory)
        database = processor_time(of_server)
        took, wall = await measure(talk, count, at_once)
        return took, wall, processor_time(processes) - before, processor_time(server_processes(directory)) - database


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--model"]:
            asyncio.run(serve_model())
        case ["--work", port, url, concurrency]:
            work(port, url, concurrency)
        case ["--alone", port, url, count, at_once]:
            asyncio.run(talk_alone(int(port), url, int(count), int(at_once)))
        case _:
            main()
