"""One call of the claude program: find or start one, speak, listen.

Owns: the order of things in a call, which program answers it, and what becomes of the program afterwards.
Must not know: plain or async. A program's methods block or await.
"""

from __future__ import annotations

import threading
import time
from inspect import isawaitable
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import Message, Native, ToolCall
from dragoman.engines.call import Reply, ReplyCall
from dragoman.engines.keys import without_keys
from dragoman.errors import ProviderError
from dragoman.providers import Adaptation, AnswerReader, Call, Loss
from dragoman.tools import Allow, Ask, Deny
from dragoman.transport import AttemptRecord, Timeouts

from .decode import PROVIDER, ReplyReader, crashed, refused, silent
from .history import continuation, result_losses, write_turn
from .launch import ClaudeSettings, Launch
from .process import Program, ProgramEndedError, ProgramSilentError
from .protocol import Dialogue, Heard

_KEPT: Final = ("duration_ms", "modelUsage", "num_turns", "permission_denials", "total_cost_usd")


# --- programs that wait for the next turn of their conversations ------------------------------------------------------


class Live:
    """A program, and what it knows."""

    def __init__(self, program: Program, dialogue: Dialogue, key: str) -> None:
        self.program: Program = program
        self.dialogue: Dialogue = dialogue
        self.key: str = key
        """How it was started."""
        self.seen: tuple[Message, ...] = ()

    async def stop(self, *, gently: bool = False) -> None:
        """End it. In the middle of a turn it would take the end of its input for the failure of a tool, and go on."""
        await self.program.stop(gently=gently and not (self.seen and self.seen[-1].tool_calls))


class Pool:
    """The programs that nobody speaks to at the moment. Safe to use from any thread.

    A program is taken out while it is spoken to, so that no two callers ever share one.
    """

    def __init__(self, most: int) -> None:
        self._most: int = most
        self._idle: list[Live] = []
        """The one that was used last stands last."""
        self._closed: bool = False
        self._lock: threading.Lock = threading.Lock()

    def find(self, messages: tuple[Message, ...]) -> Live | None:
        """The program that knows most of this conversation, however it was started."""
        with self._lock:
            return self._best(None, messages)

    def take(self, key: str, messages: tuple[Message, ...]) -> tuple[Live | None, list[Live]]:
        """The program that knows most of this conversation; and those that have ended meanwhile, to be buried."""
        with self._lock:
            ended = [live for live in self._idle if not live.program.usable]
            best = self._best(key, messages)
            self._idle = [live for live in self._idle if live not in ended and live is not best]
            return best, ended

    def _best(self, key: str | None, messages: tuple[Message, ...]) -> Live | None:
        fitting = [
            live
            for live in self._idle
            if key in (None, live.key) and live.program.usable and continuation(live.seen, messages) is not None
        ]
        return max(fitting, key=lambda live: len(live.seen), default=None)

    def put(self, live: Live) -> list[Live]:
        """Keep a program; those that are to be ended instead."""
        with self._lock:
            if self._closed:
                return [live]
            self._idle.append(live)
            surplus = max(0, len(self._idle) - self._most)
            gone, self._idle = self._idle[:surplus], self._idle[surplus:]
            return gone

    async def aclose(self) -> None:
        """End all programs, and keep none from now on."""
        with self._lock:
            self._closed = True
            left, self._idle = self._idle, []
        for live in left:
            await live.stop(gently=True)


# --- a call -----------------------------------------------------------------------------------------------------------


class Prepared(Struct, frozen=True):
    """A call as the program can take it."""

    call: Call
    launch: Launch
    answer: AnswerReader | None
    adaptations: tuple[Adaptation, ...]
    timeouts: Timeouts
    settings: ClaudeSettings


class _UnusableError(ProviderError):
    """This program will not answer, and nothing of its reply was seen: another one may."""


