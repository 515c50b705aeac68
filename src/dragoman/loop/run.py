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
from typing import TypeAlias, cast

import msgspec
from msgspec import Struct

from dragoman.conversation import Conversation, Event, Message, Text, ToolCall, ToolResult, ToolSpec, ToolStarted, Usage
from dragoman.engines import Reply
from dragoman.errors import (
    ConfigurationError,
    LimitReachedError,
    ProviderError,
    StepLimitError,
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
    keep_current_approvals,
    next_step,
)


class Cancelled(Struct, frozen=True):
    """The run was told to stop."""


Ending: TypeAlias = Done | AwaitApproval | LimitReached | Cancelled
"""How a run can end other than by an error."""


class RunResult(Struct, frozen=True):
    """What came of a run."""

    conversation: Conversation
    ending: Ending
    spent: Spent
    replies: tuple[Reply, ...]
    """The account of every call of the model, in order."""

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """The model's latest answer."""
        return self.conversation.text

    @property
    def usage(self) -> Usage:
        """The tokens of this run, added up."""
        total = Usage(input=0, output=0)
        for reply in self.replies:
            total += reply.message.usage or Usage()
        return total

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
    ) -> None:
        calls = conversation.pending_tool_calls
        answers = self._approvals = keep_current_approvals(calls, approvals)
        self.pending: tuple[PendingApproval, ...] = tuple(
            [
                each
                for each in waiting
                if each.call in calls and not any(answer.answers(each.call) for answer in answers)
            ]
        )
        """The calls that wait for a person."""
        self.cancelled: bool = False
        """Whether the run was told to stop."""
        self.conversation: Conversation = conversation
        self.ending: Ending | None = None
        self.replies: list[Reply] = []
        self.has_done_something: bool = False
        """Whether the model has said something or tools were begun: what was done must not be forgotten."""
        self.added: list[Message] = []
        """What was said to `add`, taken in or not."""
        self.partial: Message | None = None
        """What the model has said so far in a reply that is still arriving; the driver keeps it."""
        self._executor: ToolExecutor = executor
        self._settings: LoopSettings = settings
        self._profile: Profile = profile
        self._inbox: deque[Message] = deque(unread)
        self._tools: ToolRun | None = None
        """What the tool calls of this run share, as soon as there is one."""
        self._batch: Batch | None = None
        self._settled: bool = False
        """Whether nothing more can come of the run."""
        self._began: float = time.monotonic()
        self._steps: int = 0
        self._tool_calls: int = 0
        self._tokens: int = 0
        self._cost: float = 0.0
        self._last: Spent | None = None
        """What was used up, once that is all."""
        self.hooks: tuple[LoopHooks, ...] = settings.hooks

    # --- from outside ---

    def add(self, message: Message) -> None:
        """Say something while the run is under way; the model reads it before it speaks next."""
        self.added.append(message)
        self._inbox.append(message)

    @property
    def unread(self) -> tuple[Message, ...]:
        """What was said to the run and has not been taken in."""
        return tuple(self._inbox)

    def cancel(self) -> None:
        """Stop at the next opportunity: tools are given up, a stream is closed, a whole reply is waited for."""
        self.cancelled = True
        if self._tools is not None:
            self._tools.cancel()

    @property
    def was_cut_short(self) -> bool:
        """Whether the run was cancelled, or ended by an error."""
        return self.ending is None or isinstance(self.ending, Cancelled)

    @property
    def spent(self) -> Spent:
        """What the run has used up so far."""
        return self._last or Spent(
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
        return RunResult(self.conversation, self.ending, self.spent, tuple(self.replies))

    # --- the run ---

    async def events(self, io: LoopIO, *, streamed: bool) -> AsyncGenerator[Event, None]:
        """Carry the run out, and tell of tools, and of replies where they are `streamed`.

        An error that ends it has the conversation so far where it has a place for one.
        """
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
                if not streamed:
                    reply = await io.reply(self.conversation, specs, options)
                else:
                    source = io.stream(self.conversation, specs, options)
                    try:
                        while (said := await source.next()) is not None:
                            yield said
                            if self.cancelled:
                                break
                        reply = source.stream.reply
                    finally:
                        self.partial = source.stream.message
                        await source.close()
                await self._take_reply(io, reply)
                if self.ending is not None:
                    break
            self._check_limit()
        except BaseException as error:
            if not isinstance(error, Exception):  # it was left, cancelled or interrupted
                self.ending = Cancelled()
            self.settle()
            if isinstance(error, ProviderError | ToolAbortedError):
                error.conversation = self.conversation
            raise
        self.settle()

    def _tool_run(self) -> ToolRun:
        if self._tools is None:
            settings = self._settings
            seconds = settings.limits.seconds
            deadline = None if seconds is None else self._began + seconds
            self._tools = ToolRun(deps=settings.deps, approvals=self._approvals, deadline=deadline)
            if self.cancelled:  # meanwhile, from another thread
                self._tools.cancel()
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
            while self._inbox and not self.conversation.pending_tool_calls:
                self.conversation = self.conversation.plus(self._inbox[0])
                self._inbox.popleft()
            spent = self.spent if self.replies or self._tool_calls else NOTHING_SPENT
            step = next_step(self.conversation, self._settings.limits, spent, self.pending)
            if self.cancelled and (
                isinstance(step, AskModel | RunTools) or (isinstance(step, Done) and step.message.interrupted)
            ):
                step = Cancelled()
            if isinstance(step, AskModel) and not shortened:
                await self._shorten(io)  # this may have called the model, so what is next is to be decided again
                shortened = True
            elif isinstance(step, AskModel | RunTools):
                return step
            elif isinstance(step, Done) and self._inbox and not self.conversation.pending_tool_calls:
                continue  # somebody spoke in the very last moment
            else:
                self.ending, self._last = step, spent
                return None

    def _check_limit(self) -> None:
        """Where a limit has ended the run: answer the calls that will not be run, and raise if that is wanted."""
        if not isinstance(self.ending, LimitReached):
            return
        said = (Text(f"This call was not carried out: {self.ending}"),)
        results = [
            ToolResult(call.id, call.name, said, is_error=True, error_type="budget")
            for call in self.conversation.pending_tool_calls
        ]
        self.conversation = append_tool_results(self.conversation, results)
        if self._settings.on_limit == "raise":
            kind = StepLimitError if self.ending.limit == "steps" else LimitReachedError
            raise kind(str(self.ending), conversation=self.conversation, limit=self.ending.limit)

    def settle(self) -> None:
        """Take in what there is of an unfinished step, so that every call has its result and nothing is lost."""
        if self._settled:
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
        # A pause is just that: calls whose results are still to come.
        if self.conversation.messages and not isinstance(self.ending, AwaitApproval):
            last = self.conversation.messages[-1]
            if last.interrupted or self.conversation.pending_tool_calls:
                self.conversation = self.conversation.repaired().conversation
        self._settled = True

    async def _take_reply(self, io: LoopIO, reply: Reply) -> None:
        """Take the model's answer in. One that says nothing at all ends the run."""
        message = drop_unanswerable_calls(reply.message)
        self._count(reply)
        grown = self.conversation.plus(message) if message.blocks else self.conversation
        self.conversation, self.partial = grown, None
        self._steps += 1
        if message.blocks or not message.interrupted:
            self.has_done_something = True
        await self._notify(io, "after_model", reply)
        if not message.blocks and not self._inbox:
            # An empty message has no place in a history, and to ask the same again would bring the same.
            self.ending, self._last = Cancelled() if self.cancelled else Done(message), self.spent

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
        usage = reply.message.usage or Usage()
        self._tokens += usage.tokens or 0
        prices = self._settings.limits.prices
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
        reply = await io.reply(conversation, (), options)
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
