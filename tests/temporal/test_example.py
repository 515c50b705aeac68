"""The program in examples/temporal.py does what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dragoman.conversation import ToolCall
from dragoman.simulator import Reply, Simulator
from tests.processes import started
from tests.temporal.server import TemporalServer

EXAMPLE = Path(__file__).parents[2] / "examples" / "temporal.py"
ENVIRONMENT = {**os.environ, "OPENAI_COMPATIBLE_API_KEY": "k"}


def test_an_order_is_approved_by_another_program(server: TemporalServer) -> None:
    with Simulator([Reply(ToolCall("1", "order", '{"item": "books", "count": 2}')), "Two books are ordered."]) as model:
        options = ["--server", server.address, "--model", "openai-compatible:any"]
        command = [sys.executable, str(EXAMPLE), *options, "--base-url", model.base_url("openai")]
        with started([*command, "worker"], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout.readline() == "ready\n"

            # Exit codes say nothing, and a fatal error may follow on stderr: a process that has used temporalio 1.35
            # now and then crashes as its interpreter ends, also one that knows nothing of ours.
            def run(*words: str) -> str:
                done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60, check=False)
                return done.stdout.strip() or done.stderr.strip()

            waits = 'waits for a yes or a no: order({"item": "books", "count": 2}), order needs approval'
            assert run("say", "example", "Order 2 books.") == waits
            assert run("say", "example", "Well?").startswith("Calls of this conversation wait for a person.")
            assert run("approve", "example") == "Two books are ordered."
            worker.terminate()
            worker.wait(60)
