"""A directory of a stranger, with a module for every name that Python may look for, and a program for every name on the
PATH: no command of the CLI runs any of it.

Here one process runs the installed script for all commands; in a thorough run each command has its own.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.cli.program import COMMANDS, load_command
from tests.cli.running import MODEL, Surroundings, calling, wait_for
from tests.processes import started
from tests.rounds import PROFILE

SCRIPT = Path(sys.executable).with_name("dragoman")
NAMED = ("bash", "browser", "claude", "credentials", "git", "notes-server", "pip", "python3", "sh", "uname", "xdg-open")
"""Programs that the commands below look for, on the PATH or not."""
SERVE = ("web", "simulate")
"""These run until they are stopped."""

GIVEN = {
    "batch submit": ["-m", "openai:gpt-5", "questions.txt"],
    "keys remove": ["openai"],
    "keys set": ["openai"],
    "mcp call": ["notes", "read"],
    "tools schema": ["Read"],
    "skills validate": ["."],
}
"""Better arguments than any word, for commands that need some."""
MORE = (
    ["Hello."],  # without a key: the local model, which is downloaded
    ["-m", "local:./model.gguf", "Hello."],
    ["-m", "claude-local:", "Hello."],
    ["-m", "bedrock:anthropic.claude-sonnet-4-5-20250929-v1:0", "Hello."],
    ["-m", MODEL, "-T", "toolkit", "--approve", "auto", "Look around."],
    ["chat", "-m", MODEL, "-T", "notes"],
    ["tools", "schema", "statistics:mean"],
    ["tools", "schema", "shop:price"],
    ["worker", "shop:agents", "--postgres", "postgresql://127.0.0.1:9/none"],
    ["fleet", "status", "--postgres", "postgresql://127.0.0.1:9/none"],
    ["web", "--host", "0.0.0.0"],
    ["simulate", "--list-faults"],
)
SCRIPTED = [
    calling("Bash", {"command": "git --version; uname; python3 -P -c 'pass'"}),
    calling("Grep", {"pattern": "x+"}),
]


def every_command() -> Iterator[list[str]]:
    """Each command of the parsers with as few arguments as it takes, and some with more."""
    for name in COMMANDS:
        parser = load_command(name)
        for below, command in (parser.commands or {"": parser}).items():
            words = [name, *([below] if below else [])]
            given = GIVEN.get(" ".join(words))
            if name not in SERVE:
                yield [*words, *(list(fill(command)) if given is None else given)]
    yield from MORE


def fill(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if action.required and action.nargs != "*":
            yield from action.option_strings[:1]
            yield str(next(iter(action.choices))) if action.choices else "x"


class Hostile:
    """The directory, and what has run of it."""

    def __init__(self, place: Path, marks: Path) -> None:
        self.place = place
        self.marks = marks
        marks.mkdir()
        names = {*sys.stdlib_module_names, *importlib.metadata.packages_distributions(), "sitecustomize"}
        names |= {"dragoman", "usercustomize", "xllamacpp", "yaml", "rich", "shtab", "keyring"}
        mark = f"open({str(marks)!r} + '/' + __name__, 'w').close()\n"
        for name in names - {"shop", "__main__"}:
            if name.isidentifier():
                (place / f"{name}.py").write_text(mark)
                (place / name).mkdir()
                (place / name / "__init__.py").write_text(mark)
        self.program = marks.with_name("decoy")
        self.program.write_text(f'#!/bin/sh\n: > "{marks}/program ${{0##*/}}"\n')
        self.program.chmod(0o755)
        on_path = {each.name for entry in os.get_exec_path() if Path(entry).is_dir() for each in Path(entry).iterdir()}
        for name in {*on_path, *NAMED} - {each.name for each in place.iterdir()}:
            (place / name).symlink_to(self.program)
        (place / "bin").mkdir(exist_ok=True)
        for name in NAMED:
            (place / "bin" / name).symlink_to(self.program)

    @property
    def ran(self) -> list[str]:
        return sorted([each.name for each in self.marks.iterdir()])


@pytest.fixture
def hostile(around: Surroundings, tmp_path: Path) -> Hostile:
    """It is the working directory, and on the PATH in every relative way."""
    made = Hostile(around.work, tmp_path / "marks")
    (around.work / "shop.py").write_text(
        "import dragoman.fleet\ndef price(thing: str) -> int:\n    'Its price.'\n    return 1\n"
        "agents = {'seller': dragoman.fleet.Agent('openai:gpt-5')}\n"
    )
    (around.work / "questions.txt").write_text("Why?\n")
    (around.work / "model.gguf").write_bytes(b"GGUF\x03\0\0\0" + bytes(64))
    own = around.home / "own"
    own.mkdir()
    for name in ("browser", "claude", "credentials", "notes-server"):
        (own / name).write_text(f"#!/bin/sh\necho $1 > '{around.home}/opened'\nexit 1\n")
        (own / name).chmod(0o755)
    around.configure('[mcp.servers.notes]\ncommand = "notes-server"\n')
    (around.home / ".aws").mkdir()
    (around.home / ".aws" / "config").write_text("[default]\nregion = us-east-1\ncredential_process = credentials\n")
    nowhere = "http://127.0.0.1:9"
    around.set(
        PATH=os.pathsep.join(["", ".", "bin", "./bin", str(own), os.environ["PATH"], ""]),
        BROWSER="browser %s",
        PYTHONSTARTUP="typing.py",
        PIP_INDEX_URL=f"{nowhere}/simple",
        PIP_RETRIES="0",
        https_proxy=nowhere,
        AWS_EC2_METADATA_DISABLED="true",
        GIT_CEILING_DIRECTORIES="/",
    )
    return made


ALL_IN_ONE = """\
import json, os, runpy, signal, sys
script, lines = sys.argv[1], json.loads(sys.argv[2])
for words in lines:
    signal.alarm(120)
    sys.argv[:] = [script, *words]
    sys.stdin, sys.stdout = open(os.dup(0)), open(os.dup(1), "w")
    code = "nothing"
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        code = ended.code
    os.write(1, json.dumps([words, code]).encode() + b"\\n")
