"""What .gitignore files leave out. Where git is installed it is the judge."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from dragoman.toolkit.walk import IgnoreFile, is_ignored

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

PATHS = [
    "x.log",
    "sub/x.log",
    "keep.log",
    "sub/keep.log",
    "only_here",
    "sub/only_here",
    "build/x",
    "sub/build/x",
    "docs/a.txt",
    "docs/sub/a.txt",
    "other/docs/a.txt",
    "deep/x",
    "p/q/deep/x",
    "a/z",
    "a/b/c/z",
    "b/a/z",
    "spaced",
    "#odd",
    "!odd",
    "{a,b}",
    "a_file",
    "tmp1",
    "tmp2",
    "plain",
]


def ignored(path: str) -> bool:
    files = [IgnoreFile("", RULES)]
    parts = path.split("/")
    above = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
    return any(is_ignored(files, each, is_directory=True) for each in above) or is_ignored(
        files, path, is_directory=False
    )


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize("path", PATHS)
def test_as_git_does(tmp_path: Path, path: str) -> None:
    def git(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["git", *words], cwd=tmp_path, capture_output=True, check=False)

    assert git("init", "-q").returncode == 0
    (tmp_path / ".gitignore").write_text(RULES)
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).touch()
    assert ignored(path) == (git("check-ignore", "-q", "--no-index", "--", path).returncode == 0)


def test_a_deeper_file_decides() -> None:
    files = [IgnoreFile("", "*.x\n"), IgnoreFile("sub", "!b.x\n")]
    assert is_ignored(files, "sub/a.x", is_directory=False)
    assert not is_ignored(files, "sub/b.x", is_directory=False)
