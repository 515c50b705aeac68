"""Ctrl-C at any moment: whatever it interrupts, the store stays whole, and nobody is locked out of it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.stores.backends import backend_of
from tests.stores.contract import first

ROOT = Path(__file__).resolve().parent.parent.parent
DEADLINE = 150.0
"""Seconds for a child that hangs, beyond those after which it says where; never waited for otherwise."""
PER_LOOP = 3
"""Descriptors of an event loop."""
STRAY_LOOPS = 2
"""Loops of async tools that may be left: the standard library's futures are not safe from Ctrl-C themselves."""

NEIGHBOUR = """
import sys, threading, time
from pathlib import Path
from tests.stores.backends import backend_of
from tests.stores.contract import after, first

store = backend_of(sys.argv[1]).open(Path(sys.argv[2]))
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
own = first("the neighbour")
store.save(own)
count = 1
while not stop.is_set():
    own = after(own, "more") if count % 20 else first("again")
    store.save(own)
    count += 1
    time.sleep(0.002)
print(own.id, len(own.messages), flush=True)
"""


class Child:
    """A process that is ended with the test, or when it takes too long."""

    def __init__(self, *arguments: str) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self._process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, text=True, **pipes)
        self._watchdog = threading.Timer(DEADLINE, self._process.kill)
        self._watchdog.start()

    def line(self) -> str:
        """The next thing that it says; why not, if it ends before."""
        said = self._process.stdout.readline()
        if not said:
            pytest.fail(f"the child ended with {self._process.wait()}:\n{self._process.stderr.read()[-4000:]}")
        return said

    def go_on(self) -> None:
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._watchdog.cancel()
        self._process.kill()
        self._process.communicate()
        self._watchdog.join()


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "wanted"), [("sqlite", 600), ("file", 250)])
def test_ctrl_c_leaves_nothing_behind(backend: str, wanted: int, tmp_path: Path) -> None:
    program = ["-m", "tests.stores.interrupted", backend, str(tmp_path), str(wanted), "20240"]
    with Child("-c", NEIGHBOUR, backend, str(tmp_path)) as neighbour, Child(*program) as child:
        assert json.loads(child.line())["interrupts"] >= wanted
        with backend_of(backend).open(tmp_path) as store:
            store.save(first("while the other one has it open"))
        # The neighbour has been writing all the time: had it been locked out, it would have said so and ended.
        neighbour.go_on()
        id, messages = neighbour.line().split()
        child.go_on()
        seen = json.loads(child.line())
    assert seen["threads"] <= STRAY_LOOPS
    assert seen["descriptors"] <= STRAY_LOOPS * PER_LOOP
    assert seen["confirmed"]
    with backend_of(backend).open(tmp_path) as store:
        assert len(store.load(id).messages) == int(messages)
        for root, confirmed in seen["confirmed"].items():
            assert len(store.latest(root).messages) >= confirmed
        if backend == "sqlite":
            assert sqlite3.connect(tmp_path / "store.db").execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.slow
def test_ctrl_c_in_plain_runs_with_async_tools_leaves_no_threads(tmp_path: Path) -> None:
    with Child("-m", "tests.stores.interrupted", "none", str(tmp_path), "300", "20241") as child:
        assert json.loads(child.line())["interrupts"] >= 300
        child.go_on()
        seen = json.loads(child.line())
    assert seen["threads"] <= STRAY_LOOPS
    assert seen["descriptors"] <= STRAY_LOOPS * PER_LOOP
