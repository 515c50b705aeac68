"""One run of the loop: ask the model, run the tools it calls, ask again.

The conversation is complete and valid whenever somebody looks at it, however the run ended. What is next is decided in
step.py; a `LoopIO` asks the model and runs the tools, in one colour.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

import dragoman._observer
import dragoman.providers
import dragoman.tools
from dragoman._observer import Observed, follow
from dragoman._stop import CURRENT, Stop, shorter
from dragoman.conversation import (
    BROKEN_OFF,
    Account,
    Attempt,
    Citation,
    Conversation,
    Event,
    Failed,
    HandedOver,
    Message,
    ReplyEvent,
    RunEnded,
    Text,
    ToolCall,
    ToolChoice,
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
from dragoman.tools import Approval, PendingApproval, ToolConfig, ToolRun
from dragoman.transport import AttemptRecord

from .context import ContextUse
from .io import LoopIO
from .moment import instruct, tools_of
from .settings import Hook, Judge, LoopHooks, LoopSettings, RunContext
from .step import (
    NOTHING_SPENT,
    AskModel,
    AwaitApproval,
    Done,
    LimitReached,
    RunTools,
    Spent,
    append_tool_results,
    next_step,
    refuse_outdated,
)

if TYPE_CHECKING:
    from dragoman.providers import Profile
    from dragoman.tools import Batch, ToolContext, ToolExecutor, ToolSet

_SHOWN: Final = 80


class Cancelled(Struct, frozen=True):
    """The run was told to stop."""


Ending: TypeAlias = Done | AwaitApproval | LimitReached | Cancelled
"""How a run can end other than by an error."""


Ended: TypeAlias = Literal["done", "await_approval", "limit_reached", "cancelled"]
"""How a run can end other than by an error."""
ENDINGS: Final[dict[type[Ending], Ended]] = {
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
    behind_tools: tuple[Usage, ...] = ()
    """What models behind tools used, those of agents say, for each of their calls."""
    handoffs: tuple[HandedOver, ...] = ()
    """The agents that were put in charge, one after the other."""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= _SHOWN else self.text[: _SHOWN - 1] + "…"
        return f"<RunResult {ENDINGS[type(self.ending)]}: {text!r}>"

    def _repr_html_(self) -> str:
        """How a notebook shows it: the turn, and how it ended."""
        messages = self.conversation.messages
        begin = max([place for place, each in enumerate(messages) if each.role == "user"], default=0)
        facts = [ENDINGS[type(self.ending)].replace("_", " "), f"{self.spent.seconds:.1f} s"]
        if self.usage.tokens:
            facts.append(f"{self.usage.tokens:,} tokens")
        return Conversation(messages=messages[begin:]).to_html(note=" · ".join(facts))

    @property
    def text(self) -> str:
        """The model's latest answer."""
        return self.conversation.text

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Where the latest answer comes from, as far as the provider says."""
        return self.replies[-1].message.citations if self.replies else ()

    @property
    def usage(self) -> Usage:
        """The tokens of this run, those of agents included, added up."""
        return Usage.total_of([*[reply.message.usage for reply in self.replies], *self.behind_tools])

    @property
    def cost(self) -> float | None:
        """What this run cost, in US dollars; None if a part of it is not known."""
        costs = [*[reply.cost for reply in self.replies], *[each.charged for each in self.behind_tools]]
        return dragoman.providers.total_cost(costs)

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for a person."""
        return self.ending.pending if isinstance(self.ending, AwaitApproval) else ()


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
    _tools: ToolRun | None = None
    """What the tool calls of this run share, as soon as there is one."""
    _batch: Batch | None = None
    _offered: ToolSet | None = None
    """The tools of the last reply, where a function gives those of the moment."""
    _asked: float = 0.0
    """When the model was asked, as Unix time, where replies are kept with an account."""
    _caller: tuple[LoopRun, ToolContext[object]] | None = None
    """The run that waits for this one, which is that of an agent, and the call for which it does."""
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
        self._clock: Callable[[], float] = clock
        began = self._began = clock() - spent.seconds
        seconds = settings.limits.seconds
        self.stop: Stop = Stop() if seconds is None else Stop(began + seconds)
        """What ends the run early, in whatever it is doing."""
        self._before: Spent = spent
        """What was spent before; the limits hold for both together."""
        self._steps: int = spent.steps
        self._tool_calls: int = spent.tool_calls
        self._tokens: int = spent.tokens
        self._cost: float | None = spent.cost if settings.limits.cost is not None else None
        self.hooks: tuple[LoopHooks, ...] = settings.hooks

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
        self._caller, stop = (caller, context), context.stop
        self.stop.deadline = shorter(self.stop.deadline, stop.deadline)
        stop.wakers[self] = self.cancel
        if stop.cancelled:
            self.cancel()

    @property
    def depth(self) -> int:
        """How many runs wait for this one."""
        return 0 if self._caller is None else self._caller[0].depth + 1

    @property
    def spent(self) -> Spent:
        """What the run has used up so far, its agents included."""
        used = () if self._tools is None else tuple(self._tools.used)
        return Spent(
            steps=self._steps,
            model_calls=self._before.model_calls + len(self.replies) + len(used),
            tool_calls=self._tool_calls + (0 if self._tools is None else self._tools.calls_inside),
            tokens=self._tokens + sum([each.tokens or (each.input or 0) + (each.output or 0) for each in used]),
            cost=dragoman.providers.total_cost([self._cost, *[each.charged for each in used]]) if used else self._cost,
            seconds=self._clock() - self._began,
        )

    @property
    def result(self) -> RunResult:
        """What came of the run, once it has ended."""
        if self.ending is None:
            message = "The run has not ended yet, or it ended with an error."
            raise ConfigurationError(message, hint="Read the stream to its end; `conversation` has what was done.")
        replies, judge = tuple(self.replies), self._settings.judge
        result = RunResult(self.conversation, self.ending, replies, self.spent, self._behind_tools, self._handoffs)
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
                    if self.hooks:
                        await self._notify(io, "before_tools", step.calls)
                    if self._offered is None and self.executor.tools.function is not None:
                        self._offered = await tools_of(self.executor.tools, self._moment(io), self._waiter(io))
                    batch = self._batch = self.executor.batch(
                        step.calls, self._tool_run(watched=streamed), self._offered
                    )
                    self.has_done_something = True
                    async with aclosing(io.run_tools(batch)) as happenings:
                        async for event in happenings:
                            if self.hooks and isinstance(event, ToolStarted):
                                await self._notify(io, "tool_started", event.call)
                            elif self.hooks and isinstance(event, ToolFinished):
                                await self._notify(io, "tool_finished", event.result)
                            yield event
                    before, io = io, await self._take_results(io, step.calls, batch)
                    if io is not before:
                        yield self._handoffs[-1]
                    continue
                if self.hooks:
                    await self._notify(io, "before_model")
                if self._settings.accounts:
                    self._asked = time.time()
                asked = self.conversation
                if self._settings.instructions:
                    asked = await instruct(asked, self._settings.instructions, self._moment(io), self._waiter(io))
                if self.executor.tools.function is not None:
                    self._offered = await tools_of(self.executor.tools, self._moment(io), self._waiter(io))
                options = self._settings.options
                specs = offered_tools(self.executor, self.conversation, io.engine.profile, options, self._offered)
                options = step_options(options, self.executor.config, specs, first=step.first)
                try:
                    if not streamed:
                        reply = await self._reply(io, asked, specs, options)
                    else:
                        call = self._ready(io)(asked, specs, options, stream=True)
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
            yield RunEnded(ENDINGS[type(self.ending)], self.conversation.text, self.result.usage)

    async def _reply(
        self, io: LoopIO, conversation: Conversation, tools: tuple[ToolSpec, ...], options: ModelOptions
    ) -> Reply:
        """A whole reply. StoppedError if the run is stopped meanwhile."""
        # Put back rather than reset: a workflow engine may drop a run where it stands, and end it in another context.
        before = CURRENT.get()
        CURRENT.set(self.stop)
        try:
            coming = self._ready(io)(conversation, tools, options, stream=False).reply()
            return await (coming if io.guard is None else io.guard(coming, self.stop))
        finally:
            CURRENT.set(before)

    async def _next_events(self, io: LoopIO, call: ReplyCall) -> list[ReplyEvent]:
        """The next events of a reply. StoppedError if the run is stopped meanwhile."""
        before = CURRENT.get()
        CURRENT.set(self.stop)
        try:
            return await (call.next() if io.guard is None else io.guard(call.next(), self.stop))
        finally:
            CURRENT.set(before)

    @staticmethod
    def _ready(io: LoopIO) -> Callable[..., ReplyCall]:
        """What makes a call of the model ready, seen by who observes the program, if anybody does."""
        return io.engine.call if dragoman._observer.current is None else io.engine.begin

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
        if isinstance(error, ProviderError | ToolAbortedError | UnknownCostError | InvalidAnswerError):
            error.conversation = self.conversation

    def _tool_run(self, *, watched: bool) -> ToolRun:
        if self._tools is None:
            self._tools = ToolRun(
                deps=self._settings.deps, approvals=self._approvals, stop=self.stop, watched=watched, caller=self
            )
        self._tools.conversation = self.conversation
        return self._tools

    async def complete(self, io: LoopIO) -> None:
        """Carry the run out where nobody watches: the model is asked for whole replies."""
        events = self.events(io, streamed=False)
        if self.observed is not None:
            events = follow(self.observed, events)
        try:
            async for _ in events:
                pass
        finally:
            await events.aclose()

    async def _next_step(self, io: LoopIO) -> AskModel | RunTools | None:
        """What is to be done; None if that is all, and `ending` says why."""
        shortened = not self._settings.context
        while True:
            listens = not self._single or not self.replies
            while listens and self.unread and not self.conversation.pending_tool_calls:
                self.conversation = self.conversation.plus(self.unread[0])
                self.unread.popleft()
            spent = self.spent if self.replies or self._tools is not None else self._before
            step = next_step(self.conversation, self._settings.limits, spent, self.pending)
            if self.stop.cancelled and (
                isinstance(step, AskModel | RunTools) or (isinstance(step, Done) and step.message.interrupted)
            ):
                step = Cancelled()
            if self._caller is not None and isinstance(step, AskModel | RunTools):
                self._check_callers(io, step)
            if isinstance(step, RunTools):
                return step
            if isinstance(step, AskModel):
                if self._settings.limits.cost is not None:
                    self._check_cost_is_known(io)
                if shortened:
                    return step
                await self._shorten(io)  # this may have called the model, so what is next is to be decided again
                shortened = True
                continue
            if isinstance(step, Done) and listens and self.unread and not self.conversation.pending_tool_calls:
                continue  # somebody spoke in the very last moment
            judge = self._settings.judge
            if isinstance(step, Done) and judge is not None and await self._is_refused(io, judge, step.message):
                continue
            if isinstance(step, AwaitApproval) and self.observed is not None:
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

    def _check_cost_is_known(self, io: LoopIO) -> None:
        """Raise UnknownCostError where a limit of cost could not be kept."""
        known = self.spent.cost is not None
        if known and io.engine.priced:
            return
        what = f"what {io.engine.name} costs" if known else "what the replies so far have cost"
        message = f"The run has a limit of cost, but it is not known {what}."
        raise UnknownCostError(message, conversation=self.conversation)

    def _check_callers(self, io: LoopIO, step: AskModel | RunTools) -> None:
        """Raise LimitReachedError where a run that waits for this one has no room for another step."""
        above = None if self._caller is None else self._caller[0]
        while above is not None:
            limits, spent = above._settings.limits, above.spent
            if limits.cost is not None and isinstance(step, AskModel) and not io.engine.priced:
                message = f"The caller has a limit of cost, but it is not known what {io.engine.name} costs."
                raise UnknownCostError(message, conversation=self.conversation)
            if isinstance(step, RunTools):
                # Those under way are counted when all are done.
                under_way = 0 if above._batch is None else len(above._batch.calls)
                reached = limits.reached_by_tools(spent, under_way + len(step.calls))
            else:
                reached = msgspec.structs.replace(limits, steps=None).reached(spent)
            if reached is not None:
                message = f"The caller's limit: {LimitReached(*reached)}"
                raise LimitReachedError(message, conversation=self.conversation, limit=reached[0])
            above = None if above._caller is None else above._caller[0]

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
            said = self._with_account(drop_unanswerable_calls(self.partial, 0, []), ())
            grown = self.conversation.plus(said) if said.blocks else self.conversation
            self.has_done_something = self.has_done_something or bool(said.blocks)
            self.conversation, self.partial = grown, None
        if self._batch is not None:
            results = self._batch.results
            grown = append_tool_results(self.conversation, results)
            self.conversation, self._batch = grown, None
            self._behind_tools += tuple([each.usage for each in results if each.usage is not None])
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
        if self._tools is not None:
            self._tools.caller = None  # they would keep each other alive until the collector comes
        if self._caller is not None:
            self._caller[1].stop.wakers.pop(self, None)
        self.settled = True

    async def _take_reply(self, io: LoopIO, reply: Reply) -> None:
        """Take the model's answer in. One that says nothing at all ends the run."""
        message = reply.message
        if ToolCall in map(type, message.blocks):
            message = drop_unanswerable_calls(message, 0, [])
        message = self._with_account(message, reply.attempts)
        self._count(reply)
        grown = self.conversation.plus(message) if message.blocks else self.conversation
        self.conversation, self.partial = grown, None
        self._steps += 1
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
        """The reply with how it came about, in a conversation that is kept."""
        if not self._asked:
            return message
        account = Account(
            began=datetime.fromtimestamp(self._asked, UTC),
            seconds=max(0.0, time.time() - self._asked),
            attempts=tuple([msgspec.convert(each, Attempt, from_attributes=True) for each in attempts]),
        )
        return msgspec.structs.replace(message, account=account)

    def _count(self, reply: Reply) -> None:
        self.replies.append(reply)
        usage = reply.message.usage
        if usage is not None:
            self._tokens += usage.total or (usage.input or 0) + (usage.output or 0)
        if self._settings.limits.cost is not None:
            self._cost = dragoman.providers.total_cost([self._cost, reply.cost])
        if self._caller is not None:
            self._caller[1].used(msgspec.structs.replace(usage or Usage(), charged=reply.cost))

    async def _shorten(self, io: LoopIO) -> None:
        """Let the context policies have their say."""
        for policy in self._settings.context:
            before = self.conversation
            tokens = dragoman.providers.estimated_tokens(before)
            use = ContextUse(tokens, io.engine.context_window, partial(self._ask, io))
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

    async def _take_results(self, io: LoopIO, calls: tuple[ToolCall, ...], batch: Batch) -> LoopIO:
        """Take the results in: what the run goes on with, which is another one where an agent was put in charge."""
        results = batch.results
        self._tool_calls += len(results)
        if self.pending or len(results) < len(calls):
            self.pending = (*[each for each in self.pending if each.held not in calls], *batch.pending)
        grown = append_tool_results(self.conversation, results)
        self.conversation, self._batch = grown, None
        self._behind_tools += tuple([each.usage for each in results if each.usage is not None])
        if self._caller is not None:
            self._caller[1].used(tool_calls=len(results))
        if self.succeed is not None:
            io = self.succeed(self) or io
        if self.hooks:
            await self._notify(io, "after_tools", results)
        aborted = batch.abortion
        if aborted is not None:
            raise aborted
        return io

    def hand_over(
        self, event: HandedOver, conversation: Conversation, executor: ToolExecutor, settings: LoopSettings
    ) -> None:
        """Go on with another agent: what was said to the run itself still holds."""
        ours, options = self._settings, settings.options
        if ours.judge is not None:
            options = msgspec.structs.replace(options, response_format=ours.options.response_format)
        kept = {name: getattr(ours, name) for name in ("limits", "on_limit", "deps", "accounts", "judge")}
        self._settings = msgspec.structs.replace(settings, options=options, **kept)
        self.executor, self.conversation, self._offered = executor, conversation, None
        self._handoffs = (*self._handoffs, event)

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


