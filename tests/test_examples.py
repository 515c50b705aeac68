"""The programs in examples/ do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dragoman.conversation import ToolCall
from dragoman.simulator import Reply, Simulator

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_tool_calling() -> None:
    calls = [ToolCall("1", "multiply", '{"a": 12, "b": 34}'), ToolCall("2", "time_in", '{"zone": "Asia/Tokyo"}')]
    with Simulator([Reply(*calls), "It is 408."]) as simulator:
        environment = {**os.environ, "OPENAI_COMPATIBLE_API_KEY": "k"}
        command = [sys.executable, str(EXAMPLES / "tool_calling.py"), "--model", "openai-compatible:any"]
        command += ["--base-url", simulator.base_url("openai"), "What is 12 * 34, and the time in Tokyo?"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    lines = done.stdout.splitlines()
    assert lines[0] == '→ multiply({"a": 12, "b": 34})'
    assert "← 408.0" in lines
    assert "+09:00" in done.stdout
    assert lines[-1] == "It is 408."
