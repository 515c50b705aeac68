"""The least that a client can do: a raw socket, or a protocol of asyncio, and msgspec. Written for this benchmark only.

It knows nothing of errors, retries, limits of time, unknown fields, proxies or replies that come in another shape.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from bench.contenders.common import (
    ARGUMENTS,
    KEY,
    PROMPT,
    TOOL_PROMPT,
    Delivered,
    Said,
    nothing,
    said,
    schemas,
    weather,
)
from bench.contenders.floor_dialects import DIALECTS, WEATHER, Message

_END = b"0\r\n\r\n"


class _City(msgspec.Struct):
    city: str


class _Nothing(msgspec.Struct):
    a: int
    b: str
    c: float


_city = msgspec.json.Decoder(_City)
_nothing = msgspec.json.Decoder(_Nothing)


class _Base:
    def __init__(self, root: str, dialect: str) -> None:
        self._address = urlsplit(root)
        self._dialect = DIALECTS[dialect]
        self._hello = self._dialect.messages([Said("user", PROMPT)])
        self._ask = self._dialect.messages([Said("user", TOOL_PROMPT)])
        self._tools = [self._dialect.tool(WEATHER)]

    @property
    def _tls(self) -> ssl.SSLContext | None:
        if self._address.scheme == "http":
            return None
        return ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])

    def _request(self, messages: list[Any], *, stream: bool = False, tools: Sequence[Any] = ()) -> bytes:
        body = self._dialect.body(messages, stream, list(tools))
        path = self._dialect.stream_path if stream else self._dialect.path
        head = (
            f"POST {self._address.path}{path} HTTP/1.1\r\nhost: {self._address.netloc}\r\n"
            f"{self._dialect.key_header} {KEY}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def dispatch(self) -> Callable[[], object]:
        def work() -> str:
            given = _nothing.decode(ARGUMENTS)
            return nothing(given.a, given.b, given.c)

        return work


def _delivered(texts: list[str | None]) -> Delivered:
    return Delivered(len(texts), sum([len(text) for text in texts if text]))


class Plain(_Base):
    def __init__(self, root: str, dialect: str) -> None:
        super().__init__(root, dialect)
        plain = socket.create_connection((self._address.hostname, self._address.port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = self._tls
        self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=self._address.hostname)

    def _exchange(self, request: bytes) -> bytes:
        self._socket.sendall(request)
        data = self._socket.recv(65536)
        while b"\r\n\r\n" not in data:
            data += self._socket.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.rpartition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(body) < length:
            body += self._socket.recv(65536)
        return body

    def turn(self) -> str | None:
        return self._dialect.text(self._exchange(self._request(self._hello)))

    def stream(self) -> Delivered:
        self._socket.sendall(self._request(self._hello, stream=True))
        texts: list[str | None] = []
        events = self._dialect.events
        buffer, ended = b"", False
        while not ended:
            buffer += self._socket.recv(65536)
            ended = buffer.endswith(_END)
            if not buffer.startswith(b"HTTP") or b"\r\n\r\n" in buffer:
                buffer = events(buffer.partition(b"\r\n\r\n")[2] if buffer.startswith(b"HTTP") else buffer, texts)
        return _delivered(texts)

    def tool_loop(self) -> str | None:
        call = self._dialect.call(self._exchange(self._request(self._ask, tools=self._tools)))
        result = weather(_city.decode(call.arguments).city)
        messages = [*self._ask, *self._dialect.result(call, result)]
        return self._dialect.text(self._exchange(self._request(messages, tools=self._tools)))

    def history(self, messages: int) -> Callable[[], str | None]:
        before = said(messages)
        prepared = self._dialect.messages(before)
        last = self._dialect.messages([Said("user", PROMPT)])[-1]
        return lambda: self._dialect.text(self._exchange(self._request([*prepared, last])))

    def loaded(self, messages: int) -> Callable[[], str | None]:
        text = msgspec.json.encode(self._dialect.messages(said(messages)))
        last = self._dialect.messages([Said("user", PROMPT)])[-1]

        def turn() -> str | None:
            before = msgspec.json.decode(text, type=list[Message])
            return self._dialect.text(self._exchange(self._request([*before, last])))

        return turn

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], str | None]:
        tools = [self._dialect.tool(schema) for schema in schemas(functions)]
        return lambda: self._dialect.text(self._exchange(self._request(self._hello, tools=tools)))

    def close(self) -> None:
        self._socket.close()


class _Connection(asyncio.Protocol):
    """One connection; `reply` is resolved with the body of a whole reply, or with the texts of a stream."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(None)

    def begin(self, request: bytes, events: Callable[[bytes, list[str | None]], bytes] | None) -> asyncio.Future[Any]:
        self._events = events
        self._buffer = b""
        self._texts: list[str | None] = []
        self._begun = False
        self._reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._reply

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._events is None:
            head, separator, body = self._buffer.partition(b"\r\n\r\n")
            if separator and len(body) >= int(head.rpartition(b"content-length: ")[2].partition(b"\r\n")[0]):
                self._reply.set_result(body)
            return
        ended = self._buffer.endswith(_END)
        if not self._begun:
            _, separator, rest = self._buffer.partition(b"\r\n\r\n")
            if not separator:
                return
            self._begun, self._buffer = True, rest
        self._buffer = self._events(self._buffer, self._texts)
        if ended:
            self._reply.set_result(self._texts)


class OnLoop(_Base):
    def __init__(self, root: str, dialect: str) -> None:
        super().__init__(root, dialect)
        self._idle: list[_Connection] = []
        self._context = self._tls

    async def _exchange(self, request: bytes, events: Callable[[bytes, list[str | None]], bytes] | None = None) -> Any:
        if self._idle:
            connection = self._idle.pop()
        else:
            _, connection = await asyncio.get_running_loop().create_connection(
                _Connection, self._address.hostname, self._address.port, ssl=self._context
            )
        reply = await connection.begin(request, events)
        self._idle.append(connection)
        return reply

    async def turn(self) -> str | None:
        return self._dialect.text(await self._exchange(self._request(self._hello)))

    async def stream(self) -> Delivered:
        return _delivered(await self._exchange(self._request(self._hello, stream=True), self._dialect.events))

    async def tool_loop(self) -> str | None:
        call = self._dialect.call(await self._exchange(self._request(self._ask, tools=self._tools)))
        result = weather(_city.decode(call.arguments).city)
        messages = [*self._ask, *self._dialect.result(call, result)]
        return self._dialect.text(await self._exchange(self._request(messages, tools=self._tools)))

    def history(self, messages: int) -> Callable[[], Awaitable[str | None]]:
        prepared = self._dialect.messages(said(messages))
        last = self._dialect.messages([Said("user", PROMPT)])[-1]

        async def turn() -> str | None:
            return self._dialect.text(await self._exchange(self._request([*prepared, last])))

        return turn

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], Awaitable[str | None]]:
        tools = [self._dialect.tool(schema) for schema in schemas(functions)]

        async def turn() -> str | None:
            return self._dialect.text(await self._exchange(self._request(self._hello, tools=tools)))

        return turn

    async def aclose(self) -> None:
        for connection in self._idle:
            connection.transport.close()
            await connection.ended
