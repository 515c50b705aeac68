"""The Pythons of this machine: which there are, and which one a word means.

Must not know: what they are used for.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from devtools.errors import DevelopmentError

OLDEST = (3, 11)
SYSTEM = (Path("/usr/bin"), Path("/usr/local/bin"))
PYENV = Path("~/.pyenv/versions")
"""Where pyenv keeps its Pythons, unless PYENV_ROOT says otherwise."""
_TELL = (
    "import json, platform, sys, sysconfig; print(json.dumps([sys.executable, platform.python_version(), "
    "bool(sysconfig.get_config_var('Py_GIL_DISABLED')), sys.implementation.name, sys.prefix != sys.base_prefix]))"
)
_SECONDS = 30
"""How long a program may take to say which Python it is."""


@dataclass(frozen=True, kw_only=True)
class Python:
    path: str
    version: str
    """As in 3.12.1."""
    free_threaded: bool = False

    @property
    def name(self) -> str:
        """As in 3.14.2t."""
        return self.version + ("t" if self.free_threaded else "")

    @property
    def rank(self) -> tuple[int, ...]:
        """What orders Pythons from the oldest to the newest; one without a GIL comes behind its like."""
        numbers = [int(number) for number in re.findall(r"(?:^|\.)(\d+)", self.version)]
        return (*numbers, self.free_threaded)


@functools.cache
def this() -> Python:
    """The one that runs this program."""
    free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    return Python(path=sys.executable, version=platform.python_version(), free_threaded=free)


def find_all() -> list[Python]:
    """Every CPython of this machine that is new enough, oldest first, each version once."""
    found: dict[str, Python] = {}
    for path in _candidates():
        python = _ask(path)
        if python is not None and python.rank[:2] >= OLDEST:
            found.setdefault(python.name, python)
    return sorted(found.values(), key=lambda python: python.rank)


def named(word: str) -> Python:
    """The Python of this path, or the newest of this version: "3.12", "3.12.1", "3.14t"."""
    if os.sep in word:
        python = _ask(Path(word).absolute())
        if python is None:
            raise DevelopmentError(f"{word} is no CPython, or one inside an environment. Name another, or a version.")
        if python.rank[:2] < OLDEST:
            raise DevelopmentError(f"{word} is Python {python.name}; 3.11 is the oldest that dragoman supports.")
        return python
    found = find_all()
    free, version = word.endswith("t"), word.removesuffix("t")
    fitting = [
        each
        for each in found
        if each.free_threaded is free and (each.version == version or each.version.startswith(f"{version}."))
    ]
    if not fitting:
        there = ", ".join(each.name for each in found)
        raise DevelopmentError(f"There is no Python {word} here (found: {there}). Install it, or give its path.")
    return fitting[-1]


def _candidates() -> list[Path]:
    """What may be a Python: on the PATH, of the system, of pyenv."""
    directories = [Path(each) for each in os.environ.get("PATH", os.defpath).split(os.pathsep)]
    directories = [each for each in directories if each.is_absolute()]
    directories += SYSTEM
    root = os.environ.get("PYENV_ROOT")
    versions = (Path(root) / "versions" if root else PYENV).expanduser()
    with contextlib.suppress(OSError):
        directories += [each / "bin" for each in versions.iterdir()]
    names = ("python3", *(f"python3.{minor}{t}" for minor in range(OLDEST[1], OLDEST[1] + 20) for t in ("", "t")))
    found = [directory / name for directory in directories for name in names]
    return [path for path in dict.fromkeys(found) if "shims" not in path.parts and os.access(path, os.X_OK)]


@functools.cache
def _ask(path: Path) -> Python | None:
    """Which Python this is; None if it is none, another implementation, or one inside an environment."""
    try:
        # -I: what lies in the working directory, or is set in the shell, does not answer for it.
        done = subprocess.run(
            [path, "-I", "-c", _TELL], capture_output=True, text=True, timeout=_SECONDS, check=True, cwd="/"
        )
        executable, version, free_threaded, kind, inside = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    if kind != "cpython" or inside:
        return None
    return Python(path=executable, version=version, free_threaded=free_threaded)
