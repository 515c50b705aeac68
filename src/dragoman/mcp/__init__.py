"""MCP, the Model Context Protocol: our tools for other programs, and other programs' tools for ours.

    server.py        serves tools, through doors.py; catalogue.py is what it lists, asking.py its questions to clients
    client.py        the tools of MCP servers; connection.py is one server, transports.py the process or HTTP to it
    authorization.py OAuth; remote_tools.py a server's list as our tools; content.py results in both directions
    settings.py      what users set; calls.py what a tool can do during a request

A module is imported when one of its names is first used: the SDK and asyncio are not loaded before.
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
        # Version 1 of the SDK has another interface and other packages.
        message = f"MCP needs version 2 of the official SDK, which is not installed ({error})."
        raise ConfigurationError(message, hint="Install it with: pip install 'dragoman[mcp]'.") from None
