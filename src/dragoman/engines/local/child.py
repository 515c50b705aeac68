"""The program in which llama.cpp runs, apart from the user's own: what crashes here does not crash there.

It knows nothing of this package: it is run as a file, by the Python of the user's program. What to run is its argument,
a line of JSON. It serves all programs of its user that know where it is and its key, which both stand in a file that
only this user can read. It holds a lock as long as it lives, and ends when it has computed nothing for some time, or
when its file is gone.

What was started ends with status 0 as soon as the server runs, and with another one, when the server has ended, if it
does not. What it printed says why.
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
"""Another one runs the same model already."""
_LOOK = 0.5
"""Seconds between two looks at what it has computed."""
_LEAST_WORK = 0.02
"""Seconds of the processor between two looks that only an answer takes."""


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
    os._exit(0)  # the server's threads are not waited for


def _detach() -> int:
    """Go on in a process of its own, which belongs to nobody once it is ready and says so."""
    ready, say_ready = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ready)
        return say_ready
    os.close(say_ready)
    if os.read(ready, 1):
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(status if status >= 0 else 128 - status)


def _locked(lock: int) -> bool:
    """Take the lock; somebody who only looks whether it is taken holds it for a moment."""
    for _ in range(20):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False


def _write(path: Path, text: str) -> None:
    """Write a file that only this user can read, at once; it is believed as long as we live, since it is locked."""
    fresh = Path(f"{path}.{os.getpid()}")
    fresh.touch(0o600)
    fresh.write_text(text, encoding="utf-8")
    fcntl.flock(os.open(fresh, os.O_RDWR), fcntl.LOCK_EX)  # never closed
    fresh.replace(path)


def _wait_until_idle(seconds: float, path: Path, key: str) -> None:
    """Wait until nothing was computed for so long, or the file says nothing of us any more."""
    worked, last = time.process_time(), time.monotonic()
    while time.monotonic() - last < seconds:
        time.sleep(_LOOK)
        now = time.process_time()
        if now - worked > _LEAST_WORK:
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
    parameters.n_batch = 512  # between two batches of a prompt it can be stopped; smaller ones cost more than twice
    parameters.n_parallel = 1  # one call at a time, in the order in which they come
    parameters.n_threads_http = 32  # a connection that waits for its turn, or is kept, holds a thread
    parameters.cache_ram_mib = 512  # of earlier conversations
    parameters.use_jinja = True
    with Path(asked["model"]).open("rb") as file:
        if re.search(rb"\.pooling_type\x04\0\0\0[^\0]", file.read(1 << 16)):
            # It makes vectors. A text that is longer than the context is then refused as such, and not as too large.
            parameters.embedding = True
            parameters.n_batch = parameters.n_ubatch = 2 * asked["context"]
    parameters.warmup = False
    parameters.ui = False
    parameters.verbosity = -1
    return parameters


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as error:  # noqa: BLE001 -- whatever it is, who started it must be told
        sys.stderr.write(f"error: {str(error) or type(error).__name__}\n")
        sys.exit(1)
