"""Every place that starts a process, and how programs and our own processes are started."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

import dragoman
from dragoman import Conversation, Message, ToolCall, ToolExecutor
from dragoman._programs import find_program, named_program, open_browser, search_path, start_python
from dragoman.engines import ClaudeEngine, ClaudeSettings
from dragoman.engines.clouds.aws import _run_program
from dragoman.errors import DragomanError
from dragoman.mcp import McpServers
from dragoman.toolkit.bash import bash_tool
from dragoman.toolkit.workspace import Workspace

SOURCES = Path(str(dragoman.__file__)).parent

# --- every place ------------------------------------------------------------------------------------------------------

PLACES: dict[tuple[str, str, str], Literal["ours", "named", "itself", "none"]] = {
    ("_programs.py", "start_python", "subprocess.Popen"): "ours",
    ("engines/local/child.py", "_detach", "os.fork"): "itself",
    ("engines/claude_cli/process.py", "Program.__init__", "subprocess.Popen"): "named",
    ("engines/clouds/aws.py", "_run_program", "subprocess.run"): "named",
    ("embeddings/vectors.py", "Embeddings.__buffer__", "import ctypes.c_float"): "none",
    ("mcp/transports.py", "child", "asyncio.create_subprocess_exec"): "named",
    ("toolkit/bash.py", "run_command", "subprocess.Popen"): "named",
}
"""The file, the function, and what it calls: to run our own code, which `start_python` alone does; a program that the
user names, found by `find_program` or `named_program`; to continue as two processes; or none: an array of numbers."""

STARTERS = {
    "asyncio": ("create_subprocess", "subprocess.create_subprocess"),
    "os": ("exec", "fork", "popen", "posix_spawn", "spawn", "startfile", "system"),
    "platform": ("architecture", "platform", "processor", "uname"),
    "subprocess": ("Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput", "run"),
    "uuid": ("getnode", "uuid1"),
}
"""Modules that are used by their full name, and how the names in them begin that start a process."""
FORBIDDEN = {"_posixsubprocess", "_winapi", "anyio.open_process", "anyio.run_process", "asyncio.subprocess", "billiard"}
FORBIDDEN |= {"cffi", "concurrent.futures.process", "ctypes", "ensurepip", "multiprocessing", "nt", "pexpect", "pip"}
FORBIDDEN |= {"plumbum", "posix", "psutil", "pty", "ptyprocess", "pydoc", "sh", "venv", "webbrowser"}
"""Modules and functions that start processes in ways of their own."""
METHODS = {"ProcessPoolExecutor", "open_process", "run_process", "stdio_client", "subprocess_exec", "subprocess_shell"}
"""The same, whatever they are called on."""


class Finder(ast.NodeVisitor):
    """What a module uses to start processes, outside of its type hints."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.modules: set[str] = set()
        self.found: list[tuple[str, str]] = []

    def add(self, name: str) -> None:
        self.found.append((".".join(self.inside), name))

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            self.imported(each.name)
            self.modules |= {each.name} & STARTERS.keys()
            if each.asname and each.name in STARTERS:
                self.add(f"import {each.name} as {each.asname}")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for each in node.names:
            self.imported(f"{node.module}.{each.name}")
            if node.module in STARTERS and (each.name == "*" or is_starter(node.module, each.name)):
                self.add(f"from {node.module} import {each.name}")

    def imported(self, name: str) -> None:
        if {".".join(name.split(".")[:size]) for size in range(1, 4)} & FORBIDDEN:
            self.add(f"import {name}")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        module, _, name = ast.unparse(node).partition(".")
        if (module in STARTERS and is_starter(module, name)) or node.attr in METHODS:
            self.add(ast.unparse(node))
        if not isinstance(node.value, ast.Name):
            self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        """A module that is no part of a full name: whatever it has can be used from here on."""
        if node.id in self.modules:
            self.add(node.id)

    def visit_Call(self, node: ast.Call) -> None:
        match node:
            case ast.Call(func=ast.Name("isinstance" | "hasattr")):
                return
            case ast.Call(func=ast.Name("getattr"), args=[ast.Name(module), ast.Constant(str(name)), *_]):
                if module in STARTERS and is_starter(module, name):
                    self.add(f"{module}.{name}")
                return
            case ast.Call(func=function, args=[ast.Constant(name), *_]):
                if ast.unparse(function) in ("import_module", "importlib.import_module", "__import__"):
                    self.imported(str(name))
            case _:
                pass
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        """Its type hint is not looked at."""

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.inside.append(node.name)
        for each in (*node.decorator_list, node.args, *node.body):
            self.visit(each)
        self.inside.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 -- the name that ast calls

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.inside.append(node.name)
        self.generic_visit(node)
        self.inside.pop()


