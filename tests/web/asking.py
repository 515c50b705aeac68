"""One request to a server of these tests, and all of its answer."""

from __future__ import annotations

import http.client
import json
from typing import NamedTuple


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


def ask(port: int, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> Answer:
    """The body is sent as it is if it is a text, else as JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        data = body if isinstance(body, str | None) else json.dumps(body)
        connection.request(method, path, data, headers or {})
        response = connection.getresponse()
        named = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, named, response.read())
    finally:
        connection.close()
