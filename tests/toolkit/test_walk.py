"""Path patterns and .gitignore files: what fits, and that none takes long."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dragoman.toolkit.walk import PathPattern, ignore_rules, is_ignored
from tests.toolkit.calling import words


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
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
def test_what_fits(pattern: str, fits: list[str], does_not: list[str]) -> None:
    compiled = PathPattern(pattern)
    assert [path for path in fits if not compiled.fits(path)] == []
    assert [path for path in does_not if compiled.fits(path)] == []


@pytest.mark.parametrize(
    "pattern", ["*a" * 100 + "b", "**/a/" * 100 + "b", "[a]*" * 100 + "b", "?*" * 200 + "b", "{*a,**}/" * 6 + "b"]
)
def test_no_pattern_takes_long(pattern: str) -> None:
    compiled = PathPattern(pattern)
    assert not compiled.fits("a" * 250)
    assert not compiled.fits("/".join(["a"] * 100))


NAMES = st.text("ab.", min_size=1, max_size=4)


@given(names=st.lists(NAMES, min_size=1, max_size=5), data=st.data())
def test_a_pattern_made_from_a_path_fits_it(names: list[str], data: st.DataObject) -> None:
    names = [name for name in names if name not in {".", ".."}] or ["a"]
    parts = [data.draw(st.sampled_from([name, "*", "?" * len(name), f"{name[:1]}*", "**"])) for name in names]
    path = "/".join(names)
    compiled = PathPattern("/".join(parts))
    assert compiled.fits(path)
    for depth in range(1, len(names)):
        assert compiled.may_hold("/".join(names[:depth]))


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
def test_git_ignores_the_same(tmp_path: Path) -> None:
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


def test_no_ignore_file_takes_long() -> None:
    rules = ignore_rules("", "*a" * 100 + "b\n" + "**/a/" * 100 + "b\n")
    assert not is_ignored(rules, "a" * 250, is_directory=False)
