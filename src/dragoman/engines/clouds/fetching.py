"""One small request, for what clouds keep beside their models: metadata and tokens. It blocks.

On an event loop whoever makes keys does so in a worker thread (see credential.py), so there is one colour of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dragoman._stepping import step
from dragoman.transport import HttpRequest, SocketTransport, Timeouts


class Fetched(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


def fetch(
    url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b"", seconds: float = 10.0
) -> Fetched:
    """Send it and read all of the reply. Raises ConnectionFailedError or RequestTimeoutError."""
    return send(HttpRequest(url=url, method=method, headers=headers or {}, body=body, timeout=_limits(seconds)))


def send(request: HttpRequest) -> Fetched:
    """`fetch` for a request that is ready."""
    transport = SocketTransport()
    try:
        response = step(transport.open(request))
        return Fetched(response.status, response.headers, step(response.read()))
    finally:
        step(transport.aclose())


def _limits(seconds: float) -> Timeouts:
    return Timeouts(connect=seconds, read=seconds, total=seconds)
