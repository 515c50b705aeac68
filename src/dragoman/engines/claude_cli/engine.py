"""The claude program as an engine, sync and async: `claude-local:…`.

A call finds or starts a program, writes to it and reads its lines. Idle programs are kept in a pool for the next turns
of their conversations. Only a program's methods know whether they block or are awaited.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from inspect import isawaitable
from typing import Any, Final, Unpack

import msgspec
from msgspec import Raw, Struct

from dragoman._crashes import log_crash
from dragoman._stepping import step
from dragoman.conversation import Conversation, Message, Native, ReplyEvent, ToolCall, ToolSpec, UsageReported
from dragoman.engines.base import AsyncEngine, BaseEngine, Engine, lossy
from dragoman.engines.call import Reply, ReplyCall, charge
from dragoman.engines.credential import Credential
from dragoman.engines.factory import EngineOptions
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

from .decode import PROVIDER, ReplyReader, exit_error, timeout_error, turn_failure
from .history import continuation, result_losses, write_turn
from .launch import DEFAULT_MODEL, Account, ClaudeSettings, Launch, find_program, launch_for
from .process import AsyncProgram, Program, ProgramEndedError, ProgramSilentError
from .protocol import Dialogue, wire_tools

_CHECK_CRASHED: Final = "the permission check crashed, so the call of %r was denied"
_NATIVE_FIELDS: Final = ("duration_ms", "modelUsage", "num_turns", "permission_denials", "total_cost_usd")


# --- idle programs ----------------------------------------------------------------------------------------------------


class Live(Struct, eq=False):
    """A running program, and which messages it knows."""

    program: Program
    dialogue: Dialogue
    key: str
    """How it was started."""
    seen: tuple[Message, ...] = ()

    async def stop(self, *, gently: bool = False) -> None:
        """End it. In the middle of a turn not gently: it would go on as if a tool had failed."""
        await self.program.stop(gently=gently and not (self.seen and self.seen[-1].tool_calls))


class Pool:
    """Idle programs. A program in use is not in the pool, so no two callers share one. Safe to use from any thread."""

    def __init__(self, size: int) -> None:
        self._size: int = size
        self._idle: list[Live] = []
        """The one that was used last comes last."""
        self._closed: bool = False
        self._lock: threading.Lock = threading.Lock()

    def find(self, messages: tuple[Message, ...], key: str | None = None) -> Live | None:
        """The program with this key, or any, that knows most of this conversation."""
        fitting = [
            live
            for live in tuple(self._idle)
            if key in (None, live.key) and live.program.is_usable and continuation(live.seen, messages) is not None
        ]
        return max(fitting, key=lambda live: len(live.seen), default=None)

    def take(self, messages: tuple[Message, ...], key: str) -> tuple[Live | None, list[Live]]:
        """Take out what `find` finds, and the programs that have exited meanwhile."""
        with self._lock:
            best, ended = self.find(messages, key), [live for live in self._idle if not live.program.is_usable]
            self._idle = [live for live in self._idle if live not in ended and live is not best]
            return best, ended

    def put(self, live: Live) -> list[Live]:
        """Keep a program. Returns those that must be stopped instead."""
        with self._lock:
            self._idle.append(live)
            surplus = len(self._idle) if self._closed else max(0, len(self._idle) - self._size)
            stopped, self._idle = self._idle[:surplus], self._idle[surplus:]
            return stopped

    async def aclose(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for live in idle:
            await live.stop(gently=True)


# --- a call -----------------------------------------------------------------------------------------------------------


class _UnusableError(ProviderError):
    """This program cannot answer, but another one may: nothing of the reply has arrived."""


class ProgramCall(ReplyCall):
    """One call."""

    def __init__(self, engine: _ClaudeProgram, call: Call, answer: AnswerReader | None) -> None:
        super().__init__()
        adaptations: list[Adaptation] = []
        program = find_program(engine.settings, engine.find_program)
        self._engine: _ClaudeProgram = engine
        self._call: Call = call
        self._answer: AnswerReader | None = answer
        self._launch: Launch = launch_for(call, program, engine.settings, engine.account, adaptations)
        self._adaptations: tuple[Adaptation, ...] = tuple(adaptations)
        self._messages: tuple[Message, ...] = call.conversation.messages
        self._began: float = time.monotonic()
        self._can_continue: bool = True
        """Whether an idle program that knows the beginning of the conversation may answer."""
        self._live: Live | None = None
        """The program in use."""
        self._losses: tuple[Loss, ...] = ()

    @property
    def account(self) -> Reply:
        """The message and the account of the call so far."""
        return Reply(
            message=self._fold.message(),
            received=time.time(),
            adaptations=self._adaptations,
            losses=self._losses,
            attempts=tuple(self.attempts),
        )

    async def advance(self) -> None:
        """Write to a program unless that is done, and read its next line."""
        await self._read(self._live or await self._connect())

    async def try_again(self, error: ProviderError) -> bool:
        """Whether to try another program. Failures of the provider were retried by the program itself."""
        self._can_continue = False
        if isinstance(error, _UnusableError):
            return True
        without_keys(error, {"x-api-key": self._launch.environment.get("ANTHROPIC_API_KEY", "")})
        self._note(type(error).__name__, error.status, 0.0)
        return False

    async def release(self) -> None:
        """Kill the program in use. The next call starts another one."""
        live, self._live = self._live, None
        if live is not None:
            await live.program.stop(gently=False)

    # --- writing ---

    async def _connect(self) -> Live:
        """Send the new messages to the idle program that knows most of the conversation, or everything to a new one."""
        launch = self._launch
        if self._can_continue:
            live, ended = self._engine.pool.take(self._messages, launch.key)
            self._live = live
            for each in ended:
                await each.stop()
            if live is not None:
                live.program.write(self._new_lines(live))
                return live
        dialogue = Dialogue(launch.tools, launch.names, launch.structured)
        self._live = live = Live(self._engine.program(launch), dialogue, launch.key)
        live.program.write(dialogue.opening(launch.opening) + self._turn(0))
        return live

    def _new_lines(self, live: Live) -> bytes:
        new = continuation(live.seen, self._messages)
        assert new is not None
        middle = new.first + new.answering
        if not new.answering:
            return self._turn(middle)
        turn = b""
        if middle < len(self._messages):
            if not live.dialogue.will_request(live.seen[-1].tool_calls):
                # It handles these calls itself, and the model is answering already.
                raise _UnusableError("The message would arrive too late.")
            turn = self._turn(middle)
        answers = self._messages[new.first : middle]
        self._losses = (*result_losses(answers, new.first), *self._losses)
        results = [result for message in answers for result in message.tool_results]
        return turn + b"".join(live.dialogue.give(results))

    def _turn(self, first: int) -> bytes:
        content, self._losses = write_turn(self._messages[first:], first, self._call.profile)
        return Dialogue.turn(content)

    # --- reading ---

    async def _read(self, live: Live) -> None:
        """Read the program's next line, and do what it asks for."""
        dialogue = live.dialogue
        if dialogue.reader is None:
            dialogue.reader = ReplyReader(
                self._call, dialogue.names, dialogue.own_tools, self._launch.structured, self._answer
            )
        reader = dialogue.reader
        received = dialogue.receive(await self._read_line(live))
        if received.out:
            live.program.write(b"".join(received.out))
        for question in received.questions:
            live.program.write(Dialogue.decide(question, await self._decide(question.call)))
        if (retry := received.retry) is not None:
            waited = (retry.get("retry_delay_ms") or 0) / 1000
            self._note(str(retry.get("error") or "failed"), retry.get("error_status"), waited)
        native: dict[str, Any] = {}
        if reader.complete:
            dialogue.end_with_calls()
        elif received.result is not None:
            native = self._end_turn(dialogue, reader, received.result, received.events)
        self.take(received.events)
        if reader.complete or received.result is not None:
            await self._end(live, reader, native)

    async def _read_line(self, live: Live) -> bytes:
        times, greeted = self._engine.timeouts, live.dialogue.greeted
        quiet = times.read if greeted else self._engine.settings.start_seconds
        left = None if times.total is None else max(0.0, times.total - (time.monotonic() - self._began))
        try:
            return await live.program.read(min([each for each in (quiet, left) if each is not None], default=None))
        except ProgramEndedError as ended:
            if live.seen and not self.has_begun:
                raise _UnusableError("It has exited.") from None
            raise exit_error(self._call, *ended.args) from None
        except ProgramSilentError as silent:
            doing, code = ("silent", "read_timeout") if greeted else ("starting", "start_timeout")
            if times.total is not None and time.monotonic() - self._began >= times.total:
                quiet, doing, code = times.total, "answering", "total_timeout"
            raise timeout_error(self._call, quiet or 0.0, doing, str(silent), code) from None

    async def _decide(self, call: ToolCall) -> Allow | Deny | Ask:
        """Ask the user's `permission` about a use of one of the program's own tools."""
        permission = self._engine.settings.permission
        if permission is None:
            return Deny("nobody was there to allow it")
        try:
            decision = permission(call)
            if not isawaitable(decision):
                return decision
            if not self._engine.program.blocking:
                return await decision
        except Exception as error:  # noqa: BLE001 -- a check that fails is not a yes
            import logging  # slow to load, and rarely needed

            log_crash(logging.getLogger("dragoman.engines"), _CHECK_CRASHED, call.name, error=error)
            return Deny(f"the permission check failed ({type(error).__name__})")
        getattr(decision, "close", bool)()
        return Deny("the permission check is async, and this program is not")

    # --- the end ---

    def _end_turn(
        self, dialogue: Dialogue, reader: ReplyReader, result: dict[str, Any], events: list[ReplyEvent]
    ) -> dict[str, Any]:
        """The fields of the turn's result to keep. Raises ProviderError if the turn has failed."""
        if result.get("is_error"):
            self.take(events)
            raise turn_failure(self._call, result, dialogue.failure)
        reader.finish(result, events)
        dialogue.reader = None
        native = {name: result[name] for name in _NATIVE_FIELDS if name in result}
        cost = result.get("total_cost_usd")
        if isinstance(cost, int | float):
            native["cost_usd"] = max(0.0, cost - dialogue.cost)
            dialogue.cost = cost
        return native

    def _charge(self, dialogue: Dialogue, turn_cost: float | None) -> list[ReplyEvent]:
        """The usage again, with its cost. The program reports the cost at the end of a turn: replies before that, which
        call tools, are charged by the price table, and the last one with the rest."""
        message, prices = self._fold.message(), self._engine.prices
        if (usage := message.usage) is None:
            return []
        if prices is not None:
            return [charge(UsageReported(usage), prices)]
        if turn_cost is not None:
            charged, dialogue.charged = max(0.0, turn_cost - dialogue.charged), 0.0
        else:
            known = prices_of(PROVIDER, message.model or "", time=message.time, tokens=usage.input or 0)
            charged = None if known is None else known.cost(usage)
            dialogue.charged += charged or 0.0
        return [UsageReported(msgspec.structs.replace(usage, charged=charged))]

    async def _end(self, live: Live, reader: ReplyReader, fields: dict[str, Any]) -> None:
        kept = {"session_id": live.dialogue.session, **fields}
        native = Native(PROVIDER, {name: Raw(msgspec.json.encode(value)) for name, value in kept.items()})
        self.take([*self._charge(live.dialogue, fields.get("cost_usd")), reader.ending(native)])
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
    """Options of an engine of the program: its settings, and what every engine takes."""

    settings: ClaudeSettings


