"""The server process in which llama.cpp runs, so that a crash does not reach the user's program.

It is run as a file, without this package, by the Python of the user's program; its argument is a line of JSON. Its
address and key are in a file that only this user can read. It holds a lock while it runs, and exits when it has
computed nothing for some time, or when its file is removed.

The process that was started exits with status 0 as soon as the server runs; if that fails, with the status of the
server, which has printed why.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

_NOT_INSTALLED = 3
_TAKEN = 4
"""Another server runs the same model already."""
_CHECK_SECONDS = 0.5
"""How often it checks whether it has computed anything."""
_WORK_SECONDS = 0.02
"""CPU time between two checks that only an answer takes."""


def main() -> int:
    asked = json.loads(sys.argv[1])
    ready = _detach()
    lock = os.open(asked["lock"], os.O_RDWR | os.O_CREAT, 0o600)  # never closed
    if not _locked(lock):
        return _TAKEN
    try:
        runtime: Any = import_module("xllamacpp")
    except ImportError as error:
        sys.stderr.write(f"error: {error}\n")
        return _NOT_INSTALLED
    key = secrets.token_urlsafe(32)
    server = runtime.Server(_parameters(runtime, asked, key))
    state = {"address": str(server.listening_address), "key": key, "pid": os.getpid(), "model": asked["model"]}
    _write(Path(asked["state"]), json.dumps(state | {"context": asked["context"]}))
    os.write(ready, b"x")
    os.close(ready)
    _wait_until_idle(asked["idle"], Path(asked["state"]), key)
    os._exit(0)  # without waiting for the server's threads


def _detach() -> int:
    """Continue in a child process, and exit here as soon as that has written to the returned pipe."""
    ready, write_ready = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ready)
        return write_ready
    os.close(write_ready)
    if os.read(ready, 1):
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(status if status >= 0 else 128 - status)


def _locked(lock: int) -> bool:
    """Take the lock; a program that only checks it may hold it for a moment."""
    for _ in range(20):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False


def _write(path: Path, text: str) -> None:
    """Write a file atomically that only this user can read, and lock it: it is valid while this process runs."""
    fresh = Path(f"{path}.{os.getpid()}")
    fresh.touch(0o600)
    fresh.write_text(text, encoding="utf-8")
    fcntl.flock(os.open(fresh, os.O_RDWR), fcntl.LOCK_EX)  # never closed
    fresh.replace(path)


def _wait_until_idle(seconds: float, path: Path, key: str) -> None:
    """Wait until nothing was computed for this long, or until the file is no longer ours."""
    worked, last = time.process_time(), time.monotonic()
    while time.monotonic() - last < seconds:
        time.sleep(_CHECK_SECONDS)
        now = time.process_time()
        if now - worked > _WORK_SECONDS:
            last = time.monotonic()
        worked = now
        try:
            if key not in path.read_text(encoding="utf-8"):
                return
        except OSError:
            return
    path.unlink()


def _parameters(runtime: Any, asked: dict[str, Any], key: str) -> Any:
    parameters = runtime.CommonParams()
    parameters.model.path = asked["model"]
    parameters.api_keys = [key]
    parameters.n_ctx = asked["context"]
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = asked["threads"]
    parameters.hostnames, parameters.port = ["127.0.0.1"], 0
    parameters.n_batch = 512  # it can be stopped between two batches of a prompt; smaller ones cost twice the time
    parameters.n_parallel = 1  # one call at a time, in order
    parameters.n_threads_http = 32  # each waiting connection holds a thread
    parameters.cache_ram_mib = 512  # of earlier conversations
    parameters.use_jinja = True
    with Path(asked["model"]).open("rb") as file:
        if re.search(rb"\.pooling_type\x04\0\0\0[^\0]", file.read(1 << 16)):
            # An embedding model. With these batches, a text longer than the context gets the right error.
            parameters.embedding = True
            parameters.n_batch = parameters.n_ubatch = 2 * asked["context"]
    parameters.warmup = False
    parameters.ui = False
    parameters.verbosity = -1
    return parameters


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as error:  # noqa: BLE001 -- the starting program reads it from the log
        sys.stderr.write(f"error: {str(error) or type(error).__name__}\n")
        sys.exit(1)
