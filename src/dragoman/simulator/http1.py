"""Requests of HTTP/1.1, from bytes in any pieces.

Owns: request lines, headers, bodies with a length and in chunks; the limits of their sizes.
Must not know: sockets, and what a request is about.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["BadRequestError", "HttpRequest", "RequestParser"]

_MAX_HEAD = 64 * 1024
_MAX_BODY = 256 * 1024 * 1024


class BadRequestError(Exception):
    """The bytes are not a request that this server takes; `status` says why."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class HttpRequest:
    """One request."""

    method: str
    target: str
    version: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes = b""

    @cached_property
    def path(self) -> str:
        """Without the query, percent signs resolved."""
        return unquote(urlsplit(self.target).path)

    @cached_property
    def query(self) -> dict[str, str]:
        """The parameters of the query."""
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @property
    def keeps_alive(self) -> bool:
        """Whether the client means to use the connection again."""
        wish = self.headers.get("connection", "").lower()
        return "close" not in wish and (self.version == "HTTP/1.1" or "keep-alive" in wish)


class RequestParser:
    """Collects bytes and gives requests."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: HttpRequest | None = None
        self._chunks: list[bytes] = []
        self._size = 0
        self._in_trailers = False
        self._permitted = False

    @property
    def idle(self) -> bool:
        """Whether nothing of a request has come yet."""
        return not self._buffer and self._head is None

    def wants_permission(self) -> bool:
        """Whether the client now waits for `100 Continue` before it sends the body: asked once for each request."""
        head = self._head
        if head is None or self._permitted or self._buffer:
            return False
        self._permitted = True
        return head.headers.get("expect", "").lower() == "100-continue"

    def feed(self, data: bytes) -> None:
        """Take in the next bytes."""
        self._buffer += data

    def next_request(self) -> HttpRequest | None:
        """The next request, if it is complete. Raises BadRequestError."""
        if self._head is None:
            self._head = self._read_head()
        head = self._head
        if head is None:
            return None
        body = self._read_chunks() if "transfer-encoding" in head.headers else self._read_length(head)
        if body is None:
            return None
        self._head, self._chunks, self._size = None, [], 0
        self._in_trailers = self._permitted = False
        return HttpRequest(head.method, head.target, head.version, head.headers, body)

    def _read_head(self) -> HttpRequest | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _MAX_HEAD:
                message = f"the head of a request is longer than {_MAX_HEAD} bytes"
                raise BadRequestError(message, 431)
            return None
        first, *lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        match first.split(" "):
            case [method, target, ("HTTP/1.1" | "HTTP/1.0") as version] if method.isalpha():
                return HttpRequest(method, target, version, _headers(lines))
            case _:
                message = "the first line is not that of an HTTP/1.1 request"
                raise BadRequestError(message)

    def _read_length(self, head: HttpRequest) -> bytes | None:
        given = head.headers.get("content-length", "0")
        if not given.isdecimal():
            message = "the content length is not a number"
            raise BadRequestError(message)
        length = int(given)
        self._limit(length)
        return self._take(length) if len(self._buffer) >= length else None

    def _read_chunks(self) -> bytes | None:
        while True:
            end = self._buffer.find(b"\r\n")
            if end < 0:
                return None
            if self._in_trailers:
                line = self._take(end + 2)
                if line == b"\r\n":
                    return b"".join(self._chunks)
                continue
            try:
                size = int(bytes(self._buffer[:end]).partition(b";")[0], 16)
            except ValueError:
                message = "the size of a chunk is not a number"
                raise BadRequestError(message) from None
            self._limit(self._size + size)
            if size and len(self._buffer) < end + 2 + size + 2:
                return None
            self._take(end + 2)
            if size == 0:
                self._in_trailers = True
                continue
            self._chunks.append(self._take(size))
            self._size += size
            self._take(2)

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _limit(self, size: int) -> None:
        if not 0 <= size <= _MAX_BODY:
            message = f"the body of a request is longer than {_MAX_BODY} bytes"
            raise BadRequestError(message, 413)


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            message = "a line of the head is not a header"
            raise BadRequestError(message)
        headers[name.lower()] = value.strip()
    return headers
