"""The program that runs the model (child.py): starting it, what its failures mean, and ending it.

The child ends when its input is closed: by us, or by the system when this program dies in whatever way.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from typing import IO, Final, cast

from msgspec import Struct

from dragoman.engines.keys import environment_without_keys
from dragoman.errors import LocalModelError

_CHILD: Final = Path(__file__).with_name("child.py")
_INSTALL: Final = "pip install 'dragoman[local]'"
_START_SECONDS: Final = 600.0
_END_SECONDS: Final = 3.0
_ILLEGAL_INSTRUCTION: Final = frozenset([-4, 132, 0xC000001D, 0xC000001D - (1 << 32)])
_KILLED: Final = frozenset([-9, 137])


class Launch(Struct, frozen=True, kw_only=True):
    """What is to be run, and how."""

    model: Path
    context: int
    threads: int
    command: tuple[str, ...] = (sys.executable, "-P", str(_CHILD))


class ModelProcess:
    """A running model."""

    def __init__(self, child: subprocess.Popen[bytes], address: str, key: str, log: IO[bytes]) -> None:
        self.address: str = address
        self.key: str = key
        self._child: subprocess.Popen[bytes] = child
        self._log: IO[bytes] = log

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._child.poll() is None

    def ends_within(self, seconds: float) -> bool:
        """Whether it has ended, or does so very soon. Of a program that dies, the connections go first."""
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    @property
    def hopeless(self) -> LocalModelError | None:
        """Why it would be of no use to run it again, once it has ended."""
        return _unsupported() if self._child.returncode in _ILLEGAL_INSTRUCTION else None

    def stop(self) -> None:
        """End it and free its memory."""
        _end(self._child)
        self._log.close()


def ensure_installed() -> None:
    """Raise LocalModelError if the runtime is not there; before anything large is downloaded."""
    if find_spec("xllamacpp") is None:
        message = "The runtime for local models is not installed."
        raise LocalModelError(message, reason="not_installed", hint=f"Install it: {_INSTALL}")


def start(launch: Launch) -> ModelProcess:
    """Start the program and wait until the model is loaded. Raises LocalModelError."""
    key = secrets.token_urlsafe(24)
    log = tempfile.TemporaryFile()  # noqa: SIM115 -- it lives as long as the process
    try:
        child = _spawn(launch, log)
    except OSError as error:
        log.close()
        message = f"The model's program cannot be started: {error.strerror or error}."
        raise LocalModelError(message, reason="failed", hint="Look at sys.executable of this program.") from error
    watch = Timer(_START_SECONDS, child.kill)
    watch.daemon = True
    try:
        watch.start()
        said = _ask(child, launch, key)
    except BaseException:
        child.kill()  # while it loads it does not see that its input ends
        _end(child)
        log.close()
        raise
    finally:
        watch.cancel()
    address = said.get("address")
    if address:
        return ModelProcess(child, address, key, log)
    status = _end(child)
    failure = _failure(launch, said, status, _tail(log))
    log.close()
    raise failure


def _spawn(launch: Launch, log: IO[bytes]) -> subprocess.Popen[bytes]:
    environment = environment_without_keys()
    # Threads that wait for each other by spinning take the processor away from the one that works.
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Ctrl-C stops an answer, which is our business; it must not end the child.
    windows = sys.platform == "win32"
    return subprocess.Popen(  # noqa: S603 -- this Python and a file of ours
        launch.command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=environment,
        start_new_session=not windows,
        creationflags=0x200 if windows else 0,
    )


def _ask(child: subprocess.Popen[bytes], launch: Launch, key: str) -> dict[str, str]:
    assert child.stdin is not None
    assert child.stdout is not None
    asked = {"model": str(launch.model), "context": launch.context, "threads": launch.threads, "key": key}
    try:
        child.stdin.write(json.dumps(asked).encode() + b"\n")
        child.stdin.flush()
        line = child.stdout.readline()
        return cast("dict[str, str]", json.loads(line)) if line.strip() else {}
    except (OSError, ValueError):  # it died at once, or printed something else
        return {}


def _end(child: subprocess.Popen[bytes]) -> int:
    """End the child and give its status."""
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                continue
    try:
        return child.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def _tail(log: IO[bytes]) -> str:
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - 4000))
    return log.read().decode(errors="replace")


def _unsupported() -> LocalModelError:
    message = "This machine's processor lacks instructions that the runtime for local models needs."
    return LocalModelError(message, reason="unsupported_processor", hint="Use another machine or a provider's model.")


def _failure(launch: Launch, said: dict[str, str], status: int, log: str) -> LocalModelError:
    if said.get("error") == "not_installed":
        message = f"The runtime for local models cannot be loaded: {said.get('text', '')}"
        return LocalModelError(message, reason="not_installed", hint=f"Install it again: {_INSTALL}")
    if status in _ILLEGAL_INSTRUCTION:
        return _unsupported()
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if " E " in line or "error" in line.lower()), "")
    why = (said.get("text") or last or f"its program ended with status {status}")[:300]
    if status in _KILLED or "alloc" in f"{why} {last}".lower() or status == -signal.SIGABRT:
        message = f"There is not enough memory to run {launch.model.name}: {why}."
        hint = "Close other programs, use a smaller model or a smaller context_window in its profile."
        return LocalModelError(message, reason="no_memory", hint=hint)
    message = f"The model {launch.model.name} cannot be loaded: {why}."
    hint = "The file may be damaged, or of a kind that this version of the runtime does not know."
    return LocalModelError(message, reason="wrong_file", hint=hint)
