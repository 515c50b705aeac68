"""A turn inside a workflow: the loop as everywhere, with model calls and tool calls as activities.

Owns: the loop's I/O for a workflow; `begin_turn` and `run_turn`, for users' workflows.
Must not know: agents, keys and code of tools, which are on the workers; how a conversation is held.

Everything here depends only on the conversation, the results of activities and the workflow's time, so a replay does
the same again. Activities start in the order of the model's calls. Time limits need no timers: the worker ends a call
in time, and Temporal's own timeout is the fallback.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar, Unpack

from msgspec import Raw
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, TimeoutError, is_cancelled_exception

from dragoman._checks import check_names, overlay
from dragoman._decoding import decode_as
from dragoman._stop import Stop, shorter
from dragoman.conversation import (
    Conversation,
    Message,
    ToolFinished,
    ToolSpec,
    ToolStarted,
    message_to_json,
)
from dragoman.engines import AsyncEngine, ReplyCall
from dragoman.errors import DragomanError, StoppedError
from dragoman.loop import (
    UNCERTAIN,
    ContextPolicy,
    DropToolResults,
    Limits,
    LoopHooks,
    LoopIO,
    LoopRun,
    LoopSettings,
    OnLimit,
    RemoteCall,
    RunOptions,
    RunResult,
    Spent,
    Summarise,
    share_limits,
    take_outcome,
)
from dragoman.providers import ModelOptions
from dragoman.tools import Batch, Outcome, PendingApproval, ToolConfig, ToolExecutor

from .payloads import NOTHING, AgentFacts, Ask, Do, write_conversation

T = TypeVar("T")

_POLICIES: Final[dict[str, type[DropToolResults] | type[Summarise]]] = {
    "DropToolResults": DropToolResults,
    "Summarise": Summarise,
}
_FOR_EVER: Final = 1e8
"""Seconds that Temporal cannot represent, and nobody needs."""
_GRACE: Final = 10.0
"""Seconds that a worker has, beyond the time of a call, to report its end."""
_RETRIES: Final = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=30))
_SILENT: Final = logging.Logger("dragoman.temporal", logging.CRITICAL + 1)  # noqa: LOG001 -- not to be configured
"""The worker that runs a tool logs it; a replay logs nothing."""


class WorkflowTurn(LoopIO):
    """A turn inside a workflow, and the I/O of its run."""

    def __init__(self, agent: str, facts: AgentFacts, executor: ToolExecutor, options: ModelOptions) -> None:
        super().__init__(_ActivityEngine(self, facts.context_window), executor)
        self.run: LoopRun
        """The run: `add` a message, `cancel` it, or read its `conversation`."""
        self._agent: str = agent
        self._facts: AgentFacts = facts
        self._options: ModelOptions = options
        self._tools_end: float | None = None
        """The deadline of all tools, by the agent's `run_timeout`."""
        self._room: asyncio.Semaphore = asyncio.Semaphore(facts.max_parallel_tools)

    @staticmethod
    async def guard(work: Coroutine[Any, Any, T], stop: Stop) -> T:
        """Await this; raises StoppedError as soon as the run is cancelled."""
        task = asyncio.ensure_future(work)
        with stop.waking(task.cancel):
            try:
                return await task
            except asyncio.CancelledError:
                if stop.cancelled:
                    raise StoppedError("The run was cancelled.") from None
                raise

    def warn(self, text: str) -> None:
        if not workflow.unsafe.is_replaying():
            super().warn(text)

    async def complete(self) -> RunResult:
        """Run the turn."""
        # Not `exhaust`, which closes the generator: when a worker drops a workflow, nothing can be closed.
        async for _ in self.run.events(self, streamed=False):
            pass
        return self.run.result

    # --- the model ---

    async def ask_model(self, conversation: Conversation) -> str:
        """The model's reply, as JSON."""
        step = conversation is self.run.conversation  # any other is that of a context policy
        last = conversation.last
        ask = Ask(
            agent=self._agent,
            conversation=write_conversation(conversation),
            options=self._options,
            first=step and self.run.spent.steps == len(self.run.silent) and last is not None and last.role == "user",
            tools=step,
            seconds=self._left(self.run.stop),
        )
        return await self._execute("dragoman.model", ask, ask.seconds)

    # --- tools ---

    def run_tools(self, batch: Batch) -> AsyncGenerator[ToolStarted | ToolFinished, None]:
        if self._facts.run_timeout is not None and self._tools_end is None:
            self._tools_end = workflow.time() + self._facts.run_timeout
        known, agents = self._facts.tools, self._facts.agents
        shares = share_limits(batch, [call.name in agents or call.name not in known for call in batch.calls])
        running = [asyncio.ensure_future(self._run_tool(batch, index, share)) for index, share in enumerate(shares)]
        return _RunningTools(batch, running)

    async def _run_tool(self, batch: Batch, index: int, limits: Limits) -> Outcome | PendingApproval:
        call, shared = batch.calls[index], batch.run
        approval, counts = shared.take_approval(call), dict(shared.counts)
        shared.spend(call.name, None)
        informed = self._facts.tools.get(call.name, self._facts.tools_of_moment)
        async with self._room:
            do = Do(
                agent=self._agent,
                message=Raw(message_to_json(Message.assistant(call))),
                approval=approval,
                counts=counts,
                known=call.name in self._facts.tools,
                conversation=write_conversation(shared.conversation) if informed else NOTHING,
                seconds=self._left(shared.stop, self._tools_end),
                limits=limits,
            )
            try:
                done = await self._execute("dragoman.tool", do, do.seconds, summary=call.name)
                return take_outcome(shared, done)
            except StoppedError:  # its worker was lost, and no other has reported in time
                return PendingApproval(call=call, reason=UNCERTAIN)

    # --- activities ---

    def _left(self, stop: Stop, end: float | None = None) -> float | None:
        end = shorter(stop.deadline, end)
        left = None if end is None else max(0.0, end - workflow.time())
        return None if left is None or left > _FOR_EVER else left

    async def _execute(self, name: str, argument: Ask | Do, seconds: float | None, summary: str | None = None) -> str:
        try:
            done: Raw = await workflow.execute_activity(
                name,
                argument,
                result_type=Raw,
                start_to_close_timeout=timedelta(seconds=self._facts.timeout),
                schedule_to_close_timeout=None if seconds is None else timedelta(seconds=seconds + _GRACE),
                heartbeat_timeout=timedelta(seconds=self._facts.heartbeat),
                retry_policy=_RETRIES,
                summary=summary,
            )
        except ActivityError as error:
            raise _reason_of(error) from None
        return bytes(done).decode()


