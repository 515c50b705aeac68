"""An engine that uploads large media once, for a chat client.

Owns: FilesEngine and AsyncFilesEngine: uploading before a call, and again if the provider has lost a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack

from msgspec.structs import replace

from dragoman.conversation import Conversation, Media, ToolSpec
from dragoman.engines import (
    AnyHttpEngine,
    AsyncEngine,
    AsyncHttpEngine,
    BaseEngine,
    Engine,
    HttpEngine,
    Reply,
    ReplyCall,
    as_service,
)
from dragoman.errors import InvalidRequestError, PermissionDeniedError, ProviderError
from dragoman.providers import Loss, ModelOptions

from .client import INLINE_UP_TO, Core
from .stored import FileList

_REFUSED: Final = (InvalidRequestError, PermissionDeniedError)
"""The errors for a missing file; Google does not say whether it is missing or belongs to another account."""


class FilesOptions(TypedDict, total=False):
    """Options of a FilesEngine."""

    kept: FileList | str | Path | None
    """The list of uploads: a path or a FileList; by default in memory."""
    inline_up_to: int
    """The maximum size of inline media."""


class _FilesCall(ReplyCall):
    """Uploads the files of the conversation, then makes the inner call."""

    def __init__(self, core: Core, conversation: Conversation, *given: Any, stream: bool) -> None:
        super().__init__()
        self._core: Core = core
        self._conversation: Conversation = conversation
        self._given: tuple[Any, ...] = given
        self._stream: bool = stream
        self._inner: ReplyCall | None = None
        self._before: int = 0
        """The number of attempts before the inner call."""
        self._is_second: bool = False
        self._ids: frozenset[str] = frozenset()
        """Of the files that were sent, without the rest of their URLs."""

    async def advance(self) -> None:
        try:
            if self._inner is None:
                try:
                    placed = await self._core.place(self._conversation)
                except ProviderError as error:  # an upload has attempts of its own
                    self.attempts += error.attempts
                    self._before = len(self.attempts)
                    raise
                self._ids = frozenset(_ids_in(placed))
                self._inner = self._core.engine.begin(placed, *self._given, stream=self._stream, veto=self._veto)
            events = await self._inner.next()
        finally:
            self._update_attempts()
        failure = self._inner.failure
        if failure is not None:
            self.take(events[:-1])  # without the Failed event, which this call adds itself
            raise failure
        self.take(events)
        self.over = not events

    async def try_again(self, error: ProviderError) -> bool:
        """Whether the provider may have lost a file; then all are uploaded again."""
        if self._is_second or self.has_begun or not isinstance(error, _REFUSED):
            return False
        if not any(id in error.message for id in self._ids) or not self._core.forget():
            return False
        self._is_second, self._inner, self._before = True, None, len(self.attempts)
        return True

    async def release(self) -> None:
        if self._inner is not None:
            await self._inner.aclose()

    @property
    def account(self) -> Reply:
        if self._inner is None:
            return super().account
        self._update_attempts()
        return replace(self._inner.account, attempts=tuple(self.attempts))

    def _veto(self, error: ProviderError, after: float) -> str:
        self._update_attempts()
        return "" if self.veto is None else self.veto(error, after)

    def _update_attempts(self) -> None:
        """Add the attempts of the inner call, in the same list: an observer may hold it."""
        made = [] if self._inner is None else self._inner.attempts
        self.attempts[self._before :] = [replace(each, number=self._before + each.number) for each in made]


def _ids_in(conversation: Conversation) -> Iterator[str]:
    for message in conversation.messages:
        for block in message.blocks:
            if isinstance(block, Media) and block.stored is not None:
                yield block.stored[1].rpartition("/")[2]


class _FilesEngineBase(BaseEngine):
    """The work of both colours."""

    asks_others = True

    def __init__(
        self, inner: AnyHttpEngine, *, kept: FileList | str | Path | None = None, inline_up_to: int = INLINE_UP_TO
    ) -> None:
        self._core: Core = Core(inner, kept, inline_up_to)
        self.name, self.profile, self.options = inner.name, inner.profile, inner.options
        self.place, self.prices = inner.place, inner.prices

    def call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> ReplyCall:
        return _FilesCall(self._core, conversation, tools, options, stream=stream)

    def count_call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None
    ) -> ReplyCall | None:
        return self._core.engine.count_call(conversation, tools, options)  # counting uploads nothing

    def losses(self, conversation: Conversation) -> tuple[Loss, ...]:
        return self._core.engine.losses(conversation)

    def prepare_tools(self, tools: Sequence[ToolSpec]) -> object:
        return self._core.engine.prepare_tools(tools)


class FilesEngine(_FilesEngineBase, Engine):
    """An engine that uploads large media: `ChatClient(FilesEngine(engine("anthropic:…")))`."""

    def __init__(self, inner: Engine, **options: Unpack[FilesOptions]) -> None:
        self._inner: HttpEngine = as_service(inner, HttpEngine, "files")
        super().__init__(self._inner, **options)

    def close(self) -> None:
        self._inner.close()


class AsyncFilesEngine(_FilesEngineBase, AsyncEngine):
    """The async version of `FilesEngine`."""

    def __init__(self, inner: AsyncEngine, **options: Unpack[FilesOptions]) -> None:
        self._inner: AsyncHttpEngine = as_service(inner, AsyncHttpEngine, "files")
        super().__init__(self._inner, **options)

    async def aclose(self) -> None:
        await self._inner.aclose()
