"""The program in which llama.cpp runs, apart from the user's own: what crashes here does not crash there.

It knows nothing of this package: it is run as a file, by the Python of the user's program.

It reads one line of JSON, what to run; it writes one, the address or what went wrong; it ends when its input ends, or
when its parent is gone although somebody else (a process that the parent forked) still holds the other end.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from importlib import import_module
from typing import Any


def main() -> int:
    """Run the server until nobody needs it."""
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the library prints must not come between

    def tell(**fields: str) -> None:
        said.write(json.dumps(fields) + "\n")
        said.flush()

    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    asked = json.loads(sys.stdin.readline())
    try:
        runtime: Any = import_module("xllamacpp")
    except ImportError as error:
        tell(error="not_installed", text=str(error))
        return 1
    try:
        server = runtime.Server(_parameters(runtime, asked))
        address = str(server.listening_address)
    except Exception as error:  # noqa: BLE001 -- whatever it is, the parent must be told
        tell(error="failed", text=str(error) or type(error).__name__)
        return 1
    tell(address=address)
    while sys.stdin.read(4096):
        pass
    os._exit(0)  # the server's threads are not waited for


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)


def _parameters(runtime: Any, asked: dict[str, Any]) -> Any:
    parameters = runtime.CommonParams()
    parameters.model.path = asked["model"]
    parameters.api_keys = [asked["key"]]
    parameters.n_ctx = asked["context"]
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = asked["threads"]
    parameters.hostnames, parameters.port = ["127.0.0.1"], 0
    parameters.n_parallel = 1  # one call at a time, in the order in which they come
    parameters.n_threads_http = 32  # a connection that waits for its turn, or is kept, holds a thread
    parameters.cache_ram_mib = 512  # of earlier conversations
    parameters.use_jinja = True
    parameters.warmup = False
    parameters.ui = False
    parameters.verbosity = -1
    return parameters


if __name__ == "__main__":
    sys.exit(main())
