"""Settings: the MCP servers of a program, the use of their tools, and what clients see of our tools.

Servers are defined in code, or in the JSON format that many programs share: `{"mcpServers": {name: {"command": …}}}`.

Must not know: the SDK, and files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from dragoman._checks import CheckedMeta, Count, Positive
from dragoman._decoding import convert_to, decode
from dragoman.engines import Secret
from dragoman.errors import ConfigurationError, DragomanError
from dragoman.transport import validate_base_url

if TYPE_CHECKING:
    import httpx2

    from dragoman.tools import AnyTool

_Seconds = Annotated[float, msgspec.Meta(gt=0)]
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*").fullmatch


class ToolAbout(Struct, frozen=True, kw_only=True, metaclass=CheckedMeta):
    """What MCP clients see of a tool beside its name, description and parameters. None leaves a hint out."""

    title: str = ""
    """A name for people."""
    output_schema: dict[str, object] | None = None
    """JSON Schema of the structured result; None derives it from the function's return type."""
    destructive: bool | None = None
    """Whether it may destroy something, rather than only add."""
    open_world: bool | None = None
    """Whether it deals with the world outside, such as the web."""


def read_about(tool: AnyTool) -> ToolAbout:
    """The ToolAbout of a tool that comes from an MCP server; an empty one for others."""
    about: object = getattr(tool.function, "about", None)
    return about if isinstance(about, ToolAbout) else ToolAbout()


class ServerOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=CheckedMeta):
    """How a server and its tools are used."""

    prefix: str | None = None
    """Put before the name of each tool; None stands for the server's name and an underscore."""
    include: tuple[str, ...] | None = None
    """Which tools to use, by the server's own names; `*` and `?` are wildcards. None uses all."""
    exclude: tuple[str, ...] = ()
    """Which of these to leave out."""
    connect_timeout: _Seconds = 30.0
    """Seconds for the start, the handshake and the first list of tools."""
    call_timeout: _Seconds = 60.0
    """Seconds for one call, including the wait for a restart."""
    max_restarts: Count = 3
    """How often a server that died is restarted before it is given up."""
    trust_annotations: bool = False
    """Whether to believe the server when it says that a tool only reads. Permissions may depend on it."""
    protocol: Literal["auto", "legacy"] = "auto"
    """`legacy` uses the handshake of 2025-11-25 without probing for newer revisions, for servers that hang on it."""
    max_tools: Positive = 500
    """Further tools are left out, and reported."""
    max_message_bytes: Positive = 16 * 1024 * 1024
    """A larger message ends the connection."""
    max_result_bytes: Positive = 8 * 1024 * 1024
    """A larger result of a tool is cut."""
    max_questions: Count = 8
    """How many questions, to the user or a model, it may ask during one call."""

    def takes(self, name: str) -> bool:
        wanted = self.include is None or any(fnmatchcase(name, pattern) for pattern in self.include)
        return wanted and not any(fnmatchcase(name, pattern) for pattern in self.exclude)


def _secrets(values: Mapping[str, str | Secret]) -> dict[str, Secret]:
    return {key: value if isinstance(value, Secret) else Secret(value) for key, value in values.items()}


def reveal(values: Mapping[str, str | Secret]) -> dict[str, str]:
    """The plain values, for the server that they are meant for."""
    return {key: value.reveal() if isinstance(value, Secret) else value for key, value in values.items()}


class _Discreet(Struct, frozen=True):
    """May hold keys, and so does not show its fields in rich's tracebacks."""

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return []


