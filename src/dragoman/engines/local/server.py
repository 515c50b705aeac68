"""The server process of a model (child.py), and requests to it.

All programs of a user share one server for a model: the first one that needs it starts it, and it exits by itself after
some idle minutes. So the next command finds the model loaded and its prompt cache filled. The server holds a lock while
it runs. Beside the lock is its state, the address and the key, in a file that only this user can read.

It answers one call at a time; llama.cpp keeps the queue. Closing a reply early closes its connection, and the model
stops at the next token.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from dragoman._decoding import decode_as
from dragoman._descriptors import owned
from dragoman._programs import start_python
from dragoman._stop import Stop, pause, sleep, stopping
from dragoman._version import __version__
from dragoman.directories import cache_directory
from dragoman.engines.credential import Confidential
from dragoman.errors import ConfigurationError, ConnectionFailedError, LocalModelError
from dragoman.transport import HttpRequest, Response, Transport

from .models import ModelChoice
from .runtime import cannot_be_loaded, ensure_runtime, runtime_environment, unsupported_processor
from .storage import bar_if_terminal, present, pull, try_lock

_T = TypeVar("_T")

PLACE: Final = "http://127.0.0.1:0/v1"
"""A placeholder in requests: the address is known only when the server runs."""
_IDLE_VARIABLE: Final = "DRAGOMAN_LOCAL_IDLE"
_IDLE_SECONDS: Final = 300.0
_CHILD: Final = str(Path(__file__).with_name("child.py"))
_POLL_SECONDS: Final = 0.05
_START_SECONDS: Final = 600.0
_EXIT_SECONDS: Final = 2.0
# Exit statuses of the child: its own, and those of signals.
_NOT_INSTALLED: Final = 3
_TAKEN: Final = 4
_ILLEGAL_INSTRUCTION: Final = 128 + signal.SIGILL
_NO_MEMORY: Final = (128 + signal.SIGKILL, 128 + signal.SIGABRT)


# --- running servers --------------------------------------------------------------------------------------------------


class ModelServer(Confidential, frozen=True, kw_only=True):
    """The server of a model."""

    address: str
    key: str
    pid: int
    model: str
    """The path of its file."""
    context: int


def _directory() -> Path:
    return cache_directory() / "servers"


def _is_held(lock: Path) -> bool:
    """Whether a server holds this lock. Others that only check it take a shared lock."""
    try:
        with owned(os.open, lock, os.O_RDWR) as descriptor:
            return not try_lock(descriptor.number, shared=True)
    except FileNotFoundError:
        return False


def _find(state: Path) -> ModelServer | None:
    """The server of this state file. If it no longer locks the file, another program may use its address by now."""
    if not _is_held(state):
        return None
    try:
        return decode_as(state.read_bytes(), ModelServer)
    except (OSError, msgspec.MsgspecError):  # it is being started
        return None


def running_models() -> list[ModelServer]:
    """The servers that are running."""
    return [server for state in sorted(_directory().glob("*.json")) if (server := _find(state)) is not None]


def stop_models(model: str = "") -> list[ModelServer]:
    """Stop the servers of this model's file, or all servers. Returns those that were stopped."""
    stopped: list[ModelServer] = []
    for state in sorted(_directory().glob("*.json")):
        server = _find(state)
        if server is not None and model in ("", server.model):
            state.unlink(missing_ok=True)  # the server notices it
            end = time.monotonic() + _EXIT_SECONDS
            while _is_held(state.with_suffix(".lock")) and time.monotonic() < end:
                sleep(_POLL_SECONDS)
            stopped.append(server)
    return stopped


# --- starting one -----------------------------------------------------------------------------------------------------


async def find_or_start(model: Path, context: int, *, blocking: bool) -> ModelServer:
    """The server of a model, started if it does not run. Raises LocalModelError."""
    state = _state_of(model, context)
    child: subprocess.Popen[bytes] | None = None
    end = time.monotonic() + _START_SECONDS
    try:
        while (server := _find(state)) is None:
            status = None if child is None else child.poll()
            if status is not None and status not in (0, _TAKEN):
                raise _failure(model, status, state.with_suffix(".log"))
            if (child is None or status is not None) and not _is_held(state.with_suffix(".lock")):
                child = _spawn(state, model, context)
            if time.monotonic() > end:
                message = f"The model {model.name} was not loaded within {_START_SECONDS:.0f} seconds."
                raise LocalModelError(message, reason="failed", hint="Use a smaller model, or a faster machine.")
            await pause(_POLL_SECONDS, blocking=blocking)
    except BaseException:
        if child is not None and child.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        raise
    finally:
        if child is not None:
            child.wait()
    return server


def _state_of(model: Path, context: int) -> Path:
    """The state file of the server for this very model file, context and version."""
    directory = _directory()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)  # fails if the directory belongs to another user
        file = model.stat()
    except OSError as error:
        message = f"The local model cannot be run: {error.filename or directory}: {error.strerror or error}."
        raise LocalModelError(message, reason="failed", hint="Check that you own your cache directory.") from error
    what = f"{model} {file.st_ino} {file.st_size} {file.st_ctime_ns} {context} {__version__}"
    return directory / f"{hashlib.sha256(what.encode()).hexdigest()[:24]}.json"


