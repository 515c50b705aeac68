"""All ready tools together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.errors import ConfigurationError
from dragoman.toolkit import FetchSettings, MemorySkillStore, NullResponder, Workspace, toolkit
from tests.toolkit.calling import bad, call

ALWAYS = ["Read", "Write", "Edit", "Glob", "Grep", "Bash", "Fetch", "calculator", "now"]


def test_which_tools_there_are(tmp_path: Path) -> None:
    assert [tool.name for tool in toolkit(tmp_path)] == ALWAYS
    assert [tool.name for tool in toolkit(Workspace(tmp_path), responder=NullResponder())] == [
        *ALWAYS,
        "react_emoji",
        "send_update",
    ]


def test_skills_come_with_their_tools(tmp_path: Path) -> None:
    assert [tool.name for tool in toolkit(tmp_path, skills=MemorySkillStore([]))] == [
        *ALWAYS,
        "Skill",
        "LoadSkillSupporting",
    ]


def test_what_each_tool_says_of_itself_is_true(tmp_path: Path) -> None:
    tools = toolkit(tmp_path, responder=NullResponder())
    assert [tool.name for tool in tools if tool.options.read_only] == [
        "Read",
        "Glob",
        "Grep",
        "Fetch",
        "calculator",
        "now",
    ]
    assert [tool.name for tool in tools if not tool.options.idempotent] == ["Edit", "Bash", "send_update"]
    assert [tool.name for tool in tools if tool.options.retries == 0] == ["Edit", "Bash", "send_update"]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    needed = {
        "Read": "file_path",
        "Write": "file_path",
        "Glob": "pattern",
        "Grep": "pattern",
        "Bash": "command",
        "Fetch": "url",
        "calculator": "expression",
        "react_emoji": "emoji",
        "send_update": "message",
        "Skill": "name",
        "Edit": "file_path",
    }
    others = {"Write": {"content": "x"}, "Edit": {"old_string": "x", "new_string": "y"}}
    tools = toolkit(tmp_path, responder=NullResponder(), skills=MemorySkillStore([]))
    for tool in tools.filtered(needed):
        name, other = needed[tool.name], others.get(tool.name, {})
        assert name in tool.spec.schema["required"]
        for given in ({}, {name: ""}, {name: None}):
            assert bad(call(tool, **other, **given), "validation") == f"missing {name} argument"


def test_only_what_is_named_is_built(tmp_path: Path) -> None:
    assert [tool.name for tool in toolkit(tmp_path, only=["now", "Read"])] == ["now", "Read"]
    # A network that is none is an error of Fetch, which nobody asked for.
    assert len(toolkit(tmp_path, only=["Grep"], fetch=FetchSettings(allow_networks=("home",)))) == 1
    with pytest.raises(ConfigurationError, match="no ready tool 'Sing'"):
        toolkit(tmp_path, only=["Sing"])


def test_the_package_alone_loads_nothing() -> None:
    program = "import sys, dragoman.toolkit; print([m for m in sys.modules if m.startswith('dragoman.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['dragoman._door', 'dragoman._version', 'dragoman.toolkit']"
