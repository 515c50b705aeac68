"""Engines: get a model's reply to a conversation.

Owns: Engine and AsyncEngine, and the streams of a reply.
Must not know: the loop, the code of tools, stores. Tool calls in a reply are left as they are.

A subclass implements one method, `call`, which prepares a ReplyCall (call.py).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, cast, overload

from msgspec import Struct, structs

import dragoman._observer
import dragoman.providers
from dragoman._checks import of_unmade
from dragoman._stepping import step
from dragoman.conversation import Conversation, Message, ReplyEvent, ToolSpec, unfold
from dragoman.errors import ConfigurationError, InvalidRequestError, LossyConversionError
from dragoman.providers import (
    Loss,
    ModelOptions,
    Profile,
    ToolLimits,
)

from .call import Reply, ReplyCall, Veto
from .observed import ObservedCall

if TYPE_CHECKING:
    from dragoman.providers import Prices, TokenCount


def lossy(name: str, losses: tuple[Loss, ...]) -> LossyConversionError:
    """The error for `strict=True` if the model would not get all of the conversation."""
    more = f" (and {len(losses) - 1} more)" if losses[1:] else ""
    message = f"{name} would not get all of the conversation: {losses[0]}{more}."
    return LossyConversionError(message, losses=tuple(map(str, losses)))


class MessageCall(ReplyCall):
    """A call answered with a whole message: by a script, or an object that only has `run_inference`."""

    def __init__(self, answer: Callable[[], Awaitable[Message]], *, piece: int | None = None) -> None:
        super().__init__()
        self._answer: Callable[[], Awaitable[Message]] = answer
        self._piece: int | None = piece
        self._events: Iterator[ReplyEvent] | None = None

    async def reply(self) -> Reply:
        return Reply(message=await self._answer())

    async def advance(self) -> None:
        if self._events is None:
            self._events = unfold(await self._answer(), piece=self._piece)
        event = next(self._events, None)
        self.over = event is None
        self.take([] if event is None else [event])


# --- engines ----------------------------------------------------------------------------------------------------------


class ToolFeatures(Struct, frozen=True, kw_only=True):
    """What a model can do with tools."""

    supports_tools: bool
    supports_parallel_calls: bool
    supports_tool_choice: bool
    supports_strict: bool
    supports_streaming: bool
    supports_media_results: bool
    supported_choices: frozenset[str]
    limits: ToolLimits


class BaseEngine:
    """What sync and async engines share. A subclass sets `name` and overrides what differs."""

    name: str
    """As in `provider:model`."""
    profile: Profile = Profile(provider="other", dialect="other")
    """What the model can do."""
    options: ModelOptions = ModelOptions()
    """The default options of a call."""
    asks_others: bool = False
    """Whether it only forwards calls to other engines, which are observed themselves."""
    place: tuple[object, ...] | None = None
    """Distinguishes engines of the same name, for example by address; None: unique."""
    prices: Prices | None = None
    """Prices that override the table."""

    @property
    def known_prices(self) -> Prices | None:
        """The prices that were set, else those of the table; None if unknown."""
        if self.prices is not None:
            return self.prices
        return dragoman.providers.prices_of(*self._address, time=datetime.now(UTC))

    @property
    def priced(self) -> bool:
        """Whether the model's prices are known."""
        return self.known_prices is not None

    @property
    def context_window(self) -> int | None:
        """The model's context window in tokens, from its profile or the table; None if unknown."""
        known = self.profile.context_window
        return dragoman.providers.window_of(*self._address) if known is None else known

    @property
    def _address(self) -> tuple[str, str]:
        provider, _, model = self.name.partition(":")
        return provider, model

    def call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> ReplyCall:
        """Prepare a call. Raises before anything is sent if it is impossible."""
        raise NotImplementedError

    def begin(
        self,
        conversation: Conversation,
        tools: Sequence[ToolSpec],
        options: ModelOptions | None,
        *,
        stream: bool,
        veto: Veto | None = None,
    ) -> ReplyCall:
        """`call`, reported to the observer if there is one."""
        call, observing = self.call(conversation, tools, options, stream=stream), dragoman._observer.current
        if veto is not None:
            call.veto = veto
        if observing is None or self.asks_others:
            return call
        return ObservedCall(call, observing.model_call(self, conversation, tools, options, stream=stream))

    def count_call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None
    ) -> ReplyCall | None:
        """A call whose reply only reports how many input tokens the model would read.

        None: the provider has no such endpoint, and the number is estimated.
        """
        return None

    async def _count(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None
    ) -> TokenCount:
        call = self.count_call(conversation, tools, options)
        try:
            usage = None if call is None else (await call.reply()).message.usage
        except InvalidRequestError as error:
            if not dragoman.providers.cannot_count(error):
                raise
            usage = None
        if usage is None or usage.input is None:
            tokens = dragoman.providers.estimated_tokens(conversation, tools)
            return dragoman.providers.TokenCount(tokens=tokens, source="estimate")
        return dragoman.providers.TokenCount(tokens=usage.input, source="provider")

    def losses(self, conversation: Conversation) -> tuple[Loss, ...]:
        """What the model would not get of the conversation, or would get in another form; nothing is sent."""
        return ()

    def prepare_tools(self, tools: Sequence[ToolSpec]) -> object:
        """The tools in the provider's format, as JSON data; nothing is sent."""
        raise NotImplementedError

    @property
    def features(self) -> ToolFeatures:
        """What the model can do with tools."""
        profile = self.profile
        return ToolFeatures(
            supports_tools=profile.tools,
            supports_parallel_calls=profile.tools and profile.parallel_tool_calls,
            supports_tool_choice=profile.tools and len(profile.tool_choices) > 1,
            supports_strict=profile.strict_tools,
            supports_streaming=True,
            supports_media_results=bool(profile.tool_result_media),
            supported_choices=profile.tool_choices if profile.tools else frozenset(),
            limits=profile.tool_limits,
        )

    @of_unmade
    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class Engine(BaseEngine):
    """A model, for a sync program. A subclass sets `name` and implements `call`, or only `run_inference`."""

    def run_inference(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Conversation:
        """The conversation with the model's reply at its end."""
        return conversation.plus(self.reply(conversation, tools=tools, options=options).message)

    def reply(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Reply:
        """The model's reply and the account of the call."""
        return step(self.begin(conversation, tools, options, stream=False).reply())

    def stream(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> ReplyStream:
        """The model's reply as it arrives; use it in a `with` block."""
        return ReplyStream(self.begin(conversation, tools, options, stream=True))

    def count(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> TokenCount:
        """How many tokens the model would read, as counted by its provider, or else estimated; nothing is generated."""
        return step(self._count(conversation, tools, options))

    def close(self) -> None:
        """Close connections, and whatever else it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class AsyncEngine(BaseEngine):
    """A model, for an async program."""

    async def run_inference(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Conversation:
        """The conversation with the model's reply at its end."""
        return conversation.plus((await self.reply(conversation, tools=tools, options=options)).message)

    async def reply(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Reply:
        """The model's reply and the account of the call."""
        return await self.begin(conversation, tools, options, stream=False).reply()

    def stream(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> AsyncReplyStream:
        """The model's reply as it arrives; use it in an `async with` block."""
        return AsyncReplyStream(self.begin(conversation, tools, options, stream=True))

    async def count(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> TokenCount:
        """How many tokens the model would read, as counted by its provider, or else estimated; nothing is generated."""
        return await self._count(conversation, tools, options)

    async def aclose(self) -> None:
        """Close connections, and whatever else it holds."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()


# --- an object that has `run_inference` and nothing else --------------------------------------------------------------


class _Simple(BaseEngine):
    def __init__(self, model: Any) -> None:
        from inspect import signature  # rarely needed

        self._model: Any = model
        self.name = str(getattr(model, "name", "") or f"other:{type(model).__name__}")
        accepted = signature(model.run_inference).parameters
        takes_all = any(each.kind is each.VAR_KEYWORD for each in accepted.values())
        self._takes: list[str] = [name for name in ("tools", "options") if takes_all or name in accepted]

    def call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> ReplyCall:
        given = {"tools": tools, "options": options}

        async def answer() -> Message:
            value: object = self._model.run_inference(conversation, **{name: given[name] for name in self._takes})
            longer: object = await cast("Awaitable[object]", value) if isinstance(value, Awaitable) else value
            if not isinstance(longer, Conversation) or len(longer.messages) <= len(conversation.messages):
                message = f"run_inference of {self.name} did not return the conversation with a reply appended."
                raise ConfigurationError(message, hint="Return conversation.plus(Message.assistant(…)).")
            reply = longer.messages[-1]
            if reply.provider is None:  # else it would count as written by hand, and as free
                reply = structs.replace(reply, provider=self._address[0])
            return reply

        return MessageCall(answer)


class _SimpleEngine(_Simple, Engine):
    pass


class _AsyncSimpleEngine(_Simple, AsyncEngine):
    pass


@overload
def adopt(model: object, kind: type[Engine]) -> Engine: ...
@overload
def adopt(model: object, kind: type[AsyncEngine]) -> AsyncEngine: ...
def adopt(model: object, kind: type[Engine] | type[AsyncEngine]) -> Engine | AsyncEngine:
    """A given model as an engine of this kind; ConfigurationError if it cannot be one."""
    if isinstance(model, kind):
        return model
    other = AsyncEngine if kind is Engine else Engine
    if isinstance(model, other):
        twin, colour = ("AsyncChatClient", "async") if kind is Engine else ("ChatClient", "sync")
        message = f"The engine {model!r} is {colour}; this client is not."
        raise ConfigurationError(message, hint=f"Use {twin}, or the {'sync' if kind is Engine else 'async'} engine.")
    from inspect import iscoroutinefunction  # rarely needed

    run = getattr(model, "run_inference", None)
    if not callable(run):
        shown = "None" if model is None else f"{type(model).__name__} {str(model)[:60]!r}"
        message = f"A model is a name or an engine, not {shown}."
        raise ConfigurationError(message, hint='Pass "anthropic:claude-sonnet-4-5" or "local:", for example.')
    if kind is AsyncEngine:
        return _AsyncSimpleEngine(model)
    if iscoroutinefunction(run):
        message = f"run_inference of {type(model).__name__} is async; this client is not."
        raise ConfigurationError(message, hint="Use AsyncChatClient, or make it a sync function.")
    return _SimpleEngine(model)


# --- streams ----------------------------------------------------------------------------------------------------------


class _Stream:
    """What sync and async streams share."""

    def __init__(self, call: ReplyCall) -> None:
        self._call: ReplyCall = call

    @property
    def message(self) -> Message:
        """The message so far; marked as interrupted unless the reply is complete."""
        return self._call.message

    @property
    def reply(self) -> Reply:
        """The reply so far."""
        return self._call.account


class ReplyStream(_Stream):
    """A streamed reply: iterate it inside a `with` block, which closes the connection on exit."""

    def __init__(self, call: ReplyCall) -> None:
        super().__init__(call)
        self._events: Generator[ReplyEvent, None, None] = self._iterate(call)

    @staticmethod  # static, to avoid a reference cycle that would keep a dropped stream open
    def _iterate(call: ReplyCall) -> Generator[ReplyEvent, None, None]:
        try:
            while events := step(call.next()):
                yield from events
        finally:
            step(call.aclose())

    def __iter__(self) -> Iterator[ReplyEvent]:
        return self._events

    def close(self) -> None:
        """Stop the reply and release the connection."""
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class AsyncReplyStream(_Stream):
    """A streamed reply: iterate it inside an `async with` block, which closes the connection on exit."""

    def __init__(self, call: ReplyCall) -> None:
        super().__init__(call)
        self._events: AsyncGenerator[ReplyEvent, None] = self._iterate(call)

    @staticmethod
    async def _iterate(call: ReplyCall) -> AsyncGenerator[ReplyEvent, None]:
        try:
            while events := await call.next():
                for event in events:
                    yield event
        finally:
            await call.aclose()

    def __aiter__(self) -> AsyncIterator[ReplyEvent]:
        return self._events

    async def aclose(self) -> None:
        """Stop the reply and release the connection."""
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()