def is_starter(module: str, name: str) -> bool:
    return name.startswith(STARTERS[module])


def starts(source: str) -> list[tuple[str, str]]:
    finder = Finder()
    finder.visit(ast.parse(source))
    return finder.found


def test_every_place_that_starts_a_process_is_listed() -> None:
    found = [
        (path.relative_to(SOURCES).as_posix(), *each)
        for path in sorted(SOURCES.rglob("*.py"))
        for each in starts(path.read_text("utf-8"))
    ]
    assert sorted(found) == sorted(PLACES), "list it in PLACES, and start it as the docstring there says"


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess\nsubprocess.run(['x'])",
        "import subprocess\nstart = subprocess.Popen",
        "from subprocess import Popen",
        "import subprocess as sp",
        "import os\nos.system('x')",
        "import os\nos.execvp('x', [])",
        "from os import posix_spawn",
        "import asyncio\nasyncio.create_subprocess_shell('x')",
        "import asyncio\nasyncio.subprocess.create_subprocess_exec('x')",
        "async def f(loop):\n    await loop.subprocess_exec(None, 'x')",
        "import multiprocessing",
        "from concurrent.futures import ProcessPoolExecutor\nmaker = futures.ProcessPoolExecutor",
        "def f():\n    import webbrowser",
        "from importlib import import_module\nimport_module('pty')",
        "import anyio\nanyio.run_process('x')",
        "from anyio import open_process",
        "from mcp.client import stdio\nstdio.stdio_client(p)",
        "from subprocess import *",
        "from asyncio.subprocess import create_subprocess_exec",
        "from asyncio import subprocess\nsubprocess.create_subprocess_exec('x')",
        "import asyncio.subprocess as sub\nsub.create_subprocess_exec('x')",
        "import subprocess\nmodule = subprocess\nmodule.run(['x'])",
        "import os\ngetattr(os, 'system')('x')",
        "from posix import system",
        "import ctypes",
        "import platform\nplatform.processor()",
        "import uuid\nuuid.uuid1()",
        "import venv",
        "import pydoc\npydoc.pager('x')",
    ],
)
def test_the_list_sees_other_ways(source: str) -> None:
    assert starts(source)


def test_type_hints_start_nothing() -> None:
    assert not starts("import subprocess\ndef f(x: subprocess.Popen[bytes]) -> None:\n    y: subprocess.Popen = x")


# --- programs ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a `tool`, and one on the PATH with another; the PATH also has relative entries."""
    for place in ("work", "work/bin", "bin"):
        (tmp_path / place).mkdir()
        program = tmp_path / place / "tool"
        program.write_text(f"#!/bin/sh\necho {place} >> {tmp_path}/ran\n")
        program.chmod(0o755)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("PATH", os.pathsep.join([".", "", "bin", "./bin", str(tmp_path / "bin"), "/bin", ""]))
    return tmp_path


