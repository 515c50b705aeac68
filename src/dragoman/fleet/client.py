"""The fleet for callers: submit turns, wait for them, approve or deny calls, cancel, watch.

A conversation has one writer: at most one of its jobs is in the queue, that of its oldest unfinished turn. Submitting,
cancelling and finishing lock the conversation, and a turn that ends queues the next one in the same transaction
(`queue_next`). PgQueuer's index of keys, which are conversations here, would refuse a second job.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from functools import wraps
from typing import Any, ClassVar, Concatenate, Final, ParamSpec, Self, TypeAlias, TypeVar, Unpack

from msgspec import structs

from dragoman._stepping import Inner, step, step_through
from dragoman.chat import Prompt, make_message
from dragoman.conversation import ToolCall
from dragoman.errors import (
    DragomanError,
    FleetError,
    SnapshotNotFoundError,
    StoppedError,
    TurnNotFoundError,
    UnknownAgentError,
)
from dragoman.stores import (
    MessageAdded,
    PostgresOptions,
    Recovered,
    ToolCallBegun,
    ToolCallDone,
    aresume,
    new_id,
    validate_snapshot_id,
)
from dragoman.tools import Approval, PendingApproval, approve, deny

from .database import Connection, Database, Row, complete_address
from .turns import (
    FleetEvent,
    FleetStatus,
    Outcome,
    Turn,
    TurnEnded,
    ask_to_json,
    outcome_from_json,
    outcome_to_json,
)

_P = ParamSpec("_P")
_T = TypeVar("_T")
Which: TypeAlias = Turn | Outcome | str
"""A turn, its outcome, or the id of a turn or a conversation."""
Call: TypeAlias = PendingApproval | ToolCall | str
"""A call that waits, or its id."""

_UNFINISHED: Final = ("queued", "running")
_OFFERS: Final = (
    "SELECT s.value AS mode, a.name, a.provider FROM {s}setting s LEFT JOIN {s}fleet_agent a ON true "
    "WHERE s.name = 'mode'"
)
_ADD: Final = """INSERT INTO {s}fleet_turn (id, conversation, agent, provider, existed, ask)
    VALUES ($1, $2, $3, $4, EXISTS (SELECT FROM {s}chain WHERE root = $2), $5) ON CONFLICT (id) DO NOTHING
    RETURNING (SELECT count(*) FROM {s}fleet_turn
        WHERE conversation = $2 AND state IN ('queued', 'running')) AS ahead"""
_NEXT: Final = (
    "SELECT id, provider FROM {s}fleet_turn WHERE conversation = $1 AND state = 'queued' ORDER BY number LIMIT 1"
)
_DROP_JOB: Final = "DELETE FROM {s}pgqueuer WHERE dedupe_key = $1 AND payload = $2 AND status = 'queued' RETURNING id"
_CANCEL: Final = """UPDATE {s}fleet_turn SET cancel = true,
    state = CASE state WHEN 'queued' THEN 'cancelled' ELSE state END,
    outcome = CASE state WHEN 'queued' THEN $2 ELSE outcome END,
    ended = CASE state WHEN 'queued' THEN now() ELSE ended END
    WHERE id = $1 AND state IN ('queued', 'running') RETURNING state"""
_ENDS: Final = (
    "SELECT * FROM {s}fleet_turn WHERE conversation = $1 AND number > $2 AND ended IS NOT NULL ORDER BY number"
)
_ROOT: Final = "SELECT root FROM {s}snapshot WHERE id = $1"
_TURN: Final = "SELECT * FROM {s}fleet_turn WHERE id = $1"
_LATEST: Final = "SELECT * FROM {s}fleet_turn WHERE conversation = $1 ORDER BY number DESC LIMIT 1"
# Turns that failed or were cancelled have decided about no call.
_STANDING: Final = (
    "SELECT * FROM {s}fleet_turn WHERE conversation = $1 AND state NOT IN ('failed', 'cancelled') "
    "ORDER BY number DESC LIMIT 1"
)
_STATUS: Final = """SELECT a.name, a.provider, a.seen,
    count(t.*) FILTER (WHERE t.state = 'queued') AS queued, count(t.*) FILTER (WHERE t.state = 'running') AS running,
    coalesce(extract(epoch FROM now() - min(t.submitted) FILTER (WHERE t.state = 'queued')), 0)::float8 AS oldest
    FROM {s}fleet_agent a LEFT JOIN {s}fleet_turn t ON t.agent = a.name AND t.state IN ('queued', 'running')
    GROUP BY a.name ORDER BY a.name"""
_ENDED: Final = """SELECT agent, state, count(*) AS count FROM {s}fleet_turn
    WHERE ended > now() - interval '1 hour' GROUP BY agent, state ORDER BY agent, state"""


async def lock(link: Connection, conversation: str) -> None:
    """Lock the conversation: others cannot submit, cancel or finish its turns."""
    await link.fetch("SELECT pg_advisory_xact_lock(hashtextextended($1, 7))", conversation)


async def queue_next(database: Database, link: Connection, conversation: str) -> None:
    """Put the next turn of the conversation into the queue."""
    for row in await link.fetch(database.named(_NEXT), conversation):
        await database.queue(link).enqueue(row["provider"], row["id"].encode(), dedupe_key=conversation)


class AsyncFleet:
    """A fleet, for programs on an event loop: submit turns, wait for them, approve, cancel and watch.

    `url` and the options are those of the PostgresStore that holds the conversations.
    """

    _on_loop: ClassVar[bool] = True

    def __init__(self, url: str = "", **options: Unpack[PostgresOptions]) -> None:
        self._database: Final = Database(complete_address(url), on_loop=self._on_loop, **options)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()

    async def install(self) -> None:
        """Create the tables, or upgrade those of PgQueuer to its version. Workers create them, too."""
        await self._database.install()

    # --- turns ---

    async def submit(
        self, prompt: Prompt, *, agent: str, conversation: str | None = None, id: str | None = None
    ) -> Turn:
        """Submit a turn: a prompt for an agent, in an existing conversation or a new one.

        `id`, a UUID of your own for the turn, makes it safe to submit the same turn twice.
        """
        turn = Turn(id=id or new_id(), conversation=conversation or new_id(), agent=agent)
        return await self._submit(turn, ask_to_json(structs.replace(make_message(prompt), id=turn.id)))

    async def _submit(self, wanted: Turn, ask: bytes) -> Turn:
        for each in (wanted.id, wanted.conversation):
            validate_snapshot_id(each)
        database = self._database

        async def work(link: Connection) -> Turn:
            turn = wanted
            offers = await link.fetch(database.named(_OFFERS))
            database.records.ensure_mode(offers[0]["mode"] if offers else None)
            agents: dict[str, str] = {row["name"]: row["provider"] for row in offers if row["name"] is not None}
            if turn.agent not in agents:
                known = ", ".join(sorted(agents)) or "none yet"
                message = f"No worker of this fleet offers an agent {turn.agent!r}; they offer: {known}."
                raise UnknownAgentError(message, agent=turn.agent, known=tuple(sorted(agents)))
            for row in await link.fetch(database.named(_ROOT), turn.conversation):  # any of its snapshots may be named
                turn = structs.replace(turn, conversation=row["root"])
            await lock(link, turn.conversation)
            sealed = database.records.seal(ask, "ask", turn.id)
            provider = agents[turn.agent]
            added = await link.fetch(database.named(_ADD), turn.id, turn.conversation, turn.agent, provider, sealed)
            if not added:  # submitted before, under this id
                [row] = await link.fetch(database.named(_TURN), turn.id)
                return Turn(id=turn.id, conversation=row["conversation"], agent=row["agent"])
            if not added[0]["ahead"]:
                await database.queue(link).enqueue(provider, turn.id.encode(), dedupe_key=turn.conversation)
            return turn

        return await database.run(work)

    async def _find(self, which: Which) -> Row:
        """The turn, or the latest turn of the conversation."""
        id = which.turn.id if isinstance(which, Outcome) else which.id if isinstance(which, Turn) else which
        validate_snapshot_id(id)
        rows = await self._database.fetch(_TURN, id) or await self._database.fetch(_LATEST, id)
        if not rows:
            raise TurnNotFoundError(f"The fleet has no turn {id}, and no turn of a conversation {id}.")
        return rows[0]

    def _result(self, row: Row) -> Outcome | DragomanError:
        turn = Turn(id=row["id"], conversation=row["conversation"], agent=row["agent"])
        return outcome_from_json(self._database.records.unseal(row["outcome"], "outcome", turn.id), turn)

    async def wait(self, turn: Which, timeout: float | None = None) -> Outcome:  # noqa: ASYNC109 -- as in plain programs
        """The outcome of the turn. Raises the error that it ended with, and StoppedError after `timeout` seconds."""
        id = turn.id if isinstance(turn, Turn) else (await self._find(turn))["id"]
        state = "queued"
        async with Inner(self._database.follow([id], lambda: self._find(id), timeout)) as rows:
            async for row in rows:
                state = row["state"]
                if state not in _UNFINISHED:
                    result = self._result(row)
                    if isinstance(result, DragomanError):
                        raise result
                    return result
        message = f"Turn {id} has not ended in {timeout:g} seconds; it is {state}."
        raise StoppedError(message, hint="It continues: wait again, or cancel it.", reason="deadline")

    async def resume(self, turn: Which, *approvals: Approval) -> Turn:
        """Continue a conversation as a new turn, with decisions about pending calls, or without any."""
        row = await self._find(turn)
        ask = ask_to_json(approvals=approvals)
        if row["state"] in ("failed", "cancelled") and not approvals:  # its prompt may not have been added
            ask = self._database.records.unseal(row["ask"], "ask", row["id"])
        return await self._submit(Turn(id=new_id(), conversation=row["conversation"], agent=row["agent"]), ask)

    async def approve(self, turn: Which, *calls: Call, reason: str = "") -> Turn:
        """Let pending calls run, all or these, as a new turn."""
        return await self._answer(turn, calls, lambda call: approve(call, reason=reason))

    async def deny(self, turn: Which, *calls: Call, reason: str = "") -> Turn:
        """Refuse pending calls, all or these, as a new turn; the model reads the reason."""
        return await self._answer(turn, calls, lambda call: deny(call, reason=reason))

    async def _answer(self, turn: Which, calls: Iterable[Call], answer: Callable[[ToolCall], Approval]) -> Turn:
        latest = await self._find(turn)
        row = next(iter(await self._database.fetch(_STANDING, latest["conversation"])), latest)
        result = self._result(row) if row["state"] == "await_approval" else None
        pending = {each.call.id: each.call for each in result.pending} if isinstance(result, Outcome) else {}
        if not pending:
            message = f"Conversation {row['conversation']} has no pending calls; its latest turn is {row['state']}."
            raise FleetError(message, hint="Wait for the turn first; its outcome lists the pending calls.")
        wanted = [call.call if isinstance(call, PendingApproval) else call for call in calls] or list(pending)
        found = [pending.get(call) if isinstance(call, str) else call for call in wanted]
        if None in found:
            message = f"The pending calls are {', '.join(pending)}; {wanted[found.index(None)]!r} is none of them."
            raise FleetError(message, hint="Approve or deny those.")
        return await self.resume(row["id"], *[answer(call) for call in found if call is not None])

    async def cancel(self, turn: Which) -> str:
        """Cancel the turn: at once if no worker has started it, otherwise its worker is notified. Returns its state."""
        row, database = await self._find(turn), self._database

        async def work(link: Connection) -> str:
            await lock(link, row["conversation"])
            # The job first, as workers do: if it is being taken it is gone, and its turn is running.
            dropped = await link.fetch(database.named(_DROP_JOB), row["conversation"], row["id"].encode())
            outcome = database.records.seal(outcome_to_json(None), "outcome", row["id"])
            if not (ended := await link.fetch(database.named(_CANCEL), row["id"], outcome)):
                ended = await link.fetch(database.named(_TURN), row["id"])
            if dropped:
                await queue_next(database, link, row["conversation"])
            await link.fetch("SELECT pg_notify($1, $2)", database.cancels, row["id"])
            await link.fetch(
                "SELECT pg_notify($1, id) FROM unnest($2::text[]) AS t (id)",
                database.steps,
                [row["id"], row["conversation"]],
            )
            return str(ended[0]["state"])

        return await database.run(work)

    # --- watching ---

    async def watch(self, turn: Which, *, after: int = 0) -> AsyncGenerator[FleetEvent, None]:
        """The steps of a conversation as they are written: messages, calls started and finished, turns ended.

        The first `after` messages are left out. Watching a turn ends with that turn, watching a conversation never.
        """
        row = await self._find(turn)
        conversation = row["conversation"]
        last = None if turn == conversation else row["id"]
        view, reported = _View(after), set[str]()

        async def look() -> tuple[list[Row], Recovered | None]:
            # First the turns: by the time one has ended, its steps are in the store.
            ended = await self._database.fetch(_ENDS, conversation, row["number"] - 1)
            return ended, await self._recover(conversation)

        async with Inner(self._database.follow([conversation], look)) as looks:
            async for ended, found in looks:
                for event in view.new_events(found) if found is not None else ():
                    yield event
                for each in [each for each in ended if each["id"] not in reported]:
                    reported.add(each["id"])
                    result = self._result(each)
                    yield TurnEnded(error=result) if isinstance(result, DragomanError) else TurnEnded(outcome=result)
                    if each["id"] == last:
                        return

    async def _recover(self, conversation: str) -> Recovered | None:
        try:
            return await aresume(self._database.store, conversation)
        except SnapshotNotFoundError:
            return None  # not created yet, or deleted

    async def status(self) -> list[FleetStatus]:
        """For each agent: turns waiting, the age of the oldest, running turns, and how turns ended."""
        rows, ended = await self._database.fetch(_STATUS), await self._database.fetch(_ENDED)
        return [
            FleetStatus(
                agent=row["name"],
                provider=row["provider"],
                queued=row["queued"],
                running=row["running"],
                oldest_seconds=row["oldest"],
                ended={each["state"]: each["count"] for each in ended if each["agent"] == row["name"]},
                seen=row["seen"],
            )
            for row in rows
        ]


class _SteppedFleet(AsyncFleet):
    """The same over blocking connections: its coroutines never suspend."""

    _on_loop = False


def _stepped(
    method: Callable[Concatenate[AsyncFleet, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[Fleet, _P], _T]:
    @wraps(method)
    def call(self: Fleet, *arguments: _P.args, **options: _P.kwargs) -> _T:
        return step(method(self._fleet, *arguments, **options))  # pyright: ignore[reportPrivateUsage] -- of the class below

    return call


class Fleet:
    """A fleet, for sync programs: AsyncFleet with methods that block.

    `url` and the options are those of the PostgresStore that holds the conversations.
    """

    def __init__(self, url: str = "", **options: Unpack[PostgresOptions]) -> None:
        self._fleet: Final = _SteppedFleet(url, **options)

    close = _stepped(AsyncFleet.aclose)
    install = _stepped(AsyncFleet.install)
    submit = _stepped(AsyncFleet.submit)
    wait = _stepped(AsyncFleet.wait)
    resume = _stepped(AsyncFleet.resume)
    approve = _stepped(AsyncFleet.approve)
    deny = _stepped(AsyncFleet.deny)
    cancel = _stepped(AsyncFleet.cancel)
    status = _stepped(AsyncFleet.status)

    def watch(self, turn: Which, *, after: int = 0) -> Iterator[FleetEvent]:
        """The steps of a conversation as they are written; see AsyncFleet.watch."""
        return step_through(self._fleet.watch(turn, after=after))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class _View:
    """What a watcher has seen of a conversation.

    Results are reported twice, when they arrive and with the message that contains them, also to a late watcher.
    """

    def __init__(self, seen: int) -> None:
        self._seen: int = seen
        """The number of messages seen."""
        self._reported: set[tuple[type[FleetEvent], str]] = set()
        """What was reported about calls after those messages."""

    def new_events(self, found: Recovered) -> Iterator[FleetEvent]:
        messages = found.conversation.messages
        self._seen = min(self._seen, len(messages))  # a context policy may have shortened it
        for message in messages[self._seen :]:
            calls = {call.id: call for call in messages[self._seen - 1].tool_calls} if self._seen else {}
            for result in message.tool_results:
                if result.call_id in calls:
                    yield from self._report(ToolCallBegun(calls[result.call_id]), result.call_id)
                yield from self._report(ToolCallDone(result), result.call_id)
            self._reported.clear()
            self._seen += 1
            yield MessageAdded(message)
        calls = {call.id: call for call in found.conversation.pending_tool_calls}
        for result in found.done_results:
            if result.call_id in calls:
                yield from self._report(ToolCallBegun(calls[result.call_id]), result.call_id)
                yield from self._report(ToolCallDone(result), result.call_id)
        for call in found.uncertain_calls:
            yield from self._report(ToolCallBegun(call), call.id)

    def _report(self, entry: FleetEvent, call: str) -> Iterator[FleetEvent]:
        if (type(entry), call) not in self._reported:
            self._reported.add((type(entry), call))
            yield entry
