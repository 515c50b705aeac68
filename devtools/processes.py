"""Starting programs so that Ctrl-C, failures and leaked settings are handled in one place."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from devtools.errors import DevelopmentError
from devtools.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LEAKS = ("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "__PYVENV_LAUNCHER__")
"""Settings of the surrounding shell that would bring other packages into an environment."""

LAST_WORDS = 30
"""How many lines are shown of what a failed program printed, and again of its errors."""


def variables(environment: Path | None = None) -> dict[str, str]:
    """The variables for a child process; its programs come from `environment` first."""
    inherited = {name: value for name, value in os.environ.items() if name not in LEAKS}
    inherited["PIP_USER"] = "no"  # a user-wide `user = true` cannot work inside an environment
    if environment is not None:
        inherited["VIRTUAL_ENV"] = str(environment)
        inherited["PATH"] = os.pathsep.join([str(environment / "bin"), inherited.get("PATH", os.defpath)])
    return inherited


def call(command: Sequence[str | Path], *, env: dict[str, str], cwd: Path | None = ROOT) -> int:
    """Run a program that speaks to the person in front of the terminal; `cwd=None` is the person's own directory."""
    process = subprocess.Popen([str(word) for word in command], env=env, cwd=cwd)
    try:
        return process.wait()
    except KeyboardInterrupt:
        # The terminal sent the child the same signal: let it say goodbye before we do.
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise


def call_quietly(command: Sequence[str | Path], *, env: dict[str, str], failure: str) -> str:
    """Run a program whose output matters only when it fails, and return that output.

    Errors come by a pipe of their own: in one with the output they would stand before all that a program still held in
    its buffer when it failed, where the cut to the last words loses them.
    """
    done = subprocess.run(
        [str(word) for word in command],
        env=env,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        words = [line for said in (done.stdout, done.stderr) for line in said.rstrip().splitlines()[-LAST_WORDS:]]
        ending = f"(it ended with exit code {done.returncode})"
        raise DevelopmentError("\n".join([failure, *(f"    {line}" for line in (*words, ending))]))
    return done.stdout
