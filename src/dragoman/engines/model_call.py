"""One model call, written once: what is sent, what becomes of an answer or a failure, and when it is tried again.

Owns: every decision in a call, the attempt ledger, and the rule that nothing is retried silently once an event has
reached the caller.
Must not know: sockets, threads, event loops, clocks. For a stream it is a generator that asks for effects and is told
how they went; a whole reply needs only an exchange and then another one, so there it is just told. A plain and an async
driver do the work (plain.py, on_loop.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from msgspec import Struct

from dragoman.conversation import Failed, Fold, Message, ReplyEvent, ReplyStarted
from dragoman.errors import ProviderError
from dragoman.providers.codec import Call, Codec, Decoder, Encoded
from dragoman.transport.protocol import HttpRequest
from dragoman.transport.retry import (
    Attempt,
    AttemptRecord,
    Decision,
    GiveUp,
    RetryPolicy,
    decide,
    request_id_of,
    retry_after_of,
)

from .keys import without_keys
from .reply import Reply

if TYPE_CHECKING:
    from dragoman.providers.answers import AnswerReader

__all__ = ["Effect", "Emit", "ModelCall", "Open", "Opened", "Prepared", "ReadAll", "ReadPiece", "Sleep"]


class Open(Struct, frozen=True):
    """Effect: send the request; the answer is Opened, or the transport's error is thrown in."""

    request: HttpRequest


