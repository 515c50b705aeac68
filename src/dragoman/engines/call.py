"""Model calls, sync and async: what every call does, and a call over HTTP.

Owns: Reply; ReplyCall, which delivers events once content has arrived; ModelCall with its attempts, retries and ledger.
Must not know: event loops. The transport blocks or awaits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec
from msgspec import Struct

import dragoman.providers
import dragoman.transport
from dragoman._stop import pause
from dragoman.conversation import Failed, Fold, Message, ReplyEvent, Usage, UsageReported
from dragoman.errors import AuthenticationError, MissingKeyError, OverloadedError, ProviderError, RateLimitError
from dragoman.providers import (
    Adaptation,
    Call,
    Codec,
    Decoder,
    Encoded,
    Loss,
    is_content,
)
from dragoman.transport import (
    MAX_BODY_BYTES,
    AttemptRecord,
    GiveUp,
    HttpRequest,
    Response,
    Transport,
    decide,
    retry_after_of,
)

from .credential import Credential, MadeKey
from .keys import without_keys

if TYPE_CHECKING:
    from dragoman.providers import AnswerReader, CacheUse, Prices, SafetyRating, TokenLogprob
    from dragoman.transport import RateLimits

    from .http import Connection
    from .limiter import Line, Place


class Sent(Struct, frozen=True, dict=True):
    """Calls that this process made. Not a field, so that no pickle, JSON or repr of a reply contains them."""

    @classmethod
    def of(cls, calls: tuple[Call, ...]) -> Sent:
        made = cls()
        vars(made)["calls"] = calls
        return made

    @property
    def calls(self) -> tuple[Call, ...]:
        return self.__dict__.get("calls", ())


class Reply(Struct, frozen=True, kw_only=True):
    """A model's reply and how it came about."""

    message: Message
    """Complete, or marked as interrupted with everything that was received."""
    request_id: str | None = None
    headers: Mapping[str, str] = {}
    received: float = 0.0
    """The Unix time at which it was received."""
    adaptations: tuple[Adaptation, ...] = ()
    """Options and schemas that were changed for the model."""
    losses: tuple[Loss, ...] = ()
    """Parts of the history that the model did not get."""
    attempts: tuple[AttemptRecord, ...] = ()
    """Every attempt: why it failed, and how long was waited."""
    repeated: tuple[Usage, ...] = ()
    """What attempts had used that failed and were repeated, where the provider had reported it, with its price."""
    sent: Sent = Sent()
    """The last calls of this engine, this one included, for `cache` to compare."""

    @property
    def cost(self) -> float | None:
        """The cost of the reply in US dollars; None if unknown."""
        return dragoman.providers.cost_of(self.message)

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        """The likelihood of each token; empty unless `ModelOptions.logprobs` asked for it."""
        return dragoman.providers.logprobs_of(self.message)  # loaded on first use, like the next two

    @property
    def safety(self) -> tuple[SafetyRating, ...]:
        """What the provider's filters reported about the prompt and the answer."""
        return dragoman.providers.safety_of(self.message)

    @property
    def choices(self) -> tuple[Message, ...]:
        """All answers, if `ModelOptions.choices` asked for several; the first is the message itself."""
        return dragoman.providers.choices_of(self.message)

    @property
    def rate_limits(self) -> RateLimits | None:
        """The rate limits in the response headers; None if there are none."""
        return dragoman.transport.rate_limits_of(self.headers, self.received)

    @property
    def cache(self) -> CacheUse:
        """What the provider's prompt cache saved for this reply, and why not more."""
        return dragoman.providers.explain_cache(self.sent.calls, self.message.usage)


Veto: TypeAlias = Callable[[ProviderError, float], str]
"""Called before a retry, with the error and the seconds until then; a text, the reason, prevents it."""


