"""The chat client for programs on an event loop: signatures over the one core, which is awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, Unpack, overload

from dragoman.conversation import Event
from dragoman.engines import AsyncEngine, EngineOptions
from dragoman.loop import AsyncIO, AsyncRunStream, LoopRun, RunResult
from dragoman.providers import Loss
from dragoman.tools import AnyTools, Approval
from dragoman.transport import Transport

from .core import ChatCore
from .options import ChatOptions, Prompt, QuestionOptions, TurnOptions, check_store, drop_engine_options, find_engine

if TYPE_CHECKING:
    from dragoman.stores import AsyncConversationStore, Snapshot

    from .answers import AnswerType

T = TypeVar("T")

AsyncChatStream: TypeAlias = AsyncRunStream
OnEvent = Callable[[Event], object]
"""Is told of each event. Returning False stops the turn quietly; raising stops it with the error."""


class AsyncChatClient(ChatCore[AsyncEngine]):
    """A conversation with a model that may call tools, for programs on an event loop.

    One client holds one conversation and serves one caller at a time; a second call meanwhile is a ConcurrentUseError.
    With `stateless=True` it keeps no history and may be shared by any number of tasks.
    """

    _make_io = AsyncIO

    def __init__(
        self,
        model: str | AsyncEngine,
        tools: AnyTools = (),
        *,
        store: AsyncConversationStore | None = None,
        transport: Transport | None = None,
        **options: Unpack[ChatOptions],
    ) -> None:
        if store is not None:
            check_store(store, plain=False)
        found = find_engine(model, transport, options, AsyncEngine)
        super().__init__(found, tools, options, store, owned=isinstance(model, str))
        self._store: AsyncConversationStore | None = store

    # --- talking ---

    async def chat(self, prompt: Prompt | None = None, **given: Unpack[TurnOptions]) -> RunResult:
        """Say something, let the model use its tools, and get its answer; `str()` of the result is the text.

        Without a prompt the conversation goes on from where it stands: after an approval, a limit, an error or a crash.
        What is given here holds for this turn alone.
        """
        return await self._chat(prompt, given)

    async def resume(self, *approvals: Approval) -> RunResult:
        """Go on from where the conversation stands, with these answers about pending calls."""
        return await self.chat(approvals=approvals)

    @overload
    def stream_chat(
        self, prompt: Prompt | None = None, callback: None = None, **given: Unpack[TurnOptions]
    ) -> AsyncChatStream: ...
    @overload
    def stream_chat(
        self, prompt: Prompt | None, callback: OnEvent, **given: Unpack[TurnOptions]
    ) -> Awaitable[RunResult]: ...
    def stream_chat(
        self, prompt: Prompt | None = None, callback: OnEvent | None = None, **given: Unpack[TurnOptions]
    ) -> AsyncChatStream | Awaitable[RunResult]:
        """`chat`, with everything that happens as it happens: iterate the stream in an `async with` block.

        With a callback, plain or async, that is told of each event and may stop the turn; await the result.
        """
        begun: list[LoopRun] = []
        stream = AsyncChatStream(begun, self._turn(prompt, given, begun, streamed=True))
        return stream if callback is None else _called_back(stream, callback)

    @overload
    async def ask(self, question: Prompt, answer: type[T] | AnswerType[T], **given: Unpack[QuestionOptions]) -> T: ...
    @overload
    async def ask(self, question: Prompt, answer: object = None, **given: Unpack[QuestionOptions]) -> Any: ...
    async def ask(self, question: Prompt, answer: object = None, **given: Unpack[QuestionOptions]) -> object:
        """Ask for an answer of a type: a dataclass, TypedDict, Struct, pydantic model, list, number … or a JSON Schema.

        No tools are used, and the schema holds for this question alone. The answer joins the history. One that does not
        fit is shown its problems and asked for again, once or `retries` times; then InvalidAnswerError has the text.
        """
        return await self._ask(question, answer, given)

    # --- keeping ---

    async def save(self) -> Snapshot:
        """The conversation as it stands, as a snapshot; in the store too, if the client has one."""
        return await self._save()

    async def restore(self, saved: Snapshot | str) -> tuple[Loss, ...]:
        """Go on with a saved conversation; what this client's model will not get of it is returned.

        By an id, the store is asked for the newest state of that conversation, up to the last step before a crash; see
        `pending` and `uncertain`. A Snapshot is that very point: going on from one that is not the newest in the store
        begins a conversation of its own.
        """
        return await self._restore(saved)

    # --- changing ---

    async def switch(
        self, model: str | AsyncEngine, *, transport: Transport | None = None, **options: Unpack[EngineOptions]
    ) -> tuple[Loss, ...]:
        """Go on with another model; what it will not get of the history is returned, or with strict=True refused."""
        with self._claimed():
            found = find_engine(model, transport, options, AsyncEngine, but=("strict",))
            return await self._switch(found, options, owned=isinstance(model, str))

    async def fork(self) -> AsyncChatClient:
        """A client with a conversation of its own that begins like this one; both go their own ways."""
        with self._claimed():
            given = drop_engine_options(self._options)
            twin = AsyncChatClient(self.engine, self.tools.tools, store=self._store, **given)
            self._fork_into(twin)
            return twin

    async def aclose(self) -> None:
        """End the threads of the tools and close the connections, unless a fork still needs them.

        A turn under way is stopped.
        """
        await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()


async def _called_back(stream: AsyncChatStream, callback: OnEvent) -> RunResult:
    async with stream:
        async for event in stream:
            said = callback(event)
            if (await said if isawaitable(said) else said) is False:
                break
    return stream.result
