"""Conversations of three tool calls each over four worker processes, on Temporal: ours, pydantic-ai's, and no Temporal.

    python bench/temporal.py                                    1,000 conversations each
    python bench/temporal.py --conversations 200 --at-once 20   fewer, on a busy machine

A provider on this machine answers after 300 ms. Added latency is what a conversation takes beyond its four replies.
CPU is that of the workers, for each conversation; `asyncio` is one process with AsyncChatClient and nothing that lasts.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

LATENCY = 0.3
CALLS = 3
WORKERS = 4
PEER = "pydantic-ai-temporal"


# --- the provider -----------------------------------------------------------------------------------------------------


class Provider(asyncio.Protocol):
    """Answers chat completions after a while: as many calls of `add` as there are no results of yet, then a text."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, ending, body = self._data.partition(b"\r\n\r\n")
        if not ending:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) >= length:
            self._data = body[length:]
            done = body.count(b'"role":"tool"') + body.count(b'"role": "tool"')
            asyncio.get_running_loop().call_later(LATENCY, self._answer, done)

    def _answer(self, done: int) -> None:
        message = b'"content":"done"'
        if done < CALLS:
            call = b'{"id":"c%d","type":"function","function":{"name":"add","arguments":"{\\"a\\":%d,\\"b\\":2}"}}'
            message = b'"content":null,"tool_calls":[' + call % (done, done) + b"]"
        reason = b"stop" if done >= CALLS else b"tool_calls"
        body = (
            b'{"id":"x","object":"chat.completion","created":1,"model":"any","choices":[{"index":0,"message":'
            b'{"role":"assistant",' + message + b'},"finish_reason":"' + reason + b'"}],'
            b'"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}'
        )
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        assert isinstance(self._transport, asyncio.Transport)
        self._transport.write(head % len(body) + body)