class ReplyCall:
    """One call: `reply` returns the whole reply, `next` the next events.

    Subclasses implement `advance`, and `release` if they hold something open. In a sync program these block and never
    suspend (see `dragoman._stepping`).
    """

    veto: Veto | None = None
    over: bool = False
    """Whether the call has ended."""
    _handed_over: bool = False
    _failure: ProviderError | None = None
    """The error that ended the call, until it is raised."""

    def __init__(self) -> None:
        self.attempts: list[AttemptRecord] = []
        self._fold: Fold = Fold()
        self._unsaid: list[ReplyEvent] = []
        """Events that were received and not delivered yet."""
        self._repeated: list[Usage] = []

    # --- for callers ---

    @property
    def message(self) -> Message:
        """The reply so far; marked as interrupted unless it is complete."""
        return self._fold.message()

    @property
    def failure(self) -> ProviderError | None:
        """The error of the call, after `next` has delivered its event and before it raises it."""
        return self._failure

    @property
    def account(self) -> Reply:
        """The reply so far."""
        return Reply(message=self._fold.message(), attempts=tuple(self.attempts), repeated=tuple(self._repeated))

    async def reply(self) -> Reply:
        """Make the call and return the whole reply. Raises ProviderError."""
        try:
            while not self.over:
                await self._attempt()
        finally:
            await self.aclose()
        if self._failure is not None:
            raise self._failure
        return self.account

    async def next(self) -> list[ReplyEvent]:
        """The next events; empty when the reply is complete. Raises ProviderError, after its event was delivered."""
        while not self.over:
            await self._attempt()
            # Events are held back until content arrives: until then a provider that accepts the request and fails at
            # once can be retried.
            if self._unsaid and (self.over or self.has_begun):
                self._handed_over = True
                said, self._unsaid = self._unsaid, []
                return said
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return []

    async def _attempt(self) -> None:
        try:
            await self.advance()
        except ProviderError as error:
            await self.release()
            if await self.try_again(error):
                lost = self._fold.message()
                if lost.usage is not None:
                    self._repeated.append(_with_price(lost, lost.usage))
                self._fold, self._unsaid = Fold(), []
            else:
                self._fail(error)

    async def aclose(self) -> None:
        """End the call and close what is open."""
        self.over = True
        await self.release()

    def _fail(self, error: ProviderError) -> None:
        self.take([failed(error)])
        message = self._fold.message()
        error.partial = message if message.blocks else None
        error.attempts = tuple(self.attempts)
        self.over, self._failure = True, error

    # --- for subclasses ---

    async def advance(self) -> None:
        """Wait for the next events and `take` them; set `over` with the last. Raises ProviderError."""
        raise NotImplementedError

    async def try_again(self, error: ProviderError) -> bool:
        """Whether to retry after this error; waits until it is time."""
        return False

    async def release(self) -> None:
        """Close what is open."""

    def take(self, events: list[ReplyEvent]) -> None:
        """Add events of the reply."""
        self._fold.extend(events)
        self._unsaid += events

    @property
    def has_begun(self) -> bool:
        """Whether content of the reply has arrived."""
        return self._handed_over or any(map(is_content, self._unsaid))


def charge(event: ReplyEvent, prices: Prices) -> ReplyEvent:
    """The event; one that reports usage gets its cost at these prices."""
    if not isinstance(event, UsageReported):
        return event
    return UsageReported(msgspec.structs.replace(event.usage, charged=prices.cost(event.usage)))


def _with_price(lost: Message, usage: Usage) -> Usage:
    """The usage of a reply that broke off, at the model's prices if it was not charged."""
    if usage.charged is not None or lost.provider is None or lost.model is None:
        return usage
    known = dragoman.providers.prices_of(lost.provider, lost.model, time=lost.time, tokens=usage.input or 0)
    return usage if known is None else msgspec.structs.replace(usage, charged=known.cost(usage))


def failed(error: Exception) -> Failed:
    """The event that says that an error ended a reply."""
    return Failed(type(error).__name__, getattr(error, "message", "") or str(error))


# --- over HTTP --------------------------------------------------------------------------------------------------------

_NO_HEADERS: Final[Mapping[str, str]] = {}
_NOTHING_SENT: Final = Sent()
_BYTES_A_TOKEN: Final = 4
"""Estimates the tokens of a request for the limiter; corrected when the call ends."""
_REQUEST_IDS: Final = (
    "request-id",
    "x-request-id",
    "x-goog-request-id",
    "apim-request-id",
    "x-amzn-requestid",
    "cf-ray",
)
"""Headers with the provider's id of a request."""


class Prepared(Struct, frozen=True):
    """A call, its encoded request, and how its reply is decoded."""

    codec: Codec
    call: Call
    encoded: Encoded
    reader: AnswerReader | None = None
    """Extracts a structured answer that had to be requested in another form."""

    def decoder(self) -> Decoder:
        """A decoder for the reply."""
        decoder = self.codec.decoder(self.call, self.encoded)
        return decoder if self.reader is None else self.reader.wrap(decoder)


