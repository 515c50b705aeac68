"""One turn on a worker: the agent, the client that runs the turn, and the store that ends with its lease.

Must not know: queues, leases, other turns.

A turn may be delivered again, after its worker died or lost its lease. The prompt has the turn's id, so it is not added
twice; results of tools are in the journal; a call that had started is `uncertain` and waits for a person, and an
approval given before does not cover a second start.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar, Unpack

from dragoman.chat import AsyncChatClient, ChatOptions, drop_engine_options
from dragoman.conversation import Message
from dragoman.engines import AsyncEngine, Models, is_registered
from dragoman.errors import ConfigurationError, SnapshotNotFoundError, StoreConflictError, StoreUnavailableError
from dragoman.loop import LoopHooks, RunResult
from dragoman.providers import split_model
from dragoman.stores import (
    AsyncConversationStore,
    BlockingStore,
    JournalEntry,
    ToolCallBegun,
    aresume,
    entry_to_json,
)
from dragoman.tools import AnyTools, Approval
from dragoman.transport import Transport

from .turns import Ask

_T = TypeVar("_T")
Sleep: TypeAlias = Callable[[float], Awaitable[None]]

PATIENCE: Final = 60.0
"""Seconds to wait for a database that cannot be reached."""
PAUSE: Final = 0.2


class Agent:
    """A model, its tools, and the options of a chat client. A worker has agents by name; keys stay on the worker."""

    def __init__(
        self,
        model: AsyncEngine | Models[AsyncEngine],
        tools: AnyTools = (),
        *,
        transport: Transport | None = None,
        **options: Unpack[ChatOptions],
    ) -> None:
        for name in ("id", "stateless"):
            if name in options:
                message = f"{name!r} is an option of a conversation, not of an agent."
                raise ConfigurationError(message, hint="Leave it out: turns name their conversations.")
        self._model: Final = model
        self._tools: Final = tools
        self._transport: Final = transport
        self._options: Final[ChatOptions] = {"on_limit": "return", **options}
        first = model if isinstance(model, str | AsyncEngine) else next(iter(model), "")
        name = first if isinstance(first, str) else first.name
        before = name.partition(":")[0]
        is_known = not isinstance(first, str) or is_registered(before)
        self.provider: Final = before if is_known else split_model(name)[0]
        """The provider whose limits apply: that of the first model."""
        self._first: AsyncChatClient | None = None
        """Has the engine, whose connections all turns of the agent share."""

    def make_client(self, conversation: str, store: AsyncConversationStore, hooks: LoopHooks) -> AsyncChatClient:
        """A client for one turn of a conversation. Raises errors of the agent, such as a missing key."""
        if self._first is None:
            self._first = AsyncChatClient(self._model, self._tools, transport=self._transport, **self._options)
        options = drop_engine_options(self._options)
        options["hooks"] = (*options.get("hooks", ()), hooks)
        options["id"] = conversation
        return AsyncChatClient(self._first.engine, self._first.tools.tools, store=store, **options)

    async def aclose(self) -> None:
        """Close the connections of the engine."""
        if self._first is not None:
            await self._first.aclose()
        self._first = None


async def carry_out(
    client: AsyncChatClient,
    store: AsyncConversationStore,
    ask: Ask,
    conversation: str,
    *,
    exists: bool,
    existed: bool,
    again: bool,
) -> tuple[RunResult, Sequence[Message]]:
    """Run a turn, or, `again`, continue it: its result, and if it was continued, all messages that it added.

    `exists`: the conversation is in the store. `existed`: it was there when the turn was submitted.
    """
    prompt = ask.prompt
    if exists:
        if again:
            await _take_over(store, conversation)
        await client.restore(conversation)
    elif existed or prompt is None:
        message = f"Conversation {conversation} is no longer in the store: it was deleted in the meantime."
        hint = "Start a new one: submit without `conversation`, or once more with this id."
        raise SnapshotNotFoundError(message, hint=hint)
    if prompt is None:
        before = len(client.history)
        result = await client.resume(*_still_open(client, ask.approvals, again=again))
        return result, result.conversation.messages[before:] if again else ()
    is_added = any(message.id == prompt.id for message in client.history)
    result = await client.chat(None if is_added else prompt)
    messages = result.conversation.messages if again else ()
    return result, messages[next((at for at, each in enumerate(messages) if each.id == prompt.id), 0) :]


async def _take_over(store: AsyncConversationStore, conversation: str) -> None:
    """Let no other worker write the results of calls that had started: from now on a person decides about them.

    The previous worker may only be slow, or cut off. Its next write finds the journal longer than it expects.
    """
    found = await aresume(store, conversation)
    if found.uncertain_calls:
        await store.record(found.snapshot.id, map(ToolCallBegun, found.uncertain_calls), after=found.position)


def _still_open(client: AsyncChatClient, approvals: Iterable[Approval], *, again: bool) -> list[Approval]:
    """The decisions that still apply if the turn was running before. An approval does not cover a second start."""
    if not again:
        return list(approvals)
    uncertain = [each.call for each in client.uncertain]
    waiting = [each.call for each in client.pending]
    return [
        answer
        for answer in approvals
        if any(map(answer.answers, waiting)) and not (answer.approved and any(map(answer.answers, uncertain)))
    ]


async def patiently(work: Callable[[], Awaitable[_T]], sleep: Sleep = asyncio.sleep, seconds: float = PATIENCE) -> _T:
    """Do something repeatable, waiting so long for the database if it is away."""
    until = time.monotonic() + seconds
    while True:
        try:
            return await work()
        except StoreUnavailableError:
            if time.monotonic() >= until:
                raise
        await sleep(PAUSE)


class TurnStore(BlockingStore):
    """The store of one turn: nothing more is written once its lease is gone.

    While the database is away (a restart, a failover) writes wait: only this process knows the step to be written.
    """

    def __init__(self, shared: BlockingStore, is_ours: Callable[[], Awaitable[bool]]) -> None:
        super().__init__(shared.store)
        self._shared: Final = shared
        """The store that all turns of the worker share."""
        self._is_ours: Final = is_ours
        """Whether this worker still has the turn."""
        self.is_closed: bool = False

    async def run(self, work: Callable[[], _T]) -> _T:
        return await self._repeat(lambda: self._shared.run(work))

    async def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int:
        new, tried = tuple(entries), False

        async def work() -> int:
            nonlocal tried
            if tried and await self._is_there(id, new, after):
                return after + len(new)
            tried = True
            return await self._shared.record(id, new, after=after)

        return await self._repeat(work)

    async def _is_there(self, id: str, new: tuple[JournalEntry, ...], after: int) -> bool:
        """Whether the previous attempt, whose response got lost, has written everything, and not another worker."""
        if not await self._is_ours():
            self.is_closed = True
            raise StoreConflictError("This turn is no longer this worker's.")
        found = await self._shared.journal(id)
        written = found.entries[after:]
        return found.snapshot == id and list(map(entry_to_json, written)) == list(map(entry_to_json, new))

    async def _repeat(self, work: Callable[[], Awaitable[_T]]) -> _T:
        async def work_if_ours() -> _T:
            if self.is_closed:
                raise StoreConflictError("This turn is no longer this worker's.")
            return await work()

        return await patiently(work_if_ours)
