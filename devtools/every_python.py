"""`dev.py test` on other Pythons: the same command, started by each of them, and a table of how they did."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devtools import pythons
from devtools.checks import WIDTH
from devtools.places import ROOT
from devtools.processes import variables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devtools.checks import Selection
    from devtools.pythons import Python

_SUMMARY = re.compile(rb"^=* ?(\d+ (?:passed|failed|errors?|skipped)[^\n]*) in [\d.]+s[^\n]*$", re.MULTILINE)
"""The last line of a run of pytest."""
_COUNT = re.compile(r"(\d+) (passed|failed|error|skipped)")
_TAIL = 4096


@dataclass(frozen=True, kw_only=True)
class Outcome:
    python: Python
    code: int
    counts: Counter[str]
    """How many tests passed, failed and so on, in all runs of pytest together."""
    seconds: float


def test(words: Sequence[str], selection: Selection) -> int:
    """Test with each of these Pythons, or with all there are; 0 if all checks passed on all of them."""
    chosen = [pythons.named(word) for word in words] or pythons.find_all()
    arguments = [word for check in selection.checks for word in ("--only", check.name)]
    if selection.pytest_arguments:
        arguments = ["--", *selection.pytest_arguments]
    outcomes = [_test_on(python, arguments) for python in chosen]
    print("\n── Pythons ".ljust(WIDTH, "─"))
    for each in outcomes:
        print(_row(each))
    return max((each.code for each in outcomes), default=0)


def _test_on(python: Python, arguments: Sequence[str]) -> Outcome:
    """Run the command with this Python, and show what it prints."""
    print(f"\n══ Python {python.name}: {python.path} ".ljust(WIDTH, "═"), flush=True)
    began, counts, tail = time.monotonic(), Counter[str](), b""
    command = [python.path, str(ROOT / "dev.py"), "test", *arguments]
    with subprocess.Popen(command, cwd=ROOT, env=variables(), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while piece := os.read(process.stdout.fileno(), 65536):
            sys.stdout.buffer.write(piece)
            sys.stdout.flush()
            lines, newline, tail = (tail + piece).rpartition(b"\n")
            counts.update(_count(lines + newline))
            tail = tail[-_TAIL:]
    return Outcome(python=python, code=process.wait(), counts=counts, seconds=time.monotonic() - began)


def _count(lines: bytes) -> Counter[str]:
    """What summaries of pytest in these lines say."""
    found = Counter[str]()
    for summary in _SUMMARY.findall(lines):
        for number, what in _COUNT.findall(summary.decode("utf-8", "replace")):
            found[what] += int(number)
    return found


def _row(outcome: Outcome) -> str:
    said = [f"{number} {what}" for what, number in sorted(outcome.counts.items())]
    verdict = "ok" if outcome.code == 0 else "FAILED"
    return f"{outcome.python.name:<9}{verdict:<8}{', '.join(said) or 'no tests':<44}{outcome.seconds:7.0f} s"
