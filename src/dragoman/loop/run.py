"""One run of the loop: ask the model, run the tools it calls, ask again.

The conversation is complete and valid whenever somebody looks at it, however the run ended. What is next is decided in
step.py; a `LoopIO` asks the model and runs the tools, in one colour.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

import dragoman._observer
from dragoman._observer import Observed
from dragoman._stop import CURRENT, Stop, shorter
from dragoman.conversation import (
    BROKEN_OFF,
    Account,
    Attempt,
    Conversation,
    Event,
    Failed,
    HandedOver,
    Message,
    RunEnded,
    Text,
    ToolCall,
    ToolFinished,
    ToolResult,
    ToolSpec,
    ToolStarted,
    Usage,
    drop_unanswerable_calls,
)
from dragoman.engines import Reply, ReplyCall, failed
from dragoman.errors import (
    ConfigurationError,
    InvalidAnswerError,
    LimitReachedError,
    ProviderError,
    StepLimitError,
    StoppedError,
    ToolAbortedError,
    UnknownCostError,
)
from dragoman.providers import ModelOptions
from dragoman.tools import Approval, PendingApproval, ToolRun
from dragoman.transport import AttemptRecord

from .context import ask_policy
from .io import LoopIO
from .moment import instruct, tools_of
from .result import ENDINGS, Cancelled, Ending, RunResult
from .settings import Hook, Judge, LoopHooks, LoopSettings, RunContext
from .step import (
    NOTHING_SPENT,
    AskModel,
    AwaitApproval,
    Done,
    LimitReached,
    RunTools,
    Spent,
    Tally,
    append_tool_results,
    next_step,
    offered_tools,
    refuse_outdated,
    step_options,
)

if TYPE_CHECKING:
    from dragoman.tools import Batch, ToolContext, ToolExecutor, ToolSet

T = TypeVar("T")

_GOES_ON: Final = (AskModel, RunTools)


class LoopRun:
    """A run under way. `conversation` is right at any time; `add` and `cancel` may be called from any thread."""

    # What few runs have, or only at their end, stands here and not in each of them.
    pending: tuple[PendingApproval, ...] = ()
    """The calls that wait for a person."""
    _approvals: tuple[Approval, ...] = ()
    _behind_tools: tuple[Usage, ...] = ()
    _handoffs: tuple[HandedOver, ...] = ()
    ending: Ending | None = None
    has_done_something: bool = False
    """Whether the model has said something or tools were begun: what was done must not be forgotten."""
    partial: Message | None = None
    """What the model has said so far in a reply that is still arriving."""
    settled: bool = False
    """Whether nothing more can come of the run."""
    _correction: Message | None = None
    """What the model was told last of an answer that the judge refused."""
    _batch: Batch | None = None
    _offered: ToolSet | None = None
    """The tools of the last reply, where a function gives those of the moment."""
    _asked: float = 0.0
    """When the model was asked, as Unix time, where replies are kept with an account."""
    owner: object = None
    """The client whose turn this is, if it is one's."""
    succeed: Callable[[LoopRun], LoopIO | None] | None = None
    """Looks behind results of tools whether somebody takes over, where that can happen; see `hand_over`."""
    extra: ToolExecutor | None = None
    """Tools for this run alone, which are closed with it."""
    observed: Observed[LoopRun] | None = None
    """The run as somebody observes it, if anybody does; whoever drives the run begins and ends that."""

    def __init__(
        self,
        conversation: Conversation,
        executor: ToolExecutor,
        settings: LoopSettings,
        *,
        approvals: Iterable[Approval] = (),
        waiting: Iterable[PendingApproval] = (),
        inside: Iterable[PendingApproval] = (),
        unread: Iterable[Message] = (),
        spent: Spent = NOTHING_SPENT,
        single: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        answers, known = tuple(approvals), tuple(waiting)
        if answers:  # about calls of the conversation, or about those of agents inside them
            calls = conversation.pending_tool_calls
            deeper = [each for each in (*known, *inside) if each.held in calls]
            refuse_outdated((*[PendingApproval(call=call) for call in calls], *deeper), answers)
            self._approvals = answers
        if known:  # whatever else waits inside a call, an answer is brought to it
            answered = [each.held for each in known if any(answer.answers(each.call) for answer in answers)]
            unanswered = [call for call in conversation.pending_tool_calls if call not in answered]
            self.pending = tuple([each for each in known if each.held in unanswered])
        self.conversation: Conversation = conversation
        self.replies: list[Reply] = []
        self.added: list[Message] = []
        """What was said to `add`, taken in or not."""
        self.unread: deque[Message] = deque(unread)
        """What was said to the run and has not been taken in."""
        self._single: bool = single
        """Whether the first answer ends the run; what is said meanwhile then stays unread."""
        self.executor: ToolExecutor = executor
        self._settings: LoopSettings = settings
        self.hooks: tuple[LoopHooks, ...] = settings.hooks
        self.tally: Tally = Tally(settings.limits, spent, clock)
        seconds = settings.limits.seconds
        self.stop: Stop = Stop(None if seconds is None else self.tally.began + seconds)
        """What ends the run early, in whatever it is doing."""

    # --- from outside ---

    def add(self, message: Message) -> None:
        """Say something while the run is under way; the model reads it before it speaks next."""
        self.added.append(message)
        self.unread.append(message)

    def cancel(self) -> None:
        """Stop at once: a call under way is ended, tools are given up."""
        self.stop.cancel()

    def work_for(self, caller: LoopRun, context: ToolContext[object]) -> None:
        """Be the run of an agent: all that it spends counts for the caller, whose limits and whose stop hold for it."""
        self.tally.caller, self.tally.context, stop = caller.tally, context, context.stop
        self.stop.deadline = shorter(self.stop.deadline, stop.deadline)
        stop.wakers[self] = self.cancel
        if stop.cancelled:
            self.cancel()

    @property
    def spent(self) -> Spent:
        """What the run has used up so far, its agents included."""
        return self.tally.spent

    @property
    def result(self) -> RunResult:
        """What came of the run, once it has ended."""
        if self.ending is None:
            message = "The run has not ended yet, or it ended with an error."
            raise ConfigurationError(message, hint="Read the stream to its end; `conversation` has what was done.")
        replies, spent, judge = tuple(self.replies), self.tally.spent, self._settings.judge
        result = RunResult(self.conversation, self.ending, replies, spent, self._behind_tools, self._handoffs)
        return result if judge is None else judge.result(result)

    # --- the run ---

    async def events(self, io: LoopIO, *, streamed: bool) -> AsyncGenerator[Event, None]:
        """Carry the run out, and tell of tools, of replies where they are `streamed`, and how it ended.

        An error that ends it has the conversation so far where it has a place for one.
        """
        last: Event | None = None
        try:
            while (step := await self._next_step(io)) is not None:
                if isinstance(step, RunTools):
                    batch = await self._begin_tools(io, step.calls, watched=streamed)
                    happenings = io.run_tools(batch)
                    try:
                        async for event in happenings:
                            if self.hooks and isinstance(event, ToolStarted):
                                await self._notify(io, "tool_started", event.call)
                            elif self.hooks and isinstance(event, ToolFinished):
                                await self._notify(io, "tool_finished", event.result)
                            yield event
                    finally:
                        await happenings.aclose()
                    before, io = io, await self._take_results(io, step.calls, batch)
                    if io is not before:
                        yield self._handoffs[-1]
                    continue
                asked = await self._look_what_to_ask(io, step)
                try:
                    if not streamed:
                        reply = await self._wait(io, self._reply, io, *asked)
                    else:
                        call = self._ready(io)(*asked, stream=True)
                        try:
                            while said := await self._wait(io, call.next):
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
        if isinstance(self.ending, LimitReached) and self._settings.on_limit == "raise":
            kind = StepLimitError if self.ending.limit == "steps" else LimitReachedError
            reached = kind(str(self.ending), conversation=self.conversation, limit=self.ending.limit)
            yield failed(reached)
            raise reached
        if streamed and self.ending is not None:
            yield RunEnded(ENDINGS[type(self.ending)], self.conversation.text, self.result.usage)

    async def _next_step(self, io: LoopIO) -> AskModel | RunTools | None:
        """What is to be done; None if that is all, and `ending` says why."""
        settings = self._settings
        shortened = not settings.context
        while True:
            listens = not self._single or not self.replies
            while listens and self.unread and not self.conversation.pending_tool_calls:
                self.conversation = self.conversation.plus(self.unread[0])
                self.unread.popleft()
            step = next_step(self.conversation, settings.limits, self.tally.spent, self.pending)
            if isinstance(step, _GOES_ON):
                if not self.stop.cancelled:
                    if settings.limits.cost is not None or self.tally.caller is not None:
                        self.tally.check(step, io.engine, self.conversation)
                    if shortened or isinstance(step, RunTools):
                        return step
                    await self._shorten(io)  # this may have called the model, so what is next is to be decided again
                    shortened = True
                    continue
                step = Cancelled()
            elif isinstance(step, Done):
                if self.stop.cancelled and step.message.interrupted:
                    step = Cancelled()
                elif listens and self.unread and not self.conversation.pending_tool_calls:
                    continue  # somebody spoke in the very last moment
                elif settings.judge is not None and await self._is_refused(io, settings.judge, step.message):
                    continue
            elif isinstance(step, AwaitApproval) and self.observed is not None:
                # Whoever goes on, perhaps in another process, can refer to this run.
                known = {**self.conversation.metadata, **self.observed.reference()}
                self.conversation = self.conversation.with_metadata(known)
            self.ending = step
            return None

    async def _is_refused(self, io: LoopIO, judge: Judge, message: Message) -> bool:
        """Whether the run may not end with this message; then the model has been told why."""
        told = await judge(message, self._moment(io), io)
        if told is not None:
            # A reply that broke off may have calls that nobody can answer.
            self.conversation, self._correction = self.conversation.repaired().conversation.plus(told), told
        return told is not None

    async def _shorten(self, io: LoopIO) -> None:
        """Let the context policies have their say."""
        for policy in self._settings.context:
            before, ask = self.conversation, partial(self._ask, io)
            self.conversation = await ask_policy(policy, before, io.engine.context_window, ask, io.wait_for)
            if self.conversation is not before:
                await self._notify(io, "compacted", before)

    async def _ask(self, io: LoopIO, conversation: Conversation) -> Message:
        """Ask the model what a context policy wants to know."""
        options = msgspec.structs.replace(self._settings.options, tool_choice="auto", response_format=None)
        reply = await self._wait(io, self._reply, io, conversation, (), options)
        self.replies.append(reply)
        self.tally.count_reply(reply, steps=0)
        return reply.message

    # --- the model ---

    async def _look_what_to_ask(
        self, io: LoopIO, step: AskModel
    ) -> tuple[Conversation, tuple[ToolSpec, ...], ModelOptions]:
        """What the model is asked with at this moment."""
        settings, executor, asked = self._settings, self.executor, self.conversation
        if self.hooks:
            await self._notify(io, "before_model")
            asked = self.conversation
        if settings.accounts:
            self._asked = time.time()
        if settings.instructions:
            asked = await instruct(asked, settings.instructions, self._moment(io), self._waiter(io))
        if executor.tools.function is not None:
            self._offered = await tools_of(executor.tools, self._moment(io), self._waiter(io))
        specs = offered_tools(executor, self.conversation, io.engine.profile, settings.options, self._offered)
        options = step_options(settings.options, executor.config, specs, first=step.first)
        return asked, specs, options

    def _reply(self, io: LoopIO, *asked: Any) -> Coroutine[Any, Any, Reply]:
        return self._ready(io)(*asked, stream=False).reply()

    @staticmethod
    def _ready(io: LoopIO) -> Callable[..., ReplyCall]:
        """What makes a call of the model ready, seen by who observes the program, if anybody does."""
        return io.engine.call if dragoman._observer.current is None else io.engine.begin

    async def _wait(self, io: LoopIO, begin: Callable[..., Coroutine[Any, Any, T]], *asked: Any) -> T:
        """The reply of the model, or the next events of one. StoppedError if the run is stopped meanwhile."""
        # Put back rather than reset: a workflow engine may drop a run where it stands, and end it in another context.
        before = CURRENT.get()
        CURRENT.set(self.stop)
        try:
            coming = begin(*asked)
            return await (coming if io.guard is None else io.guard(coming, self.stop))
        finally:
            CURRENT.set(before)

    async def _take_reply(self, io: LoopIO, reply: Reply) -> None:
        """Take the model's answer in. One that says nothing at all ends the run."""
        message = reply.message
        if ToolCall in map(type, message.blocks):
            message = drop_unanswerable_calls(message, 0, [])
        if self._asked:
            message = self._with_account(message, reply.attempts)
        self.replies.append(reply)
        self.tally.count_reply(reply, steps=1)
        grown = self.conversation.plus(message) if message.blocks else self.conversation
        self.conversation, self.partial = grown, None
        if message.blocks or message.stop_reason not in BROKEN_OFF:
            self.has_done_something = True
        if self.hooks:
            await self._notify(io, "after_model", reply)
        if not message.blocks and not self.unread:
            # An empty message has no place in a history, and to ask the same again would bring the same.
            judge = self._settings.judge
            if judge is not None and not self.stop.cancelled and await self._is_refused(io, judge, message):
                return
            self.ending = Cancelled() if self.stop.cancelled else Done(message)

    def _with_account(self, message: Message, attempts: Sequence[AttemptRecord]) -> Message:
        """The reply with how it came about, for a conversation that is kept."""
        account = Account(
            began=datetime.fromtimestamp(self._asked, UTC),
            seconds=max(0.0, time.time() - self._asked),
            attempts=tuple([msgspec.convert(each, Attempt, from_attributes=True) for each in attempts]),
        )
        return msgspec.structs.replace(message, account=account)

    # --- the tools ---

    async def _begin_tools(self, io: LoopIO, calls: tuple[ToolCall, ...], *, watched: bool) -> Batch:
        if self.hooks:
            await self._notify(io, "before_tools", calls)
        executor, shared = self.executor, self.tally.tools
        if self._offered is None and executor.tools.function is not None:
            self._offered = await tools_of(executor.tools, self._moment(io), self._waiter(io))
        if shared is None:
            shared = self.tally.tools = ToolRun(
                deps=self._settings.deps, approvals=self._approvals, stop=self.stop, watched=watched, caller=self
            )
        shared.conversation = self.conversation
        batch = self._batch = executor.batch(calls, shared, self._offered)
        self.has_done_something, self.tally.under_way = True, len(calls)
        return batch

    async def _take_results(self, io: LoopIO, calls: tuple[ToolCall, ...], batch: Batch) -> LoopIO:
        """Take the results in: what the run goes on with, which is another one where an agent was put in charge."""
        results = batch.results
        if self.pending or len(results) < len(calls):
            self.pending = (*[each for each in self.pending if each.held not in calls], *batch.pending)
        self._append(results)
        self.tally.count_tools(len(results))
        if self.succeed is not None:
            io = self.succeed(self) or io
        if self.hooks:
            await self._notify(io, "after_tools", results)
        aborted = batch.abortion
        if aborted is not None:
            raise aborted
        return io

    def _append(self, results: Sequence[ToolResult]) -> None:
        grown = append_tool_results(self.conversation, results)
        self.conversation, self._batch = grown, None  # in one breath; see `settle`
        self._behind_tools += tuple([each.usage for each in results if each.usage is not None])

    def hand_over(
        self, event: HandedOver, conversation: Conversation, executor: ToolExecutor, settings: LoopSettings
    ) -> None:
        """Go on with another agent. Limits, deps, the judge and what else was said for this run hold on."""
        ours, options = self._settings, settings.options
        if ours.judge is not None:
            options = msgspec.structs.replace(options, response_format=ours.options.response_format)
        kept = {name: getattr(ours, name) for name in ("limits", "on_limit", "deps", "accounts", "judge")}
        self._settings = msgspec.structs.replace(settings, options=options, **kept)
        self.executor, self.conversation, self._offered = executor, conversation, None
        self._handoffs = (*self._handoffs, event)

    # --- the end ---

    def _was_stopped(self, error: StoppedError | ProviderError) -> bool:
        """Whether a call failed because the run was stopped; then that is how the run has ended."""
        seconds = self._settings.limits.seconds
        if self.stop.cancelled:
            self.ending = Cancelled()
        elif isinstance(error, StoppedError) and seconds is not None:
            self.ending = LimitReached("seconds", seconds)
        return self.ending is not None

    def _settle_after(self, error: BaseException) -> None:
        if not isinstance(error, Exception):  # it was left, cancelled or interrupted
            self.ending = Cancelled()
        self.settle()
        if isinstance(error, ProviderError | ToolAbortedError | UnknownCostError | InvalidAnswerError):
            error.conversation = self.conversation

    def settle(self) -> None:
        """Take in what there is of an unfinished step, so that every call has its result and nothing is lost."""
        if self.settled:
            return
        # Ctrl-C may come between any two calls of functions, so what was taken in is marked as such in the same breath.
        if self.partial is not None:
            said = drop_unanswerable_calls(self.partial, 0, [])
            said = self._with_account(said, ()) if self._asked else said
            grown = self.conversation.plus(said) if said.blocks else self.conversation
            self.has_done_something = self.has_done_something or bool(said.blocks)
            self.conversation, self.partial = grown, None
        if self._batch is not None:
            self._append(self._batch.results)
        if isinstance(self.ending, LimitReached):
            said = (Text(f"This call was not carried out: {self.ending}"),)
            results = [
                ToolResult(call.id, call.name, said, is_error=True, error_type="budget")
                for call in self.conversation.pending_tool_calls
            ]
            self.conversation = append_tool_results(self.conversation, results)
        if self._correction is not None and self.conversation.last is self._correction:
            # Nobody has answered it; whoever goes on judges anew.
            said = self.conversation.messages[:-1]
            self.conversation = msgspec.structs.replace(self.conversation, messages=said)
        # A pause is just that: calls whose results are still to come.
        if self.conversation.messages and not isinstance(self.ending, AwaitApproval):
            last = self.conversation.messages[-1]
            if last.stop_reason in BROKEN_OFF or self.conversation.pending_tool_calls:
                self.conversation = self.conversation.repaired().conversation
        if self.tally.tools is not None:
            self.tally.tools.caller = None  # they would keep each other alive until the collector comes
        if self.tally.context is not None:
            self.tally.context.stop.wakers.pop(self, None)
        self.settled = True

    # --- whom the run asks ---

    def _moment(self, io: LoopIO) -> RunContext[object]:
        """What functions may know of the run."""
        return RunContext(deps=self._settings.deps, conversation=self.conversation, model=io.engine.name)

    def _waiter(self, io: LoopIO) -> Callable[[Awaitable[object]], Awaitable[object]]:
        """What waits for an async function, and no longer than the run goes on."""
        guard = io.guard
        return io.wait_for if guard is None else lambda given: guard(io.wait_for(given), self.stop)

    async def _notify(self, io: LoopIO, phase: str, *what: object) -> None:
        """Let each hook have its say about a phase, one after the other."""
        for hook in self.hooks:
            said: Hook = getattr(hook, phase)(self, *what)
            if said is not None:
                await io.wait_for(said)
