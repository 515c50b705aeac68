"""`Grep` and `Glob`: findings, caps, expressions and patterns that never end, and what .gitignore files leave out."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dragoman.toolkit import Workspace
from dragoman.toolkit.search import glob_tool, grep_tool
from dragoman.toolkit.walk import PathPattern, ignore_rules, is_ignored
from dragoman.tools import AnyTool, ToolConfig, ToolRun
from tests.processes import children
from tests.toolkit.calling import Call, bad, both_colours, call, good, words
from tests.tools.cases import eventually

ENDLESS = r"^(a|a|b?a)*$"
BAIT = "a" * 60 + "!"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {"a.py": "import os\n\ndef f():\n    return os\n", "src/b.py": "OS = 1\r\nlast os\r\n"}
    files |= {"src/c.txt": "no match\n", ".git/d": "os\n", "out/e": "os\n", ".gitignore": "out/\n"}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content.encode())
    return tmp_path


@pytest.fixture
def grep(root: Path) -> AnyTool:
    return grep_tool(Workspace(root))


def test_ways_to_search(grep: AnyTool) -> None:
    lines = ["a.py:1:import os", "a.py:4:    return os", "src/b.py:2:last os"]
    assert good(call(grep, pattern=r"\bos\b")).splitlines() == lines
    assert good(call(grep, pattern="os", mode="files")) == "a.py\nsrc/b.py"
    assert good(call(grep, pattern="os", mode="count")) == "a.py:2\nsrc/b.py:1"
    assert good(call(grep, pattern="os", mode="count", ignore_case=True)) == "a.py:2\nsrc/b.py:2"
    assert good(call(grep, pattern="o", glob="*.txt")) == "src/c.txt:1:no match"
    assert good(call(grep, pattern="o", glob="src/*.txt")) == "src/c.txt:1:no match"
    assert good(call(grep, pattern="o", path="src/c.txt")) == "src/c.txt:1:no match"
    assert good(call(grep, pattern="os", path="src")) == "src/b.py:2:last os"
    assert good(call(grep, pattern="nowhere")) == "[No line matches.]"
    assert "out/e:1:os" in good(call(grep, pattern="os", include_ignored=True))
    assert good(call(grep, pattern="1$")) == "src/b.py:1:OS = 1"


@pytest.mark.parametrize(
    "pattern", ["(", "[a", "a{2,1}", "(?P<x", "*", "(?<=a+)b", "\\", "a**", "(?z)", "x" * 20_000 + "("]
)
def test_an_invalid_expression_is_refused(grep: AnyTool, pattern: str) -> None:
    assert "not a regular expression" in bad(call(grep, pattern=pattern), "validation")


@pytest.mark.parametrize("pattern", [ENDLESS, r"(.*a){25}b"])
def test_an_endless_expression_is_stopped(root: Path, pattern: str) -> None:
    (root / "bait").write_text("a" * 40 + "!" * 3 + "\n" + "a" * 5000)
    grep, born = grep_tool(Workspace(root), seconds=2.0), children()
    assert "[Stopped after 2 seconds, in bait. Use a simpler pattern" in good(call(grep, pattern=pattern))
    assert children() <= born


@both_colours
def test_timeouts_and_cancelling_kill_the_child(called: Call, root: Path, grep: AnyTool) -> None:
    (root / "1").write_text(BAIT)
    text = good(called(grep, config=ToolConfig(execution_timeout=3.0), pattern=ENDLESS, path="1"))
    assert "[Stopped after 2." in text
    run, born = ToolRun(), children()
    threading.Timer(0.3, run.cancel).start()
    bad(called(grep, run=run, pattern=ENDLESS, path="1"), "cancelled")
    assert eventually(lambda: children() <= born), "on an event loop the thread is left behind and ends a moment later"


def test_all_matching_lines_are_counted(root: Path, grep: AnyTool) -> None:
    (root / "many.txt").write_text("needle\n" * 1000)
    assert good(call(grep, pattern="needle", mode="count", path="many.txt")) == "many.txt:1000"
    assert "many.txt:200:needle\n[Cut after 200 lines" in good(call(grep, pattern="needle", path="many.txt"))


def test_skipped_files_are_counted(root: Path, grep: AnyTool) -> None:
    (root / "binary").write_bytes(b"os\0os")
    (root / "large").write_bytes(b"os\n" * 2_000_000)
    (root / "wide").write_text("os", encoding="utf-16")
    (root / "link").symlink_to("a.py")
    (root / "away").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe")
    text = good(call(grep, pattern="os$", mode="files"))
    assert text.splitlines() == ["a.py", "src/b.py", "wide", "[Not searched: 1 binary, 1 too large.]"]
    assert bad(call(grep, pattern="os", path="away"), "denied")
    assert good(call(grep, pattern="import", path="link")) == "a.py:1:import os"
    assert "not a regular file" in bad(call(grep, pattern="os", path="pipe"), "execution")
    assert "no such file" in bad(call(grep, pattern="os", path="nothing"), "execution")


# --- Glob ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def glob(root: Path) -> AnyTool:
    return glob_tool(Workspace(root), max_paths=5)


@both_colours
def test_paths_are_sorted_and_ignored_files_optional(called: Call, glob: AnyTool) -> None:
    assert good(called(glob, pattern="**")).splitlines() == [".gitignore", "a.py", "src/b.py", "src/c.txt"]
    assert good(called(glob, pattern="*.py", path="src")) == "src/b.py"
    assert good(called(glob, pattern="*.none")) == good(called(glob, pattern="out/*")) == "[No file matches.]"
    assert good(called(glob, pattern="out/*", include_ignored=True)) == "out/e"
    assert good(called(glob, pattern=".git/*", include_ignored=True)) == ".git/d"
    assert good(called(glob, pattern="*", path=".git")) == ".git/d"


def test_many_paths_are_cut_and_control_characters_escaped(root: Path, glob: AnyTool) -> None:
    for number in range(10):
        (root / f"m{number}").touch()
    (root / "evil\n[Cut after 5 paths]").touch()
    (root / "round").symlink_to(".")
    lines = good(call(glob, pattern="m*")).splitlines()
    assert lines[:5] == ["m0", "m1", "m2", "m3", "m4"]
    assert lines[5:] == ["[Cut after 5 paths. To see others, use a narrower pattern or path.]"]
    assert good(call(glob, pattern="evil*")) == "evil\\n[Cut after 5 paths]"
    assert good(call(glob, pattern="round/**")) == "[No file matches.]", "links to directories are not entered"


def test_a_huge_tree_is_walked_only_in_part(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.toolkit.walk.MAX_ENTRIES", 20)
    for number in range(50):
        (root / f"m{number}").touch()
    *found, last = good(call(glob_tool(Workspace(root)), pattern="**")).split("\n")
    assert len(found) <= 20
    assert last.startswith("[Not everything was searched")


def test_long_paths_are_cut_by_their_size(root: Path) -> None:
    deep = root / "/".join(["d" * 200] * 10)
    deep.mkdir(parents=True)
    for number in range(100):
        (deep / f"{number:03}").touch()
    text = good(call(glob_tool(Workspace(root)), pattern="d*/**"))
    assert len(text) < 70_000
    assert text.endswith("paths. To see others, use a narrower pattern or path.]")


# --- patterns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "matches", "does_not"),
    [
        ("*.py", ["a.py", ".py"], ["a/b.py", "a.pyc"]),
        ("**/*.py", ["a.py", "a/b.py", "a/b/c.py"], ["a.txt"]),
        ("src/**", ["src/a", "src/a/b"], ["lib/a"]),
        ("src/**/test_?.py", ["src/test_a.py", "src/x/y/test_b.py"], ["src/test_ab.py", "test_a.py"]),
        ("{a,b}.txt", ["a.txt", "b.txt"], ["c.txt", "a,b.txt"]),
        ("x{1,{2,3}}y", ["x1y", "x2y", "x3y"], ["xy", "x{2,3}y"]),
        ("{only}", ["{only}"], ["only"]),
        ("a{", ["a{"], ["a"]),
        ("[a-c]x", ["ax", "cx"], ["dx"]),
        ("[!a]x", ["bx"], ["ax"]),
        ("[", ["["], ["x"]),
        ("./a//b", ["a/b"], ["a", "b"]),
        ("**", ["a", "a/b"], []),
        ("**/**/a", ["a", "x/y/a"], ["a/x"]),
        ("a.b", ["a.b"], ["axb"]),
        ("a\nb", ["a\nb"], ["a", "b"]),
    ],
)
def test_patterns(pattern: str, matches: list[str], does_not: list[str]) -> None:
    compiled = PathPattern(pattern)
    assert [path for path in matches if not compiled.matches(path)] == []
    assert [path for path in does_not if compiled.matches(path)] == []


@pytest.mark.parametrize(
    "pattern", ["*a" * 100 + "b", "**/a/" * 100 + "b", "[a]*" * 100 + "b", "?*" * 200 + "b", "{*a,**}/" * 6 + "b"]
)
def test_no_pattern_takes_long(pattern: str) -> None:
    compiled = PathPattern(pattern)
    assert not compiled.matches("a" * 250)
    assert not compiled.matches("/".join(["a"] * 100))


NAMES = st.text("ab.", min_size=1, max_size=4)


@given(names=st.lists(NAMES, min_size=1, max_size=5), data=st.data())
def test_a_pattern_made_from_a_path_matches_it(names: list[str], data: st.DataObject) -> None:
    names = [name for name in names if name not in {".", ".."}] or ["a"]
    parts = [data.draw(st.sampled_from([name, "*", "?" * len(name), f"{name[:1]}*", "**"])) for name in names]
    path = "/".join(names)
    compiled = PathPattern("/".join(parts))
    assert compiled.matches(path)
    for depth in range(1, len(names)):
        assert compiled.may_match_below("/".join(names[:depth]))


# --- .gitignore files ------------------------------------------------------------------------------------------------

RULES = """\
# a comment

*.log
!keep.log
/only_here
build/
docs/*.txt
**/deep/x
a/**/z
spaced\x20\x20
\\#odd
\\!odd
{a,b}
tmp*
!tmp2
"""

PATHS = words(
    "x.log sub/x.log keep.log sub/keep.log only_here sub/only_here build/x sub/build/x docs/a.txt "
    "docs/sub/a.txt other/docs/a.txt deep/x p/q/deep/x a/z a/b/c/z b/a/z spaced #odd !odd {a,b} a_file tmp1 "
    "tmp2 plain"
)


def ignored(path: str) -> bool:
    rules = ignore_rules("", RULES)
    parts = path.split("/")
    above = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
    return any(is_ignored(rules, each, is_directory=True) for each in above) or is_ignored(
        rules, path, is_directory=False
    )


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_gitignore_rules_agree_with_git(tmp_path: Path) -> None:
    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
        )

    assert git("init", "-q").returncode == 0
    (tmp_path / ".gitignore").write_text(RULES)
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    said = git("-c", "core.quotePath=false", "check-ignore", "--no-index", "--", *PATHS).stdout.splitlines()
    assert [path for path in PATHS if ignored(path)] == said
