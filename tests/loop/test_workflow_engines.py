"""Turns as workflows of real engines, as examples/ has them: workers are killed, and others go on.

DBOS keeps its steps in SQLite and in PostgreSQL, Restate in its own server, from npm. Where one of them cannot be had,
its tests are skipped.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dragoman.loop import UNCERTAIN
from dragoman.simulator import Request, Simulator
from tests.loop.restate_server import free_ports, restate_server
from tests.mcp.node import NotInstalledError
from tests.processes import started
from tests.rounds import PROFILE
from tests.stores.postgres_server import NoServerHereError, shared_server

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
SECONDS = 90.0
"""For anything that is waited for: far more than it takes."""

pytestmark = pytest.mark.slow


class Shop:
    """An example's program, with its worker and with the people who use it, all in processes of their own."""

    def __init__(self, directory: Path, program: str, where: list[str], serving: list[str], model_url: str) -> None:
        self._directory: Path = directory
        self._command: list[str] = [sys.executable, str(EXAMPLES / program), *where]
        self._serving: list[str] = [*serving, "--model", "openai-compatible:any", "--base-url", model_url]
        # The variable is for where the package is not installed; the key is of no one.
        self._environ: dict[str, str] = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "OPENAI_COMPATIBLE_API_KEY": "k",
        }

    @contextmanager
    def worker(self, pace: float) -> Iterator[Callable[[], None]]:
        """A worker that serves, with tools that are slow or fast; call what is given to kill it."""
        with (
            (self._directory / "worker.log").open("a") as log,
            started(
                [*self._command, "serve", *self._serving],
                cwd=self._directory,
                env={**self._environ, "SHOP_PACE": str(pace)},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as process,
        ):
            for line in process.stdout:
                if line == "serving\n":
                    break
            else:
                pytest.fail((self._directory / "worker.log").read_text()[-3000:], pytrace=False)

            def kill() -> None:
                process.kill()  # kill -9
                process.wait(SECONDS)

            yield kill

    def do(self, *what: str) -> str:
        done = subprocess.run(
            [*self._command, *what],
            cwd=self._directory,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def wait_for(self, order: str, *, answer: bool) -> str:
        """What is shown, as soon as it is the answer, or else calls that wait."""
        end = time.monotonic() + SECONDS
        while True:
            shown = self.do("show", order)
            if shown != "under way" and shown.startswith("[") is not answer:
                return shown
            assert time.monotonic() < end, shown
            time.sleep(0.2)

    @property
    def book(self) -> Counter[str]:
        """What was done to the world."""
        file = self._directory / "book.txt"
        return Counter(file.read_text().splitlines() if file.exists() else [])

    def wait_for_lines(self, *lines: str) -> None:
        end = time.monotonic() + SECONDS
        while not all(self.book[line] for line in lines):
            assert time.monotonic() < end, self.book
            time.sleep(0.05)


class Asked:
    """The shop's model, which counts how often it is asked."""

    def __init__(self) -> None:
        spec = importlib.util.spec_from_file_location("examples_shop", EXAMPLES / "shop.py")
        assert spec is not None
        assert spec.loader is not None
        shop = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(shop)
        self._model: Callable[[Request], object] = shop.model
        self.times: int = 0

    def __call__(self, request: Request) -> object:
        self.times += 1
        return self._model(request)


@pytest.fixture
def asked() -> Asked:
    return Asked()


ENGINES = ["dbos on postgres", "restate", *(["dbos on sqlite"] if PROFILE == "thorough" else [])]


@pytest.fixture(params=ENGINES)
def shop(
    request: pytest.FixtureRequest, tmp_path: Path, asked: Asked, outside_environ: dict[str, str]
) -> Iterator[Shop]:
    package = request.param.split()[0]
    for needed in ("dbos",) if package == "dbos" else ("restate", "hypercorn"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    with Simulator(asked) as simulator:
        base_url = simulator.base_url("openai")
        if request.param == "dbos on sqlite":
            if sys.version_info >= (3, 12) and sqlite3.sqlite_version_info < (3, 42):
                pytest.skip(f"DBOS needs SQLite 3.42 on Python 3.12 and newer; this one has {sqlite3.sqlite_version}")
            yield Shop(tmp_path, "dbos_steps.py", ["--database", "sqlite:///shop.sqlite"], [], base_url)
        elif request.param == "dbos on postgres":
            try:
                server = shared_server()
            except NoServerHereError as error:
                pytest.skip(str(error))
            name = f"shop_{os.urandom(4).hex()}"
            database = f"postgresql+psycopg://postgres@/{name}?host={server.directory}"
            yield Shop(tmp_path, "dbos_steps.py", ["--database", database], [], base_url)
        else:
            data = tmp_path / "restate"
            data.mkdir()
            try:
                with restate_server(data, outside_environ) as server:
                    where = ["--ingress", server.ingress, "--admin", server.admin]
                    serving = ["--port", str(free_ports(1)[0])]
                    yield Shop(tmp_path, "restate_steps.py", where, serving, base_url)
            except NotInstalledError as error:
                pytest.skip(str(error))


def test_a_crash_during_a_call_never_repeats_it(shop: Shop, asked: Asked) -> None:
    with shop.worker(pace=15) as kill:
        shop.do("ask", "o1", "Is there a sofa, tea, and a lamp? Charge Ada 5.")
        shop.wait_for_lines("charged Ada 5", "saw tea")
        time.sleep(3)  # until it is kept that the tea was seen; the lamp and the sofa take longer
        kill()
    assert shop.book == {"charged Ada 5": 1, "saw tea": 1}
    with shop.worker(pace=0.1):
        (waits,) = json.loads(shop.wait_for("o1", answer=False))
        assert (waits["call"]["id"], waits["reason"]) == ("charge-Ada", UNCERTAIN)
        # What was finished has not run again, what may be repeated has.
        assert shop.book == {"charged Ada 5": 1, "saw tea": 1, "saw lamp": 1, "saw sofa": 1}
        shop.do("answer", "o1", "no", "--reason", "she has paid")
        said = shop.wait_for("o1", answer=True)
    # The results are those of their calls, in whatever order these have ended in either life.
    seen, _, refused = said.partition("lamp. ")
    assert seen == "There is a sofa. There is a tea. There is a "
    assert "'charge' was denied: she has paid." in refused
    assert shop.book == {"charged Ada 5": 1, "saw tea": 1, "saw lamp": 1, "saw sofa": 1}
    assert asked.times == 2  # nor was the model asked again


@pytest.mark.parametrize("shop", ["dbos on postgres", "restate"], indirect=True)
def test_an_approval_comes_from_another_process_after_the_worker_was_replaced(shop: Shop, asked: Asked) -> None:
    with shop.worker(pace=0.1) as kill:
        shop.do("ask", "o2", "Charge Bo 500, charge Cy 5. Is there tea?")
        (waits,) = json.loads(shop.wait_for("o2", answer=False))
        assert (waits["call"]["id"], waits["reason"]) == ("charge-Bo", "charge needs approval")
        kill()
    assert shop.book == {"charged Cy 5": 1, "saw tea": 1}
    with shop.worker(pace=0.1):
        shop.do("answer", "o2", "yes")
        said = shop.wait_for("o2", answer=True)
    assert said == "There is a tea. Bo has paid 500. Cy has paid 5."
    assert shop.book == {"charged Bo 500": 1, "charged Cy 5": 1, "saw tea": 1}
    assert asked.times == 2


@pytest.mark.parametrize("shop", ["dbos on sqlite", "restate"], indirect=True)
def test_calls_that_end_at_the_same_moment_are_all_noticed(shop: Shop) -> None:
    items = ["lamp", "lamp", "tea", "lamp", "sofa", "lamp", "tea", "lamp"]  # more than run at once
    with shop.worker(pace=0.01):
        for order in ("o3", "o4", "o5"):
            shop.do("ask", order, f"Is there {', '.join(items)}?")
        said = [shop.wait_for(order, answer=True) for order in ("o3", "o4", "o5")]
    assert said == [" ".join(f"There is a {item}." for item in items)] * 3
    assert shop.book == {"saw tea": 6, "saw lamp": 15, "saw sofa": 3}


@pytest.mark.parametrize("program", ["dbos_steps.py", "restate_steps.py"])
def test_the_adapters_in_the_documentation_are_those_of_the_examples(program: str) -> None:
    _, _, page = (ROOT / "docs" / "fleet.md").read_text().partition("## Any other workflow engine")
    (adapter,) = [
        block.partition("```")[0]
        for block in page.split("```text\n")[1:]
        if {"dbos_steps.py": "DBOS.", "restate_steps.py": "restate."}[program] in block.partition("```")[0]
    ]
    lines = [line.strip() for line in adapter.splitlines() if line.strip()]
    source = [line.strip() for line in (EXAMPLES / program).read_text().splitlines()]
    source = [line for line in source if line and not line.startswith('"""')]
    start = source.index(lines[0])
    assert source[start : start + len(lines)] == lines
