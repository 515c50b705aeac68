"""Running turns, independent of their watchers: a turn continues when they leave, and they may come back.

`Talks` has the open conversations of a server: for each one client, on one store, and at most one running turn. Every
kind of page sends its messages and approvals through here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Literal, Protocol, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct, structs

from dragoman._crashes import log_crash
from dragoman.chat import AsyncChatClient, Prompt, make_message
from dragoman.conversation import Conversation, Ended, Event, Failed, Message, RunEnded, StopReason, Usage
from dragoman.errors import ConcurrentUseError, ConfigurationError, DragomanError, SnapshotNotFoundError, StoreError
from dragoman.stores import AsyncConversationStore, Snapshot
from dragoman.tools import Approval, PendingApproval, approve, deny, fingerprint

from .log import MAX_LOG_BYTES, FrameLog

MAX_OPEN: Final = 100
"""How many conversations stay open. The least recently used ones are closed, unless a turn is running or a request may
be about to start one."""
_REQUEST_SECONDS: Final = 60.0
_encode: Final = msgspec.json.Encoder().encode
KEPT_SECONDS: Final = 300.0
"""How long after its end a turn can still be watched from its start."""


class TurnEnded(Struct, frozen=True, kw_only=True):
    """The end of a turn, and the calls that wait for approval."""

    ending: Ended | Literal["failed"]
    stop_reason: StopReason | None = None
    """Why the model's last reply ended."""
    note: str = ""
    """What is wrong with the answer, for a person; empty if nothing is."""
    pending: tuple[PendingApproval, ...] = ()
    usage: Usage = Usage()
    error: Failed | None = None


TurnEvent: TypeAlias = Event | TurnEnded


class Encoder(Protocol):
    """Converts the events of one turn to those of a protocol, as JSON values."""

    def begin(self) -> Iterable[object]:
        """What comes before the first event."""
        ...

    def encode(self, event: TurnEvent) -> Iterable[object]:
        """None, one or several values for an event."""
        ...


_LOGGER: Final = logging.getLogger("dragoman.web")


class LiveTurn:
    """A turn that is running, or ended a short time ago."""

    def __init__(
        self, client: AsyncChatClient, encoder: Encoder, prompt: Message | None, *, limit: int = MAX_LOG_BYTES
    ) -> None:
        self._client: AsyncChatClient = client
        self.prompt: Message | None = prompt
        """The message of the user; None if the conversation just continues."""
        self.encoder: Encoder = encoder
        self.base: int = len(client.history)
        """The number of messages before the turn."""
        self.log: FrameLog = FrameLog(limit)
        self.ended: TurnEnded | None = None
        self.failure: Exception | None = None
        """The error that ended the turn."""

    async def run(self, approvals: Iterable[Approval]) -> None:
        """Let the model answer. Raises only CancelledError: any other error is an end of the turn."""
        self._write(self.encoder.begin())
        ended = TurnEnded(ending="cancelled")
        try:
            async with self._client.stream_chat(self.prompt, approvals=approvals) as stream:
                async for event in stream:
                    if isinstance(event, RunEnded):
                        ended = TurnEnded(
                            ending=event.ending, stop_reason=event.stop_reason, note=event.note, usage=event.usage
                        )
                    elif not isinstance(event, Failed):  # the exception says more
                        self._write(self.encoder.encode(event))
            ended = structs.replace(ended, pending=self._client.pending)
        except Exception as error:  # noqa: BLE001 -- the watchers get any error, and the server continues
            self.failure = error
            if not isinstance(error, DragomanError):  # the watchers are not told more than that
                log_crash(_LOGGER, "a turn of the conversation %s crashed", self._client.id, error=error)
            ended = TurnEnded(ending="failed", pending=self._client.pending, error=_describe(error))
        finally:
            self.ended = ended
            self._write(self.encoder.encode(ended))
            self.log.close()
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self.log.forget)

    def _write(self, values: Iterable[object]) -> None:
        for value in values:
            self.log.append(_encode(value))


def _describe(error: Exception) -> Failed:
    """The error, for a person who did not write the program."""
    if isinstance(error, DragomanError):
        return Failed(type(error).__name__, f"{error.message} {error.hint}".strip())
    return Failed(type(error).__name__, "Something went wrong on the server.")


# --- conversations ----------------------------------------------------------------------------------------------------

Answer: TypeAlias = tuple[str, bool, str]
"""About a pending call: its fingerprint, whether it is approved, and why."""
_REFUSED: Final = "the user refused"
MakeClient: TypeAlias = Callable[[str], Awaitable[AsyncChatClient]]
"""A client for the conversation of this id, on the server's store, before it is restored."""


