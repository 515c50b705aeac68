"""Running the checks: all of them, whatever fails, and an honest exit code."""

from __future__ import annotations

import subprocess
import threading

import pytest

from devtools import checks
from devtools.checks import Check, Selection, Work
from devtools.environments import DEVELOPMENT, Environment
from devtools.errors import DevelopmentError


def check(name: str, *, passes: bool) -> Check:
    return Check(name=name, what="made up", passes=lambda _: passes)


def test_a_failure_does_not_stop_the_others_and_decides_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    def cannot(_: Work) -> bool:
        raise DevelopmentError("no network here. Connect and try again.")

    selection = Selection(
        checks=(check("one", passes=False), Check(name="two", what="", passes=cannot), check("three", passes=True))
    )
    assert checks.run(selection, DEVELOPMENT) == 1
    summary = capsys.readouterr().out
    assert "no network here. Connect and try again." in summary
    assert [line.split()[:2] for line in summary.partition("── summary")[2].splitlines()[1:4]] == [
        ["one", "FAILED"],
        ["two", "FAILED"],
        ["three", "ok"],
    ]
    assert "2 of 3 checks failed" in summary
    assert "python3 dev.py test --only one --only two" in summary


def test_checks_of_one_core_run_beside_the_tests_and_are_told_of_behind_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun, tested = threading.Event(), threading.Event()

    def run_apart(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        begun.set()
        assert tested.wait(60)
        return subprocess.CompletedProcess(command, 1, f"{command[-1]} says no\n\n── summary ──")

    def passes(_: Work) -> bool:
        waited = begun.wait(60)
        tested.set()
        return waited

    monkeypatch.setattr("devtools.checks.subprocess.run", run_apart)
    types = Check(name="types", what="", passes=lambda _: True, beside=True)
    selection = Selection(checks=(types, Check(name="pytest", what="", passes=passes)))
    assert checks.run(selection, DEVELOPMENT) == 1
    said = capsys.readouterr().out
    assert "types says no" in said.partition("── pytest")[2]
    summary = said.partition("── summary")[2].splitlines()[1:3]
    assert [line.split()[:2] for line in summary] == [["pytest", "ok"], ["types", "FAILED"]]


def test_the_work_gets_what_was_asked_for_and_a_directory_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Work] = []

    def look(work: Work) -> bool:
        seen.append(work)
        return work.scratch.is_dir()

    selection = Selection(checks=(Check(name="look", what="", passes=look),), pytest_arguments=("-x",))
    assert checks.run(selection, DEVELOPMENT) == 0
    assert "all 1 checks passed" in capsys.readouterr().out
    assert seen[0].pytest_arguments == ("-x",)
    assert not seen[0].scratch.exists(), "it goes away afterwards"


@pytest.mark.parametrize(("said", "code", "passes"), [("95.0", 0, True), ("94.9", 0, False), ("No data.", 1, False)])
def test_a_room_below_its_floor_fails(
    said: str, code: int, passes: bool, tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("devtools.environments.DEV", tmp_path)
    environment = Environment(name="e", locks=())
    coverage = environment.directory / "bin" / "coverage"
    coverage.parent.mkdir(parents=True)
    coverage.write_text(f"#!/bin/sh\necho {said}\nexit {code}\n")
    coverage.chmod(0o755)
    work = Work(environment=environment, scratch=tmp_path)
    assert checks._room_is_covered(work, "tools", 95) is passes
    assert said in capsys.readouterr().out
