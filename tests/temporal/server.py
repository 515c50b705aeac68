"""Temporal's development server, as the tests use it: one process, its database a file that outlives it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = shutil.which("temporal", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


class TemporalServer:
    """`temporal server start-dev` on loopback. Stopped and started again, it goes on with the same database."""

    def __init__(self, directory: Path) -> None:
        assert PROGRAM is not None
        self.database = directory / "temporal.db"
        self.port = free_port()
        self._log = directory / "temporal.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._used = False
        """Whether clients know its port already."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> TemporalServer:
        for _ in range(5):
            if self._starts():
                self._used = True
                return self
            if not self._used:  # somebody else has taken the port in the meantime
                self.port = free_port()
        raise RuntimeError(f"Temporal's server does not start: {self._log.read_text()[-2000:]}")

    def _starts(self) -> bool:
        assert PROGRAM is not None
        command = [PROGRAM, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(self.port)]
        command += ["--db-filename", str(self.database), "--log-level", "error"]
        # What the process has written outlives it all the same; only the machine's own end would lose it.
        command += ["--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=off"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while time.monotonic() < end and self._process.poll() is None:
            if asyncio.run(self._answers()) and self._process.poll() is None:
                return True
            time.sleep(0.1)
        self.stop()
        return False

    async def _answers(self) -> bool:
        from temporalio.client import Client
        from temporalio.service import RPCError

        try:
            client = await Client.connect(self.address)
            await client.count_workflows()
        except (RuntimeError, RPCError):
            return False
        return True

    def stop(self, *, kill: bool = False) -> None:
        """End it, so that everything is in the database file; or as if the machine had gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(30)
            self._process = None

    def __enter__(self) -> TemporalServer:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()
