"""MCP, the Model Context Protocol: our tools for other programs, and other programs' tools for ours.

    server.py      a set of tools served, through stdio.py and http.py; catalogue.py says what there is
    client.py      MCP servers' tools as a set; connection.py is one server, child.py and web.py the ways to it
    remote_tools.py  a server's list as tools; content.py results, there and back; settings.py what users set

A name's module is loaded when the name is first used: neither the SDK nor an event loop is loaded before.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dragoman.errors import ConfigurationError

if TYPE_CHECKING:
    from .catalogue import Readable, offers_of
    from .client import McpServers, connect
    from .http import HttpDoor, aserve_http, serve_http
    from .progress import report_progress
    from .remote_tools import ToolProblem
    from .server import McpServer, current_request
    from .settings import (
        ClientLimits,
        HttpServer,
        LocalServer,
        Pins,
        ServerOptions,
        StdioServer,
        ToolAbout,
        ToolChange,
    )
    from .stdio import aserve_stdio, serve_stdio

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
    "HttpDoor": "http",
    "McpServer": "server",
    "McpServers": "client",
    "Readable": "catalogue",
    "ToolProblem": "remote_tools",
    "aserve_http": "http",
    "aserve_stdio": "stdio",
    "connect": "client",
    "current_request": "server",
    "offers_of": "catalogue",
    "report_progress": "progress",
    "serve_http": "http",
    "serve_stdio": "stdio",
}
"""Where a name is; those that are not here are settings."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=import_module(__name__))
    home = _HOMES.get(name, "settings")
    if home not in ("progress", "settings"):
        _require_sdk()
    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value  # the next use finds it without coming here
    return value


def _require_sdk() -> None:
    # Version 2 is told by its types, which are a package of their own; version 1 has another interface altogether.
    if find_spec("mcp") is None or find_spec("mcp_types") is None:
        found = "another version of the MCP SDK is" if find_spec("mcp") else "the MCP SDK is not"
        message = f"MCP needs the official SDK, version 2, and {found} installed."
        raise ConfigurationError(message, hint="Install it with: pip install 'dragoman[mcp]'.")


def __dir__() -> list[str]:
    return sorted(__all__)
