"""Environments are made once, and again exactly when something they depend on changes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import Mock

import pytest

from devtools import environments, locks, processes, pythons
from devtools.environments import Environment
from devtools.errors import DevelopmentError
from devtools.locks import Lock
from tests.processes import started


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (environments, locks):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(environments, "DEV", tmp_path / ".dev")
    monkeypatch.setattr(locks, "REQUIREMENTS", tmp_path)
    (tmp_path / "a.lock").write_text("a==1\n")
    return tmp_path


@pytest.fixture
def calls(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The programs that would have been started. `venv` does make its directory."""
    started: list[list[str]] = []

    def pretend(command: list[object], *, env: dict[str, str], failure: str) -> str:
        words = [str(word) for word in command]
        started.append(words[2:])
        if words[2] == "venv":
            Path(words[3]).mkdir(parents=True)
        return ""

    monkeypatch.setattr(environments, "call_quietly", pretend)
    return started


ENVIRONMENT = Environment(name="e", locks=(Lock(name="a"),))


def test_made_once_from_its_lock_with_hashes(checkout: Path, calls: list[list[str]]) -> None:
    ENVIRONMENT.make()
    venv, install = calls
    assert venv == ["venv", str(checkout / ".dev" / pythons.this().name / "e")]
    assert install[:2] == ["pip", "install"]
    assert install[-4:] == ["--require-hashes", "--no-deps", "--requirement", str(checkout / "a.lock")]
    ENVIRONMENT.make()
    assert len(calls) == 2


@pytest.mark.parametrize("changed", ["lock", "python"])
def test_made_again_when_something_changes(
    changed: str, checkout: Path, calls: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ENVIRONMENT.make()
    leftover = ENVIRONMENT.directory / "leftover"
    leftover.touch()
    if changed == "lock":
        (checkout / "a.lock").write_text("a==2\n")
    else:
        monkeypatch.setattr("platform.python_version", lambda: "3.99.0")
    ENVIRONMENT.make()
    assert len(calls) == 4
    assert not leftover.exists()


@pytest.mark.usefixtures("checkout")
def test_a_half_made_one_is_never_reused(calls: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Environment, "pip_install", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ENVIRONMENT.make()
    assert ENVIRONMENT.directory.exists()
    ENVIRONMENT.make()
    assert [call[0] for call in calls] == ["venv", "venv", "pip"]


@pytest.mark.parametrize("before", ["nothing", "a directory", "a link to nothing"])
def test_the_environment_of_the_first_python_is_found_under_its_short_name(
    before: str, checkout: Path, calls: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "DEVELOPMENT", ENVIRONMENT)
    monkeypatch.setattr(environments, "_state_of_project", dict)
    link = checkout / ".dev" / "e"
    link.parent.mkdir()
    if before == "a directory":  # as it was made when there was one for all Pythons
        (link / "bin").mkdir(parents=True)
    elif before == "a link to nothing":
        link.symlink_to("3.1.0/e")
    environments.development()
    assert link.readlink() == Path(pythons.this().name) / "e"
    other = pythons.Python(path="python", version="3.99.0")
    monkeypatch.setattr(pythons, "this", lambda: other)
    environments.development()
    assert (checkout / ".dev" / "3.99.0" / "e").is_dir()
    assert link.resolve() != (checkout / ".dev" / "3.99.0" / "e")
    assert calls


def test_a_missing_lock_is_said(checkout: Path) -> None:
    (checkout / "a.lock").unlink()
    with pytest.raises(DevelopmentError, match=r"a\.lock is missing\. Restore it"):
        ENVIRONMENT.make()


PRINTS = "import os, sys; print(*range(99), sep='\\n'); "
COMPLAINS = "import sys; print(*range(99), sep='\\n', file=sys.stderr); "
LAST = [str(number) for number in range(99 - processes.LAST_WORDS, 99)]


@pytest.mark.parametrize("buffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    ("program", "last_words"),
    [
        (PRINTS + "sys.exit('the cause')", [*LAST, "the cause", "(it ended with exit code 1)"]),
        (COMPLAINS + "sys.exit('the cause')", [*LAST[1:], "the cause", "(it ended with exit code 1)"]),
        (COMPLAINS + "print('the cause'); sys.exit(2)", ["the cause", *LAST, "(it ended with exit code 2)"]),
        (PRINTS + "sys.stdout.flush(); os.kill(os.getpid(), 9)", [*LAST, "(it ended with exit code -9)"]),
    ],
    ids=["prints much", "complains much", "prints the cause", "killed"],
)
def test_a_failed_program_shows_its_last_words(program: str, last_words: list[str], buffered: str) -> None:
    variables = processes.variables() | {"PYTHONUNBUFFERED": buffered}
    with pytest.raises(DevelopmentError) as caught:
        processes.call_quietly([sys.executable, "-c", program], env=variables, failure="It failed. Do this.")
    assert str(caught.value).splitlines() == ["It failed. Do this.", *(f"    {line}" for line in last_words)]


def test_two_commands_do_not_make_one_environment_at_once(checkout: Path) -> None:
    code = textwrap.dedent(
        f"""
        import sys
        from pathlib import Path
        sys.path.insert(0, {str(Path(environments.__file__).parent.parent)!r})
        from devtools import environments
        environments.ROOT = Path({str(checkout)!r})
        environments.DEV = environments.ROOT / ".dev"
        with environments.exclusive("e"):
            print("mine")
        """
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with ExitStack() as mine:
        mine.enter_context(environments.exclusive("e"))
        with started([sys.executable, "-c", code], **pipes) as other:
            assert other.stderr is not None
            assert (
                other.stderr.readline()
                == f"· waiting for another dev.py that is at work on .dev/{pythons.this().name}/e\n"
            )
            assert other.poll() is None
            mine.close()
            assert other.communicate(timeout=60) == ("mine\n", "")
    assert other.returncode == 0
