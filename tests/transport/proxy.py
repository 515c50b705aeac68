"""A tiny proxy on loopback: it opens tunnels and passes plain requests on, wherever they were meant to go."""

from __future__ import annotations

import asyncio
import base64

from tests.transport.server import Exchange, Server


class Proxy(Server):
    """Every host is `target` to it, so that a test can use names that exist nowhere."""

    def __init__(self, target: Server, *, login: str | None = None) -> None:
        super().__init__({"*": self._serve_one})
        self._target = target
        self._login = login

    async def _serve_one(self, exchange: Exchange) -> None:
        expected = None if self._login is None else f"Basic {base64.b64encode(self._login.encode()).decode()}"
        if exchange.headers.get("proxy-authorization") != expected:
            await exchange.reply(b"", 407, headers={"proxy-authenticate": "Basic"})
            exchange.hang_up()
            return
        if exchange.method == "CONNECT":
            await self._tunnel(exchange)
        else:
            await self._pass_on(exchange)
        exchange.hang_up()

    async def _tunnel(self, exchange: Exchange) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._target.port)
        await exchange.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            await asyncio.gather(_copy(exchange.reader, writer), _copy(reader, exchange.writer))
        finally:
            writer.close()

    async def _pass_on(self, exchange: Exchange) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._target.port)
        path = "/" + exchange.target.split("/", 3)[3]
        lines = [f"{exchange.method} {path} HTTP/1.1", "connection: close", f"x-target: {exchange.target}"]
        lines += [f"{name}: {value}" for name, value in exchange.headers.items() if not name.startswith("proxy-")]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + exchange.body)
        try:
            await _copy(reader, exchange.writer)
        finally:
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