class Talk:
    """An open conversation of a server."""

    def __init__(self, id: str, client: AsyncChatClient, store: AsyncConversationStore) -> None:
        self.id: str = id
        self.client: AsyncChatClient = client
        self.turn: LiveTurn | None = None
        self.before: LiveTurn | None = None
        """The last turn, if it failed because of another writer and the conversation was opened again."""
        self._store: AsyncConversationStore = store
        self._task: asyncio.Task[None] | None = None
        self.answers: dict[str, Approval] = {}
        """Answers about pending calls, by fingerprint, until all are answered."""
        self.used: float = 0.0
        """When it was last used, by the clock of the event loop."""

    @property
    def snapshot(self) -> Snapshot:
        """The conversation now, with the other fields of its newest snapshot."""
        kept, now = self.client.kept_as, self.client.conversation
        if kept is not None:
            return structs.replace(kept[0], conversation=now)
        provider, _, model = self.client.model.partition(":")  # it is new
        return Snapshot.first(now, provider=provider, model=model, id=self.id)

    @property
    def busy(self) -> bool:
        """Whether a turn is running."""
        return self.turn is not None and self.turn.ended is None

    @property
    def broken(self) -> bool:
        """Whether the client may differ from the store, since another program has written to the conversation."""
        return self.turn is not None and isinstance(self.turn.failure, StoreError)

    def start(self, encoder: Encoder, prompt: Prompt | None, approvals: Iterable[Approval] = ()) -> LiveTurn:
        """Start a turn. Raises ConcurrentUseError while one is running, ConfigurationError for an empty prompt."""
        self.refuse_if_busy()
        message = None if prompt is None else make_message(prompt)
        turn = self.turn = LiveTurn(self.client, encoder, message)
        self.answers = {}
        self._task = asyncio.get_running_loop().create_task(turn.run(tuple(approvals)))
        return turn

    def refuse_if_busy(self) -> None:
        """Raise ConcurrentUseError while a turn is running."""
        if self.busy:
            message = "This conversation is in the middle of a turn."
            raise ConcurrentUseError(message, hint="Wait for it, or stop it.")

    def answer(self, given: Iterable[Answer]) -> tuple[Approval, ...]:
        """Record answers about pending calls. Returns all of them once every call is answered, else nothing.

        An answer about anything else is refused: it was meant for another call, or other arguments.
        """
        self.refuse_if_busy()
        waiting = {fingerprint(each.call): each.call for each in self.client.pending}
        answers = {name: answer for name, answer in self.answers.items() if name in waiting}
        for name, approved, reason in given:
            if name not in waiting:
                message = "No call waits for this answer: it was already answered, or has changed."
                raise ConfigurationError(message, hint="Look at the conversation again.")
            call = waiting[name]
            answers[name] = approve(call, reason=reason) if approved else deny(call, reason=reason or _REFUSED)
        self.answers = answers
        return tuple(answers.values()) if answers.keys() == waiting.keys() else ()

    async def stop(self) -> None:
        """Stop the running turn, and wait for its end. What was said and done stays."""
        self.client.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def rewrite(self, change: Callable[[Conversation], Conversation], *, title: str | None = None) -> None:
        """Change the conversation or its title. The old version stays in the store's history."""
        self.refuse_if_busy()
        newest = await self.client.save()
        following = newest.next(change(newest.conversation))
        if title is not None:
            following = structs.replace(following, title=title)
        await self._store.save(following)
        await self.client.restore(following)


class Talks:
    """The open conversations of a server."""

    def __init__(self, make_client: MakeClient, store: AsyncConversationStore) -> None:
        self._make_client: MakeClient = make_client
        self.store: AsyncConversationStore = store
        self._open: dict[str, Talk] = {}
        """By id; the last used one is last."""
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Prevents two requests from opening the same one; a lock exists only while it is used."""

    def find(self, id: str) -> Talk | None:
        """The conversation, if it is open and not broken."""
        talk = self._open.get(id)
        return None if talk is None or talk.broken else talk

    def last_turn(self, id: str) -> LiveTurn | None:
        """The running or last turn, even one that failed because of another writer."""
        talk = self._open.get(id)
        return None if talk is None else talk.turn or talk.before

    async def open(self, id: str) -> Talk:
        """The conversation as it is in the store, or a new one."""
        lock = self._opening.get(id)
        if lock is None:
            lock = self._opening[id] = asyncio.Lock()
        async with lock:
            talk = self.find(id)
            if talk is None:
                talk = await self._restore(id)
            else:
                await self._catch_up(talk)
        self._open.pop(id, None)
        self._open[id] = talk
        talk.used = asyncio.get_running_loop().time()
        await self._close_oldest(talk.used - _REQUEST_SECONDS)
        return talk

    async def _restore(self, id: str) -> Talk:
        broken = self._open.get(id)
        await self.close(id)
        client = await self._make_client(id)
        try:
            await client.restore(id)
        except SnapshotNotFoundError:
            pass  # it is new
        except BaseException:
            await client.aclose()
            raise
        talk = self._open[id] = Talk(id, client, self.store)
        talk.before = None if broken is None else broken.turn
        return talk

    async def _catch_up(self, talk: Talk) -> None:
        """Load what another program has written in the meantime."""
        try:
            journal = await self.store.journal(talk.id)
        except SnapshotNotFoundError:
            return  # it is new, or was deleted
        kept = talk.client.kept_as
        if not talk.busy and (kept is None or (kept[0].id, kept[1]) != (journal.snapshot, journal.position)):
            await talk.client.restore(talk.id)
            talk.answers = {}

    async def _close_oldest(self, before: float) -> None:
        for talk in list(self._open.values())[: max(0, len(self._open) - MAX_OPEN)]:
            if not talk.busy and talk.used < before:
                await self.close(talk.id)

    async def close(self, id: str) -> None:
        """Stop its turn and close the conversation. It stays in the store."""
        talk = self._open.pop(id, None)
        if talk is not None:
            await talk.stop()
            await talk.client.aclose()

    async def aclose(self) -> None:
        """Stop everything. The store stays open: it is the caller's."""
        for id in list(self._open):
            await self.close(id)
