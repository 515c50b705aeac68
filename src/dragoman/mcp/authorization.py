"""OAuth for HTTP servers, with the SDK's provider: the user agrees in a browser, and tokens are kept in a file.

Where a sign-in leads is said by the server, so every address is checked: a server may not make this program send
requests into its own network.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import inspect
import socket
from collections.abc import AsyncGenerator, Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import anyio.to_thread
import httpx2
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, BaseModel, ValidationError

from dragoman._descriptors import replace_file
from dragoman._programs import open_browser
from dragoman.errors import ConfigurationError, InvalidBaseURLError, McpConnectionError
from dragoman.transport import host_of, is_loopback, is_public, origin_of, port_of, validate_base_url

_PORT: Final = 33418
_SECONDS: Final = 300.0
"""How long the user may take in the browser."""


class _Kept(BaseModel):
    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None


class TokenFile:
    """Keeps the tokens and the client registration of one server in a file that only its owner can read."""

    def __init__(self, path: Path | str) -> None:
        self._path: Path = Path(path).expanduser()

    def _read(self) -> _Kept:
        try:
            return _Kept.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return _Kept()
        except (OSError, ValidationError) as error:
            message = f"The tokens in {self._path.name} cannot be read ({type(error).__name__})."
            raise ConfigurationError(message, hint="Remove the file, and sign in again.") from None

    def _write(self, kept: _Kept) -> None:
        replace_file(self._path, kept.model_dump_json(exclude_none=True).encode())

    async def get_tokens(self) -> OAuthToken | None:
        return self._read().tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._write(self._read().model_copy(update={"tokens": tokens}))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._read().client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._write(self._read().model_copy(update={"client": client_info}))


def oauth(
    url: str,
    store: TokenStorage | Path | str,
    *,
    show: Callable[[str], object] = open_browser,
    scope: str | None = None,
    client_metadata_url: str | None = None,
    port: int = _PORT,
) -> OAuthClientProvider:
    """Sign in at the server of this URL: `HttpServer(url, auth=oauth(url, "~/.config/notes.json"))`.

    `show`, sync or async, gets the page on which the user agrees; it redirects to this `port` of this machine (0 for a
    free one). `store` is a file, or a TokenStorage of the SDK; put a client that was registered before there with
    `set_client_info`.
    """
    browser = _Browser(url, show, port)
    metadata = OAuthClientMetadata(
        client_name="dragoman",
        redirect_uris=[AnyUrl(f"http://127.0.0.1:{browser.port}/callback")],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        scope=scope,
    )
    storage = TokenFile(store) if isinstance(store, Path | str) else store
    return OAuthClientProvider(
        url, metadata, storage, browser.show, browser.wait, client_metadata_url=client_metadata_url
    )


class _Browser:
    """Shows the user the page, and receives the redirect on a port of this machine."""

    def __init__(self, url: str, show: Callable[[str], object], port: int) -> None:
        self._url: str = url
        self._show: Callable[[str], object] = show
        self.port: int = port or _free_port()
        self._server: asyncio.Server | None = None
        self._state: str = ""
        """What only the page and we know: whoever brings it back was sent by the page."""
        self._result: asyncio.Future[AuthorizationCodeResult] | None = None

    async def show(self, page: str) -> None:
        await check_place(page, self._url)
        self._state = _first(page).get("state", "")
        self._result = asyncio.get_running_loop().create_future()
        try:
            self._server = await asyncio.start_server(self._receive, "127.0.0.1", self.port, limit=16_384)
        except OSError as error:
            message = f"Port {self.port}, to which the browser is redirected, cannot be used: {error.strerror}."
            raise McpConnectionError(message, hint="Give oauth() another port.") from error
        shown = await anyio.to_thread.run_sync(self._show, page, abandon_on_cancel=True)
        if inspect.isawaitable(shown):
            await shown

    async def wait(self) -> AuthorizationCodeResult:
        assert self._result is not None
        try:
            return await asyncio.wait_for(self._result, _SECONDS)
        except TimeoutError:
            raise McpConnectionError(f"Nobody has signed in within {_SECONDS:g} seconds.") from None
        finally:
            if self._server is not None:
                self._server.close()

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            address = urlsplit(head.split(b" ", 2)[1].decode("ascii"))
            given = _first(address.geturl())
            is_sent = hmac.compare_digest(given.get("state", "").encode(), self._state.encode()) and self._state != ""
            is_ours = address.path == "/callback" and is_sent and ("code" in given or "error" in given)
            status, text = ("200 OK", "You can close this page.") if is_ours else ("404 Not Found", "Not found.")
            lines = (f"HTTP/1.1 {status}", "Content-Type: text/plain", f"Content-Length: {len(text)}", "", text)
            writer.write("\r\n".join(lines).encode())
            await writer.drain()
            if is_ours and self._result is not None and not self._result.done():
                if "code" in given:
                    code, state, issuer = given["code"], given.get("state"), given.get("iss")
                    self._result.set_result(AuthorizationCodeResult(code=code, state=state, iss=issuer))
                else:
                    self._result.set_exception(McpConnectionError("The server or the user refused to sign in."))
        writer.close()


def _first(url: str) -> dict[str, str]:
    """The first value of each parameter of a URL."""
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# --- where it leads --------------------------------------------------------------------------------------------------


class CheckedAuth(httpx2.Auth):
    """Signs in as another object does, but sends requests of its own only where a server may lead us."""

    def __init__(self, inner: httpx2.Auth, url: str) -> None:
        self._inner: httpx2.Auth = inner
        self._url: str = url

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        flow = self._inner.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request:
                    await check_place(str(outgoing.url), self._url)
                outgoing = await flow.asend((yield outgoing))
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()


async def check_place(url: str, server: str) -> None:
    """Raise McpConnectionError unless a sign-in at this server may lead to this URL.

    It must be https, or http on this machine as for the server itself, and it may be private only if the server is.
    """
    host = host_of(url)
    try:
        validate_base_url(origin_of(url))
    except InvalidBaseURLError as error:
        raise _refused(host, "is neither https nor on this machine") from error
    if host == host_of(server) or is_loopback(host_of(server)):
        return
    # The name decides about this machine, where http is allowed. Elsewhere a certificate must fit the name, so no
    # answer of a name server that changes between the check and the connection leads to anybody else.
    if is_loopback(host):
        raise _refused(host, "is this machine")
    if await _is_private(url, any) and not await _is_private(server, all):
        raise _refused(host, "is not on the public internet")


async def _is_private(url: str, which: Callable[[list[bool]], bool]) -> bool:
    """Whether any or all of its addresses are. A name without addresses is left to the proxy that may know it."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host_of(url), port_of(url), type=socket.SOCK_STREAM)
    except OSError:
        return False
    return which([not is_public(ip_address(str(each[4][0]).partition("%")[0])) for each in found])


def _refused(host: str, why: str) -> McpConnectionError:
    message = f"The server leads the sign-in to {host[:100]!r}, which {why}."
    return McpConnectionError(message, hint="Nothing was sent there. Ask who runs the server whether this is meant.")
