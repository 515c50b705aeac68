"""One set of tests for both colours: each test's body runs against servers of a plain program and of an event loop."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import msgspec

from dragoman import ToolCall, ToolExecutor, ToolResult
from dragoman.mcp import McpServers, ServerOptions, StdioServer
from tests.processes import children

HOSTILE = Path(__file__).resolve().parents[1] / "hostile.py"

Call: TypeAlias = Callable[..., ToolResult]
"""Calls a tool by its name, with arguments by keyword."""
Body: TypeAlias = Callable[[McpServers, Call], None]
Colour: TypeAlias = Callable[[McpServers, Body], None]


def plain(servers: McpServers, body: Body) -> None:
    with servers, ToolExecutor(servers.tools) as executor:
        body(servers, lambda name, /, **given: executor.execute(_call(name, given)))


def on_a_loop(servers: McpServers, body: Body) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with servers, ToolExecutor(servers.tools) as executor:

            def call(name: str, /, **given: object) -> ToolResult:
                running = asyncio.run_coroutine_threadsafe(executor.aexecute(_call(name, given)), loop)
                return running.result(60)

            await asyncio.to_thread(body, servers, call)

    asyncio.run(main())


COLOURS = [plain, on_a_loop]


def _call(name: str, given: dict[str, Any]) -> ToolCall:
    return ToolCall(uuid4().hex, name, msgspec.json.encode(given).decode())


def hostile(mode: str, state: Path | str = "", **options: Any) -> McpServers:
    """A server that misbehaves so."""
    chosen: dict[str, Any] = {"prefix": "", "connect_timeout": 30.0, **options}
    server = StdioServer(sys.executable, ["-S", str(HOSTILE), mode, str(state)], options=ServerOptions(**chosen))
    return McpServers({"bad": server})


def until(true: Callable[[], object], what: str, seconds: float = 30.0) -> None:
    """Wait for something that another thread or process brings about."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"it did not happen: {what}"
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def running(marker: str) -> list[int]:
    """Processes with this word among their arguments, wherever they hang."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if marker.encode() in words:
                found.append(int(entry.name))
    return found


def nothing_left() -> Iterator[None]:
    """A fixture: neither processes nor threads are left behind."""
    processes, threads = children(), set(threading.enumerate())
    yield
    until(lambda: children() <= processes, "all children have ended", 10)
    names = {"dragoman-loop", "dragoman-mcp-http"}
    until(lambda: not [t for t in threading.enumerate() if t not in threads and t.name in names], "threads end", 10)
