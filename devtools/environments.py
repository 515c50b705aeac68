"""Virtual environments below .dev/, made from locks and kept while nothing they depend on changes.

An environment counts as made only when its stamp is there, and the stamp is written last: one that was interrupted
half-way is thrown away, never reused. A file lock keeps two commands in one checkout from making the same one at once.

Each Python has its own, as .dev/3.12.1/env, so that several can be tried side by side; .dev/env leads to the first.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import sys
import time
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devtools import locks, pythons
from devtools.errors import DevelopmentError
from devtools.places import DEV, PYPROJECT, ROOT, SOURCES
from devtools.processes import call_quietly, variables

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

PIP_FAILED = (
    "pip could not install {what}; its last words are below.\n"
    "If it could not reach the package registry: check the network and pip's own settings (pip config list; "
    "PIP_INDEX_URL, PIP_PROXY and PIP_CERT are read), then run the command again."
)
VENV_FAILED = (
    "Python's venv module could not make {directory}; its last words are below.\n"
    "Some systems ship it apart from Python (Debian and Ubuntu: apt install python3-venv). Install it, or start "
    "dev.py with another Python, for instance: python3.12 dev.py test"
)


def _interpreter() -> str:
    """The Python to build environments with: not one from inside an environment that may be about to be replaced."""
    inside = sys.prefix != sys.base_prefix
    return getattr(sys, "_base_executable", sys.executable) if inside else sys.executable


@dataclass(frozen=True, kw_only=True)
class Environment:
    name: str
    locks: tuple[locks.Lock, ...]

    @property
    def directory(self) -> Path:
        return _own() / self.name

    @property
    def python(self) -> Path:
        return self.program("python")

    @property
    def variables(self) -> dict[str, str]:
        return variables(self.directory)

    def program(self, name: str) -> Path:
        return self.directory / "bin" / name

    def make(self) -> None:
        """Make the environment, unless it is there already and still true."""
        with exclusive(self.name):
            stamp = _Stamp(self.directory / "made-from.json")
            wanted = _state(self)
            if stamp.says(wanted):
                return
            shutil.rmtree(self.directory, ignore_errors=True)
            with step(f"making {_shown(self.directory)} for Python {platform.python_version()}"):
                call_quietly(
                    [_interpreter(), "-m", "venv", self.directory],
                    env=variables(),
                    failure=VENV_FAILED.format(directory=_shown(self.directory)),
                )
            for lock in self.locks:
                # A lock is complete, or meant to be incomplete: what it does not name is not wanted.
                self.pip_install(_shown(lock.path), "--require-hashes", "--no-deps", "--requirement", str(lock.path))
            stamp.write(wanted)

    def add_project(self) -> None:
        """Install the checkout in editable form; needs hatchling and editables in the environment."""
        with exclusive(self.name):
            stamp = _Stamp(self.directory / "project.json")
            wanted = _state_of_project()
            if not stamp.says(wanted):
                self.pip_install("the project, editable", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
                stamp.write(wanted)

    def add_sources(self) -> None:
        """Make the checkout importable without building it, for an environment that holds no builder."""
        with exclusive(self.name):
            for packages in (self.directory / "lib").glob("python*/site-packages"):
                (packages / "dragoman-checkout.pth").write_text(f"{SOURCES}\n", encoding="utf-8")

    def pip_install(self, what: str, *arguments: str) -> None:
        with step(f"installing {what} into {_shown(self.directory)}"):
            call_quietly(
                [self.python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *arguments],
                env=self.variables,
                failure=PIP_FAILED.format(what=what),
            )


DEVELOPMENT = Environment(name="env", locks=(locks.DEV, locks.DATA))
PROGRAM = Environment(name="run", locks=(locks.RUN,))
WHEEL = Environment(name="wheel", locks=(locks.CORE,))


def development() -> Environment:
    DEVELOPMENT.make()
    DEVELOPMENT.add_project()
    _lead_to(DEVELOPMENT)
    return DEVELOPMENT


def program() -> Environment:
    PROGRAM.make()
    PROGRAM.add_sources()
    return PROGRAM


def _own() -> Path:
    """The directory of this Python's environments."""
    return DEV / pythons.this().name


def _lead_to(environment: Environment) -> None:
    """Let .dev/env lead to this environment, unless it leads to another one that is there."""
    link = DEV / environment.name
    if link.is_symlink() and link.exists():
        return
    if link.is_dir() and not link.is_symlink():  # made before each Python had its own
        shutil.rmtree(link)
    made = environment.directory.with_suffix(f".link{os.getpid()}")
    made.symlink_to(environment.directory.relative_to(DEV))
    made.replace(link)


@contextlib.contextmanager
def exclusive(name: str) -> Generator[None]:
    """Hold a lock that other dev.py processes of this checkout respect. The system frees it when a process dies."""
    place = _own() / name
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".busy").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"· waiting for another dev.py that is at work on {_shown(place)}", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def step(what: str) -> Generator[None]:
    """One line of progress. On stderr, so that the output of `dev.py run` stays the program's own."""
    print(f"· {what} … ", end="", file=sys.stderr, flush=True)
    begin = time.monotonic()
    try:
        yield
    except BaseException:
        print("failed", file=sys.stderr, flush=True)
        raise
    print(f"{time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class _Stamp:
    path: Path

    def says(self, state: dict[str, str]) -> bool:
        try:
            return json.loads(self.path.read_text(encoding="utf-8")) == state
        except (FileNotFoundError, ValueError):
            return False

    def write(self, state: dict[str, str]) -> None:
        self.path.write_text(json.dumps(state, indent=1), encoding="utf-8")


def _state(environment: Environment) -> dict[str, str]:
    """Everything that, when it changes, makes the environment untrue."""
    for lock in environment.locks:
        if not lock.path.exists():
            raise DevelopmentError(f"{_shown(lock.path)} is missing. Restore it from version control.")
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()} {sys.base_prefix}",
        "directory": str(environment.directory),  # environments cannot be moved
        **{lock.name: hashlib.sha256(lock.path.read_bytes()).hexdigest() for lock in environment.locks},
    }


def _state_of_project() -> dict[str, str]:
    """Everything that an editable install copies: the sources themselves are not among it."""
    settings = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    copied = [settings["project"], settings["build-system"], settings["tool"]["hatch"]]
    version = (SOURCES / "dragoman" / "_version.py").read_text(encoding="utf-8")
    return {"copied": hashlib.sha256(json.dumps([copied, version]).encode()).hexdigest()}


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT))
