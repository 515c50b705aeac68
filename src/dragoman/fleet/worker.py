"""A worker: takes turns from the queue, renews their leases while they run, and records their outcomes.

PgQueuer's dequeue takes jobs, gives each a lease, finds those whose lease has expired, and enforces each provider's
limit of turns over all workers (a provider is one of its entry points). Its QueueManager is not used, because it renews
and removes jobs whoever holds them: a worker that had been away could take a turn from its successor. Here only the
holder of a job renews and removes it, and removes it in the transaction that records the outcome and queues the
conversation's next turn.

A worker that cannot continue (its lease is gone, another one writes, the database is away) records no outcome: the job
is delivered again, here or elsewhere. When told to stop, it takes no more turns, and each running turn is handed back
before its next model call, or after `grace` seconds.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Final, Unpack

from msgspec import Struct

from dragoman._checks import CheckedMeta, Positive
from dragoman._crashes import log_crash
from dragoman.chat import AsyncChatClient
from dragoman.conversation import ToolCall, ToolResult
from dragoman.engines import Reply
from dragoman.errors import (
    ConfigurationError,
    DragomanError,
    FleetError,
    StoreConflictError,
    StoreUnavailableError,
    UnknownAgentError,
)
from dragoman.loop import ENDINGS, LoopHooks, LoopRun
from dragoman.stores import PostgresOptions

from .carrying import Agent, TurnStore, carry_out, patiently
from .client import lock, queue_next
from .database import Connection, Database, Job, Row, complete_address, listen
from .turns import ask_from_json, outcome_to_json

_log: Final = logging.getLogger("dragoman.fleet")
_LOOK: Final = 1.0
"""Seconds after which a worker looks into the queue without a notification."""
_PAUSE: Final = 0.05
"""The least seconds between two looks into the queue, and between two notifications, to batch what has come up."""
_HOUR: Final = 3600.0

_CLAIM: Final = """UPDATE {s}fleet_turn SET state = 'running', attempts = attempts + 1, began = coalesce(began, now())
    WHERE id = ANY($1) AND state IN ('queued', 'running')
    RETURNING id, conversation, agent, ask, existed, cancel, attempts, handed,
        EXISTS (SELECT FROM {s}chain WHERE root = conversation) AS exists"""
_BEAT: Final = "UPDATE {s}pgqueuer SET heartbeat = now() WHERE id = ANY($1) AND queue_manager_id = $2 RETURNING id"
_END_JOB: Final = "DELETE FROM {s}pgqueuer WHERE id = $1 AND queue_manager_id = $2 RETURNING id"
_FINISH: Final = """WITH job AS (DELETE FROM {s}pgqueuer WHERE id = $1 AND queue_manager_id = $2 RETURNING id)
    UPDATE {s}fleet_turn SET state = $4, outcome = $5, ended = now()
    WHERE id = $3 AND ended IS NULL AND EXISTS (SELECT FROM job) RETURNING id"""
_HAND_BACK: Final = """WITH job AS (UPDATE {s}pgqueuer SET status = 'queued', queue_manager_id = NULL, slot = NULL
        WHERE id = $1 AND queue_manager_id = $2 RETURNING payload)
    UPDATE {s}fleet_turn SET state = 'queued', handed = handed + $4 WHERE id = $3 AND EXISTS (SELECT FROM job)"""
_OFFER: Final = """INSERT INTO {s}fleet_agent SELECT name, provider, now() FROM unnest($1::text[], $2::text[])
    AS a (name, provider) ORDER BY name ON CONFLICT (name) DO UPDATE SET provider = EXCLUDED.provider, seen = now()"""
# Jobs are queued by provider: if an agent's provider changes, its jobs move.
_MOVE: Final = """WITH moved AS (UPDATE {s}fleet_turn t SET provider = a.provider FROM {s}fleet_agent a
        WHERE t.agent = a.name AND t.state IN ('queued', 'running') AND t.provider <> a.provider
        RETURNING t.id, a.provider)
    UPDATE {s}pgqueuer j SET entrypoint = m.provider, slot = NULL FROM moved m
    WHERE j.payload = convert_to(m.id, 'UTF8')"""
# When the next call may start. After an idle time a burst of one second's calls is allowed.
_LET_THROUGH: Final = """INSERT INTO {s}fleet_rate AS r VALUES ($1, clock_timestamp() + $2)
    ON CONFLICT (provider) DO UPDATE SET next = greatest(r.next, clock_timestamp() - interval '1 second') + $2
    RETURNING extract(epoch FROM next - $2 - clock_timestamp())::float8 AS seconds"""
# Turns with pending calls are kept.
_FORGET: Final = """DELETE FROM {s}fleet_turn t WHERE ended < now() - $1::interval AND (state <> 'await_approval'
    OR EXISTS (SELECT FROM {s}fleet_turn n WHERE n.conversation = t.conversation AND n.number > t.number
        AND n.state NOT IN ('failed', 'cancelled')))"""
_FORGET_LOG: Final = "DELETE FROM {s}pgqueuer_log WHERE created < now() - interval '1 day'"
_IS_NEW: Final = '"insert"'
"""In PgQueuer's notifications: {"operation": "insert", …}."""


