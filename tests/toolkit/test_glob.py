"""`Glob`."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.toolkit import Workspace
from dragoman.toolkit.search import glob_tool
from dragoman.tools import AnyTool
from tests.toolkit.calling import Call, both_colours, call, good


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("b.py", "a.py", "src/c.py", "src/deep/d.py", "src/e.txt", ".git/config", "out/x.py", ".hidden/h.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("out/\n")
    return tmp_path


@pytest.fixture
def glob(root: Path) -> AnyTool:
    return glob_tool(Workspace(root), max_paths=5)


@both_colours
def test_paths_in_order(called: Call, glob: AnyTool) -> None:
    assert good(called(glob, pattern="**/*.py")).splitlines() == [
        ".hidden/h.py",
        "a.py",
        "b.py",
        "src/c.py",
        "src/deep/d.py",
    ]
    assert good(called(glob, pattern="*.py", path="src")) == "src/c.py"
    assert good(called(glob, pattern="*.none")) == "[No file fits.]"


def test_what_is_ignored_can_be_asked_for(glob: AnyTool) -> None:
    assert good(call(glob, pattern="out/*")) == "[No file fits.]"
    assert good(call(glob, pattern="out/*", include_ignored=True)) == "out/x.py"
    assert good(call(glob, pattern=".git/*", include_ignored=True)) == ".git/config"
    assert good(call(glob, pattern="*", path=".git")) == ".git/config"


def test_many_paths_are_cut(root: Path, glob: AnyTool) -> None:
    for number in range(10):
        (root / f"m{number}").touch()
    lines = good(call(glob, pattern="m*")).splitlines()
    assert lines[:5] == ["m0", "m1", "m2", "m3", "m4"]
    assert lines[5:] == ["[Cut after 5 paths. To see others, use a narrower pattern or path.]"]


def test_a_name_cannot_pretend_to_be_two(root: Path, glob: AnyTool) -> None:
    (root / "evil\n[Cut after 5 paths]").touch()
    assert good(call(glob, pattern="evil*")) == "evil\\n[Cut after 5 paths]"


def test_a_huge_tree_is_not_walked_to_the_end(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.toolkit.walk.MAX_ENTRIES", 20)
    for number in range(50):
        (root / f"m{number}").touch()
    *found, last = good(call(glob_tool(Workspace(root)), pattern="**")).split("\n")
    assert len(found) <= 20
    assert last.startswith("[Not everything was searched")


def test_links_to_directories_are_not_entered(root: Path, glob: AnyTool) -> None:
    (root / "round").symlink_to(".")
    assert good(call(glob, pattern="round/**")) == "[No file fits.]"


def test_long_paths_are_cut_by_their_size(root: Path) -> None:
    deep = root / "/".join(["d" * 200] * 10)
    deep.mkdir(parents=True)
    for number in range(100):
        (deep / f"{number:03}").touch()
    text = good(call(glob_tool(Workspace(root)), pattern="d*/**"))
    assert len(text) < 70_000
    assert text.endswith("paths. To see others, use a narrower pattern or path.]")
