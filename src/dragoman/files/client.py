"""Files at a provider: uploaded once by their content, referred to in messages, renewed when they expire, deleted.

Owns: Files and AsyncFiles, over one core; which media of a conversation are sent inline and which by reference.
Must not know: the providers' APIs (services.py), how requests are sent and retried (the engine).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, Final, Self, Unpack

from msgspec.structs import replace

from dragoman._stepping import step
from dragoman._stop import pause
from dragoman.conversation import Conversation, Media, Message, memory_of
from dragoman.engines import (
    AnyHttpEngine,
    AsyncHttpEngine,
    EngineOptions,
    HttpEngine,
    as_service,
    async_engine,
    engine,
    read_files,
    understanding,
)
from dragoman.errors import ConfigurationError
from dragoman.providers import keeper_of
from dragoman.transport import Transport

from .services import FileService, service_for
from .stored import FileList, StoredFile

INLINE_UP_TO: Final = 1 << 20
"""The default maximum size of inline media."""
_POLL_SECONDS: Final = 0.05
"""How often to check whether another upload of the same bytes is done."""
_NUMBERS: Final = count()
"""Of cores: unlike an `id` never reused, since messages may remember another account's files."""


class Core:
    """The work of both colours, over an engine that blocks or awaits."""

    def __init__(self, engine: AnyHttpEngine, kept: FileList | str | Path | None, inline_up_to: int) -> None:
        self.engine: AnyHttpEngine = engine
        self._list: FileList = kept if isinstance(kept, FileList) else FileList(kept)
        self._inline_up_to: int = inline_up_to
        self._service: FileService = service_for(engine.connection.provider)
        self._provider: str = keeper_of(engine.connection.provider.name)
        self._number: int = next(_NUMBERS)
        self._generation: int = 0
        """Changed by each deletion, which invalidates what is cached with messages."""
        self._uploads: dict[str, object] = {}
        """Who uploads what, by digest: each content is uploaded once, however many callers need it."""
        self._sleep: Any = partial(pause, blocking=isinstance(engine, HttpEngine))

    @property
    def kept(self) -> list[StoredFile]:
        """The uploaded files that are listed."""
        return self._list.all()

    async def _store(self, media: Media) -> StoredFile:
        """The file with these bytes, uploaded now if necessary."""
        data = media.data
        if data is None:
            message = "Only media with their bytes can be uploaded."
            raise ConfigurationError(message, hint="Give Media.from_path(…) or Media.from_bytes(…).")
        if not self._service.accepts(media):
            message = f"{self.engine.name} takes no {media.mime_type} by reference."
            raise ConfigurationError(message, hint="Send it inline.")
        digest, turn = sha256(media.mime_type.encode() + b"\0" + data).hexdigest(), object()
        while self._uploads.setdefault(digest, turn) is not turn:  # another caller uploads the same bytes
            await self._sleep(_POLL_SECONDS)
        try:
            known = self._list.find(self._provider, self.engine.connection.base_url, digest)
            if known is not None and known.is_there(self.engine.connection.wall_clock()):
                return known
            return await self._upload(media, data, digest)
        finally:
            del self._uploads[digest]

    async def _upload(self, media: Media, data: bytes, digest: str) -> StoredFile:
        name = media.name or f"{media.kind}.{media.mime_type.rpartition('/')[2]}"
        with understanding(self.engine, f"The reply about the file {name!r}"):
            uploaded = await self._service.upload(self.engine, media, name, self._sleep)
        file = StoredFile(
            provider=self._provider,
            base_url=self.engine.connection.base_url,
            id=uploaded.id,
            handle=uploaded.handle,
            expires=uploaded.expires,
            sha256=digest,
            mime_type=media.mime_type,
            size=len(data),
            name=media.name,
        )
        self._list.add(file)
        return file

    async def upload(self, media: Media) -> Media:
        """Upload media, unless the provider has them, and return a reference that only its models can read."""
        read = read_files(Conversation().plus(Message.user(media))).messages[0].blocks[0]
        assert isinstance(read, Media)
        return (await self._store(read)).media

    async def place(self, conversation: Conversation) -> Conversation:
        """The conversation with large media of the user replaced by references, uploaded if necessary.

        Send this one, and keep the other: it has the bytes, and so can be sent to another provider.
        """
        messages = [await self._place_message(message) for message in conversation.messages]
        changed = any(new is not old for new, old in zip(messages, conversation.messages, strict=True))
        return replace(conversation, messages=tuple(messages)) if changed else conversation

    async def _place_message(self, message: Message) -> Message:
        large = [block for block in message.blocks if isinstance(block, Media) and self._is_uploaded(block)]
        if message.role != "user" or not large:
            return message
        # Cached with the message, so that a later turn neither hashes the bytes nor encodes the message again.
        memory, key = memory_of(message), f"files {self._number} {self._generation}"
        files, placed = memory.get(key, ({}, message))
        if not files or not all(file.is_there(self.engine.connection.wall_clock()) for file in files.values()):
            files = {id(media): await self._store(media) for media in large}
            blocks = [files[id(block)].media if id(block) in files else block for block in message.blocks]
            placed = replace(message, blocks=tuple(blocks))
            memory[key] = files, placed
        return placed

    def _is_uploaded(self, media: Media) -> bool:
        return media.data is not None and len(media.data) > self._inline_up_to and self._service.accepts(media)

    async def delete(self, file: StoredFile | Media) -> None:
        """Delete a file at the provider. It is no error if it is gone already."""
        stored = self._find(file) if isinstance(file, Media) else file
        if (stored.provider, stored.base_url) != (self._provider, self.engine.connection.base_url):
            raise ConfigurationError(f"The file {stored.id} is stored by {stored.provider}.", hint="Delete it there.")
        await self._service.delete(self.engine, stored.handle)
        self._list.remove(stored)
        self._generation += 1

    def _find(self, media: Media) -> StoredFile:
        for file in self._list.all():
            if media.stored == (file.provider, file.id):
                return file
        raise ConfigurationError("This file was not uploaded from here.", hint="Give what `upload` returned.")

    def forget(self) -> bool:
        """Forget all uploads to this provider. Returns whether there were any."""
        place = (self._provider, self.engine.connection.base_url)
        own = [file for file in self._list.all() if (file.provider, file.base_url) == place]
        for file in own:
            self._list.remove(file)
        self._generation += 1
        return bool(own)


