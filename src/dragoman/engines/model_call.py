"""One model call, written once: send, read, decode, try again, as a generator of effects.

Owns: the order of things in a call, the attempt ledger, and the rule that nothing is retried silently once an event has
reached the caller.
Must not know: sockets, threads, event loops, clocks. It asks for effects and is told how they went; a plain and an
async driver carry them out (plain.py, on_loop.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from dragoman.conversation import Failed, Fold, Message, ReplyEvent, ReplyStarted
from dragoman.errors import ProviderError
from dragoman.providers.codec import Adaptation, Decoder, Loss
from dragoman.transport.protocol import HttpRequest
from dragoman.transport.rate_limits import rate_limits_of
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

from .reply import Reply

__all__ = ["Effect", "Emit", "ModelCall", "Open", "Opened", "Prepared", "ReadAll", "ReadPiece", "Sleep"]


class Open(Struct, frozen=True):
    """Effect: send the request; the answer is Opened, or the transport's error is thrown in."""

    request: HttpRequest


class Opened(Struct, frozen=True):
    """The status and headers of a response; its body is read by further effects."""

    status: int
    headers: Mapping[str, str]


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

_PIECE = ReadPiece()
_ALL = ReadAll()


class Prepared(Struct, frozen=True, kw_only=True):
    """What the codec made of a call, and what it offers for reading the reply."""

    decoder: Callable[[], Decoder]
    error: Callable[[int, Mapping[str, str], bytes], ProviderError]
    stream: bool
    adaptations: tuple[Adaptation, ...] = ()
    losses: tuple[Loss, ...] = ()


class ModelCall:
    """One call under way: its steps, and the account of it that is complete at any time."""

    def __init__(
        self,
        request: HttpRequest,
        prepared: Prepared,
        *,
        retry: RetryPolicy,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        self._request: HttpRequest = request
        self._prepared: Prepared = prepared
        self._retry: RetryPolicy = retry
        self._clock: Callable[[], float] = clock
        self._wall_clock: Callable[[], float] = wall_clock
        self._random: Callable[[], float] = random
        self._fold: Fold = Fold()
        self._attempts: list[AttemptRecord] = []
        self._headers: Mapping[str, str] = {}
        self._status: int | None = None
        self._handed_over: bool = False
        """Whether an event has reached the caller."""

    @property
    def message(self) -> Message:
        """What was received so far; marked interrupted unless the reply is complete."""
        return self._fold.message()

    @property
    def reply(self) -> Reply:
        """The message and the account of the call so far."""
        headers = self._headers
        return Reply(
            message=self.message,
            request_id=request_id_of(headers),
            headers=headers,
            rate_limits=rate_limits_of(headers, self._wall_clock()),
            adaptations=self._prepared.adaptations,
            losses=self._prepared.losses,
            attempts=tuple(self._attempts),
        )

    def steps(self) -> Generator[Effect, Any, None]:
        """Carry the call out. Ends when the reply is complete; raises a ProviderError otherwise."""
        began = self._clock()
        waited = 0.0
        while True:
            started = self._clock()
            try:
                yield from self._attempt()
            except ProviderError as error:
                decision = self._decision(error, self._clock() - began)
                self._note(decision.why, started, waited, error)
                if isinstance(decision, GiveUp):
                    yield from self._fail(error)
                    raise
                waited = decision.after
            else:
                self._note("ok", started, waited, None)
                return
            self._fold = Fold()
            yield Sleep(waited)

    def _decision(self, error: ProviderError, elapsed: float) -> Decision:
        attempt = Attempt(headers=self._headers, error=error, elapsed=elapsed, delivered=self._handed_over)
        made = len(self._attempts) + 1
        return decide(attempt, self._retry, made, random=self._random(), now=self._wall_clock())

    def _attempt(self) -> Generator[Effect, Any, None]:
        self._headers, self._status = {}, None
        opened: Opened = yield Open(self._request)
        self._headers, self._status = opened.headers, opened.status
        if not 200 <= opened.status < 300:
            body: bytes = yield _ALL
            error = self._prepared.error(opened.status, opened.headers, body)
            advice = retry_after_of(opened.headers, self._wall_clock())
            if advice is not None:  # the header is more precise than what a body may say
                error.retry_after = advice
            raise error
        decoder = self._prepared.decoder()
        events: list[ReplyEvent] = []
        try:
            while piece := (yield _PIECE):
                decoder.feed(piece, events)
                if events and not (len(events) == 1 and type(events[0]) is ReplyStarted):
                    # That a reply has begun is told together with what it begins with: until then a provider that
                    # accepts the request and fails at once can still be tried again.
                    yield from self._hand_over(events)
                    events = []
            decoder.finish(events)
        except ProviderError:
            if any(type(event) is not ReplyStarted for event in events):
                yield from self._hand_over(events)
            if self._fold.completed:
                return  # the provider had said that this is all: nothing is missing
            raise
        yield from self._hand_over(events)

    def _hand_over(self, events: list[ReplyEvent]) -> Generator[Effect, Any, None]:
        for event in events:
            self._fold.push(event)
        if self._prepared.stream:
            self._handed_over = True
            yield Emit(events)

    def _fail(self, error: ProviderError) -> Generator[Effect, Any, None]:
        failed = Failed(type(error).__name__, error.message)
        self._fold.push(failed)
        error.partial = self.message if self.message.blocks else None
        if self._prepared.stream:
            yield Emit([failed])

    def _note(self, outcome: str, started: float, waited: float, error: ProviderError | None) -> None:
        self._attempts.append(
            AttemptRecord(
                number=len(self._attempts) + 1,
                outcome=outcome,
                waited=waited,
                duration=self._clock() - started,
                status=self._status if error is None else error.status,
                request_id=request_id_of(self._headers),
            )
        )
