"""Turns under way, whoever watches: a turn goes on when its watchers leave, and any of them may come back.

Talks is what a server has open: of each conversation one client, on one store, and at most one turn at a time. What is
said goes through here from every kind of page, and so does every answer about a call that waits for a person.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Literal, Protocol, TypeAlias
from weakref import WeakValueDictionary

from msgspec import Struct, structs

from dragoman.chat import AsyncChatClient, Prompt, make_message
from dragoman.conversation import Conversation, Event, Failed, Message, RunEnded, Usage
from dragoman.errors import ConcurrentUseError, ConfigurationError, DragomanError, SnapshotNotFoundError, StoreError
from dragoman.stores import AsyncConversationStore
from dragoman.tools import Approval, PendingApproval, approve, deny, fingerprint

from .log import MAX_LOG_BYTES, FrameLog

MAX_OPEN: Final = 100
"""How many conversations are kept open; of more, those that were used longest ago are closed, if nothing happens in
them and no request can still be about to begin something."""
_REQUEST_SECONDS: Final = 60.0
KEPT_SECONDS: Final = 300.0
"""For so long after its end a turn can still be watched from its beginning."""


class TurnEnded(Struct, frozen=True, kw_only=True):
    """A turn is over: how, and what it waits for."""

    ending: Literal["done", "await_approval", "limit_reached", "cancelled", "failed"]
    pending: tuple[PendingApproval, ...] = ()
    usage: Usage = Usage()
    error: Failed | None = None


Happening: TypeAlias = Event | TurnEnded


class Encoder(Protocol):
    """Writes the events of one turn in the words of a protocol: none, one or several data of frames for each."""

    def begin(self) -> Iterable[bytes]:
        """What is said before the first event."""
        ...

    def encode(self, happening: Happening) -> Iterable[bytes]:
        """What is said of an event."""
        ...


class LiveTurn:
    """A turn under way, or one that ended a while ago."""

    def __init__(
        self, client: AsyncChatClient, encoder: Encoder, said: Message | None, *, limit: int = MAX_LOG_BYTES
    ) -> None:
        self._client: AsyncChatClient = client
        self.said: Message | None = said
        """What the user says; None where the conversation goes on from where it stands."""
        self.encoder: Encoder = encoder
        self.base: int = len(client.history)
        """How many messages the conversation had before."""
        self.log: FrameLog = FrameLog(limit)
        self.ended: TurnEnded | None = None
        self.failure: Exception | None = None
        """What the turn failed with."""

    async def carry_out(self, approvals: Iterable[Approval]) -> None:
        """Let the model answer. Nothing is raised but a cancellation: an error is how a turn can end."""
        self._say(self.encoder.begin())
        ended = TurnEnded(ending="cancelled")
        try:
            async with self._client.stream_chat(self.said, approvals=approvals) as stream:
                async for event in stream:
                    if isinstance(event, RunEnded):
                        ended = TurnEnded(ending=event.ending, usage=event.usage)
                    elif not isinstance(event, Failed):  # the error itself says more
                        self._say(self.encoder.encode(event))
            ended = TurnEnded(ending=ended.ending, usage=ended.usage, pending=self._client.pending)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the watchers are told and the server goes on
            self.failure = error
            ended = TurnEnded(ending="failed", pending=self._client.pending, error=_describe(error))
        finally:
            self.ended = ended
            self._say(self.encoder.encode(ended))
            self.log.close()
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self.log.forget)

    def _say(self, frames: Iterable[bytes]) -> None:
        for data in frames:
            self.log.append(data)


def _describe(error: Exception) -> Failed:
    """The error in words for a person who did not write the program."""
    if isinstance(error, DragomanError):
        return Failed(type(error).__name__, f"{error.message} {error.hint}".strip())
    return Failed(type(error).__name__, "Something went wrong on the server.")


# --- conversations ----------------------------------------------------------------------------------------------------

Answer: TypeAlias = tuple[str, bool, str]
"""About a call that waits: its fingerprint, yes or no, and why."""
_REFUSED: Final = "the user refused"
MakeClient: TypeAlias = Callable[[str], Awaitable[AsyncChatClient]]
"""A client for the conversation of this id, on the server's store, with nothing restored yet."""


