"""A run whose model calls and tool calls are steps of a workflow engine (DBOS, Restate, Prefect, …).

Owns: DurableIO, and the JSON form of what a step returns.
Must not know: any workflow engine. An engine supplies `step(key, function)`: it calls the function unless it has
already stored the result of this step, stores the result, and returns it.

What makes a replay safe:

- Keys come from the number of a model call in the run and from the ids of tool calls. Steps start in call order,
  whichever ends first, so engines that number steps see the same numbers again.
- A tool that is not idempotent is never called twice. Before the calls of a message run, a separate step records that
  they start, and in which process. A replay that finds this record and no result is another process: the call may or
  may not have done its work, so it waits for approval (`UNCERTAIN`), as with the journal of a store.
- The failure of a model call is a result too, as is a stop by a limit: the error is stored, and raised again with its
  type.
- Nothing depends on the thread or event loop in which the engine calls a step's function.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, Protocol
from uuid import uuid4

import msgspec
from msgspec import Raw, Struct

from dragoman._decoding import decoder_of
from dragoman._stepping import exhaust
from dragoman._stop import Stop, current_stop, stoppable
from dragoman.conversation import (
    Conversation,
    Message,
    ToolCall,
    ToolFinished,
    ToolSpec,
    ToolStarted,
    Usage,
    message_from_json,
    message_to_json,
    unfold,
)
from dragoman.engines import AsyncEngine, Reply, ReplyCall
from dragoman.errors import DragomanError, StoppedError, ToolExecutionError, describe_error, recreate_error
from dragoman.providers import Adaptation, Loss, ModelOptions
from dragoman.tools import Batch, Outcome, PendingApproval, ToolExecutor, ToolRun, Used
from dragoman.transport import AttemptRecord

from .io import LoopIO
from .meter import RunMeter, share_limits
from .step import NOTHING_SPENT, UNCERTAIN, Limits

NOTHING_USED: Final = Used()


class DurableStep(Protocol):
    """What a workflow engine supplies: calls the function once, stores the text it returns under the key, returns it.

    Keys are unique within a run. An engine that identifies steps by name alone has to add the workflow run to it.
    """

    async def __call__(self, key: str, function: Callable[[], Coroutine[Any, Any, str]], /) -> str: ...


# --- what a step returns, as JSON -------------------------------------------------------------------------------------


class _Stored(Struct, omit_defaults=True):
    """A reply, the outcome of a tool call, or an error."""

    message: Raw = Raw(b"null")
    """The reply; or a message with only the tool's result, or only the call that waits."""
    request_id: str | None = None
    received: float = 0.0
    adaptations: tuple[Adaptation, ...] = ()
    losses: tuple[Loss, ...] = ()
    attempts: tuple[AttemptRecord, ...] = ()
    repeated: tuple[Usage, ...] = ()
    waits: str | None = None
    """Why a call waits for approval."""
    error: dict[str, object] | None = None
    used: Used = NOTHING_USED
    """What was used inside the call."""


_read: Final = decoder_of(_Stored).decode


def _write(stored: _Stored) -> str:
    return msgspec.json.encode(stored).decode()


def reply_to_json(reply: Reply) -> str:
    """A reply for another process, without its HTTP headers."""
    return _write(
        _Stored(
            message=Raw(message_to_json(reply.message)),
            request_id=reply.request_id,
            received=reply.received,
            adaptations=reply.adaptations,
            losses=reply.losses,
            attempts=reply.attempts,
            repeated=reply.repeated,
        )
    )


def reply_from_json(text: str) -> Reply:
    """Read what `reply_to_json` or `error_to_json` wrote; raises the error."""
    stored = _read(text)
    return Reply(
        message=_message_of(stored),
        request_id=stored.request_id,
        received=stored.received,
        adaptations=stored.adaptations,
        losses=stored.losses,
        attempts=stored.attempts,
        repeated=stored.repeated,
    )


def outcome_to_json(outcome: Outcome | PendingApproval, used: Used = NOTHING_USED) -> str:
    """How a tool call ended, and what was used inside it, for another process."""
    if isinstance(outcome, PendingApproval):
        message = Raw(message_to_json(Message.assistant(outcome.call)))
        return _write(_Stored(message=message, waits=outcome.reason, used=used))
    return _write(_Stored(message=Raw(message_to_json(Message.tool([outcome.result]))), used=used))


def take_outcome(run: ToolRun, text: str) -> Outcome | PendingApproval:
    """Read what `outcome_to_json` wrote, and count what the call has used."""
    outcome, used = outcome_from_json(text), _read(text).used
    if used != NOTHING_USED:
        run.meter.add(used, outcome.result.usage if isinstance(outcome, Outcome) else None)
    return outcome


def outcome_from_json(text: str) -> Outcome | PendingApproval:
    """Read what `outcome_to_json` wrote."""
    stored = _read(text)
    message = _message_of(stored)
    if stored.waits is not None:
        return PendingApproval(call=message.tool_calls[0], reason=stored.waits)
    result = message.tool_results[0]
    if not result.is_error:
        return Outcome(result)
    return Outcome(result, ToolExecutionError(result.text, tool_name=result.name, call_id=result.call_id))


def error_to_json(error: DragomanError) -> str:
    """An error in the place of a reply."""
    return _write(_Stored(error=describe_error(error)))


def _message_of(stored: _Stored) -> Message:
    if stored.error is not None:
        raise recreate_error(stored.error)
    return message_from_json(bytes(stored.message))


