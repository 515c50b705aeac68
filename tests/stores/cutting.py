"""A way to the server that breaks at the worst moment: when a transaction is being committed."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

from tests.stores.postgres_server import Server

__all__ = ["Proxy", "proxy_to"]


class Proxy:
    """Passes bytes on, until it is told to cut the next COMMIT."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: set[socket.socket] = set()
        self._cut: str | None = None
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def conninfo(self) -> str:
        port = self._listener.getsockname()[1]
        return f"host=127.0.0.1 port={port} user=postgres dbname=postgres sslmode=disable gssencmode=disable"

    def cut_next_commit(self, *, arrives: bool) -> None:
        """Cut the connection at the next COMMIT, which arrives at the server or does not."""
        self._cut = "after" if arrives else "before"

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                upstream = socket.socket(socket.AF_UNIX)
                upstream.connect(f"{self._server.directory}/.s.PGSQL.5432")
                self._sockets |= {client, upstream}
                for source, target, watched in ((client, upstream, True), (upstream, client, False)):
                    threading.Thread(target=self._pass_on, args=(source, target, watched), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, watched: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if watched and self._cut and b"COMMIT\0" in data:
                    self._cut_off(source, target, data)
                    return
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _cut_off(self, client: socket.socket, upstream: socket.socket, data: bytes) -> None:
        how, self._cut = self._cut, None
        self.cuts += 1
        client.shutdown(socket.SHUT_RDWR)
        if how == "after":
            upstream.sendall(data)
            upstream.shutdown(socket.SHUT_WR)  # what was sent is read to its end
        else:
            upstream.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy_to(server: Server) -> Generator[Proxy]:
    proxy = Proxy(server)
    try:
        yield proxy
    finally:
        proxy.close()