class Files:
    """The files of a provider: `with Files("anthropic:claude-sonnet-4-5") as files: …`.

    model          a name, with the options of an engine (`key`, `base_url` …), or an HttpEngine
    kept           the list of uploads: a path or a FileList; by default in memory
    inline_up_to   the maximum size of media that `place` leaves in the conversation
    """

    def __init__(
        self,
        model: str | HttpEngine,
        *,
        kept: FileList | str | Path | None = None,
        inline_up_to: int = INLINE_UP_TO,
        transport: Transport | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        made = engine(model, transport=transport, **options) if isinstance(model, str) else model
        self._close: Callable[[], None] | None = made.close if isinstance(model, str) else None
        self._core: Core = Core(as_service(made, HttpEngine, "files"), kept, inline_up_to)

    def upload(self, media: Media) -> Media:
        """Upload media, unless the provider has them, and return a reference that only its models can read."""
        return step(self._core.upload(media))

    def place(self, conversation: Conversation) -> Conversation:
        """The conversation with large media of the user replaced by references, uploaded if necessary.

        Send this one, and keep the other: it has the bytes, and so can be sent to another provider.
        """
        return step(self._core.place(conversation))

    def delete(self, file: StoredFile | Media) -> None:
        """Delete a file at the provider. It is no error if it is gone already."""
        step(self._core.delete(file))

    @property
    def kept(self) -> list[StoredFile]:
        """The uploaded files that are listed."""
        return self._core.kept

    def close(self) -> None:
        """Close the connections. Files stay at the provider."""
        if self._close is not None:
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class AsyncFiles(Core):
    """The async version of `Files`."""

    def __init__(
        self,
        model: str | AsyncHttpEngine,
        *,
        kept: FileList | str | Path | None = None,
        inline_up_to: int = INLINE_UP_TO,
        transport: Transport | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        made = async_engine(model, transport=transport, **options) if isinstance(model, str) else model
        self._close: Callable[[], Any] | None = made.aclose if isinstance(model, str) else None
        super().__init__(as_service(made, AsyncHttpEngine, "files"), kept, inline_up_to)

    async def aclose(self) -> None:
        """Close the connections. Files stay at the provider."""
        if self._close is not None:
            await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()