"""


@pytest.mark.slow
def test_no_command_runs_what_lies_in_the_working_directory(
    hostile: Hostile, around: Surroundings, tmp_path: Path
) -> None:
    lines = list(every_command())
    with around.talking(SCRIPTED * len(lines)) as simulator:
        env = {**around.env, "OPENAI_COMPATIBLE_BASE_URL": simulator.base_url("openai")}
        del env["DRAGOMAN_MODEL"]
        lines = [[*words, "--base-url", env["DRAGOMAN_BASE_URL"]] if MODEL in words else words for words in lines]
        del env["DRAGOMAN_BASE_URL"]
        if PROFILE == "thorough":
            codes = [[words, run([SCRIPT, *words], env, around.work)[0]] for words in lines]
        else:
            # It runs the installed script again and again, and like it is alone in its directory.
            again = tmp_path / "scripts" / "again"
            again.parent.mkdir()
            again.write_text(f"#!{sys.executable}\n{ALL_IN_ONE}")
            again.chmod(0o755)
            code, out = run([again, SCRIPT, json.dumps(lines)], env, around.work)
            codes = [json.loads(line) for line in out.splitlines() if line.startswith("[[")]
            assert code == 0, codes[-1:]
        assert simulator.requests[0].tools, "the tools were offered"
    assert [words for words, code in codes if not 0 <= code <= 7] == [], "these did not end by themselves"
    assert len(codes) == len(lines)
    assert hostile.ran == []


def run(command: list[Path | str], env: dict[str, str], directory: Path) -> tuple[int, str]:
    with started(
        command, env=env, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as program:
        out, _ = program.communicate()
    return program.returncode, out


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVE)
def test_neither_does_one_that_serves(name: str, hostile: Hostile, around: Surroundings) -> None:
    command = [SCRIPT, name, *(["-m", "openai-compatible:none", "-T", "toolkit"] if name == "web" else [])]
    output = subprocess.PIPE
    with started(
        command, env=around.env, cwd=around.work, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
    ) as program:
        assert program.stdout is not None
        line = b""
        while b"http://" not in line:
            line = program.stdout.readline()
            assert line, "it ended before it served"
        if name == "web":
            assert wait_for(around.home / "opened").startswith("http://127.0.0.1:")
        program.send_signal(signal.SIGINT)
        program.stdout.read()
    assert program.returncode == 0
    assert hostile.ran == []


def test_as_a_module_python_looks_there_before_we_can_say_no(hostile: Hostile, around: Surroundings) -> None:
    """`python -m dragoman` finds `runpy`, `dragoman` and what these import in the working directory; then nothing."""
    code = "import dragoman, pkgutil, runpy, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    for name in {each.partition(".")[0] for each in loaded.stdout.split()}:
        if (around.work / name).exists():
            shutil.rmtree(around.work / name)
            (around.work / f"{name}.py").unlink()
    for words in (["models", "list", "--offline"], ["tools", "list"]):
        done = around.apart(*words)
        assert done.code == 0, done.err
    assert hostile.ran == []


def test_the_decoys_would_be_seen(hostile: Hostile, around: Surroundings) -> None:
    (around.work / "script.py").write_text("import typing")  # with -c, newer Pythons meet the decoy of linecache first
    subprocess.run([sys.executable, "script.py"], cwd=around.work, check=False, capture_output=True)
    subprocess.run(["/bin/sh", "-c", "git status"], cwd=around.work, env=around.env, check=True)
    assert {"typing", "program git"} <= set(hostile.ran)
