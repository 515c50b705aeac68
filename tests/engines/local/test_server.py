"""The server process of a model: start, sharing, failures, exit. A small module stands in for the runtime."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

import pytest

from dragoman._stepping import step
from dragoman._stop import Stop, stopping
from dragoman.engines.local import server
from dragoman.engines.local.server import ModelServer, find_or_start, running_models, stop_models
from dragoman.engines.local.storage import try_lock
from dragoman.errors import ConfigurationError, LocalModelError, StoppedError
from tests.processes import children

RUNTIME = """
import os, signal, sys, threading, time
class Any:
    def __getattr__(self, name):
        made = self.__dict__[name] = Any()
        return made
CommonParams = Any
class Server:
    def __init__(self, parameters):
        self.listening_address = "http://127.0.0.1:1"
"""


Runs: TypeAlias = Callable[..., ModelServer]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    """Runs a model; `load` is what happens while it is loaded."""
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(server, "_directory", lambda: tmp_path / "servers")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'modules'}:{Path(server.__file__).parents[3]}")
    (tmp_path / "modules").mkdir()

    def run(load: str = "", context: int = 512) -> ModelServer:
        code = RUNTIME + textwrap.indent(textwrap.dedent(load), " " * 8)
        written = tmp_path / f"runtime-{threading.get_ident()}.py"
        written.write_text(code)
        written.replace(tmp_path / "modules" / "xllamacpp.py")  # as a whole: another run may load it at this moment
        return step(find_or_start(tmp_path / "m.gguf", context, blocking=True))

    before = children()
    yield run
    stop_models()
    assert children() == before
    assert not running_models()


def gone(pid: int, seconds: float = 20.0) -> bool:
    """Whether a process ends, within some seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_a_server_is_shared_until_it_is_stopped(runs: Runs, tmp_path: Path) -> None:
    first = runs()
    assert first.address == "http://127.0.0.1:1"
    assert len(first.key) > 30
    assert first.key not in repr(first)
    assert runs() == first
    other = runs(context=1024)
    assert other.pid != first.pid
    assert {each.pid for each in running_models()} == {first.pid, other.pid}
    assert stop_models("another model") == []
    assert {each.pid for each in stop_models(str(tmp_path / "m.gguf"))} == {first.pid, other.pid}
    assert gone(first.pid)
    assert runs().pid not in (first.pid, other.pid)


def test_only_its_user_can_read_the_state(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "servers").mkdir(mode=0o755)
    runs()
    (state,) = (tmp_path / "servers").glob("*.json")
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.parent.stat().st_mode) == 0o700


def test_concurrent_starts_start_one_server(runs: Runs) -> None:
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda _: runs("time.sleep(0.5)"), range(6)))
    assert len({each.pid for each in found}) == 1


def test_a_killed_server_is_replaced(runs: Runs, tmp_path: Path) -> None:
    first = runs()
    os.kill(first.pid, signal.SIGKILL)
    assert gone(first.pid)
    (state,) = (tmp_path / "servers").glob("*.json")  # another program may use its address by now
    lock = os.open(state.with_suffix(".lock"), os.O_RDWR)
    assert try_lock(lock)  # as the next server does, before it writes its own file
    assert not running_models()
    os.close(lock)
    assert runs("time.sleep(0.5)").pid != first.pid


def test_a_changed_file_gets_a_new_server(runs: Runs, tmp_path: Path) -> None:
    first = runs()
    (tmp_path / "m.gguf").write_bytes(b"GGUF, but another")
    assert runs().pid != first.pid


