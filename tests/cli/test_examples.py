"""The examples of the help texts and of docs/cli.md are ones that work."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.cli.program import COMMANDS, EXAMPLES, load_command, make_root_parser
from tests.cli.running import Surroundings

DOCS = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
PARSERS = [load_command(name) for name in COMMANDS]
OF_COMMANDS = [line for each in PARSERS for parser in (each, *each.commands.values()) for line in parser.examples]
OF_DOCS = re.findall(r"^\$ (.*dragoman .*)$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
ALL = sorted({*EXAMPLES, *OF_COMMANDS, *OF_DOCS})
ANSWER = '{"name": "Ada", "age": 36, "tags": []}'

# What needs a person, a server or something that is not there; the parser alone sees these.
NOT_RUN = """chat, keys set, keys remove, mcp serve, mcp call, simulate, history delete, local, dragoman web,
skills validate, history search capital, eval, fish, -c, doctor,
worker, fleet, batch""".replace("\n", " ").split(", ")


def words_of(example: str) -> list[str]:
    """The arguments of the command in a line of shell."""
    inner = re.sub(r'eval "\$\((.*)\)"', r"\1", example)
    part = next(part for part in inner.split(" | ") if part.startswith("dragoman "))
    return shlex.split(part.partition(" > ")[0])[1:]


@pytest.mark.parametrize("example", ALL)
def test_examples_parse(example: str) -> None:
    words = words_of(example)
    if words[0] == "simulate":
        return  # its arguments are the simulator's own, and its own tests run them
    parser = make_root_parser()
    if words[0] in COMMANDS:
        parser, words = load_command(words[0]).find_command(words[1:])
    parser.read(words)


@pytest.mark.slow
@pytest.mark.parametrize("example", [line for line in ALL if not any(word in line for word in NOT_RUN)])
def test_examples_run(example: str, around: Surroundings) -> None:
    (around.work / "notes.txt").write_text("buy milk\n")
    bin_ = Path(sys.executable).parent
    with around.talking(lambda request: ANSWER if "response_format" in request.body else "Paris."):
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
