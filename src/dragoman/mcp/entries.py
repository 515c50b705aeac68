"""Servers from the JSON that many programs share: `{"mcpServers": {name: {"command": …}}}`.

Owns: reading it, and what `${NAME}` in it stands for.
Must not know: files; and of the environment only the variables that are named.

`${NAME}` and `${env:NAME}` stand for an environment variable and `${NAME:-text}` for the variable or, where it is not
set, the text. They are replaced once: what a variable holds is not looked into again. `$${` stands for `${` itself, and
a `$` without braces for itself. A variable that is not set is an error, never an empty text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import cast

import msgspec

from dragoman.errors import ConfigurationError, DragomanError

from .settings import AnyServer, HttpServer, ServerOptions, StdioServer

__all__ = ["expanded", "servers_from_json"]

_VARIABLE = re.compile(r"\$\$\{|\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\$\{[^}]*\}?")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}").fullmatch
_TYPES: Mapping[str, str] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
}
_OURS = "dragoman"
"""The member of an entry that holds what only we know: the fields of ServerOptions."""


def expanded(text: str, environ: Mapping[str, str]) -> str:
    """The text with its variables replaced; raises ConfigurationError."""

    def value(found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        name, default = found["name"], found["default"]
        if name is None:
            message = "A ${…} is not the name of an environment variable."
            raise ConfigurationError(message, hint="Write ${NAME} or ${NAME:-default}, or $${ for the characters.")
        if name in environ:
            return environ[name]
        if default is None:
            message = f"The environment variable {name!r} is not set."
            raise ConfigurationError(message, hint=f"Set it, or write ${{{name}:-default}}.")
        return default

    return _VARIABLE.sub(value, text)


def servers_from_json(source: str | bytes | Mapping[str, object], environ: Mapping[str, str]) -> dict[str, AnyServer]:
    """The servers of a document, without those that are disabled; raises ConfigurationError."""
    entries = _entries(source)
    servers: dict[str, AnyServer] = {}
    for name, entry in entries.items():
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


def _server(entry: object, environ: Mapping[str, str]) -> AnyServer | None:
    if not isinstance(entry, Mapping):
        raise ConfigurationError("its entry is not an object.")
    fields = cast("Mapping[str, object]", entry)
    if fields.get("disabled") is True or fields.get("enabled") is False:
        return None
    kind = _kind(fields)
    allowed = "url" if kind == "stdio" else "command"
    if allowed in fields:
        raise ConfigurationError("it has both a command and a url.", hint="Keep the one that is meant.")
    options = _options(fields.get(_OURS))

    def put_in(text: str) -> str:
        return expanded(text, environ)

    if kind == "stdio":
        return StdioServer(
            put_in(_text(fields, "command")),
            [put_in(each) for each in _texts(fields, "args")],
            {key: put_in(value) for key, value in _mapping(fields, "env").items()},
            put_in(_text(fields, "cwd")) if fields.get("cwd") is not None else None,
            options,
        )
    headers = {key: put_in(value) for key, value in _mapping(fields, "headers").items()}
    return HttpServer(put_in(_text(fields, "url")), headers, options)


def _kind(fields: Mapping[str, object]) -> str:
    said = fields.get("type", fields.get("transport"))
    if said is None:
        return "stdio" if "command" in fields else "http"
    if said == "sse":
        message = "the transport 'sse' has been replaced and is not spoken here."
        raise ConfigurationError(message, hint="Most such servers also have an address for streamable HTTP: type http.")
    kind = _TYPES.get(said) if isinstance(said, str) else None
    if kind is None:
        raise ConfigurationError(f"its type {said!r} is not known.", hint="Use stdio or http.")
    return kind


def _options(given: object) -> ServerOptions:
    try:
        return ServerOptions() if given is None else msgspec.convert(given, ServerOptions)
    except msgspec.ValidationError as error:
        message = f"its {_OURS!r} member is not usable: {error}."
        raise ConfigurationError(message, hint="See ServerOptions for what can be set.") from None


def _checked(fields: Mapping[str, object], key: str, fits: Callable[[object], bool], what: str) -> object:
    value = fields.get(key)
    if not fits(value):
        raise ConfigurationError(f"its {key!r} is not {what}.")
    return value


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _text(fields: Mapping[str, object], key: str) -> str:
    return cast("str", _checked(fields, key, _is_text, "a text"))


def _texts(fields: Mapping[str, object], key: str) -> list[str]:
    if fields.get(key) is None:
        return []

    def fits(value: object) -> bool:
        return isinstance(value, list | tuple) and all(map(_is_text, cast("list[object]", value)))

    return cast("list[str]", _checked(fields, key, fits, "a list of texts"))


def _mapping(fields: Mapping[str, object], key: str) -> dict[str, str]:
    if fields.get(key) is None:
        return {}

    def fits(value: object) -> bool:
        return isinstance(value, Mapping) and all(map(_is_text, cast("Mapping[str, object]", value).values()))

    return dict(cast("Mapping[str, str]", _checked(fields, key, fits, "an object of texts")))
