"""The server that the tests use: it is there, it comes back with its data, and it does not outlive the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tests.stores.postgres_server import NoServerHereError, Server, fresh_server

ROOT = Path(__file__).resolve().parent.parent.parent.parent

KILLED = """
import os, signal
from tests.stores.postgres_server import shared_server
server = shared_server()
print(server.directory, (server.directory / "data" / "postmaster.pid").read_text().split()[0], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def gone(directory: Path, process: int) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not directory.exists() and not is_running(process):
            return True
        time.sleep(0.05)
    return False


def test_a_killed_test_run_leaves_nothing(server: Server) -> None:
    ran = subprocess.run([sys.executable, "-c", KILLED], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    directory, process = ran.stdout.split()
    assert gone(Path(directory), int(process))


def test_a_crash_of_the_server_keeps_what_was_committed(server: Server) -> None:
    with fresh_server() as own:
        with psycopg.connect(own.conninfo) as connection:
            connection.execute("CREATE TABLE t AS SELECT 7 AS n")
        own.stop("immediate")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(own.conninfo)
        own.start()
        with psycopg.connect(own.conninfo) as connection:
            assert connection.execute("SELECT n FROM t").fetchone() == (7,)
        directory = own.directory
    assert not directory.exists()


def test_a_server_that_cannot_start_says_why(server: Server) -> None:
    with pytest.raises(RuntimeError, match="no_such_setting"):
        Server({"no_such_setting": "1"})


def test_a_machine_without_the_wheel_is_told_apart(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NoServerHereError, match="not installed"):
        Server()
