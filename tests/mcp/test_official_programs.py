"""The official programs: the conformance runner against our server and client, our client against a server.

They come from npm, at exact versions; where npm or Node cannot be had these tests are skipped, visibly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from dragoman import Media
from dragoman.mcp import McpServers, ServerOptions, StdioServer
from tests.mcp import conformance
from tests.mcp.client.colours import Call, Colour, until
from tests.mcp.node import NotInstalledError, program

pytestmark = pytest.mark.slow

Program = Callable[[str], list[str]]


@pytest.fixture(scope="session")
def npm(outside_environ: dict[str, str]) -> Program:
    def command(name: str) -> list[str]:
        try:
            return program(name, outside_environ)
        except NotInstalledError as error:
            pytest.skip(f"{name} from npm cannot be had: {error}")

    return command


# --- the conformance runner ---


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with conformance.serving() as address:
        yield address


@pytest.mark.parametrize("revision", conformance.REVISIONS)
def test_server_conformance(npm: Program, url: str, revision: str, outside_environ: dict[str, str]) -> None:
    npm("conformance")
    report = conformance.run_server(url, outside_environ, revision)
    assert report.ok, report.output
    assert sum(name.startswith("tools-") for name in report.scenarios) >= 8


@pytest.mark.parametrize(
    ("revision", "scenario"),
    [
        ("2025-11-25", "elicitation-sep1034-client-defaults"),
        ("2025-11-25", "sse-retry"),
        ("2025-11-25", "auth/pre-registration"),
        ("2026-07-28", "sep-2322-client-request-state"),
        ("2026-07-28", "http-custom-headers"),
        ("2026-07-28", "auth/scope-step-up"),
        ("2026-07-28", "auth/iss-wrong-issuer"),
    ],
)
def test_client_conformance(npm: Program, revision: str, scenario: str, outside_environ: dict[str, str]) -> None:
    """A part of it; `python -m tests.mcp.conformance` runs all."""
    npm("conformance")
    report = conformance.run_client(outside_environ, revision, [scenario])
    assert report.ok, report.output


# --- servers ---


def started(command: list[str], *arguments: str) -> McpServers:
    options = ServerOptions(prefix="", connect_timeout=60.0)
    return McpServers({"official": StdioServer(command[0], [*command[1:], *arguments], options=options)})


def test_our_client_drives_the_everything_server(npm: Program, colour: Colour) -> None:
    def body(servers: McpServers, call: Call) -> None:
        names = set(servers.tools.by_name)
        assert {"echo", "get-sum", "get-tiny-image"} <= names, names
        assert [problem.tool for problem in servers.problems] == ["simulate-research-query"]  # only as a task
        assert "hello" in call("echo", message="hello").text
        assert "5" in call("get-sum", a=2, b=3).text
        assert any(isinstance(part, Media) and part.kind == "image" for part in call("get-tiny-image").content)
        structured = call("get-structured-content", location="Chicago")
        assert structured.structured is not None
        assert "temperature" in structured.value  # type: ignore[operator]
        assert not call("trigger-long-running-operation", duration=0.2, steps=2).is_error
        until(lambda: servers.status["official"].state == "ready", "it is still there")

    colour(started(npm("server-everything")), body)
