"""Comparing two commits: finding their sources, and running the same work at both."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench import compare
from bench.server import serving
from devtools.places import SOURCES


@pytest.fixture(autouse=True)
def _this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No environment is made for a test: this one has what is needed."""
    monkeypatch.setattr(compare.environments, "python", lambda _: Path(sys.executable))


def _repository(place: Path) -> str:
    """A checkout of one commit, with a file in src."""
    (place / "src").mkdir(parents=True)
    (place / "src" / "a.py").write_text("old = 1\n", encoding="utf-8")
    for words in ("init -q", "add .", "-c user.name=n -c user.email=e@localhost commit -qm m", "rev-parse HEAD"):
        done = subprocess.run(["git", *words.split()], cwd=place, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_sources_of_a_commit_are_those_of_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = _repository(tmp_path / "checkout")
    monkeypatch.setattr(compare, "ROOT", tmp_path / "checkout")
    monkeypatch.setattr(compare, "DEV", tmp_path / "dev")
    (tmp_path / "checkout" / "src" / "a.py").write_text("new = 2\n", encoding="utf-8")
    (tmp_path / "dev" / "bench" / "commits" / commit / "src").mkdir(parents=True)  # a checkout that was cut short
    found = compare.sources_of("HEAD")
    assert (found / "a.py").read_text(encoding="utf-8") == "old = 1\n"
    assert compare.sources_of(commit[:8]) == found, "checked out once"
    assert compare.sources_of(".") == SOURCES
    with pytest.raises(SystemExit, match="no commit 'nonsense'"):
        compare.sources_of("nonsense")


@pytest.mark.parametrize("kind", ["Plain", "OnLoop"])
def test_the_same_work_is_run_with_the_sources_given(kind: str) -> None:
    with serving() as port:
        task = compare.Task(kind, "turn", f"http://127.0.0.1:{port}")
        assert compare.seconds(SOURCES, task) > 0
