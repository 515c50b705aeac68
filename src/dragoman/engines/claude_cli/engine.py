"""The claude program as an engine, for plain programs; and what it has in common with its twin.

Owns: ClaudeEngine, and a call made ready (ClaudeProgram).
Must not know: how the program is spoken to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypedDict, Unpack

import msgspec

from dragoman.conversation import Conversation, ToolSpec
from dragoman.engines.engine import ToolFeatures, features_of
from dragoman.engines.keys import Secret, given_key
from dragoman.engines.media import with_files_read
from dragoman.engines.reply import Reply, lossy
from dragoman.errors import InvalidConversationError
from dragoman.providers.codec import Adaptation, Call, Loss
from dragoman.providers.options import ModelOptions
from dragoman.providers.profile import Profile
from dragoman.providers.programs import profile_with
from dragoman.providers.requests import ToolNames
from dragoman.providers.structured import prepare
from dragoman.transport.addresses import validate_base_url
from dragoman.transport.protocol import Timeouts
from dragoman.transport.retry import RetryPolicy

from .call import Prepared, ProgramCall
from .history import latest_mark
from .launch import Account, launch_for
from .mcp import wire_tools
from .names import DEFAULT_MODEL, PROVIDER
from .plain import Process, ProgramStream, carry_out, drive
from .pool import Pool, continuation
from .prompting import result_losses, told
from .settings import ClaudeSettings

__all__ = ["ClaudeEngine", "ClaudeOptions", "ClaudeProgram"]


class ClaudeOptions(TypedDict, total=False):
    """What an engine of the program can be given beside the model: its settings, and what every engine takes."""

    settings: ClaudeSettings | None
    key: str | Secret | None
    base_url: str | None
    options: ModelOptions | None
    profile: Profile | Mapping[str, Any] | None
    strict: bool
    retry: RetryPolicy | None
    timeouts: Timeouts | None
    headers: Mapping[str, str] | None
    allow_insecure_base_url: bool
    environ: Mapping[str, str] | None
    """The variables that the program's own are taken from; None: those of this process."""


class ClaudeProgram:
    """What the two engines have in common. Every argument has a default: `ClaudeEngine()` is a whole sentence."""

    def __init__(
        self,
        model: str = "",
        *,
        settings: ClaudeSettings | None = None,
        key: str | Secret | None = None,
        base_url: str | None = None,
        options: ModelOptions | None = None,
        profile: Profile | Mapping[str, Any] | None = None,
        strict: bool = False,
        retry: RetryPolicy | None = None,
        timeouts: Timeouts | None = None,
        headers: Mapping[str, str] | None = None,
        allow_insecure_base_url: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        if base_url:
            validate_base_url(base_url, allow_insecure=allow_insecure_base_url)
        self.settings: ClaudeSettings = settings or ClaudeSettings()
        self.options: ModelOptions = options or ModelOptions()
        self.profile: Profile = profile_with(PROVIDER, profile or {})
        self._model: str = model or DEFAULT_MODEL
        self._strict: bool = strict
        self._timeouts: Timeouts = timeouts or Timeouts()
        self._account: Account = Account(
            key=given_key(key),
            base_url=base_url,
            headers=headers or {},
            attempts=(retry or RetryPolicy()).max_attempts,
            environ=dict(os.environ if environ is None else environ),
        )

    @property
    def name(self) -> str:
        """As in `provider:model`."""
        return f"{PROVIDER}:{self._model}"

    @property
    def features(self) -> ToolFeatures:
        """What the model can do with tools."""
        return features_of(self.profile)

    def prepare_tools(self, tools: Sequence[ToolSpec]) -> object:
        """The tools as the program is told of them, as JSON data; nothing is started."""
        names = ToolNames([spec.name for spec in tools], self.profile.tool_limits)
        return msgspec.json.decode(msgspec.json.encode(wire_tools(tools, names)))

    def _prepared(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> Prepared:
        conversation.ensure_valid()
        if not conversation.messages:
            message = "The conversation has no message that a model could answer."
            raise InvalidConversationError(message, hint="Add a message of the user first.")
        adaptations: list[Adaptation] = []
        call = Call(
            model=self._model,
            conversation=conversation,
            profile=self.profile,
            tools=tuple(tools),
            options=self.options if options is None else options,
            stream=stream,
        )
        call, answer = prepare(call)
        launch = launch_for(call, self.settings, self._account, adaptations)
        return Prepared(
            call=call,
            launch=launch,
            answer=answer,
            adaptations=tuple(adaptations),
            timeouts=self._timeouts,
            start_seconds=self.settings.start_seconds,
            keep_sessions=self.settings.keep_sessions,
        )

    def _known(self, conversation: Conversation, pool: Pool[Any]) -> tuple[int, int]:
        """How many messages need not be told, and how many after these answer calls."""
        messages = conversation.messages
        live = pool.find(None, messages)
        new = None if live is None else continuation(live.seen, messages)
        if new is not None:
            return new.first, new.answering
        mark = latest_mark(messages) if self.settings.keep_sessions else None
        return (0, 0) if mark is None else (mark[0] + 1, 0)

    def _losses(self, conversation: Conversation, pool: Pool[Any]) -> tuple[Loss, ...]:
        conversation = conversation.repaired().conversation
        first, answering = self._known(conversation, pool)
        messages = with_files_read(conversation).messages
        middle = first + answering
        answered = result_losses(messages[first:middle], first, self.profile)
        return (*answered, *told(messages[middle:], middle, self.profile).losses)

    def _refuse_losses(self, conversation: Conversation, pool: Pool[Any]) -> None:
        if self._strict and (losses := self._losses(conversation, pool)):
            raise lossy(self.name, losses)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class ClaudeEngine(ClaudeProgram):
    """The claude program, for a plain program. Safe to share between threads."""

    def __init__(self, model: str = "", **options: Unpack[ClaudeOptions]) -> None:
        super().__init__(model, **options)
        self._pool: Pool[Process] = Pool(self.settings.idle_programs)

    def losses(self, conversation: Conversation) -> tuple[Loss, ...]:
        """What this model would not get of the conversation, or would get in another form; nothing is started."""
        return self._losses(conversation, self._pool)

    def run_inference(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Conversation:
        """The conversation with the model's reply at its end."""
        return conversation.plus(self.reply(conversation, tools=tools, options=options).message)

    def reply(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> Reply:
        """The model's reply and the account of the call."""
        call = self._call(conversation, tools, options, stream=False)
        carry_out(call, self.settings.permission)
        return call.reply

    def stream(
        self, conversation: Conversation, *, tools: Sequence[ToolSpec] = (), options: ModelOptions | None = None
    ) -> ProgramStream:
        """The model's reply as it arrives; use it in a `with` block."""
        call = self._call(conversation, tools, options, stream=True)
        return ProgramStream(call, drive(call, self.settings.permission))

    def _call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> ProgramCall[Process]:
        prepared = self._prepared(conversation, tools, options, stream=stream)
        self._refuse_losses(conversation, self._pool)
        return ProgramCall(prepared, self._pool)

    def close(self) -> None:
        """End all programs that wait."""
        for live in self._pool.close():
            live.handle.stop(gently=live.at_rest)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
