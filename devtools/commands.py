"""The five commands of dev.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devtools import checks, environments, locks
from devtools.places import SITE
from devtools.processes import call, variables

if TYPE_CHECKING:
    from collections.abc import Sequence


def test(selection: checks.Selection) -> int:
    """Run the selected checks; 0 when all of them passed."""
    environment = environments.development()
    return checks.run(selection, environment)


def run(arguments: Sequence[str]) -> int:
    """Run the program from this checkout, in the person's own directory, as an installed one would."""
    program = environments.program()
    return call([program.python, "-m", "dragoman", *arguments], env=variables(), cwd=None)


def lock(*, upgrade: bool) -> int:
    """Bring every lock in step with what it is made from."""
    environment = environments.development()
    for one in locks.LOCKS:
        with environments.step(f"resolving requirements/{one.name}.lock"):
            locks.make(one, uv=environment.program("uv"), env=environment.variables, upgrade=upgrade)
    return 0


def fix() -> int:
    """Let ruff correct and format what it can. What it cannot is left to `dev.py test`."""
    environment = environments.development()
    ruff = environment.program("ruff")
    corrected = call([ruff, "check", "--fix"], env=environment.variables)
    formatted = call([ruff, "format"], env=environment.variables)
    return corrected or formatted


def build_docs() -> int:
    """Build the documentation."""
    environment = environments.development()
    built = checks.build_docs(environment)
    if built:
        print(f"Open {SITE / 'index.html'} in a browser.")
    return 0 if built else 1
