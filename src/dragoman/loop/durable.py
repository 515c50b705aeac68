"""A run whose model calls and tool calls are steps of a workflow engine (DBOS, Restate, Prefect, …).

Owns: DurableIO, the run's outside where such an engine keeps what was done; the JSON form of what a step gives.
Must not know: any engine. All that one has to give is `step(key, function)`: call the function unless the result of
this step is kept already, keep the result, and return it.

What makes a replay safe:

- Keys come from the place of a model call in the run and from the ids of tool calls. Steps begin in the order of the
  calls, whatever the order in which they end: engines that number steps see the same numbers again.
- A tool that is not idempotent is never called twice. Before the calls of a message are made, a step of its own says
  that they begin, and in which life of the program. A replay that finds this and no result is another life: nobody
  knows whether the call did its work, so it waits for a person (`UNCERTAIN`), as a call in a store's journal does.
- A model that fails gives a result as well, and so does one that a limit of the run has stopped: the error is kept, and
  raised again with its type.
- Nothing here is bound to the thread or the event loop in which an engine calls a step's function.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, Protocol
from uuid import uuid4

import msgspec
from msgspec import Raw, Struct

from dragoman._stepping import exhaust
from dragoman._stop import Stop, current_stop, stoppable
from dragoman.conversation import (
    Conversation,
    Message,
    ToolCall,
    ToolFinished,
    ToolSpec,
    ToolStarted,
    message_from_json,
    message_to_json,
    unfold,
)
from dragoman.engines import AsyncEngine, Reply, ReplyCall
from dragoman.errors import DragomanError, StoppedError, ToolExecutionError, describe_error, recreate_error
from dragoman.providers import Adaptation, Loss, ModelOptions
from dragoman.tools import Batch, Outcome, PendingApproval, ToolExecutor, ToolRun
from dragoman.transport import AttemptRecord

from .io import LoopIO
from .step import UNCERTAIN


class DurableStep(Protocol):
    """What a workflow engine gives: the text that the function returns, called once and kept under this key.

    Keys are unique within a run. An engine that knows steps by name alone adds which run of the workflow it is.
    """

    async def __call__(self, key: str, function: Callable[[], Coroutine[Any, Any, str]], /) -> str: ...


# --- what a step gives, as JSON ---------------------------------------------------------------------------------------


class _Kept(Struct, omit_defaults=True):
    """A reply, the outcome of a tool call, or an error."""

    message: Raw = Raw(b"null")
    """The reply; or a message that holds nothing but the tool's result, or the call that waits."""
    request_id: str | None = None
    received: float = 0.0
    adaptations: tuple[Adaptation, ...] = ()
    losses: tuple[Loss, ...] = ()
    attempts: tuple[AttemptRecord, ...] = ()
    waits: str | None = None
    """Why a call waits for a person."""
    error: dict[str, object] | None = None


_read: Final = msgspec.json.Decoder(_Kept).decode


def _write(kept: _Kept) -> str:
    return msgspec.json.encode(kept).decode()


def reply_to_json(reply: Reply) -> str:
    """A reply for another process. The headers stay behind: they are for the ledger of this one."""
    return _write(
        _Kept(
            message=Raw(message_to_json(reply.message)),
            request_id=reply.request_id,
            received=reply.received,
            adaptations=reply.adaptations,
            losses=reply.losses,
            attempts=reply.attempts,
        )
    )


def reply_from_json(text: str) -> Reply:
    """Read what `reply_to_json` or `error_to_json` wrote. An error is raised."""
    kept = _read(text)
    return Reply(
        message=_message_of(kept),
        request_id=kept.request_id,
        received=kept.received,
        adaptations=kept.adaptations,
        losses=kept.losses,
        attempts=kept.attempts,
    )


def outcome_to_json(outcome: Outcome | PendingApproval) -> str:
    """How a tool call ended, for another process."""
    if isinstance(outcome, PendingApproval):
        return _write(_Kept(message=Raw(message_to_json(Message.assistant(outcome.call))), waits=outcome.reason))
    return _write(_Kept(message=Raw(message_to_json(Message.tool([outcome.result])))))


