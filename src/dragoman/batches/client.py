"""Batches of conversations: submit them, wait, fetch the replies, in this process or in a later one.

Owns: Batches and AsyncBatches, over one core; the order of results, and the errors of missing ones.
Must not know: the providers' APIs (services.py), how requests are sent and retried (the engine).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, Unpack

from msgspec.structs import replace

from dragoman._stepping import step
from dragoman._stop import chance, pause
from dragoman.conversation import Conversation, Fold, Message, ReplyEvent, ToolSpec
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
from dragoman.errors import BatchError, ConfigurationError, ProviderError
from dragoman.providers import ModelOptions, Prices, prices_of
from dragoman.transport import Transport

from .handle import Batch, BatchDirectory, BatchResult, BatchStatus
from .services import Line, Service, key_of, position_of, service_for, unanswered

BatchProgress: TypeAlias = Callable[[BatchStatus], object]
"""Called with each status while waiting."""

_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 120.0
_PRICE_FACTOR: Final = 0.5
"""Of the price of an ordinary call."""


class _Core:
    """The work of both colours, over an engine that blocks or awaits."""

    def __init__(self, engine: AnyHttpEngine, directory: str | Path | None) -> None:
        self.engine: AnyHttpEngine = engine
        self.directory: BatchDirectory | None = None if directory is None else BatchDirectory(directory)
        """Where batches are saved, if anywhere."""
        self._service: Service = service_for(engine.connection.provider)
        self._blocking: bool = isinstance(engine, HttpEngine)

    def _understanding(self) -> AbstractContextManager[None]:
        return understanding(self.engine, "The reply about a batch")

    def _check_origin(self, batch: Batch) -> None:
        """Raise ConfigurationError for a batch of another model or server."""
        connection = self.engine.connection
        if (batch.model, batch.base_url) != (self.engine.name, connection.base_url):
            message = (
                f"The batch {batch.id} was submitted to {batch.model} at {batch.base_url}, not to {self.engine.name}."
            )
            raise ConfigurationError(message, hint=f"Use Batches({batch.model!r}) with the same base URL.")

    async def submit(
        self,
        conversations: Iterable[Conversation | str],
        *,
        tools: Sequence[ToolSpec] = (),
        options: ModelOptions | None = None,
    ) -> Batch:
        """Submit conversations; a string is one with this question. If one is invalid, nothing is sent."""
        submitted = tuple(read_files(_conversation_of(each)) for each in conversations)
        options = self.engine.options if options is None else options
        requests = [self.engine.prepare(each, tools, options).encoded.request for each in submitted]
        size = sum(len(each.body) for each in requests)
        if not requests or len(requests) > self._service.most or size > self._service.most_bytes:
            most = f"{self._service.most:,} conversations and {self._service.most_bytes >> 20} MiB"
            message = (
                f"A batch of {self.engine.name} has from 1 to {most}; these are {len(submitted):,}, {size >> 20} MiB."
            )
            raise ConfigurationError(message, hint="Submit several batches." if requests else "Give some.")
        if self.directory is not None:
            self.directory.check()
        keyed = [(key_of(position), each) for position, each in enumerate(requests)]
        with self._understanding():
            id = await self._service.submit(self.engine, keyed)
        batch = Batch(
            id=id,
            model=self.engine.name,
            base_url=self.engine.connection.base_url,
            conversations=submitted,
            tools=tuple(tools),
            options=options,
            created=datetime.fromtimestamp(self.engine.connection.wall_clock(), UTC),
        )
        if self.directory is not None:
            _save(batch, self.directory)
        return batch

    async def status(self, batch: Batch) -> BatchStatus:
        """The state of the batch."""
        self._check_origin(batch)
        try:
            with self._understanding():
                found = await self._service.status(self.engine, batch.id)
        except ProviderError as error:
            if error.status != 404:
                raise
            message = f"{self.engine.name} knows no batch {batch.id}."
            hint = "Providers keep batches for about a month, for the account that submitted them."
            raise BatchError(message, batch=batch.id, state="unknown", hint=hint) from None
        return replace(found, total=found.total or len(batch))

    async def wait(
        self,
        batch: Batch,
        *,
        progress: BatchProgress | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 -- the same in both colours
        first_wait: float = _FIRST_WAIT,
    ) -> BatchStatus:
        """Poll, less and less often, until the batch is over or the time is up."""
        end = None if timeout is None else time.monotonic() + timeout
        seconds = first_wait
        while True:
            status = await self.status(batch)
            if progress is not None:
                progress(status)
            left = None if end is None else end - time.monotonic()
            if status.over or (left is not None and left <= 0):
                return status
            # With jitter, so that many clients do not poll at once.
            wait = seconds * (1 - 0.1 * chance())
            await pause(wait if left is None else min(wait, left), blocking=self._blocking)
            seconds = min(_LONGEST_WAIT, seconds * 1.5)

    async def results(self, batch: Batch) -> list[BatchResult]:
        """The result of each conversation, in order. Raises BatchError if the batch is not over."""
        status = await self.status(batch)
        if not status.over:
            message = f"The batch {batch.id} is not over: {status.finished:,} of {status.total:,} are answered."
            raise BatchError(message, batch=batch.id, state=status.state, hint="Wait for it, or cancel it.")
        if status.state == "failed":
            why = f": {status.message.rstrip('.')}" if status.message else ""
            message = f"The batch {batch.id} was refused as a whole{why}."
            raise BatchError(message, batch=batch.id, state=status.state, hint="Correct that, and submit it again.")
        with self._understanding():
            lines = {position_of(line.key): line for line in await self._service.lines(self.engine, batch.id, status)}
        return [
            self._read(batch, position, lines.get(position) or unanswered("", status.state))
            for position in range(len(batch))
        ]

    def _read(self, batch: Batch, position: int, line: Line) -> BatchResult:
        conversation = batch.conversations[position]
        prepared = self.engine.prepare(conversation, batch.tools, batch.options)
        fold, events = Fold(), list[ReplyEvent]()
        try:
            line.raise_failure(prepared.call)
            decoder = prepared.decoder()
            decoder.feed(line.body, events)
            decoder.finish(events)
        except ProviderError as error:
            return BatchResult(position=position, conversation=conversation, error=error)
        fold.extend(events)
        reply = _with_cost(fold.message(), self.engine.prices)
        return BatchResult(position=position, conversation=conversation.plus(reply))

    async def cancel(self, batch: Batch) -> BatchStatus:
        """Cancel the batch. Answers so far stay; wait until it is over before you fetch them."""
        self._check_origin(batch)
        await self._service.cancel(self.engine, batch.id)
        return await self.status(batch)


def _save(batch: Batch, directory: BatchDirectory) -> None:
    try:
        directory.save(batch)
    except OSError as error:
        message = f"The batch {batch.id} was submitted, but cannot be saved: {error.strerror or error}."
        made = f"Batch(id={batch.id!r}, model={batch.model!r}, base_url={batch.base_url!r}, conversations=…)"
        hint = f"Do not submit it again: {made}, with the same conversations, is as good as what submit returns."
        raise BatchError(message, batch=batch.id, state="running", hint=hint) from error


def _with_cost(message: Message, prices: Prices | None) -> Message:
    """The reply with its cost: by the given prices, else half of the usual ones."""
    usage = message.usage
    if usage is None or usage.charged is not None or message.interrupted:
        return message
    factor = 1.0
    if prices is None and message.provider is not None and message.model is not None:
        factor = _PRICE_FACTOR
        prices = prices_of(message.provider, message.model, time=message.time, tokens=usage.input or 0)
    cost = None if prices is None else prices.cost(usage)
    return message if cost is None else replace(message, usage=replace(usage, charged=cost * factor))


def _conversation_of(given: object) -> Conversation:
    if isinstance(given, str) and given:
        return Conversation().plus(Message.user(given))
    if not isinstance(given, Conversation):
        message = f"A batch is made of conversations and texts, not of {type(given).__name__ if given else 'nothing'}."
        raise ConfigurationError(message, hint='Give Conversation(…).plus(Message.user("…")), or the question itself.')
    return given


class Batches:
    """Batches of conversations: `with Batches("anthropic:claude-haiku-4-5") as batches: …`.

    model       a name, with the options of an engine (`key`, `base_url`, `options` …), or an HttpEngine
    directory   where batches are saved as files, for a later process
    """

    def __init__(
        self,
        model: str | HttpEngine,
        *,
        directory: str | Path | None = None,
        transport: Transport | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        made = engine(model, transport=transport, **options) if isinstance(model, str) else model
        self._close: Callable[[], None] | None = made.close if isinstance(model, str) else None
        self._core: _Core = _Core(as_service(made, HttpEngine, "batches"), directory)

    @property
    def directory(self) -> BatchDirectory | None:
        """Where batches are saved, if anywhere."""
        return self._core.directory

    def submit(
        self,
        conversations: Iterable[Conversation | str],
        *,
        tools: Sequence[ToolSpec] = (),
        options: ModelOptions | None = None,
    ) -> Batch:
        """Submit conversations; a string is one with this question. If one is invalid, nothing is sent."""
        return step(self._core.submit(conversations, tools=tools, options=options))

    def status(self, batch: Batch) -> BatchStatus:
        """The state of the batch."""
        return step(self._core.status(batch))

    def wait(
        self,
        batch: Batch,
        *,
        progress: BatchProgress | None = None,
        timeout: float | None = None,
        first_wait: float = _FIRST_WAIT,
    ) -> BatchStatus:
        """Poll, less and less often, until the batch is over or the time is up."""
        return step(self._core.wait(batch, progress=progress, timeout=timeout, first_wait=first_wait))

    def results(self, batch: Batch) -> list[BatchResult]:
        """The result of each conversation, in order. Raises BatchError if the batch is not over."""
        return step(self._core.results(batch))

    def cancel(self, batch: Batch) -> BatchStatus:
        """Cancel the batch. Answers so far stay; wait until it is over before you fetch them."""
        return step(self._core.cancel(batch))

    def close(self) -> None:
        """Close the connections. Batches continue at the provider."""
        if self._close is not None:
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class AsyncBatches(_Core):
    """The async version of `Batches`."""

    def __init__(
        self,
        model: str | AsyncHttpEngine,
        *,
        directory: str | Path | None = None,
        transport: Transport | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        made = async_engine(model, transport=transport, **options) if isinstance(model, str) else model
        self._close: Callable[[], Any] | None = made.aclose if isinstance(model, str) else None
        super().__init__(as_service(made, AsyncHttpEngine, "batches"), directory)

    async def aclose(self) -> None:
        """Close the connections. Batches continue at the provider."""
        if self._close is not None:
            await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()
