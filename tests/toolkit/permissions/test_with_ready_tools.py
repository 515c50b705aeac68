"""The rules over the ready tools, as a program uses them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.toolkit import toolkit
from dragoman.toolkit.permissions import PermissionChecker, policy_from
from dragoman.toolkit.skills import MemorySkillStore, Skill
from dragoman.tools.executor import ToolExecutor
from tests.toolkit.permissions.helpers import call
from tests.tools.colours import Runner, both_colours

POLICY = policy_from(
    {
        "rules": [
            {"action": "allow", "tool": "Bash", "command": ["echo", "ls"]},
            {"action": "allow", "tool": ["Write", "Edit"], "path": "notes"},
            {"action": "deny", "tool": "*", "path": "**/.env", "reason": "it holds keys"},
            {"action": "deny", "tool": "Bash", "command": "rm", "reason": "nothing is deleted"},
        ]
    }
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    (tmp_path / "a.txt").write_text("hello")
    (tmp_path / ".env").write_text("KEY=1")
    (tmp_path / "out").symlink_to("/etc")
    return tmp_path


CASES = {
    "read inside": (call("Read", file_path="a.txt"), "ok"),
    "read a secret": (call("Read", file_path=".env"), "denied"),
    "read outside": (call("Read", file_path="/etc/hostname"), "pending"),
    "read through a link": (call("Read", file_path="out/hostname"), "pending"),
    "grep a file": (call("Grep", pattern="/etc/hell", path="a.txt"), "ok"),
    "grep where secrets are": (call("Grep", pattern="KEY"), "pending"),
    "glob where secrets may be": (call("Glob", pattern="*", path="notes"), "pending"),
    "glob outside": (call("Glob", pattern="../*", path="notes"), "pending"),
    "write where it may": (call("Write", file_path="notes/x.md", content="/etc/passwd ../.env"), "ok"),
    "write elsewhere": (call("Write", file_path="a.txt", content="x"), "pending"),
    "write a secret": (call("Write", file_path="notes/../.env", content="x"), "denied"),
    "run": (call("Bash", command="echo hello"), "ok"),
    "run two": (call("Bash", command="echo hello; ls"), "pending"),
    "run and remove": (call("Bash", command="echo hello; rm -rf notes"), "denied"),
    "run on a secret": (call("Bash", command="echo .env"), "denied"),
    "run with an option": (call("Bash", command="ls -la"), "pending"),
    "fetch": (call("Fetch", url="https://docs.example/"), "pending"),
    "calculate": (call("calculator", expression="4/2"), "ok"),
    "the time": (call("now"), "ok"),
    "a skill": (call("Skill", name="s"), "ok"),
    "a file of a skill": (call("LoadSkillSupporting", name="s", path="f.md"), "ok"),
}


@both_colours
@pytest.mark.parametrize("case", CASES)
def test_the_ready_tools_under_rules(execute_all: Runner, case: str, workspace: Path) -> None:
    skills = MemorySkillStore([Skill(name="s", description="x", body="y")], {"s": {"f.md": "text"}})
    executor = ToolExecutor(
        toolkit(workspace, skills=skills), permission=PermissionChecker(POLICY, workspace=workspace)
    )
    made, expected = CASES[case]
    executed = execute_all(executor, [made])
    found = "pending" if executed.pending else executed.results[0].error_type or "ok"
    assert found == expected, [result.text for result in executed.results]
    assert (workspace / "notes").is_dir()
