"""Servers as data, and the JSON that they are read from."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dragoman import errors
from dragoman.mcp import HttpServer, ServerOptions, StdioServer, ToolAbout
from dragoman.mcp.settings import expand, servers_from_json

ENVIRON = {"TOKEN": "s3cret", "EMPTY": "", "ODD": "${TOKEN}"}


def read(entry: object, environ: dict[str, str] | None = None) -> object:
    servers = servers_from_json({"mcpServers": {"it": entry}}, ENVIRON if environ is None else environ)
    return servers.get("it")


def revealed(values: object) -> dict[str, str]:
    assert isinstance(values, dict)
    return {key: value.reveal() for key, value in values.items()}


def test_a_command() -> None:
    server = read(
        {"command": "npx", "args": ["-y", "pkg", "${TOKEN}"], "env": {"KEY": "${TOKEN}"}, "cwd": "/tmp/${EMPTY}x"}
    )
    assert isinstance(server, StdioServer)
    assert (server.command, list(server.args), server.cwd) == ("npx", ["-y", "pkg", "s3cret"], "/tmp/x")
    assert revealed(server.env) == {"KEY": "s3cret"}
    assert "s3cret" not in repr(server)


@pytest.mark.parametrize("kind", [{}, {"type": "http"}, {"type": "streamable-http"}, {"type": "streamableHttp"}])
def test_an_address(kind: dict[str, object]) -> None:
    server = read({"url": "https://mcp.dragoman.dev/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}, **kind})
    assert isinstance(server, HttpServer)
    assert revealed(server.headers) == {"Authorization": "Bearer s3cret"}
    assert "s3cret" not in repr(server)
    assert "dragoman.dev" not in repr(server)  # an address may hold a key


def test_other_forms_and_unknown_members_are_accepted() -> None:
    text = json.dumps({"servers": {"a": {"command": "x"}, "b": {"command": "y", "disabled": True}}})
    assert list(servers_from_json(text, {})) == list(servers_from_json(text.encode(), {})) == ["a"]
    ours = {"prefix": "", "include": ["read_*"], "call_timeout": 5, "trust_annotations": True}
    server = read({"command": "x", "dragoman": ours, "alwaysAllow": ["a"], "timeout": 5, "description": "d"})
    assert isinstance(server, StdioServer)
    assert server.options == ServerOptions(prefix="", include=("read_*",), call_timeout=5, trust_annotations=True)


@pytest.mark.parametrize(
    ("kind", "given", "what"),
    [
        (ServerOptions, {"prefx": ""}, "Did you mean prefix?"),
        (ServerOptions, {"protocol": "nonsense"}, "protocol"),
        (ServerOptions, {"include": "read_*"}, "include"),
        (ServerOptions, {"max_tools": 0}, "max_tools"),
        (ToolAbout, {"destructive": "no"}, "destructive"),
    ],
)
def test_wrong_settings_in_code_are_refused(kind: Callable[..., object], given: dict[str, Any], what: str) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        kind(**given)
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ([], "Expected `object`"),
        ({}, "url of an MCP server is empty"),
        ({"command": 5}, "$.command"),
        ({"command": ""}, "empty"),
        ({"command": "a\0b"}, "NUL"),
        ({"command": "x", "args": "y"}, "$.args"),
        ({"command": "x", "args": [1]}, "$.args"),
        ({"command": "x", "env": {"A": 1}}, "$.env"),
        ({"command": "x", "env": {"A=B": "1"}}, "no usable name"),
        ({"command": "x", "url": "https://dragoman.dev"}, "both"),
        ({"url": "http://dragoman.dev/mcp"}, "https://"),
        ({"url": "https://user:pw@dragoman.dev/mcp"}, "user name"),
        ({"url": "file:///etc/passwd"}, "https://"),
        ({"url": "https://dragoman.dev", "headers": {"A": "x\r\nB: y"}}, "cannot be sent"),
        ({"url": "https://dragoman.dev", "headers": {"A b": "x"}}, "cannot be sent"),
        ({"url": "https://dragoman.dev", "type": "sse"}, "sse"),
        ({"url": "https://dragoman.dev", "type": "carrier-pigeon"}, "not known"),
        ({"command": "x", "dragoman": {"prefx": ""}}, "prefx"),
        ({"command": "x", "dragoman": {"call_timeout": 0}}, "call_timeout"),
        ({"command": "${MISSING}"}, "'MISSING' is not set"),
        ({"command": "${not a name}"}, "not the name"),
        ({"command": "${TOKEN"}, "not the name"),
    ],
)
def test_errors_name_the_server(entry: object, what: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="'it'") as caught:
        read(entry)
    assert what in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "document", ["", "{", "[]", "{}", '{"mcpServers": []}', '{"mcpServers": {"a b": {}}}', b"\xff"]
)
def test_an_invalid_document_is_refused(document: str | bytes) -> None:
    with pytest.raises(errors.ConfigurationError):
        servers_from_json(document, {})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${TOKEN}", "s3cret"),
        ("${env:TOKEN}", "s3cret"),
        ("a${TOKEN}b${EMPTY}c", "as3cretbc"),
        ("${MISSING:-there}", "there"),
        ("${MISSING:-}", ""),
        ("${TOKEN:-other}", "s3cret"),
        ("${EMPTY:-other}", ""),  # set is set
        ("$TOKEN $ {TOKEN}", "$TOKEN $ {TOKEN}"),
        ("$${TOKEN}", "${TOKEN}"),
        ("${ODD}", "${TOKEN}"),  # once, and not again
    ],
)
def test_variables(text: str, value: str) -> None:
    assert expand(text, ENVIRON) == value


@given(st.text(), st.text())
def test_a_value_is_inserted_literally(before: str, value: str) -> None:
    escaped = before.replace("$", "")
    assert expand(escaped + "${NAME}", {"NAME": value}) == escaped + value