class Talk:
    """A conversation that is open on this server."""

    def __init__(self, id: str, client: AsyncChatClient, store: AsyncConversationStore) -> None:
        self.id: str = id
        self.client: AsyncChatClient = client
        self.turn: LiveTurn | None = None
        self._store: AsyncConversationStore = store
        self._task: asyncio.Task[None] | None = None
        self.answers: dict[str, Approval] = {}
        """What was answered about calls that wait, by fingerprint, while others are still open."""
        self.used: float = 0.0
        """When it was asked for last, by the clock of the event loop."""

    @property
    def busy(self) -> bool:
        """Whether a turn is under way."""
        return self.turn is not None and self.turn.ended is None

    @property
    def broken(self) -> bool:
        """Whether the store and this client may have come apart, since somebody else went on with the conversation."""
        return self.turn is not None and isinstance(self.turn.failure, StoreError)

    def start(self, encoder: Encoder, prompt: Prompt | None, approvals: Iterable[Approval] = ()) -> LiveTurn:
        """Begin a turn. Raises ConcurrentUseError while one is under way, ConfigurationError for what says nothing."""
        self.refuse_if_busy()
        said = None if prompt is None else make_message(prompt)
        turn = self.turn = LiveTurn(self.client, encoder, said)
        self.answers = {}
        self._task = asyncio.get_running_loop().create_task(turn.carry_out(tuple(approvals)))
        return turn

    def refuse_if_busy(self) -> None:
        """Raise ConcurrentUseError while a turn is under way."""
        if self.busy:
            message = "This conversation is in the middle of a turn."
            raise ConcurrentUseError(message, hint="Wait for it, or stop it.")

    def answer(self, given: Iterable[Answer]) -> tuple[Approval, ...]:
        """Take in answers about calls that wait. Once no call is open, all answers, so that a turn can go on.

        An answer about anything else is refused: it was given to another call, or to other arguments.
        """
        self.refuse_if_busy()
        waiting = {fingerprint(each.call): each.call for each in self.client.pending}
        answers = {name: answer for name, answer in self.answers.items() if name in waiting}
        for name, approved, reason in given:
            if name not in waiting:
                message = "No call waits for this answer: it was answered already, or it is another call by now."
                raise ConfigurationError(message, hint="Look at the conversation again.")
            call = waiting[name]
            answers[name] = approve(call, reason=reason) if approved else deny(call, reason=reason or _REFUSED)
        self.answers = answers
        return tuple(answers.values()) if answers.keys() == waiting.keys() else ()

    async def stop(self) -> None:
        """Stop what is under way, and wait for its end; what was said and done stays."""
        self.client.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def rewrite(self, change: Callable[[Conversation], Conversation], *, title: str | None = None) -> None:
        """Change what was said, or the title; what was before stays in the store's chain."""
        self.refuse_if_busy()
        newest = await self.client.save()
        following = newest.next(change(newest.conversation))
        if title is not None:
            following = structs.replace(following, title=title)
        await self._store.save(following)
        await self.client.restore(following)


class Talks:
    """The conversations of a server: which are open, and the turn that each has under way."""

    def __init__(self, make_client: MakeClient, store: AsyncConversationStore) -> None:
        self._make_client: MakeClient = make_client
        self.store: AsyncConversationStore = store
        self._open: dict[str, Talk] = {}
        """By their ids; what was used last is last."""
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """So that two requests do not open the same one; a lock is there for as long as somebody holds or wants it."""

    def find(self, id: str) -> Talk | None:
        """The conversation, if it is open and can be trusted to be what the store has."""
        talk = self._open.get(id)
        return None if talk is None or talk.broken else talk

    def last_turn(self, id: str) -> LiveTurn | None:
        """The turn that is under way or was the last, even one that failed since somebody else went on."""
        talk = self._open.get(id)
        return None if talk is None else talk.turn

    async def open(self, id: str) -> Talk:
        """The conversation as it stands in the store; a new one if the store has none of this id."""
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
        await self.close(id)  # one that is broken
        client = await self._make_client(id)
        try:
            await client.restore(id)
        except SnapshotNotFoundError:
            pass  # it begins with what is said first
        except BaseException:
            await client.aclose()
            raise
        talk = self._open[id] = Talk(id, client, self.store)
        return talk

    async def _catch_up(self, talk: Talk) -> None:
        """Take up what another program has written of this conversation meanwhile."""
        try:
            journal = await self.store.journal(talk.id)
        except SnapshotNotFoundError:
            return  # it has just begun, or was deleted
        if not talk.busy and talk.client.kept_as != (journal.snapshot, journal.position):
            await talk.client.restore(talk.id)
            talk.answers = {}

    async def _close_oldest(self, before: float) -> None:
        for talk in list(self._open.values())[: max(0, len(self._open) - MAX_OPEN)]:
            if not talk.busy and talk.used < before:
                await self.close(talk.id)

    async def close(self, id: str) -> None:
        """Stop what is under way in this conversation and let go of it; it stays in the store."""
        talk = self._open.pop(id, None)
        if talk is not None:
            await talk.stop()
            await talk.client.aclose()

    async def aclose(self) -> None:
        """Stop everything. The store stays open: it is the caller's."""
        for id in list(self._open):
            await self.close(id)
