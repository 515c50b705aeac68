"""One running model for all engines of a process that ask for the same.

Owns: counting who needs it, starting it with the first call, ending it with the last engine.
Must not know: requests.
"""

from __future__ import annotations

import atexit
import os
import threading
from pathlib import Path
from typing import Final, NamedTuple

from dragoman.errors import ConfigurationError

from .chosen import Chosen
from .process import Launch, ModelProcess, ensure_installed, start
from .progress import OnProgress, bar_if_terminal
from .turns import Turns

__all__ = ["Lease", "Server", "SharedModel", "lease"]


_DYING_SECONDS: Final = 2.0


class Server(NamedTuple):
    """Where a running model is."""

    address: str
    key: str


class SharedModel:
    """A model that is run when it is first needed, and by nobody twice."""

    def __init__(self, chosen: Chosen, context: int) -> None:
        self.turns: Turns = Turns()
        self._chosen: Chosen = chosen
        self._context: int = context
        self._lock: threading.Lock = threading.Lock()
        self._process: ModelProcess | None = None
        self._doubted: bool = False

    @property
    def running(self) -> Server | None:
        """Where it is, if it runs."""
        process = None if self._doubted else self._process
        return Server(process.address, process.key) if process is not None and process.alive else None

    def run(self, progress: OnProgress | None) -> Server:
        """Run it, unless it runs. May take minutes: the file may have to be fetched. Raises LocalModelError."""
        with self._lock:
            if self._doubted and self._process is not None:
                self._process.ends_within(_DYING_SECONDS)
            self._doubted = False
            found = self.running
            if found is not None:
                return found
            ended = self._process
            self._stop()  # what is left of one that died
            if ended is not None and (why := ended.hopeless):
                raise why
            ensure_installed()
            file = self._chosen.locate(progress)
            launch = Launch(model=file, context=self._context, threads=_threads())
            process = self._process = start(launch)
            return Server(process.address, process.key)

    def doubt(self) -> None:
        """A connection to it broke. Whether it lives is looked at before it is asked again."""
        self._doubted = True

    def stop(self) -> None:
        """End it and free its memory. The next call would run it again."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.stop()


def _threads() -> int:
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(available, 8))


# --- who needs which ---


class _Held:
    def __init__(self, model: SharedModel) -> None:
        self.model: SharedModel = model
        self.holders: int = 0


_Key = tuple[Path | str, int]
_held: Final[dict[_Key, _Held]] = {}
_guard = threading.Lock()


class Lease:
    """An engine's share of a model."""

    def __init__(self, key: _Key, model: SharedModel, progress: OnProgress | None) -> None:
        self.model: SharedModel = model
        self._key: _Key = key
        self._progress: OnProgress | None = progress
        self._over: bool = False

    def server(self) -> Server:
        """Where the model is; it is run if it does not."""
        if self._over:
            message = "The engine is closed."
            raise ConfigurationError(message, hint="Make a new one, or do not close it so early.")
        return self.model.running or self.model.run(self._progress or bar_if_terminal())

    def release(self) -> None:
        """Give the share back. The last one ends the model."""
        with _guard:
            if self._over:
                return
            self._over = True
            held = _held.get(self._key)
            if held is None or held.model is not self.model:
                return
            held.holders -= 1
            if held.holders:
                return
            del _held[self._key]
        self.model.stop()


def lease(chosen: Chosen, context: int, progress: OnProgress | None = None) -> Lease:
    """A share of a model; nothing is loaded yet."""
    key: _Key = (chosen.file or chosen.name, context)
    with _guard:
        held = _held.get(key)
        if held is None:
            held = _held[key] = _Held(SharedModel(chosen, context))
        held.holders += 1
        return Lease(key, held.model, progress)


@atexit.register
def _stop_all() -> None:
    for held in list(_held.values()):
        held.model.stop()


def _after_fork() -> None:
    """A forked process has its own models: those of the parent are not its to use or to end."""
    global _guard  # noqa: PLW0603 -- another thread of the parent may have held it
    _guard = threading.Lock()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
