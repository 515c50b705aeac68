"""HTTP/1.1 without sockets: bytes out for a request, a reply from bytes in any pieces.

Owns: the head of a request; reading heads, lengths, chunks and ends; whether a connection may be used again.
Must not know: where bytes come from and how long that takes.

Strict where it matters for safety (lengths that contradict each other, odd numbers), lenient where servers differ
(bare line feeds, interim replies, a missing reason).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from .bases import lower_case
from .protocol import HttpRequest

__all__ = ["MalformedReplyError", "ReplyReader", "end_of_head", "request_head", "start_of_head"]

_MAX_HEAD: Final = 512 * 1024
_MAX_LINE: Final = 4 * 1024
"""Of a line between chunks."""

_STATUS_LINE: Final = re.compile(r"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: [^\r\n]*)?\r?").fullmatch
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
_LONGEST_LENGTH: Final = 18
"""In digits."""
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
    return start_of_head(request, target=target, usual=usual) + end_of_head(request)


def start_of_head(request: HttpRequest, *, target: str, usual: dict[str, str]) -> bytes:
    """What all requests to one place with the same headers begin with."""
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


# --- what a head says ------------------------------------------------------------------------------------------------

# A server says the same first line and the same names in every reply: each is looked at once.
_statuses: Final[dict[str, tuple[int, int]]] = {}
_names: Final[dict[str, str]] = {}
_MOST: Final = 1024


def _status(line: str) -> tuple[int, int]:
    """The minor version and the status that the first line says."""
    found = _STATUS_LINE(line)
    if found is None:
        message = "its first line is not that of one"
        raise MalformedReplyError(message)
    if len(_statuses) >= _MOST:
        _statuses.clear()
    status = _statuses[line] = (int(found[1]), int(found[2]))
    return status


def _lower(name: str) -> str:
    """The name of a header in lower case; empty if it cannot be one."""
    if _NAME(name) is None:
        return ""
    if len(_names) >= _MOST:
        _names.clear()
    lower = _names[name] = name.lower()
    return lower


def _not_well_formed() -> MalformedReplyError:
    return MalformedReplyError("one of its headers is not well-formed")


def _careful_headers(lines: list[str]) -> dict[str, str]:
    """Headers that may come several times. A line that begins with a blank goes on with the one before."""
    pairs: list[tuple[str, str]] = []
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and _lower(name):
            pairs.append((name, value.strip()))
        elif line[:1] in (" ", "\t") and pairs:  # as was once allowed
            name, value = pairs[-1]
            pairs[-1] = (name, f"{value} {line.strip()}")
        else:
            raise _not_well_formed()
    return lower_case(pairs)


def _length(text: str) -> int:
    """The number of a header `content-length`, which may stand there several times."""
    if "," in text:
        text, *others = [part.strip() for part in text.split(",")]
        text = text if all(other == text for other in others) else ""
    if len(text) > _LONGEST_LENGTH or not text.isdecimal() or not text.isascii():
        message = "its length is not a number"
        raise MalformedReplyError(message)
    return int(text)


def _until_the_end(_reader: ReplyReader, data: bytes) -> bytes:
    return data


# A struct, because one is made for every reply, and a struct is made at a third of the cost.
class ReplyReader(Struct, eq=False):
    """Reads one reply. Feed it until `head_complete`, then take what `feed` gives as pieces of the body."""

    method: str
    """Of the request."""
    head_complete: bool = False
    status: int = 0
    headers: Mapping[str, str] = {}
    complete: bool = False
    """Whether the body has come to its end."""
    reusable: bool = True
    """Whether the connection may serve another request, as far as head and framing say."""
    # A function, not a method of this object: that would refer back to it, and only the collector could free both.
    _body: Callable[[ReplyReader, bytes], bytes] = _until_the_end
    _left: int = 0
    _buffer: bytes = b""
    """Between chunks: a line that is not complete."""
    _unread: bytearray | None = None
    """Of a head that comes in several pieces."""

    @property
    def untouched(self) -> bool:
        """Whether not a single byte has come yet."""
        return not self.head_complete and self._unread is None

    def may_go_back(self, *, unread: int, unsent: int = 0) -> bool:
        """The one rule of every pool: whether the connection may serve another request.

        Only when whoever used it has consumed the reply to its end and nothing is left: no bytes of the request that
        are still to be sent, none of the body that nobody took, none behind it. In every other case it must be closed,
        or what is left would be taken for somebody else's reply.
        """
        return self.complete and self.reusable and not unread and not unsent

    def feed(self, data: bytes) -> bytes:
        """The part of the body in these bytes; empty while the head is not complete."""
        if self.complete:
            return self._surplus(data)
        if self.head_complete:
            return self._body(self, data)
        if self._unread is None and (end := data.find(b"\r\n\r\n")) > 0:
            # All of it is here, as nearly always, with the ends of lines that it should have.
            text = data[:end].decode("latin-1")
            lines = text.split("\r\n")
            if text.count("\r") == text.count("\n") == len(lines) - 1 and "\0" not in text:
                version = self._parse(lines)
                if self.status >= 200:
                    return self._begin_body(version, data[end + 4 :])
        return self._careful_head(data)

    def end(self) -> None:
        """The connection has ended. EOFError if the reply is not complete."""
        self.reusable = False
        if self.complete:
            return
        # A reply with neither a length nor chunks ends with its connection.
        if not self.head_complete or self._body is not _until_the_end:
            raise EOFError
        self.complete = True

    # --- the head ----------------------------------------------------------------------------------------------------

    def _careful_head(self, data: bytes) -> bytes:
        """A head in pieces, or with bare line feeds, or behind announcements of it."""
        unread = self._unread = self._unread or bytearray()
        # Only what is new is searched: a head that comes byte by byte must not cost the square of its length.
        start = max(0, len(unread) - 3)
        unread += data
        while True:
            end = _END_OF_HEAD(unread, start)
            if end is None:
                self._check_beginning(unread)
                return b""
            text = unread[: end.start()].decode("latin-1")
            lines = [line.removesuffix("\r") for line in text.split("\n")]
            if "\0" in text or "\r" in "".join(lines):
                raise _not_well_formed()
            version = self._parse(lines)
            del unread[: end.end()]
            if self.status >= 200:
                break
            if self.status == 101:  # nobody asked to speak something else
                message = "it wants to change the protocol"
                raise MalformedReplyError(message)
            start = 0  # 100, 102, 103: only the announcement of a reply
        return self._begin_body(version, bytes(unread))

    def _check_beginning(self, unread: bytearray) -> None:
        """Do not wait for the end of something that cannot become a head."""
        if not _PROTOCOL.startswith(bytes(unread[: len(_PROTOCOL)])):
            message = "it does not begin like one"
            raise MalformedReplyError(message)
        if len(unread) > _MAX_HEAD:
            message = "the head of the reply is too large"
            raise MalformedReplyError(message)

    def _parse(self, lines: list[str]) -> int:
        """Take the status and the headers; gives the version."""
        first = lines[0]
        version, self.status = _statuses.get(first) or _status(first)
        del lines[0]
        headers: dict[str, str] = {}
        known = _names.get
        for line in lines:
            name, colon, value = line.partition(":")
            lower = known(name) or _lower(name)
            if not colon or not lower or lower in headers:
                headers = _careful_headers(lines)
                break
            headers[lower] = value.strip()
        self.headers = headers
        return version

    def _begin_body(self, version: int, rest: bytes) -> bytes:
        headers = self.headers
        if (
            headers.get("content-length") == str(len(rest))
            and self.status == 200
            and version == 1
            and "transfer-encoding" not in headers
            and "connection" not in headers
            and self.method != "HEAD"
        ):  # all of it is here, and nothing is unusual; whatever else `_frame` could find out is so already
            self.head_complete = self.complete = True
            return rest
        self._frame(version)
        self.head_complete = True
        self._unread = None
        return self._body(self, rest) if rest and not self.complete else self._surplus(rest)

    def _frame(self, version: int) -> None:
        """How the end of the body will be known."""
        headers = self.headers
        self.reusable = version >= 1
        if "connection" in headers:
            connection = [part.strip() for part in headers["connection"].lower().split(",")]
            self.reusable = "close" not in connection and (version >= 1 or "keep-alive" in connection)
        length = headers.get("content-length")
        if self.method == "HEAD" or self.status in _WITHOUT_BODY:
            self.complete = True
        elif headers.get("transfer-encoding"):
            if headers["transfer-encoding"].lower().strip() != "chunked":
                message = "its transfer coding is not known"
                raise MalformedReplyError(message)
            # With a length besides, somebody on the way may have another opinion about the end.
            self.reusable = self.reusable and length is None
            self._body = ReplyReader._chunks
        elif length is not None:
            self._left = _length(length)
            self._body = ReplyReader._counted
            self.complete = self._left == 0
        else:
            self.reusable = False

    # --- the body ----------------------------------------------------------------------------------------------------

    def _surplus(self, data: bytes) -> bytes:
        """Bytes after the end belong to nothing that we asked for."""
        if data:
            self.reusable = False
        return b""

    def _counted(self, data: bytes) -> bytes:
        left = self._left - len(data)
        if left > 0:
            self._left = left
            return data
        self._left = 0
        self.complete = True
        if left == 0:
            return data
        self._surplus(data[left:])
        return data[:left]

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
