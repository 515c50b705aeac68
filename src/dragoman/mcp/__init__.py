"""MCP, the Model Context Protocol: our tools for other programs, and other programs' tools for ours.

    server.py        a set of tools served, through doors.py; catalogue.py says what there is, asking.py asks back
    client.py        MCP servers' tools as a set; connection.py is one server, transports.py the ways to it
    authorization.py signing in at a server; remote_tools.py its list as tools; content.py results, there and back
    settings.py      what users set; calls.py what a tool may say to the program that called it

A name's module is loaded when the name is first used: neither the SDK nor an event loop is loaded before.
"""

from dragoman._door import open_door
from dragoman.errors import ConfigurationError

_load, __dir__ = open_door(__name__, __file__)


def __getattr__(name: str) -> object:
    try:
        return _load(name)
    except ImportError as error:
        if not (error.name or "").startswith("mcp"):
            raise
        # Version 1 has another interface altogether, and none of the packages that its successor consists of.
        message = f"MCP needs the official SDK, version 2, and that is not installed ({error})."
        raise ConfigurationError(message, hint="Install it with: pip install 'dragoman[mcp]'.") from None