class Opened(Protocol):
    """A response; its body is read by further effects."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


class ReadPiece(Struct, frozen=True):
    """Effect: the next bytes of the body; the answer is empty at its end."""


class ReadAll(Struct, frozen=True):
    """Effect: the whole rest of the body; the response is done with."""


class Sleep(Struct, frozen=True):
    """Effect: wait. The response, if one is open, is closed first."""

    seconds: float


class Emit(Struct, frozen=True):
    """Effect: hand these events to the caller."""

    events: list[ReplyEvent]


Effect: TypeAlias = Open | ReadPiece | ReadAll | Sleep | Emit

_NO_HEADERS: Final[Mapping[str, str]] = {}
_PIECE = ReadPiece()
_ALL = ReadAll()


class Prepared(Struct, frozen=True):
    """A call as the model gets it, what the codec made of it, and how its reply is read."""

    codec: Codec
    call: Call
    encoded: Encoded
    reader: AnswerReader | None = None

    def plain_message(self, body: bytes) -> Message | None:
        """The message of a whole reply that needs no decoder."""
        return self.codec.plain_message(body, self.call, self.encoded) if self.reader is None else None

    def decoder(self) -> Decoder:
        """What reads one reply."""
        decoder = self.codec.decoder(self.call, self.encoded)
        return decoder if self.reader is None else self.reader.wrap(decoder)

    def error(self, status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
        """What a reply with such a status says."""
        return self.codec.error(status, headers, body, self.call)


# A struct, because one is made for every call, and a struct is made at a third of the cost.
class ModelCall(Struct, eq=False):
    """One call under way: its steps, and the account of it that is complete at any time."""

    request: HttpRequest
    prepared: Prepared
    retry: RetryPolicy
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    random: Callable[[], float]
    _waited: float = 0.0
    """Seconds before the attempt that is under way."""
    _began: float = 0.0
    """When the first attempt began, and when the one that is under way."""
    _started: float = 0.0
    _fold: Fold | None = None
    """What puts the message together, where one is needed for that."""
    _plain: Message | None = None
    """The message, where none is."""
    _attempts: list[AttemptRecord] = []
    _headers: Mapping[str, str] = _NO_HEADERS
    _status: int | None = None
    _request_id: str | None = None
    _handed_over: bool = False
    """Whether an event has reached the caller."""

    @property
    def message(self) -> Message:
        """What was received so far; marked interrupted unless the reply is complete."""
        return self._plain if self._plain is not None else self._folded.message()

    @property
    def _folded(self) -> Fold:
        fold = self._fold
        if fold is None:
            fold = self._fold = Fold()
        return fold

    @property
    def reply(self) -> Reply:
        """The message and the account of the call so far."""
        encoded = self.prepared.encoded
        return Reply(
            message=self.message,
            request_id=self._request_id,
            headers=self._headers,
            received=self.wall_clock(),
            adaptations=encoded.adaptations,
            losses=encoded.losses,
            attempts=tuple(self._attempts),
        )

    # --- what a driver tells --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The first attempt begins now."""
        self._began = self._started = self.clock()

    def opened(self, response: Opened) -> None:
        """The head of a response is here."""
        headers = response.headers
        self._headers, self._status, self._request_id = headers, response.status, request_id_of(headers)

    def take_whole(self, body: bytes) -> None:
        """The whole body of that response is here. Raises a ProviderError if it is not a reply."""
        status = self._status
        if status is None or not 200 <= status < 300:
            raise self._refusal(body)
        self._plain = self.prepared.plain_message(body)
        if self._plain is None:
            self._take_odd(body)
        self._note("ok", None)

    def _take_odd(self, body: bytes) -> None:
        fold, events, decoder = self._folded, list[ReplyEvent](), self.prepared.decoder()
        try:
            decoder.feed(body, events)
            decoder.finish(events)
        except ProviderError:
            fold.extend(events)
            if not fold.completed:  # if it is, the provider had said that this is all: nothing is missing
                raise
        else:
            fold.extend(events)

    def failed(self, error: ProviderError) -> float | None:
        """The attempt failed: the seconds to wait before another one, which begins then; None if that is all."""
        without_keys(error, self.request.headers)
        decision = self._decision(error)
        self._note(decision.why, error)
        if isinstance(decision, GiveUp):
            self._folded.push(_failed(error))
            message = self._folded.message()
            error.partial = message if message.blocks else None
            return None
        self._fold = None
        self._headers, self._status, self._request_id = _NO_HEADERS, None, None
        self._waited = decision.after
        return decision.after

    def again(self) -> None:
        """Another attempt begins now."""
        self._started = self.clock()

    # --- a stream -----------------------------------------------------------------------------------------------------

    def steps(self) -> Generator[Effect, Any, None]:
        """Carry a streamed call out. Ends when the reply is complete; raises a ProviderError otherwise."""
        self.begin()
        while True:
            try:
                yield from self._attempt()
            except ProviderError as error:
                pause = self.failed(error)
                if pause is None:
                    yield Emit([_failed(error)])
                    raise
            else:
                self._note("ok", None)
                return
            yield Sleep(pause)
            self.again()

    def _attempt(self) -> Generator[Effect, Any, None]:
        self.opened((yield Open(self.request)))
        if self._status is None or not 200 <= self._status < 300:
            raise self._refusal((yield _ALL))
        yield from self._take_stream(self.prepared.decoder())

    def _take_stream(self, decoder: Decoder) -> Generator[Effect, Any, None]:
        events: list[ReplyEvent] = []
        try:
            while piece := (yield _PIECE):
                decoder.feed(piece, events)
                if events and not (len(events) == 1 and type(events[0]) is ReplyStarted):
                    # That a reply has begun is told together with what it begins with: until then a provider that
                    # accepts the request and fails at once can still be tried again.
                    yield self._handing_over(events)
                    events = []
            decoder.finish(events)
        except ProviderError:
            if any(type(event) is not ReplyStarted for event in events):
                yield self._handing_over(events)
            if self._folded.completed:
                return  # the provider had said that this is all: nothing is missing
            raise
        yield self._handing_over(events)

    def _handing_over(self, events: list[ReplyEvent]) -> Emit:
        self._folded.extend(events)
        self._handed_over = True
        return Emit(events)

    # --- decisions and the ledger -------------------------------------------------------------------------------------

    def _refusal(self, body: bytes) -> ProviderError:
        """What a response says whose status is not that of a reply."""
        error = self.prepared.error(self._status or 0, self._headers, body)
        advice = retry_after_of(self._headers, self.wall_clock())
        if advice is not None:  # the header is more precise than what a body may say
            error.retry_after = advice
        return error

    def _decision(self, error: ProviderError) -> Decision:
        elapsed = self.clock() - self._began
        attempt = Attempt(headers=self._headers, error=error, elapsed=elapsed, delivered=self._handed_over)
        made = len(self._attempts) + 1
        return decide(attempt, self.retry, made, random=self.random(), now=self.wall_clock())

    def _note(self, outcome: str, error: ProviderError | None) -> None:
        self._attempts.append(
            AttemptRecord(
                number=len(self._attempts) + 1,
                outcome=outcome,
                waited=self._waited,
                duration=self.clock() - self._started,
                status=self._status if error is None else error.status,
                request_id=self._request_id,
            )
        )


def _failed(error: ProviderError) -> Failed:
    return Failed(type(error).__name__, error.message)
