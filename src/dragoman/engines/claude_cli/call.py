"""One call of the claude program, written once: find or start it, speak, listen, as a generator of effects.

Owns: the order of things in a call, which program answers it, and what becomes of the program afterwards.
Must not know: processes, threads, event loops. It asks for effects and is told how they went (plain.py, on_loop.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import Failed, Fold, Message, Native, ReplyEvent, ReplyStarted, Text, ToolCall
from dragoman.engines.keys import without_keys
from dragoman.engines.media import with_files_read
from dragoman.engines.reply import Reply
from dragoman.errors import ConfigurationError, ProviderError
from dragoman.providers.codec import Adaptation, Call, Loss
from dragoman.providers.structured import AnswerReader
from dragoman.tools.permission import Deny
from dragoman.transport.protocol import Timeouts
from dragoman.transport.retry import AttemptRecord

from .dialogue import Dialogue, Question
from .failures import crashed, malformed, no_session, refused, silent
from .history import Mark, fingerprint, latest_mark
from .launch import Launch
from .names import PROVIDER
from .pool import Handle, Live, Pool, continuation, results_in
from .prompting import result_losses, told
from .reading import ReplyReader

__all__ = ["Decide", "Effect", "Emit", "Gone", "Prepared", "ProgramCall", "Read", "Start", "Stop", "TimedOut", "Write"]

H = TypeVar("H", bound=Handle)

_DRAIN_SECONDS: Final = 10.0
"""How long an interrupted program may take to stop."""
_KEPT: Final = ("duration_ms", "modelUsage", "num_turns", "permission_denials", "total_cost_usd")


class Start(Struct, frozen=True):
    """Effect: start the program; the answer is its handle, or an error is thrown in."""

    launch: Launch


class Write(Struct, frozen=True):
    """Effect: say this to the program. Whether it listens shows when it is read from."""

    handle: Any
    data: bytes


class Read(Struct, frozen=True):
    """Effect: the program's next line; or Gone, or TimedOut."""

    handle: Any
    seconds: float | None


class Decide(Struct, frozen=True):
    """Effect: ask the caller about a tool of the program's own; the answer is a decision."""

    call: ToolCall


class Emit(Struct, frozen=True):
    """Effect: hand these events to the caller."""

    events: list[ReplyEvent]


class Stop(Struct, frozen=True):
    """Effect: end the program, and all that it has started."""

    handle: Any
    gently: bool = False
    """Let it come to its own end first."""


Effect: TypeAlias = Start | Write | Read | Decide | Emit | Stop


class Gone(Struct, frozen=True):
    """The program has ended."""

    code: int | None
    words: str


class TimedOut(Struct, frozen=True):
    """It said nothing in time."""

    words: str


class Prepared(Struct, frozen=True):
    """A call as the program can take it."""

    call: Call
    launch: Launch
    answer: AnswerReader | None
    adaptations: tuple[Adaptation, ...]
    timeouts: Timeouts
    start_seconds: float
    keep_sessions: bool