class ProgramCall(ReplyCall):
    """One call under way, with an account of it that is complete at any time."""

    def __init__(self, prepared: Prepared, pool: Pool, program: type[Program]) -> None:
        super().__init__()
        self._prepared: Prepared = prepared
        self._call: Call = prepared.call
        self._messages: tuple[Message, ...] = prepared.call.conversation.messages
        self._pool: Pool = pool
        self._program: type[Program] = program
        self._began: float = time.monotonic()
        self._may_go_on: bool = True
        """Whether a program that knows the beginning of the conversation may answer."""
        self._live: Live | None = None
        """The program that is being spoken to."""
        self._losses: tuple[Loss, ...] = ()
        self._longest: int | None = None
        """Characters after which the program cuts the description of a tool."""

    @property
    def account(self) -> Reply:
        """The message and the account of the call so far."""
        why = f"the program cuts it after {self._longest} characters"
        cut = [
            Adaptation(f"description of tool {spec.name!r}", why)
            for spec in self._call.tools
            if self._longest and self._prepared.launch.tools and len(spec.description) > self._longest
        ]
        return Reply(
            message=self._fold.message(),
            received=time.time(),
            adaptations=(*self._prepared.adaptations, *cut),
            losses=self._losses,
            attempts=tuple(self.attempts),
        )

    async def advance(self) -> None:
        """Speak to a program if none was spoken to, and listen to what it says next."""
        await self._listen(self._live or await self._connect())

    async def try_again(self, error: ProviderError) -> bool:
        """Whether another program may answer. What the provider failed at the program has tried again itself."""
        self._may_go_on = False
        if isinstance(error, _UnusableError):
            return True
        without_keys(error, {"x-api-key": self._prepared.launch.environment.get("ANTHROPIC_API_KEY", "")})
        self._note(type(error).__name__, error.status, 0.0)
        return False

    async def release(self) -> None:
        """End the program that is speaking. The next call starts another one."""
        live, self._live = self._live, None
        if live is not None:
            await live.program.stop(gently=False)

    # --- speaking ---

    async def _connect(self) -> Live:
        """Tell the program that knows most of the conversation what is new to it, or a new one everything."""
        launch = self._prepared.launch
        if self._may_go_on:
            live, ended = self._pool.take(launch.key, self._messages)
            self._live = live
            for each in ended:
                await each.stop()
            if live is not None:
                live.program.write(self._go_on(live))
                return live
        dialogue = Dialogue(launch.opening, launch.tools, launch.names, structured=launch.structured)
        self._live = live = Live(self._program.start(launch), dialogue, launch.key)
        live.program.write(dialogue.opening() + self._turn(0))
        return live

    def _go_on(self, live: Live) -> bytes:
        """What is new to a program that knows the beginning."""
        new = continuation(live.seen, self._messages)
        assert new is not None
        middle = new.first + new.answering
        if not new.answering:
            return self._turn(middle)
        answers = self._messages[new.first : middle]
        said = b""
        if middle < len(self._messages):
            if not live.dialogue.asks_for(live.seen[-1].tool_calls):
                # It disposes of these calls itself and is speaking already: it would not hear this in time.
                raise _UnusableError("It would not hear this in time.")
            said = self._turn(middle)
        self._losses = (*result_losses(answers, new.first), *self._losses)
        results = [result for message in answers for result in message.tool_results]
        return said + b"".join(live.dialogue.give(results))

    def _turn(self, first: int) -> bytes:
        """All messages from this one on, as a turn of the user."""
        content, self._losses = write_turn(self._messages[first:], first, self._call.profile)
        return Dialogue.turn(content)

    # --- listening ---

    async def _listen(self, live: Live) -> None:
        """The next line of the program, and what is to be done about it."""
        dialogue = live.dialogue
        if dialogue.reader is None:
            dialogue.reader = ReplyReader(
                self._call,
                self._prepared.launch.names,
                own_tools=lambda: dialogue.own_tools,
                structured=self._prepared.launch.structured,
                answer=self._prepared.answer,
            )
        reader = dialogue.reader
        heard = dialogue.receive(await self._read_line(live))
        self._longest = dialogue.longest_description
        if heard.out:
            live.program.write(b"".join(heard.out))
        for question in heard.questions:
            live.program.write(Dialogue.decide(question, await self._decide(question.call)))
        if (retried := heard.retried) is not None:
            waited = (retried.get("retry_delay_ms") or 0) / 1000
            self._note(str(retried.get("error") or "failed"), retried.get("error_status"), waited)
        kept: dict[str, Any] = {}
        if reader.complete:
            dialogue.take_calls()
        elif heard.result is not None:
            kept = self._end_turn(dialogue, reader, heard)
        self.take(heard.events)
        if reader.complete or heard.result is not None:
            await self._end(live, reader, kept)

    async def _read_line(self, live: Live) -> bytes:
        times, greeted = self._prepared.timeouts, live.dialogue.greeted
        quiet = times.read if greeted else self._prepared.settings.start_seconds
        left = None if times.total is None else max(0.0, times.total - (time.monotonic() - self._began))
        try:
            return await live.program.read(min([each for each in (quiet, left) if each is not None], default=None))
        except ProgramEndedError as gone:
            if live.seen and not self.has_begun:
                raise _UnusableError("It has ended.") from None
            raise crashed(self._call, *gone.args) from None
        except ProgramSilentError as quietly:
            doing, code = ("silent", "read_timeout") if greeted else ("starting", "start_timeout")
            if times.total is not None and time.monotonic() - self._began >= times.total:
                quiet, doing, code = times.total, "answering", "total_timeout"
            raise silent(self._call, quiet or 0.0, doing, str(quietly), code) from None

    async def _decide(self, call: ToolCall) -> Allow | Deny | Ask:
        """What the caller says about a use of one of the program's own tools."""
        permission = self._prepared.settings.permission
        if permission is None:
            return Deny("nobody was there to allow it")
        try:
            said = permission(call)
            if not isawaitable(said):
                return said
            if not self._program.blocking:
                return await said
        except Exception as error:  # noqa: BLE001 -- a question that failed is not a yes
            return Deny(f"the question could not be asked ({type(error).__name__})")
        close = getattr(said, "close", None)
        if close is not None:
            close()
        return Deny("the permission check is async, and this program is not")

    # --- the end ---

    def _end_turn(self, dialogue: Dialogue, reader: ReplyReader, heard: Heard) -> dict[str, Any]:
        """What is kept of the turn's result. Raises ProviderError if the turn has failed."""
        result = heard.result or {}
        if result.get("is_error"):
            self.take(heard.events)
            raise refused(self._call, result, dialogue.word)
        reader.finish(result, heard.events)
        dialogue.reader = None
        kept = {name: result[name] for name in _KEPT if name in result}
        cost = result.get("total_cost_usd")
        if isinstance(cost, int | float):
            kept["cost_usd"] = max(0.0, cost - dialogue.cost)
            dialogue.cost = cost
        return kept

    async def _end(self, live: Live, reader: ReplyReader, kept: dict[str, Any]) -> None:
        """The reply is complete: keep the program for the next call."""
        fields = {"session_id": live.dialogue.session, **kept}
        native = Native(PROVIDER, {name: Raw(msgspec.json.encode(value)) for name, value in fields.items()})
        self.take([reader.ending(native)])
        self._note("ok", None, 0.0)
        live.seen = (*self._messages, self._fold.message())
        self._live, self.over = None, True
        for surplus in self._pool.put(live):
            await surplus.stop(gently=True)

    def _note(self, outcome: str, status: int | None, waited: float) -> None:
        number, duration = len(self.attempts) + 1, time.monotonic() - self._began
        self.attempts.append(
            AttemptRecord(number=number, outcome=outcome, waited=waited, duration=duration, status=status)
        )