def outcome_from_json(text: str) -> Outcome | PendingApproval:
    """Read what `outcome_to_json` wrote."""
    kept = _read(text)
    message = _message_of(kept)
    if kept.waits is not None:
        return PendingApproval(call=message.tool_calls[0], reason=kept.waits)
    result = message.tool_results[0]
    if not result.is_error:
        return Outcome(result)
    return Outcome(result, ToolExecutionError(result.text, tool_name=result.name, call_id=result.call_id))


def error_to_json(error: DragomanError) -> str:
    """An error in the place of a reply."""
    return _write(_Kept(error=describe_error(error)))


def _message_of(kept: _Kept) -> Message:
    if kept.error is not None:
        raise recreate_error(kept.error)
    return message_from_json(bytes(kept.message))


# --- the run's outside ------------------------------------------------------------------------------------------------


class RemoteCall(ReplyCall):
    """A call of a model that is carried out elsewhere and gives a whole reply, as JSON."""

    def __init__(self, ask: Callable[[], Awaitable[str]]) -> None:
        super().__init__()
        self._ask: Callable[[], Awaitable[str]] = ask
        self._reply: Reply | None = None

    @property
    def account(self) -> Reply:
        """As it was told."""
        return super().account if self._reply is None else self._reply

    async def advance(self) -> None:
        """Take the reply in, all of it at once."""
        self._reply = reply_from_json(await self._ask())
        self.take(list(unfold(self._reply.message)))
        self.over = True


class DurableIO(LoopIO):
    """The outside of a run on an event loop whose every step is kept by a workflow engine."""

    def __init__(self, step: DurableStep, engine: AsyncEngine, executor: ToolExecutor) -> None:
        super().__init__(_StepEngine(step, engine), executor)
        self._step: DurableStep = step
        self._keys: set[str] = set()
        self._room: asyncio.Semaphore = asyncio.Semaphore(executor.config.max_parallel_tools)

    async def run_tools(self, batch: Batch) -> AsyncGenerator[ToolStarted | ToolFinished, None]:
        begins = await self._begin(batch)
        running = [
            asyncio.ensure_future(self._run_tool(batch, index, self._key("tool", call.id), begins=begins))
            for index, call in enumerate(batch.calls)
        ]
        try:
            for index, coming in enumerate(running):
                for event in batch.take(index, outcome_from_json(await coming)):
                    yield event
        finally:
            for coming in running:
                coming.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _begin(self, batch: Batch) -> bool:
        """Keep that these calls begin, unless all of them may be repeated: whether they do in this life."""
        first = next((call for call in batch.calls if not _is_idempotent(batch, call)), None)
        if first is None:
            return True
        life = uuid4().hex

        async def begin() -> str:
            return life

        return await self._step(self._key("begin", first.id), begin) == life

    async def _run_tool(self, batch: Batch, index: int, key: str, *, begins: bool) -> str:
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
            )
            run.counts.update(counts)
            alone = self.executor.batch((call,), run, batch.tools)
            await exhaust(self.executor.aevents(alone))
            return outcome_to_json(alone.outcomes[0])

        async with self._room:  # which is given in the order of calls, so that their steps begin in that order
            return await self._step(key, carry_out)

    def _key(self, kind: str, call_id: str) -> str:
        """Ids of calls are used again by some providers: the second one of a name is told apart by its number."""
        key, number = f"{kind}/{call_id}", 1
        while key in self._keys:
            number += 1
            key = f"{kind}/{call_id}#{number}"
        self._keys.add(key)
        return key


def _is_idempotent(batch: Batch, call: ToolCall) -> bool:
    """Whether a call may be repeated: not that of an unknown name, for which middleware may put a known one."""
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

        # The stop of the run is found here, and not where an engine may call the function.
        return _StepCall(lambda: self._step(key, partial(ask, current_stop())))


class _StepCall(RemoteCall):
    """A call of a model that is a step."""

    async def advance(self) -> None:
        try:
            await super().advance()
        except StoppedError as error:
            if (stop := current_stop()) is not None and error.reason == "cancelled":
                stop.cancel()  # as the run was in the life that a replay tells of
            raise