class ModelCall(ReplyCall):
    """One call over HTTP. It is not retried once part of the reply has reached the caller."""

    line: Line | None = None
    """The limiter's queue in which each attempt waits, if there is a limiter."""
    most_bytes: int = MAX_BODY_BYTES
    """The limit of a reply that is read whole; a longer one is a ProtocolError."""
    _place: Place | None = None
    _queued: float = 0.0
    """Seconds in the limiter's queue before the current attempt."""
    is_read: bool = True
    """Whether the body is a prompt whose tokens the limiter counts."""
    _sent: HttpRequest | None = None
    _made: MadeKey | None = None
    """The request of the current attempt and its key, if the key is generated."""
    _key_renewed: bool = False
    _waited: float = 0.0
    """Seconds waited before the current attempt."""
    _began: float = 0.0
    """When the first attempt started; `_started` is the current one."""
    _started: float = 0.0
    _first_token: float | None = None
    _headers: Mapping[str, str] = _NO_HEADERS
    _status: int | None = None
    _request_id: str | None = None
    _earlier: Sent = _NOTHING_SENT
    _response: Response | None = None
    _decoder: Decoder | None = None

    def __init__(
        self,
        request: HttpRequest,
        prepared: Prepared,
        connection: Connection,
        transport: Transport,
        *,
        blocking: bool,
        remember: Callable[[Call], tuple[Call, ...]] | None = None,
    ) -> None:
        super().__init__()
        self._remember: Callable[[Call], tuple[Call, ...]] | None = remember
        """Called with the call when it is first sent; returns the recent ones."""
        self._blocking: bool = blocking
        self.request: HttpRequest = request
        self._prepared: Prepared = prepared
        self._connection: Connection = connection
        self._transport: Transport = transport

    @property
    def account(self) -> Reply:
        encoded = self._prepared.encoded
        return Reply(
            request_id=self._request_id,
            message=self._fold.message(),
            headers=self._headers,
            received=self._connection.wall_clock(),
            adaptations=encoded.adaptations,
            losses=encoded.losses,
            attempts=tuple(self.attempts),
            repeated=tuple(self._repeated),
            sent=self._earlier,
        )

    async def advance(self) -> None:
        """Send the request if needed, and read the next piece of a stream, or the whole reply."""
        streamed, events = self._prepared.call.stream, list[ReplyEvent]()
        problem: ProviderError | None = None
        try:
            try:
                piece = await self._read()
            except ProviderError:
                if streamed and self._decoder is not None:  # what it holds back has arrived: a count, or even the end
                    with suppress(ProviderError):
                        self._decoder.finish(events)
                raise
            decoder = self._decoder = self._decoder or self._prepared.decoder()
            if piece:
                decoder.feed(piece, events)
            if not piece or not streamed or decoder.done:
                if self._response is not None and decoder.done:
                    await self._response.finish()  # the dialect marks the end; the server may keep the connection open
                decoder.finish(events)
                self.over = True
        except ProviderError as error:
            problem = error
        if self._connection.prices is not None:
            events = [charge(event, self._connection.prices) for event in events]
        if streamed and self._first_token is None and any(map(is_content, events)):
            self._first_token = self._connection.clock() - self._started
        self._fold.extend(events)
        self._unsaid += events
        if problem is not None and not self._fold.completed:
            raise problem
        if self.over or problem is not None:  # after the end of the reply an error does not matter
            self.over = True
            if streamed:  # else `reply` closes the call
                await self.release()
            self._record("ok", None)

    async def _read(self) -> bytes:
        response = self._response
        if response is None:
            line = self.line
            if line is not None:
                await self._queue_up(line)
            request = self._begin_attempt()
            if isinstance(self._connection.key, Credential):
                request = await self._sign(request, self._connection.key)
            if self._remember is not None:
                self._earlier, self._remember = Sent.of(self._remember(self._prepared.call)), None
            response = self._response = await self._transport.open(request)
            headers = self._headers = response.headers
            self._status = response.status
            if line is not None:
                line.learn(headers, self._connection.clock(), self._connection.wall_clock())
            self._request_id = next(filter(None, map(headers.get, _REQUEST_IDS)), None)
            if not 200 <= self._status < 300:
                raise self._refusal(await response.read())
        if self._prepared.call.stream:
            return await response.next()
        self._response = None
        return await response.read(self.most_bytes)  # this releases the connection in any case

    async def release(self) -> None:
        response, self._response, self._decoder = self._response, None, None
        if response is not None:
            await response.aclose()
        if self.line is not None and self._place is not None:
            place, self._place = self._place, None
            usage = self._fold.message().usage
            self.line.leave(place, self._connection.clock(), tokens=None if usage is None else usage.tokens)

    async def _queue_up(self, line: Line) -> None:
        """Wait in the limiter's queue; the total timeout of the call includes this."""
        clock, total = self._connection.clock, self.request.timeout.total
        began = self._started = clock()
        if not self.attempts:
            self._began = began
        limit = None if total is None else total - (began - self._began)
        tokens = len(self.request.body) // _BYTES_A_TOKEN if self.is_read else 0
        self._place = await line.enter(
            tokens,
            clock,
            blocking=self._blocking,
            limit=limit,
            longest=self._connection.retry.longest_advice,
            name=self._connection.name,
        )
        self._queued = clock() - began

    # --- decisions and the ledger ---

    def _begin_attempt(self) -> HttpRequest:
        """The request of the next attempt; the total timeout applies to all attempts together."""
        self._started, self._first_token = self._connection.clock(), None
        if not self.attempts and not self._queued:
            self._began = self._started
            return self.request
        timeout = self.request.timeout
        if timeout.total is None:
            return self.request
        left = max(0.001, timeout.total - (self._started - self._began))
        return msgspec.structs.replace(self.request, timeout=msgspec.structs.replace(timeout, total=left))

    async def _sign(self, request: HttpRequest, credential: Credential) -> HttpRequest:
        self._made = None
        try:
            self._made = await credential.made(blocking=self._blocking)
        except ProviderError as error:
            error.provider, error.model = self._connection.provider.name, self._connection.model
            raise
        except MissingKeyError as error:  # as a ProviderError, so that a fallback chain continues
            provider, model = self._connection.provider.name, self._connection.model
            raise AuthenticationError(error.message, hint=error.hint, provider=provider, model=model) from error
        self._sent = self._connection.signed(request, self._made)
        return self._sent

    def _can_renew_key(self, error: ProviderError) -> bool:
        """Whether the provider has rejected a generated key, for the first time in this call."""
        key, made = self._connection.key, self._made
        if self._key_renewed or made is None or not isinstance(error, AuthenticationError) or self.has_begun:
            return False
        self._key_renewed = True
        cast("Credential", key).discard(made)
        return True

    def _refusal(self, body: bytes) -> ProviderError:
        error = dragoman.providers.read_refusal(self._status or 0, self._headers, body, self._prepared.call)
        advice = retry_after_of(self._headers, self._connection.wall_clock())
        if advice is not None:  # the header is more precise than the body
            error.retry_after = advice
        if self.line is not None and error.retry_after and isinstance(error, RateLimitError | OverloadedError):
            self.line.close(error.retry_after, self._connection.clock())  # for all calls
        return error

    async def try_again(self, error: ProviderError) -> bool:
        """Decide whether to retry, and wait until then."""
        without_keys(error, (self._sent or self.request).headers)
        if self._can_renew_key(error):
            self._record("the key was rejected; generating a new one", error)
            self._begin_anew(0.0)
            return True
        connection, total = self._connection, self.request.timeout.total
        if error.code == "unknown_host" and connection.provider.cloud is not None:
            error.hint = "Check the region or resource in its name, and that this machine is online."
        elapsed = connection.clock() - self._began
        delivered = self._prepared.call.stream and self.has_begun
        decision = decide(
            error,
            self._headers,
            connection.retry,
            len(self.attempts) + 1,
            elapsed=elapsed,
            delivered=delivered,
            random=connection.random(),
            now=connection.wall_clock(),
        )
        if not isinstance(decision, GiveUp) and total is not None and elapsed + decision.after >= total:
            decision = GiveUp(f"{decision.why}; the call may take {total:g} s in all")
        if self.veto is not None and not isinstance(decision, GiveUp) and (why := self.veto(error, decision.after)):
            decision = GiveUp(f"{decision.why}; {why}")
        self._record(decision.why, error)
        if isinstance(decision, GiveUp):
            return False
        self._begin_anew(decision.after)
        await pause(decision.after, blocking=self._blocking)
        return True

    def _begin_anew(self, wait: float) -> None:
        self._headers, self._status, self._request_id = _NO_HEADERS, None, None
        self._waited, self._queued = wait, 0.0

    def _record(self, outcome: str, error: ProviderError | None) -> None:
        self.attempts.append(
            AttemptRecord(
                number=len(self.attempts) + 1,
                outcome=outcome,
                model=self._connection.name,
                waited=self._waited,
                queued=self._queued,
                duration=self._connection.clock() - self._started,
                first_token=self._first_token,
                status=self._status if error is None else error.status,
                request_id=self._request_id,
            )
        )
