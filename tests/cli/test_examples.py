"""The examples of the help texts and of docs/cli.md are ones that work."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.cli.arguments import Group
from dragoman.cli.groups import GROUPS, group
from dragoman.cli.help_text import EXAMPLES, asking_parser
from dragoman.simulator import Simulator
from tests.cli.running import Surroundings

DOCS = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
OF_GROUPS = [line for name in GROUPS for command in group(name).commands.values() for line in command.examples]
OF_DOCS = re.findall(r"^\$ (.*dragoman .*)$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
ALL = sorted({*EXAMPLES, *OF_GROUPS, *OF_DOCS})
ANSWER = '{"name": "Ada", "age": 36, "tags": []}'

# What needs a person, a server or something that is not there; the parser alone sees these.
NOT_RUN = (
    "chat",
    "keys set",
    "keys remove",
    "config edit",
    "mcp serve",
    "mcp call",
    "simulate",
    "history delete",
    "local",
)
NOT_RUN += ("models check", "skills validate", "history search capital", "eval", "fish", "-c", "doctor")


def words_of(example: str) -> list[str]:
    """The arguments of the command in a line of shell."""
    inner = re.sub(r'eval "\$\((.*)\)"', r"\1", example)
    part = next(part for part in inner.split(" | ") if part.startswith("dragoman "))
    return shlex.split(part.partition(" > ")[0])[1:]


@pytest.mark.parametrize("example", ALL)
def test_examples_parse(example: str) -> None:
    words = words_of(example)
    if words[0] not in GROUPS:
        from dragoman.cli.arguments.talking import Talking

        asking_parser().read(words, Talking())
        return
    found: Group = group(words[0])
    if words[0] == "simulate":
        return  # its arguments are the simulator's own, and its own tests run them
    name = words[1] if found.single is None and words[1:] and not words[1].startswith("-") else found.default
    rest = words[2:] if found.single is None and name == (words[1:] or [""])[0] else words[1:]
    if words[0] == "chat":
        from dragoman.cli.arguments.talking import Talking

        found.parser(name).read(rest, Talking())
    else:
        import argparse

        found.parser(name).read(rest, argparse.Namespace())


@pytest.mark.slow
@pytest.mark.parametrize("example", [line for line in ALL if not any(word in line for word in NOT_RUN)])
def test_examples_run(example: str, around: Surroundings) -> None:
    (around.work / "notes.txt").write_text("buy milk\n")
    bin_ = Path(sys.executable).parent
    with Simulator(lambda request: ANSWER if "response_format" in request.body else "Paris.") as simulator:
        around.use(simulator)
        around.here("A conversation to look at.")
        done = subprocess.run(
            ["/bin/sh", "-c", example],
            env={**around.env, "PATH": os.pathsep.join([str(bin_), os.environ["PATH"]])},
            cwd=around.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout or done.stderr
