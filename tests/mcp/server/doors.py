"""Our server, as the official SDK's own client sees it: in this process, over stdio and over HTTP, in both eras."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias, TypeVar

import mcp
import mcp_types as types

from dragoman.mcp import HttpDoor, McpServer

ROOT = Path(__file__).resolve().parents[3]
T = TypeVar("T")
Door: TypeAlias = Callable[..., object]


@asynccontextmanager
async def in_process(server: McpServer, era: str, **more: object) -> AsyncIterator[mcp.Client]:
    async with mcp.Client(server.sdk(), mode=era, **more) as client:  # type: ignore[arg-type]
        yield client


@asynccontextmanager
async def over_http(server: McpServer, era: str, **more: object) -> AsyncIterator[mcp.Client]:
    async with HttpDoor(server) as door, mcp.Client(door.url, mode=era, **more) as client:  # type: ignore[arg-type]
        yield client


MEETINGS = [(in_process, "legacy"), (over_http, "auto")]
"""Each door and each era of the protocol; both eras over HTTP are also in tests/mcp/client."""


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


def talk(
    server: McpServer,
    door: Door,
    era: str,
    body: Callable[[mcp.Client], Awaitable[T]],
    **more: object,
) -> T:
    """Run the body with a client, and close the server."""

    async def main() -> T:
        async with door(server, era, **more) as client:  # type: ignore[attr-defined]
            return await body(client)

    with server:
        return asyncio.run(main())
