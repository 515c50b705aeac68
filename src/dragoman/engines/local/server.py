"""One running model for all engines of a process that ask for the same, and requests to it.

A model is started with the first call and ended with the last engine. It answers one call at a time, in the order in
which they come: llama.cpp keeps the queue. Closing a reply early closes its connection, and the model stops at the next
token.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self, TypeAlias

import msgspec

from dragoman._stepping import step
from dragoman.errors import ConfigurationError, ConnectionFailedError
from dragoman.transport import MAX_BODY_BYTES, HttpRequest, Response, Transport

from .download import OnProgress, bar_if_terminal
from .models import ModelChoice
from .process import Launch, ModelProcess, ensure_installed, start
from .storage import pull

PLACE: Final = "http://127.0.0.1:0/v1"
"""What stands in requests for the address: it is known only when the model runs."""
_DYING_SECONDS: Final = 2.0


class SharedModel:
    """A model that is run when it is first needed, and by nobody twice."""

    def __init__(self, choice: ModelChoice, context: int) -> None:
        self.holders: int = 0
        """How many engines need it."""
        self._choice: ModelChoice = choice
        self._context: int = context
        self._lock: threading.Lock = threading.Lock()
        self._process: ModelProcess | None = None
        self._doubted: bool = False

    @property
    def running(self) -> ModelProcess | None:
        """Its program, if it runs."""
        process = None if self._doubted else self._process
        return process if process is not None and process.alive else None

    def run(self, progress: OnProgress | None) -> ModelProcess:
        """Run it, unless it runs. May take minutes: the file may have to be downloaded. Raises LocalModelError."""
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
            file = self._choice.file or pull(self._choice.name, progress)
            self._process = start(Launch(model=file, context=self._context, threads=_threads()))
            return self._process

    def broken(self, error: ConnectionFailedError) -> ConnectionFailedError:
        """The error for a connection to it that broke. Before it is asked again, it is looked whether it lives."""
        self._doubted = True
        message = "The program that runs the local model does not answer any more."
        hint = (
            "Ask again: it is started anew. If it happens each time, memory may be short: use a smaller model or "
            "context."
        )
        return ConnectionFailedError(message, hint=hint, code=error.code)

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


# --- who needs which --------------------------------------------------------------------------------------------------

_Key: TypeAlias = tuple[Path | str, int]
_shared: Final[dict[_Key, SharedModel]] = {}
_guard = threading.Lock()


class Lease:
    """An engine's share of a model; nothing is loaded before it is needed."""

    def __init__(self, choice: ModelChoice, context: int, progress: OnProgress | None = None) -> None:
        self._key: _Key = (choice.file or choice.name, context)
        self._progress: OnProgress | None = progress
        self._over: bool = False
        with _guard:
            self.model: SharedModel = _shared.setdefault(self._key, SharedModel(choice, context))
            self.model.holders += 1

    @property
    def running(self) -> ModelProcess | None:
        """The model's program, if it runs."""
        if self._over:
            message = "The engine is closed."
            raise ConfigurationError(message, hint="Make a new one, or do not close it so early.")
        return self.model.running

    def run(self) -> ModelProcess:
        """The model's program; it is run if it does not."""
        return self.model.run(self._progress or bar_if_terminal())

    def release(self) -> None:
        """Give the share back. The last one ends the model."""
        with _guard:
            if self._over:
                return
            self._over = True
            self.model.holders -= 1
            if self.model.holders or _shared.get(self._key) is not self.model:
                return
            del _shared[self._key]
        self.model.stop()


@atexit.register
def _stop_all() -> None:
    for model in list(_shared.values()):
        model.stop()


def _after_fork() -> None:
    """A forked process has its own models: those of the parent are not its to use or to end."""
    global _guard  # noqa: PLW0603 -- another thread of the parent may have held it
    _guard = threading.Lock()
    _shared.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# --- requests ---------------------------------------------------------------------------------------------------------


class LocalTransport:
    """Sends requests to the model. Safe to share between threads, or between the tasks of a loop."""

    def __init__(self, lease: Lease, inner: Transport, *, blocking: bool) -> None:
        self.blocking: bool = blocking
        self._lease: Lease = lease
        self._inner: Transport = inner
        # An engine that nobody closed must not keep the model in memory for ever.
        self._release: weakref.finalize[..., LocalTransport] = weakref.finalize(
            self, _release, lease, inner if blocking else None
        )

    async def open(self, request: HttpRequest) -> Response:
        """Run the model if it does not, and send the request."""
        server = self._lease.running
        if server is None:
            server = self._lease.run() if self.blocking else await _run_in_thread(self._lease)
        addressed = msgspec.structs.replace(
            request,
            url=f"{server.address}/v1{request.url.removeprefix(PLACE)}",
            headers={**request.headers, "authorization": f"Bearer {server.key}"},
        )
        try:
            return _Reply(await self._inner.open(addressed), self._lease.model)
        except ConnectionFailedError as error:
            raise self._lease.model.broken(error) from error

    async def aclose(self) -> None:
        """Close the connections; the model ends if nobody else needs it."""
        if not self.blocking:
            await self._inner.aclose()
        self._release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()


def _release(lease: Lease, inner: Transport | None) -> None:
    try:
        if inner is not None:
            step(inner.aclose())
    finally:
        lease.release()


async def _run_in_thread(lease: Lease) -> ModelProcess:
    import asyncio  # which plain programs do not load

    return await asyncio.to_thread(lease.run)


class _Reply:
    """A reply whose broken connection is told as what it means here."""

    __slots__ = ("_model", "_response")

    def __init__(self, response: Response, model: SharedModel) -> None:
        self._response: Response = response
        self._model: SharedModel = model

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def next(self) -> bytes:
        try:
            return await self._response.next()
        except ConnectionFailedError as error:
            raise self._model.broken(error) from error

    async def read(self, limit: int = MAX_BODY_BYTES) -> bytes:
        try:
            return await self._response.read(limit)
        except ConnectionFailedError as error:
            raise self._model.broken(error) from error

    async def aclose(self) -> None:
        await self._response.aclose()
