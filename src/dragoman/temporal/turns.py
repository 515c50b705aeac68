"""A turn inside a workflow: the loop as it is everywhere, whose model calls and tool calls are activities.

Owns: the loop's outside for a workflow; `begin_turn` and `run_turn`, for workflows of one's own.
Must not know: agents, keys and tools' code, which are on the workers; how a conversation is held.

What is done here is decided by the conversation and by what activities gave, and time is the workflow's: a replay does
the same again. Activities begin in the order of the model's calls. Limits of time need no timers: the worker ends a
call in time, and Temporal's own time limit stands behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar, Unpack

import msgspec
from msgspec import Raw
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, TimeoutError, is_cancelled_exception

from dragoman._checks import check_names, overlay
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
    outcome_from_json,
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
"""Seconds that nobody counts, and Temporal cannot."""
_GRACE: Final = 10.0
"""Seconds that a worker has, beyond the time of a call, to say that it is over."""
_RETRIES: Final = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=30))
_SILENT: Final = logging.Logger("dragoman.temporal", logging.CRITICAL + 1)  # noqa: LOG001 -- nobody is to configure it
"""The worker that runs a tool writes the line about it; a replay has nothing to say."""


class WorkflowTurn(LoopIO):
    """A turn inside a workflow, which is the outside of its run."""

    def __init__(self, agent: str, facts: AgentFacts, executor: ToolExecutor, options: ModelOptions) -> None:
        super().__init__(_ActivityEngine(self, facts.context_window), executor)
        self.run: LoopRun
        """The turn: say something to it with `add`, stop it with `cancel`; `conversation` is what there is."""
        self._agent: str = agent
        self._facts: AgentFacts = facts
        self._options: ModelOptions = options
        self._tools_end: float | None = None
        """When all tools must be done, by the agent's `run_timeout`."""
        self._room: asyncio.Semaphore = asyncio.Semaphore(facts.max_parallel_tools)

    @staticmethod
    async def guard(work: Coroutine[Any, Any, T], stop: Stop) -> T:
        """Await this; StoppedError as soon as the run is told to stop."""
        task = asyncio.ensure_future(work)
        with stop.waking(task.cancel):
            try:
                return await task
            except asyncio.CancelledError:
                if stop.cancelled:
                    raise StoppedError("The run was cancelled.") from None
                raise

    async def complete(self) -> RunResult:
        """Carry the turn out."""
        # Not `exhaust`, which ends what it leaves: there is nothing to be ended when a worker drops a workflow.
        async for _ in self.run.events(self, streamed=False):
            pass
        return self.run.result

    # --- the model ---

    async def ask_model(self, conversation: Conversation) -> str:
        """The reply of the model, as JSON."""
        step = conversation is self.run.conversation  # everything else is a question of a context policy
        last = conversation.last
        ask = Ask(
            agent=self._agent,
            conversation=write_conversation(conversation),
            options=self._options,
            first=step and self.run.spent.steps == 0 and last is not None and last.role == "user",
            tools=step,
            seconds=self._left(self.run.stop),
        )
        return await self._execute("dragoman.model", ask, ask.seconds)

    # --- tools ---

    def run_tools(self, batch: Batch) -> AsyncGenerator[ToolStarted | ToolFinished, None]:
        if self._facts.run_timeout is not None and self._tools_end is None:
            self._tools_end = workflow.time() + self._facts.run_timeout
        calls = range(len(batch.calls))
        return _RunningTools(batch, [asyncio.ensure_future(self._run_tool(batch, index)) for index in calls])

    async def _run_tool(self, batch: Batch, index: int) -> Outcome | PendingApproval:
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
            )
            try:
                return outcome_from_json(await self._execute("dragoman.tool", do, do.seconds, summary=call.name))
            except StoppedError:  # no worker has said what became of it, and no other has come in time
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
    """The calls of a message, all of them begun; their ends are told in the order of the calls.

    Not written as a generator function: Python 3.11 and 3.12 cannot end one that waits where a worker that shuts down
    drops its workflows.
    """

    def __init__(self, batch: Batch, running: Sequence[asyncio.Future[Outcome | PendingApproval]]) -> None:
        self._batch: Batch = batch
        self._running: Sequence[asyncio.Future[Outcome | PendingApproval]] = running
        self._next: int = 0
        self._told: deque[ToolStarted | ToolFinished] = deque()
        batch.run.stop.wakers[self] = self._give_up
        for each in running:  # nobody asks those that are given up how they ended
            each.add_done_callback(lambda done: None if done.cancelled() else done.exception())

    def _give_up(self) -> None:
        self._batch.run.stop.wakers.pop(self, None)
        for each in self._running:
            each.cancel()

    async def asend(self, value: None, /) -> ToolStarted | ToolFinished:
        """What happens next."""
        while not self._told:
            if self._next == len(self._running) or self._batch.aborted_by is not None:
                return await self.athrow(StopAsyncIteration())
            try:
                outcome = await self._running[self._next]
            except asyncio.CancelledError as error:
                return await self.athrow(StopAsyncIteration() if self._batch.run.stop.cancelled else error)
            self._told.extend(self._batch.take(self._next, outcome))
            self._next += 1
        return self._told.popleft()

    async def athrow(self, error: Any, /, *_more: object) -> ToolStarted | ToolFinished:
        """Leave: what is done is taken in, what is not is given up."""
        for index, each in enumerate(self._running[self._next :], self._next):
            if each.done() and not each.cancelled() and each.exception() is None:
                deque(self._batch.take(index, each.result()), maxlen=0)
        self._give_up()
        raise error


def _reason_of(error: ActivityError) -> BaseException:
    """Why an activity failed, as the loop knows it."""
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
        """The first reply will tell: a workflow reads no tables."""
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
    """What a turn can be given."""

    options: ModelOptions
    """What is asked of the model, over what the agent says."""
    limits: Limits
    """How far the turn may go, over what the agent says."""
    on_limit: OnLimit
    unread: Iterable[Message]
    """What is said before the model speaks."""
    hooks: Iterable[LoopHooks]
    """They run inside the workflow, and must do nothing that a replay would not do again."""


async def run_turn(agent: str, conversation: Conversation, **given: Unpack[TurnOptions]) -> RunResult:
    """Run the conversation to its end, or to where a person is needed, as `AsyncOrchestrator.run` does."""
    return await (await begin_turn(agent, conversation, **given)).complete()


async def begin_turn(agent: str, conversation: Conversation, **given: Unpack[TurnOptions]) -> WorkflowTurn:
    """A turn of this agent that is yet to be carried out: `await turn.complete()`; meanwhile there is `turn.run`."""
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
    policies: list[ContextPolicy] = [msgspec.json.decode(raw, type=_POLICIES[name]) for name, raw in facts.context]
    settings = LoopSettings(
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
