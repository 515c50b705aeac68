"""Calls of a model, written once for both colours: what every call does, and a call over HTTP.

Owns: Reply, the account of a call; ReplyCall, which hands events over as soon as something of an answer has come;
ModelCall: attempts, retries, and the ledger of them.
Must not know: plain or async. The transport blocks or awaits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec
from msgspec import Struct

import dragoman.providers
import dragoman.transport
from dragoman._stop import pause
from dragoman.conversation import Failed, Fold, Message, ReplyEvent, UsageReported
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
    """Calls that this process made. It has no fields: they are in no pickle, JSON or text, for others said them."""

    @classmethod
    def of(cls, calls: tuple[Call, ...]) -> Sent:
        made = cls()
        vars(made)["calls"] = calls
        return made

    @property
    def calls(self) -> tuple[Call, ...]:
        return self.__dict__.get("calls", ())


class Reply(Struct, frozen=True, kw_only=True):
    """A model's answer and the account of the call."""

    message: Message
    """Complete, or marked interrupted with everything that was received."""
    request_id: str | None = None
    headers: Mapping[str, str] = {}
    received: float = 0.0
    """When: the Unix time."""
    adaptations: tuple[Adaptation, ...] = ()
    """Options and schemas that were changed to suit the model."""
    losses: tuple[Loss, ...] = ()
    """Parts of the history that this model did not get."""
    attempts: tuple[AttemptRecord, ...] = ()
    """The ledger: every attempt, why it failed, how long was waited."""
    sent: Sent = Sent()
    """What this engine had sent of late and, last, what this reply answers: references, which `cache` compares."""

    @property
    def cost(self) -> float | None:
        """What the reply cost, in US dollars; None if that is not known."""
        return dragoman.providers.cost_of(self.message)

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        """How likely each token was; none where `ModelOptions.logprobs` did not ask for them."""
        return dragoman.providers.logprobs_of(self.message)  # loaded when somebody asks, as the next two

    @property
    def safety(self) -> tuple[SafetyRating, ...]:
        """What the provider's filters found in the prompt and the answer, where it says so."""
        return dragoman.providers.safety_of(self.message)

    @property
    def choices(self) -> tuple[Message, ...]:
        """All answers, where `ModelOptions.choices` asked for several; the first is the message itself."""
        return dragoman.providers.choices_of(self.message)

    @property
    def rate_limits(self) -> RateLimits | None:
        """What the provider said about its limits; None if nothing. Read from the headers when it is asked for."""
        return dragoman.transport.rate_limits_of(self.headers, self.received)  # loaded when somebody asks

    @property
    def cache(self) -> CacheUse:
        """What the provider's prompt cache did for this reply, and why it did no more; found out when asked for."""
        return dragoman.providers.explain_cache(self.sent.calls, self.message.usage)  # loaded when somebody asks


Veto: TypeAlias = Callable[[ProviderError, float], str]
"""Asked before another attempt, with the error and the seconds until then: why it is not made, or nothing."""


class ReplyCall:
    """One call, ready or under way: read it whole with `reply`, or event by event with `next`.

    A kind of call has `advance`, and where it holds something open `release`. In a plain program they block and never
    suspend (see `dragoman._stepping`).
    """

    veto: Veto | None = None
    over: bool = False
    """Whether nothing more will come."""
    _handed_over: bool = False
    _failure: ProviderError | None = None
    """What the call has ended with, until it is raised."""

    def __init__(self) -> None:
        self.attempts: list[AttemptRecord] = []
        self._fold: Fold = Fold()
        self._unsaid: list[ReplyEvent] = []
        """What was taken in and not handed over yet."""

    # --- for callers ---

    @property
    def message(self) -> Message:
        """What was received so far; marked interrupted unless the reply is complete."""
        return self._fold.message()

    @property
    def failure(self) -> ProviderError | None:
        """What the call has failed with, if `next` has handed that event over and will raise it."""
        return self._failure

    @property
    def account(self) -> Reply:
        """The message and the account of the call so far."""
        return Reply(message=self._fold.message(), attempts=tuple(self.attempts))

    async def reply(self) -> Reply:
        """Make the call and give the whole reply. Raises ProviderError."""
        try:
            while not self.over:
                await self._attempt()
        finally:
            await self.aclose()
        if self._failure is not None:
            raise self._failure
        return self.account

    async def next(self) -> list[ReplyEvent]:
        """The next events; none when the reply is complete. Raises ProviderError, once its event was handed over."""
        while not self.over:
            await self._attempt()
            # That a reply has begun is told together with what it begins with: until then a provider that accepts the
            # request and fails at once can still be tried again.
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
                self._fold, self._unsaid = Fold(), []
            else:
                self._fail(error)

    async def aclose(self) -> None:
        """Stop, and close what is open."""
        self.over = True
        await self.release()

    def _fail(self, error: ProviderError) -> None:
        self.take([failed(error)])
        message = self._fold.message()
        error.partial = message if message.blocks else None
        error.attempts = tuple(self.attempts)
        self.over, self._failure = True, error

    # --- for kinds of calls ---

    async def advance(self) -> None:
        """Wait for what comes next, and `take` it; set `over` with the last of it. Raises ProviderError."""
        raise NotImplementedError

    async def try_again(self, error: ProviderError) -> bool:
        """Whether the call is made once more after this error; waits until it is time."""
        return False

    async def release(self) -> None:
        """Close what is open."""

    def take(self, events: list[ReplyEvent]) -> None:
        """Take events of the reply in."""
        self._fold.extend(events)
        self._unsaid += events

    @property
    def has_begun(self) -> bool:
        """Whether something of the answer itself has come."""
        return self._handed_over or any(map(is_content, self._unsaid))


