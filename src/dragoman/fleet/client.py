"""Handing turns in from anywhere, and what can be done about them: wait, answer, cancel, watch.

One writer a conversation: at most one job of a conversation is in the queue, that of its oldest unfinished turn.
Handing in, cancelling and finishing hold a lock of the conversation; whoever ends a turn queues the next one in the
same transaction (`queue_next`). PgQueuer's index of keys, which are conversations here, would refuse a second job.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from contextlib import aclosing
from functools import wraps
from typing import Any, ClassVar, Concatenate, Final, ParamSpec, Self, TypeAlias, TypeVar, Unpack

from msgspec import structs

from dragoman._stepping import step, step_through
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
    JournalEntry,
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
    Ask,
    FleetEvent,
    FleetStatus,
    Outcome,
    Turn,
    TurnEnded,
    ask_from_json,
    ask_to_json,
    outcome_from_json,
    outcome_to_json,
)

_P = ParamSpec("_P")
_T = TypeVar("_T")
Which: TypeAlias = Turn | Outcome | str
"""A turn, what came of it, or the id of a turn or of a conversation."""
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
# Turns that came to nothing have answered no call.
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
    """Keep all others from handing in, cancelling and finishing turns of this conversation."""
    await link.fetch("SELECT pg_advisory_xact_lock(hashtextextended($1, 7))", conversation)


async def queue_next(database: Database, link: Connection, conversation: str) -> None:
    """Put the next turn of the conversation into the queue, whose place there is free now."""
    for row in await link.fetch(database.named(_NEXT), conversation):
        await database.queue(link).enqueue(row["provider"], row["id"].encode(), dedupe_key=conversation)


class AsyncFleet:
    """A fleet, for programs on an event loop: hand turns in, wait for them, answer, cancel and watch.

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
        """Make the tables, or bring those of PgQueuer up to its version. Workers make them, too."""
        await self._database.install()

    # --- turns ---

    async def submit(
        self, prompt: Prompt, *, agent: str, conversation: str | None = None, id: str | None = None
    ) -> Turn:
        """Hand a turn in: say something to an agent, in a conversation that is there already or begins now.

        `id` makes it safe to hand the same turn in twice: a UUID of your own, by which it is known from then on.
        """
        turn = Turn(id=id or new_id(), conversation=conversation or new_id(), agent=agent)
        message = structs.replace(make_message(prompt), id=turn.id)
        return await self._hand_in(turn, Ask(message=message))

    async def _hand_in(self, wanted: Turn, ask: Ask) -> Turn:
        for each in (wanted.id, wanted.conversation):
            validate_snapshot_id(each)
        database, data = self._database, ask_to_json(ask)

        async def work(link: Connection) -> Turn:
            turn = wanted
            offers = await link.fetch(database.named(_OFFERS))
            database.records.ensure_mode(offers[0]["mode"] if offers else None)
            agents: dict[str, str] = {row["name"]: row["provider"] for row in offers if row["name"] is not None}
            if turn.agent not in agents:
                known = ", ".join(sorted(agents)) or "none yet"
                message = f"No worker of this fleet has offered an agent {turn.agent!r}; they have: {known}."
                raise UnknownAgentError(message, agent=turn.agent, known=tuple(sorted(agents)))
            for row in await link.fetch(database.named(_ROOT), turn.conversation):  # any of its snapshots may be named
                turn = structs.replace(turn, conversation=row["root"])
            await lock(link, turn.conversation)
            sealed = database.records.seal(data, "ask", turn.id)
            provider = agents[turn.agent]
            added = await link.fetch(database.named(_ADD), turn.id, turn.conversation, turn.agent, provider, sealed)
            if not added:  # handed in before, under this id
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
            raise TurnNotFoundError(f"The fleet has no turn {id}, and none of a conversation {id}.")
        return rows[0]

    def _result(self, row: Row) -> Outcome | DragomanError:
        turn = Turn(id=row["id"], conversation=row["conversation"], agent=row["agent"])
        return outcome_from_json(self._database.records.unseal(row["outcome"], "outcome", turn.id), turn)

    async def wait(self, turn: Which, timeout: float | None = None) -> Outcome:  # noqa: ASYNC109 -- as in plain programs
        """What came of the turn. Raises the error that it ended with, and StoppedError when the time is up."""
        id = turn.id if isinstance(turn, Turn) else (await self._find(turn))["id"]
        state = "out of reach"
        async with aclosing(self._database.follow([id], lambda: self._find(id), timeout)) as rows:
            async for row in rows:
                state = row["state"]
                if state not in _UNFINISHED:
                    result = self._result(row)
                    if isinstance(result, DragomanError):
                        raise result
                    return result
        message = f"Turn {id} has not ended in {timeout:g} seconds; it is {state}."
        raise StoppedError(message, hint="It goes on: wait again, or cancel it.", reason="deadline")

    async def resume(self, turn: Which, *approvals: Approval) -> Turn:
        """Go on with a conversation as a new turn, with these answers about calls that wait, or without any."""
        row = await self._find(turn)
        ask = Ask(approvals=approvals)
        if row["state"] in ("failed", "cancelled") and not ask.approvals:  # what it was to say may not have been said
            ask = ask_from_json(self._database.records.unseal(row["ask"], "ask", row["id"]))
        return await self._hand_in(Turn(id=new_id(), conversation=row["conversation"], agent=row["agent"]), ask)

    async def approve(self, turn: Which, *calls: Call, reason: str = "") -> Turn:
        """Let the calls that wait be carried out, all or these, as a new turn."""
        return await self._answer(turn, calls, lambda call: approve(call, reason=reason))

    async def deny(self, turn: Which, *calls: Call, reason: str = "") -> Turn:
        """Refuse the calls that wait, all or these, as a new turn; the model reads the reason."""
        return await self._answer(turn, calls, lambda call: deny(call, reason=reason))

    async def _answer(self, turn: Which, calls: Iterable[Call], answer: Callable[[ToolCall], Approval]) -> Turn:
        latest = await self._find(turn)
        row = next(iter(await self._database.fetch(_STANDING, latest["conversation"])), latest)
        result = self._result(row) if row["state"] == "await_approval" else None
        pending = {each.call.id: each.call for each in result.pending} if isinstance(result, Outcome) else {}
        if not pending:
            message = (
                f"No call of conversation {row['conversation']} waits for an answer; its latest turn is {row['state']}."
            )
            raise FleetError(message, hint="Wait for the turn first; its outcome lists the calls that wait.")
        wanted = [call.call if isinstance(call, PendingApproval) else call for call in calls] or list(pending)
        found = [pending.get(call) if isinstance(call, str) else call for call in wanted]
        if None in found:
            message = f"The calls that wait are {', '.join(pending)}; {wanted[found.index(None)]!r} is none of them."
            raise FleetError(message, hint="Answer those.")
        return await self.resume(row["id"], *[answer(call) for call in found if call is not None])

    async def cancel(self, turn: Which) -> str:
        """Cancel the turn: at once if nobody has begun it, else its worker is told. Gives its state."""
        row, database = await self._find(turn), self._database

        async def work(link: Connection) -> str:
            await lock(link, row["conversation"])
            # The job first, as workers do: one that is being taken is not there any more, and its turn is running.
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

    # --- looking ---

    async def watch(self, turn: Which, *, after: int = 0) -> AsyncGenerator[FleetEvent, None]:
        """The steps of a conversation as they are written: messages, calls begun and done, turns ended.

        They come behind the first `after` messages, also those of long ago; not the words of a reply one by one. With a
        turn it ends with that turn, with the id of a conversation never.
        """
        row = await self._find(turn)
        conversation = row["conversation"]
        last = None if turn == conversation else row["id"]
        view, told = _View(after), set[str]()

        async def look() -> tuple[list[Row], Recovered | None]:
            # First the turns: what they had done when they ended is in the store by then.
            ended = await self._database.fetch(_ENDS, conversation, row["number"] - 1)
            return ended, await self._recover(conversation)

        async with aclosing(self._database.follow([conversation], look)) as looks:
            async for ended, found in looks:
                for event in view.news(found) if found is not None else ():
                    yield event
                for each in [each for each in ended if each["id"] not in told]:
                    told.add(each["id"])
                    result = self._result(each)
                    yield TurnEnded(error=result) if isinstance(result, DragomanError) else TurnEnded(outcome=result)
                    if each["id"] == last:
                        return

    async def _recover(self, conversation: str) -> Recovered | None:
        try:
            return await aresume(self._database.store, conversation)
        except SnapshotNotFoundError:
            return None  # not yet, or no more

    async def status(self) -> list[FleetStatus]:
        """Each agent's turns: how many wait and for how long, how many are under way, how they ended."""
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
    """The same over connections that block, whose coroutines never suspend."""

    _on_loop = False


