"""Every check there is, in one table, and the running of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from devtools import locks, wheel
from devtools.errors import DevelopmentError
from devtools.places import CACHE, ROOT
from devtools.processes import call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devtools.environments import Environment

WIDTH = 100

ROOM_FLOORS = {"conversation": 95.0, "tools": 95.0}
"""The coverage, branches included, that a room's own tests have to reach."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a check may use."""

    environment: Environment
    scratch: Path
    """A directory of this run alone: runs side by side in one checkout do not meet."""
    pytest_arguments: tuple[str, ...] = ()
    covers: bool = False
    """Whether the rooms with a floor of coverage are tested by the check of that name."""

    def call(self, program: str, *arguments: str | Path) -> bool:
        """Run a program of the environment in front of the person; True when it is content."""
        variables = self.environment.variables | {"COVERAGE_FILE": str(self.scratch / "coverage")}
        return call([self.environment.program(program), *arguments], env=variables) == 0


@dataclass(frozen=True, kw_only=True)
class Check:
    name: str
    what: str
    passes: Callable[[Work], bool]
    beside: bool = False
    """Whether it is run beside the tests, which often wait for other processes, rather than before or after them."""


@dataclass(frozen=True, kw_only=True)
class Result:
    name: str
    passed: bool
    seconds: float
    output: str = ""
    """What it printed, unless that was printed at once."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    checks: tuple[Check, ...]
    pytest_arguments: tuple[str, ...] = ()


def _locks(_: Work) -> bool:
    found = [problem for lock in locks.LOCKS for problem in locks.problems(lock)]
    print("\n".join(found) or "every lock answers its requirements")
    return not found


def _shared() -> tuple[str, ...]:
    """The arguments with which several processes share the tests, a file at a time."""
    workers = 2 * (os.cpu_count() or 1)  # more than there are cores: many tests wait for another process
    # What ends a worker ends it again: without this, a test that stalls would be tried by one worker after the other.
    return ("-n", str(workers), "--dist", "loadfile", "--max-worker-restart", "0")


def _pytest(work: Work) -> bool:
    """All of them, but for those that run while coverage is measured; or, in this process, those somebody picked."""
    elsewhere = [f"--ignore=tests/{room}" for room in ROOM_FLOORS] if work.covers else []
    return work.call("pytest", *(work.pytest_arguments or (*_shared(), "--durations", "25", *elsewhere)))


def _coverage(work: Work) -> bool:
    """Apart from the other tests, because measuring more than doubles their time and gets in the way of threads."""
    rooms = [f"tests/{room}" for room in ROOM_FLOORS]
    if not work.call("pytest", *_shared(), "--quiet", "--cov", "--cov-report", "", *rooms):
        return False
    sources = ",".join(f"src/dragoman/{room}/*" for room in ROOM_FLOORS)
    if not work.call("coverage", "report", "--include", sources):
        return False
    print()
    return all([_room_is_covered(work, room, floor) for room, floor in ROOM_FLOORS.items()])  # noqa: C419 - show all


def _room_is_covered(work: Work, room: str, floor: float) -> bool:
    done = subprocess.run(
        [work.environment.program("coverage"), "report", "--format=total", f"--include=src/dragoman/{room}/*"],
        env=work.environment.variables | {"COVERAGE_FILE": str(work.scratch / "coverage")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        print(f"{room:<14} {(done.stdout + done.stderr).strip()}")
        return False
    covered = float(done.stdout)
    verdict = "" if covered >= floor else "  too little: test the lines listed above, or delete them"
    print(f"{room:<14}{covered:5.1f} % covered, at least {floor:g} % wanted{verdict}")
    return covered >= floor


def build_docs(environment: Environment) -> bool:
    """Build the documentation; False if a link leads nowhere or a name of the reference is not there."""
    arguments = ("build", "--strict", "--clean")
    return call([environment.program("zensical"), *arguments], env=environment.variables) == 0


CHECKS = (
    Check(name="locks", what="each lock answers its requirements", passes=_locks),
    Check(name="ruff", what="lint", passes=lambda work: work.call("ruff", "check")),
    Check(name="format", what="ruff's formatting", passes=lambda work: work.call("ruff", "format", "--check")),
    Check(name="basedpyright", what="strict types", passes=lambda work: work.call("basedpyright"), beside=True),
    Check(
        name="lint-imports",
        what="rooms import only what they may",
        passes=lambda work: work.call("lint-imports", "--no-logo", "--cache-dir", CACHE / "import-linter"),
        beside=True,
    ),
    Check(name="pytest", what="the tests, the code blocks of the documentation among them", passes=_pytest),
    Check(
        name="coverage",
        what=f"the tests of {' and '.join(ROOM_FLOORS)}, and what they cover",
        passes=_coverage,
        beside=True,
    ),
    Check(
        name="docs",
        what="the documentation, without a broken link",
        passes=lambda work: build_docs(work.environment),
        beside=True,
    ),
    Check(
        name="wheel",
        what="the built wheel in an environment with the core dependencies only",
        passes=lambda work: wheel.works(work.environment, work.scratch),
        beside=True,
    ),
)


def selected(only: Sequence[str], expression: str | None, pytest_arguments: Sequence[str]) -> Selection:
    """What `dev.py test` was asked for; everything when nothing was said."""
    arguments = (*(("-k", expression) if expression is not None else ()), *pytest_arguments)
    if arguments:
        if set(only) - {"pytest"}:
            raise DevelopmentError("arguments for pytest go with --only pytest alone.")
        only = ["pytest"]
    return Selection(
        checks=tuple(check for check in CHECKS if not only or check.name in only),
        pytest_arguments=arguments,
    )


def run(selection: Selection, environment: Environment) -> int:
    """Run the checks, failures or not, and sum up. The exit code is 1 when any failed.

    Some run beside the tests, one after the other.
    """
    began = time.monotonic()
    names = {check.name for check in selection.checks}
    beside = [check for check in selection.checks if check.beside and "pytest" in names]
    in_front = [check for check in selection.checks if check not in beside]
    with tempfile.TemporaryDirectory(prefix="dragoman-dev-") as scratch, ThreadPoolExecutor(1) as background:
        work = Work(
            environment=environment,
            scratch=Path(scratch),
            pytest_arguments=selection.pytest_arguments,
            covers="coverage" in names,
        )
        begun = [background.submit(_run_apart, check) for check in beside]
        try:
            results = [_run_here(check, work) for check in in_front]
            for each in begun:
                results.append(each.result())
                print(results[-1].output, end="", flush=True)
        finally:
            background.shutdown(wait=False, cancel_futures=True)
    return _sum_up(results, time.monotonic() - began)


def _run_here(check: Check, work: Work) -> Result:
    print(f"\n── {check.name}: {check.what} ".ljust(WIDTH, "─"), flush=True)
    begin = time.monotonic()
    passed = _passes(check, work)
    return Result(name=check.name, passed=passed, seconds=time.monotonic() - begin)


def _run_apart(check: Check) -> Result:
    """Run a check in a process of its own, and keep what it prints."""
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, ROOT / "dev.py", "test", "--only", check.name],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    output = done.stdout.partition("\n── summary")[0]
    return Result(name=check.name, passed=done.returncode == 0, seconds=time.monotonic() - begin, output=output)


def _passes(check: Check, work: Work) -> bool:
    try:
        return check.passes(work)
    except DevelopmentError as error:
        print(error, flush=True)
        return False


def _sum_up(results: Sequence[Result], seconds: float) -> int:
    print("\n── summary ".ljust(WIDTH, "─"))
    for each in results:
        print(f"{each.name:<14}{'ok' if each.passed else 'FAILED':<8}{each.seconds:6.1f} s")
    failed = [each.name for each in results if not each.passed]
    if failed:
        again = " ".join(f"--only {name}" for name in failed)
        print(f"\n{len(failed)} of {len(results)} checks failed in {seconds:.1f} s. Again: python3 dev.py test {again}")
        return 1
    print(f"\nall {len(results)} checks passed in {seconds:.1f} s")
    return 0
