"""OAuth for HTTP servers, with the SDK's provider: the user agrees in a browser, and tokens are kept in a file."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import anyio.to_thread
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, BaseModel, ValidationError

from dragoman._descriptors import replace_file
from dragoman._programs import open_browser
from dragoman.errors import ConfigurationError, McpConnectionError

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
    browser = _Browser(show, port)
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

    def __init__(self, show: Callable[[str], object], port: int) -> None:
        self._show: Callable[[str], object] = show
        self.port: int = port or _free_port()
        self._server: asyncio.Server | None = None
        self._result: asyncio.Future[AuthorizationCodeResult] | None = None

    async def show(self, page: str) -> None:
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
            given = {name: values[0] for name, values in parse_qs(address.query).items()}
            is_ours = address.path == "/callback" and ("code" in given or "error" in given)
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
