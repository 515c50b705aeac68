"""A real server of Restate for tests, from npm: on loopback, with ports and data of its own."""

from __future__ import annotations

import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mcp.node import NotInstalledError, install
from tests.processes import started

VERSION = "1.7.12"
START_SECONDS = 60.0


@dataclass(frozen=True)
class RestateServer:
    ingress: str
    admin: str


def _program(environ: Mapping[str, str]) -> Path:
    home = install(f"@restatedev/restate-server@{VERSION}", f"restate-server-{VERSION}", environ)
    for found in home.glob("node_modules/@restatedev/restate-server-*/bin/restate-server"):
        return found
    message = "npm has no server of Restate for this platform"
    raise NotInstalledError(message)


@contextmanager
def restate_server(directory: Path, environ: Mapping[str, str]) -> Iterator[RestateServer]:
    """A server for the length of a block; `environ` is that outside the tests. Raises NotInstalledError."""
    program = _program(environ)
    ingress, admin, fabric = free_ports(3)
    settings = {
        "RESTATE_BASE_DIR": str(directory),
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_BIND_PORT": str(fabric),
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_DEFAULT_NUM_PARTITIONS": "1",
        "RESTATE_ROCKSDB_TOTAL_MEMORY_SIZE": "64MB",
        # A step whose end is never heard stays so: a replay after a minute would hide it.
        "RESTATE_WORKER__INVOKER__INACTIVITY_TIMEOUT": "1h",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
    }
    with ExitStack() as stack:
        log = stack.enter_context((directory / "log").open("w"))
        process = stack.enter_context(
            started([program, "--no-logo"], env={"PATH": os.defpath, **settings}, stdout=log, stderr=log)
        )
        end = time.monotonic() + START_SECONDS
        while not _is_ready(f"http://127.0.0.1:{ingress}/restate/health"):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError((directory / "log").read_text()[-2000:])
            time.sleep(0.1)
        yield RestateServer(f"http://127.0.0.1:{ingress}", f"http://127.0.0.1:{admin}")


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False
