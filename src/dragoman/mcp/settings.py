"""What users set: the MCP servers of a program, how their tools are used, and what is said of tools.

Servers are written in code, or read from the JSON that many programs share: `{"mcpServers": {name: {"command": …}}}`.

Must not know: the SDK, and files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from dragoman._checks import CheckedMeta, Count, NotNegative, Positive
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
    """What other programs are told of a tool, for people and as hints. None leaves a hint out."""

    title: str = ""
    """A name for people."""
    output_schema: dict[str, object] | None = None
    """JSON Schema of the structured result; where it is None it is taken from the function's return type."""
    destructive: bool | None = None
    """Whether it may destroy something, rather than only add."""
    open_world: bool | None = None
    """Whether it deals with the world outside, such as the web."""


def read_about(tool: AnyTool) -> ToolAbout:
    """What the tool's function carries with it; the tools of MCP servers do."""
    about: object = getattr(tool.function, "about", None)
    return about if isinstance(about, ToolAbout) else ToolAbout()


class ClientLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=CheckedMeta):
    """What a server may send. What goes beyond is cut, left out or refused, and reported."""

    max_tools: Positive = 500
    max_description_chars: Positive = 8_192
    max_schema_bytes: Positive = 65_536
    """For the schema of parameters and that of results, each."""
    max_message_bytes: Positive = 16 * 1024 * 1024
    max_result_bytes: Positive = 8 * 1024 * 1024
    max_items: Positive = 10_000
    """In one message: parts of a result, tools of a page. More is refused before it is read."""


class ServerOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=CheckedMeta):
    """How a server's tools are used."""

    prefix: str | None = None
    """Put before the name of each tool; None stands for the server's name and an underscore."""
    include: tuple[str, ...] | None = None
    """Which tools are taken, by the server's own names; `*` and `?` stand for any characters. None takes all."""
    exclude: tuple[str, ...] = ()
    """Which of them are left out all the same."""
    connect_timeout: _Seconds = 30.0
    """Seconds for starting, shaking hands and the first list of tools."""
    call_timeout: _Seconds = 60.0
    """Seconds for one call, waiting for a restart included."""
    max_restarts: Count = 3
    """How often a server that has died is started again before it is given up."""
    restart_backoff: NotNegative = 0.5
    """Seconds before the first restart, doubled for each further one."""
    trust_annotations: bool = False
    """Whether the server is believed when it says that a tool only reads. Permissions may depend on it."""
    protocol: Literal["auto", "legacy"] = "auto"
    """`legacy` shakes hands as up to 2025-11-25 without asking for more first, for servers that hang when asked."""
    limits: ClientLimits = ClientLimits()

    def takes(self, name: str) -> bool:
        wanted = self.include is None or any(fnmatchcase(name, pattern) for pattern in self.include)
        return wanted and not any(fnmatchcase(name, pattern) for pattern in self.exclude)


def _secrets(values: Mapping[str, str | Secret]) -> dict[str, Secret]:
    return {key: value if isinstance(value, Secret) else Secret(value) for key, value in values.items()}


def reveal(values: Mapping[str, str | Secret]) -> dict[str, str]:
    """The values themselves, to be handed to the server that they are for."""
    return {key: value.reveal() if isinstance(value, Secret) else value for key, value in values.items()}


class _Discreet(Struct, frozen=True):
    """May hold keys, and so does not show what it holds: not in a log, nor in rich's tracebacks."""

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return []


class StdioServer(_Discreet, frozen=True):
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


class HttpServer(_Discreet, frozen=True):
    """A server behind an address: https, or http on this machine."""

    url: str
    headers: Mapping[str, str | Secret] = {}
    options: ServerOptions = ServerOptions()
    auth: httpx2.Auth | None = None
    """What signs in, such as `oauth(url, store)`."""

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


class Question(Struct, frozen=True, kw_only=True):
    """What a server asks the user during a call."""

    server: str
    message: str
    schema: dict[str, object] = {}
    """JSON Schema of the answer, an object of texts, numbers, booleans and choices."""
    url: str = ""
    """Instead of an answer, a page to visit."""


# --- from JSON -------------------------------------------------------------------------------------------------------

_VARIABLE = re.compile(r"\$\$\{|\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\$\{[^}]*\}?")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}").fullmatch
_HTTP = frozenset(["http", "streamable-http", "streamable_http", "streamableHttp"])


class _Entry(Struct, rename={"ours": "dragoman"}):
    """One entry. Members that only other programs know are passed over."""

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
    """What only we know."""


def expand(text: str, environ: Mapping[str, str]) -> str:
    """The text with `${NAME}`, `${env:NAME}` and `${NAME:-default}` replaced, once; raises ConfigurationError.

    What a variable holds is not looked into again, and one that is not set is an error, never an empty text. `$${`
    stands for `${` itself, and a `$` without braces for itself.
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
    """The servers of a document, without those that are disabled; raises ConfigurationError."""
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
            document = msgspec.json.decode(source)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            # The text may hold keys, so it is not repeated.
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
        entry = msgspec.convert(given, _Entry)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"its entry is not usable: {error}.") from None
    if entry.disabled or not entry.enabled:
        return None
    if entry.command is not None and entry.url is not None:
        raise ConfigurationError("it has both a command and a url.", hint="Keep the one that is meant.")

    def put_in(text: str | None) -> str:
        return expand(text or "", environ)

    kind = entry.type or entry.transport or ("http" if entry.command is None else "stdio")
    if kind == "sse":
        message = "the transport 'sse' has been replaced and is not spoken here."
        raise ConfigurationError(message, hint="Most such servers also have an address for streamable HTTP: type http.")
    if kind == "stdio":
        args = [put_in(each) for each in entry.args or ()]
        env = {key: put_in(value) for key, value in (entry.env or {}).items()}
        return StdioServer(put_in(entry.command), args, env, put_in(entry.cwd) or None, entry.ours)
    if kind not in _HTTP:
        raise ConfigurationError(f"its type {kind!r} is not known.", hint="Use stdio or http.")
    headers = {key: put_in(value) for key, value in (entry.headers or {}).items()}
    return HttpServer(put_in(entry.url), headers, entry.ours)
