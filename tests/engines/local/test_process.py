"""The child that runs the model: starting, failing, ending. Small programs stand in for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from dragoman.engines.local import process
from dragoman.engines.local.process import Launch, start
from dragoman.errors import LocalModelError
from tests.processes import started

SERVES = """
    print(json.dumps({"address": "http://127.0.0.1:1"}), flush=True)
    sys.stdin.read()
"""


def launch(program: str) -> Launch:
    code = "import json, os, signal, sys\nasked = json.loads(sys.stdin.readline())\n" + textwrap.dedent(program)
    return Launch(model=Path("m.gguf"), context=512, threads=1, command=(sys.executable, "-c", code))


def gone(pid: int) -> bool:
    """Whether a process ends, within some seconds."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False


def test_it_runs_until_it_is_stopped() -> None:
    running = start(launch(SERVES))
    assert running.alive
    assert running.address == "http://127.0.0.1:1"
    running.stop()
    assert not running.alive
    running.stop()


def test_it_is_told_what_to_run() -> None:
    running = start(launch('print(json.dumps({"address": json.dumps(asked)}), flush=True)'))
    asked = json.loads(running.address)
    assert (asked["model"], asked["context"], asked["threads"]) == ("m.gguf", 512, 1)
    assert asked["key"] == running.key
    assert len(running.key) > 20
    running.stop()


def test_it_gets_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    running = start(launch('print(json.dumps({"address": str("ANTHROPIC_API_KEY" in os.environ)}), flush=True)'))
    assert running.address == "False"
    running.stop()


def test_one_that_does_not_end_by_itself_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_END_SECONDS", 0.1)
    running = start(launch('print(json.dumps({"address": "x"}), flush=True)\nwhile True: signal.pause()'))
    running.stop()
    assert gone(running.pid)


FAILURES = {
    'print(json.dumps({"error": "not_installed", "text": "No module named xllamacpp"}))': "not_installed",
    'print(json.dumps({"error": "failed", "text": "unknown architecture"}))': "wrong_file",
    "os.kill(os.getpid(), signal.SIGILL)": "unsupported_processor",
    "os.kill(os.getpid(), signal.SIGKILL)": "no_memory",
    'sys.stderr.write("error: failed to allocate buffer\\n"); sys.exit(1)': "no_memory",
    "sys.exit(3)": "wrong_file",
    'print("no JSON at all")': "wrong_file",
}


@pytest.mark.parametrize("program", FAILURES)
def test_what_its_failures_mean(program: str) -> None:
    with pytest.raises(LocalModelError) as caught:
        start(launch(program))
    assert caught.value.reason == FAILURES[program]
    assert caught.value.hint


@pytest.mark.skipif(not hasattr(signal, "SIGILL"), reason="needs SIGILL")
@pytest.mark.parametrize(("end", "reason"), [("SIGILL", "unsupported_processor"), ("SIGSEGV", None)])
def test_what_the_end_of_one_that_ran_means(end: str, reason: str | None) -> None:
    running = start(launch(f'print(json.dumps({{"address": "x"}}), flush=True)\nos.kill(os.getpid(), signal.{end})'))
    assert running.ends_within(60)
    assert (running.hopeless.reason if running.hopeless else None) == reason
    running.stop()


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LocalModelError, match="cannot be started"):
        start(Launch(model=tmp_path, context=1, threads=1, command=(str(tmp_path / "nothing"),)))


def test_it_ends_when_its_parent_is_killed() -> None:
    parent = """
from tests.engines.local.test_process import SERVES, launch
from dragoman.engines.local.process import start
import time
running = start(launch(SERVES))
print(running.pid, flush=True)
time.sleep(600)
"""
    root = Path(__file__).resolve().parents[3]
    with started([sys.executable, "-c", parent], stdout=subprocess.PIPE, cwd=root) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        program.send_signal(signal.SIGKILL)
    assert gone(pid)


def test_the_runtime_is_missed_before_anything_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "find_spec", lambda _name: None)
    with pytest.raises(LocalModelError, match=r"dragoman\[local\]") as caught:
        process.ensure_installed()
    assert caught.value.reason == "not_installed"


def test_the_real_child_says_that_the_runtime_is_missing(tmp_path: Path) -> None:
    bare = (sys.executable, "-I", "-S", str(process._CHILD))  # without any installed package
    with pytest.raises(LocalModelError) as caught:
        start(Launch(model=tmp_path / "m.gguf", context=512, threads=1, command=bare))
    assert caught.value.reason == "not_installed"
