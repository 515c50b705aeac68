"""Which tools are meant by -T."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from dragoman.chat import load_config
from dragoman.cli.arguments import UsageError
from dragoman.cli.settings import read_settings
from dragoman.cli.terminal import Terminal
from dragoman.cli.tools import READY, ToolChoice
from dragoman.errors import ToolConflictError
from tests.cli.running import Surroundings

TOOLS_FILE = """
from dragoman import tool

def helper(x: int) -> int:
    return x

@tool
def double(x: int) -> int:
    return helper(x) * 2
"""
FUNCTIONS_FILE = """
from json import dumps

def shout(text: str) -> str:
    return text.upper()

def _hidden() -> None: ...
"""


@pytest.fixture
def choice(around: Surroundings) -> Iterator[ToolChoice]:
    around.configure('[mcp.servers.files]\ncommand = "mcp-files"\n')
    before = list(sys.path)
    with ExitStack() as stack:
        yield ToolChoice(read_settings(load_config()), Terminal(), stack)
    sys.path[:] = before


def names(choice: ToolChoice, *wanted: str) -> list[str]:
    return [tool.name for tool in choice.build(wanted)]


def test_ready_tools_by_name_in_any_case_and_all_of_them(choice: ToolChoice) -> None:
    assert names(choice, "Read", "bash", "READ") == ["Read", "Bash"]
    assert names(choice) == []
    assert names(choice, "toolkit") == list(READY)


def test_a_file_offers_its_tools_or_else_its_functions(choice: ToolChoice, around: Surroundings) -> None:
    for place in (around.work, around.home):
        (place / "mine.py").write_text(TOOLS_FILE)
    (around.work / "plain.py").write_text(FUNCTIONS_FILE)
    assert names(choice, "mine.py", "./plain.py") == ["double", "shout"]
    assert names(choice, "mine.py:helper") == ["helper"]
    assert names(choice, "~/mine.py") == ["double"]


def test_a_function_of_a_module_here_or_installed(choice: ToolChoice, around: Surroundings) -> None:
    (around.work / "here_only_for_this_test.py").write_text(FUNCTIONS_FILE)
    found = names(choice, "here_only_for_this_test:shout", "dragoman.cli.ask:read_schema")
    assert found == ["shout", "read_schema"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Raed", "Did you mean Read?"),
        ("xyzzy", "See dragoman tools list"),
        ("mcp:filse", "Did you mean files?"),
        ("missing.py", "There is no file"),
        ("no_such_module_anywhere:f", "There is no module"),
        ("json:dmups", "Did you mean dumps?"),
        ("broken.py", "broken.py cannot be loaded: ZeroDivisionError"),
        ("needing.py", "needing.py cannot be loaded: ModuleNotFoundError: No module named 'not_there'"),
        ("empty.py", "has no tools and no functions"),
        ("Skill", "There are no skills"),
    ],
)
def test_unknown_and_broken_tools_are_refused(name: str, words: str, choice: ToolChoice, around: Surroundings) -> None:
    (around.work / "broken.py").write_text("1 / 0\n")
    (around.work / "empty.py").write_text("x = 1\n")
    (around.work / "needing.py").write_text("import not_there\n")
    with pytest.raises(UsageError) as caught:
        choice.build([name])
    assert words in str(caught.value)


def test_two_tools_of_one_name(choice: ToolChoice, around: Surroundings) -> None:
    (around.work / "mine.py").write_text("def Read(x: int) -> int:\n    return x\n")
    with pytest.raises(ToolConflictError):
        choice.build(["Read", "mine.py"])
