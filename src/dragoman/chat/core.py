"""What the two chat clients share: everything but waiting.

Owns: the conversation a client holds, how a turn begins and ends, and who may use the client meanwhile.
Must not know: engines' colours. What talks to a model or a store is in client.py and async_client.py.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypedDict, TypeVar, cast

from dragoman.conversation import Conversation, Message, Usage
from dragoman.engines.factory import EngineOptions
from dragoman.engines.losses import lossy
from dragoman.errors import ConcurrentUseError, ConfigurationError
from dragoman.loop.calls import append_tool_results
from dragoman.loop.hooks import LoopHooks
from dragoman.loop.limits import Limits
from dragoman.loop.orchestrator import LoopOptions
from dragoman.loop.run import LoopRun, LoopSettings
from dragoman.providers.codec import Loss
from dragoman.providers.options import ModelOptions
from dragoman.providers.profile import Profile
from dragoman.stores.journal import Recovered
from dragoman.stores.snapshot import Snapshot
from dragoman.tools.config import ToolConfig
from dragoman.tools.execution.executor import OnResult, ToolExecutor
from dragoman.tools.execution.procedure import Middleware
from dragoman.tools.permission import Approval, PendingApproval, PermissionCheck
from dragoman.tools.registry import AnyTools

from .asking import Asked
from .ledger import Circumstances, Ledger
from .prompt import Prompt, message_of
from .schema import AnswerType, answer_type

__all__ = ["ChatCore", "ChatOptions", "ToolHandling", "engine_options"]


class ToolHandling(TypedDict, total=False):
    """How a client's tools are run: what goes to the executor beside the tools themselves."""

    tool_config: ToolConfig
    permission: PermissionCheck
    """Decides about each call before it runs; see `dragoman.toolkit` for one made of rules."""
    middleware: Sequence[Middleware]
    on_result: OnResult
    logger: logging.Logger


class ChatOptions(LoopOptions, ToolHandling, EngineOptions, total=False):
    """What a chat client can be given beside its model, its tools and its store."""

    system: str | None
    """The system prompt."""
    conversation: Conversation
    """The conversation to go on with."""
    answer: AnswerType[Any]
    """What `ask` gives where it is told no type."""
    stateless: bool
    """Keep no history: every turn starts from the same conversation. Such a client may be shared freely."""


