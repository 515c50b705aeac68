"""How OpenAI, Anthropic and Gemini take files, and which of them their models can read.

Owns: a FileService for each. Written from the providers' documentation and their official clients.
Must not know: what was uploaded before, colours. The engine blocks or awaits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from dragoman.conversation import Media
from dragoman.engines import AnyHttpEngine
from dragoman.errors import ConfigurationError, ProtocolError, ProviderError
from dragoman.providers import Provider, WireRequest
from dragoman.transport import form_with_file

Sleep = Callable[[float], Awaitable[None]]


class Kept(Struct, frozen=True, kw_only=True):
    """What a provider says of a file that it has taken."""

    id: str
    handle: str
    expires: datetime | None = None


class FileService(ABC):
    """A provider's files."""

    @abstractmethod
    def takes(self, media: Media) -> bool:
        """Whether its models can read such media by reference."""

    @abstractmethod
    async def upload(self, engine: AnyHttpEngine, media: Media, name: str, sleep: Sleep) -> Kept:
        """Hand the bytes in."""

    @abstractmethod
    async def delete(self, engine: AnyHttpEngine, handle: str) -> None:
        """Have it forgotten. One that is gone already is no error."""


async def _delete(engine: AnyHttpEngine, path: str, headers: Mapping[str, str] | None = None) -> None:
    try:
        await engine.exchange(WireRequest(path=path, headers=headers or {}), method="DELETE").body()
    except ProviderError as error:
        if error.status != 404:
            raise


class _OpenAIFile(Struct):
    id: str
    expires_at: float | None = None


class OpenAIFiles(FileService):
    """`/files` of OpenAI. Chat completions take documents by reference, responses pictures, too."""

    def __init__(self, *, pictures: bool) -> None:
        self._pictures: bool = pictures

    def takes(self, media: Media) -> bool:
        return media.mime_type == "application/pdf" or (self._pictures and media.kind in ("image", "document"))

    async def upload(self, engine: AnyHttpEngine, media: Media, name: str, sleep: Sleep) -> Kept:
        kind, body = form_with_file({"purpose": "user_data"}, name, media.mime_type, media.data or b"")
        said = await engine.exchange(WireRequest(path="/files", body=body, headers={"content-type": kind})).body()
        file = msgspec.json.decode(said, type=_OpenAIFile)
        expires = None if file.expires_at is None else datetime.fromtimestamp(file.expires_at, UTC)
        return Kept(id=file.id, handle=file.id, expires=expires)

    async def delete(self, engine: AnyHttpEngine, handle: str) -> None:
        await _delete(engine, f"/files/{handle}")


_CLAUDE: Final = {"anthropic-version": "2023-06-01", "anthropic-beta": "files-api-2025-04-14"}
_CLAUDE_TYPES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf", "text/plain")


class _ClaudeFile(Struct):
    id: str
    expires_at: datetime | None = None


class AnthropicFiles(FileService):
    """`/v1/files`."""

    def takes(self, media: Media) -> bool:
        return media.mime_type in _CLAUDE_TYPES

    async def upload(self, engine: AnyHttpEngine, media: Media, name: str, sleep: Sleep) -> Kept:
        kind, body = form_with_file({}, name, media.mime_type, media.data or b"")
        wire = WireRequest(path="/v1/files", body=body, headers={**_CLAUDE, "content-type": kind})
        said = await engine.exchange(wire).body()
        file = msgspec.json.decode(said, type=_ClaudeFile)
        return Kept(id=file.id, handle=file.id, expires=file.expires_at)

    async def delete(self, engine: AnyHttpEngine, handle: str) -> None:
        await _delete(engine, f"/v1/files/{handle}", _CLAUDE)


class _GeminiFile(Struct, rename="camel"):
    name: str
    uri: str
    state: str = "ACTIVE"
    expiration_time: datetime | None = None


class _GeminiUploaded(Struct):
    file: _GeminiFile


class GeminiFiles(FileService):
    """`/upload/v1beta/files`, in two steps. Google forgets files after two days, and looks through films first."""

    def takes(self, media: Media) -> bool:
        return True

    async def upload(self, engine: AnyHttpEngine, media: Media, name: str, sleep: Sleep) -> Kept:
        data = media.data or b""
        start = {
            "x-goog-upload-protocol": "resumable",
            "x-goog-upload-command": "start",
            "x-goog-upload-header-content-length": str(len(data)),
            "x-goog-upload-header-content-type": media.mime_type,
        }
        asked = msgspec.json.encode({"file": {"displayName": name}})
        begun = engine.exchange(WireRequest(path="/upload/v1beta/files", body=asked, headers=start))
        await begun.body()
        place = urlsplit(begun.account.headers.get("x-goog-upload-url", ""))
        if not place.path:
            raise ProtocolError("gemini did not say where the file goes.", provider="gemini")
        # Whatever host it names: the key goes to the one that we know.
        path = f"{place.path}?{place.query}" if place.query else place.path
        rest = {
            "x-goog-upload-offset": "0",
            "x-goog-upload-command": "upload, finalize",
            "content-type": media.mime_type,
        }
        said = await engine.exchange(WireRequest(path=path, body=data, headers=rest)).body()
        file = msgspec.json.decode(said, type=_GeminiUploaded).file
        seconds = 1.0
        while file.state == "PROCESSING":
            await sleep(seconds)
            seconds = min(seconds * 1.5, 20.0)
            said = await engine.exchange(WireRequest(path=f"/v1beta/{file.name}"), method="GET").body()
            file = msgspec.json.decode(said, type=_GeminiFile)
        if file.state != "ACTIVE":
            raise ProviderError(f"gemini could not read the file {name!r} ({file.state}).", provider="gemini")
        return Kept(id=file.uri, handle=file.name, expires=file.expiration_time)

    async def delete(self, engine: AnyHttpEngine, handle: str) -> None:
        await _delete(engine, f"/v1beta/{handle}")


_SERVICES: Final[dict[str, FileService]] = {
    "openai": OpenAIFiles(pictures=False),
    "openai-responses": OpenAIFiles(pictures=True),
    "anthropic": AnthropicFiles(),
    "gemini": GeminiFiles(),
}


def service_for(provider: Provider) -> FileService:
    """The files of a provider. Raises ConfigurationError if it keeps none that we know of."""
    service = _SERVICES.get(provider.name)
    if service is None:
        message = f"{provider.name} keeps no files that we know of."
        raise ConfigurationError(message, hint=f"Those that do: {', '.join(_SERVICES)}. Others get media inline.")
    return service