class StdioServer(_Discreet, frozen=True):
    """A program to start, which speaks MCP over its standard input and output.

    It inherits a minimal environment (PATH, HOME and the like), plus `env`.
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
        # Arguments may hold secrets from the environment.
        return f"StdioServer({self.command!r}, <{len(self.args)} arguments>, env={sorted(self.env)})"


class HttpServer(_Discreet, frozen=True):
    """A server at a URL: https, or http on this machine."""

    url: str
    headers: Mapping[str, str | Secret] = {}
    options: ServerOptions = ServerOptions()
    auth: httpx2.Auth | None = None
    """How to sign in, such as `oauth(url, store)`."""

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


def identity_of(name: str, server: AnyServer) -> str:
    """A hash of which server this is: its name, and its command or URL."""
    match server:
        case StdioServer():
            parts = [server.command, *server.args, server.cwd or ""]
        case HttpServer():
            parts = [server.url]
        case LocalServer():
            parts = []
    return hashlib.sha256(msgspec.json.encode([name, type(server).__name__, *parts])).hexdigest()


class Question(Struct, frozen=True, kw_only=True):
    """A question of a server to the user, during a call."""

    server: str
    message: str
    schema: dict[str, object] = {}
    """JSON Schema of the answer, an object of texts, numbers, booleans and choices."""
    url: str = ""
    """A page to visit, instead of an answer to give."""


# --- from JSON -------------------------------------------------------------------------------------------------------

_VARIABLE = re.compile(r"\$\$\{|\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\$\{[^}]*\}?")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}").fullmatch
_HTTP = frozenset(["http", "streamable-http", "streamable_http", "streamableHttp"])


class _Entry(Struct, rename={"ours": "dragoman"}):
    """One entry. Members of other programs are ignored."""

    type: str | None = None
    transport: str | None = None
    command: str | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] | None = None
    disabled: bool = False
    enabled: bool = True
    ours: ServerOptions = ServerOptions()


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Replace `${NAME}`, `${env:NAME}` and `${NAME:-default}`. Raises ConfigurationError if a variable is not set.

    Values are not expanded again. `$${` stands for a literal `${`.
    """

    def value(found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        name, default = found["name"], found["default"]
        if name is None:
            message = "A ${…} is not the name of an environment variable."
            raise ConfigurationError(message, hint="Write ${NAME} or ${NAME:-default}, or $${ for the characters.")
        if name not in environ and default is None:
            message = f"The environment variable {name!r} is not set."
            raise ConfigurationError(message, hint=f"Set it, or write ${{{name}:-default}}.")
        return environ.get(name, default or "")

    return _VARIABLE.sub(value, text)


def servers_from_json(source: str | bytes | Mapping[str, object], environ: Mapping[str, str]) -> dict[str, AnyServer]:
    """Parse a document, and leave out disabled servers. Raises ConfigurationError."""
    servers: dict[str, AnyServer] = {}
    for name, entry in _entries(source).items():
        if _NAME(name) is None:
            message = f"{name!r} cannot be the name of an MCP server."
            raise ConfigurationError(message, hint="Use letters, digits, '_', '-' and '.', at most 64.")
        try:
            server = _server(entry, environ)
        except DragomanError as error:
            raise ConfigurationError(f"MCP server {name!r}: {error.message}", hint=error.hint) from error
        if server is not None:
            servers[name] = server
    return servers


def _entries(source: str | bytes | Mapping[str, object]) -> Mapping[str, object]:
    document: object = source
    if isinstance(source, str | bytes):
        try:
            document = decode(source)
        except (msgspec.DecodeError, UnicodeError) as error:
            # The text may hold keys, so the message does not repeat it.
            message = f"The list of MCP servers is not valid JSON: {error}."
            raise ConfigurationError(message, hint="To read a file, give its pathlib.Path.") from None
    if isinstance(document, Mapping):
        for key in ("mcpServers", "servers"):
            found = cast("Mapping[str, object]", document).get(key)
            if isinstance(found, Mapping):
                return cast("Mapping[str, object]", found)
    raise ConfigurationError('There is no "mcpServers" object in the list of MCP servers.')


def _server(given: object, environ: Mapping[str, str]) -> AnyServer | None:
    try:
        entry = convert_to(given, _Entry)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"its entry is not usable: {error}.") from None
    if entry.disabled or not entry.enabled:
        return None
    if entry.command is not None and entry.url is not None:
        raise ConfigurationError("it has both a command and a url.", hint="Keep one of them.")

    def expanded(text: str | None) -> str:
        return expand(text or "", environ)

    kind = entry.type or entry.transport or ("http" if entry.command is None else "stdio")
    if kind == "sse":
        message = "the transport 'sse' was replaced in MCP, and is not supported."
        raise ConfigurationError(message, hint="Most such servers also have an address for streamable HTTP: type http.")
    if kind == "stdio":
        args = [expanded(each) for each in entry.args or ()]
        env = {key: expanded(value) for key, value in (entry.env or {}).items()}
        return StdioServer(expanded(entry.command), args, env, expanded(entry.cwd) or None, entry.ours)
    if kind not in _HTTP:
        raise ConfigurationError(f"its type {kind!r} is not known.", hint="Use stdio or http.")
    headers = {key: expanded(value) for key, value in (entry.headers or {}).items()}
    return HttpServer(expanded(entry.url), headers, entry.ours)