class _ClaudeProgram(BaseEngine):
    """What the two engines have in common."""

    def __init__(self, program: type[Program], model: str, given: ClaudeOptions) -> None:
        base_url = given.get("base_url")
        if base_url:
            validate_base_url(base_url, allow_insecure=given.get("allow_insecure_base_url", False))
        self.settings: ClaudeSettings = given.get("settings") or ClaudeSettings()
        self.find_program: Callable[[str], str | None] | None = given.get("find_program")
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
            message = "The claude program needs a fixed key, not a function that generates one."
            raise ConfigurationError(message, hint="Call the function, and pass what it returns.")
        self.account: Account = Account(
            key=key,
            base_url=base_url,
            headers=given.get("headers", {}),
            attempts=given.get("retry", RetryPolicy()).max_attempts,
            environ=dict(os.environ),
        )

    @property
    def priced(self) -> bool:
        """The program reports what its turns cost."""
        return True

    def prepare_tools(self, tools: Sequence[ToolSpec]) -> object:
        """The tools as the program gets them, as JSON data; nothing is started."""
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
        """A call that is ready to be made. Raises before a program is started if it cannot be made."""
        conversation.ensure_valid()
        if not conversation.messages:
            message = "The conversation has no message that a model could answer."
            raise InvalidConversationError(message, hint="Add a user message first.")
        call = Call(
            model=self._model,
            conversation=conversation,
            profile=self.profile,
            tools=tuple(tools),
            options=self.options if options is None else options,
            stream=stream,
            time=datetime.now(UTC),
        )
        ready = ProgramCall(self, *prepare(call))
        if self._strict and (losses := self.losses(conversation)):
            raise lossy(self.name, losses)
        return ready


class ClaudeEngine(_ClaudeProgram, Engine):
    """The claude program as a model, for a sync program. Safe to share between threads."""

    def __init__(self, model: str = "", **options: Unpack[ClaudeOptions]) -> None:
        super().__init__(Program, model, options)

    def close(self) -> None:
        step(self.pool.aclose())


class AsyncClaudeEngine(_ClaudeProgram, AsyncEngine):
    """ClaudeEngine for a program on an event loop. Safe to share between tasks."""

    def __init__(self, model: str = "", **options: Unpack[ClaudeOptions]) -> None:
        super().__init__(AsyncProgram, model, options)

    async def aclose(self) -> None:
        await self.pool.aclose()


# For `claude-local:…`; with other settings, create a ClaudeEngine and pass it to the client.
engine, async_engine = ClaudeEngine, AsyncClaudeEngine
