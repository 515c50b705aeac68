"""examples/fleet.py does what it says."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dragoman.conversation import ToolCall
from dragoman.simulator import Reply, Request, Simulator
from tests.fleet.program import ROOT
from tests.processes import started
from tests.stores.postgres_server import Server

pytestmark = pytest.mark.slow


def script(request: Request) -> Reply | str:
    results = [each for each in request.body["messages"] if each["role"] == "tool"]
    if not results:
        return Reply(ToolCall("c1", "find_order", '{"number": 17}'))
    if len(results) == 1:
        return Reply(ToolCall("c2", "refund", '{"number": 17, "amount": 19.9}'))
    return f"I see: {results[-1]['content']}"


def test_the_example(server: Server, schema: str) -> None:
    options = ["--postgres", server.conninfo, "--schema", schema]
    with Simulator(script) as simulator:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "FLEET_MODEL": "openai-compatible:m",
            "FLEET_BASE_URL": simulator.base_url("openai"),
            "OPENAI_COMPATIBLE_API_KEY": "k",
        }
        command = [sys.executable, "-m", "dragoman", "worker", "examples.fleet:agents", *options]
        with started(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as worker:
            assert worker.stderr is not None
            assert "takes turns of support" in worker.stderr.readline()
            for answer, said in (("y", "19.9 paid back for order 17"), ("n", "A person said no.")):
                done = subprocess.run(
                    [sys.executable, "examples/fleet.py", *options, "Refund order 17"],
                    cwd=ROOT,
                    env=environment,
                    input=f"{answer}\n",
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                assert done.returncode == 0, done.stderr
                assert "user: Refund order 17\n→ find_order" in done.stdout
                assert 'refund {"number": 17, "amount": 19.9} waits for your word' in done.stdout
                assert done.stdout.rstrip().split("\n")[-1].startswith("assistant: I see:")
                assert said in done.stdout
            worker.terminate()
            worker.communicate(timeout=20)