def test_an_idle_server_exits(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_LOCAL_IDLE", "0")  # as soon as possible: 2 seconds
    computes = """
        def compute():
            end = time.monotonic() + 4
            while time.monotonic() < end:
                sum(range(2_000_000))
                time.sleep(0.2)
        threading.Thread(target=compute, daemon=True).start()
    """
    busy = runs(computes)
    assert not gone(busy.pid, 3)
    assert gone(busy.pid, 60)
    assert not running_models()


def test_a_server_outlives_the_program_that_started_it(runs: Runs, tmp_path: Path) -> None:
    runs()
    stop_models()
    program = f"""
from pathlib import Path
from dragoman._stepping import step
from dragoman.engines.local import server
server._directory = lambda: Path({str(tmp_path / "servers")!r})
print(step(server.find_or_start(Path({str(tmp_path / "m.gguf")!r}), 512, blocking=True)).pid)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert runs().pid == int(done.stdout)


def test_secrets_are_not_in_its_environment(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "DATABASE_URL", "GITHUB_TOKEN"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    known = json.loads(runs("import json; self.listening_address = json.dumps(dict(os.environ))").address)
    assert (known["OMP_NUM_THREADS"], known["OMP_WAIT_POLICY"], known["PATH"]) == ("3", "PASSIVE", os.environ["PATH"])
    assert "secret" not in known.values()


def test_parameters_reach_the_runtime(runs: Runs, tmp_path: Path) -> None:
    told = runs("self.listening_address = f'{parameters.model.path} {parameters.n_ctx} {parameters.api_keys[0]}'")
    assert told.address == f"{tmp_path / 'm.gguf'} 512 {told.key}"


FAILURES = {
    "raise RuntimeError('unknown architecture')": ("wrong_file", "unknown architecture"),
    "os.kill(os.getpid(), signal.SIGILL)": ("unsupported_processor", "processor"),
    "os.kill(os.getpid(), signal.SIGKILL)": ("no_memory", "137"),
    "sys.stderr.write('error: failed to allocate buffer\\n'); sys.exit(1)": ("no_memory", "buffer"),
    "os._exit(7)": ("wrong_file", "status 7"),
}


@pytest.mark.parametrize("load", FAILURES)
def test_failures_have_a_reason_and_a_hint(load: str, runs: Runs) -> None:
    reason, said = FAILURES[load]
    with pytest.raises(LocalModelError) as caught:
        runs(load)
    assert caught.value.reason == reason
    assert said in caught.value.message
    assert caught.value.hint
    assert runs().address  # it can be tried again


def test_a_runtime_that_cannot_be_loaded_is_reported(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        globals(), "RUNTIME", "raise ImportError('it is for another machine')\ndef server():\n    if 1:\n"
    )
    with pytest.raises(LocalModelError, match="another machine") as caught:
        runs("pass")
    assert caught.value.reason == "not_installed"


def test_errors_before_the_start(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_LOCAL_IDLE", "five minutes")
    with pytest.raises(ConfigurationError, match="DRAGOMAN_LOCAL_IDLE"):
        runs()
    monkeypatch.delenv("DRAGOMAN_LOCAL_IDLE")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with pytest.raises(LocalModelError, match="cannot be started"):
        runs()
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(server, "_directory", lambda: tmp_path / "file" / "servers")
    with pytest.raises(LocalModelError, match="cannot be run"):
        runs()
    monkeypatch.setattr(server, "_directory", lambda: tmp_path / "servers")


# --- cancelled starts ---


@pytest.mark.parametrize("how", ["cancelled", "deadline"])
def test_stopped_while_it_loads(how: str, runs: Runs) -> None:
    threads = threading.active_count()
    given = Stop(None if how == "cancelled" else time.monotonic() + 0.5)
    canceller = threading.Timer(0.5 if how == "cancelled" else 60, given.cancel)
    canceller.start()
    with stopping(given), pytest.raises(StoppedError) as caught:
        runs("time.sleep(600)")
    assert caught.value.reason == how
    canceller.cancel()
    canceller.join()
    assert threading.active_count() == threads
    assert runs().address


def test_cancelled_on_a_loop_while_it_loads(runs: Runs, tmp_path: Path) -> None:
    runs("time.sleep(0.1)")
    stop_models()

    async def main() -> None:
        # Of another length than the one before, or Python may take its compiled form for this one.
        (tmp_path / "modules" / "xllamacpp.py").write_text(RUNTIME + "        time.sleep(6000)")
        loading = asyncio.create_task(find_or_start(tmp_path / "m.gguf", 512, blocking=False))
        await asyncio.sleep(0.5)
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading

    asyncio.run(main())
    assert runs().address
