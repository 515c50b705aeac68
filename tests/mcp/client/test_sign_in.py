"""Where a sign-in may lead: to https, or to this machine if the server is there, and never into a private network."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest

from dragoman import errors
from dragoman.mcp import oauth
from dragoman.mcp.authorization import CheckedAuth, check_place

PUBLIC, PRIVATE, HERE = "https://93.184.216.34", "https://10.0.0.7", "http://127.0.0.1:9000"
NAMES = {"mixed.dev": ["93.184.216.34", "10.0.0.7"], "inside.dev": ["10.0.0.7"], "mapped.dev": ["::ffff:10.0.0.7"]}


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that is not asked beyond this machine."""

    async def getaddrinfo(_loop: object, host: str, port: int, **_: object) -> list[Any]:
        if host == "unknown.dev":
            raise socket.gaierror
        return [(0, 0, 0, "", (address, port)) for address in NAMES.get(host, [host.strip("[]")])]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)


ALLOWED = [
    (PUBLIC, PUBLIC),
    (PUBLIC, "https://93.184.216.35/x"),
    (PUBLIC, "https://unknown.dev/x"),  # a proxy may know it
    (PRIVATE, "https://10.0.0.8:8443/x"),
    (PRIVATE, PUBLIC),
    ("https://inside.dev/mcp", "https://10.0.0.8/x"),
    ("https://mixed.dev/mcp", "https://mixed.dev:8443/x"),  # the server itself
    (HERE, "http://localhost:1234/x"),
    (HERE, "http://[::1]/x"),
    (HERE, PRIVATE),
    (HERE, PUBLIC),
]
REFUSED = [
    (PUBLIC, "http://93.184.216.34/x", "neither https"),
    (PUBLIC, "http://93.184.216.35/x", "neither https"),
    (HERE, "http://10.0.0.7/x", "neither https"),
    (HERE, "ftp://127.0.0.1/x", "neither https"),
    (HERE, "file:///etc/passwd", "neither https"),
    (HERE, "javascript:alert(1)", "neither https"),
    (HERE, "https://user@127.0.0.1/x", "neither https"),
    (PUBLIC, HERE, "is this machine"),
    (PUBLIC, "https://localhost/x", "is this machine"),
    (PRIVATE, HERE, "is this machine"),
    (PUBLIC, PRIVATE, "not on the public internet"),
    (PUBLIC, "https://169.254.169.254/latest", "not on the public internet"),
    (PUBLIC, "https://[fd00::1]/x", "not on the public internet"),
    (PUBLIC, "https://inside.dev/x", "not on the public internet"),
    (PUBLIC, "https://mixed.dev/x", "not on the public internet"),
    (PUBLIC, "https://mapped.dev/x", "not on the public internet"),
    ("https://mixed.dev/mcp", PRIVATE, "not on the public internet"),  # one private address does not make it private
]


@pytest.mark.parametrize(("server", "url"), ALLOWED)
def test_places_to_which_a_server_may_lead(server: str, url: str) -> None:
    asyncio.run(check_place(url, server))


@pytest.mark.parametrize(("server", "url", "why"), REFUSED)
def test_places_to_which_a_server_may_not_lead(server: str, url: str, why: str) -> None:
    with pytest.raises(errors.McpConnectionError, match=why):
        asyncio.run(check_place(url, server))


class _Auth(httpx2.Auth):
    """Asks for a token elsewhere, and makes sure that it is told of its end."""

    def __init__(self, *urls: str) -> None:
        self.urls: tuple[str, ...] = urls
        self.ended: bool = False

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        try:
            for url in self.urls:
                yield httpx2.Request("POST", url)
            request.headers["authorization"] = "Bearer t"
            yield request
        finally:
            self.ended = True


@pytest.mark.parametrize(
    ("urls", "sent"),
    [
        (["https://93.184.216.35/token"], ["93.184.216.35", "93.184.216.34"]),
        (["https://93.184.216.35/metadata", "https://10.0.0.7/token"], ["93.184.216.35"]),
        (["http://127.0.0.1:631/"], []),
    ],
)
def test_nothing_is_sent_to_another_place(urls: list[str], sent: list[str]) -> None:
    went: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        went.append(request.url.host)
        return httpx2.Response(200)

    async def main() -> None:
        inner = _Auth(*urls)
        auth = CheckedAuth(inner, PUBLIC)
        async with httpx2.AsyncClient(auth=auth, transport=httpx2.MockTransport(answer)) as client:
            if len(sent) == len(urls) + 1:
                await client.get(f"{PUBLIC}/mcp")
            else:
                with pytest.raises(errors.McpConnectionError, match="leads the sign-in to"):
                    await client.get(f"{PUBLIC}/mcp")
        assert inner.ended

    asyncio.run(main())
    assert went == sent


@pytest.mark.parametrize("page", ["javascript:alert(1)", "file:///etc/passwd", "http://93.184.216.35/", PRIVATE, HERE])
def test_a_page_at_another_place_is_not_shown(page: str) -> None:
    shown: list[str] = []
    provider = oauth(PUBLIC, "unused.json", show=shown.append, port=0)
    assert provider.context.redirect_handler is not None
    with pytest.raises(errors.McpConnectionError, match="leads the sign-in to"):
        asyncio.run(provider.context.redirect_handler(page))  # type: ignore[arg-type]
    assert shown == []
