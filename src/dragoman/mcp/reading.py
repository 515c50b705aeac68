"""How much is read of a server, whatever it sends: lines, bodies, event streams, and what they stand for in memory.

Each kind of thing that is read has its limit here, for programs and HTTP alike. A message is parsed here too if it is
large: the SDK's parser takes up to two hundred times its size.
Must not know: what the messages mean, and who reads them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from typing import Final, cast
from weakref import WeakValueDictionary

import httpx2
import msgspec
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from dragoman._decoding import TooDeepError, convert_to, decode

LARGE: Final = 16 * 1024
"""A message from this size on is parsed here."""
_MOST_LINES: Final = 10_000
"""Of one event."""
_MOST_NAME: Final = 1_024
"""Characters of a message's id and method, and of the fields of a large event beside its data."""
_MOST_ERROR: Final = 1_000
_LEAST_RETRY: Final = 500
"""Milliseconds before a stream is opened again; the SDK waits a second if the server does not say."""


class TooMuchError(httpx2.SSEError, httpx2.StreamError):
    """The server sent more than may be read. The SDK expects one of these kinds in streams, the other in bodies."""


# --- lines -----------------------------------------------------------------------------------------------------------


async def lines_of(pieces: AsyncIterable[bytes], most: int) -> AsyncGenerator[bytes, None]:
    """The lines of a text without their ends, which are LF, CRLF or CR. Raises TooMuchError."""
    line, carried = bytearray(), b""
    async for piece in pieces:
        text = carried + piece
        carried = b"\r" if text.endswith(b"\r") else b""  # an LF may follow
        for part in text.removesuffix(b"\r").splitlines(keepends=True):
            line += part
            if len(line) > most:
                raise TooMuchError(f"it sent a line of more than {most} bytes")
            if part.endswith((b"\n", b"\r")):
                yield _taken(line)
    if line or carried:
        yield _taken(line)


def _taken(line: bytearray) -> bytes:
    """The line, which is held only once."""
    while line and line[-1] in b"\r\n":
        line.pop()
    return _emptied(line)


def _emptied(read: bytearray) -> bytes:
    whole = bytes(read)
    read.clear()
    return whole


# --- what a text takes in memory -------------------------------------------------------------------------------------

_SPARE: Final = 20 * 1024 * 1024
_OF_BRACKET: Final = 100
_OF_SIGN: Final = 48
_OF_QUOTE: Final = 24
"""About how many bytes a value takes: for the bracket that opens it, its comma or colon, and each quote of a text."""
_TEXT: Final = re.compile(rb'"[^"]*"')


def parsed(data: bytes, most: int) -> object:
    """The value of a JSON text. Raises ValueError, or TooMuchError if it would take far more memory than `most`."""
    if _weight(data, 0, len(data)) > 2 * most + _SPARE and _takes_more(data, 2 * most + _SPARE):
        raise TooMuchError("it sent a message of too many values")
    try:
        return decode(data)
    except TooDeepError as error:  # the SDK could not write or check it
        raise TooMuchError(f"it sent a message that cannot be read: {error}") from None


def _takes_more(data: bytes, most: int) -> bool:
    """Whether its values take more, signs inside texts not counted."""
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    total = end = 0
    for text in _TEXT.finditer(plain):
        total += _weight(plain, end, text.start()) + 2 * _OF_QUOTE
        end = text.end()
        if total > most:
            return True
    return total + _weight(plain, end, len(plain)) > most


def _weight(data: bytes, start: int, end: int) -> int:
    def count(*signs: bytes) -> int:
        return sum([data.count(sign, start, end) for sign in signs])

    return _OF_BRACKET * count(b"[", b"{") + _OF_SIGN * count(b",", b":") + _OF_QUOTE * count(b'"')


# --- large messages of responses -------------------------------------------------------------------------------------

_TICKET: Final = "dragoman/ticket"


class _Parcel:
    """The contents of a message, for as long as its response or its event is being read."""

    def __init__(self, contents: dict[str, object]) -> None:
        self.contents: dict[str, object] = contents


