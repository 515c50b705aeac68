"""How OpenAI, Anthropic and Gemini take files, and which types their models can read.

Owns: a FileService for each, written from the providers' documentation and their official clients.
Must not know: what was uploaded before, sync or async. The engine blocks or awaits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from dragoman._decoding import decode_as
from dragoman.conversation import Media
from dragoman.engines import AnyHttpEngine
from dragoman.errors import ConfigurationError, ProtocolError, ProviderError
from dragoman.providers import Provider, WireRequest
from dragoman.transport import form_with_file

Sleep = Callable[[float], Awaitable[None]]


class Uploaded(Struct, frozen=True, kw_only=True):
    """What a provider says about an uploaded file."""

    id: str
    handle: str
    expires: datetime | None = None


@dataclass(frozen=True)
class FileService(ABC):
    """The files of a provider."""

    path: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @abstractmethod
    def accepts(self, media: Media) -> bool:
        """Whether its models can read such media by reference."""

    @abstractmethod
    async def upload(self, engine: AnyHttpEngine, media: Media, name: str, sleep: Sleep) -> Uploaded:
        """Upload the bytes."""

    async def delete(self, engine: AnyHttpEngine, handle: str) -> None:
        """Delete a file. It is no error if it is gone already."""
        try:
            wire = WireRequest(path=f"{self.path}/{handle}", headers=self.headers)
            await engine.exchange(wire, method="DELETE").body()
        except ProviderError as error:
            if error.status != 404:
                raise


# --- OpenAI and Anthropic: a form ------------------------------------------------------------------------------------


class _File(Struct):
    id: str
    expires_at: float | datetime | None = None


@dataclass(frozen=True)
class FormFiles(FileService):
    """Files that are uploaded as a form with these fields; media of these types and kinds are accepted."""

    fields: dict[str, str] = field(default_factory=dict[str, str])
    types: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def accepts(self, media: Media) -> bool:
        return media.mime_type in self.types or media.kind in self.kinds

    async def upload(self, engine: AnyHttpEngine, media: Media, name: str, sleep: Sleep) -> Uploaded:
        kind, body = form_with_file(self.fields, name, media.mime_type, media.data or b"")
        wire = WireRequest(path=self.path, body=body, headers={**self.headers, "content-type": kind})
        file = decode_as(await engine.exchange(wire).body(), _File)
        expires = file.expires_at
        if isinstance(expires, int | float):
            expires = datetime.fromtimestamp(expires, UTC)
        return Uploaded(id=file.id, handle=file.id, expires=expires)


# --- Gemini: two steps -----------------------------------------------------------------------------------------------


class _GeminiFile(Struct, rename="camel"):
    name: str
    uri: str
    state: str = "ACTIVE"
    expiration_time: datetime | None = None


class _GeminiUploaded(Struct):
    file: _GeminiFile


class GeminiFiles(FileService):
    """Google keeps files for two days, and processes videos first."""

    def accepts(self, media: Media) -> bool:
        return True

    async def upload(self, engine: AnyHttpEngine, media: Media, name: str, sleep: Sleep) -> Uploaded:
        data = media.data or b""
        start = {
            "x-goog-upload-protocol": "resumable",
            "x-goog-upload-command": "start",
            "x-goog-upload-header-content-length": str(len(data)),
            "x-goog-upload-header-content-type": media.mime_type,
        }
        about = msgspec.json.encode({"file": {"displayName": name}})
        started = engine.exchange(WireRequest(path="/upload/v1beta/files", body=about, headers=start))
        await started.body()
        place = urlsplit(started.account.headers.get("x-goog-upload-url", ""))
        if not place.path:
            raise ProtocolError("gemini did not say where to upload the file.", provider="gemini")
        # Only its path: the key goes to no other host.
        path = f"{place.path}?{place.query}" if place.query else place.path
        rest = {
            "x-goog-upload-offset": "0",
            "x-goog-upload-command": "upload, finalize",
            "content-type": media.mime_type,
        }
        reply = await engine.exchange(WireRequest(path=path, body=data, headers=rest)).body()
        file = decode_as(reply, _GeminiUploaded).file
        seconds = 1.0
        while file.state == "PROCESSING":
            await sleep(seconds)
            seconds = min(seconds * 1.5, 20.0)
            reply = await engine.exchange(WireRequest(path=f"/v1beta/{file.name}"), method="GET").body()
            file = decode_as(reply, _GeminiFile)
        if file.state != "ACTIVE":
            raise ProviderError(f"gemini could not read the file {name!r} ({file.state}).", provider="gemini")
        return Uploaded(id=file.uri, handle=file.name, expires=file.expiration_time)


_OPENAI: Final = {"purpose": "user_data"}
_SERVICES: Final[dict[str, FileService]] = {
    "openai": FormFiles("/files", fields=_OPENAI, types=("application/pdf",)),
    "openai-responses": FormFiles("/files", fields=_OPENAI, types=("application/pdf",), kinds=("image", "document")),
    "anthropic": FormFiles(
        "/v1/files",
        headers={"anthropic-version": "2023-06-01", "anthropic-beta": "files-api-2025-04-14"},
        types=("image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf", "text/plain"),
    ),
    "gemini": GeminiFiles("/v1beta"),
}


def service_for(provider: Provider) -> FileService:
    """The files of a provider. Raises ConfigurationError if it has none that we know of."""
    service = _SERVICES.get(provider.name)
    if service is None:
        message = f"{provider.name} keeps no files that we know of."
        raise ConfigurationError(message, hint=f"Those that do: {', '.join(_SERVICES)}. Others get media inline.")
    return service
