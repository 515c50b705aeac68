"""HTTP/1.1 without sockets: bytes out for a request, a reply from bytes in any pieces, and unpacking its body.

Replies are parsed by llhttp (httptools), with its strict defaults. Here is added what a parser cannot know: limits, the
method of the request, transfer codings that nobody asked for, ends that come too early, and whether the connection may
be used again.
"""

from __future__ import annotations

import zlib
from typing import Final

from httptools import HttpParserCallbackError, HttpParserError, HttpResponseParser

from .errors import MalformedReplyError
from .protocol import HttpRequest

_MAX_SILENT: Final = 512 * 1024
"""How many bytes may come without any of the body: as a head, or between chunks."""
_FRAMING: Final = frozenset({"connection", "content-length", "transfer-encoding"})
_USUALLY_EMPTY: Final = frozenset({"DELETE", "GET", "HEAD"})
ACCEPTED_ENCODINGS: Final = "gzip"
"""For the header `accept-encoding`."""


def request_head(request: HttpRequest, *, target: str, usual: dict[str, str]) -> bytes:
    """The head of a request. The `usual` headers give way to the caller's."""
    return start_of_head(request, target=target, usual=usual) + end_of_head(request)


def start_of_head(request: HttpRequest, *, target: str, usual: dict[str, str]) -> bytes:
    """What all requests to one address with the same headers begin with."""
    headers = usual.copy()
    for name, value in request.headers.items():
        key = name.lower()
        # Framing is not the caller's business: two opinions about a length are how requests are smuggled.
        if key not in _FRAMING:
            headers[key] = value
    lines = "\r\n".join([f"{name}: {value}" for name, value in headers.items()])
    return f"{request.method} {target} HTTP/1.1\r\n{lines}\r\n".encode("ascii")


def end_of_head(request: HttpRequest) -> bytes:
    """What is particular to one request: the length of its body."""
    if request.body or request.method not in _USUALLY_EMPTY:
        return b"content-length: %d\r\n\r\n" % len(request.body)
    return b"\r\n"


class ReplyReader:
    """Reads one reply. Feed it until `head_complete`, then take what `feed` gives as pieces of the body.

    Empty lines behind the end are passed over, as the parser does: they cannot be taken for anybody's reply.
    """

    def __init__(self, method: str) -> None:
        self.head_complete: bool = False
        self.status: int = 0
        self.headers: dict[str, str] = {}
        self.complete: bool = False
        """Whether the body has come to its end."""
        self.reusable: bool = True
        """Whether the connection may serve another request, as far as head and framing say."""
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
            self.reusable = self.reusable and not data  # bytes after the end belong to nothing that we asked for
            return b""
        try:
            parser.feed_data(data)
        except HttpParserCallbackError as error:  # Ctrl-C while one of the methods below ran
            raise (error.__context__ or error) from None
        except HttpParserError as error:
            self._problem = self._problem or str(error)
        if self.complete:
            self._parser = None  # which refers back to this object: without it, both are freed at once
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
            message = "its head, or what stands between chunks, is too large"
            raise MalformedReplyError(message)
        return b""

    def end(self) -> None:
        """The connection has ended. EOFError if the reply is not complete."""
        self.reusable = False
        if not self.complete:
            # A reply with neither a length nor chunks ends with its connection.
            framed = "content-length" in self.headers or "transfer-encoding" in self.headers
            if not self.head_complete or framed:
                raise EOFError
            self.complete = True
            self._parser = None

    # --- what the parser calls ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Another reply begins: surplus, if ours is complete."""
        if self.complete:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or something behind the last chunk, which nobody needs."""
        if not self.head_complete:
            headers, key, text = self.headers, name.decode("latin-1").lower(), value.strip(b" \t").decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        """The head is there: of the reply, or only of its announcement (100, 102, 103)."""
        parser = self._parser
        if parser is None or self.complete:
            return
        status = parser.get_status_code()
        if status < 200:
            self.headers = {}
            if status == 101:  # nobody asked to speak something else
                self._problem = "it wants to change the protocol"
            return
        if not parser.get_http_version().startswith("1."):
            self._problem = "its version of HTTP is not known"
        elif self.headers.get("transfer-encoding", "chunked").lower() != "chunked":
            self._problem = "its transfer coding is not known"
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
        """The end, unless it is that of an announcement."""
        self.complete = self.head_complete


class Unpacker:
    """Unpacks one body in gzip (also several members one after the other) or deflate, and notices an early end."""

    def __init__(self) -> None:
        self._unpacking = zlib.decompressobj(32 + zlib.MAX_WBITS)
        self._packed: bytes = b""
        self._full: bool = False
        self._fed: bool = False

    def feed(self, data: bytes, most: int = 0) -> bytes:
        """What these bytes unpack to, as far as they go. ValueError if they are damaged.

        A few bytes may unpack to gigabytes: with `most`, no more than that comes at once, and the rest when it is fed
        with nothing.
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
        """The bytes have ended. EOFError if something is missing."""
        if self._fed and not self._unpacking.eof:
            raise EOFError


def unpacker(encoding: str) -> Unpacker | None:
    """What unpacks a body whose header `content-encoding` says this; None if there is nothing to unpack.

    An encoding that nobody asked for and nobody knows is left as it is: whoever reads the bytes will notice.
    """
    return Unpacker() if encoding.strip(" \t").lower() in ("gzip", "x-gzip", "deflate") else None
