"""Submit, wait, approve, cancel and watch; limits; wrong input."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from msgspec import structs

from dragoman import ToolContext, agent_tool, errors, tool
from dragoman.conversation import Message, ToolCall, Usage
from dragoman.engines import AsyncScriptedEngine
from dragoman.fleet import Agent, AsyncFleet, Fleet, ProviderLimit, TurnEnded, Worker, prometheus_text
from dragoman.fleet.turns import VERSION
from dragoman.simulator import Reply, Request, Simulator
from dragoman.stores import (
    AesGcmSealing,
    MessageAdded,
    PostgresStore,
    Records,
    ToolCallBegun,
    ToolCallDone,
    conversation_id,
    generate_encryption_key,
    new_id,
)
from dragoman.tools import Paused, PendingApproval
from tests.fleet.program import Setup, ended, make_worker
from tests.fleet.waiting import at_work, fleet_at_work, offered, until
from tests.loops import on_loop
from tests.stores.postgres_server import Server

pytestmark = pytest.mark.slow


@pytest.fixture
def setup(server: Server, schema: str, simulator: Simulator, tmp_path: Path) -> Setup:
    with Fleet(server.conninfo, schema=schema) as fleet:
        fleet.install()
        fleet.install()  # twice does no harm
    return Setup(url=server.conninfo, schema=schema, base_url=simulator.base_url("openai"), book=str(tmp_path / "book"))


def open_fleet(setup: Setup) -> AsyncFleet:
    return AsyncFleet(setup.url, schema=setup.schema)


# --- a turn ----------------------------------------------------------------------------------------------------------


@on_loop
async def test_a_turn_is_submitted_and_awaited(setup: Setup) -> None:
    async with fleet_at_work(setup) as fleet:
        turn = await fleet.submit("7", agent="teller")
        outcome = await fleet.wait(turn, 20)
        assert (str(outcome), outcome.ending, outcome.pending) == ("7: 3 results", "done", ())
        assert outcome.usage.output
        assert await fleet.wait(turn.id) == outcome  # as often as one likes
        again = await fleet.submit("hello", agent="teller", conversation=turn.conversation)
        assert (await fleet.wait(again, 20)).text == "You said: hello"
        with PostgresStore(setup.url, schema=setup.schema) as store:
            newest = store.latest(turn.conversation)
        assert [message.role for message in newest.messages][-2:] == ["user", "assistant"]
        assert newest.id != turn.conversation  # any snapshot names its conversation
        third = await fleet.submit("once more", agent="teller", conversation=newest.id)
        assert third.conversation == turn.conversation
        assert (await fleet.wait(third, 20)).text == "You said: once more"
    assert ended(Path(setup.book)) == ["7-0", "7-1", "7-2"]


@on_loop
async def test_the_sync_fleet(setup: Setup) -> None:
    def plain() -> list[type]:
        with Fleet(setup.url, schema=setup.schema) as fleet:
            turn = fleet.submit("7", agent="teller")
            assert fleet.wait(turn, 20).text == "7: 3 results"
            with pytest.raises(errors.FleetError, match="has no pending calls"):
                fleet.approve(turn)
            assert fleet.cancel(turn) == "done"
            assert fleet.wait(fleet.resume(turn), 20).text == "7: 3 results"
            [row] = fleet.status()
            assert (row.agent, row.provider, row.queued, row.running) == ("teller", "openai-compatible", 0, 0)
            assert row.ended == {"done": 2}
            return [type(event) for event in fleet.watch(turn)]

    async with fleet_at_work(setup):
        seen = await asyncio.to_thread(plain)
    call = [MessageAdded, ToolCallBegun, ToolCallDone, MessageAdded]
    assert seen == [MessageAdded, *call, *call, *call, MessageAdded, TurnEnded]


@on_loop
async def test_turns_of_a_conversation_run_in_order_one_at_a_time(setup: Setup) -> None:
    async with fleet_at_work(setup, make_worker(setup), make_worker(setup)) as fleet:
        talk = new_id()
        turns = [await fleet.submit(str(number), agent="teller", conversation=talk) for number in range(1, 7)]
        outcomes = await asyncio.gather(*[fleet.wait(turn, 30) for turn in turns])
    assert [outcome.text for outcome in outcomes] == [f"{number}: 3 results" for number in range(1, 7)]
    assert ended(Path(setup.book)) == [f"{number}-{at}" for number in range(1, 7) for at in range(3)]


@on_loop
async def test_the_same_turn_may_be_submitted_twice(setup: Setup) -> None:
    async with fleet_at_work(setup) as fleet:
        id, talk = new_id(), conversation_id("telegram:42")
        for _ in range(2):
            turn = await fleet.submit("7", agent="teller", conversation=talk, id=id)
            assert (await fleet.wait(turn, 20)).text == "7: 3 results"
        id = new_id()
        first, second = [await fleet.submit("hello", agent="teller", id=id) for _ in range(2)]
        assert first == second, "also without a conversation"
    assert ended(Path(setup.book)) == ["7-0", "7-1", "7-2"]


@on_loop
async def test_a_watcher_sees_the_end_of_a_turn_after_a_later_one_ended(setup: Setup) -> None:
    async with open_fleet(setup) as fleet:
        async with at_work(make_worker(setup)):
            await offered(fleet)
        first = await fleet.submit("hello", agent="teller")
        second = await fleet.submit("b", agent="teller", conversation=first.conversation)

        async def watch() -> list[str]:
            ends = [each async for each in fleet.watch(first) if isinstance(each, TurnEnded)]
            return [each.outcome.turn.id for each in ends if each.outcome is not None]

        watching = asyncio.create_task(watch())
        await fleet.cancel(second)
        await asyncio.sleep(0.3)
        async with at_work(make_worker(setup)):
            assert set(await asyncio.wait_for(watching, 20)) == {first.id, second.id}


@on_loop
async def test_a_failed_turn_is_resumed_and_an_agent_may_change_its_provider(setup: Setup) -> None:
    keyless = Agent("openai:gpt-5", base_url="https://api.openai.com/v1")
    mended = Agent("anthropic:claude-sonnet-4-5", base_url=setup.base_url.removesuffix("/v1"), key="k")
    async with open_fleet(setup) as fleet:
        async with at_work(Worker(setup.url, {"a": keyless}, schema=setup.schema)):
            await offered(fleet)
            turn = await fleet.submit("hello", agent="a")
            with pytest.raises(errors.MissingKeyError):
                await fleet.wait(turn, 20)
        again = await fleet.resume(turn)  # queued for a provider that nobody has any more
        async with at_work(Worker(setup.url, {"a": mended}, schema=setup.schema)):
            assert "hello" in (await fleet.wait(again, 20)).text


@on_loop
async def test_early_and_late_watchers_see_each_step_once(setup: Setup) -> None:
    async with open_fleet(setup) as fleet:
        async with at_work(make_worker(setup)):
            await offered(fleet)
        turn = await fleet.submit("7", agent="teller")

        async def watch(after: int = 0) -> list[object]:
            return [event async for event in fleet.watch(turn, after=after)]

        early = asyncio.create_task(watch())
        await asyncio.sleep(0.1)
        async with at_work(make_worker(setup)):
            seen = await asyncio.wait_for(early, 20)
        assert seen == await watch()
        assert isinstance(seen[-1], TurnEnded)
        assert seen[-1].outcome is not None
        assert seen[-1].outcome.text == "7: 3 results"
        behind = await watch(5)
        assert behind == seen[-len(behind) :]
        assert len([event for event in behind if isinstance(event, MessageAdded)]) == 3


# --- approvals -------------------------------------------------------------------------------------------------------


@on_loop
async def test_calls_wait_for_approval_and_any_worker_continues(setup: Setup) -> None:
    asking = structs.replace(setup, ask=True)
    async with open_fleet(setup) as fleet:
        async with at_work(make_worker(asking)):
            await offered(fleet)
            turn = await fleet.submit("7", agent="teller")
            outcome = await fleet.wait(turn, 20)
            assert outcome.ending == "await_approval"
            [pending] = outcome.pending
            assert pending.call == ToolCall("7-0", "pay", '{"number": 7}')
        with pytest.raises(errors.FleetError, match="'nope' is none of them"):
            await fleet.approve(turn, "nope")
        async with at_work(make_worker(asking)):
            outcome = await fleet.wait(await fleet.approve(turn, pending), 20)
            assert [each.call.id for each in outcome.pending] == ["7-2"]
            outcome = await fleet.wait(await fleet.deny(turn.conversation, "7-2", reason="too dear"), 20)
            assert outcome.text == "7: 3 results"
    assert ended(Path(setup.book)) == ["7-0", "7-1"]
    with PostgresStore(setup.url, schema=setup.schema) as store:
        assert "too dear" in store.latest(turn.conversation).messages[-2].tool_results[0].text


@on_loop
async def test_calls_of_an_agent_inside_an_agent_wait_for_approval(setup: Setup) -> None:
    paid: list[int] = []

    @tool(requires_approval=True)
    def pay(number: int) -> str:
        """Pay."""
        paid.append(number)
        return "paid"

    def worker() -> Worker:
        clerk = agent_tool("clerk", "Pays.", AsyncScriptedEngine(inner), [pay])
        return Worker(setup.url, {"boss": Agent(AsyncScriptedEngine(outer), [clerk])}, schema=setup.schema)

    outer: list[Message | str] = [Message.assistant(ToolCall("1", "clerk", '{"prompt": "pay 7"}')), "All is paid."]
    inner: list[Message | str] = [Message.assistant(ToolCall("a", "pay", '{"number": 7}')), "It is paid."]
    async with open_fleet(setup) as fleet:
        async with at_work(worker()):
            await offered(fleet)
            turn = await fleet.submit("pay", agent="boss")
            [pending] = (await fleet.wait(turn, 20)).pending
        assert (pending.call.name, pending.within) == ("pay", ToolCall("1", "clerk", '{"prompt": "pay 7"}'))
        outer, inner = outer[1:], inner[1:]
        async with at_work(worker()):
            assert (await fleet.wait(await fleet.approve(turn, pending), 20)).text == "All is paid."
    assert paid == [7]
    with PostgresStore(setup.url, schema=setup.schema) as store:
        assert store.latest(turn.conversation).messages[2].tool_results[0].text == "It is paid."
        assert [each.root for each in store.list(limit=10).items] == [turn.conversation]


@on_loop
async def test_the_question_of_a_tool_reaches_any_worker(setup: Setup) -> None:
    question = ToolCall("how", "person", "{}")

    @tool
    def travel(context: ToolContext) -> str:
        """Ask how."""
        context.used(Usage(input=30, output=3, charged=0.5))
        if (answer := context.answer_about(question)) is None:
            raise Paused([PendingApproval(call=question, reason="How?")])
        return f"Travelled {answer.reason}."

    def worker() -> Worker:
        return Worker(setup.url, {"boss": Agent(AsyncScriptedEngine(script), [travel])}, schema=setup.schema)

    script: list[Message | str] = [Message.assistant(ToolCall("1", "travel", "{}")), "There."]
    async with open_fleet(setup) as fleet:
        async with at_work(worker()):
            await offered(fleet)
            first = await fleet.wait(turn := await fleet.submit("Go.", agent="boss"), 20)
        assert [(each.call.id, each.reason) for each in first.pending] == [("1>how", "How?")]
        assert (first.spent.model_calls, first.usage.input) == (2, 30)
        script = script[1:]
        async with at_work(worker()):
            answered = await fleet.approve(turn, first.pending[0], reason="by train")
            second = await fleet.wait(answered, 20)
    assert second.text == "There."
    assert (second.spent.model_calls, second.usage.input) == (2, 30)  # each turn has its own
    with PostgresStore(setup.url, schema=setup.schema) as store:
        (result,) = store.latest(turn.conversation).messages[2].tool_results
        assert (result.text, result.usage.input if result.usage else 0) == ("Travelled by train.", 60)


# --- cancelling ------------------------------------------------------------------------------------------------------


@on_loop
async def test_queued_and_running_turns_are_cancelled(setup: Setup) -> None:
    async with fleet_at_work(structs.replace(setup, seconds=1000.0)) as fleet:
        first = await fleet.submit("7", agent="teller")
        second, third = [await fleet.submit(said, agent="teller", conversation=first.conversation) for said in "8b"]
        await until(Path(setup.book).exists)
        assert await fleet.cancel(second) == "cancelled"
        assert (await fleet.wait(second, 5)).ending == "cancelled"
        began = time.monotonic()
        assert await fleet.cancel(first) == "running"
        assert (await fleet.wait(first, 20)).ending == "cancelled"
        assert time.monotonic() - began < 5
        assert (await fleet.wait(third, 20)).text == "You said: b"
        [row] = await fleet.status()
        assert row.ended == {"cancelled": 2, "done": 1}
        text = prometheus_text([row])
        assert 'dragoman_fleet_ended_last_hour{agent="teller",provider="openai-compatible",ending="done"} 1\n' in text
        assert 'dragoman_fleet_turns{agent="teller",provider="openai-compatible",state="queued"} 0\n' in text


@on_loop
async def test_a_turn_that_is_cancelled_in_the_queue_makes_room_for_the_next(setup: Setup) -> None:
    async with open_fleet(setup) as fleet:
        async with at_work(make_worker(setup)):
            await offered(fleet)
        first = await fleet.submit("7", agent="teller")
        second = await fleet.submit("b", agent="teller", conversation=first.conversation)
        with pytest.raises(errors.StoppedError, match="it is queued"):
            await fleet.wait(second, 0.1)
        assert await fleet.cancel(first) == "cancelled"
        async with at_work(make_worker(setup)):
            assert (await fleet.wait(second, 20)).text == "You said: b"
    assert ended(Path(setup.book)) == []


# --- limits ----------------------------------------------------------------------------------------------------------


@on_loop
async def test_limits_hold_over_all_workers(server: Server, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Workers look into the queue only when notified: freed slots are notified, too.
    monkeypatch.setattr("dragoman.fleet.worker._LOOK", 100.0)
    at_once, most, times = 0, 0, list[float]()

    async def script(request: Request) -> Reply | str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        times.append(time.monotonic())
        while most < 3:  # noqa: ASYNC110 -- the first ones wait for each other, however slow the machine is
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        at_once -= 1
        return "yes"

    with Simulator(script) as simulator:

        def make(limit: ProviderLimit) -> Worker:
            agent = Agent("openai-compatible:m", base_url=simulator.base_url("openai"), key="k")
            limits = {"openai-compatible": limit}
            return Worker(server.conninfo, {"a": agent, "b": agent}, schema=schema, limits=limits, lease=400)

        async with AsyncFleet(server.conninfo, schema=schema) as fleet:
            async with at_work(*[make(ProviderLimit(concurrency=3)) for _ in range(3)]):
                await offered(fleet, 2)
                turns = [await fleet.submit("x", agent="ab"[number % 2]) for number in range(24)]
                await asyncio.gather(*[fleet.wait(turn, 60) for turn in turns])
            assert most == 3
            times.clear()
            async with at_work(*[make(ProviderLimit(requests=600)) for _ in range(2)]):
                turns = [await fleet.submit("x", agent="a") for _ in range(25)]
                await asyncio.gather(*[fleet.wait(turn, 30) for turn in turns])
            assert len(times) == 25
            assert times[-1] - times[0] > 1.2, "a second's worth may come at once, the rest in time"


# --- wrong input -----------------------------------------------------------------------------------------------------


@on_loop
async def test_errors_are_raised_for_the_caller(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    @tool
    def broken() -> str:
        """Fail."""
        raise ValueError

    class Broken(AsyncScriptedEngine):
        def call(self, *_args: object, **_options: object) -> None:  # type: ignore[override]
            raise ZeroDivisionError

    agents = {"keyless": Agent("openai:gpt-5"), "buggy": Agent(Broken([]), [broken])}
    worker = Worker(setup.url, agents, schema=setup.schema)
    with psycopg.connect(setup.url, autocommit=True) as connection:
        connection.execute(f"INSERT INTO {setup.schema}.fleet_agent VALUES ('other', 'openai', now())")
        async with fleet_at_work(setup, worker, agents=3) as fleet:
            with pytest.raises(errors.UnknownAgentError, match="buggy, keyless, other") as unknown:
                await fleet.submit("x", agent="nobody")
            assert unknown.value.known == ("buggy", "keyless", "other")
            with pytest.raises(errors.UnknownAgentError, match="took the turn has no agent 'other'") as unknown:
                await fleet.wait(await fleet.submit("x", agent="other"), 20)
            assert unknown.value.known == ("keyless", "buggy")
            with pytest.raises(errors.MissingKeyError) as keyless:
                await fleet.wait(await fleet.submit("x", agent="keyless"), 20)
            assert keyless.value.provider == "openai"
            assert "OPENAI_API_KEY" in str(keyless.value)
            with pytest.raises(errors.FleetError, match="The worker failed: ZeroDivisionError"):
                await fleet.wait(await fleet.submit("x", agent="buggy"), 20)
            with pytest.raises(errors.TurnNotFoundError):
                await fleet.wait(new_id())
            for wrong in ("x", "../../etc"):
                with pytest.raises(errors.InvalidSnapshotIDError):
                    await fleet.submit("x", agent="buggy", conversation=wrong)
            with pytest.raises(errors.ConfigurationError, match="The message is empty"):
                await fleet.submit("", agent="buggy")


@on_loop
async def test_a_payload_of_a_newer_version_and_a_conversation_that_was_deleted(setup: Setup) -> None:
    records = Records("fleet", None)
    async with open_fleet(setup) as fleet:
        async with at_work(make_worker(setup)):
            await offered(fleet)
            gone = await fleet.submit("hello", agent="teller")
            await fleet.wait(gone, 20)
        newer = await fleet.submit("x", agent="teller")
        after = await fleet.submit("again", agent="teller", conversation=gone.conversation)
        with psycopg.connect(setup.url, autocommit=True) as connection:
            data = records.seal(b'{"version":%d,"task":"dance"}' % (VERSION + 1), "ask", newer.id)
            connection.execute(f"UPDATE {setup.schema}.fleet_turn SET ask = %s WHERE id = %s", (data, newer.id))
        with PostgresStore(setup.url, schema=setup.schema) as store:
            store.delete(gone.conversation)
        async with at_work(make_worker(setup)):
            with pytest.raises(errors.UnsupportedVersionError, match=f"version {VERSION + 1}") as found:
                await fleet.wait(newer, 20)
            assert found.value.found == VERSION + 1
            with pytest.raises(errors.SnapshotNotFoundError, match="deleted in the meantime"):
                await fleet.wait(after, 20)
            with pytest.raises(errors.SnapshotNotFoundError, match="deleted in the meantime"):
                await fleet.wait(await fleet.resume(gone), 20)
            anew = await fleet.submit("once more", agent="teller", conversation=gone.conversation)
            assert (await fleet.wait(anew, 20)).text == "You said: once more"


def test_no_server_no_tables_no_agents(server: Server, schema: str, tmp_path: Path) -> None:
    with Fleet(f"host={tmp_path} dbname=x password=hunter2") as fleet:
        with pytest.raises(errors.StoreUnavailableError) as unreachable:
            fleet.submit("x", agent="a")
        assert "hunter2" not in str(unreachable.value)
    with Fleet(server.conninfo, schema=schema) as fleet:
        for attempt in (lambda: fleet.submit("x", agent="a"), fleet.status, lambda: fleet.wait(new_id())):
            with pytest.raises(errors.FleetError, match="has no fleet tables.*dragoman fleet install"):
                attempt()
        with psycopg.connect(server.conninfo) as link:  # reading creates none, sealed or not
            assert link.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone() is None
        fleet.install()
        with pytest.raises(errors.UnknownAgentError, match="they offer: none yet"):
            fleet.submit("x", agent="a")
    with pytest.raises(errors.ConfigurationError, match="cannot be read"):
        Fleet("postgresql://a:b@c@d/x")
    with pytest.raises(errors.ConfigurationError, match="needs agents"):
        Worker(server.conninfo, {})
    with pytest.raises(errors.ConfigurationError, match="'stateless' is an option of a conversation"):
        Agent("openai:gpt-5", stateless=True)


@on_loop
async def test_with_a_seal_nothing_can_be_read_in_the_database(
    server: Server, schema: str, simulator: Simulator
) -> None:
    sealing = AesGcmSealing(generate_encryption_key())
    agent = Agent("openai-compatible:m", base_url=simulator.base_url("openai"), key="sk-planted")
    worker = Worker(server.conninfo, {"a": agent}, schema=schema, sealing=sealing)
    async with at_work(worker), AsyncFleet(server.conninfo, schema=schema, sealing=sealing) as fleet:
        await offered(fleet)
        turn = await fleet.submit("planted words", agent="a")
        assert (await fleet.wait(turn, 20)).text == "You said: planted words"
        async with AsyncFleet(server.conninfo, schema=schema) as without:
            with pytest.raises(errors.SnapshotSealError):
                await without.submit("x", agent="a")
            with pytest.raises(errors.SnapshotSealError):
                await without.wait(turn)
    with psycopg.connect(server.conninfo) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        for [name] in names:
            rows = connection.execute(
                f'SELECT t::text, encode(convert_to(t::text, $$UTF8$$), $$escape$$) FROM {schema}."{name}" t'
            )
            for row in rows:
                assert b"planted".hex() not in str(row)
                assert "planted" not in str(row)


# --- tidying up ------------------------------------------------------------------------------------------------------


@on_loop
async def test_old_turns_are_deleted_unless_they_wait_for_a_person(setup: Setup) -> None:
    asking = structs.replace(setup, ask=True)
    worker = make_worker(asking)
    worker._keep = timedelta(0)
    async with fleet_at_work(setup, worker) as fleet:
        old = await fleet.submit("hello", agent="teller")
        waiting = await fleet.submit("7", agent="teller")
        for turn in (old, waiting):
            await fleet.wait(turn, 20)
        await worker._clean()
        with pytest.raises(errors.TurnNotFoundError):
            await fleet.wait(old)
        after = await fleet.approve(waiting)
        assert (await fleet.wait(after, 20)).ending == "await_approval"
        await worker._clean()
        with pytest.raises(errors.TurnNotFoundError):
            await fleet.wait(waiting)
        assert (await fleet.wait(after)).pending


def test_settings_of_other_programs_that_use_pgqueuer_do_not_matter(
    server: Server, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGQUEUER_PREFIX", "QUEUE_TABLE", "PGQUEUER_SCHEMA", "PGQUEUER_CHANNEL"):
        monkeypatch.setenv(name, "other")
    with Fleet(server.conninfo, schema=schema) as fleet, psycopg.connect(server.conninfo) as connection:
        fleet.install()
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
    assert {"pgqueuer", "pgqueuer_log", "fleet_turn", "chain"} <= {name for [name] in rows}