def _stepped(
    method: Callable[Concatenate[AsyncFleet, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[Fleet, _P], _T]:
    @wraps(method)
    def call(self: Fleet, *arguments: _P.args, **options: _P.kwargs) -> _T:
        return step(method(self._fleet, *arguments, **options))  # pyright: ignore[reportPrivateUsage] -- of the class below

    return call


class Fleet:
    """A fleet, for plain programs: AsyncFleet with methods that block.

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


# --- watching ---------------------------------------------------------------------------------------------------------


class _View:
    """What somebody who watches has seen of a conversation, and what is new to them.

    Results are told twice, as they come and with the message that takes them in; who comes late, when the journal is
    put away already, is told the same.
    """

    def __init__(self, seen: int) -> None:
        self._seen: int = seen
        """Messages."""
        self._told: set[tuple[type[JournalEntry], str]] = set()
        """What was told of the calls behind them."""

    def news(self, found: Recovered) -> Iterator[JournalEntry]:
        messages = found.conversation.messages
        self._seen = min(self._seen, len(messages))  # a context policy may have shortened it
        for message in messages[self._seen :]:
            calls = {call.id: call for call in messages[self._seen - 1].tool_calls} if self._seen else {}
            for result in message.tool_results:
                if result.call_id in calls:
                    yield from self._tell(ToolCallBegun(calls[result.call_id]), result.call_id)
                yield from self._tell(ToolCallDone(result), result.call_id)
            self._told.clear()
            self._seen += 1
            yield MessageAdded(message)
        calls = {call.id: call for call in found.conversation.pending_tool_calls}
        for result in found.done_results:
            if result.call_id in calls:
                yield from self._tell(ToolCallBegun(calls[result.call_id]), result.call_id)
                yield from self._tell(ToolCallDone(result), result.call_id)
        for call in found.uncertain_calls:
            yield from self._tell(ToolCallBegun(call), call.id)

    def _tell(self, entry: JournalEntry, call: str) -> Iterator[JournalEntry]:
        if (type(entry), call) not in self._told:
            self._told.add((type(entry), call))
            yield entry
