"""The door for a parent process."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import mcp
import pytest
from mcp.client.stdio import StdioServerParameters

from tests.mcp.client.colours import until
from tests.mcp.server.doors import ROOT
from tests.processes import started

pytestmark = pytest.mark.slow

SCRIPT = '''
import asyncio, os, subprocess, sys
from dragoman import ToolRegistry, tool
from dragoman.mcp import McpServer, serve_stdio

print("printed before it serves")
registry = ToolRegistry()

@registry.register
@tool
def chatty(text: str) -> str:
    """Print to everything that could be mistaken for the protocol."""
    print("stray print")
    sys.stdout.write("unflushed stray")
    os.write(1, b"stray write\\n")
    subprocess.run(["echo", "stray child"], check=True)
    left = subprocess.run(["cat"], capture_output=True, check=True).stdout
    return f"{text} {left!r} {sys.stdin.read()!r}"

@registry.register
@tool
def more() -> str:
    """Add a tool."""
    registry.register(chatty.renamed("another"))
    return "added"

@registry.register
@tool
async def endless() -> None:
    """Run until cancelled."""
    open(sys.argv[1] + ".begun", "w").close()
    try:
        await asyncio.sleep(3600)
    finally:
        open(sys.argv[1] + ".cancelled", "w").close()

serve_stdio(McpServer(registry, name="script", watch_seconds=0.05))
print("after it has served")
'''


@pytest.fixture
def server(tmp_path: Path) -> Path:
    path = tmp_path / "serve.py"
    path.write_text(SCRIPT)
    return path


def start(server: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    return started(
        [sys.executable, str(server), str(server)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/bin:/bin"},
    )


def shake_hands() -> str:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    return json.dumps(first) + '\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n'


def call(number: int, name: str, **arguments: object) -> str:
    params = {"name": name, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}) + "\n"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_official_client_is_served(server: Path, mode: str) -> None:
    async def main() -> None:
        program = StdioServerParameters(command=sys.executable, args=[str(server), str(server)], cwd=ROOT)
        async with mcp.Client(program, mode=mode) as client:
            assert [each.name for each in (await client.list_tools()).tools] == ["chatty", "more", "endless"]
            result = await client.call_tool("chatty", {"text": "hé"})
            assert result.content[0].text == "hé b'' ''"  # type: ignore[union-attr]

    asyncio.run(main())


def exchange(process: subprocess.Popen[str], sent: str, answers: int) -> list[dict[str, Any]]:
    """Say this, and read so many lines; the input stays open, since its end would cancel what still runs."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(sent)
    process.stdin.flush()
    return [json.loads(process.stdout.readline()) for _ in range(answers)]


def test_only_the_protocol_is_on_standard_output(server: Path) -> None:
    with start(server) as process:
        said = exchange(process, shake_hands() + call(2, "chatty", text="x"), 2)
        assert [message["id"] for message in said] == [1, 2]
        assert said[1]["result"]["content"][0]["text"] == "x b'' ''"
        out, err = process.communicate(timeout=60)
    assert out == "after it has served\n"  # from then on the output is the program's own again
    assert process.returncode == 0
    for stray in ("printed before", "stray print", "unflushed stray", "stray write", "stray child"):
        assert stray in err


def test_garbage_is_ignored_and_changes_are_notified(server: Path) -> None:
    garbage = "garbage\n\n[]\n{}\n\x00\n" + '{"jsonrpc":"2.0","id":{},"method":5}\n'
    with start(server) as process:
        said = exchange(process, garbage + shake_hands() + call(2, "more"), 3)
        (answer,) = [each for each in said if each.get("id") == 2]
        assert answer["result"]["content"][0]["text"] == "added"
        assert [each["method"] for each in said if "method" in each] == ["notifications/tools/list_changed"]
        process.communicate(timeout=60)


@pytest.mark.parametrize("ending", ["input", signal.SIGTERM, signal.SIGINT])
def test_the_server_ends_and_cancels_running_calls(server: Path, ending: str | signal.Signals) -> None:
    with start(server) as process:
        exchange(process, shake_hands() + call(2, "endless"), 1)
        until(Path(f"{server}.begun").exists, "the tool runs")
        if isinstance(ending, signal.Signals):
            process.send_signal(ending)  # its input stays open, and nothing more comes
            assert process.wait(60) == 0
        else:
            process.communicate(timeout=60)
    assert Path(f"{server}.cancelled").exists()
