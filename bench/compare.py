"""Two commits of ours side by side: `python bench/compare.py main my-branch`, or `… main .` for the working tree.

Both are checked out below .dev/bench/commits and run with the same dependencies, against the same server. With
valgrind the instructions of an operation are counted: run it 10 times and 60 times, and divide the difference by 50;
what is loaded and made beforehand falls out of it. That figure does not depend on what else the machine does. Without
valgrind, or with --cpu, it is processor time, in interleaved rounds of one run.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import environments
from bench.measure import surroundings
from bench.peers import OURS
from bench.server import serving
from devtools.places import DEV, ROOT, SOURCES

OPERATIONS = ("turn", "tool_loop", "stream")
FEW, MANY = 10, 60
STREAMS = (1, 4)
"""Of streams fewer will do: each has thousands of events."""
ROUNDS = 11

PROGRAM = """
import sys, time
sys.path[:0] = [{sources!r}, {root!r}]
from bench.contenders.dragoman import {kind}
import dragoman
assert dragoman.__file__.startswith({sources!r}), dragoman.__file__
def plain():
    work = Plain({address!r}, "openai_chat").{operation}
    for _ in range({times}): work()
    return work
def on_loop():
    import asyncio
    async def main():
        work = OnLoop({address!r}, "openai_chat").{operation}
        for _ in range({times}): await work()
        begin = time.process_time()
        for _ in range({timed}): await work()
        print(time.process_time() - begin)
    asyncio.run(main())
if {kind!r} == "Plain":
    work = plain()
    begin = time.process_time()
    for _ in range({timed}): work()
    print(time.process_time() - begin)
else:
    on_loop()
"""


def sources_of(commit: str) -> Path:
    """Where the sources of a commit are; `.` is the working tree as it stands."""
    if commit == ".":
        return SOURCES
    words = ["git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit(f"There is no commit {commit!r} here.")
    place = DEV / "bench" / "commits" / found.stdout.strip()
    if not (place / "done").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        archive = subprocess.run(
            ["git", "archive", found.stdout.strip(), "src"],  # noqa: S607 - the git and tar of whoever works here
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        subprocess.run(["tar", "-x", "-C", str(place)], input=archive.stdout, check=True)  # noqa: S607
        (place / "done").touch()
    return place / "src"


class Task(NamedTuple):
    """What is run at both commits."""

    kind: str
    """`Plain` or `OnLoop`."""
    operation: str
    address: str

    def __str__(self) -> str:
        return f"{self.operation}, {'plain' if self.kind == 'Plain' else 'async'}"

    def run(self, sources: Path, times: int, timed: int, *before: str) -> str:
        """So often, and so often again with the time taken; what the program says, or the program before it."""
        given = {"sources": str(sources), "root": str(ROOT), "times": times, "timed": timed}
        words = [*before, str(environments.python(OURS)), "-c", PROGRAM.format(**given, **self._asdict())]
        done = subprocess.run(words, capture_output=True, text=True, env=surroundings(PYTHONHASHSEED="0"), check=False)
        if done.returncode:
            raise SystemExit(f"{self} fails with {sources}:\n{done.stderr[-2000:]}")
        return done.stderr if before else done.stdout


def instructions(sources: Path, task: Task) -> float:
    """Of one operation, in thousands."""
    few, many = STREAMS if task.operation == "stream" else (FEW, MANY)
    valgrind = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
    task.run(sources, 1, 0)  # which compiles what was checked out just now: that is not to be counted
    counted = [
        int(re.findall(r"Collected\s*:\s*(\d+)", task.run(sources, times, 0, *valgrind))[-1]) for times in (few, many)
    ]
    return (counted[1] - counted[0]) / (many - few) / 1e3


def seconds(sources: Path, task: Task) -> float:
    """Processor time of one operation, in microseconds."""
    times = 3 if task.operation == "stream" else 200
    return float(task.run(sources, times // 2 + 1, times).split()[-1]) / times * 1e6


def compare(one: Path, other: Path, *, cpu: bool, operations: tuple[str, ...]) -> list[tuple[str, float, float, float]]:
    """Rows: the operation, the figure of each commit, the ratio."""
    measured: Callable[[Path, Task], float] = seconds if cpu else instructions
    rows: list[tuple[str, float, float, float]] = []
    with serving() as port:
        for operation in operations:
            address = f"http://127.0.0.1:{port}{'/tools' if operation == 'tool_loop' else ''}"
            for kind in ("Plain", "OnLoop"):
                task = Task(kind, operation, address)
                pairs = [(measured(one, task), measured(other, task)) for _ in range(ROUNDS if cpu else 1)]
                first, second = (statistics.median(values) for values in zip(*pairs, strict=True))
                rows.append((str(task), first, second, statistics.median([b / a for a, b in pairs])))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("one", help="a commit, a branch, or . for the working tree")
    parser.add_argument("other")
    parser.add_argument("--cpu", action="store_true", help="processor time instead of instructions")
    parser.add_argument("--only", action="append", choices=OPERATIONS)
    options = parser.parse_args()
    environments.make(OURS)
    cpu = options.cpu or shutil.which("valgrind") is None
    unit = "µs" if cpu else "thousand instructions"
    print(f"{unit} for one operation, in the openai_chat dialect")
    rows = compare(
        sources_of(options.one),
        sources_of(options.other),
        cpu=cpu,
        operations=tuple(options.only or OPERATIONS),
    )
    print(f"{'':<22}{options.one:>14}{options.other:>14}")
    for name, first, second, ratio in rows:
        print(f"{name:<22}{first:14,.1f}{second:14,.1f}   × {ratio:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
