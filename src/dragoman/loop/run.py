"""One run of the loop: ask the model, run the tools it calls, ask again.

`run.conversation` is complete and valid at any moment, however the run ends. step.py decides what to do next; a
`LoopIO` calls the model and runs the tools, sync or async.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

import dragoman._observer
from dragoman._decoding import convert_to
from dragoman._observer import Observed
from dragoman._stepping import Inner
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
    unanswered_cut_reply,
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
)
from dragoman.providers import ModelOptions
from dragoman.tools import Approval, PendingApproval, ToolPaused, ToolRun
from dragoman.transport import AttemptRecord

from .context import ask_policy
from .io import LoopIO
from .meter import RunMeter
from .moment import instruct, tools_of
from .result import ENDINGS, Cancelled, Ending, RunResult, add_usage
from .settings import Hook, Judge, LoopHooks, LoopSettings, RunContext
from .step import (
    NOTHING_SPENT,
    AskModel,
    AwaitApproval,
    Done,
    LimitReached,
    NoAnswer,
    RefuseCalls,
    RunTools,
    Spent,
    append_tool_results,
    has_spoken,
    is_asked_again,
    is_left_out,
    next_step,
    offered_tools,
    refuse_outdated,
    refuse_unanswered_calls,
    step_options,
    with_usage,
)

if TYPE_CHECKING:
    from dragoman.tools import Batch, ToolContext, ToolExecutor, ToolSet

T = TypeVar("T")

_GOES_ON: Final = (AskModel, RunTools, RefuseCalls)


class LoopRun:
    """A run in progress. `conversation` is valid at any time; `add` and `cancel` may be called from any thread."""

    # Class attributes as defaults for what few runs set: a run is created for every turn.
    pending: tuple[PendingApproval, ...] = ()
    """The calls that wait for approval."""
    _approvals: tuple[Approval, ...] = ()
    _handoffs: tuple[HandedOver, ...] = ()
    ending: Ending | None = None
    has_done_something: bool = False
    """Whether the model has replied or tools have started: then the turn stays in the history even if it fails."""
    partial: Message | None = None
    """The reply received so far, while it is still streaming."""
    silent: tuple[Message, ...] = ()
    """The last replies in a row that said nothing; they are no part of the conversation."""
    _result: RunResult | None = None
    settled: bool = False
    """Whether `settle` has run, so that the conversation is final."""
    _correction: Message | None = None
    """The last message that told the model why its answer was rejected."""
    _batch: Batch | None = None
    _tools: ToolRun | None = None
    """The state shared by the run's tool calls, once there is one."""
    _earlier: Mapping[str, Usage] | None = None
    """What the calls that waited had used before, by id."""
    _caller_stop: Stop | None = None
    """The stop of the call that this run answers, if it is an agent's."""
    _offered: ToolSet | None = None
    """The tools offered with the last request, if a function supplies them for each step."""
    _asked: float = 0.0
    """Unix time of the last request, if replies are stored with an account."""
    owner: object = None
    """The client whose turn this is, if any."""
    succeed: Callable[[LoopRun], LoopIO | None] | None = None
    """Called after tool results: returns the I/O of the agent that takes over, if one does; see `hand_over`."""
    extra: ToolExecutor | None = None
    """An executor for this run only; closed when the run ends."""
    observed: Observed[LoopRun] | None = None
    """The observation of this run, if there is an observer; started and ended by whoever drives the run."""

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
        if answers or known or inside:  # answers to calls in the conversation, or to calls inside them
            calls = conversation.pending_tool_calls
            deeper = [each for each in (*known, *inside) if each.held in calls]
            self._earlier = {each.held.id: each.used for each in deeper if each.used is not None}
            refuse_outdated((*[PendingApproval(call=call) for call in calls], *deeper), answers)
            self._approvals = answers
        if known:  # a call is run again as soon as one of the approvals inside it is answered
            answered = [each.held for each in known if any(answer.answers(each.call) for answer in answers)]
            unanswered = [call for call in conversation.pending_tool_calls if call not in answered]
            self.pending = tuple([each for each in known if each.held in unanswered])
        self.conversation: Conversation = settings.instructed(conversation)
        self.replies: list[Reply] = []
        self.added: list[Message] = []
        """Messages passed to `add`, whether they have been read or not."""
        self.unread: deque[Message] = deque(unread)
        """Messages that are not in the conversation yet."""
        self._single: bool = single
        """Whether the first reply ends the run; messages added meanwhile stay unread."""
        self.executor: ToolExecutor = executor
        self._settings: LoopSettings = settings
        self.hooks: tuple[LoopHooks, ...] = settings.hooks
        self.meter: RunMeter = RunMeter(settings.limits, spent, clock)
        seconds = settings.limits.seconds
        self.stop: Stop = Stop(None if seconds is None else self.meter.began + seconds)
        """Cancels whatever the run is waiting for."""

    # --- for callers ---

    def add(self, message: Message) -> None:
        """Add a message while the run is in progress; the model reads it before its next reply."""
        self.added.append(message)
        self.unread.append(message)

    def cancel(self) -> None:
        """Stop at once: the current model call is ended, running tools are abandoned."""
        self.stop.cancel()

    def work_for(self, context: ToolContext[object]) -> None:
        """Make this the run of an agent, for this call: the limits and the stop of those who wait for it apply."""
        self.meter.put_below(context.meter)
        self._caller_stop = stop = context.stop
        self.stop.deadline = shorter(self.stop.deadline, stop.deadline)
        stop.wakers[self] = self.cancel
        if stop.cancelled:
            self.cancel()

    @property
    def spent(self) -> Spent:
        """What the run has used so far, including its agents."""
        return self.meter.spent

    @property
    def usage(self) -> Usage:
        """The tokens of the run so far, including its agents."""
        return add_usage(self.replies, self.meter.inside)

    @property
    def result(self) -> RunResult:
        """The result, once the run has ended."""
        if self._result is not None:
            return self._result
        if self.ending is None:
            message = "The run has not ended yet, or it ended with an error."
            raise ConfigurationError(message, hint="Read the stream to its end; `conversation` has what was done.")
        replies, meter, judge = tuple(self.replies), self.meter, self._settings.judge
        result = RunResult(self.conversation, self.ending, replies, meter.spent, meter.inside, self._handoffs)
        result = result if judge is None else judge.result(result)
        self._result = result if self.settled else None
        return result

    # --- the run ---

    async def events(self, io: LoopIO, *, streamed: bool) -> AsyncGenerator[Event, None]:
        """Drive the run. Yields tool events and how it ended; if `streamed`, also the events of each reply.

        Errors that have a `conversation` attribute get the conversation so far.
        """
        last: Event | None = None
        try:
            while (step := await self._next_step(io)) is not None:
                if isinstance(step, RefuseCalls):
                    for result in await self._refuse_calls(io):
                        yield ToolFinished(result)
                    continue
                if isinstance(step, RunTools):
                    batch = await self._begin_tools(io, step, watched=streamed)
                    tool_events = Inner(io.run_tools(batch))
                    try:
                        async for event in tool_events:
                            if isinstance(event, ToolPaused):
                                await self._note_pause(io, batch, event.pending)
                                continue
                            if self.hooks and isinstance(event, ToolStarted):
                                await self._notify(io, "tool_started", event.call)
                            elif self.hooks and isinstance(event, ToolFinished):
                                await self._notify(io, "tool_finished", event.result)
                            yield event
                    finally:
                        await tool_events.aclose()
                    before, io = io, await self._take_results(io, step.calls, batch)
                    if io is not before:
                        yield self._handoffs[-1]
                    continue
                request = await self._prepare_request(io, step)
                try:
                    call = self._begin_call(io, *request, stream=streamed)
                    if not streamed:
                        reply = await self._wait(io, call.reply)
                    else:
                        try:
                            while received := await self._wait(io, call.next):
                                for last in received:
                                    yield last
                                if self.stop.cancelled:
                                    break
                            reply = call.account
                        finally:
                            self.partial = call.message
                            await call.aclose()
                except Exception as error:
                    self._count_failure(error)
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
        if self.ending is not None:
            result = self.result
            if isinstance(self.ending, Done | NoAnswer) and result.note:
                io.warn(f"{io.engine.name}: {result.note}")
            if isinstance(self.ending, Done) and result.spent.passed:
                io.warn(f"{io.engine.name}: {self.meter.overrun}")
            if streamed:
                ended = ENDINGS[type(self.ending)]
                yield RunEnded(ended, result.text, result.usage, result.stop_reason, result.note)

    async def _next_step(self, io: LoopIO) -> AskModel | RunTools | RefuseCalls | None:
        """The next step; None when the run is over, with the reason in `ending`."""
        settings = self._settings
        shortened = not settings.context
        while True:
            reads_more = not self._single or not self.replies
            while reads_more and self.unread and not self._waits_for_results:
                self.conversation, self.silent = self.conversation.plus(self.unread[0]), ()
                self.unread.popleft()
            step = next_step(self.conversation, settings.limits, self.meter.spent, self.pending, self.silent)
            if isinstance(step, _GOES_ON):
                if isinstance(step, RefuseCalls):
                    return step
                if not self.stop.cancelled:
                    if self.meter.has_more_limits:
                        self.meter.check(step, io.engine, self.conversation)
                    if shortened or isinstance(step, RunTools):
                        return step
                    await self._shorten(io)  # this may have called the model, so decide again
                    shortened = True
                    continue
                step = Cancelled()
            elif isinstance(step, Done):
                if self.stop.cancelled and step.message.interrupted:
                    step = Cancelled()
                elif reads_more and self.unread and not self.conversation.pending_tool_calls:
                    continue  # a message was added at the last moment
                elif settings.judge is not None and await self._is_refused(io, settings.judge, step.message):
                    continue
            elif isinstance(step, NoAnswer) and reads_more and self.unread:
                continue
            elif isinstance(step, AwaitApproval) and self.observed is not None:
                # So that the run that continues this one, perhaps in another process, can link to its trace.
                known = {**self.conversation.metadata, **self.observed.reference()}
                self.conversation = self.conversation.with_metadata(known)
            self.ending = step
            return None

    async def _is_refused(self, io: LoopIO, judge: Judge, message: Message) -> bool:
        """Whether the judge rejects this message as the final answer; the correction is then in the conversation."""
        correction = await judge(message, self._run_context(io), io)
        if correction is not None:
            # An interrupted reply may contain calls that cannot be answered.
            self.conversation = self.conversation.repaired().conversation.plus(correction)
            self._correction = correction
        return correction is not None

    async def _shorten(self, io: LoopIO) -> None:
        """Apply the context policies."""
        for policy in self._settings.context:
            before, ask = self.conversation, partial(self._ask, io)
            self.conversation = await ask_policy(policy, before, io.engine.context_window, ask, io.wait_for)
            if self.conversation is not before:
                await self._notify(io, "compacted", before)

    async def _ask(self, io: LoopIO, conversation: Conversation) -> Message:
        """Call the model for a context policy."""
        options = msgspec.structs.replace(self._settings.options, tool_choice="auto", response_format=None)
        try:
            reply = await self._wait(io, self._begin_call(io, conversation, (), options, stream=False).reply)
        except Exception as error:
            self._count_failure(error)
            raise
        self.replies.append(reply)
        self.meter.count_reply(reply, steps=0)
        return reply.message

    # --- the model ---

    async def _prepare_request(
        self, io: LoopIO, step: AskModel
    ) -> tuple[Conversation, tuple[ToolSpec, ...], ModelOptions]:
        """The conversation, tools and options of the next model call."""
        settings, executor, conversation = self._settings, self.executor, self.conversation
        if self.hooks:
            await self._notify(io, "before_model")
            conversation = self.conversation
        if settings.accounts:
            self._asked = time.time()
        if settings.instructions:
            conversation = await instruct(conversation, settings.instructions, self._run_context(io), self._waiter(io))
        if executor.tools.function is not None:
            self._offered = await tools_of(executor.tools, self._run_context(io), self._waiter(io))
        specs = offered_tools(executor, self.conversation, io.engine.profile, settings.options, self._offered)
        options = step_options(settings.options, executor.config, specs, first=step.first)
        return conversation, specs, options

    def _begin_call(self, io: LoopIO, *request: Any, stream: bool) -> ReplyCall:
        """A model call that is sent as soon as it is awaited, and is counted. LimitReachedError if it must not be."""
        self.meter.send(io.engine, self.conversation)
        # With an observer, the method that reports to it.
        prepare = io.engine.call if dragoman._observer.current is None else io.engine.begin
        try:
            return prepare(*request, stream=stream)
        except BaseException:
            self.meter.withdraw_call()
            raise

    def _count_failure(self, error: Exception) -> None:
        """Count a model call that failed. What was refused has cost nothing; of any other call nobody knows."""
        if isinstance(error, ProviderError) and error.partial is None and error.status is not None:
            self.meter.end_call(Usage(input=0, output=0), 0.0)

    async def _wait(self, io: LoopIO, start: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """Await a reply or its next events. StoppedError if the run is stopped meanwhile."""
        # Set back rather than reset by token: a workflow engine may drop a run and finish it in another context.
        before = CURRENT.get()
        CURRENT.set(self.stop)
        try:
            work = start(*arguments)
            return await (work if io.guard is None else io.guard(work, self.stop))
        finally:
            CURRENT.set(before)

    async def _take_reply(self, io: LoopIO, reply: Reply) -> None:
        """Append the model's reply. An empty one ends the run."""
        message, lost_call = reply.message, False
        if ToolCall in map(type, message.blocks):
            message = drop_unanswerable_calls(message, 0, [])
            lost_call = len(message.blocks) < len(reply.message.blocks)
        if self._asked:
            message = self._with_account(message, reply.attempts)
        self.replies.append(reply)
        self.meter.count_reply(reply, steps=1)
        left_out = is_left_out(message)
        if left_out:
            self.partial = None
        else:
            silent = self.silent if message.cut_off and message.tool_calls else ()
            self.conversation, self.partial, self.silent = self.conversation.plus(message), None, silent
        if message.blocks or message.stop_reason not in BROKEN_OFF:
            self.has_done_something = True
        if self.hooks:
            await self._notify(io, "after_model", reply)
        if left_out and (self._single or not self.unread):
            await self._take_silence(io, message, lost_call=lost_call)

    async def _take_silence(self, io: LoopIO, message: Message, *, lost_call: bool) -> None:
        """After a reply without content: ask again, or end the run."""
        judge = self._settings.judge
        if self.stop.cancelled:
            self.ending = Cancelled()
        elif judge is not None and await self._is_refused(io, judge, message):
            pass  # its correction is the second question
        elif is_asked_again(message, lost_call=lost_call) and not has_spoken(self.conversation):
            self.silent = (*self.silent, message)
        else:
            self.ending = Done(message)

    async def _refuse_calls(self, io: LoopIO) -> tuple[ToolResult, ...]:
        """Give each call of a reply that was cut off an error result."""
        before = {result.call_id for result in self._last_results()}
        self.conversation = self.conversation.repaired().conversation
        added = tuple([result for result in self._last_results() if result.call_id not in before])
        if self.hooks:
            await self._notify(io, "after_tools", added)
        return added

    def _last_results(self) -> tuple[ToolResult, ...]:
        """The results behind the model's last message."""
        behind = itertools.takewhile(lambda each: each.role != "assistant", reversed(self.conversation.messages))
        return tuple([result for message in behind for result in message.tool_results])

    @property
    def _waits_for_results(self) -> bool:
        """Whether calls have no results yet, so that no message of the user can follow."""
        conversation = self.conversation
        return bool(conversation.pending_tool_calls) or unanswered_cut_reply(conversation.messages) is not None

    def _with_account(self, message: Message, attempts: Sequence[AttemptRecord]) -> Message:
        """The reply with an account of its attempts, for a conversation that is stored."""
        account = Account(
            began=datetime.fromtimestamp(self._asked, UTC),
            seconds=max(0.0, time.time() - self._asked),
            attempts=tuple([convert_to(each, Attempt, from_attributes=True) for each in attempts]),
        )
        return msgspec.structs.replace(message, account=account)

    # --- the tools ---

    async def _begin_tools(self, io: LoopIO, step: RunTools, *, watched: bool) -> Batch:
        calls = step.calls
        self.meter.begin_tools(step, io.engine, self.conversation)
        if self.hooks:
            await self._notify(io, "before_tools", calls)
        executor, shared = self.executor, self._tools
        if self._offered is None and executor.tools.function is not None:
            self._offered = await tools_of(executor.tools, self._run_context(io), self._waiter(io))
        if shared is None:
            shared = self._tools = ToolRun(
                deps=self._settings.deps,
                approvals=self._approvals,
                stop=self.stop,
                watched=watched,
                caller=self,
                meter=self.meter,
                earlier=self._earlier,
            )
        shared.conversation = self.conversation
        batch = self._batch = executor.batch(calls, shared, self._offered)
        self.has_done_something = True
        return batch

    async def _note_pause(self, io: LoopIO, batch: Batch, pending: PendingApproval) -> None:
        tool = batch.tools.find(pending.call.name)
        if self.hooks and (tool is None or tool.agent is None):  # an agent has a conversation of its own
            await self._notify(io, "tool_paused", pending)

    async def _take_results(self, io: LoopIO, calls: tuple[ToolCall, ...], batch: Batch) -> LoopIO:
        """Append the results. Returns the I/O to continue with: another one if an agent takes over."""
        results = batch.results
        if self.pending or len(results) < len(calls):
            self.pending = (*[each for each in self.pending if each.held not in calls], *batch.pending)
        self._append(results)
        if len(results) < len(calls):  # those that wait begin once more
            self.meter.count_tools(len(results) - len(calls))
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
        self.conversation, self._batch = grown, None  # in one statement; see `settle`

    def hand_over(
        self, event: HandedOver, conversation: Conversation, executor: ToolExecutor, settings: LoopSettings
    ) -> None:
        """Continue with another agent. The run keeps its own limits, deps and judge."""
        ours, options = self._settings, settings.options
        if ours.judge is not None:
            options = msgspec.structs.replace(options, response_format=ours.options.response_format)
        kept = {name: getattr(ours, name) for name in ("limits", "on_limit", "deps", "accounts", "judge")}
        handoffs, settings = (*self._handoffs, event), msgspec.structs.replace(settings, options=options, **kept)
        # In one statement; see `settle`.
        self.executor, self.conversation, self._settings = executor, conversation, settings
        self._offered, self._handoffs = None, handoffs

    # --- the end ---

    def _was_stopped(self, error: StoppedError | ProviderError) -> bool:
        """Whether a call failed because the run was stopped; `ending` then says so."""
        seconds = self._settings.limits.seconds
        if self.stop.cancelled:
            self.ending = Cancelled()
        elif isinstance(error, StoppedError) and seconds is not None:
            self.ending = LimitReached("seconds", seconds)
        return self.ending is not None

    def _settle_after(self, error: BaseException) -> None:
        if not isinstance(error, Exception):  # the stream was closed, or the run cancelled or interrupted
            self.ending = Cancelled()
        self.settle()
        if isinstance(error, ProviderError | ToolAbortedError | LimitReachedError | InvalidAnswerError):
            error.conversation = self.conversation

    def settle(self) -> None:
        """Keep what there is of an unfinished step: every call gets a result, and nothing is lost."""
        if self.settled:
            return
        # Ctrl-C may come between any two function calls, so a part is added and cleared in one statement.
        if self.partial is not None:
            reported = self.partial.usage
            message = drop_unanswerable_calls(self.partial, 0, [])
            message = self._with_account(message, ()) if self._asked else message
            grown = self.conversation.plus(message) if message.blocks else self.conversation
            self.has_done_something = self.has_done_something or bool(message.blocks)
            self.conversation, self.partial = grown, None
            if reported is not None:
                self.meter.add_usage(reported, 0.0)
        waiting = self.pending
        if self._batch is not None:
            waiting = (*waiting, *self._batch.pending)
            self._append(self._batch.results)
        if isinstance(self.ending, LimitReached):
            note = (Text(f"This call was not carried out: {self.ending}"),)
            results = [
                ToolResult(call.id, call.name, note, is_error=True, error_type="budget")
                for call in self.conversation.pending_tool_calls
            ]
            self.conversation = append_tool_results(self.conversation, with_usage(results, waiting))
        if self._correction is not None and self.conversation.last is self._correction:
            # The model has not answered it; a later run judges again.
            kept = self.conversation.messages[:-1]
            self.conversation = msgspec.structs.replace(self.conversation, messages=kept)
        # While approvals are pending, calls without results are fine.
        if self.conversation.messages and not isinstance(self.ending, AwaitApproval):
            last = self.conversation.messages[-1]
            if waiting and last.stop_reason not in BROKEN_OFF:
                self.conversation = refuse_unanswered_calls(self.conversation, (), waiting)
            if last.stop_reason in BROKEN_OFF or self._waits_for_results:
                self.conversation = self.conversation.repaired().conversation
        if self._tools is not None:
            self._tools.caller = None  # breaks a reference cycle
        if self._caller_stop is not None:
            self._caller_stop.wakers.pop(self, None)
        self.settled = True

    # --- functions and hooks of the caller ---

    def _run_context(self, io: LoopIO) -> RunContext[object]:
        """What is passed to the caller's functions."""
        return RunContext(deps=self._settings.deps, conversation=self.conversation, model=io.engine.name)

    def _waiter(self, io: LoopIO) -> Callable[[Awaitable[object]], Awaitable[object]]:
        """Awaits the caller's async functions; a stopped run ends the wait."""
        guard = io.guard
        return io.wait_for if guard is None else lambda given: guard(io.wait_for(given), self.stop)

    async def _notify(self, io: LoopIO, phase: str, *what: object) -> None:
        """Call a method of each hook, one after the other."""
        for hook in self.hooks:
            pending: Hook = getattr(hook, phase)(self, *what)
            if pending is not None:
                await io.wait_for(pending)
