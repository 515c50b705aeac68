"""A server made with the official SDK alone: `python -m tests.mcp.client.official` serves it over stdio."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from mcp.server.mcpserver import Context, Image, MCPServer
from pydantic import BaseModel

PIXEL = b"\x89PNG\r\n\x1a\n"


class Sum(BaseModel):
    total: int


def official() -> MCPServer[Any]:
    """A new server."""
    server: MCPServer[Any] = MCPServer("official", instructions="Add numbers.")

    @server.tool()
    def add(a: int, b: int) -> Sum:
        """Add two numbers."""
        return Sum(total=a + b)

    @server.tool()
    def picture() -> Image:
        """Give a picture."""
        return Image(data=PIXEL, format="png")

    @server.tool()
    def fail() -> str:
        """Fail."""
        raise ValueError("no luck")

    @server.tool()
    async def steps(context: Context[Any, Any]) -> str:
        """Tell how far it is."""
        for done in (1, 2, 3):
            await context.report_progress(done, 3)
        return "done"

    @server.tool()
    async def wait() -> str:
        """Take long."""
        await asyncio.sleep(3600)
        return "never"

    @server.tool()
    def environment() -> list[str]:
        """Say which variables it has."""
        return sorted(os.environ)

    @server.tool()
    async def grow(context: Context[Any, Any]) -> str:
        """Add a tool."""
        server.add_tool(lambda: "new", name="grown", description="Was added.")
        await context.session.send_tool_list_changed()
        await context.notify_tools_changed()
        return "grown"

    return server


if __name__ == "__main__":
    official().run("stdio")
