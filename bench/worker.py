"""A contender at work, in a process and an environment of its own: `python -m bench.worker openai`.

Commands come as lines of JSON on the standard input, answers go as lines of JSON to what was the standard output; what
a library prints meanwhile goes to the standard error. The parent decides who works when, so that whatever disturbs the
machine disturbs all contenders of a round alike.

    {"do": "measure", "operation": "turn", "colour": "plain", "dialect": "openai_chat", "root": "http://…", "times": 20}
    {"do": "streams", "count": 200, …}      so many at once
    {"do": "tools", "count": 200, …}        first use and repeated use of so many tools

Every result is checked before it is timed for the first time: a client that is quick and wrong gets no figure.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import logging
import os
import resource
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.contenders import common
from bench.processors import take_clients
from bench.wire import ANSWER, STREAMED, TOOL_ANSWER

Command = dict[str, Any]
Answer = dict[str, Any]

_WANTED = {"turn": ANSWER, "history": ANSWER, "loaded": ANSWER, "tool_loop": TOOL_ANSWER}


class WrongAnswerError(Exception):
    """The contender did not do what it was asked to."""


class Worker:
    def __init__(self, contender: str) -> None:
        self._module = importlib.import_module(f"bench.contenders.{contender}")
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._clients: dict[tuple[str, str, str], Any] = {}
        self._works: dict[tuple[Any, ...], Callable[[], Any]] = {}

    def obey(self, command: Command) -> Answer:
        return {"measure": self.measure, "streams": self.streams, "tools": self.tools}[command["do"]](command)

    # --- one after the other ---

    def measure(self, command: Command) -> Answer:
        work = self._work(command)
        if work is None:
            return {"absent": True}
        gc.collect()
        measured = _timed if command["colour"] == "plain" else self._measured_on_loop
        if command["times"] > 1:  # others had the processor meanwhile: what is cold is made warm first
            measured(work, command["times"] // 4 + 1)
        return measured(work, command["times"])

    def _measured_on_loop(self, work: Callable[[], Awaitable[Any]], times: int) -> Answer:
        return self._loop.run_until_complete(_atimed(work, times))

    def _work(self, command: Command) -> Callable[[], Any] | None:
        key = tuple(command.get(name) for name in ("operation", "colour", "dialect", "root", "size"))
        if key in self._works:
            return self._works[key]
        client = self._client(command)
        method = getattr(client, command["operation"], None)
        if method is None:
            return None
        prepared = command["operation"] in ("history", "loaded", "dispatch")
        work = method(*([command["size"]] if command.get("size") else [])) if prepared else method
        _check(command["operation"], self._once(work, command["colour"]))
        self._works[key] = work
        return work

    def _client(self, command: Command) -> Any:
        """None where the contender has no such colour or dialect."""
        key = (command["colour"], command["dialect"], command["root"])
        if key not in self._clients:
            kind = getattr(self._module, "Plain" if command["colour"] == "plain" else "OnLoop", None)
            known = getattr(self._module, "DIALECTS", tuple(common.MODELS))
            if kind is None or command["dialect"] not in known:
                return None
            self._clients[key] = self._once(lambda: kind(command["root"], command["dialect"]), command["colour"])
        return self._clients[key]

    def _once(self, work: Callable[[], Any], colour: str) -> Any:
        if colour == "plain":
            return work()

        async def on_loop() -> Any:
            found = work()
            return await found if isinstance(found, Awaitable) else found

        return self._loop.run_until_complete(on_loop())

    # --- many at once ---

    def streams(self, command: Command) -> Answer:
        client = self._client(command)
        if client is None or not hasattr(client, "stream"):
            return {"absent": True}
        return self._loop.run_until_complete(self._streams(client, command["count"]))

    async def _streams(self, client: Any, count: int) -> Answer:
        wanted = (await client.stream()).characters  # one alone: the connection, and what is loaded late
        gc.collect()
        before = _memory("VmRSS")
        _forget_peak()
        seconds: list[float] = []

        async def one() -> None:
            start = time.perf_counter()
            delivered = await client.stream()
            seconds.append(time.perf_counter() - start)
            if delivered.characters != wanted:
                raise WrongAnswerError(f"{delivered.characters} characters of {wanted}")

        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.gather(*[one() for _ in range(count)])
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        seconds.sort()
        return {
            "cpu": cpu,
            "wall": wall,
            "p50": seconds[count // 2],
            "p99": seconds[min(count - 1, count * 99 // 100)],
            "before": before,
            "peak": _memory("VmHWM"),
        }

    # --- many tools ---

    def tools(self, command: Command) -> Answer:
        client = self._client(command)
        if client is None or not hasattr(client, "many_tools"):
            return {"absent": True}
        functions = common.functions(command["count"])
        gc.collect()
        begin = time.process_time()
        work = client.many_tools(functions)
        answer = self._once(work, command["colour"])
        first = time.process_time() - begin
        _check("turn", answer)
        begin = time.process_time()
        for _ in range(command["times"]):
            self._once(work, command["colour"])
        return {"first": first, "cpu": (time.process_time() - begin) / command["times"]}


def _timed(work: Callable[[], Any], times: int) -> Answer:
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(times):
        work()
    return {"cpu": (time.process_time() - cpu) / times, "wall": (time.perf_counter() - wall) / times}


async def _atimed(work: Callable[[], Awaitable[Any]], times: int) -> Answer:
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(times):
        await work()
    return {"cpu": (time.process_time() - cpu) / times, "wall": (time.perf_counter() - wall) / times}


def _check(operation: str, found: Any) -> None:
    wanted = _WANTED.get(operation)
    if wanted is not None and found != wanted:
        raise WrongAnswerError(f"{operation} gave {found!r:.200}, not {wanted!r}")
    if operation == "stream" and found.characters != len(STREAMED):
        raise WrongAnswerError(f"the stream had {found.characters} characters, not {len(STREAMED)}")


def _memory(field: str) -> int:
    """Bytes, as Linux counts them for this process."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split(f"{field}:")[1].split()[0]) * 1024


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def main() -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    take_clients()
    worker: Worker | None = None
    for line in sys.stdin:
        try:
            worker = worker or Worker(sys.argv[1])
            answer = worker.obey(json.loads(line))
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent is told, and the others go on
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        out.write(json.dumps(answer) + "\n")
        out.flush()
    os._exit(0)  # libraries may have threads that wait for something


if __name__ == "__main__":
    main()