class _Described(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def profile(self) -> Profile: ...
    @property
    def options(self) -> ModelOptions: ...
    def losses(self, conversation: Conversation) -> tuple[Loss, ...]: ...


E = TypeVar("E", bound=_Described)

_UNCERTAIN = "it had begun when the program was stopped, and nobody knows whether it did its work"
_LOOP = LoopOptions.__annotations__
_ENGINE = EngineOptions.__annotations__


def engine_options(given: ChatOptions, *, made: bool) -> EngineOptions:
    """What of the options is the engine's. An engine that was made already takes none."""
    found = {name: value for name, value in given.items() if name in _ENGINE}
    if made and (foreign := [name for name in found if name not in _LOOP]):
        message = f"{foreign[0]!r} is given together with an engine, which has its own."
        raise ConfigurationError(message, hint=f"Give {foreign[0]} to the engine, or a model's name instead of it.")
    return cast("EngineOptions", found)


class _Lease(Generic[E]):
    """An engine that several clients share, and which the last of them closes, if it was made here."""

    def __init__(self, engine: E, *, owned: bool) -> None:
        self.engine: E = engine
        self._owned: bool = owned
        self._holders: int = 1
        self._lock: threading.Lock = threading.Lock()

    def again(self) -> _Lease[E]:
        with self._lock:
            self._holders += 1
        return self

    def release(self) -> E | None:
        """The engine, if nobody else needs it and it is ours to close."""
        with self._lock:
            self._holders -= 1
            return self.engine if self._owned and self._holders == 0 else None


class ChatCore(Generic[E]):
    """A conversation with a model and tools."""

    def __init__(self, engine: E, tools: AnyTools, options: ChatOptions, *, owned: bool) -> None:
        self._lease: _Lease[E] = _Lease(engine, owned=owned)
        self._options: ChatOptions = options
        self._stateless: bool = options.get("stateless", False)
        self._executor: ToolExecutor = _executor(tools, options)
        self._conversation: Conversation = options.get("conversation", Conversation())
        if options.get("system") is not None:
            self._conversation = self._conversation.with_system(options.get("system"))
        self._ledger: Ledger = Ledger(self._circumstances)
        self._journaling: tuple[LoopHooks, ...] = ()
        self._settings: LoopSettings = self._new_settings()
        self._pending: tuple[PendingApproval, ...] = ()
        self._uncertain: tuple[PendingApproval, ...] = ()
        self._queue: tuple[Message, ...] = ()
        """What was added while calls wait for a person; it is said after they are answered."""
        self._run: LoopRun | None = None
        self._busy: threading.Lock = threading.Lock()
        self._state: threading.Lock = threading.Lock()
        self._closed: bool = False

    # --- what there is ---

    @property
    def engine(self) -> E:
        """The engine that speaks to the model."""
        return self._lease.engine

    @property
    def model(self) -> str:
        """As in `provider:model`."""
        return self.engine.name

    @property
    def conversation(self) -> Conversation:
        """The conversation as it stands; while a turn is under way, as far as that has got."""
        run = self._run
        return self._conversation if run is None else run.conversation

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages so far."""
        return self.conversation.messages

    @property
    def usage(self) -> Usage:
        """The tokens of all replies in the conversation, added up."""
        return self.conversation.usage

    @property
    def tools(self) -> ToolExecutor:
        """The executor that runs the tools; its `tools` are those that the model may call."""
        return self._executor

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The calls that have no result yet, and why: answer with `approve(call)` or `deny(call)` and `resume`."""
        known = {each.call.id: each for each in (*self._pending, *self._uncertain)}
        calls = self._conversation.pending_tool_calls
        return tuple([known.get(call.id) or PendingApproval(call=call) for call in calls])

    @property
    def uncertain(self) -> tuple[PendingApproval, ...]:
        """Of these, the calls that had begun when an earlier process died; they may or may not have done their work.

        `approve(call)` runs such a call again; `deny(call, reason="…")` does not, and tells the model the reason.
        """
        return self._uncertain

    @property
    def id(self) -> str | None:
        """The id of the conversation in its store; None until something has been saved."""
        snapshot = self._ledger.snapshot
        return None if snapshot is None else snapshot.root

    # --- what changes it at once ---

    def add(self, prompt: Prompt) -> None:
        """Put a message into the conversation without asking the model.

        While a turn is under way, from another thread or task, the model reads it before it speaks next.
        """
        message = message_of(prompt)
        with self._state:
            if self._run is not None:
                self._run.add(message)
            elif self._conversation.pending_tool_calls:
                self._queue = (*self._queue, message)
            else:
                self._conversation = self._conversation.plus(message)

    def set_tools(self, tools: AnyTools) -> None:
        """Give the model these tools in place of those it had."""
        with self._claimed():
            before, self._executor = self._executor, _executor(tools, self._options)
            before.close()

    # --- a turn ---

    def _claim(self) -> None:
        if self._closed:
            message = "The client is closed."
            raise ConfigurationError(message, hint="Make a new one, or do not close it so early.")
        if not self._stateless and not self._busy.acquire(blocking=False):
            raise ConcurrentUseError("This client is in the middle of a turn; one client holds one conversation.")

    def _give_back(self) -> None:
        if not self._stateless:
            self._busy.release()

    @contextmanager
    def _claimed(self) -> Generator[None]:
        """Keeps everybody else out of the client while something is done with it."""
        self._claim()
        try:
            yield
        finally:
            self._give_back()

    def _begin(
        self, prompt: Prompt | None, approvals: Iterable[Approval], conversation: Conversation | None
    ) -> LoopRun:
        """A run of the loop for this turn; the client has been claimed."""
        if conversation is not None and not self._stateless:
            message = "This client holds a conversation of its own."
            raise ConfigurationError(message, hint="Leave `conversation` out, or make the client with stateless=True.")
        start = self._conversation if conversation is None else conversation
        if prompt is not None:
            # Who speaks instead of answering about pending calls has answered: they are not run.
            start = start.repaired().conversation if start.pending_tool_calls else start
            start = start.plus(*self._queue, message_of(prompt))
        run = LoopRun(
            start, self._executor, self._settings, self.engine.profile, approvals=approvals, waiting=self._uncertain
        )
        if self._stateless:
            return run
        with self._state:
            for message in self._queue if prompt is None else ():
                run.add(message)
            self._queue = ()
            self._run = run
        return run

    def _end(self, run: LoopRun, began_with: Conversation) -> None:
        """Take over what came of the turn."""
        if self._stateless:
            return
        with self._state:
            self._run = None
            # A turn in which the model said nothing, because it failed or was cancelled, leaves no trace: the caller
            # still has the prompt and can say it again.
            said_nothing = run.conversation is began_with and not run.replies and run.was_cut_short
            if not said_nothing:
                self._conversation = run.conversation
                self._pending = run.pending
                self._uncertain = tuple([each for each in self._uncertain if each in run.pending])
            if run.unread and self._conversation.pending_tool_calls:
                self._queue = (*run.unread, *self._queue)
            else:
                self._conversation = self._conversation.plus(*run.unread)

    # --- a question ---

    def _wanted(self, answer: object) -> AnswerType[Any]:
        """What `ask` is to give: the type that was named, or what the client was made for, or text."""
        return answer_type(answer) if answer is not None else self._options.get("answer") or answer_type(str)

    def _question(self, question: Prompt, retries: int) -> Asked:
        start = self._conversation
        start = start.repaired().conversation if start.pending_tool_calls else start
        return Asked(
            start.plus(*self._queue, message_of(question)),
            self._settings.options,
            self.engine.profile,
            known_tools=self._executor.tools.specs,
            retries=retries,
        )

    def _take_answer(self, asked: Asked) -> None:
        """Take over a question and its answer; a question that nobody answered leaves no trace."""
        if asked.replies and not self._stateless:
            with self._state:
                self._conversation = asked.conversation
                self._pending = self._uncertain = ()
                self._queue = ()

    # --- other models, other conversations ---

    def _new_settings(self) -> LoopSettings:
        given = self._options
        limits = given.get("limits")
        return LoopSettings(
            options=given.get("options", self.engine.options),
            limits=Limits(steps=self._executor.config.max_iterations) if limits is None else limits,
            on_limit=given.get("on_limit", "raise"),
            repeat_tool_choice=given.get("repeat_tool_choice", False),
            hooks=(*self._journaling, *given.get("hooks", ())),
            context=tuple(given.get("context", ())),
            deps=given.get("deps"),
        )

    def _journal_with(self, journaling: LoopHooks) -> None:
        if self._stateless:
            message = "A stateless client has no conversation to keep in a store."
            raise ConfigurationError(message, hint="Leave the store out, or stateless=True.")
        self._journaling = (journaling,)
        self._settings = self._new_settings()

    def _circumstances(self) -> Circumstances:
        provider, _, model = self.model.partition(":")
        return Circumstances(provider, model, self._executor.tools.specs)

    def _switch_to(self, engine: E, *, owned: bool, strict: bool) -> tuple[tuple[Loss, ...], E | None]:
        """Speak to this model from now on: what it will not get of the history, and an engine to be closed."""
        losses = engine.losses(self._conversation)
        if losses and strict:
            raise lossy(engine.name, losses)
        old, self._lease = self._lease, _Lease(engine, owned=owned)
        self._settings = self._new_settings()
        return losses, old.release()

    def _restore(self, snapshot: Snapshot, *, fork: bool) -> tuple[Loss, ...]:
        self._ledger.take_up(snapshot, fork=fork)
        return self._take_up(snapshot.conversation)

    def _restore_recovered(self, recovered: Recovered) -> tuple[Loss, ...]:
        self._ledger.take_up_recovered(recovered)
        waiting = {call.id for call in recovered.conversation.pending_tool_calls}
        done = [result for result in recovered.done_results if result.call_id in waiting]
        losses = self._take_up(append_tool_results(recovered.conversation, done))
        known = self._executor.tools.by_name
        uncertain = [call for call in recovered.uncertain_calls if call.id in waiting]
        self._uncertain = tuple(
            [
                PendingApproval(call=call, reason=_UNCERTAIN)
                for call in uncertain
                if call.name not in known or not known[call.name].options.idempotent
            ]
        )
        return losses

    def _take_up(self, conversation: Conversation) -> tuple[Loss, ...]:
        self._conversation = conversation
        self._pending = self._uncertain = ()
        self._queue = ()
        return self.engine.losses(conversation)

    def _own_options(self) -> ChatOptions:
        """The options that another client on the same engine is made with."""
        kept = {name: value for name, value in self._options.items() if name not in _ENGINE or name in _LOOP}
        return cast("ChatOptions", kept)

    def _forked_into(self, other: ChatCore[E]) -> None:
        """Make the other client a branch of this conversation, on the same engine."""
        other._lease = self._lease.again()
        other._restore_branch(self)

    def _restore_branch(self, origin: ChatCore[E]) -> None:
        self._conversation, self._queue = origin.conversation, origin._queue
        self._pending, self._uncertain = origin._pending, origin._uncertain
        snapshot = origin._ledger.snapshot
        if snapshot is not None:
            self._ledger.take_up(snapshot, fork=True)
        self._settings = self._new_settings()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.model}, {len(self.history)} messages>"


def _executor(tools: AnyTools, given: ChatOptions) -> ToolExecutor:
    return ToolExecutor(
        tools,
        given.get("tool_config"),
        permission=given.get("permission"),
        middleware=given.get("middleware", ()),
        on_result=given.get("on_result"),
        logger=given.get("logger"),
    )
