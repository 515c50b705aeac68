"""HTTP/1.1 without sockets: bytes out for a request, a reply from bytes in any pieces.

Owns: the head of a request; reading heads, lengths, chunks and ends; whether a connection may be used again.
Must not know: where bytes come from and how long that takes.

Strict where it matters for safety (lengths that contradict each other, odd numbers), lenient where servers differ
(bare line feeds, interim replies, a missing reason).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from .bases import lower_case
from .protocol import HttpRequest

__all__ = ["MalformedReplyError", "ReplyReader", "request_head"]

_MAX_HEAD: Final = 512 * 1024
_MAX_LINE: Final = 4 * 1024
"""Of a line between chunks."""

_STATUS_LINE: Final = re.compile(r"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: [^\r\n]*)?\r?").fullmatch
_HEADER: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+:[^\r\n\0]*\r?"
_HEADERS: Final = re.compile(rf"(?:{_HEADER}\n)*{_HEADER}").fullmatch
_ONE_HEADER: Final = re.compile(_HEADER).fullmatch
_LENGTH: Final = re.compile(r"[0-9]{1,18}").fullmatch
_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r?\n").match
_END_OF_HEAD: Final = re.compile(rb"\r?\n\r?\n").search
_PROTOCOL: Final = b"HTTP/1."
_FRAMING: Final = frozenset({"connection", "content-length", "transfer-encoding"})
_USUALLY_EMPTY: Final = frozenset({"DELETE", "GET", "HEAD"})
_WITHOUT_BODY: Final = frozenset({204, 304})


class MalformedReplyError(Exception):
    """The bytes are not a reply. The text is ours and says what is wrong."""


def request_head(request: HttpRequest, *, target: str, usual: dict[str, str]) -> bytes:
    """The head of a request. The `usual` headers give way to the caller's."""
    headers = usual.copy()
    for name, value in request.headers.items():
        key = name.lower()
        # Framing is not the caller's business: two opinions about a length are how requests are smuggled.
        if key not in _FRAMING:
            headers[key] = value
    if request.body or request.method not in _USUALLY_EMPTY:
        headers["content-length"] = str(len(request.body))
    lines = "\r\n".join([f"{name}: {value}" for name, value in headers.items()])
    return f"{request.method} {target} HTTP/1.1\r\n{lines}\r\n\r\n".encode("ascii")


def _unfolded(lines: list[str]) -> list[str]:
    """Headers of one line each. A line that begins with a blank goes on with the one before, as was once allowed."""
    headers: list[str] = []
    for line in lines:
        if _ONE_HEADER(line):
            headers.append(line)
        elif line[:1] in (" ", "\t") and headers and "\0" not in line:
            headers[-1] = f"{headers[-1].strip()} {line.strip()}"
        else:
            message = "one of its headers is not well-formed"
            raise MalformedReplyError(message)
    return headers


