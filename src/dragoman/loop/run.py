"""One run of the loop: ask the model, run the tools it calls, ask again.

The conversation is complete and valid whenever somebody looks at it, however the run ended. What is next is decided in
step.py; a `LoopIO` asks the model and runs the tools, in one colour.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from dragoman._stop import CURRENT, Stop
from dragoman.conversation import (
    BROKEN_OFF,
    Conversation,
    Event,
    Failed,
    Message,
    ReplyEvent,
    RunEnded,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    ToolStarted,
    Usage,
)
from dragoman.engines import Reply, ReplyCall, failed
from dragoman.errors import (
    ConfigurationError,
    LimitReachedError,
    ProviderError,
    StepLimitError,
    StoppedError,
    ToolAbortedError,
)
from dragoman.providers import ModelOptions, Profile
from dragoman.tools import Approval, Batch, PendingApproval, ToolExecutor, ToolRun

from .context import ContextUse, estimated_tokens
from .io import LoopIO
from .settings import Hook, LoopHooks, LoopSettings
from .step import (
    NOTHING_SPENT,
    AskModel,
    AwaitApproval,
    Done,
    LimitReached,
    RunTools,
    Spent,
    append_tool_results,
    drop_unanswerable_calls,
    next_step,
    refuse_outdated,
)

_SHOWN: Final = 80


class Cancelled(Struct, frozen=True):
    """The run was told to stop."""


Ending: TypeAlias = Done | AwaitApproval | LimitReached | Cancelled
"""How a run can end other than by an error."""


_ENDINGS: Final[dict[type[Ending], Literal["done", "await_approval", "limit_reached", "cancelled"]]] = {
    Done: "done",
    AwaitApproval: "await_approval",
    LimitReached: "limit_reached",
    Cancelled: "cancelled",
}


class RunResult(Struct, frozen=True):
    """What came of a run."""

    conversation: Conversation
    ending: Ending
    replies: tuple[Reply, ...]
    """The account of every call of the model, in order."""
    spent: Spent

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= _SHOWN else self.text[: _SHOWN - 1] + "…"
        return f"<RunResult {_ENDINGS[type(self.ending)]}: {text!r}>"

    @property
    def text(self) -> str:
        """The model's latest answer."""
        return self.conversation.text

    @property
    def usage(self) -> Usage:
        """The tokens of this run, added up."""
        return Usage.total_of([reply.message.usage for reply in self.replies])

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for a person."""
        return self.ending.pending if isinstance(self.ending, AwaitApproval) else ()


class LoopRun:
    """A run under way. `conversation` is right at any time; `add` and `cancel` may be called from any thread."""

    def __init__(
        self,
        conversation: Conversation,
        executor: ToolExecutor,
        settings: LoopSettings,
        profile: Profile,
        *,
        approvals: Iterable[Approval] = (),
        waiting: Iterable[PendingApproval] = (),
        unread: Iterable[Message] = (),
        single: bool = False,
    ) -> None:
        calls = conversation.pending_tool_calls
        answers = self._approvals = tuple(approvals)
        if answers:
            refuse_outdated(calls, answers)
        self.pending: tuple[PendingApproval, ...] = tuple(
            [
                each
                for each in waiting
                if each.call in calls and not any(answer.answers(each.call) for answer in answers)
            ]
        )
        """The calls that wait for a person."""
        self.conversation: Conversation = conversation
        self.ending: Ending | None = None
        self.replies: list[Reply] = []
        self.has_done_something: bool = False
        """Whether the model has said something or tools were begun: what was done must not be forgotten."""
        self.added: list[Message] = []
        """What was said to `add`, taken in or not."""
        self.unread: deque[Message] = deque(unread)
        """What was said to the run and has not been taken in."""
        self.partial: Message | None = None
        """What the model has said so far in a reply that is still arriving."""
        self.settled: bool = False
        """Whether nothing more can come of the run."""
        self._single: bool = single
        """Whether the first answer ends the run; what is said meanwhile then stays unread."""
        self._executor: ToolExecutor = executor
        self._settings: LoopSettings = settings
        self._profile: Profile = profile
        self._tools: ToolRun | None = None
        """What the tool calls of this run share, as soon as there is one."""
        self._batch: Batch | None = None
        began = self._began = time.monotonic()
        seconds = settings.limits.seconds
        self.stop: Stop = Stop() if seconds is None else Stop(began + seconds)
        """What ends the run early, in whatever it is doing."""
        self._steps: int = 0
        self._tool_calls: int = 0
        self._tokens: int = 0
        self._cost: float = 0.0
        self.hooks: tuple[LoopHooks, ...] = settings.hooks

    # --- from outside ---

    def add(self, message: Message) -> None:
        """Say something while the run is under way; the model reads it before it speaks next."""
        self.added.append(message)
        self.unread.append(message)

    def cancel(self) -> None:
        """Stop at once: a call under way is ended, tools are given up."""
        self.stop.cancel()

    @property
    def cancelled(self) -> bool:
        """Whether the run was told to stop."""
        return self.stop.cancelled

    @property
    def spent(self) -> Spent:
        """What the run has used up so far."""
        return Spent(
            steps=self._steps,
            model_calls=len(self.replies),
            tool_calls=self._tool_calls,
            tokens=self._tokens,
            cost=self._cost,
            seconds=time.monotonic() - self._began,
        )

    @property
    def result(self) -> RunResult:
        """What came of the run, once it has ended."""
        if self.ending is None:
            message = "The run has not ended yet, or it ended with an error."
            raise ConfigurationError(message, hint="Read the stream to its end; `conversation` has what was done.")
        return RunResult(self.conversation, self.ending, tuple(self.replies), self.spent)

    # --- the run ---

    async def events(self, io: LoopIO, *, streamed: bool) -> AsyncGenerator[Event, None]:
        """Carry the run out, and tell of tools, of replies where they are `streamed`, and how it ended.

        An error that ends it has the conversation so far where it has a place for one.
        """
        last: Event | None = None
        try:
            while (step := await self._next_step(io)) is not None:
                if isinstance(step, RunTools):
                    await self._notify(io, "before_tools", step.calls)
                    batch = self._batch = self._executor.batch(step.calls, self._tool_run())
                    self.has_done_something = True
                    async with aclosing(io.run_tools(batch)) as happenings:
                        async for event in happenings:
                            if isinstance(event, ToolStarted):
                                await self._notify(io, "tool_started", event.call)
                            else:
                                await self._notify(io, "tool_finished", event.result)
                            yield event
                    await self._take_results(io, step.calls, batch)
                    continue
                await self._notify(io, "before_model")
                specs = self.offered
                options = self._options(step, specs)
                try:
                    if not streamed:
                        reply = await self._reply(io, self.conversation, specs, options)
                    else:
                        call = io.engine.call(self.conversation, specs, options, stream=True)
                        try:
                            while said := await self._next_events(io, call):
                                for last in said:
                                    yield last
                                if self.stop.cancelled:
                                    break
                            reply = call.account
                        finally:
                            self.partial = call.message
                            await call.aclose()
                except Exception as error:
                    await self._notify(io, "model_failed", error)
                    raise
                await self._take_reply(io, reply)
                if self.ending is not None:
                    break
        except (StoppedError, ProviderError) as error:
            if not self._was_stopped(error):
                self._settle_after(error)
                if not isinstance(last, Failed):
                    yield failed(error)
                raise
        except BaseException as error:
            self._settle_after(error)
            if isinstance(error, Exception):
                yield failed(error)
            raise
        self.settle()
        limit = self._check_limit()
        if limit is not None:
            yield failed(limit)
            raise limit
        if streamed and self.ending is not None:
            yield RunEnded(_ENDINGS[type(self.ending)], self.conversation.text, self.result.usage)

    async def _reply(
        self, io: LoopIO, conversation: Conversation, tools: tuple[ToolSpec, ...], options: ModelOptions
    ) -> Reply:
        """A whole reply. StoppedError if the run is stopped meanwhile."""
        token = CURRENT.set(self.stop)
        try:
            coming = io.engine.call(conversation, tools, options, stream=False).reply()
            return await (coming if io.guard is None else io.guard(coming, self.stop))
        finally:
            CURRENT.reset(token)

    async def _next_events(self, io: LoopIO, call: ReplyCall) -> list[ReplyEvent]:
        """The next events of a reply. StoppedError if the run is stopped meanwhile."""
        token = CURRENT.set(self.stop)
        try:
            return await (call.next() if io.guard is None else io.guard(call.next(), self.stop))
        finally:
            CURRENT.reset(token)

    def _was_stopped(self, error: StoppedError | ProviderError) -> bool:
        """Whether a call failed because the run was stopped; then that is how the run has ended."""
        if self.stop.cancelled:
            self.ending = Cancelled()
        elif isinstance(error, StoppedError) and self._settings.limits.seconds is not None:
            self.ending = LimitReached("seconds", self._settings.limits.seconds)
        return self.ending is not None

    def _settle_after(self, error: BaseException) -> None:
        if not isinstance(error, Exception):  # it was left, cancelled or interrupted
            self.ending = Cancelled()
        self.settle()
        if isinstance(error, ProviderError | ToolAbortedError):
            error.conversation = self.conversation

    def _tool_run(self) -> ToolRun:
        if self._tools is None:
            self._tools = ToolRun(deps=self._settings.deps, approvals=self._approvals, stop=self.stop)
        self._tools.conversation = self.conversation
        return self._tools

    async def complete(self, io: LoopIO) -> None:
        """Carry the run out where nobody watches: the model is asked for whole replies."""
        async with aclosing(self.events(io, streamed=False)) as events:
            async for _ in events:
                pass

    async def _next_step(self, io: LoopIO) -> AskModel | RunTools | None:
        """What is to be done; None if that is all, and `ending` says why."""
        shortened = not self._settings.context
        while True:
            listens = not self._single or not self.replies
            while listens and self.unread and not self.conversation.pending_tool_calls:
                self.conversation = self.conversation.plus(self.unread[0])
                self.unread.popleft()
            spent = self.spent if self.replies or self._tool_calls else NOTHING_SPENT
            step = next_step(self.conversation, self._settings.limits, spent, self.pending)
            if self.stop.cancelled and (
                isinstance(step, AskModel | RunTools) or (isinstance(step, Done) and step.message.interrupted)
            ):
                step = Cancelled()
            if isinstance(step, AskModel) and not shortened:
                await self._shorten(io)  # this may have called the model, so what is next is to be decided again
                shortened = True
            elif isinstance(step, AskModel | RunTools):
                return step
            elif isinstance(step, Done) and listens and self.unread and not self.conversation.pending_tool_calls:
                continue  # somebody spoke in the very last moment
            else:
                self.ending = step
                return None

    def _check_limit(self) -> LimitReachedError | None:
        """The error for a run that a limit has ended, where one is wanted."""
        if not isinstance(self.ending, LimitReached) or self._settings.on_limit != "raise":
            return None
        kind = StepLimitError if self.ending.limit == "steps" else LimitReachedError
        return kind(str(self.ending), conversation=self.conversation, limit=self.ending.limit)

    def settle(self) -> None:
        """Take in what there is of an unfinished step, so that every call has its result and nothing is lost."""
        if self.settled:
            return
        # Ctrl-C may come between any two calls of functions, so what was taken in is marked as such in the same breath.
        if self.partial is not None:
            said = drop_unanswerable_calls(self.partial)
            grown = self.conversation.plus(said) if said.blocks else self.conversation
            self.has_done_something = self.has_done_something or bool(said.blocks)
            self.conversation, self.partial = grown, None
        if self._batch is not None:
            grown = append_tool_results(self.conversation, self._batch.results)
            self.conversation, self._batch = grown, None
        if isinstance(self.ending, LimitReached):
            said = (Text(f"This call was not carried out: {self.ending}"),)
            results = [
                ToolResult(call.id, call.name, said, is_error=True, error_type="budget")
                for call in self.conversation.pending_tool_calls
            ]
            self.conversation = append_tool_results(self.conversation, results)
        # A pause is just that: calls whose results are still to come.
        if self.conversation.messages and not isinstance(self.ending, AwaitApproval):
            last = self.conversation.messages[-1]
            if last.stop_reason in BROKEN_OFF or self.conversation.pending_tool_calls:
                self.conversation = self.conversation.repaired().conversation
        self.settled = True

    async def _take_reply(self, io: LoopIO, reply: Reply) -> None:
        """Take the model's answer in. One that says nothing at all ends the run."""
        message = drop_unanswerable_calls(reply.message)
        self._count(reply)
        grown = self.conversation.plus(message) if message.blocks else self.conversation
        self.conversation, self.partial = grown, None
        self._steps += 1
        if message.blocks or message.stop_reason not in BROKEN_OFF:
            self.has_done_something = True
        await self._notify(io, "after_model", reply)
        if not message.blocks and not self.unread:
            # An empty message has no place in a history, and to ask the same again would bring the same.
            self.ending = Cancelled() if self.stop.cancelled else Done(message)

    @property
    def offered(self) -> tuple[ToolSpec, ...]:
        """What the model is told of tools."""
        config = self._executor.config
        if not config.enabled:
            return ()
        tools = self._executor.tools
        specs = tools.specs if tools.by_name else ()
        if config.allowed_tools is None:
            return specs
        return tuple([spec for spec in specs if spec.name in config.allowed_tools])

    def _options(self, step: AskModel, specs: Sequence[ToolSpec]) -> ModelOptions:
        """The options with the caller's tool choice; one that forces a call holds for the first step only."""
        options = self._settings.options
        choice = self._executor.config.tool_choice if options.tool_choice == "auto" else options.tool_choice
        if choice not in ("auto", "none"):
            if not specs:
                message = "The model must call a tool, but there is none."
                raise ConfigurationError(message, hint="Give it tools, or leave tool_choice at 'auto'.")
            if not step.first:
                choice = "auto"
        elif not specs:
            choice = "auto"
        return options if choice == options.tool_choice else msgspec.structs.replace(options, tool_choice=choice)

    def _count(self, reply: Reply) -> None:
        self.replies.append(reply)
        usage, prices = reply.message.usage, self._settings.limits.prices
        if usage is not None:
            self._tokens += usage.total or (usage.input or 0) + (usage.output or 0)
            if prices is not None:
                self._cost += prices.cost(usage)

    async def _shorten(self, io: LoopIO) -> None:
        """Let the context policies have their say."""
        for policy in self._settings.context:
            before = self.conversation
            use = ContextUse(estimated_tokens(before), self._profile.context_window, partial(self._ask, io))
            after: object = policy(before, use)
            if isinstance(after, Awaitable):
                after = cast("object", await io.wait_for(after))
            if not isinstance(after, Conversation):
                message = f"A context policy gave back a {type(after).__name__}."
                raise ConfigurationError(message, hint="Return a conversation: the same one, or a shorter one.")
            if after is not before:
                after.ensure_valid()
                self.conversation = after
                await self._notify(io, "compacted", before)

    async def _ask(self, io: LoopIO, conversation: Conversation) -> Message:
        """Ask the model what a context policy wants to know."""
        options = msgspec.structs.replace(self._settings.options, tool_choice="auto", response_format=None)
        reply = await self._reply(io, conversation, (), options)
        self._count(reply)
        return reply.message

    async def _take_results(self, io: LoopIO, calls: tuple[ToolCall, ...], batch: Batch) -> None:
        results = batch.results
        self._tool_calls += len(results)
        self.pending = (*[each for each in self.pending if each.call not in calls], *batch.pending)
        grown = append_tool_results(self.conversation, results)
        self.conversation, self._batch = grown, None
        await self._notify(io, "after_tools", results)
        aborted = batch.abortion
        if aborted is not None:
            raise aborted

    async def _notify(self, io: LoopIO, phase: str, *what: object) -> None:
        """Let each hook have its say about a phase, one after the other."""
        for hook in self.hooks:
            said: Hook = getattr(hook, phase)(self, *what)
            if said is not None:
                await io.wait_for(said)
