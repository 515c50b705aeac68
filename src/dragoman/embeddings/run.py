"""Texts to vectors: split into requests, several at once, each retried on its own.

Owns: `embed` and `aembed`, splitting texts into parts, and halving a part that is refused as too large.
Must not know: the providers' APIs (codecs.py), how requests are sent and retried (the engine).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Final, TypeAlias, TypedDict, Unpack

import msgspec
from msgspec import Struct

from dragoman._checks import check_names, suggest
from dragoman._decoding import decode_as
from dragoman._stepping import Inner, step
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
"""Called with the number of texts that are done, and of all texts."""

_USUAL_BATCH: Final = 256
"""The default number of texts in a request: many enough to be cheap, few enough to be retried quickly."""
_TOO_MUCH: Final = (400, 413, 422)
"""The statuses of a refusal that may mean that a part, or one of its texts, is too large."""


class EmbedOptions(TypedDict, total=False):
    """Options of the connection, if the model is given by name."""

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
    truncate      cut texts that are too long for the model, if the provider can do that
    batch_size    the maximum number of texts in a request; never more than the provider accepts
    concurrency   the maximum number of concurrent requests
    progress      called with the number of texts that are done, and of all texts
    resume        the result so far of a call that failed (`error.embeddings`): only the rest is requested
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
    """The async version of `embed`."""
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


# --- arguments --------------------------------------------------------------------------------------------------------


class _Wanted(Struct, frozen=True):
    """The arguments of a call, validated."""

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
                raise ConfigurationError(f"{name} must be at least 1, not {number!r}.", hint=f"Leave {name} out.")
        if self.resume is not None and self.resume.count != len(self.texts):
            message = f"The result to resume has {self.resume.count} texts; these are {len(self.texts)}."
            raise ConfigurationError(message, hint="Resume with the same texts in the same order.")


def _check_resumed(wanted: _Wanted, model: str) -> None:
    """Vectors of different models, or of different lengths, cannot be compared."""
    begun = wanted.resume
    if begun is None:
        return
    if begun.model != model:
        message = f"The vectors to resume are of {begun.model}, not of {model}."
        raise ConfigurationError(message, hint=f"Give model={begun.model!r}, or leave resume out.")
    if wanted.dimensions and begun.dimensions and wanted.dimensions != begun.dimensions:
        message = f"The vectors to resume have {begun.dimensions} numbers, not {wanted.dimensions}."
        raise ConfigurationError(message, hint=f"Give dimensions={begun.dimensions}, or leave resume out.")


def _problem_of(text: object) -> str:
    if not isinstance(text, str):
        return f"is not a text but {type(text).__name__}"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "has half a character (a lone surrogate), which cannot be sent"
    return "" if text else "is empty"


def _divide(texts: Sequence[str], positions: Sequence[int], most_texts: int, most_tokens: int) -> Iterator[list[int]]:
    """Split positions into parts within the limits of a request. Numbers of tokens are estimated."""
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
    """A generous estimate of a text's tokens. If it has more, its part is refused and halved."""
    return len(text) // 3 + 1 if text.isascii() else len(text) + 1


# --- requests ---------------------------------------------------------------------------------------------------------


class _Job:
    """One call of `embed`: the state that its parts share."""

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
        """Add the vectors of these texts to the sheet. Returns the number of texts."""
        texts: list[Any] = [self.texts[position] for position in part]
        if self._cuts:  # those that are probably too long now, others when they are refused
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
        """The tokens of a text, cut to the model's window, with the token that ends every text."""
        request = WireRequest(path="/tokenize", body=msgspec.json.encode({"content": text, "add_special": True}))
        body = await self.engine.exchange(request, is_read=True).body()
        with self._understanding():
            tokens = decode_as(body, _Tokens).tokens
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
        async with Inner(_together(work, wanted.concurrency, blocking=isinstance(engine, HttpEngine))) as parts_done:
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
    """Run all of it, at most so many at once, and yield each result as soon as it is there.

    In a sync program each runs in a worker thread, in an async one as a task. After a failure nothing more is started;
    running work is finished and its results are yielded, then the error is raised. Closing this generator, or a stop
    while it waits, cancels running work.
    """
    threads = WorkerThreads()
    runner = Runner(threads) if blocking else AsyncRunner(threads)
    outer, stop = current_stop(), Stop()
    running: list[Job] = []
    waiting, failure = iter(work), None
    try:
        with nullcontext() if outer is None else outer.waking(runner.wake):
            while True:
                while failure is None and len(running) < most and (begin := next(waiting, None)) is not None:
                    run = partial(_run, begin) if blocking else begin
                    with stopping(stop):  # each runs in a copy of the context
                        running.append(runner.start(run, is_async=not blocking, is_limited=True))
                if not running:
                    break
                await runner.wait(None if outer is None else outer.deadline)
                if outer is not None:
                    outer.check()
                over = {job: job.ended for job in running if job.ended is not None}  # others may end in the meantime
                running = [job for job in running if job not in over]
                for value, error, _ in over.values():
                    if error is None:
                        yield value
                    failure = failure or error
        if failure is not None:
            raise failure
    finally:
        stop.cancel()
        for job in running:
            runner.give_up(job)
        threads.close()
        await runner.close()


def _run(work: _Work) -> int:
    return step(work())
