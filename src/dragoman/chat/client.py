"""The chat clients: signatures over one core, which ChatClient steps and AsyncChatClient awaits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, Unpack, cast, overload

import dragoman.stores
from dragoman._stepping import step
from dragoman.conversation import Event
from dragoman.engines import AsyncEngine, Engine, EngineOptions, Models, made_here
from dragoman.loop import AsyncIO, AsyncRunStream, LoopRun, PlainIO, RunResult, RunStream
from dragoman.providers import Loss
from dragoman.tools import Approval
from dragoman.transport import Transport

from . import later
from .core import ChatCore
from .options import CallOptions, ChatOptions, TurnOptions, check_store, find_engine, options_of_fork
from .turns import Prompt

if TYPE_CHECKING:
    from dragoman.stores import AsyncConversationStore, ConversationStore, Snapshot
    from dragoman.tools import AnyTools

    from .answers import AnswerType, AsyncTypedStream, TypedResult, TypedStream

T = TypeVar("T")

ChatStream: TypeAlias = RunStream
AsyncChatStream: TypeAlias = AsyncRunStream
OnEvent = Callable[[Event], object]
"""Called with each event. Returning False stops the turn; an exception stops it with that error."""


class ChatClient(ChatCore[Engine]):
    """A conversation with a model that may call tools.

    A client holds one conversation and serves one caller at a time; a second call meanwhile raises ConcurrentUseError.
    With `stateless=True` it keeps no history, and any number of threads may share it.
    """

    _make_io = PlainIO

    def __init__(
        self,
        model: Engine | Models[Engine],
        tools: AnyTools = (),
        *,
        store: ConversationStore | None = None,
        transport: Transport | None = None,
        **options: Unpack[ChatOptions],
    ) -> None:
        kept = None
        if store is not None:
            check_store(store, plain=True)
            kept = dragoman.stores.BlockingStore(store)  # loaded only now
        found = find_engine(model, transport, options, Engine)
        super().__init__(found, tools, options, kept, owned=made_here(found, model))
        self._store = store

    # --- turns ---

    @overload
    def chat(
        self, prompt: Prompt | None = None, *, answer: type[T] | AnswerType[T], **given: Unpack[TurnOptions]
    ) -> TypedResult[T]: ...
    @overload
    def chat(self, prompt: Prompt | None = None, *, answer: None = None, **given: Unpack[TurnOptions]) -> RunResult: ...
    @overload
    def chat(
        self, prompt: Prompt | None = None, *, answer: object, **given: Unpack[TurnOptions]
    ) -> TypedResult[Any]: ...
    def chat(self, prompt: Prompt | None = None, *, answer: object = None, **given: Unpack[TurnOptions]) -> RunResult:
        """Send a message, let the model use its tools, and return its answer; `str()` of the result is the text.

        Without a prompt the conversation continues where it stopped: after an approval, a limit, an error or a crash.
        Options given here apply to this turn only. With `answer`, a type as in `ask`, the turn ends with a value of
        that type: `result.answer`.
        """
        return step(self._chat(prompt, given, answer))

    def resume(self, *approvals: Approval) -> RunResult:
        """Continue the conversation with these answers to pending calls."""
        return self.chat(approvals=approvals)

    @overload
    def stream_chat(
        self,
        prompt: Prompt | None = None,
        callback: None = None,
        *,
        answer: type[T] | AnswerType[T],
        **given: Unpack[TurnOptions],
    ) -> TypedStream[T]: ...
    @overload
    def stream_chat(
        self, prompt: Prompt | None = None, callback: None = None, *, answer: None = None, **given: Unpack[TurnOptions]
    ) -> ChatStream: ...
    @overload
    def stream_chat(
        self, prompt: Prompt | None = None, callback: None = None, *, answer: object, **given: Unpack[TurnOptions]
    ) -> TypedStream[Any]: ...
    @overload
    def stream_chat(
        self, prompt: Prompt | None, callback: OnEvent, *, answer: type[T] | AnswerType[T], **given: Unpack[TurnOptions]
    ) -> TypedResult[T]: ...
    @overload
    def stream_chat(
        self, prompt: Prompt | None, callback: OnEvent, *, answer: None = None, **given: Unpack[TurnOptions]
    ) -> RunResult: ...
    @overload
    def stream_chat(
        self, prompt: Prompt | None, callback: OnEvent, *, answer: object, **given: Unpack[TurnOptions]
    ) -> TypedResult[Any]: ...
    def stream_chat(
        self,
        prompt: Prompt | None = None,
        callback: OnEvent | None = None,
        *,
        answer: object = None,
        **given: Unpack[TurnOptions],
    ) -> ChatStream | RunResult:
        """`chat` as a stream of events: iterate it in a `with` block.

        A callback is called with each event instead and may stop the turn; the result is returned.
        """
        begun: list[LoopRun] = []
        judge = None if answer is None else self._make_judge(answer, given)
        events = self._turn(partial(self._begin_turn, prompt, given, judge), begun, streamed=True)
        if judge is None:
            stream = ChatStream(begun, events)
        else:
            stream = later.TypedStream[Any](begun, later.grow(events, judge.wanted))
        if callback is None:
            return stream
        with stream:
            for event in stream:
                if callback(event) is False:
                    break
        return stream.result

    @overload
    def ask(self, question: Prompt, answer: type[T] | AnswerType[T], **given: Unpack[CallOptions]) -> T: ...
    @overload
    def ask(self, question: Prompt, answer: object = None, **given: Unpack[CallOptions]) -> Any: ...
    def ask(self, question: Prompt, answer: object = None, **given: Unpack[CallOptions]) -> object:
        """Ask for an answer of a type: a dataclass, TypedDict, Struct, pydantic model, list, number … or a JSON Schema.

        The model gets no tools, and the schema applies to this question only. The answer joins the history. An
        invalid answer is sent back with its problems, once or `retries` times; then InvalidAnswerError has the text.
        """
        return step(self._ask(question, answer, given))

    # --- saving ---

    def save(self) -> Snapshot:
        """A snapshot of the conversation; it is saved to the store, if the client has one."""
        return step(self._save())

    def restore(self, saved: Snapshot | str) -> tuple[Loss, ...]:
        """Continue a saved conversation. Returns what this client's model will not get of it.

        An id loads the newest state from the store, up to the last step before a crash; see `pending` and `uncertain`.
        A Snapshot restores exactly that point: one that is not the newest in the store starts a new conversation.
        """
        return step(self._restore(saved))

    # --- other models, forks, the end ---

    def switch(
        self, model: Engine | Models[Engine], *, transport: Transport | None = None, **options: Unpack[EngineOptions]
    ) -> tuple[Loss, ...]:
        """Continue with another model. Returns what it will not get of the history; `strict=True` raises instead."""
        with self._claimed():
            found = find_engine(model, transport, options, Engine, but=("strict",))
            return step(self._switch(found, options, owned=made_here(found, model)))

    def fork(self) -> ChatClient:
        """A new client that starts with a copy of this conversation."""
        with self._claimed():
            own = self._runtimes[None]
            store = cast("ConversationStore | None", self._store)
            twin = ChatClient(own.lease.engine, own.executor.tools, store=store, **options_of_fork(own.options))
            self._fork_into(twin)
            return twin

    def close(self) -> None:
        """Stop the current turn, end the tools' threads, and close the connections unless a fork still needs them."""
        step(self._close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class AsyncChatClient(ChatCore[AsyncEngine]):
    """A conversation with a model that may call tools: ChatClient for programs on an event loop."""

    _make_io = AsyncIO

    def __init__(
        self,
        model: AsyncEngine | Models[AsyncEngine],
        tools: AnyTools = (),
        *,
        store: AsyncConversationStore | None = None,
        transport: Transport | None = None,
        **options: Unpack[ChatOptions],
    ) -> None:
        if store is not None:
            check_store(store, plain=False)
        found = find_engine(model, transport, options, AsyncEngine)
        super().__init__(found, tools, options, store, owned=made_here(found, model))
        self._store = store

    # --- turns ---

    @overload
    async def chat(
        self, prompt: Prompt | None = None, *, answer: type[T] | AnswerType[T], **given: Unpack[TurnOptions]
    ) -> TypedResult[T]: ...
    @overload
    async def chat(
        self, prompt: Prompt | None = None, *, answer: None = None, **given: Unpack[TurnOptions]
    ) -> RunResult: ...
    @overload
    async def chat(
        self, prompt: Prompt | None = None, *, answer: object, **given: Unpack[TurnOptions]
    ) -> TypedResult[Any]: ...
    async def chat(
        self, prompt: Prompt | None = None, *, answer: object = None, **given: Unpack[TurnOptions]
    ) -> RunResult:
        """Send a message, let the model use its tools, and return its answer; `str()` of the result is the text.

        Without a prompt the conversation continues where it stopped: after an approval, a limit, an error or a crash.
        Options given here apply to this turn only. With `answer`, a type as in `ask`, the turn ends with a value of
        that type: `result.answer`.
        """
        return await self._chat(prompt, given, answer)

    async def resume(self, *approvals: Approval) -> RunResult:
        """Continue the conversation with these answers to pending calls."""
        return await self.chat(approvals=approvals)

    @overload
    def stream_chat(
        self,
        prompt: Prompt | None = None,
        callback: None = None,
        *,
        answer: type[T] | AnswerType[T],
        **given: Unpack[TurnOptions],
    ) -> AsyncTypedStream[T]: ...
    @overload
    def stream_chat(
        self, prompt: Prompt | None = None, callback: None = None, *, answer: None = None, **given: Unpack[TurnOptions]
    ) -> AsyncChatStream: ...
    @overload
    def stream_chat(
        self, prompt: Prompt | None = None, callback: None = None, *, answer: object, **given: Unpack[TurnOptions]
    ) -> AsyncTypedStream[Any]: ...
    @overload
    def stream_chat(
        self, prompt: Prompt | None, callback: OnEvent, *, answer: type[T] | AnswerType[T], **given: Unpack[TurnOptions]
    ) -> Awaitable[TypedResult[T]]: ...
    @overload
    def stream_chat(
        self, prompt: Prompt | None, callback: OnEvent, *, answer: None = None, **given: Unpack[TurnOptions]
    ) -> Awaitable[RunResult]: ...
    @overload
    def stream_chat(
        self, prompt: Prompt | None, callback: OnEvent, *, answer: object, **given: Unpack[TurnOptions]
    ) -> Awaitable[TypedResult[Any]]: ...
    def stream_chat(
        self,
        prompt: Prompt | None = None,
        callback: OnEvent | None = None,
        *,
        answer: object = None,
        **given: Unpack[TurnOptions],
    ) -> AsyncChatStream | Awaitable[RunResult]:
        """`chat` as a stream of events: iterate it in an `async with` block.

        A callback, sync or async, is called with each event instead and may stop the turn; await the result.
        """
        begun: list[LoopRun] = []
        judge = None if answer is None else self._make_judge(answer, given)
        events = self._turn(partial(self._begin_turn, prompt, given, judge), begun, streamed=True)
        if judge is None:
            stream = AsyncChatStream(begun, events)
        else:
            stream = later.AsyncTypedStream[Any](begun, later.grow(events, judge.wanted))
        return stream if callback is None else _called_back(stream, callback)

    @overload
    async def ask(self, question: Prompt, answer: type[T] | AnswerType[T], **given: Unpack[CallOptions]) -> T: ...
    @overload
    async def ask(self, question: Prompt, answer: object = None, **given: Unpack[CallOptions]) -> Any: ...
    async def ask(self, question: Prompt, answer: object = None, **given: Unpack[CallOptions]) -> object:
        """Ask for an answer of a type: a dataclass, TypedDict, Struct, pydantic model, list, number … or a JSON Schema.

        The model gets no tools, and the schema applies to this question only. The answer joins the history. An
        invalid answer is sent back with its problems, once or `retries` times; then InvalidAnswerError has the text.
        """
        return await self._ask(question, answer, given)

    # --- saving ---

    async def save(self) -> Snapshot:
        """A snapshot of the conversation; it is saved to the store, if the client has one."""
        return await self._save()

    async def restore(self, saved: Snapshot | str) -> tuple[Loss, ...]:
        """Continue a saved conversation. Returns what this client's model will not get of it.

        An id loads the newest state from the store, up to the last step before a crash; see `pending` and `uncertain`.
        A Snapshot restores exactly that point: one that is not the newest in the store starts a new conversation.
        """
        return await self._restore(saved)

    # --- other models, forks, the end ---

    async def switch(
        self,
        model: AsyncEngine | Models[AsyncEngine],
        *,
        transport: Transport | None = None,
        **options: Unpack[EngineOptions],
    ) -> tuple[Loss, ...]:
        """Continue with another model. Returns what it will not get of the history; `strict=True` raises instead."""
        with self._claimed():
            found = find_engine(model, transport, options, AsyncEngine, but=("strict",))
            return await self._switch(found, options, owned=made_here(found, model))

    async def fork(self) -> AsyncChatClient:
        """A new client that starts with a copy of this conversation."""
        with self._claimed():
            own = self._runtimes[None]
            store = cast("AsyncConversationStore | None", self._store)
            twin = AsyncChatClient(own.lease.engine, own.executor.tools, store=store, **options_of_fork(own.options))
            self._fork_into(twin)
            return twin

    async def aclose(self) -> None:
        """Stop the current turn, end the tools' threads, and close the connections unless a fork still needs them."""
        await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()


async def _called_back(stream: AsyncChatStream, callback: OnEvent) -> RunResult:
    async with stream:
        async for event in stream:
            answer = callback(event)
            if (await answer if isinstance(answer, Awaitable) else answer) is False:
                break
    return stream.result
