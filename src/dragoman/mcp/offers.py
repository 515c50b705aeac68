"""Resources and prompts: anything with a name that can be read.

Must not know: what they are. Skills are the first to use it.
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal, Protocol, TypeAlias
from urllib.parse import quote

import anyio.to_thread
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

MAX_BYTES = 10 * 1024 * 1024
_RESOURCE_NOT_FOUND = -32002
"""What the specifications up to 2025-11-25 say; later ones use the code for invalid parameters."""


class Readable(Protocol):
    """Something that can be read by its name. It may have a `uri`, a `mime_type` and a `title` as well."""

    @property
    def name(self) -> str:
        """What it is asked for by, where it has no `uri`."""
        ...

    @property
    def description(self) -> str:
        """What it is, for people and models."""
        ...

    def read(self) -> str | bytes | Awaitable[str | bytes]:
        """The whole of it."""
        ...


Offers: TypeAlias = Iterable[Readable] | Callable[[], Iterable[Readable]]
"""What is offered: fixed, or a function that says what there is now."""


class _Summary(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...


class _Loaded(Protocol):
    @property
    def body(self) -> str: ...


class Store(Protocol):
    """Texts by name, such as a SkillStore: a list without the texts, and a text when it is wanted."""

    def list(self) -> Iterable[_Summary]: ...
    def load(self, name: str, /) -> _Loaded: ...


class _Stored:
    """One text of a store, which is loaded when it is read."""

    mime_type: str = "text/markdown"

    def __init__(self, store: Store, about: _Summary) -> None:
        self._store: Store = store
        self.name: str = about.name
        self.description: str = about.description
        self.uri: str = f"skill://{quote(about.name, safe='')}/SKILL.md"

    def read(self) -> str:
        return self._store.load(self.name).body


def offers_of(store: Store) -> Callable[[], Iterable[Readable]]:
    """The texts of a store as resources or prompts: `McpServer(tools, prompts=offers_of(skills))`."""
    return lambda: [_Stored(store, about) for about in store.list()]


class OfferList:
    """The resources, or the prompts, of a server."""

    def __init__(self, kind: Literal["resources", "prompts"], offers: Offers) -> None:
        self._kind: str = kind
        self._offers: Offers = offers

    async def list(self) -> list[Readable]:
        """What there is now. The function that says so may look at the disk."""
        return await anyio.to_thread.run_sync(self._now)

    def _now(self) -> list[Readable]:
        return list(self._offers() if callable(self._offers) else self._offers)

    def uri(self, offer: Readable) -> str:
        """Its own, or one made of its name."""
        own: object = getattr(offer, "uri", None)
        return str(own) if own else f"dragoman://{self._kind}/{quote(offer.name, safe='')}"

    async def resources(self) -> list[types.Resource]:
        """What `resources/list` says."""
        return [
            types.Resource(
                name=offer.name,
                title=_optional(offer, "title"),
                uri=self.uri(offer),
                description=offer.description or None,
                mime_type=_optional(offer, "mime_type"),
            )
            for offer in await self.list()
        ]

    async def resource(self, uri: str, version: str) -> types.ReadResourceResult:
        """What `resources/read` says."""
        for offer in await self.list():
            if self.uri(offer) == uri:
                return types.ReadResourceResult(contents=[_contents(uri, offer, await _read(offer))])
        code = types.INVALID_PARAMS if version in MODERN_PROTOCOL_VERSIONS else _RESOURCE_NOT_FOUND
        raise MCPError(code, f"Resource not found: {uri}", {"uri": uri})

    async def prompts(self) -> list[types.Prompt]:
        """What `prompts/list` says."""
        return [
            types.Prompt(name=offer.name, title=_optional(offer, "title"), description=offer.description or None)
            for offer in await self.list()
        ]

    async def prompt(self, name: str) -> types.GetPromptResult:
        """What `prompts/get` says: the text, as a message of the user."""
        for offer in await self.list():
            if offer.name == name:
                text = await _read(offer)
                words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
                message = types.PromptMessage(role="user", content=types.TextContent(text=words))
                return types.GetPromptResult(description=offer.description or None, messages=[message])
        raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {name}")


def _optional(offer: Readable, name: str) -> str | None:
    value: object = getattr(offer, name, None)
    return str(value) if value else None


async def _read(offer: Readable) -> str | bytes:
    """The whole of it, unless that is too much; raises MCPError."""
    try:
        found = await anyio.to_thread.run_sync(offer.read, abandon_on_cancel=True)
        if inspect.isawaitable(found):
            found = await found
    except Exception as error:
        message = f"{offer.name!r} cannot be read: {type(error).__name__}: {error}"
        raise MCPError(types.INTERNAL_ERROR, message) from error
    if len(found) > MAX_BYTES:
        message = f"{offer.name!r} is larger than {MAX_BYTES} bytes"
        raise MCPError(types.INTERNAL_ERROR, message)
    return found


def _contents(uri: str, offer: Readable, data: str | bytes) -> types.TextResourceContents | types.BlobResourceContents:
    mime_type = _optional(offer, "mime_type")
    if isinstance(data, str):
        return types.TextResourceContents(uri=uri, mime_type=mime_type or "text/plain", text=data)
    blob = base64.b64encode(data).decode("ascii")
    return types.BlobResourceContents(uri=uri, mime_type=mime_type or "application/octet-stream", blob=blob)