def test_programs_are_not_searched_in_the_working_directory(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_program("tool") == str(here / "bin" / "tool")
    assert search_path(os.environ) == f"{here / 'bin'}{os.pathsep}/bin"
    monkeypatch.setenv("PATH", ".:bin")
    assert find_program("tool") is None
    assert search_path(os.environ) == os.defpath  # an empty one would mean the working directory
    with pytest.raises(FileNotFoundError, match="relative entries of the PATH"):
        named_program("tool", os.environ)


def test_a_path_is_used_as_it_is(here: Path) -> None:
    assert find_program("bin/tool") == str(here / "work" / "bin" / "tool")
    assert find_program(str(here / "bin" / "tool")) == str(here / "bin" / "tool")
    assert find_program("bin/nothing") is None
    assert named_program("./tool", {}) == "./tool"


def test_directories_and_files_that_cannot_be_executed_are_no_programs(here: Path) -> None:
    (here / "bin" / "directory").mkdir()
    (here / "bin" / "text").write_text("")
    assert find_program("directory") is None
    assert find_program("text") is None


def run_bash() -> None:
    with ToolExecutor([bash_tool(Workspace("."))]) as executor:
        executor.execute(ToolCall("c1", "Bash", '{"command": "tool"}'))


def run_claude() -> None:
    with ClaudeEngine("sonnet", settings=ClaudeSettings(program="tool")) as engine:
        engine.reply(Conversation().plus(Message.user("Hello.")))


def run_mcp() -> None:
    with McpServers.from_json({"mcpServers": {"one": {"command": "tool"}}}):
        pass


@pytest.mark.parametrize("run", [run_bash, run_claude, run_mcp, partial(_run_program, "default", "tool --json")])
def test_what_the_user_names_is_the_one_on_the_path(run: Callable[[], object], here: Path) -> None:
    for name in ("bash", "sh"):
        (here / "work" / name).symlink_to("tool")
    with suppress(DragomanError):
        run()
    assert set((here / "ran").read_text().split()) == {"bin"}


# --- our own processes ------------------------------------------------------------------------------------------------

SHOW = "import os, sys; print([os.getcwd(), os.environ.get('PYTHONPATH'), sorted(os.environ), sys.path[:2]])"


def shown(environment: dict[str, str], **given: bool) -> tuple[str, str | None, list[str], list[str]]:
    process = start_python("-c", SHOW, environment=environment, stdout=subprocess.PIPE, **given)
    assert process.stdout is not None
    with process:
        return ast.literal_eval(process.stdout.read().decode())


def test_our_own_processes_know_nothing_of_the_working_directory(tmp_path: Path, here: Path) -> None:
    given = {
        "PATH": ".",
        "PYTHONPATH": f":.:lib:{tmp_path}",
        "PYTHONSTARTUP": "x.py",
        "PYTHONINSPECT": "1",
        "PYTHONWARNINGS": "error::evil.Warning",
        "PYTHONBREAKPOINT": "evil.set_trace",
        "PYTHONUSERBASE": ".",
        "LD_LIBRARY_PATH": ".:",
        "HOME": "/home",
    }
    directory, pythonpath, names, path = shown(given)
    assert (directory, pythonpath) == ("/", str(tmp_path))
    assert set(names) - {"LC_CTYPE"} == {"HOME", "PYTHONPATH"}
    assert path[0] == str(tmp_path)
    assert shown(given, packages=False)[3][0] != str(tmp_path)


def test_an_interpreter_without_a_path_is_not_searched(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", "tool", "./tool"):
        monkeypatch.setattr(sys, "executable", name)
        with pytest.raises(OSError, match=r"sys\.executable"):
            start_python("-c", "", environment={})


def test_the_browser_is_the_users(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if one of that name lies in the working directory."""
    for place, text in (("work", "here"), ("bin", '"$1"')):
        browser = here / place / "browser"
        browser.write_text(f"#!/bin/sh\necho {text} > {here / 'opened'}\n")
        browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", "browser %s")
    open_browser("http://127.0.0.1/page")
    assert (here / "opened").read_text() == "http://127.0.0.1/page\n"
