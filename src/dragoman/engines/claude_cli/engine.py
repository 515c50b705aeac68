"""The claude program as an engine, in both colours, and engines for `claude-local:…`.

A call finds or starts a program, speaks and listens. Programs that wait for the next turn of their conversations are
kept in a pool. Only a program's methods know whether they block or are awaited.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from inspect import isawaitable
from typing import Any, Final, Unpack

import msgspec
from msgspec import Raw, Struct

from dragoman._stepping import step
from dragoman.conversation import Conversation, Message, Native, ReplyEvent, ToolCall, ToolSpec, UsageReported
from dragoman.engines.base import AsyncEngine, BaseEngine, Engine, lossy
from dragoman.engines.call import Reply, ReplyCall, charge
from dragoman.engines.credential import Credential
from dragoman.engines.factory import EngineOptions, ProviderFactory
from dragoman.engines.keys import given_key, without_keys
from dragoman.errors import ConfigurationError, InvalidConversationError, ProviderError
from dragoman.providers import (
    PROFILES,
    Adaptation,
    AnswerReader,
    Call,
    Loss,
    ModelOptions,
    Prices,
    Profile,
    ToolNames,
    prepare,
    prices_of,
    profile_with,
)
from dragoman.tools import Allow, Ask, Deny
from dragoman.transport import AttemptRecord, RetryPolicy, Timeouts, validate_base_url

from .decode import PROVIDER, ReplyReader, crashed, refused, silent
from .history import continuation, result_losses, write_turn
from .launch import DEFAULT_MODEL, Account, ClaudeSettings, Launch, launch_for
from .process import AsyncProgram, Program, ProgramEndedError, ProgramSilentError
from .protocol import Dialogue, Heard, wire_tools

_KEPT: Final = ("duration_ms", "modelUsage", "num_turns", "permission_denials", "total_cost_usd")


# --- programs that wait for the next turn of their conversations ------------------------------------------------------


class Live(Struct, eq=False):
    """A program, and what it knows."""

    program: Program
    dialogue: Dialogue
    key: str
    """How it was started."""
    seen: tuple[Message, ...] = ()

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
        with self._lock:
            self._closed = True
            left, self._idle = self._idle, []
        for live in left:
            await live.stop(gently=True)


# --- a call -----------------------------------------------------------------------------------------------------------


class _UnusableError(ProviderError):
    """This program will not answer, and nothing of its reply was seen: another one may."""


class ProgramCall(ReplyCall):
    """One call under way, with an account of it that is complete at any time."""

    def __init__(self, engine: _ClaudeProgram, call: Call, answer: AnswerReader | None) -> None:
        super().__init__()
        adaptations: list[Adaptation] = []
        self._engine: _ClaudeProgram = engine
        self._call: Call = call
        self._answer: AnswerReader | None = answer
        self._launch: Launch = launch_for(call, engine.settings, engine.account, adaptations)
        self._adaptations: tuple[Adaptation, ...] = tuple(adaptations)
        self._messages: tuple[Message, ...] = call.conversation.messages
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
            if self._longest and self._launch.tools and len(spec.description) > self._longest
        ]
        return Reply(
            message=self._fold.message(),
            received=time.time(),
            adaptations=(*self._adaptations, *cut),
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
        without_keys(error, {"x-api-key": self._launch.environment.get("ANTHROPIC_API_KEY", "")})
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
        launch = self._launch
        if self._may_go_on:
            live, ended = self._engine.pool.take(launch.key, self._messages)
            self._live = live
            for each in ended:
                await each.stop()
            if live is not None:
                live.program.write(self._go_on(live))
                return live
        dialogue = Dialogue(launch.tools, launch.names, launch.structured)
        self._live = live = Live(self._engine.program.start(launch), dialogue, launch.key)
        live.program.write(dialogue.opening(launch.opening) + self._turn(0))
        return live

    def _go_on(self, live: Live) -> bytes:
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
        content, self._losses = write_turn(self._messages[first:], first, self._call.profile)
        return Dialogue.turn(content)

    # --- listening ---

    async def _listen(self, live: Live) -> None:
        """The next line of the program, and what is to be done about it."""
        dialogue = live.dialogue
        if dialogue.reader is None:
            dialogue.reader = ReplyReader(
                self._call, dialogue.names, lambda: dialogue.own_tools, self._launch.structured, self._answer
            )
        reader = dialogue.reader
        heard = dialogue.receive(await self._read_line(live))
        self._longest = dialogue.longest
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
        times, greeted = self._engine.timeouts, live.dialogue.greeted
        quiet = times.read if greeted else self._engine.settings.start_seconds
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
        permission = self._engine.settings.permission
        if permission is None:
            return Deny("nobody was there to allow it")
        try:
            said = permission(call)
            if not isawaitable(said):
                return said
            if not self._engine.program.blocking:
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

    def _charge(self, dialogue: Dialogue, kept: dict[str, Any]) -> list[ReplyEvent]:
        """The usage once more, with its cost. The program says that of a whole turn, when it is over: a reply in the
        middle of one, which calls tools, is charged by the table, and the last one with the rest."""
        message, own = self._fold.message(), self._engine.prices
        if (usage := message.usage) is None:
            return []
        if own is not None:
            return [charge(UsageReported(usage), own)]
        charged: float | None = kept.get("cost_usd")
        if charged is not None:
            charged, dialogue.charged = max(0.0, charged - dialogue.charged), 0.0
        else:
            known = prices_of(PROVIDER, message.model or "", time=message.time, tokens=usage.input or 0)
            charged = None if known is None else known.cost(usage)
            dialogue.charged += charged or 0.0
        return [UsageReported(msgspec.structs.replace(usage, charged=charged))]

    async def _end(self, live: Live, reader: ReplyReader, kept: dict[str, Any]) -> None:
        fields = {"session_id": live.dialogue.session, **kept}
        native = Native(PROVIDER, {name: Raw(msgspec.json.encode(value)) for name, value in fields.items()})
        self.take([*self._charge(live.dialogue, kept), reader.ending(native)])
        self._note("ok", None, 0.0)
        live.seen = (*self._messages, self._fold.message())
        self._live, self.over = None, True
        for surplus in self._engine.pool.put(live):
            await surplus.stop(gently=True)

    def _note(self, outcome: str, status: int | None, waited: float) -> None:
        number, duration = len(self.attempts) + 1, time.monotonic() - self._began
        self.attempts.append(
            AttemptRecord(number=number, outcome=outcome, waited=waited, duration=duration, status=status)
        )


# --- engines ----------------------------------------------------------------------------------------------------------


class ClaudeOptions(EngineOptions, total=False):
    """What an engine of the program can be given beside the model: its settings, and what every engine takes."""

    settings: ClaudeSettings
    environ: Mapping[str, str]
    """The variables that the program's own are taken from, in place of those of this process."""