# --- what the model is asked with; a workflow engine's worker asks for the run, and knows tools and options -----------


def offered_tools(
    executor: ToolExecutor,
    conversation: Conversation,
    profile: Profile,
    options: ModelOptions,
    tools: ToolSet | None = None,
) -> tuple[ToolSpec, ...]:
    """What the model is told of tools: of the executor's, or of these, which are those of the moment."""
    config, tools = executor.config, executor.tools if tools is None else tools
    if not config.enabled:
        return ()
    if config.search is not None and (many := dragoman.tools.many_tools(tools, config)) is not None:
        return many.offer(conversation, _choice(options, config), profile.tool_search)
    specs = tools.specs if tools.by_name else ()
    if config.allowed_tools is None:
        return specs
    return tuple([spec for spec in specs if spec.name in config.allowed_tools])


def step_options(options: ModelOptions, config: ToolConfig, specs: Sequence[ToolSpec], *, first: bool) -> ModelOptions:
    """The options with the caller's tool choice; one that forces a call holds for the first step only."""
    choice = _choice(options, config)
    if choice not in ("auto", "none"):
        if not specs:
            message = "The model must call a tool, but there is none."
            raise ConfigurationError(message, hint="Give it tools, or leave tool_choice at 'auto'.")
        if not first:
            choice = "auto"
    elif not specs:
        choice = "auto"
    return options if choice == options.tool_choice else msgspec.structs.replace(options, tool_choice=choice)


def _choice(options: ModelOptions, config: ToolConfig) -> ToolChoice:
    return config.tool_choice if options.tool_choice == "auto" else options.tool_choice
