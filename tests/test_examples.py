"""The programs in examples/ do what they say."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

from dragoman.conversation import ToolCall
from dragoman.simulator import Reply, Request, Simulator
from tests.processes import started

EXAMPLES = Path(__file__).parents[1] / "examples"
ENVIRONMENT = {**os.environ, "OPENAI_COMPATIBLE_API_KEY": "k"}


def test_tool_calling() -> None:
    calls = [ToolCall("1", "multiply", '{"a": 12, "b": 34}'), ToolCall("2", "time_in", '{"zone": "Asia/Tokyo"}')]
    with Simulator([Reply(*calls), "It is 408."]) as simulator:
        command = [sys.executable, str(EXAMPLES / "tool_calling.py"), "--model", "openai-compatible:any"]
        command += ["--base-url", simulator.base_url("openai"), "What is 12 * 34, and the time in Tokyo?"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=ENVIRONMENT)
    lines = done.stdout.splitlines()
    assert lines[0] == '→ multiply({"a": 12, "b": 34})'
    assert "← 408.0" in lines
    assert "+09:00" in done.stdout
    assert lines[-1] == "It is 408."


def test_web_service() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    said: list[str] = []

    def post(talk: str, prompt: str) -> dict[str, object]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/talks/{talk}", json.dumps({"prompt": prompt}).encode()
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as response:
            return json.load(response)

    def answer(request: Request) -> str:
        users = [message["content"] for message in request.body["messages"] if message["role"] == "user"]
        return " / ".join(users)

    with Simulator(answer) as simulator:
        command = [sys.executable, str(EXAMPLES / "web_service.py"), "--model", "openai-compatible:any", "--port", port]
        with started([*command, "--base-url", simulator.base_url("openai")], env=ENVIRONMENT) as service:
            end = time.monotonic() + 60
            while not said and time.monotonic() < end and service.poll() is None:
                with suppress(urllib.error.URLError):
                    said.append(str(post("1", "I am Ada.")["answer"]))
                time.sleep(0.1)
            said += [str(post(talk, "Who am I?")["answer"]) for talk in ("1", "2")]
            service.terminate()
            service.wait(60)
    assert said == ["I am Ada.", "I am Ada. / Who am I?", "Who am I?"]
