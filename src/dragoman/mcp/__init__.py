"""MCP, the Model Context Protocol: our tools for other programs, and other programs' tools for ours.

about.py       what MCP says of a tool beyond our own definition
progress.py    how a tool tells how far it is
sdk.py         the official SDK, or an error that names the extra
content.py     results of tools, there and back
settings.py    the servers of a program as data      entries.py   … read from `mcpServers` JSON
server/        a set of tools served, over stdio and streamable HTTP
client/        MCP servers' tools as sets of tools

A name's module is loaded when the name is first used: neither the SDK nor an event loop is loaded before.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .about import ToolAbout
    from .client.pins import Pins, ToolChange
    from .client.servers import McpServers, connect
    from .client.tools import ToolProblem
    from .progress import report_progress
    from .server.app import McpServer, current_request
    from .server.http import HttpDoor, aserve_http, serve_http
    from .server.offers import Readable, offers_of
    from .server.stdio import aserve_stdio, serve_stdio
    from .settings import ClientLimits, HttpServer, LocalServer, ServerOptions, StdioServer

__all__ = [
    "ClientLimits",
    "HttpDoor",
    "HttpServer",
    "LocalServer",
    "McpServer",
    "McpServers",
    "Pins",
    "Readable",
    "ServerOptions",
    "StdioServer",
    "ToolAbout",
    "ToolChange",
    "ToolProblem",
    "aserve_http",
    "aserve_stdio",
    "connect",
    "current_request",
    "offers_of",
    "report_progress",
    "serve_http",
    "serve_stdio",
]

_HOMES = {
    "ClientLimits": "settings",
    "HttpDoor": "server.http",
    "HttpServer": "settings",
    "LocalServer": "settings",
    "McpServer": "server.app",
    "McpServers": "client.servers",
    "Pins": "client.pins",
    "Readable": "server.offers",
    "ServerOptions": "settings",
    "StdioServer": "settings",
    "ToolAbout": "about",
    "ToolChange": "client.pins",
    "ToolProblem": "client.tools",
    "aserve_http": "server.http",
    "aserve_stdio": "server.stdio",
    "connect": "client.servers",
    "current_request": "server.app",
    "offers_of": "server.offers",
    "report_progress": "progress",
    "serve_http": "server.http",
    "serve_stdio": "server.stdio",
}
_NEED_SDK = frozenset({"client.servers", "client.tools", "server.app", "server.http", "server.offers", "server.stdio"})


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=import_module(__name__))
    if home in _NEED_SDK:
        from .sdk import require_sdk

        require_sdk()
    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value  # the next use finds it without coming here
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
