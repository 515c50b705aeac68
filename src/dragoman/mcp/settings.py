"""The MCP servers of a program, as data.

Owns: what a server is (a command, an address, or one in this process), how its tools are used, and what it may send.
Must not know: the SDK, files, and the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from dragoman.engines.keys import Secret
from dragoman.errors import ConfigurationError
from dragoman.transport.addresses import validate_base_url

__all__ = ["AnyServer", "ClientLimits", "HttpServer", "LocalServer", "ServerOptions", "StdioServer"]

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*").fullmatch


class ClientLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a server may send. What goes beyond is cut, left out or refused, and reported."""

    max_tools: int = 500
    max_description_chars: int = 8_192
    max_schema_bytes: int = 65_536
    """For the schema of parameters and that of results, each."""
    max_message_bytes: int = 16 * 1024 * 1024
    max_result_bytes: int = 8 * 1024 * 1024
    max_garbage: int = 1_000
    """How many lines or messages that are not MCP are passed over before the connection is given up."""
    notification_burst: int = 1_000
    """How many notifications are taken at once …"""
    notifications_per_second: float = 100.0
    """… and how many from then on. What comes faster is dropped."""
    max_dropped: int = 100_000
    """How many are dropped before the connection is given up."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: float = getattr(self, name)
            if not value > 0:
                message = f"{name} is {value}."
                raise ConfigurationError(message, hint="Give it a value above 0.")


class ServerOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a server's tools are used."""

    prefix: str | None = None
    """Put before the name of each tool; None stands for the server's name and an underscore."""
    include: tuple[str, ...] | None = None
    """Which tools are taken, by the server's own names; `*` and `?` stand for any characters. None takes all."""
    exclude: tuple[str, ...] = ()
    """Which of them are left out all the same."""
    connect_timeout: float = 30.0
    """Seconds for starting, shaking hands and the first list of tools."""
    call_timeout: float = 60.0
    """Seconds for one call, waiting for a restart included."""
    max_restarts: int = 3
    """How often a server that has died is started again before it is given up."""
    restart_backoff: float = 0.5
    """Seconds before the first restart, doubled for each further one."""
    stable_seconds: float = 60.0
    """After so long without dying its restarts are forgotten."""
    trust: Literal["follow", "pinned"] = "follow"
    """`follow` takes over what the server changes. `pinned` refuses a tool that has changed since it was approved,
    and does not offer new ones, until somebody approves them."""
    trust_annotations: bool = False
    """Whether the server is believed when it says that a tool only reads. Permissions may depend on it."""
    protocol: Literal["auto", "legacy"] = "auto"
    """`legacy` shakes hands as up to 2025-11-25 without asking for more first, for servers that hang when asked."""
    limits: ClientLimits = ClientLimits()

    def __post_init__(self) -> None:
        for name in ("connect_timeout", "call_timeout"):
            value: float = getattr(self, name)
            if not value > 0:
                message = f"{name} is {value}."
                raise ConfigurationError(message, hint="Give a number of seconds above 0.")
        for name in ("max_restarts", "restart_backoff", "stable_seconds"):
            value = getattr(self, name)
            if not value >= 0:
                message = f"{name} is {value}."
                raise ConfigurationError(message, hint="Give a value of 0 or more.")

    def takes(self, name: str) -> bool:
        """Whether the tool of that name is wanted."""
        wanted = self.include is None or any(fnmatchcase(name, pattern) for pattern in self.include)
        return wanted and not any(fnmatchcase(name, pattern) for pattern in self.exclude)


def _secrets(values: Mapping[str, str | Secret]) -> dict[str, Secret]:
    return {key: value if isinstance(value, Secret) else Secret(value) for key, value in values.items()}


class StdioServer(Struct, frozen=True):
    """A program that is started and spoken to over its standard input and output.

    It gets a minimal environment (PATH, HOME and their like) and what `env` names; nothing else of ours.
    """

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str | Secret] = {}
    cwd: str | None = None
    options: ServerOptions = ServerOptions()

    def __post_init__(self) -> None:
        values = [self.command, *self.args, self.cwd or "", *self.env]
        if not self.command or any("\0" in value for value in values):
            raise ConfigurationError("The command of an MCP server is empty, or has a NUL in it.")
        if any(not name or "=" in name for name in self.env):
            raise ConfigurationError("An environment variable of an MCP server has no usable name.")
        msgspec.structs.force_setattr(self, "args", tuple(self.args))
        msgspec.structs.force_setattr(self, "env", _secrets(self.env))

    def __repr__(self) -> str:
        # Arguments may hold what was put in from the environment.
        return f"StdioServer({self.command!r}, <{len(self.args)} arguments>, env={sorted(self.env)})"


class HttpServer(Struct, frozen=True):
    """A server behind an address: https, or http on this machine."""

    url: str
    headers: Mapping[str, str | Secret] = {}
    options: ServerOptions = ServerOptions()

    def __post_init__(self) -> None:
        if not self.url:
            raise ConfigurationError("The url of an MCP server is empty.")
        validate_base_url(self.url)
        headers = _secrets(self.headers)
        for name, value in headers.items():
            if _HEADER_NAME(name) is None or _HEADER_VALUE(value.reveal()) is None:
                message = f"The header {name!r} of an MCP server cannot be sent."
                raise ConfigurationError(message, hint="Use ASCII characters, and no line breaks.")
        msgspec.structs.force_setattr(self, "headers", headers)

    def __repr__(self) -> str:
        return f"HttpServer(<url>, headers={sorted(self.headers)})"


class LocalServer(Struct, frozen=True):
    """A server in this process: an McpServer, or one of the official SDK."""

    server: object
    options: ServerOptions = ServerOptions()


AnyServer: TypeAlias = StdioServer | HttpServer | LocalServer
