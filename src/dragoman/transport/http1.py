"""HTTP/1.1 without sockets: write requests, parse responses from bytes in any pieces, decompress bodies.

Responses are parsed by llhttp (httptools) with its strict defaults. This module adds size limits, the effect of the
request method, unexpected transfer codings, early ends, and whether the connection can be reused.
"""

from __future__ import annotations

import zlib
from typing import Final

from httptools import HttpParserCallbackError, HttpParserError, HttpResponseParser

from .errors import MalformedReplyError
from .protocol import HttpRequest

_MAX_SILENT: Final = 512 * 1024
"""How many bytes may arrive without any of the body: as a head, or between chunks."""
_FRAMING: Final = frozenset({"connection", "content-length", "transfer-encoding"})
_USUALLY_EMPTY: Final = frozenset({"DELETE", "GET", "HEAD"})
ACCEPTED_ENCODINGS: Final = "gzip"
"""For the header `accept-encoding`."""


def request_head(request: HttpRequest, *, target: str, usual: dict[str, str]) -> bytes:
    """The head of a request. The caller's headers override the `usual` ones."""
    return start_of_head(request, target=target, usual=usual) + end_of_head(request)


def start_of_head(request: HttpRequest, *, target: str, usual: dict[str, str]) -> bytes:
    """The part that all requests to one URL with the same headers share."""
    headers = usual.copy()
    for name, value in request.headers.items():
        key = name.lower()
        # Callers must not set framing headers: two different lengths allow request smuggling.
        if key not in _FRAMING:
            headers[key] = value
    lines = "\r\n".join([f"{name}: {value}" for name, value in headers.items()])
    return f"{request.method} {target} HTTP/1.1\r\n{lines}\r\n".encode("ascii")


def end_of_head(request: HttpRequest) -> bytes:
    """The part that differs: the length of the body."""
    if request.body or request.method not in _USUALLY_EMPTY:
        return b"content-length: %d\r\n\r\n" % len(request.body)
    return b"\r\n"


class ReplyReader:
    """Parses one response. Feed it until `head_complete`; from then on `feed` returns pieces of the body.

    Empty lines after the end are ignored, as the parser does: they cannot become part of another response.
    """

    def __init__(self, method: str) -> None:
        self.head_complete: bool = False
        self.status: int = 0
        self.headers: dict[str, str] = {}
        self.complete: bool = False
        """Whether the body has ended."""
        self.reusable: bool = True
        """Whether head and framing allow the connection to be reused."""
        self._without_body: bool = method == "HEAD"
        self._pieces: list[bytes] = []
        self._problem: str = ""
        self._silent: int = 0
        self._parser: HttpResponseParser | None = HttpResponseParser(self)

    @property
    def untouched(self) -> bool:
        return not self.head_complete and not self._silent

    def feed(self, data: bytes) -> bytes:
        """The part of the body in these bytes; empty while the head is not complete."""
        parser = self._parser
        if parser is None:
            self.reusable = self.reusable and not data  # bytes after the end were not requested
            return b""
        try:
            parser.feed_data(data)
        except HttpParserCallbackError as error:  # Ctrl-C inside a callback
            raise (error.__context__ or error) from None
        except HttpParserError as error:
            self._problem = self._problem or str(error)
        if self.complete:
            self._parser = None  # breaks a reference cycle
            self.reusable = self.reusable and not self._problem
        elif self._problem:
            raise MalformedReplyError(self._problem)
        pieces = self._pieces
        if pieces:
            self._silent = 0
            self._pieces = []
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._silent += len(data)
        if self._silent > _MAX_SILENT:
            message = "its head, or the data between chunks, is too large"
            raise MalformedReplyError(message)
        return b""

    def end(self) -> None:
        """The connection has ended. EOFError if the reply is not complete."""
        self.reusable = False
        if not self.complete:
            # A response with neither a length nor chunks ends with its connection.
            framed = "content-length" in self.headers or "transfer-encoding" in self.headers
            if not self.head_complete or framed:
                raise EOFError
            self.complete = True
            self._parser = None

    # --- callbacks of the parser --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A response starts: a surplus one if ours is complete."""
        if self.complete:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; trailers are ignored."""
        if not self.head_complete:
            headers, key, text = self.headers, name.decode("latin-1").lower(), value.strip(b" \t").decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        """The head of the response, or of an informational one (100, 102, 103), is complete."""
        parser = self._parser
        if parser is None or self.complete:
            return
        status = parser.get_status_code()
        if status < 200:
            self.headers = {}
            if status == 101:  # not requested
                self._problem = "it switches the protocol"
            return
        if not parser.get_http_version().startswith("1."):
            self._problem = "its HTTP version is unknown"
        elif self.headers.get("transfer-encoding", "chunked").lower() != "chunked":
            self._problem = "its transfer coding is unknown"
        self.status = status
        self.reusable = parser.should_keep_alive()
        self.head_complete = True
        self.complete = self._without_body

    def on_body(self, body: bytes) -> None:
        if self.complete:
            self.reusable = False
        else:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The end of the response, or of an informational one."""
        self.complete = self.head_complete


class Unpacker:
    """Decompresses a body in gzip (also several members) or deflate, and detects an early end."""

    def __init__(self) -> None:
        self._unpacking = zlib.decompressobj(32 + zlib.MAX_WBITS)
        self._packed: bytes = b""
        self._full: bool = False
        self._fed: bool = False

    def feed(self, data: bytes, most: int = 0) -> bytes:
        """Decompress these bytes. ValueError if they are corrupt.

        A few bytes may expand to gigabytes: with `most`, at most that much is returned at once, and the rest by feeding
        empty bytes.
        """
        self._packed += data
        self._fed = self._fed or bool(data)
        unpacked = b""
        try:
            while (self._packed or self._full) and not (most and unpacked):
                if self._unpacking.eof:
                    self._unpacking = zlib.decompressobj(32 + zlib.MAX_WBITS)
                piece = self._unpacking.decompress(self._packed, most)
                self._packed = self._unpacking.unconsumed_tail or self._unpacking.unused_data
                self._full = bool(most) and len(piece) == most and not self._unpacking.eof
                unpacked += piece
        except zlib.error as error:
            raise ValueError(str(error)) from error
        return unpacked

    def finish(self) -> None:
        """Signal the end. EOFError if something is missing."""
        if self._fed and not self._unpacking.eof:
            raise EOFError


def unpacker(encoding: str) -> Unpacker | None:
    """The decompressor for a `content-encoding`; None for an unknown one, which leaves the body as it is."""
    return Unpacker() if encoding.strip(" \t").lower() in ("gzip", "x-gzip", "deflate") else None