# --- the I/O of a durable run -----------------------------------------------------------------------------------------


class RemoteCall(ReplyCall):
    """A model call that is made elsewhere and returns a whole reply as JSON."""

    def __init__(self, ask: Callable[[], Awaitable[str]]) -> None:
        super().__init__()
        self._ask: Callable[[], Awaitable[str]] = ask
        self._reply: Reply | None = None

    @property
    def account(self) -> Reply:
        """The reply as it was received."""
        return super().account if self._reply is None else self._reply

    async def advance(self) -> None:
        """Receive the whole reply."""
        self._reply = reply_from_json(await self._ask())
        self.take(list(unfold(self._reply.message)))
        self.over = True


class DurableIO(LoopIO):
    """The I/O of an async run whose every step is stored by a workflow engine."""

    def __init__(self, step: DurableStep, engine: AsyncEngine, executor: ToolExecutor) -> None:
        super().__init__(_StepEngine(step, engine), executor)
        self._step: DurableStep = step
        self._keys: set[str] = set()
        self._room: asyncio.Semaphore = asyncio.Semaphore(executor.config.max_parallel_tools)

    async def run_tools(self, batch: Batch) -> AsyncGenerator[ToolStarted | ToolFinished, None]:
        begins, by_name = await self._begin(batch), batch.tools.by_name
        found = [by_name.get(call.name) for call in batch.calls]
        shares = share_limits(batch, [tool is not None and tool.agent is not None for tool in found])
        keys = [self._key("tool", call.id) for call in batch.calls]
        running = [
            asyncio.ensure_future(self._run_tool(batch, index, key, share, begins=begins))
            for index, (key, share) in enumerate(zip(keys, shares, strict=True))
        ]
        try:
            for index, coming in enumerate(running):
                for event in batch.take(index, take_outcome(batch.run, await coming)):
                    yield event
        finally:
            for coming in running:
                coming.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _begin(self, batch: Batch) -> bool:
        """Record that these calls start, unless all are idempotent. Returns whether they start in this process."""
        first = next((call for call in batch.calls if not _is_idempotent(batch, call)), None)
        if first is None:
            return True
        process = uuid4().hex

        async def begin() -> str:
            return process

        return await self._step(self._key("begin", first.id), begin) == process

    async def _run_tool(self, batch: Batch, index: int, key: str, limits: Limits, *, begins: bool) -> str:
        call, shared = batch.calls[index], batch.run
        approval, counts = shared.take_approval(call), shared.counts.copy()
        shared.spend(call.name, None)
        may_run = begins or _is_idempotent(batch, call)

        async def carry_out() -> str:
            nonlocal may_run
            if not may_run:
                return outcome_to_json(PendingApproval(call=call, reason=UNCERTAIN))
            may_run = _is_idempotent(batch, call)  # an engine may call this again
            run = ToolRun(
                conversation=shared.conversation,
                deps=shared.deps,
                approvals=[] if approval is None else [approval],
                deadline=shared.deadline,
                stop=shared.stop,
                pauses=False,
                meter=RunMeter(limits, NOTHING_SPENT, time.monotonic),
            )
            run.counts.update(counts)
            alone = self.executor.batch((call,), run, batch.tools)
            await exhaust(self.executor.aevents(alone))
            return outcome_to_json(alone.outcomes[0], run.meter.used)

        async with self._room:  # a semaphore is granted in call order, so steps start in that order
            return await self._step(key, carry_out)

    def _key(self, kind: str, call_id: str) -> str:
        """A unique key. Some providers reuse call ids, so a repeated id gets a number."""
        key, number = f"{kind}/{call_id}", 1
        while key in self._keys:
            number += 1
            key = f"{kind}/{call_id}#{number}"
        self._keys.add(key)
        return key


def _is_idempotent(batch: Batch, call: ToolCall) -> bool:
    """Whether a call may be repeated. A call of an unknown tool may not: middleware may replace it by a known one."""
    tool = batch.tools.by_name.get(call.name)
    return tool is not None and tool.options.idempotent


class _StepEngine(AsyncEngine):
    """An engine whose every reply is a step."""

    asks_others = True

    def __init__(self, step: DurableStep, engine: AsyncEngine) -> None:
        self._step: DurableStep = step
        self._engine: AsyncEngine = engine
        self._asked: int = 0
        self.name, self.profile, self.options = engine.name, engine.profile, engine.options

    @property
    def priced(self) -> bool:
        return self._engine.priced

    @property
    def context_window(self) -> int | None:
        return self._engine.context_window

    def call(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions | None, *, stream: bool
    ) -> ReplyCall:
        self._asked += 1
        key = f"model/{self._asked}"

        async def ask(stop: Stop | None) -> str:
            try:
                coming = self._engine.reply(conversation, tools=tools, options=options)
                return reply_to_json(await (coming if stop is None else stoppable(coming, stop)))
            except DragomanError as error:
                return error_to_json(error)

        # The run's Stop is looked up here: the engine may call the function in another context.
        return _StepCall(lambda: self._step(key, partial(ask, current_stop())))


class _StepCall(RemoteCall):
    """A model call that is a step."""

    async def advance(self) -> None:
        try:
            await super().advance()
        except StoppedError as error:
            if (stop := current_stop()) is not None and error.reason == "cancelled":
                stop.cancel()  # as the run was cancelled when this step was stored
            raise
