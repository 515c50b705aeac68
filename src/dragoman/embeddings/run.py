"""Texts to vectors: in parts that the provider takes, several parts at once, each tried again by itself.

Owns: `embed` and `aembed`, the division into parts, and halving one that is refused as too large.
Must not know: how a provider is asked (codecs.py), how a request is sent and tried again (the engine).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from functools import partial
from typing import Any, Final, TypeAlias, TypedDict, Unpack

import msgspec
from msgspec import Struct

from dragoman._checks import check_names, suggest
from dragoman._stepping import step
from dragoman._stop import Stop, current_stop, stopping
from dragoman.engines import (
    AnyHttpEngine,
    AsyncHttpEngine,
    Credential,
    HttpEngine,
    KeySource,
    RateLimiter,
    Secret,
    as_service,
    async_engine,
    engine,
    understanding,
)
from dragoman.errors import (
    ConfigurationError,
    ContextTooLongError,
    InvalidRequestError,
    ProviderError,
    StoppedError,
)
from dragoman.providers import Prices, WireRequest
from dragoman.tools import AsyncRunner, Job, Runner, WorkerThreads
from dragoman.transport import RetryPolicy, Timeouts, Transport

from .codecs import CODECS, Answered, EmbeddingCodec
from .profiles import BY_TOKENS, TASKS, Asked, Task, adaptations_of, fold, full_name, profile_for
from .vectors import Embeddings, Sheet

Progress: TypeAlias = Callable[[int, int], object]
"""Called with how many texts have their vectors, and how many there are."""

_USUAL_BATCH: Final = 256
"""Texts of a request where nobody says: enough that requests cost little, few enough that one lost is soon repeated."""
_TOO_MUCH: Final = (400, 413, 422)
"""The statuses with which a part is refused that may be too large, or have one text that is."""


class EmbedOptions(TypedDict, total=False):
    """How the provider is reached, where a model is named; an engine knows it."""

    key: str | Secret | KeySource | Credential | None
    base_url: str | None
    region: str
    project: str
    prices: Prices | None
    limiter: RateLimiter
    retry: RetryPolicy
    timeouts: Timeouts
    headers: Mapping[str, str]
    allow_insecure_base_url: bool


def embed(
    texts: str | Sequence[str],
    *,
    model: str | HttpEngine,
    dimensions: int | None = None,
    task: Task | None = None,
    truncate: bool = False,
    batch_size: int | None = None,
    concurrency: int = 4,
    progress: Progress | None = None,
    resume: Embeddings | None = None,
    transport: Transport | None = None,
    **options: Unpack[EmbedOptions],
) -> Embeddings:
    """The vectors of these texts, in their order.

    dimensions    the length of the vectors, for models that can shorten them
    task          what the vectors are for: `document`, `query` …
    truncate      cut a text that is too long for the model, where the provider can, and do not refuse it
    batch_size    the most texts of one request; never more than the provider takes
    concurrency   requests under way at once
    progress      called with how many texts are done, and how many there are
    resume        what an earlier call had reached when it failed (`error.embeddings`): only the rest is asked for
    """
    texts = [texts] if isinstance(texts, str) else texts
    wanted = _Wanted(texts, dimensions, task, truncate, batch_size, concurrency, resume)
    if not isinstance(model, str):
        return step(_embed(as_service(model, HttpEngine, "embeddings"), wanted, progress))
    _check_options(options)
    with engine(full_name(model), transport=transport, **options) as made:
        return step(_embed(as_service(made, HttpEngine, "embeddings"), wanted, progress))


async def aembed(
    texts: str | Sequence[str],
    *,
    model: str | AsyncHttpEngine,
    dimensions: int | None = None,
    task: Task | None = None,
    truncate: bool = False,
    batch_size: int | None = None,
    concurrency: int = 4,
    progress: Progress | None = None,
    resume: Embeddings | None = None,
    transport: Transport | None = None,
    **options: Unpack[EmbedOptions],
) -> Embeddings:
    """`embed` for a program on an event loop."""
    texts = [texts] if isinstance(texts, str) else texts
    wanted = _Wanted(texts, dimensions, task, truncate, batch_size, concurrency, resume)
    if not isinstance(model, str):
        return await _embed(as_service(model, AsyncHttpEngine, "embeddings"), wanted, progress)
    _check_options(options)
    async with async_engine(full_name(model), transport=transport, **options) as made:
        return await _embed(as_service(made, AsyncHttpEngine, "embeddings"), wanted, progress)


def _check_options(options: EmbedOptions) -> None:
    elsewhere = {"api_key": "key=…", "timeout": "timeouts=Timeouts(total=…)"}
    check_names(options, EmbedOptions.__annotations__, "embed", elsewhere)


# --- what is wanted ---------------------------------------------------------------------------------------------------


class _Wanted(Struct, frozen=True):
    """What was said, checked before anything is sent."""

    texts: Sequence[str]
    dimensions: int | None
    task: Task | None
    truncate: bool
    batch_size: int | None
    concurrency: int
    resume: Embeddings | None

    def __post_init__(self) -> None:
        for position, text in enumerate(self.texts):
            if problem := _problem_of(text):
                hint = "Give a list of texts, none of them empty."
                raise ConfigurationError(f"Text {position} {problem}.", hint=hint)
        if self.task is not None and self.task not in TASKS:
            raise ConfigurationError(f"There is no task {self.task!r}.", hint=suggest(str(self.task), TASKS))
        for name in ("dimensions", "batch_size", "concurrency"):
            number: object = getattr(self, name)
            if number is not None and (not isinstance(number, int) or number < 1):
                raise ConfigurationError(f"{name} is a number from 1 on, not {number!r}.", hint=f"Leave {name} out.")
        if self.resume is not None and self.resume.count != len(self.texts):
            message = f"What is to be resumed has {self.resume.count} texts; these are {len(self.texts)}."
            raise ConfigurationError(message, hint="Resume with the same texts in the same order.")


def _check_resumed(wanted: _Wanted, model: str) -> None:
    """Vectors of two models, or of two lengths, have nothing to do with each other."""
    begun = wanted.resume
    if begun is None:
        return
    if begun.model != model:
        message = f"What is to be resumed are vectors of {begun.model}, not of {model}."
        raise ConfigurationError(message, hint=f"Say model={begun.model!r}, or leave resume out.")
    if wanted.dimensions and begun.dimensions and wanted.dimensions != begun.dimensions:
        message = f"What is to be resumed has vectors of {begun.dimensions} numbers, not of {wanted.dimensions}."
        raise ConfigurationError(message, hint=f"Say dimensions={begun.dimensions}, or leave resume out.")


def _problem_of(text: object) -> str:
    if not isinstance(text, str):
        return f"is no text but {type(text).__name__}"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "has half a character (a lone surrogate), which cannot be sent"
    return "" if text else "is empty"


def _divide(texts: Sequence[str], positions: Sequence[int], most_texts: int, most_tokens: int) -> Iterator[list[int]]:
    """Positions in parts of which none has more texts or, as far as one can tell, more tokens than a request may."""
    part: list[int] = []
    tokens = 0
    for position in positions:
        size = _estimate(texts[position])
        if part and (len(part) >= most_texts or tokens + size > most_tokens):
            yield part
            part, tokens = [], 0
        part.append(position)
        tokens += size
    if part:
        yield part


def _estimate(text: str) -> int:
    """More tokens than a text probably has. Where it has yet more, its part is refused and halved."""
    return len(text) // 3 + 1 if text.isascii() else len(text) + 1


# --- asking -----------------------------------------------------------------------------------------------------------


class _Job:
    """One call of `embed`: what every part of it needs."""

    def __init__(self, engine: AnyHttpEngine, wanted: _Wanted) -> None:
        connection = engine.connection
        profile = profile_for(connection.provider, connection.model)
        _check_resumed(wanted, engine.name)
        if wanted.dimensions and not profile.dimensions:
            message = f"The vectors of {engine.name} have one length, and cannot be shortened."
            raise ConfigurationError(message, hint="Leave dimensions out.")
        self.engine: AnyHttpEngine = engine
        self.texts: Sequence[str] = [fold(text) for text in wanted.texts] if profile.folded else wanted.texts
        self.asked: Asked = Asked(
            model=connection.model,
            profile=profile,
            dimensions=wanted.dimensions,
            task=wanted.task,
            truncate=wanted.truncate,
        )
        self.codec: EmbeddingCodec = CODECS[profile.codec]
        self.sheet: Sheet = Sheet(len(wanted.texts), wanted.resume, wanted.dimensions)
        self._cuts: bool = wanted.truncate and profile.truncation == BY_TOKENS

    def finish(self) -> Embeddings:
        adaptations = adaptations_of(self.asked, self.engine.connection.provider.name)
        found, prices = self.sheet.finish(self.engine.name, adaptations), self.engine.connection.prices
        if prices is None:
            return found
        usage = msgspec.structs.replace(found.usage, charged=prices.cost(found.usage))
        return msgspec.structs.replace(found, usage=usage)

    async def embed_part(self, part: list[int]) -> int:
        """Put the vectors of these texts into the sheet; gives how many texts these were."""
        texts: list[Any] = [self.texts[position] for position in part]
        if self._cuts:  # those that are probably too long at once, the others when they are refused
            window = self.engine.context_window or 0
            texts = [await self._first_tokens(text) if len(text) > window else text for text in texts]
        return await self._ask(part, texts)

    async def _ask(self, part: list[int], texts: Sequence[Any]) -> int:
        exchange = self.engine.exchange(self.codec.encode(self.asked, texts), is_read=True)
        try:
            body = await exchange.body()
        except (InvalidRequestError, ContextTooLongError) as error:
            if error.status not in _TOO_MUCH and not isinstance(error, ContextTooLongError):
                raise
            if len(part) == 1:
                if self._cuts and isinstance(texts[0], str):
                    return await self._ask(part, [await self._first_tokens(texts[0])])
                error.hint = f"It refused text {part[0]}, which begins {self.texts[part[0]][:40]!r}. {error.hint}"
                raise
            middle = len(part) // 2
            return await self.embed_part(part[:middle]) + await self.embed_part(part[middle:])
        with self._understanding():
            answered, counted = self.codec.decode(body), exchange.account.headers.get(self.asked.profile.tokens_header)
            if answered.tokens is None and counted is not None:
                answered = Answered(answered.rows, int(counted))
            self.sheet.fill(part, answered)
        return len(part)

    async def _first_tokens(self, text: str) -> list[int]:
        """The tokens of a text, as many as the model reads, with the one that ends every text."""
        request = WireRequest(path="/tokenize", body=msgspec.json.encode({"content": text, "add_special": True}))
        body = await self.engine.exchange(request, is_read=True).body()
        with self._understanding():
            tokens = msgspec.json.decode(body, type=_Tokens).tokens
        window = self.engine.context_window or len(tokens)
        return [*tokens[: window - 1], tokens[-1]] if len(tokens) > window else tokens

    def _understanding(self) -> AbstractContextManager[None]:
        return understanding(self.engine, "The reply")


class _Tokens(Struct):
    tokens: list[int]


async def _embed(engine: AnyHttpEngine, wanted: _Wanted, progress: Progress | None) -> Embeddings:
    job = _Job(engine, wanted)
    profile, missing = job.asked.profile, job.sheet.missing
    parts = _divide(wanted.texts, missing, min(wanted.batch_size or _USUAL_BATCH, profile.texts), profile.tokens)
    total = len(wanted.texts)
    done = total - len(missing)
    work = (partial(job.embed_part, part) for part in parts)
    try:
        async with aclosing(_together(work, wanted.concurrency, blocking=isinstance(engine, HttpEngine))) as parts_done:
            async for count in parts_done:
                done += count
                if progress is not None:
                    progress(done, total)
    except (ProviderError, StoppedError) as error:
        error.embeddings = job.finish()
        raise
    return job.finish()


_Work: TypeAlias = Callable[[], Coroutine[Any, Any, int]]


async def _together(work: Iterable[_Work], most: int, *, blocking: bool) -> AsyncGenerator[int, None]:
    """Do all of it, so many at once, and give each result as soon as it is there.

    In a plain program each runs in a worker thread, on an event loop as a task. After the first that fails no further
    one is begun; those under way are finished and their results given, then its error is raised. Whoever closes this
    generator, or is stopped while it waits, ends what is under way at once.
    """
    threads = WorkerThreads()
    runner = Runner(threads) if blocking else AsyncRunner(threads)
    outer, stop = current_stop(), Stop()
    under_way: list[Job] = []
    waiting, failure = iter(work), None
    try:
        with nullcontext() if outer is None else outer.waking(runner.wake):
            while True:
                while failure is None and len(under_way) < most and (begin := next(waiting, None)) is not None:
                    run = partial(_run, begin) if blocking else begin
                    with stopping(stop):  # each has a copy of the context
                        under_way.append(runner.start(run, is_async=not blocking, is_limited=True))
                if not under_way:
                    break
                await runner.wait(None if outer is None else outer.deadline)
                if outer is not None:
                    outer.check()
                over = {job: job.ended for job in under_way if job.ended is not None}  # others may end meanwhile
                under_way = [job for job in under_way if job not in over]
                for value, error, _ in over.values():
                    if error is None:
                        yield value
                    failure = failure or error
        if failure is not None:
            raise failure
    finally:
        stop.cancel()
        for job in under_way:
            runner.give_up(job)
        threads.close()
        await runner.close()


def _run(work: _Work) -> int:
    return step(work())