class _RunningTools(AsyncGenerator[ToolStarted | ToolFinished, None]):
    """The running calls of a message, with their events in the order of the calls.

    Not a generator function: Python 3.11 and 3.12 cannot close one that waits when a worker shuts down and drops its
    workflows.
    """

    def __init__(self, batch: Batch, running: Sequence[asyncio.Future[Outcome | PendingApproval]]) -> None:
        self._batch: Batch = batch
        self._running: Sequence[asyncio.Future[Outcome | PendingApproval]] = running
        self._next: int = 0
        self._events: deque[ToolStarted | ToolFinished] = deque()
        batch.run.stop.wakers[self] = self._give_up
        for each in running:  # the exceptions of abandoned ones count as retrieved
            each.add_done_callback(lambda done: None if done.cancelled() else done.exception())

    def _give_up(self) -> None:
        self._batch.run.stop.wakers.pop(self, None)
        for each in self._running:
            each.cancel()

    async def asend(self, value: None, /) -> ToolStarted | ToolFinished:
        """The next event."""
        while not self._events:
            if self._next == len(self._running) or self._batch.aborted_by is not None:
                return await self.athrow(StopAsyncIteration())
            try:
                outcome = await self._running[self._next]
            except asyncio.CancelledError as error:
                return await self.athrow(StopAsyncIteration() if self._batch.run.stop.cancelled else error)
            self._events.extend(self._batch.take(self._next, outcome))
            self._next += 1
        return self._events.popleft()

    async def athrow(self, error: Any, /, *_more: object) -> ToolStarted | ToolFinished:
        """Stop: take the results of finished calls, and cancel the others."""
        for index, each in enumerate(self._running[self._next :], self._next):
            if each.done() and not each.cancelled() and each.exception() is None:
                deque(self._batch.take(index, each.result()), maxlen=0)
        self._give_up()
        raise error