def charge(event: ReplyEvent, prices: Prices) -> ReplyEvent:
    """The event; one that reports usage says what that costs at these prices, whatever else was said."""
    if not isinstance(event, UsageReported):
        return event
    return UsageReported(msgspec.structs.replace(event.usage, charged=prices.cost(event.usage)))


def failed(error: Exception) -> Failed:
    """The event that says that an error ended a reply."""
    return Failed(type(error).__name__, getattr(error, "message", "") or str(error))


# --- over HTTP --------------------------------------------------------------------------------------------------------

_NO_HEADERS: Final[Mapping[str, str]] = {}
_NOTHING_SENT: Final = Sent()
_BYTES_A_TOKEN: Final = 4
"""Of a request's body, as an estimate for the limiter; what a call has really taken is put right when it ends."""
_REQUEST_IDS: Final = (
    "request-id",
    "x-request-id",
    "x-goog-request-id",
    "apim-request-id",
    "x-amzn-requestid",
    "cf-ray",
)
"""Headers with the id under which a provider can find a request."""


class Prepared(Struct, frozen=True):
    """A call as the model gets it, what the codec made of it, and how its reply is read."""

    codec: Codec
    call: Call
    encoded: Encoded
    reader: AnswerReader | None = None
    """What takes the answer out of a reply that had to be asked for in another form."""

    def decoder(self) -> Decoder:
        """A decoder for the reply."""
        decoder = self.codec.decoder(self.call, self.encoded)
        return decoder if self.reader is None else self.reader.wrap(decoder)


class ModelCall(ReplyCall):
    """One call over HTTP. Nothing is tried again once a part of the answer has reached the caller."""

    line: Line | None = None
    """Where each attempt waits for its turn, if there is a limiter."""
    most_bytes: int = MAX_BODY_BYTES
    """Of a reply that is read whole; a longer one is a ProtocolError."""
    _place: Place | None = None
    _queued: float = 0.0
    """Seconds in the line before the attempt that is under way."""
    is_read: bool = True
    """Whether a model reads the body, so that the limiter counts its tokens."""
    _sent: HttpRequest | None = None
    _made: MadeKey | None = None
    """The request of the attempt under way and its key, where the key was made for it."""
    _key_renewed: bool = False
    _waited: float = 0.0
    """Seconds before the attempt that is under way."""
    _began: float = 0.0
    """When the first attempt began, and when the one that is under way."""
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
        """Told of the call when it is sent for the first time; it gives those of late."""
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
            sent=self._earlier,
        )

    async def advance(self) -> None:
        """Send the request if it was not sent, and read the next piece of a stream, or the whole reply."""
        streamed, events = self._prepared.call.stream, list[ReplyEvent]()
        problem: ProviderError | None = None
        try:
            piece = await self._read()
            decoder = self._decoder = self._decoder or self._prepared.decoder()
            if piece:
                decoder.feed(piece, events)
            if not piece or not streamed or decoder.done:
                if self._response is not None and decoder.done:
                    await self._response.finish()  # the end that the dialect names is the end, whatever the server does
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
        if self.over or problem is not None:  # then the provider had said before that this is all: nothing is missing
            self.over = True
            if streamed:  # else whoever reads the whole of it closes the call
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
        return await response.read(self.most_bytes)  # which frees the connection, however it ends

    async def release(self) -> None:
        response, self._response, self._decoder = self._response, None, None
        if response is not None:
            await response.aclose()
        if self.line is not None and self._place is not None:
            place, self._place = self._place, None
            usage = self._fold.message().usage
            self.line.leave(place, self._connection.clock(), tokens=None if usage is None else usage.tokens)

    async def _queue_up(self, line: Line) -> None:
        """Wait for the turn of the next attempt; a limit of the whole call holds for the wait as well."""
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
        """The request of the next attempt: a limit of the whole call holds for all attempts together."""
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
        except MissingKeyError as error:  # found out in the middle of a call, of which a chain goes on
            provider, model = self._connection.provider.name, self._connection.model
            raise AuthenticationError(error.message, hint=error.hint, provider=provider, model=model) from error
        self._sent = self._connection.signed(request, self._made)
        return self._sent

    def _can_renew_key(self, error: ProviderError) -> bool:
        """Whether the provider has refused a key that was made, for the first time in this call."""
        key, made = self._connection.key, self._made
        if self._key_renewed or made is None or not isinstance(error, AuthenticationError) or self.has_begun:
            return False
        self._key_renewed = True
        cast("Credential", key).discard(made)
        return True

    def _refusal(self, body: bytes) -> ProviderError:
        error = dragoman.providers.read_refusal(self._status or 0, self._headers, body, self._prepared.call)
        advice = retry_after_of(self._headers, self._connection.wall_clock())
        if advice is not None:  # the header is more precise than what a body may say
            error.retry_after = advice
        if self.line is not None and error.retry_after and isinstance(error, RateLimitError | OverloadedError):
            self.line.close(error.retry_after, self._connection.clock())  # and not only for this call
        return error

    async def try_again(self, error: ProviderError) -> bool:
        """Decide about another attempt, and wait for its time."""
        without_keys(error, (self._sent or self.request).headers)
        if self._can_renew_key(error):
            self._record("the key was refused, and is made again", error)
            self._begin_anew(0.0)
            return True
        connection, total = self._connection, self.request.timeout.total
        if error.code == "unknown_host" and connection.provider.cloud is not None:
            error.hint = "Check the region or the resource that it is named by, and that this machine is online."
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