class Parcels:
    """The contents of large messages that came over HTTP, on their way around the SDK's parser.

    The SDK reads a short message with a ticket, for which `deliver` gives the contents.
    """

    def __init__(self, most: int) -> None:
        self.most: int = most
        """How many bytes a message may have."""
        self._kept: WeakValueDictionary[str, _Parcel] = WeakValueDictionary()

    def send(self, data: bytes) -> tuple[bytes, _Parcel | None]:
        """What the SDK reads in place of a message, and what must be kept until it has. Raises TooMuchError."""
        if len(data) < LARGE:
            return data, None
        try:
            message = convert_to(parsed(data, self.most), dict[str, object])
        except ValueError as error:
            raise TooMuchError("it sent a message that cannot be read") from error
        short = {name: message[name] for name in ("jsonrpc", "id", "method") if name in message}
        if any(not isinstance(each, int) and len(str(each)) > _MOST_NAME for each in short.values()):
            raise TooMuchError(f"it sent a message with a name of more than {_MOST_NAME} characters")
        for member in ("result", "params"):
            contents = message.get(member)
            if isinstance(contents, dict):
                ticket, parcel = secrets.token_hex(16), _Parcel(cast("dict[str, object]", contents))
                self._kept[ticket] = parcel
                return msgspec.json.encode({**short, member: {_TICKET: ticket}}), parcel
        error = message.get("error")
        if isinstance(error, dict):
            fields = cast("Mapping[str, object]", error)
            text = str(fields.get("message", ""))[:_MOST_ERROR]
            return msgspec.json.encode({**short, "error": {"code": fields.get("code"), "message": text}}), None
        raise TooMuchError("it sent a message that is not MCP")

    def deliver(self, message: JSONRPCMessage) -> None:
        """Put the contents into a message that has a ticket."""
        if isinstance(message, JSONRPCResponse):
            message.result = self._taken(message.result)
        elif isinstance(message, JSONRPCRequest | JSONRPCNotification) and message.params:
            message.params = self._taken(message.params)

    def _taken(self, contents: dict[str, object]) -> dict[str, object]:
        ticket = contents.get(_TICKET)
        parcel = self._kept.pop(ticket, None) if isinstance(ticket, str) else None
        if parcel is None:
            return contents
        contents, parcel.contents = parcel.contents, {}
        return contents


# --- bodies of responses ---------------------------------------------------------------------------------------------


class Start(httpx2.AsyncByteStream):
    """The start of a body that is no message: redirects, errors, and the documents and tokens of a sign-in."""

    _MOST: Final = 64 * 1024

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner: httpx2.AsyncByteStream = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        start = bytearray()  # pieces of one byte, in the SDK's list, would take fifty times as much
        async for piece in self._inner:
            start += piece[: self._MOST - len(start)]
            if len(start) == self._MOST:
                break
        yield bytes(start)

    async def aclose(self) -> None:
        await self._inner.aclose()


class Answer(httpx2.AsyncByteStream):
    """A body that is a message."""

    def __init__(self, inner: httpx2.AsyncByteStream, parcels: Parcels) -> None:
        self._inner: httpx2.AsyncByteStream = inner
        self._parcels: Parcels = parcels
        self._parcel: _Parcel | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body, most = bytearray(), self._parcels.most
        async for piece in self._inner:
            body += piece
            if len(body) > most:
                raise TooMuchError(f"it sent a message of more than {most} bytes")
        shown, self._parcel = self._parcels.send(_emptied(body))
        yield shown

    async def aclose(self) -> None:
        await self._inner.aclose()


class Events(httpx2.AsyncByteStream):
    """An endless stream of events, each of which is a message."""

    def __init__(self, inner: httpx2.AsyncByteStream, parcels: Parcels) -> None:
        self._inner: httpx2.AsyncByteStream = inner
        self._parcels: Parcels = parcels
        self._parcel: _Parcel | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        most = self._parcels.most
        event: list[bytes] = []
        size = 0
        async for line in lines_of(self._inner, most):
            if not line:
                yield self._shown(event)
                event, size = [], 0
            elif not line.startswith(b":"):  # a comment
                event.append(line)
                size += len(line)
                if size > most or len(event) > _MOST_LINES:
                    raise TooMuchError(f"it sent an event of more than {most} bytes or {_MOST_LINES} lines")

    def _shown(self, event: list[bytes]) -> bytes:
        """The event as the SDK reads it."""
        others = [line for line in event if not _is_data(line) and not _is_hasty(line)]
        data = [line.removeprefix(b"data").removeprefix(b":").removeprefix(b" ") for line in event if _is_data(line)]
        event.clear()
        if sum(map(len, others)) > _MOST_NAME:
            raise TooMuchError(f"it sent an event whose other fields have more than {_MOST_NAME} bytes")
        if sum(map(len, data)) >= LARGE:
            text = b"\n".join(data)
            data.clear()
            shown, self._parcel = self._parcels.send(text)
            data.append(shown)
        return b"".join([each + b"\n" for each in (*others, *[b"data: " + line for line in data], b"")])

    async def aclose(self) -> None:
        await self._inner.aclose()


def _is_data(line: bytes) -> bool:
    return line.startswith(b"data:") or line == b"data"


def _is_hasty(line: bytes) -> bool:
    """Whether it asks for the stream to be opened again at once."""
    name, _, value = line.partition(b":")
    return name == b"retry" and value.strip().isdigit() and int(value[:20]) < _LEAST_RETRY
