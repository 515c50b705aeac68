"""The check that what we would publish works where only the core dependencies are installed."""

from __future__ import annotations

import re
import zipfile
from typing import TYPE_CHECKING

from devtools import environments, locks
from devtools.environments import WHEEL, exclusive
from devtools.errors import DevelopmentError
from devtools.places import ROOT
from devtools.processes import call_quietly

if TYPE_CHECKING:
    from pathlib import Path

    from devtools.environments import Environment

PROBE = ROOT / "devtools" / "wheel_probe.py"


def works(development: Environment, scratch: Path) -> bool:
    """Build the wheel, install it beside the core dependencies alone, and use it there. Raises where it fails."""
    wheel = _build(development, scratch / "wheel")
    _look_inside(wheel)
    with exclusive("wheel-check"):
        WHEEL.make()
        WHEEL.pip_install(wheel.name, "--force-reinstall", "--no-deps", "--no-index", str(wheel))
        print(_probe(wheel), end="")
    return True


def _build(development: Environment, directory: Path) -> Path:
    with environments.step("building the wheel"):
        call_quietly(
            [development.python, "-m", "hatchling", "build", "--target", "wheel", "--directory", directory],
            env=development.variables,
            failure="The wheel could not be built; hatchling says why:",
        )
    (wheel,) = directory.glob("*.whl")
    return wheel


def _look_inside(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    stray = [name for name in names if not re.match(r"dragoman(-[^/]+\.dist-info)?/", name)]
    if stray:
        raise DevelopmentError(f"{wheel.name} holds more than the package: {', '.join(stray)}")
    for wanted in ("dragoman/py.typed", "LICENSE"):
        if not any(name.endswith(wanted) for name in names):
            raise DevelopmentError(f"{wheel.name} holds no {wanted}; see [tool.hatch.build] in pyproject.toml.")


def _probe(wheel: Path) -> str:
    """Use the installed wheel: as a module, and as the command."""
    version = wheel.name.split("-")[1]
    allowed = {"dragoman", "pip", "setuptools", *_names(locks.CORE)}
    # -I: nothing from the checkout, the current directory or the user's own packages can help it.
    probed = call_quietly(
        [WHEEL.python, "-I", "-W", "error", PROBE, version, *sorted(allowed)],
        env=WHEEL.variables,
        failure="The installed wheel does not work with the core dependencies alone:",
    )
    said = call_quietly(
        [WHEEL.program("dragoman"), "--version"],
        env=WHEEL.variables,
        failure="The installed command fails:",
    )
    if said != f"dragoman {version}\n":
        raise DevelopmentError(f"`dragoman --version` of {wheel.name} printed {said!r}.")
    return probed


def _names(lock: locks.Lock) -> set[str]:
    return set(re.findall(r"^([\w.-]+)==", lock.path.read_text(encoding="utf-8"), re.MULTILINE))
