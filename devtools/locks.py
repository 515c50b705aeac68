"""The locks in requirements/: what each is made from, making them, and telling whether one is out of step.

A lock's first lines carry a hash of the requirements that it answers. Comparing it needs no network, so a check can
tell that somebody changed a requirement and forgot the lock.
"""

from __future__ import annotations

import hashlib
import subprocess
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from devtools.errors import DevelopmentError
from devtools.places import PYPROJECT, REQUIREMENTS, ROOT

if TYPE_CHECKING:
    from pathlib import Path

OLDEST_PYTHON = "3.11"
ALL = ("*",)
MARK = "# answers: sha256:"
HEADER = "# Made by `python3 dev.py lock`; do not edit.\n" + MARK


@dataclass(frozen=True, kw_only=True)
class Lock:
    name: str
    file_of_requirements: str | None = None
    """A file beside the lock."""
    with_project: bool = False
    """Whether the project's own dependencies are part of it."""
    extras: tuple[str, ...] = ()
    """Extras of the project that are part of it; `ALL` of them, if so."""
    with_dependencies: bool = True
    """Whether it names what its requirements need in turn."""
    in_step_with: str | None = None
    """Another lock whose versions this one takes over."""

    @property
    def path(self) -> Path:
        return REQUIREMENTS / f"{self.name}.lock"


DEV = Lock(name="dev", file_of_requirements="dev.in", with_project=True, extras=ALL)
CORE = Lock(name="core", with_project=True, in_step_with="dev")
RUN = Lock(
    name="run", with_project=True, extras=("cli", "crypto", "keyring", "local", "mcp"), in_step_with="dev"
)  # what the command line can make use of
DATA = Lock(name="data", file_of_requirements="data.in", with_dependencies=False)

LOCKS = (DEV, CORE, RUN, DATA)
"""In the order in which they are made."""


def requirements(lock: Lock) -> str:
    """What the lock answers: one requirement a line, without comments, sorted."""
    wanted: set[str] = set()
    if lock.file_of_requirements is not None:
        lines = (REQUIREMENTS / lock.file_of_requirements).read_text(encoding="utf-8").splitlines()
        wanted.update(line.partition(" #")[0].strip() for line in lines if not line.startswith("#"))
    if lock.with_project or lock.extras:
        project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
        if lock.with_project:
            wanted.update(cast("list[str]", project["dependencies"]))
        for name, extra in cast("dict[str, list[str]]", project.get("optional-dependencies", {})).items():
            if lock.extras == ALL or name in lock.extras:
                wanted.update(extra)
    wanted.discard("")
    return "".join(f"{requirement}\n" for requirement in sorted(wanted))


def digest(lock: Lock) -> str:
    return hashlib.sha256(f"{OLDEST_PYTHON}\n{requirements(lock)}".encode()).hexdigest()


def problems(lock: Lock) -> list[str]:
    """What is wrong with the lock, each with what to do; empty when it is in step."""
    shown = lock.path.relative_to(ROOT)
    if not lock.path.exists():
        return [f"{shown} is missing. Make it with: python3 dev.py lock"]
    text = lock.path.read_text(encoding="utf-8")
    found: list[str] = []
    if f"{MARK}{digest(lock)}\n" not in text:
        found.append(f"{shown} was made for other requirements. Bring it in step with: python3 dev.py lock")
    if "://" in text:
        found.append(f"{shown} names an address. Locks name packages only; make it again with: python3 dev.py lock")
    return found


def make(lock: Lock, *, uv: Path, env: dict[str, str], upgrade: bool) -> None:
    """Resolve the lock anew. Versions that still fit are kept, unless `upgrade` asks for the newest."""
    command: list[str | Path] = [uv, "pip", "compile", "-", "--output-file", lock.path]
    command += ["--universal", "--python-version", OLDEST_PYTHON, "--generate-hashes"]
    command += ["--no-header", "--no-annotate", "--no-config", "--quiet"]
    if upgrade:
        command.append("--upgrade")
    if not lock.with_dependencies:
        command.append("--no-deps")
    if lock.in_step_with is not None:
        command += ["--constraint", REQUIREMENTS / f"{lock.in_step_with}.lock"]
    done = subprocess.run(command, env=env, cwd=ROOT, input=requirements(lock), text=True, check=False)
    if done.returncode != 0:
        raise DevelopmentError(
            f"{lock.path.relative_to(ROOT)} could not be resolved; uv says why above.\n"
            "uv has settings of its own for another package registry or a proxy (UV_INDEX_URL, HTTPS_PROXY)."
        )
    lock.path.write_text(f"{HEADER}{digest(lock)}\n{lock.path.read_text(encoding='utf-8')}", encoding="utf-8")
