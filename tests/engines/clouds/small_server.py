"""A small server on this machine that stands for a cloud's metadata and token services."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: str


class SmallServer(NamedTuple):
    url: str
    asked: list[Asked]


Answer = str | dict[str, Any] | int
"""A text, an object, or a status."""


@contextmanager
def serving(answer: Callable[[Asked], Answer]) -> Iterator[SmallServer]:
    """A server that answers every request with this function."""
    asked: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Asked(self.command, self.path, headers, body)
            asked.append(request)
            reply = answer(request)
            data = (
                reply.encode()
                if isinstance(reply, str)
                else b"{}"
                if isinstance(reply, int)
                else json.dumps(reply).encode()
            )
            self.send_response(reply if isinstance(reply, int) else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = _handle  # noqa: N815 -- the names that the library looks for

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield SmallServer(f"http://127.0.0.1:{server.server_address[1]}", asked)
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
