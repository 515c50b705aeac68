"""One turn on a worker: what an agent is, the client that a turn runs in, and the store that ends with its lease.

Owns: going on where a turn stands, whoever had it before. Must not know: queues, leases, other turns.

A turn may be delivered again, after its worker died or lost its lease. What was said carries the turn's id, so it is
not said twice; what a tool has done is in the journal; a call that had begun is `uncertain` and waits for a person, and
an approval that was given before it began does not hold for a second time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar, Unpack, cast

from dragoman.chat import AsyncChatClient, ChatOptions, drop_engine_options
from dragoman.conversation import Message
from dragoman.engines import AsyncEngine, Models, is_registered
from dragoman.errors import ConfigurationError, SnapshotNotFoundError, StoreConflictError, StoreUnavailableError
from dragoman.loop import LoopHooks, RunResult
from dragoman.providers import split_model
from dragoman.stores import (
    AsyncConversationStore,
    Journal,
    JournalEntry,
    Snapshot,
    ToolCallBegun,
    aresume,
    entry_to_json,
)
from dragoman.tools import AnyTools, Approval
from dragoman.transport import Transport

from .turns import Ask

_T = TypeVar("_T")

_PATIENCE: Final = 60.0
_PAUSE: Final = 0.2


class Agent:
    """What a worker knows by a name: a model, its tools, and the options of a chat client. Keys stay on the worker."""

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
                message = f"{name!r} is said of a conversation, not of an agent."
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
        """Whose limits hold; of several models, that of the first."""
        self._first: AsyncChatClient | None = None
        """Holds the engine, with its connections, which all turns of the agent use."""

    def make_client(self, conversation: str, store: AsyncConversationStore, hooks: LoopHooks) -> AsyncChatClient:
        """A client for one turn of a conversation. Raises what is wrong with the agent, such as a missing key."""
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
    """Carry a turn out, or, `again`, go on with it: its result, and the messages that it added.

    `exists` says whether the conversation is in the store, `existed` whether it was when the turn was handed in.
    """
    if exists:
        if again:
            await _take_over(store, conversation)
        await client.restore(conversation)
    elif existed or ask.message is None:
        message = f"Conversation {conversation} is not in the store any more: it was deleted meanwhile."
        hint = "Begin a new one: submit without `conversation`, or once more with this id."
        raise SnapshotNotFoundError(message, hint=hint)
    if ask.message is None:
        before = len(client.history)
        result = await client.resume(*_still_open(client, ask.approvals, again=again))
        return result, result.conversation.messages[before:]
    said = any(message.id == ask.message.id for message in client.history)
    result = await client.chat(None if said else ask.message)
    messages = result.conversation.messages
    return result, messages[next((at for at, each in enumerate(messages) if each.id == ask.message.id), 0) :]


async def _take_over(store: AsyncConversationStore, conversation: str) -> None:
    """Let nobody else write what came of calls that had begun: a person is asked about them from now on.

    A worker that had the turn may only be slow, or cut off. What it writes next finds the journal longer than it knows.
    """
    found = await aresume(store, conversation)
    if found.uncertain_calls:
        await store.record(found.snapshot.id, map(ToolCallBegun, found.uncertain_calls), after=found.position)


def _still_open(client: AsyncChatClient, approvals: Iterable[Approval], *, again: bool) -> list[Approval]:
    """The answers that still have a call to be about, where the turn was under way before.

    What was approved and then begun is not approved to be begun again.
    """
    if not again:
        return list(approvals)
    uncertain = [each.call for each in client.uncertain]
    waiting = [each.call for each in client.pending]
    return [
        answer
        for answer in approvals
        if any(map(answer.answers, waiting)) and not (answer.approved and any(map(answer.answers, uncertain)))
    ]


async def patiently(work: Callable[[], Awaitable[_T]]) -> _T:
    """Do this, which bears repeating, as soon as the database is there; it is waited for, a minute long."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return await work()
        except StoreUnavailableError:
            if time.monotonic() >= until:
                raise
        await asyncio.sleep(_PAUSE)


class TurnStore:
    """The store as one turn sees it: nothing more is written once its lease is gone.

    A database that is away for a while, to be started anew or to move, is waited for: the step that was to be written
    is still known here, and only here.
    """

    can_search: bool = False

    def __init__(self, store: AsyncConversationStore, is_ours: Callable[[], Awaitable[bool]]) -> None:
        self._store: Final = store
        self._is_ours: Final = is_ours
        """Whether nobody else has taken the turn."""
        self.is_closed: bool = False

    @classmethod
    def over(
        cls, store: AsyncConversationStore, is_ours: Callable[[], Awaitable[bool]]
    ) -> tuple[TurnStore, AsyncConversationStore]:
        """One for a turn, also as what a client takes; a client uses no more of a store than is here."""
        made = cls(store, is_ours)
        return made, cast("AsyncConversationStore", made)

    async def save(self, snapshot: Snapshot, *, after: int = 0) -> None:
        await self._repeat(lambda: self._store.save(snapshot, after=after))

    async def load(self, id: str) -> Snapshot:
        return await self._repeat(lambda: self._store.load(id))

    async def latest(self, id: str) -> Snapshot:
        return await self._repeat(lambda: self._store.latest(id))

    async def journal(self, id: str) -> Journal:
        return await self._repeat(lambda: self._store.journal(id))

    async def delete(self, id: str) -> None:
        await self._repeat(lambda: self._store.delete(id))

    async def record(self, id: str, entries: Iterable[JournalEntry], *, after: int) -> int:
        new, tried = tuple(entries), False

        async def work() -> int:
            nonlocal tried
            if tried and await self._is_there(id, new, after):
                return after + len(new)
            tried = True
            return await self._store.record(id, new, after=after)

        return await self._repeat(work)

    async def _is_there(self, id: str, new: tuple[JournalEntry, ...], after: int) -> bool:
        """Whether the try before, whose answer got lost, has written all of it, and not somebody else the same."""
        if not await self._is_ours():
            self.is_closed = True
            raise StoreConflictError("This turn is no longer this worker's.")
        found = await self._store.journal(id)
        written = found.entries[after:]
        return found.snapshot == id and list(map(entry_to_json, written)) == list(map(entry_to_json, new))

    async def _repeat(self, work: Callable[[], Awaitable[_T]]) -> _T:
        async def work_if_ours() -> _T:
            if self.is_closed:
                raise StoreConflictError("This turn is no longer this worker's.")
            return await work()

        return await patiently(work_if_ours)
