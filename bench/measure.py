"""Contenders side by side: their processes, and the rounds in which they take turns.

Owns: starting workers, asking them, interleaving, medians and ratios.
Must not know: what the measurements mean (sections.py) and how they are shown (page.py).
"""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench import environments
from bench.peers import CONTENDERS, FLOOR, OURS
from devtools.places import DEV, ROOT
from devtools.processes import variables

__all__ = ["Cells", "Crew", "Effort", "Processors", "crew", "interleaved", "ratio"]

Answer = dict[str, Any]
Cells = dict[str, Answer]
"""By contender: the medians, or the error."""

PATIENCE = 400
"""Seconds after which a contender has failed."""
SLOW = 1.0
"""Seconds of processor for one operation, from which on one round will do."""
_UNSET = (
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "PYTHONDONTWRITEBYTECODE",
)
"""What would send a client elsewhere, make it carry a key, or have it compile itself at every start."""


class Effort(NamedTuple):
    """How long to look."""

    rounds: int
    """Of the floor and of ours."""
    every: int
    """A peer takes part in every so manieth round; 0: only in the one before the first."""
    budget: float
    """Seconds of processor that one contender has in one round; at least one operation."""


QUICK = Effort(rounds=6, every=3, budget=0.03)
FULL = Effort(rounds=15, every=3, budget=0.05)


def surroundings(**further: str) -> dict[str, str]:
    """The variables of a child."""
    inherited = variables()
    for name in _UNSET:
        inherited.pop(name, None)
        inherited.pop(name.upper(), None)
    return inherited | {"DO_NOT_TRACK": "1"} | further


class Worker:
    """A contender's process."""

    def __init__(self, name: str, further: Mapping[str, str]) -> None:
        row = CONTENDERS[name]
        log = DEV / "bench" / "logs"
        log.mkdir(parents=True, exist_ok=True)
        with (log / f"{name}.txt").open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                [str(environments.python(row.environment)), "-m", "bench.worker", row.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env=surroundings(**further),
            )
        self._rest = b""
        self._dead = ""

    def ask(self, command: Mapping[str, Any]) -> Answer:
        """Its answer; an error in its place, if it has none."""
        if self._dead:
            return {"error": self._dead}
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
            return json.loads(self._line())
        except (OSError, EOFError, TimeoutError) as error:
            self._dead = (
                f"took longer than {PATIENCE} s" if isinstance(error, TimeoutError) else "its process has ended"
            )
            self._process.kill()
            return {"error": self._dead}

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        number = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            if not select.select([number], [], [], PATIENCE)[0]:
                raise TimeoutError
            data = os.read(number, 65536)
            if not data:
                raise EOFError
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Crew:
    """Workers by name, started when they are first asked."""

    def __init__(self, names: Sequence[str], further: Mapping[str, str]) -> None:
        self.names = tuple(names)
        self._further = further
        self._workers: dict[str, Worker] = {}

    def ask(self, name: str, command: Mapping[str, Any]) -> Answer:
        if name not in self._workers:
            self._workers[name] = Worker(name, self._further)
        return self._workers[name].ask(command)

    def dismiss(self, name: str) -> None:
        if name in self._workers:
            self._workers.pop(name).close()

    def close(self) -> None:
        for name in list(self._workers):
            self.dismiss(name)


@contextmanager
def crew(names: Sequence[str], **further: str) -> Iterator[Crew]:
    made = Crew(names, further)
    try:
        yield made
    finally:
        made.close()


def interleaved(
    crew: Crew, command: Mapping[str, Any], effort: Effort, *, names: Sequence[str] | None = None, fresh: bool = False
) -> Cells:
    """One measurement of every contender that can do it, in rounds; medians of what they answer.

    With `fresh`, each works in a new process every time.
    """
    times: dict[str, int] = {}
    slow: set[str] = set()
    samples: dict[str, list[Answer]] = {}
    failed: Cells = {}
    for name in names or crew.names:
        first = crew.ask(name, {**command, "times": 1})
        if first.get("absent"):
            continue
        if "error" in first:
            failed[name] = first
            print(f"    {name}: {first['error']}", file=sys.stderr, flush=True)
            continue
        again = first if fresh else crew.ask(name, {**command, "times": 3 if first["cpu"] < 0.05 else 1})
        times[name] = max(1, min(2000, int(effort.budget / max(again["cpu"], 1e-9))))
        samples[name] = [first] if fresh else []
        if again["cpu"] > SLOW:
            slow.add(name)
        if fresh:
            crew.dismiss(name)
    for number in range(effort.rounds):
        for name in list(times):
            if name not in (FLOOR, OURS) and (not effort.every or number % effort.every or (number and name in slow)):
                continue
            answer = crew.ask(name, {**command, "times": times[name]})
            if fresh:
                crew.dismiss(name)
            if "error" in answer:
                failed[name] = answer
                del times[name]
            else:
                samples[name].append({"round": number, **answer})
    return failed | _medians({name: found for name, found in samples.items() if name not in failed})


def _medians(samples: Mapping[str, Sequence[Answer]]) -> Cells:
    beside = {
        suffix: {each.get("round"): each for each in samples.get(name, ())}
        for suffix, name in (("to_floor", FLOOR), ("to_ours", OURS))
    }
    cells: Cells = {}
    for name, found in samples.items():
        fields = [field for field in found[0] if field != "round"]
        cell: Answer = {field: statistics.median([each[field] for each in found]) for field in fields}
        cell["rounds"] = len(found)
        for suffix, others in beside.items():
            same_round = [(each, others[each.get("round")]) for each in found if each.get("round") in others]
            for field in fields:
                if same_round and all(other.get(field, 0) > 0 for _, other in same_round):
                    ratios = [mine[field] / other[field] for mine, other in same_round]
                    cell[f"{field}_{suffix}"] = statistics.median(ratios)
        cells[name] = cell
    return cells


def ratio(cells: Cells, field: str = "cpu") -> float | None:
    """Ours to the best peer's; None where there is none."""
    found = [to_ours(cells, name, field) for name in cells if name not in (FLOOR, OURS)]
    known = [each for each in found if each]
    return 1 / min(known) if known else None


def to_ours(cells: Cells, name: str, field: str = "cpu") -> float | None:
    """Somebody's figure to ours, round by round where that is known; None where one of them has none."""
    cell, ours = cells[name], cells.get(OURS, {}).get(field)
    if field not in cell or not ours:
        return None
    return cell.get(f"{field}_to_ours", cell[field] / ours)


def load() -> list[float]:
    return [round(value, 2) for value in os.getloadavg()]


class Processors:
    """How much of the machine's processors its host gives to others, from now on: where that is much, figures jump."""

    def __init__(self) -> None:
        self._before = self._ticks()

    @staticmethod
    def _ticks() -> list[int]:
        try:
            words = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
        except OSError:
            return []
        return [int(word) for word in words]

    @property
    def stolen(self) -> float | None:
        """The share, from 0 to 1; None where the system does not say."""
        passed = [now - before for before, now in zip(self._before, self._ticks(), strict=True)]
        return round(passed[7] / sum(passed), 4) if len(passed) == 8 and sum(passed) else None


def here(path: Path) -> str:
    return str(path.relative_to(ROOT))
