"""Other Pythons: how they are found and named, and the same checks on each of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import dev
from devtools import pythons
from devtools.errors import DevelopmentError

if TYPE_CHECKING:
    from collections.abc import Callable

# It says which Python it is, and when it is given a program it prints what that might print.
PRETENDS = """#!/bin/sh
if [ "$1" = -I ]; then
    echo '["{path}", "{version}", {free}, "{kind}", {inside}]'
else
    shift
    echo "$@" >> {path}.calls
    printf '{output}'
    exit {code}
fi
"""


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes programs that pretend to be a Python, below directories that are all there is."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(pythons, "SYSTEM", ())
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:relative")

    def make(name: str, version: str, **given: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        said = {"free": "false", "kind": "cpython", "inside": "false", "output": "", "code": "0", **given}
        path.write_text(PRETENDS.format(path=path, version=version, **said))
        path.chmod(0o755)
        return path

    return make


def test_all_are_found_once_from_the_oldest_to_the_newest(make: Callable[..., Path]) -> None:
    make("bin/python3", "3.11.9")
    make("bin/python3.11", "3.11.9")
    make("bin/python3.14t", "3.14.2", free="true")
    make("bin/python3.14", "3.14.2")
    make("bin/python3.15", "3.15.0a1")
    make("bin/python3.12", "3.12.1", inside="true")
    make("bin/python3.13", "3.13.0", kind="pypy")
    make("pyenv/versions/3.9.1/bin/python3", "3.9.1")
    make("pyenv/versions/3.12.10/bin/python3", "3.12.10")
    make("pyenv/versions/3.12.9/bin/python3", "3.12.9")
    found = [each.name for each in pythons.find_all()]
    assert found == ["3.11.9", "3.12.9", "3.12.10", "3.14.2", "3.14.2t", "3.15.0a1"]
    words = {"3.12": "3.12.10", "3.12.9": "3.12.9", "3.14": "3.14.2", "3.14t": "3.14.2t", "3": "3.15.0a1"}
    assert {word: pythons.named(word).name for word in words} == words
    for word in ("3.1", "3.13", "3.12t", "python", ""):
        with pytest.raises(DevelopmentError, match=r"found: 3\.11\.9, 3\.12\.9.*Install it, or give its path"):
            pythons.named(word)


def test_a_path_is_a_python_too_if_it_is_one(
    make: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("elsewhere/python", "3.12.1")
    monkeypatch.chdir(tmp_path)
    assert pythons.named("./elsewhere/python").version == "3.12.1"
    assert pythons.named(getattr(sys, "_base_executable", sys.executable)).name == pythons.this().name
    old = make("elsewhere/old", "3.9.1")
    with pytest.raises(DevelopmentError, match=r"is Python 3\.9\.1; 3\.11 is the oldest"):
        pythons.named(str(old))
    for path in ("/bin/sh", "/bin/nothing", str(make("elsewhere/inside", "3.12.1", inside="true"))):
        with pytest.raises(DevelopmentError, match=f"{path} is no CPython"):
            pythons.named(path)


PASSES = "=== 12 passed, 3 skipped in 2.50s ===\\n=== 5 passed in 61.00s (0:01:01) ===\\n"
FAILS = "FAILED tests/a.py\\n1 failed, 11 passed, 1 error in 3.00s\\n"


def test_a_table_says_how_each_did(make: Callable[..., Path], capfd: pytest.CaptureFixture[str]) -> None:
    first = make("bin/python3.11", "3.11.2", output=PASSES)
    second = make("bin/python3.12", "3.12.1", output=FAILS, code="1")
    assert dev.main(["test", "--every-python", "--only", "pytest", "--", "-x", "tests/a.py"]) == 1
    shown = capfd.readouterr().out
    assert "12 passed, 3 skipped in 2.50s" in shown
    rows = [" ".join(line.split()[:-2]) for line in shown.partition("── Pythons")[2].splitlines()[1:]]
    assert rows == ["3.11.2 ok 17 passed, 3 skipped", "3.12.1 FAILED 1 error, 1 failed, 11 passed"]
    for each in (first, second):
        assert Path(f"{each}.calls").read_text() == "test -- -x tests/a.py\n"
    assert dev.main(["test", "--python", "3.11", "--only", "ruff", "--only", "wheel"]) == 0
    assert Path(f"{first}.calls").read_text().splitlines()[1:] == ["test --only ruff --only wheel"]
    assert dev.main(["test", "--python", "3.13"]) == 2