class _Unusable(Exception):  # noqa: N818 -- it never leaves this module
    """This program will not answer, and nothing of its reply was seen: another one may."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__()
        self.error: ProviderError = error


class ProgramCall(Generic[H]):
    """One call under way."""

    def __init__(
        self,
        prepared: Prepared,
        pool: Pool[H],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._prepared: Prepared = prepared
        self._call: Call = prepared.call
        self._messages: tuple[Message, ...] = prepared.call.conversation.messages
        self._read: tuple[Message, ...] = with_files_read(prepared.call.conversation).messages
        """The same with the files that they name; what a program knows is told by the others."""
        self._pool: Pool[H] = pool
        self._clock: Callable[[], float] = clock
        self._wall_clock: Callable[[], float] = wall_clock
        self._began: float = clock()
        self._fold: Fold = Fold()
        self._unsaid: list[ReplyEvent] = []
        self._handed_over: bool = False
        self._live: Live[H] | None = None
        """The program that is being spoken to."""
        self._losses: tuple[Loss, ...] = ()
        self._attempts: list[AttemptRecord] = []

    @property
    def message(self) -> Message:
        """What was received so far; marked interrupted unless the reply is complete."""
        return self._fold.message()

    @property
    def reply(self) -> Reply:
        """The message and the account of the call so far."""
        return Reply(
            message=self._fold.message(),
            received=self._wall_clock(),
            adaptations=self._prepared.adaptations,
            losses=self._losses,
            attempts=tuple(self._attempts),
        )

    # --- the call ---

    def steps(self) -> Generator[Effect, Any, None]:
        """Carry the call out. Ends when the reply is complete; raises otherwise, and then the program is gone."""
        try:
            yield from self._by_any_program()
        except (ProviderError, ConfigurationError) as error:
            yield from self._give_up()
            if isinstance(error, ProviderError):
                without_keys(error, {"x-api-key": self._prepared.launch.environment.get("ANTHROPIC_API_KEY", "")})
                yield from self._fail(error)
            raise

    def _by_any_program(self) -> Generator[Effect, Any, None]:
        """The one that knows the conversation, or one that takes its session up, or one that is told everything."""
        for ended in self._pool.sweep():
            yield Stop(ended.handle)
        live = self._pool.take(self._prepared.launch.key, self._messages)
        if live is not None and (yield from self._tried(live, None)):
            return
        mark = latest_mark(self._messages) if self._prepared.keep_sessions else None
        if mark is not None and (yield from self._tried(None, mark)):
            return
        try:
            yield from self._by(None, None)
        except _Unusable as unusable:
            raise unusable.error from None

    def _tried(self, live: Live[H] | None, mark: tuple[int, Mark] | None) -> Generator[Effect, Any, bool]:
        try:
            yield from self._by(live, mark)
        except _Unusable:
            yield from self._give_up()
            self._fold, self._unsaid = Fold(), []
            return False
        return True

    def _by(self, live: Live[H] | None, mark: tuple[int, Mark] | None) -> Generator[Effect, Any, None]:
        if live is not None:
            self._live = live
            if live.draining:
                yield from self._drain(live)
            yield from self._go_on(live)
        else:
            known = 0 if mark is None else mark[0] + 1
            live = yield from self._start(None if mark is None else mark[1])
            yield Write(live.handle, live.dialogue.opening() + self._turn(known))
        yield from self._listen(live)

    def _start(self, mark: Mark | None) -> Generator[Effect, Any, Live[H]]:
        launch = self._prepared.launch
        if mark is not None:
            launch = msgspec.structs.replace(launch, resume=(mark.session, mark.message))
        handle: H = yield Start(launch)
        self._live = live = Live(handle, Dialogue(launch), launch.key)
        return live

    def _go_on(self, live: Live[H]) -> Generator[Effect, Any, None]:
        """Tell a program that knows the beginning what is new."""
        new = continuation(live.seen, self._messages)
        assert new is not None
        middle = new.first + new.answering
        if not new.answering:
            yield Write(live.handle, self._turn(middle))
            return
        answers = self._read[new.first : middle]
        self._losses = result_losses(answers, new.first, self._call.profile)
        said = b""
        if middle < len(self._messages):
            if not live.dialogue.asks_for(live.seen[-1].tool_calls):
                # It disposes of these calls itself and is speaking already: it would not hear this in time.
                raise _Unusable(malformed(self._call, "it went on without the user's words"))
            said = self._turn(middle)
        yield Write(live.handle, said + b"".join(live.dialogue.give(results_in(answers))))

    def _turn(self, first: int) -> bytes:
        """All messages from this one on, as a turn of the user."""
        content, losses = told(self._read[first:], first, self._call.profile)
        self._losses += losses
        return Dialogue.turn(content)

    def _drain(self, live: Live[H]) -> Generator[Effect, Any, None]:
        """Read what is left of a turn that was interrupted."""
        until = self._clock() + _DRAIN_SECONDS
        while True:
            line = yield Read(live.handle, max(0.0, until - self._clock()))
            if not isinstance(line, bytes):
                raise _Unusable(crashed(self._call, None, ""))
            heard = live.dialogue.receive(line)
            heard.out += live.dialogue.give_up("The user interrupted.")
            heard.out += [Dialogue.decide(question, Deny("The user interrupted.")) for question in heard.questions]
            if heard.out:
                yield Write(live.handle, b"".join(heard.out))
            if heard.result is not None:
                live.draining = False
                return

    # --- listening ---

    def _listen(self, live: Live[H]) -> Generator[Effect, Any, None]:
        dialogue = live.dialogue
        dialogue.reader = reader = ReplyReader(
            self._call,
            self._prepared.launch.names,
            own_tools=lambda: dialogue.own_tools,
            structured=self._prepared.launch.structured,
            answer=self._prepared.answer,
        )
        while True:
            line = yield Read(live.handle, self._patience(dialogue))
            if not isinstance(line, bytes):
                raise self._unanswered(line, dialogue, reused=bool(live.seen))
            heard = dialogue.receive(line)
            if heard.out:
                yield Write(live.handle, b"".join(heard.out))
            for question in heard.questions:
                yield Write(live.handle, (yield from self._decided(question)))
            if heard.retried is not None:
                self._note(heard.retried.word, heard.retried.status, heard.retried.wait)
            if reader.complete:
                dialogue.take_calls()
                yield from self._end(live, reader, heard.events, {})
                return
            if heard.result is not None:
                yield from self._end_turn(live, reader, heard.events, heard.result)
                return
            if heard.events:
                yield from self._hand_over(heard.events)

    def _decided(self, question: Question) -> Generator[Effect, Any, bytes]:
        decision = yield Decide(question.call)
        return Dialogue.decide(question, decision)

    def _patience(self, dialogue: Dialogue) -> float | None:
        times = self._prepared.timeouts
        quiet = times.read if dialogue.greeted else self._prepared.start_seconds
        if times.total is None:
            return quiet
        left = max(0.0, times.total - (self._clock() - self._began))
        return left if quiet is None else min(quiet, left)

    def _unanswered(self, why: Gone | TimedOut, dialogue: Dialogue, *, reused: bool) -> Exception:
        if isinstance(why, Gone):
            error: ProviderError = crashed(self._call, why.code, why.words)
            return _Unusable(error) if reused and not self._fold_has_parts() else error
        total = self._prepared.timeouts.total
        passed = self._clock() - self._began
        if total is not None and passed >= total:
            return silent(self._call, total, "answering", why.words, "total_timeout")
        if not dialogue.greeted:
            return silent(self._call, self._prepared.start_seconds, "starting", why.words, "start_timeout")
        return silent(self._call, self._prepared.timeouts.read or 0.0, "silent", why.words)

    def _fold_has_parts(self) -> bool:
        return self._handed_over or bool(self._fold.message().blocks)

    # --- the end ---

    def _end_turn(
        self, live: Live[H], reader: ReplyReader, events: list[ReplyEvent], result: Mapping[str, Raw]
    ) -> Generator[Effect, Any, None]:
        told = msgspec.json.decode(msgspec.json.encode(dict(result)), type=dict[str, object])
        if told.get("is_error"):
            if no_session(told) and not self._fold_has_parts():
                raise _Unusable(refused(self._call, told, live.dialogue.word))
            raise refused(self._call, told, live.dialogue.word)
        reader.finish(result, events)
        live.dialogue.reader = None
        fields = {name: Raw(bytes(result[name])) for name in _KEPT if name in result}
        cost = told.get("total_cost_usd")
        if isinstance(cost, int | float):
            fields["cost_usd"] = Raw(msgspec.json.encode(max(0.0, cost - live.dialogue.cost)))
            live.dialogue.cost = cost
        yield from self._end(live, reader, events, fields)

    def _end(
        self, live: Live[H], reader: ReplyReader, events: list[ReplyEvent], fields: dict[str, Raw]
    ) -> Generator[Effect, Any, None]:
        """The reply is complete: keep the program for the next call, and tell."""
        self._fold.extend(events)
        so_far = self._fold.message()
        events.append(reader.ending(self._native(live.dialogue, so_far, fields)))
        self._fold.push(events[-1])
        self._note("ok", None, 0.0)
        live.seen = (*self._messages, self._fold.message())
        self._live = None
        for surplus in self._pool.put(live):
            yield Stop(surplus.handle, gently=surplus.at_rest)
        if self._call.stream:
            yield Emit(self._unsaid + events)

    def _native(self, dialogue: Dialogue, message: Message, fields: dict[str, Raw]) -> Native:
        marks = {
            "session_id": dialogue.session,
            "uuid": dialogue.message,
            "history": fingerprint((*self._messages, message)),
        }
        return Native(PROVIDER, {**{name: Raw(msgspec.json.encode(mark)) for name, mark in marks.items()}, **fields})

    def _hand_over(self, events: list[ReplyEvent]) -> Generator[Effect, Any, None]:
        self._fold.extend(events)
        if not self._call.stream:
            return
        self._unsaid += events
        # That a reply has begun is told together with what it begins with, as other engines do.
        if any(type(event) is not ReplyStarted for event in self._unsaid):
            self._handed_over = True
            said, self._unsaid = self._unsaid, []
            yield Emit(said)

    def _note(self, outcome: str, status: int | None, waited: float) -> None:
        number = len(self._attempts) + 1
        duration = self._clock() - self._began
        self._attempts.append(
            AttemptRecord(number=number, outcome=outcome, waited=waited, duration=duration, status=status)
        )

    def _fail(self, error: ProviderError) -> Generator[Effect, Any, None]:
        failed = Failed(type(error).__name__, error.message)
        self._fold.push(failed)
        error.partial = self.message if self.message.blocks else None
        if self._call.stream:
            yield Emit([failed])

    def _give_up(self) -> Generator[Effect, Any, None]:
        live, self._live = self._live, None
        if live is not None:
            yield Stop(live.handle)

    def abandon(self) -> list[Effect]:
        """Nobody wants the rest: what is to be done with the program. It goes on where something had been said."""
        live, self._live = self._live, None
        if live is None:
            return []
        partial = self.message
        if not _says_something(partial) or live.draining or not live.handle.usable:
            return [Stop(live.handle)]
        live.dialogue.reader = None
        live.draining = True
        live.seen = self._call.conversation.plus(partial).repaired().conversation.messages
        said = live.dialogue.interrupt() + b"".join(live.dialogue.give_up("The user interrupted."))
        return [Write(live.handle, said), *[Stop(each.handle, gently=each.at_rest) for each in self._pool.put(live)]]


def _says_something(message: Message) -> bool:
    return any(not isinstance(block, Text) or block.text for block in message.blocks)
