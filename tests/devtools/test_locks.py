"""A lock knows what it answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools import locks
from devtools.locks import Lock

PYPROJECT = """
[project]
dependencies = ["b>=1"]
optional-dependencies = { x = ["c"], y = ["d"] }
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(locks, "ROOT", tmp_path)
    monkeypatch.setattr(locks, "REQUIREMENTS", tmp_path)
    monkeypatch.setattr(locks, "PYPROJECT", tmp_path / "pyproject.toml")
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "dev.in").write_text("# why\n\na==1  # because\n")
    return tmp_path


@pytest.mark.parametrize(
    ("lock", "expected"),
    [
        (Lock(name="l", file_of_requirements="dev.in"), "a==1\n"),
        (Lock(name="l", with_project=True), "b>=1\n"),
        (Lock(name="l", file_of_requirements="dev.in", with_project=True, extras=locks.ALL), "a==1\nb>=1\nc\nd\n"),
        (Lock(name="l", with_project=True, extras=("y",)), "b>=1\nd\n"),
    ],
)
@pytest.mark.usefixtures("checkout")
def test_requirements(lock: Lock, expected: str) -> None:
    assert locks.requirements(lock) == expected


def test_a_lock_is_in_step_until_its_requirements_change(checkout: Path) -> None:
    lock = Lock(name="l", file_of_requirements="dev.in")
    assert locks.problems(lock) == ["l.lock is missing. Make it with: python3 dev.py lock"]
    lock.path.write_text(f"{locks.HEADER}{locks.digest(lock)}\na==1\n")
    assert locks.problems(lock) == []
    (checkout / "dev.in").write_text("# other words, same requirement\na==1\n")
    assert locks.problems(lock) == []
    (checkout / "dev.in").write_text("a==2\n")
    assert locks.problems(lock) == [
        "l.lock was made for other requirements. Bring it in step with: python3 dev.py lock"
    ]


@pytest.mark.usefixtures("checkout")
def test_a_lock_names_no_address() -> None:
    lock = Lock(name="l", file_of_requirements="dev.in")
    lock.path.write_text(f"{locks.HEADER}{locks.digest(lock)}\n--index-url https://example.invalid\n")
    (problem,) = locks.problems(lock)
    assert "names an address" in problem


def test_the_core_lock_has_the_versions_that_the_tests_ran_with() -> None:
    def pins(lock: Lock) -> set[str]:
        return {line.split()[0] for line in lock.path.read_text(encoding="utf-8").splitlines() if "==" in line}

    assert pins(locks.CORE) <= pins(locks.RUN) <= pins(locks.DEV)
