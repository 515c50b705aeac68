"""Nothing heavy is loaded before it is needed."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

HEAVY = {"msgspec", "rich", "prompt_toolkit", "asyncio", "dragoman.chat.client", "dragoman.transport", "difflib"}
ROUNDS = 25


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_load_nothing_heavy(argument: str) -> None:
    code = (
        "import sys; from dragoman.cli import main; main([sys.argv[1]]); "
        "sys.stderr.write('\\n'.join(m for m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, argument], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stderr.split("\n"))


def _seconds(*command: str) -> float:
    """The processor time of a process that is started and ends."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.slow
@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_take_at_most_twice_as_long_as_the_import(argument: str) -> None:
    # Processor time, the quickest of many rounds, both measured in turn: a busy machine disturbs neither or both.
    plain, ours = [], []
    for _ in range(ROUNDS):
        plain.append(_seconds("-c", "import dragoman"))
        ours.append(_seconds("-m", "dragoman", argument))
        if len(ours) >= 5 and min(ours) <= 2 * min(plain):
            break
    assert min(ours) <= 2 * min(plain), (min(ours), min(plain))