def _reason_of(error: ActivityError) -> BaseException:
    """The cause of a failed activity, as an error that the loop knows."""
    if is_cancelled_exception(error):
        return asyncio.CancelledError()
    if isinstance(error.cause, TimeoutError):
        return StoppedError("The run's time is up.", reason="deadline")
    return error.cause if isinstance(error.cause, DragomanError) else error


class _ActivityEngine(AsyncEngine):
    """An engine whose every reply is an activity."""

    name = "temporal:activity"
    asks_others = True

    def __init__(self, turn: WorkflowTurn, context_window: int | None) -> None:
        self._turn: WorkflowTurn = turn
        self._context_window: int | None = context_window

    @property
    def priced(self) -> bool:
        """Unknown before the first reply: a workflow reads no table of prices."""
        return True

    @property
    def context_window(self) -> int | None:
        return self._context_window

    def call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> ReplyCall:
        return RemoteCall(lambda: self._turn.ask_model(conversation))


# --- for workflows ----------------------------------------------------------------------------------------------------


class TurnOptions(RunOptions, total=False):
    """The options of a turn."""

    options: ModelOptions
    """Options of the model, which override the agent's."""
    limits: Limits
    """Limits of the turn, which override the agent's."""
    on_limit: OnLimit
    unread: Iterable[Message]
    """Messages to be added before the first model call."""
    hooks: Iterable[LoopHooks]
    """They run inside the workflow, and must be deterministic."""


async def run_turn(agent: str, conversation: Conversation, **given: Unpack[TurnOptions]) -> RunResult:
    """Run the conversation until it ends or needs a person, as `AsyncOrchestrator.run` does."""
    return await (await begin_turn(agent, conversation, **given)).complete()


async def begin_turn(agent: str, conversation: Conversation, **given: Unpack[TurnOptions]) -> WorkflowTurn:
    """A turn of this agent that has not run yet: `await turn.complete()` runs it; `turn.run` is its run."""
    check_names(given, TurnOptions.__annotations__, "A turn")
    try:
        facts: AgentFacts = await workflow.execute_local_activity(
            "dragoman.facts",
            agent,
            result_type=AgentFacts,
            start_to_close_timeout=timedelta(seconds=30),
            retry_policy=_RETRIES,
        )
    except ActivityError as error:
        raise _reason_of(error) from None
    executor = ToolExecutor((), ToolConfig(tool_error_handling=facts.tool_error_handling), logger=_SILENT)
    policies: list[ContextPolicy] = [decode_as(raw, _POLICIES[name]) for name, raw in facts.context]
    settings = LoopSettings(
        system=facts.system,
        limits=overlay(given.get("limits"), facts.limits),
        on_limit=given.get("on_limit", facts.on_limit),
        hooks=tuple(given.get("hooks", ())),
        context=tuple(policies),
    )
    turn = WorkflowTurn(agent, facts, executor, given.get("options", ModelOptions()))
    turn.run = LoopRun(
        conversation,
        executor,
        settings,
        approvals=given.get("approvals", ()),
        waiting=given.get("waiting", ()),
        unread=given.get("unread", ()),
        spent=given.get("spent", Spent()),
        clock=workflow.time,
    )
    return turn