class _ClaudeProgram(BaseEngine):
    """What the two engines have in common. Every argument has a default: `ClaudeEngine()` is a whole sentence."""

    def __init__(self, program: type[Program], model: str, given: ClaudeOptions) -> None:
        base_url = given.get("base_url")
        if base_url:
            validate_base_url(base_url, allow_insecure=given.get("allow_insecure_base_url", False))
        settings = given.get("settings") or ClaudeSettings()
        if settings.find_program is None:
            settings = msgspec.structs.replace(settings, find_program=given.get("find_program"))
        self.settings: ClaudeSettings = settings
        self.options: ModelOptions = given.get("options", ModelOptions())
        self.prices: Prices | None = given.get("prices")
        self.profile: Profile = profile_with(PROFILES[PROVIDER], given.get("profile", {}))
        self.program: type[Program] = program
        self.pool: Pool = Pool(self.settings.idle_programs)
        self._model: str = model or DEFAULT_MODEL
        self.name: str = f"{PROVIDER}:{self._model}"
        self._strict: bool = given.get("strict", False)
        self.timeouts: Timeouts = given.get("timeouts", Timeouts())
        key = given_key(given.get("key"))
        if isinstance(key, Credential):
            message = "The claude program takes a key that is typed, and none that is made by a function."
            raise ConfigurationError(message, hint="Call the function and give what it returns.")
        self.account: Account = Account(
            key=key,
            base_url=base_url,
            headers=given.get("headers", {}),
            attempts=given.get("retry", RetryPolicy()).max_attempts,
            environ=dict(given.get("environ", os.environ)),
        )

    @property
    def priced(self) -> bool:
        """The program says itself what its turns cost."""
        return True

    def prepare_tools(self, tools: Sequence[ToolSpec]) -> object:
        """The tools as the program is told of them, as JSON data; nothing is started."""
        names = ToolNames([spec.name for spec in tools], self.profile.tool_limits)
        return msgspec.json.decode(msgspec.json.encode(wire_tools(tools, names)))

    def losses(self, conversation: Conversation) -> tuple[Loss, ...]:
        """What this model would not get of the conversation, or would get in another form; nothing is started."""
        conversation = conversation.repaired().conversation
        messages = conversation.messages
        live = self.pool.find(messages)
        first, answering = (None if live is None else continuation(live.seen, messages)) or (0, 0)
        middle = first + answering
        return result_losses(messages[first:middle], first) + write_turn(messages[middle:], middle, self.profile)[1]

    def call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> ProgramCall:
        """A call that is ready to be made. Raises before a program is started if it cannot be."""
        conversation.ensure_valid()
        if not conversation.messages:
            message = "The conversation has no message that a model could answer."
            raise InvalidConversationError(message, hint="Add a message of the user first.")
        call = Call(
            model=self._model,
            conversation=conversation,
            profile=self.profile,
            tools=tuple(tools),
            options=self.options if options is None else options,
            stream=stream,
            time=datetime.now(UTC),
        )
        made = ProgramCall(self, *prepare(call))
        if self._strict and (losses := self.losses(conversation)):
            raise lossy(self.name, losses)
        return made


class ClaudeEngine(_ClaudeProgram, Engine):
    """The claude program, for a plain program. Safe to share between threads."""

    def __init__(self, model: str = "", **options: Unpack[ClaudeOptions]) -> None:
        super().__init__(Program, model, options)

    def close(self) -> None:
        step(self.pool.aclose())


class AsyncClaudeEngine(_ClaudeProgram, AsyncEngine):
    """The claude program, on an event loop. Safe to share between tasks."""

    def __init__(self, model: str = "", **options: Unpack[ClaudeOptions]) -> None:
        super().__init__(AsyncProgram, model, options)

    async def aclose(self) -> None:
        await self.pool.aclose()


class ClaudeFactory(ProviderFactory):
    """The claude program under its usual settings. For others make a ClaudeEngine and give that to the client."""

    def engine(self, model: str, **options: Unpack[EngineOptions]) -> Engine:
        return ClaudeEngine(model, **options)

    def async_engine(self, model: str, **options: Unpack[EngineOptions]) -> AsyncEngine:
        return AsyncClaudeEngine(model, **options)


FACTORY = ClaudeFactory()
