"""Every code block of README.md and docs/ does what it says.

    python           runs; the blocks of one file share a namespace, in order, in a temporary directory
    sh               every line runs in the checkout and must exit with 0
    console          the same for lines that begin with "$ "; the lines below one are what it prints
    json, toml       parse
    text             is only looked at by people

Any other language, or none, is an error: a block that nobody runs is a block that will be wrong. Commands of dev.py
that would start these tests again, or rewrite the checkout, are parsed by dev.py's own parser instead of being run.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

import dev

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = {"python", "sh", "console", "json", "toml", "text"}
PARSED_ONLY = ("test", "lock", "fix", "docs")
"""Commands of dev.py that are not run from here."""

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<language>[^`]*)$")


@dataclass(frozen=True)
class Block:
    document: Path
    line: int
    """Of the first line of code, counted from 1."""
    language: str
    code: str

    @property
    def place(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks_in(document: Path) -> Iterator[Block]:
    opening: re.Match[str] | None = None
    start, lines = 0, list[str]()
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), start=1):
        fence = FENCE.match(line)
        if opening is None:
            if fence:
                opening, start, lines = fence, number + 1, []
        elif fence and fence["fence"].startswith(opening["fence"]) and not fence["language"].strip():
            yield Block(document, start, opening["language"].strip(), "".join(f"{text}\n" for text in lines))
            opening = None
        else:
            lines.append(line.removeprefix(opening["indent"]))
    assert opening is None, f"{document.relative_to(ROOT)}:{start - 1}: this code block is never closed"


BLOCKS = [block for document in DOCUMENTS for block in blocks_in(document)]


def of(*languages: str) -> pytest.MarkDecorator:
    chosen = [block for block in BLOCKS if block.language in languages]
    return pytest.mark.parametrize("block", chosen, ids=[block.place for block in chosen])


# --- python ----------------------------------------------------------------------------------------------------------


@dataclass
class Document:
    """A document whose python blocks are being run, in order, in one namespace."""

    module: ModuleType
    directory: Path
    waiting: list[Block]
    failed: Block | None = field(default=None)

    def run_up_to(self, last: Block) -> None:
        """Run the block after those before it, where they have not run yet: one block can be tested alone."""
        while last in self.waiting:
            if self.failed is not None:
                pytest.fail(f"{self.failed.place}, which comes before, has failed", pytrace=False)
            block = self.waiting[0]
            # The empty lines make line numbers in a traceback those of the document.
            code = compile("\n" * (block.line - 1) + block.code, str(block.document), "exec", dont_inherit=True)
            try:
                exec(code, self.module.__dict__)
            except BaseException:
                self.failed = block
                raise
            self.waiting.pop(0)


@pytest.fixture(scope="module")
def open_document(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], Document]]:
    opened: dict[Path, Document] = {}

    def open_(path: Path) -> Document:
        if path not in opened:
            # A real module, because dataclasses and schema libraries look up the names of annotations in sys.modules.
            module = ModuleType("docs_" + re.sub(r"\W", "_", str(path.relative_to(ROOT))))
            sys.modules[module.__name__] = module
            waiting = [block for block in BLOCKS if block.document == path and block.language == "python"]
            opened[path] = Document(module, tmp_path_factory.mktemp("docs"), waiting)
        return opened[path]

    yield open_
    for document in opened.values():
        del sys.modules[document.module.__name__]


@of("python")
def test_python_runs(block: Block, open_document: Callable[[Path], Document], monkeypatch: pytest.MonkeyPatch) -> None:
    document = open_document(block.document)
    monkeypatch.chdir(document.directory)
    document.run_up_to(block)


# --- commands --------------------------------------------------------------------------------------------------------


def commands_in(block: Block) -> list[tuple[str, str]]:
    """Each command with what it should print; an empty text where the document does not say."""
    joined = block.code.replace("\\\n", " ")
    if block.language == "sh":
        lines = (line.strip() for line in joined.splitlines())
        return [(line, "") for line in lines if line and not line.startswith("#")]
    commands: list[tuple[str, str]] = []
    for line in joined.splitlines(keepends=True):
        if line.startswith("$ "):
            commands.append((line[2:].strip(), ""))
        else:
            assert commands, f"{block.place}: a console block begins with a command after '$ '"
            command, output = commands.pop()
            commands.append((command, output + line))
    return commands


def development_command(command: str) -> list[str]:
    """The words after `python3 dev.py`, variables before it aside; empty for any other command."""
    words = shlex.split(command, comments=True)
    while words and re.match(r"\w+=", words[0]):
        words.pop(0)
    return words[2:] if words[:2] == ["python3", "dev.py"] else []


@of("sh", "console")
def test_commands_succeed(block: Block, outside_environ: dict[str, str]) -> None:
    # The python3 of a document is the one that runs these tests, whatever else the machine has.
    path = os.pathsep.join([str(Path(sys.executable).parent), outside_environ.get("PATH", os.defpath)])
    for command, expected in commands_in(block):
        development = development_command(command)
        if development and development[0] in PARSED_ONLY:
            dev.parse(development)
            continue
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=ROOT,
            env=outside_environ | {"PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block.place}: {command}\n{done.stdout}{done.stderr}"
        if expected:
            assert done.stdout.strip() == expected.strip(), f"{block.place}: {command}"


def test_the_test_command_of_the_readme_is_what_ci_calls() -> None:
    shell = [line for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines() if line]
    assert shell[:3] == ["#!/usr/bin/env bash", "set -euo pipefail", 'cd "$(dirname "${BASH_SOURCE[0]}")/.."']
    readme = [
        command
        for block in BLOCKS
        if block.document == ROOT / "README.md" and block.language in {"sh", "console"}
        for command, _ in commands_in(block)
        if command.startswith("python3 dev.py test")
    ]
    # In between it may only fetch what the command does not: a program from another registry, and models.
    assert [shell[-1]] == readme == ["python3 dev.py test"]
    assert [line for line in shell if "dev.py test" in line] == readme


# --- data and everything else ----------------------------------------------------------------------------------------


@of("json", "toml")
def test_data_parses(block: Block) -> None:
    parse = json.loads if block.language == "json" else tomllib.loads
    parse(block.code)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_is_of_a_language_that_is_tested(document: Path) -> None:
    others = [block for block in BLOCKS if block.document == document and block.language not in LANGUAGES]
    listed = ", ".join(f"{block.place} ({block.language or 'no language'})" for block in others)
    assert not others, f"use one of {', '.join(sorted(LANGUAGES))} for the blocks at {listed}"


# --- this file's own machinery ---------------------------------------------------------------------------------------