async def provide() -> None:
    server = await asyncio.get_running_loop().create_server(Provider, "127.0.0.1", 0, backlog=2000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# --- the contenders ---------------------------------------------------------------------------------------------------


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def work(address: str, queue: str) -> None:
    """A worker of ours."""
    from temporalio.client import Client
    from temporalio.worker import Worker

    from dragoman.temporal import Agent, DragomanPlugin

    given = {"base_url": os.environ["BENCH_BASE_URL"], "key": "k"}
    client = await Client.connect(address, plugins=[DragomanPlugin({"bench": Agent(MODEL, [add], **given)})])
    done = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
    async with Worker(client, task_queue=queue, max_concurrent_activities=200):
        print("ready", flush=True)
        await done.wait()


MODEL = "openai-compatible:any"


async def alone(conversations: int, at_once: int) -> None:
    """One process with asyncio and no Temporal; says how long each conversation took."""
    from dragoman import AsyncChatClient, async_engine

    engine = async_engine(MODEL, base_url=os.environ["BENCH_BASE_URL"], key="k")

    async def converse(_: str) -> None:
        async with AsyncChatClient(engine, [add]) as client:
            assert (await client.chat("add things")).text == "done"

    times, wall, cpu = await measure(converse, "alone", conversations, at_once, time.process_time)
    print(" ".join(map(str, [wall, cpu, *times])), flush=True)


async def measure(
    converse: Callable[[str], Awaitable[None]], name: str, conversations: int, at_once: int, cpu: Callable[[], float]
) -> tuple[list[float], float, float]:
    """The seconds of each conversation, of all together, and of CPU."""
    for number in range(2 * WORKERS):
        await converse(f"{name}-warm-{number}")
    room = asyncio.Semaphore(at_once)

    async def timed(number: int) -> float:
        async with room:
            began = time.perf_counter()
            await converse(f"{name}-{number}")
            return time.perf_counter() - began

    before, began = cpu(), time.perf_counter()
    times = await asyncio.gather(*map(timed, range(conversations)))
    return times, time.perf_counter() - began, cpu() - before


def cpu_of(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def processes(*commands: list[str], environment: dict[str, str]) -> Iterator[list[tuple[int, str]]]:
    """Processes that say a line when they are ready: the ids and the lines."""
    started = [
        subprocess.Popen(each, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) for each in commands
    ]
    try:
        yield [(each.pid, each.stdout.readline().strip()) for each in started if each.stdout is not None]
    finally:
        for each in started:
            each.kill()
            each.communicate()


def on_temporal(
    name: str, command: list[str], address: str, environment: dict[str, str], size: argparse.Namespace
) -> tuple[list[float], float, float]:
    queue = f"{name}-{time.time()}"
    with processes(*[[*command, address, queue]] * WORKERS, environment=environment) as workers:
        assert all(line == "ready" for _, line in workers), workers
        ids = [process for process, _ in workers]

        async def run() -> tuple[list[float], float, float]:
            from temporalio.client import Client

            from dragoman.temporal import DragomanPlugin, TemporalConversation

            client = await Client.connect(address, plugins=[DragomanPlugin()] if name == "dragoman" else [])

            async def ours(id: str) -> None:
                talk = await TemporalConversation.start(client, agent="bench", id=queue + id, task_queue=queue)
                assert (await talk.say("add things")).text == "done"

            async def theirs(id: str) -> None:
                assert await client.execute_workflow("Asked", "add things", id=queue + id, task_queue=queue) == "done"

            converse = ours if name == "dragoman" else theirs
            return await measure(
                converse, name, size.conversations, size.at_once, lambda: sum([cpu_of(each) for each in ids])
            )

        return asyncio.run(run())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=50)
    parser.add_argument("--peer-python", help="a Python that has pydantic-ai and temporalio; without it, one is made")
    parser.add_argument("--only", default="asyncio,dragoman,pydantic-ai")
    size = parser.parse_args()
    me, only = str(Path(__file__).resolve()), size.only.split(",")
    rows: dict[str, tuple[list[float], float, float]] = {}
    with processes([sys.executable, me, "provider"], environment=dict(os.environ)) as ((_, port),):
        environment = {**os.environ, "BENCH_BASE_URL": f"http://127.0.0.1:{port}/v1"}
        if "asyncio" in only:
            command = [sys.executable, me, "alone", str(size.conversations), str(size.at_once)]
            wall, cpu, *times = map(float, subprocess.check_output(command, text=True, env=environment).split())
            rows["asyncio, one process"] = (times, wall, cpu)
        with tempfile.TemporaryDirectory() as directory:
            from tests.temporal.server import TemporalServer

            with TemporalServer(Path(directory)) as server:
                if "dragoman" in only:
                    command = [sys.executable, me, "worker"]
                    rows["dragoman.temporal"] = on_temporal("dragoman", command, server.address, environment, size)
                if "pydantic-ai" in only:
                    python = size.peer_python or _make_peer()
                    # Not as a script: its directory has a file named pydantic_ai, too.
                    code = "import asyncio, sys; from bench.contenders.pydantic_ai_temporal import work; "
                    command = [python, "-c", code + "asyncio.run(work(*sys.argv[1:]))"]
                    rows["pydantic-ai"] = on_temporal("pydantic-ai", command, server.address, environment, size)
    ideal = (CALLS + 1) * LATENCY
    print(f"{size.conversations} conversations, {size.at_once} at once, load {os.getloadavg()[0]:.1f}\n")
    print("| | conversations/s | added p50 ms | added p99 ms | worker CPU ms |\n| --- | ---: | ---: | ---: | ---: |")
    for name, (times, wall, cpu) in rows.items():
        added = sorted([1000 * (each - ideal) for each in times])
        p50, p99 = statistics.median(added), added[int(0.99 * len(added))]
        print(f"| {name} | {len(times) / wall:.1f} | {p50:.0f} | {p99:.0f} | {1000 * cpu / len(times):.1f} |")
    return 0


def _make_peer() -> str:
    from bench.environments import make

    return str(make(PEER))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["provider"]:
            asyncio.run(provide())
        case ["worker", address, queue]:
            asyncio.run(work(address, queue))
        case ["alone", conversations, at_once]:
            asyncio.run(alone(int(conversations), int(at_once)))
        case _:
            sys.exit(main())
