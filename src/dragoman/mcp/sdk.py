"""The official SDK, or an error that names the extra.

Owns: the one question whether it is there.
Must not know: what it is used for.
"""

from __future__ import annotations

from importlib.util import find_spec

from dragoman.errors import ConfigurationError

__all__ = ["require_sdk"]


def require_sdk() -> None:
    """Raise ConfigurationError unless version 2 of the SDK is installed."""
    # Version 2 is told by its types, which are a package of their own; version 1 has another interface altogether.
    if find_spec("mcp") is None or find_spec("mcp_types") is None:
        found = "another version of the MCP SDK is" if find_spec("mcp") else "the MCP SDK is not"
        message = f"MCP needs the official SDK, version 2, and {found} installed."
        raise ConfigurationError(message, hint="Install it with: pip install 'dragoman[mcp]'.")