def _spawn(state: Path, model: Path, context: int) -> subprocess.Popen[bytes]:
    asked = {
        "lock": str(state.with_suffix(".lock")),
        "state": str(state),
        "model": str(model),
        "context": context,
        "threads": _threads(),
        "idle": _idle_seconds(),
    }
    try:
        with state.with_suffix(".log").open("wb") as output:
            return start_python(
                _CHILD,
                json.dumps(asked),
                environment=runtime_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                apart=True,  # Ctrl-C in a terminal must not reach the server
            )
    except OSError as error:
        message = f"The model's server cannot be started: {error.strerror or error}."
        raise LocalModelError(message, reason="failed", hint="Check sys.executable of this program.") from error


def _threads() -> int:
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(available, 8))


def _idle_seconds() -> float:
    named = os.environ.get(_IDLE_VARIABLE, "").strip() or str(_IDLE_SECONDS)
    try:
        return max(2.0, float(named))
    except ValueError:
        message = f"{_IDLE_VARIABLE}={named!r} is not a number."
        raise ConfigurationError(message, hint="Set it to the seconds that an idle model stays loaded: 300.") from None


def _failure(model: Path, status: int, log: Path) -> LocalModelError:
    if status == _ILLEGAL_INSTRUCTION:
        return unsupported_processor()
    lines = [line.strip() for line in log.read_text(errors="replace")[-4000:].splitlines()]
    last = next((line for line in reversed(lines) if " E " in line or "error" in line.lower()), "")
    why = (last.removeprefix("error: ") or f"its server exited with status {status}")[:300]
    if status == _NOT_INSTALLED:
        return cannot_be_loaded(why)
    if status in _NO_MEMORY or "alloc" in why.lower():
        message = f"There is not enough memory to run {model.name}: {why}."
        hint = "Close other programs, use a smaller model or a smaller context_window in its profile."
        return LocalModelError(message, reason="no_memory", hint=hint)
    message = f"The model {model.name} cannot be loaded: {why}."
    hint = "The file may be damaged, or too new for the installed runtime."
    return LocalModelError(message, reason="wrong_file", hint=hint)


# --- requests ---------------------------------------------------------------------------------------------------------


class LocalTransport(Transport):
    """Sends requests to a model's server. Safe to share between threads, or between the tasks of a loop."""

    def __init__(self, choice: ModelChoice, context: int, inner: Transport, *, blocking: bool) -> None:
        self.blocking: bool | None = blocking
        self._blocking: bool = blocking
        self._choice: ModelChoice = choice
        self._context: int = context
        self._inner: Transport = inner
        self._closed: bool = False

    async def open(self, request: HttpRequest) -> Response:
        """Start the server if it does not run, and send the request."""
        retried = False
        while True:
            server = await self._server()
            path = request.url.removeprefix(PLACE)
            addressed = msgspec.structs.replace(
                request,
                url=f"{server.address}{'' if path == '/tokenize' else '/v1'}{path}",
                headers={**request.headers, "authorization": f"Bearer {server.key}"},
            )
            try:
                return _Reply(addressed, await self._inner.open(addressed))
            except ConnectionFailedError as error:
                # The server may be exiting: its connections close before its lock is released.
                if retried or not await self._has_ended(server):
                    raise _broken(error) from error
                retried = True

    async def _server(self) -> ModelServer:
        if self._closed:
            message = "The engine is closed."
            raise ConfigurationError(message, hint="Create a new one, or close it later.")
        file = self._choice.file or await self._aside(self._pull)
        try:
            return await find_or_start(file, self._context, blocking=self._blocking)
        except LocalModelError as error:
            if error.reason != "not_installed":
                raise
        await self._aside(ensure_runtime)
        return await find_or_start(file, self._context, blocking=self._blocking)

    def _pull(self) -> Path:
        """The file of a named model; the download may take minutes."""
        if not present(self._choice.name):
            ensure_runtime()
        return pull(self._choice.name, bar_if_terminal())

    async def _aside(self, work: Callable[[], _T]) -> _T:
        """Do what takes long: on an event loop in a thread, which a cancelled caller stops."""
        if self.blocking:
            return work()
        import asyncio  # sync programs do not load it

        stop = Stop()
        with stopping(stop):  # in the thread, too
            try:
                return await asyncio.to_thread(work)
            except asyncio.CancelledError:
                stop.cancel()
                raise

    async def _has_ended(self, server: ModelServer) -> bool:
        state = _state_of(Path(server.model), server.context)
        end = time.monotonic() + _EXIT_SECONDS
        while _find(state) == server:
            if time.monotonic() > end:
                return False
            await pause(_POLL_SECONDS, blocking=self._blocking)
        return True

    async def aclose(self) -> None:
        self._closed = True
        await self._inner.aclose()


class _Reply(Response):
    """A reply that explains a broken connection."""

    def __init__(self, request: HttpRequest, response: Response) -> None:
        super().__init__(request, response.status, response.headers)
        self._response: Response = response

    async def next(self) -> bytes:
        try:
            return await self._response.next()
        except ConnectionFailedError as error:
            raise _broken(error) from error

    async def aclose(self) -> None:
        await self._response.aclose()


def _broken(error: ConnectionFailedError) -> ConnectionFailedError:
    message = "The server of the local model does not answer any more."
    hint = "Ask again: it is restarted. If it fails each time, memory may be short: use a smaller model or context."
    return ConnectionFailedError(message, hint=hint, code=error.code)
