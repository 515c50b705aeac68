"""Engines: one job, a model's reply to a conversation.

Owns: Engine and AsyncEngine, which everything above speaks to; the ways to read a reply.
Must not know: loops, tools' code, stores. Tool calls in a reply are left as they are.

An engine has one method of its own, `call`: a call that is ready to be made, as a ReplyCall (call.py).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, cast, overload

from msgspec import Struct, structs

import dragoman._observer
import dragoman.providers
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
    """The error for a model that would not get everything, where the caller wants it to."""
    more = f" (and {len(losses) - 1} more)" if losses[1:] else ""
    message = f"{name} would not get all of the conversation: {losses[0]}{more}."
    return LossyConversionError(message, losses=tuple(map(str, losses)))


class MessageCall(ReplyCall):
    """A call that is answered with a whole message: by a script, or an engine that only has `run_inference`."""

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
    """What the engines of both colours have in common; an engine sets `name`, and what differs of the rest."""

    name: str
    """As in `provider:model`."""
    profile: Profile = Profile(provider="other", dialect="other")
    """What the model can do."""
    options: ModelOptions = ModelOptions()
    """What is asked of the model where a call does not say."""
    asks_others: bool = False
    """Whether other engines make its calls, and are observed themselves."""
    place: tuple[object, ...] | None = None
    """What tells two engines of one name apart, such as an address; None: they have nothing in common."""
    prices: Prices | None = None
    """What the model costs, in place of what the table says."""

    @property
    def known_prices(self) -> Prices | None:
        """What the model costs: as somebody said, else as the table does. None: not known."""
        if self.prices is not None:
            return self.prices
        return dragoman.providers.prices_of(*self._address, time=datetime.now(UTC))

    @property
    def priced(self) -> bool:
        """Whether it is known what this model costs."""
        return self.known_prices is not None

    @property
    def context_window(self) -> int | None:
        """How many tokens the model can read: as its profile says, else as the table does. None: not known."""
        known = self.profile.context_window
        return dragoman.providers.window_of(*self._address) if known is None else known

    @property
    def _address(self) -> tuple[str, str]:
        provider, _, model = self.name.partition(":")
        return provider, model

    def call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> ReplyCall:
        """A call that is ready to be made. Raises before anything is sent if it cannot be."""
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
        """`call` for whoever makes it: seen by who observes the program, if anybody does."""
        call, observing = self.call(conversation, tools, options, stream=stream), dragoman._observer.current
        if veto is not None:
            call.veto = veto
        if observing is None or self.asks_others:
            return call
        return ObservedCall(call, observing.model_call(self, conversation, tools, options, stream=stream))

    def count_call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None
    ) -> ReplyCall | None:
        """A call whose reply is empty and reports, as its input, how many tokens the model would read.

        None: the provider cannot be asked, and the number is estimated.
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
        """What this model would not get of the conversation, or would get in another form; nothing is sent."""
        return ()

    def prepare_tools(self, tools: Sequence[ToolSpec]) -> object:
        """The tools in the provider's own form, as JSON data; nothing is sent."""
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

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class Engine(BaseEngine):
    """A model, for a plain program. An engine of your own sets `name` and has `call`, or `run_inference` alone."""

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
        """How many tokens the model would read, as its provider counts them, or else estimated; nothing is answered."""
        return step(self._count(conversation, tools, options))

    def close(self) -> None:
        """Close connections, and whatever else it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class AsyncEngine(BaseEngine):
    """A model, for a program on an event loop."""

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
        """How many tokens the model would read, as its provider counts them, or else estimated; nothing is answered."""
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
        from inspect import signature  # few programs need it

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
            said: object = self._model.run_inference(conversation, **{name: given[name] for name in self._takes})
            longer: object = await cast("Awaitable[object]", said) if isinstance(said, Awaitable) else said
            if not isinstance(longer, Conversation) or len(longer.messages) <= len(conversation.messages):
                message = f"run_inference of {self.name} did not return the conversation with a reply at its end."
                raise ConfigurationError(message, hint="Return conversation.plus(Message.assistant(…)).")
            reply = longer.messages[-1]
            if reply.provider is None:  # else it would pass for one that was put into the model's mouth, and is free
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
    """What was given as a model, as an engine of this kind; ConfigurationError if it cannot be one."""
    if isinstance(model, kind):
        return model
    other = AsyncEngine if kind is Engine else Engine
    if isinstance(model, other):
        twin, programs = ("AsyncChatClient", "an event loop") if kind is Engine else ("ChatClient", "plain programs")
        message = f"The engine {model!r} is for {programs}; this client is not."
        raise ConfigurationError(message, hint=f"Use {twin}, or the engine's twin of the other colour.")
    from inspect import iscoroutinefunction  # few programs need it

    run = getattr(model, "run_inference", None)
    if not callable(run):
        shown = "None" if model is None else f"{type(model).__name__} {str(model)[:60]!r}"
        message = f"A model is given by its name, or as an engine, not as {shown}."
        raise ConfigurationError(message, hint='Say for instance "anthropic:claude-sonnet-4-5" or "local:".')
    if kind is AsyncEngine:
        return _AsyncSimpleEngine(model)
    if iscoroutinefunction(run):
        message = f"run_inference of {type(model).__name__} is async; this client is not."
        raise ConfigurationError(message, hint="Use AsyncChatClient, or make it a plain function.")
    return _SimpleEngine(model)


# --- streams ----------------------------------------------------------------------------------------------------------


class _Stream:
    """What the streams of both colours tell."""

    def __init__(self, call: ReplyCall) -> None:
        self._call: ReplyCall = call

    @property
    def message(self) -> Message:
        """What was received so far; marked interrupted unless the reply is complete."""
        return self._call.message

    @property
    def reply(self) -> Reply:
        """The message and the account of the call so far."""
        return self._call.account


class ReplyStream(_Stream):
    """A reply while it arrives: iterate it inside a `with` block, which closes the connection however it is left."""

    def __init__(self, call: ReplyCall) -> None:
        super().__init__(call)
        self._events: Generator[ReplyEvent, None, None] = self._iterate(call)

    @staticmethod  # the stream has the generator: if that had the stream, one that is dropped would stay for a while
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
    """A reply while it arrives: iterate it inside an `async with` block, which closes the connection in any case."""

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
