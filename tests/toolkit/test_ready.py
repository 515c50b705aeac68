"""All ready tools together, and `now`."""

from __future__ import annotations

import subprocess
import sys
import zoneinfo
from pathlib import Path

import pytest

from dragoman.errors import ConfigurationError
from dragoman.toolkit import FetchSettings, MemorySkillStore, NullResponder, Workspace, toolkit
from dragoman.toolkit.ready import now_tool
from tests.toolkit.calling import Call, bad, both_colours, call, good, words

ALWAYS = ["Read", "Write", "Edit", "Glob", "Grep", "Bash", "Fetch", "calculator", "now"]


def test_names_and_options_of_the_tools(tmp_path: Path) -> None:
    assert [tool.name for tool in toolkit(tmp_path)] == ALWAYS
    tools = toolkit(Workspace(tmp_path), responder=NullResponder(), skills=MemorySkillStore([]))
    assert [tool.name for tool in tools] == [*ALWAYS, *words("react_emoji send_update Skill LoadSkillSupporting")]
    changing = words("Write Edit Bash react_emoji send_update")
    assert [tool.name for tool in tools if not tool.options.read_only] == changing
    assert [tool.name for tool in tools if not tool.options.idempotent] == ["Edit", "Bash", "send_update"]
    assert [tool.name for tool in tools if tool.options.retries == 0] == ["Edit", "Bash", "send_update"]


NEEDED = {
    "Read": "file_path", "Write": "file_path", "Edit": "file_path", "Glob": "pattern", "Grep": "pattern",
    "Bash": "command", "Fetch": "url", "calculator": "expression", "react_emoji": "emoji", "send_update": "message",
    "Skill": "name",
}  # fmt: skip


def test_a_missing_argument_is_named(tmp_path: Path) -> None:
    others = {"Write": {"content": "x"}, "Edit": {"old_string": "x", "new_string": "y"}}
    tools = toolkit(tmp_path, responder=NullResponder(), skills=MemorySkillStore([]))
    for tool in tools.filtered(NEEDED):
        name, other = NEEDED[tool.name], others.get(tool.name, {})
        assert name in tool.spec.schema["required"]
        for given in ({}, {name: ""}, {name: None}):
            said = bad(call(tool, **other, **given), "validation")
            problem = said.removeprefix(f"invalid arguments for tool {tool.name!r}: {name}: ")
            assert problem.startswith('string "" is shorter' if given.get(name) == "" else "expected string")


def test_only_named_tools_are_built(tmp_path: Path) -> None:
    assert [tool.name for tool in toolkit(tmp_path, only=["now", "Read"])] == ["now", "Read"]
    # A network that is none is an error of Fetch, which nobody asked for.
    assert len(toolkit(tmp_path, only=["Grep"], fetch=FetchSettings(allow_networks=("home",)))) == 1
    with pytest.raises(ConfigurationError, match="no ready tool 'Sing'"):
        toolkit(tmp_path, only=["Sing"])


def test_the_package_alone_loads_nothing() -> None:
    program = "import sys, dragoman.toolkit; print([m for m in sys.modules if m.startswith('dragoman.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['dragoman._door', 'dragoman._version', 'dragoman.toolkit']"


@both_colours
def test_the_time_in_time_zones(called: Call) -> None:
    now = now_tool(clock=lambda: 1_700_000_000.0)
    assert good(called(now)) == good(called(now, timezone="")) == "2023-11-14T22:13:20+00:00 (Tuesday, UTC)"
    assert good(called(now, timezone="Asia/Tokyo")) == "2023-11-15T07:13:20+09:00 (Wednesday, Asia/Tokyo)"


@both_colours
def test_a_machine_without_time_zone_data_is_not_blamed_on_the_name(
    called: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tzdata", None)
    zoneinfo.reset_tzpath(to=[str(tmp_path)])
    try:
        zoneinfo.ZoneInfo.clear_cache()
        said = bad(called(now_tool(), timezone="Europe/Rome"), "execution")
        assert "no time zone data" in said
        assert "tzdata" in said
        assert "UTC" in good(called(now_tool(), timezone="UTC"))
    finally:
        zoneinfo.reset_tzpath()