class ReplyReader:
    """Reads one reply. Feed it until `head_complete`, then take what `feed` gives as pieces of the body."""

    __slots__ = (
        "_body",
        "_buffer",
        "_left",
        "_method",
        "_unread",
        "complete",
        "head_complete",
        "headers",
        "reusable",
        "status",
        "untouched",
    )

    def __init__(self, method: str) -> None:
        self._method: str = method
        self._unread: bytearray = bytearray()
        """Of the head."""
        self._buffer: bytes = b""
        """Between chunks: a line that is not complete."""
        self._body: Callable[[bytes], bytes] = self._until_the_end
        self._left: int = 0
        self.untouched: bool = True
        """Whether not a single byte has come yet."""
        self.head_complete: bool = False
        self.status: int = 0
        self.headers: dict[str, str] = {}
        self.complete: bool = False
        """Whether the body has come to its end."""
        self.reusable: bool = True
        """Whether the connection may serve another request once the reply is complete."""

    def feed(self, data: bytes) -> bytes:
        """The part of the body in these bytes; empty while the head is not complete."""
        self.untouched = False
        if self.head_complete:
            return self._body(data)
        return self._head(data)

    def end(self) -> None:
        """The connection has ended. EOFError if the reply is not complete."""
        self.reusable = False
        if self.complete:
            return
        # A reply with neither a length nor chunks ends with its connection.
        if not self.head_complete or self._body != self._until_the_end:
            raise EOFError
        self.complete = True

    # --- the head ----------------------------------------------------------------------------------------------------

    def _head(self, data: bytes) -> bytes:
        head = self._unread
        # Only what is new is searched: a head that comes byte by byte must not cost the square of its length.
        start = max(0, len(head) - 3)
        head += data
        while True:
            end = _END_OF_HEAD(head, start)
            if end is None:
                self._check_beginning()
                return b""
            version = self._parse(bytes(head[: end.start()]))
            del head[: end.end()]
            if self.status >= 200:
                break
            if self.status == 101:  # nobody asked to speak something else
                message = "it wants to change the protocol"
                raise MalformedReplyError(message)
            start = 0  # 100, 102, 103: only the announcement of a reply
        self._frame(version)
        self.head_complete = True
        rest = bytes(head)
        head.clear()
        return self._body(rest) if rest and not self.complete else self._surplus(rest)

    def _check_beginning(self) -> None:
        """Do not wait for the end of something that cannot become a head."""
        beginning = bytes(self._unread[: len(_PROTOCOL)])
        if not _PROTOCOL.startswith(beginning):
            message = "it does not begin like one"
            raise MalformedReplyError(message)
        if len(self._unread) > _MAX_HEAD:
            message = "the head of the reply is too large"
            raise MalformedReplyError(message)

    def _parse(self, head: bytes) -> int:
        first, _, block = head.decode("latin-1").partition("\n")
        found = _STATUS_LINE(first)
        if found is None:
            message = "its first line is not that of one"
            raise MalformedReplyError(message)
        self.status = int(found[2])
        lines = block.split("\n") if block else []
        if lines and _HEADERS(block) is None:
            lines = _unfolded(lines)
        self.headers = lower_case([(name, value.strip()) for name, _, value in [line.partition(":") for line in lines]])
        return int(found[1])

    def _frame(self, version: int) -> None:
        """How the end of the body will be known."""
        connection = [part.strip() for part in self.headers.get("connection", "").lower().split(",")]
        self.reusable = "close" not in connection and (version >= 1 or "keep-alive" in connection)
        codings = self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length")
        if self._method == "HEAD" or self.status in _WITHOUT_BODY:
            self.complete = True
        elif codings:
            if codings.strip() != "chunked":
                message = "its transfer coding is not known"
                raise MalformedReplyError(message)
            # With a length besides, somebody on the way may have another opinion about the end.
            self.reusable = self.reusable and length is None
            self._body = self._chunks
        elif length is not None:
            lengths = {part.strip() for part in length.split(",")}
            if len(lengths) != 1 or not _LENGTH(next(iter(lengths))):
                message = "its length is not a number"
                raise MalformedReplyError(message)
            self._left = int(lengths.pop())
            self._body = self._counted
            self.complete = self._left == 0
        else:
            self.reusable = False

    # --- the body ----------------------------------------------------------------------------------------------------

    def _surplus(self, data: bytes) -> bytes:
        """Bytes after the end belong to nothing that we asked for."""
        if data:
            self.reusable = False
        return b""

    def _until_the_end(self, data: bytes) -> bytes:
        return data

    def _counted(self, data: bytes) -> bytes:
        if len(data) < self._left:
            self._left -= len(data)
            return data
        piece = data[: self._left]
        self._surplus(data[self._left :])
        self._left = 0
        self.complete = True
        return piece

    def _chunks(self, data: bytes) -> bytes:
        """`_left` is what is missing of the current chunk with its line end; 0 between chunks, -1 behind the last."""
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        pieces: list[bytes] = []
        position, size = 0, len(data)
        left = self._left
        while position < size:
            if left > 2:
                piece = data[position : position + left - 2]
                pieces.append(piece)
                position += len(piece)
                left -= len(piece)
            elif left > 0:
                ending = data[position : position + 2]
                if ending == b"\r":
                    break
                if ending != b"\r\n" and ending[:1] != b"\n":
                    message = "a chunk of the body is longer than it says"
                    raise MalformedReplyError(message)
                position += 2 if ending == b"\r\n" else 1
                left = 0
            elif left < 0:
                self._left = left
                self._trailers(data[position:])
                return b"".join(pieces)
            else:
                line = _CHUNK_LINE(data, position)
                if line is None:
                    self._check_line(data[position:])
                    break
                position = line.end()
                length = int(line[1], 16)
                end = position + length
                if length and data[end : end + 2] == b"\r\n":  # all of it is here, as nearly always
                    pieces.append(data[position:end])
                    position = end + 2
                else:
                    left = length + 2 if length else -1
        self._left = left
        self._buffer = data[position:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _check_line(self, data: bytes) -> None:
        """Raise unless these bytes can still become the line before a chunk."""
        if b"\n" in data or len(data) > _MAX_LINE or not data[:1].isalnum():
            message = "the length of a chunk is not a number"
            raise MalformedReplyError(message)

    def _trailers(self, data: bytes) -> None:
        """Headers behind the last chunk, up to an empty line; nobody needs them."""
        while True:
            line, newline, rest = data.partition(b"\n")
            if not newline:
                if len(data) > _MAX_LINE:
                    message = "what follows the last chunk does not end"
                    raise MalformedReplyError(message)
                self._buffer = data
                return
            data = rest
            if line in (b"", b"\r"):
                self.complete = True
                self._surplus(data)
                return
