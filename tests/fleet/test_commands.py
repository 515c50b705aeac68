"""`dragoman worker` and `dragoman fleet`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dragoman.conversation import ToolCall
from dragoman.simulator import Reply, Request, Simulator
from tests.cli.running import Done, Surroundings
from tests.fleet.program import ROOT
from tests.processes import started
from tests.stores.postgres_server import Server

pytestmark = pytest.mark.slow

NOBODY = "01a1e92a-ab58-7b88-96e7-6a8d8c83b2fd"
MODULE = """
from dragoman import tool
from dragoman.fleet import Agent, Worker

@tool(requires_approval=True)
def pay(euros: int) -> str:
    "Pay."
    return f"{euros} paid"

agents = {"teller": Agent("openai-compatible:m", [pay], base_url="BASE", key="k")}
worker = Worker("", agents)
nothing = {"teller": 1}
"""


def script(request: Request) -> Reply | str:
    last = request.body["messages"][-1]
    if last["role"] == "tool":
        return f"The tool says: {last['content']}"
    if last["content"] == "silence":
        return ""
    return Reply(ToolCall("c1", "pay", '{"euros": 5}')) if last["content"] == "pay" else f"You said: {last['content']}"


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    home = tmp_path / "home"
    home.mkdir()
    return Surroundings(home, monkeypatch)


@pytest.fixture
def shop(around: Surroundings, server: Server, schema: str) -> Iterator[Surroundings]:
    """A module with agents in the working directory, and the database in the configuration."""
    with Simulator(script) as simulator:
        text = MODULE.replace("BASE", simulator.base_url("openai"))
        (around.work / "shop.py").write_text(text)
        around.configure(f'[fleet]\npostgres = "{server.conninfo}"\nschema = "{schema}"\n')
        yield around


@contextmanager
def worker(shop: Surroundings, *options: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A worker that has begun, and what it says."""
    command = [sys.executable, "-m", "dragoman", "worker", "shop:agents", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with started(command, cwd=shop.work, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline()]
        assert "takes turns of teller" in lines[0]
        reading = threading.Thread(target=lambda: lines.extend(process.stderr or ()), daemon=True)
        reading.start()
        yield process, lines
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        reading.join(5)


def test_a_turn_from_the_command_line(shop: Surroundings) -> None:
    def fleet(*words: str) -> Done:
        return shop.here("fleet", *words)

    assert fleet("status").ended(1, "has no fleet tables", "dragoman fleet install")
    assert fleet("install").ended(0, "The tables are in place.")
    assert fleet("status").ended(0, "No worker has offered an agent yet.")
    assert fleet("submit", "teller", "Hello").ended(1, "they offer: none yet")
    with worker(shop):
        done = fleet("submit", "teller", "Hello", "there", "--wait", "--timeout", "30")
        assert (done.code, done.out) == (0, "You said: Hello there\n"), done
        silent = fleet("submit", "teller", "silence", "--wait", "--timeout", "30")
        assert silent.code == 7
        assert "gave no answer: its reply was empty, twice in a row" in silent.err
        turn = fleet("submit", "teller", "pay").out.strip()
        waits = fleet("wait", turn)
        assert waits.code == 4
        assert 'c1: pay {"euros": 5}' in waits.err
        assert f"dragoman fleet approve {turn}" in waits.err
        asked = fleet("wait", turn, "--json")
        assert asked.json["ending"] == "await_approval"
        assert fleet("approve", turn, "c2").ended(1, "'c2' is none of them")
        done = fleet("approve", turn, "--wait")
        assert (done.code, done.out) == (0, "The tool says: 5 paid\n"), done
        assert fleet("deny", turn).ended(1, "has no pending calls")
        watched = fleet("watch", turn)
        assert watched.code == 4
        assert watched.out == "The tool says: 5 paid\n"
        assert '→ pay {"euros": 5}' in watched.err
        assert fleet("cancel", turn).ended(0, "had already ended: await_approval")
        table = fleet("status")
        assert table.code == 0
        assert table.out.split()[:4] == ["agent", "provider", "queued", "oldest"]
        assert "2 done" in table.out
        assert 'dragoman_fleet_turns{agent="teller"' in fleet("status", "-f", "prometheus").out
        assert fleet("status", "-f", "json").json[0]["ended"] == {"await_approval": 1, "done": 2, "no_answer": 1}
    assert fleet("wait", NOBODY).ended(1, "The fleet has no turn")
    assert fleet("wait", "7").ended(2, "is not the id of a snapshot")
    turn = fleet("submit", "teller", "Hello").out.strip()
    assert fleet("wait", turn, "--timeout", "0.2").ended(1, "has not ended in 0.2 seconds", "wait again")
    assert fleet("cancel", turn).ended(0, "The turn is cancelled.")
    assert fleet("wait", turn).ended(1, "ended: cancelled")
    assert fleet("submit", "teller").ended(2, "There is no prompt.")


def test_a_worker_that_cannot_begin(shop: Surroundings, tmp_path: Path) -> None:
    nowhere = ("--postgres", f"host={tmp_path} dbname=x")
    assert shop.here("worker", "shop").ended(2, "is not MODULE:ATTRIBUTE")
    assert shop.here("worker", "nope:agents").ended(2, "There is no module 'nope'")
    assert shop.here("worker", "shop:agnts").ended(2, "Did you mean agents?")
    assert shop.here("worker", "shop:nothing").ended(2, "neither a Worker nor a mapping")
    assert shop.here("worker", "shop:worker", *nowhere).ended(2, "has its own database")
    assert shop.here("worker", "shop:agents", *nowhere).ended(1, "cannot be reached")
    (shop.work / "broken.py").write_text("1 / 0")
    assert shop.here("worker", "broken:agents").ended(2, "ZeroDivisionError")


def test_without_the_extra_it_is_named(shop: Surroundings) -> None:
    words = (["fleet", "status"], ["worker", "shop:agents"], ["fleet", "--help"], ["worker", "--help"])
    code = f"""
import sys
sys.modules["psycopg"] = None
from dragoman.cli import main
for words in {words}:
    print("code", main(words))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        cwd=shop.work,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("code")] == ["code 2"] * 2 + ["code 0"] * 2
    assert done.stderr.count("pip install 'dragoman[fleet]'") == 2
