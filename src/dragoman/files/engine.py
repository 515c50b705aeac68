"""An engine whose large media go to the provider once: what a chat client is given in place of the engine itself.

Owns: FilesEngine and AsyncFilesEngine: uploading before a call, and once more if the provider has lost a file.
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
"""What a file that is gone is answered with; Google does not say whether it is gone or somebody else's."""


class FilesOptions(TypedDict, total=False):
    """How files are kept."""

    kept: FileList | str | Path | None
    """Where it is written down what was uploaded: a path or a FileList; in memory where nothing is said."""
    inline_up_to: int
    """Bytes up to which media go along with every request."""


class _FilesCall(ReplyCall):
    """A call that is made once the files of its conversation are there; the rest is the inner call's."""

    def __init__(self, core: Core, conversation: Conversation, *given: Any, stream: bool) -> None:
        super().__init__()
        self._core: Core = core
        self._conversation: Conversation = conversation
        self._given: tuple[Any, ...] = given
        self._stream: bool = stream
        self._inner: ReplyCall | None = None
        self._before: int = 0
        """How many attempts were made before the inner call."""
        self._is_second: bool = False
        self._ids: frozenset[str] = frozenset()
        """Of the files that were sent, without what stands before them in an address."""

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
                self._inner = self._core.engine.begin(placed, *self._given, stream=self._stream, veto=self._may_not)
            events = await self._inner.next()
        finally:
            self._take_attempts()
        failure = self._inner.failure
        if failure is not None:
            self.take(events[:-1])  # without the event of the failure, which this call has itself
            raise failure
        self.take(events)
        self.over = not events

    async def try_again(self, error: ProviderError) -> bool:
        """Whether the provider may have lost a file, as by another program's hand; then all are uploaded once more."""
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
        self._take_attempts()
        return replace(self._inner.account, attempts=tuple(self.attempts))

    def _may_not(self, error: ProviderError, after: float) -> str:
        self._take_attempts()
        return "" if self.veto is None else self.veto(error, after)

    def _take_attempts(self) -> None:
        """Put what the inner call has tried into the ledger, which whoever observes this call holds."""
        made = [] if self._inner is None else self._inner.attempts
        self.attempts[self._before :] = [replace(each, number=self._before + each.number) for each in made]


def _ids_in(conversation: Conversation) -> Iterator[str]:
    for message in conversation.messages:
        for block in message.blocks:
            if isinstance(block, Media) and block.stored is not None:
                yield block.stored[1].rpartition("/")[2]


class _OverFiles(BaseEngine):
    """What both colours have in common: all but closing is the inner engine's, once the files are there."""

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
        return self._core.engine.count_call(conversation, tools, options)  # inline: to count uploads nothing

    def losses(self, conversation: Conversation) -> tuple[Loss, ...]:
        return self._core.engine.losses(conversation)

    def prepare_tools(self, tools: Sequence[ToolSpec]) -> object:
        return self._core.engine.prepare_tools(tools)


class FilesEngine(_OverFiles, Engine):
    """An engine over another one, for a plain program: `ChatClient(FilesEngine(engine("anthropic:…")))`."""

    def __init__(self, inner: Engine, **options: Unpack[FilesOptions]) -> None:
        self._inner: HttpEngine = as_service(inner, HttpEngine, "files")
        super().__init__(self._inner, **options)

    def close(self) -> None:
        self._inner.close()


class AsyncFilesEngine(_OverFiles, AsyncEngine):
    """`FilesEngine` for a program on an event loop."""

    def __init__(self, inner: AsyncEngine, **options: Unpack[FilesOptions]) -> None:
        self._inner: AsyncHttpEngine = as_service(inner, AsyncHttpEngine, "files")
        super().__init__(self._inner, **options)

    async def aclose(self) -> None:
        await self._inner.aclose()
