"""The claude program as an engine, in both colours, and engines for `claude-local:…`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Unpack

import msgspec

from dragoman._stepping import step
from dragoman.conversation import Conversation, ToolSpec
from dragoman.engines.base import AsyncEngine, BaseEngine, Engine, lossy
from dragoman.engines.factory import EngineOptions, ProviderFactory
from dragoman.engines.keys import given_key
from dragoman.errors import InvalidConversationError
from dragoman.providers import (
    PROFILES,
    Adaptation,
    Call,
    Loss,
    ModelOptions,
    Profile,
    ToolNames,
    prepare,
    profile_with,
)
from dragoman.transport import RetryPolicy, Timeouts, validate_base_url

from .call import Pool, Prepared, ProgramCall
from .decode import PROVIDER
from .history import continuation, result_losses, write_turn
from .launch import DEFAULT_MODEL, Account, ClaudeSettings, launch_for
from .process import AsyncProgram, Program
from .protocol import wire_tools


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
        self.profile: Profile = profile_with(PROFILES[PROVIDER], given.get("profile", {}))
        self._program: type[Program] = program
        self._pool: Pool = Pool(self.settings.idle_programs)
        self._model: str = model or DEFAULT_MODEL
        self.name: str = f"{PROVIDER}:{self._model}"
        self._strict: bool = given.get("strict", False)
        self._timeouts: Timeouts = given.get("timeouts", Timeouts())
        self._account: Account = Account(
            key=given_key(given.get("key")),
            base_url=base_url,
            headers=given.get("headers", {}),
            attempts=given.get("retry", RetryPolicy()).max_attempts,
            environ=dict(given.get("environ", os.environ)),
        )

    def prepare_tools(self, tools: Sequence[ToolSpec]) -> object:
        """The tools as the program is told of them, as JSON data; nothing is started."""
        names = ToolNames([spec.name for spec in tools], self.profile.tool_limits)
        return msgspec.json.decode(msgspec.json.encode(wire_tools(tools, names)))

    def losses(self, conversation: Conversation) -> tuple[Loss, ...]:
        """What this model would not get of the conversation, or would get in another form; nothing is started."""
        conversation = conversation.repaired().conversation
        messages = conversation.messages
        live = self._pool.find(messages)
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
        )
        call, answer = prepare(call)
        adaptations: list[Adaptation] = []
        launch = launch_for(call, self.settings, self._account, adaptations)
        prepared = Prepared(call, launch, answer, tuple(adaptations), self._timeouts, self.settings)
        if self._strict and (losses := self.losses(conversation)):
            raise lossy(self.name, losses)
        return ProgramCall(prepared, self._pool, self._program)


class ClaudeEngine(_ClaudeProgram, Engine):
    """The claude program, for a plain program. Safe to share between threads."""

    def __init__(self, model: str = "", **options: Unpack[ClaudeOptions]) -> None:
        super().__init__(Program, model, options)

    def close(self) -> None:
        """End all programs that wait."""
        step(self._pool.aclose())


class AsyncClaudeEngine(_ClaudeProgram, AsyncEngine):
    """The claude program, on an event loop. Safe to share between tasks."""

    def __init__(self, model: str = "", **options: Unpack[ClaudeOptions]) -> None:
        super().__init__(AsyncProgram, model, options)

    async def aclose(self) -> None:
        """End all programs that wait."""
        await self._pool.aclose()


class ClaudeFactory(ProviderFactory):
    """The claude program under its usual settings. For others make a ClaudeEngine and give that to the client."""

    def engine(self, model: str, **options: Unpack[EngineOptions]) -> Engine:
        """An engine for a plain program."""
        return ClaudeEngine(model, **options)

    def async_engine(self, model: str, **options: Unpack[EngineOptions]) -> AsyncEngine:
        """An engine for a program on an event loop."""
        return AsyncClaudeEngine(model, **options)


FACTORY = ClaudeFactory()