class ProviderLimit(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider's limits for the whole fleet; all workers should set the same."""

    concurrency: Positive | None = None
    """Running turns at once, tools included. None: no limit."""
    requests: Positive | None = None
    """Calls of its models per minute. None: no limit."""


class _HandBack(Exception):  # noqa: N818 -- nothing is wrong
    """The worker is stopping, and another one continues the turn."""


class _Running(LoopHooks):
    """A running turn, and the hooks of its loop."""

    def __init__(self, worker: Worker, job: Job, row: Row) -> None:
        self.worker: Final = worker
        self.job: Final = job
        self.row: Final = row
        self.store: Final = TurnStore(worker.database.store, lambda: worker.holds(job))
        self.client: AsyncChatClient | None = None
        self.is_cancelled: bool = row["cancel"]
        self.task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """Cancel the turn."""
        self.is_cancelled = True
        if self.client is not None:
            self.client.cancel()

    def let_go(self) -> None:
        """Drop the turn, which another worker has now: nothing more is written here."""
        self.store.is_closed = True
        if self.client is not None:
            self.client.cancel()

    async def before_model(self, run: LoopRun) -> None:
        if self.worker.is_stopping:
            raise _HandBack
        if self.is_cancelled:
            run.cancel()
        self._notify()
        await self.worker.await_rate(self.row["agent"], lambda: run.stop.cancelled)

    def before_tools(self, run: LoopRun, calls: tuple[ToolCall, ...]) -> None:
        if self.is_cancelled:  # before the client had a run to cancel
            run.cancel()

    def after_model(self, run: LoopRun, reply: Reply) -> None:
        self._notify()

    def tool_started(self, run: LoopRun, call: ToolCall) -> None:
        self._notify()

    def tool_finished(self, run: LoopRun, result: ToolResult) -> None:
        self._notify()

    def after_tools(self, run: LoopRun, results: tuple[ToolResult, ...]) -> None:
        self._notify()

    def _notify(self) -> None:
        self.worker.notify(self.row["conversation"])


class Worker:
    """Runs turns of conversations for a fleet, with the agents that it has.

    `url` and the further options are those of the PostgresStore that holds the conversations.
    """

    def __init__(
        self,
        url: str = "",
        agents: Mapping[str, Agent] | None = None,
        *,
        limits: Mapping[str, ProviderLimit] | None = None,
        concurrency: int = 20,
        lease: float = 30.0,
        grace: float = 30.0,
        max_attempts: int = 5,
        keep: float = 7 * 86_400.0,
        **options: Unpack[PostgresOptions],
    ) -> None:
        """
        limits        of each provider, over all workers
        concurrency   turns that this worker runs at once
        lease         seconds after which the turns of a silent worker are taken over
        grace         seconds that running turns have when the worker is told to stop
        max_attempts  how many workers may die over a turn before it fails
        keep          seconds after which an ended turn is deleted
        """
        if not agents:
            message = "A worker needs agents."
            raise ConfigurationError(message, hint="Pass them: Worker(url, agents={'support': Agent('openai:gpt-5')}).")
        if concurrency < 1 or lease <= 0 or grace < 0 or max_attempts < 1:
            message = "concurrency, lease and max_attempts of a worker must be above 0, and grace not below."
            raise ConfigurationError(message)
        self.agents: Final = dict(agents)
        self._limits: Final = dict(limits or {})
        self._concurrency: Final = concurrency
        self._lease: Final = lease
        self._grace: Final = grace
        self._max_attempts: Final = max_attempts
        self._keep: Final = timedelta(seconds=keep)
        self._url: Final = complete_address(url, lease)
        self._options: Final = options
        self._id: Final = uuid.uuid4()
        self._running: Final[dict[str, _Running]] = {}
        self._changed: Final[set[str]] = set()
        self._has_more: bool = False
        """Whether there may be turns in the queue that nobody has taken."""

    # --- its life ---

    def serve(self) -> None:
        """Work until SIGTERM or Ctrl-C: the first one lets turns end as described, the second stops at once."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        work = asyncio.create_task(self.run())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: self.stop(at_once=self.is_stopping))
        try:
            await work
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def run(self) -> None:
        """Work until `stop` is called."""
        self._stop, self._hurry = asyncio.Event(), asyncio.Event()
        self._wake, self._has_changes = asyncio.Event(), asyncio.Event()
        self.database = Database(self._url, on_loop=True, **self._options)
        database = self.database
        channels = (f"{database.schema}_queue", database.cancels)
        try:
            if not await database.run(database.has_tables):
                await database.install()
            await self._offer()
            helpers = [
                asyncio.create_task(each)
                for each in (
                    self._always(self._lease / 3, self._beat),
                    self._always(min(30.0, self._lease), self._offer),
                    self._always(_HOUR, self._clean),
                    self._notify_changes(),
                    listen(database, channels, self._hear),
                )
            ]
            try:
                _log.info("worker %s takes turns of %s", self._id, ", ".join(self.agents))
                await self._take_turns()
                await self._finish_turns()
            finally:
                await self._flush()
                for helper in helpers:
                    helper.cancel()
                await asyncio.gather(*helpers, return_exceptions=True)
        finally:
            for agent in self.agents.values():
                await agent.aclose()
            await database.close()

    def stop(self, *, at_once: bool = False) -> None:
        """Take no more turns; `run` returns when the running ones have ended or were handed back."""
        self._stop.set()
        self._wake.set()
        if at_once:
            self._hurry.set()

    @property
    def is_stopping(self) -> bool:
        """Whether the worker was told to stop."""
        return self._stop.is_set()

    async def _finish_turns(self) -> None:
        tasks = [each.task for each in self._running.values() if each.task is not None]
        if not tasks:
            return
        _log.info("%d turns are running, and have %g seconds", len(tasks), self._grace)
        hurry = asyncio.create_task(self._hurry.wait())
        done = asyncio.create_task(asyncio.wait(tasks))
        await asyncio.wait([hurry, done], timeout=self._grace, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        for each in list(self._running.values()):
            each.store.is_closed = True  # a call that has begun is then uncertain, as after a crash
            if each.task is not None:
                each.task.cancel()
        await done

    # --- the queue ---

    async def _take_turns(self) -> None:
        while not self.is_stopping:
            self._wake.clear()
            free = self._concurrency - len(self._running)
            taken: list[tuple[Job, Row]] = []
            if free > 0:
                self._has_more = False
                try:
                    taken = await self.database.run(lambda link, free=free: self._take(link, free))
                except StoreUnavailableError as error:
                    _log.warning("%s", error)
            for job, row in taken:
                if row["id"] not in self._running:  # else its lease was late, and it still runs here
                    each = self._running[row["id"]] = _Running(self, job, row)
                    each.task = asyncio.create_task(self._run_turn(each))
            self._has_more = self._has_more or len(taken) == free
            await asyncio.sleep(_PAUSE)
            if not (taken and self._has_more and len(self._running) < self._concurrency):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), min(_LOOK, self._lease / 4))

    async def _take(self, link: Connection, free: int) -> list[tuple[Job, Row]]:
        providers = {agent.provider for agent in self.agents.values()}
        limits = {name: self._limits.get(name, ProviderLimit()).concurrency or 0 for name in providers}
        jobs = await self.database.take_jobs(link, self._id, limits, free, timedelta(seconds=self._lease))
        if not jobs:
            return []
        by_turn = {(job.payload or b"").decode(): job for job in jobs}
        rows = await link.fetch(self.database.named(_CLAIM), list(by_turn))
        for row in rows:
            if row["id"] in self._running:
                await link.fetch(
                    self.database.named("UPDATE {s}fleet_turn SET attempts = attempts - 1 WHERE id = $1"), row["id"]
                )
        for job in [job for turn, job in by_turn.items() if turn not in {row["id"] for row in rows}]:
            await link.fetch(self.database.named(_END_JOB), job.id, self._id)  # its turn has ended
        return [(by_turn[row["id"]], row) for row in rows]

    async def _always(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except DragomanError as error:
                _log.warning("%s", error)

    async def _beat(self) -> None:
        """Renew the leases, drop turns that others have taken, and cancel those that were cancelled."""
        held = {each.job.id: each for each in self._running.values()}
        if not held:
            return
        fetch = self.database.fetch
        kept = {row["id"] for row in await fetch(_BEAT, list(held), self._id)}
        for id, each in held.items():
            if id not in kept:
                each.let_go()
        ids = [each.row["id"] for each in held.values()]
        for row in await fetch("SELECT id FROM {s}fleet_turn WHERE id = ANY($1) AND cancel", ids):
            self._hear(row["id"])

    async def holds(self, job: Job) -> bool:
        """Whether the job is this worker's."""
        return bool(await self.database.fetch(_BEAT, [job.id], self._id))

    async def _offer(self) -> None:
        """Record which agents this worker has."""
        agents = self.agents.items()
        await self.database.fetch(_OFFER, [name for name, _ in agents], [agent.provider for _, agent in agents])
        await self.database.fetch(_MOVE)

    async def _clean(self) -> None:
        await self.database.fetch(_FORGET, self._keep)
        await self.database.fetch(_FORGET_LOG)

    async def await_rate(self, agent: str, is_over: Callable[[], bool]) -> None:
        """Wait until the agent's provider may be called once more."""
        provider = self.agents[agent].provider
        limit = self._limits.get(provider, ProviderLimit()).requests
        if limit is None:
            return
        [row] = await patiently(lambda: self.database.fetch(_LET_THROUGH, provider, timedelta(seconds=60 / limit)))
        left: float = row["seconds"]
        while left > 0 and not is_over():
            await asyncio.sleep(min(left, 0.25))
            left -= 0.25

    # --- notifications ---

    def _hear(self, payload: str | None) -> None:
        """Handle a notification: a turn was cancelled, or the queue has changed."""
        if payload is not None and payload in self._running:
            self._running[payload].cancel()
        elif payload is None or self._limits or _IS_NEW in payload:  # under a limit, an ended turn makes room, too
            self._has_more = True
            self._wake.set()

    def notify(self, *ids: str) -> None:
        """Notify callers and watchers that something about these has changed."""
        self._changed.update(ids)
        self._has_changes.set()

    async def _notify_changes(self) -> None:
        # Not in the transactions of the steps: in the whole server only one commit that notifies runs at a time.
        while True:
            await self._has_changes.wait()
            self._has_changes.clear()
            await self._flush()
            await asyncio.sleep(_PAUSE)

    async def _flush(self) -> None:
        changed = list(self._changed)
        self._changed.clear()
        if changed:
            with suppress(DragomanError):  # everybody also looks without a notification
                await self.database.fetch(
                    "SELECT pg_notify($1, id) FROM unnest($2::text[]) AS c (id)", self.database.steps, changed
                )

    # --- a turn ---

    async def _run_turn(self, running: _Running) -> None:
        turn: str = running.row["id"]
        try:
            state, outcome = await self._carry_out(running)
            await patiently(lambda: self.database.run(lambda link: self._finish(link, running, state, outcome)))
            self.notify(turn, running.row["conversation"])
        except (_HandBack, asyncio.CancelledError):  # the latter when its grace is over
            await self._hand_back(running, stopping=True)
        except (StoreConflictError, StoreUnavailableError) as error:
            _log.warning("turn %s is dropped: %s", turn, error)
            await self._hand_back(running, stopping=False)
        finally:
            self._running.pop(turn, None)
            if self._has_more:
                self._wake.set()

    async def _carry_out(self, running: _Running) -> tuple[str, bytes]:
        """Run the turn: how it ended, and its outcome."""
        row = running.row
        try:
            if running.is_cancelled:
                return "cancelled", outcome_to_json(None)
            if row["attempts"] - row["handed"] > self._max_attempts:
                message = f"{self._max_attempts} workers have died over this turn, or lost it."
                raise FleetError(message, hint="Look at their logs. Then continue with resume(turn).")
            agent = self.agents.get(row["agent"])
            if agent is None:
                message = f"The worker that took the turn has no agent {row['agent']!r}."
                raise UnknownAgentError(message, agent=row["agent"], known=tuple(self.agents))
            ask = ask_from_json(self.database.records.unseal(row["ask"], "ask", row["id"]))
            running.client = agent.make_client(row["conversation"], running.store, running)
            async with running.client as client:
                result, new = await carry_out(
                    client,
                    running.store,
                    ask,
                    row["conversation"],
                    exists=row["exists"],
                    existed=row["existed"],
                    again=row["attempts"] > 1,
                )
            if running.store.is_closed:
                raise StoreConflictError("The lease was lost.")
            return ENDINGS[type(result.ending)], outcome_to_json(result, new)
        except (StoreConflictError, StoreUnavailableError, _HandBack):
            raise
        except DragomanError as error:
            if running.store.is_closed:
                raise StoreConflictError("The lease was lost.") from error
            return "failed", outcome_to_json(error)
        except Exception as error:  # noqa: BLE001 -- the caller gets it
            log_crash(_log, "turn %s crashed", row["id"], error=error)
            return "failed", outcome_to_json(FleetError(f"The worker failed: {type(error).__name__}: {error}"))

    async def _finish(self, link: Connection, running: _Running, state: str, outcome: bytes) -> None:
        """Record the outcome and queue the conversation's next turn, unless another worker has the turn now."""
        database, row = self.database, running.row
        await lock(link, row["conversation"])
        sealed = database.records.seal(outcome, "outcome", row["id"])
        if await link.fetch(database.named(_FINISH), running.job.id, self._id, row["id"], state, sealed):
            await queue_next(database, link, row["conversation"])

    async def _hand_back(self, running: _Running, *, stopping: bool) -> None:
        """Put the turn back into the queue, if it is ours; because the worker stops, this attempt does not count."""
        with suppress(DragomanError):  # else it is delivered again when its lease expires
            await self.database.fetch(_HAND_BACK, running.job.id, self._id, running.row["id"], int(stopping))
            _log.info("turn %s was handed back", running.row["id"])
