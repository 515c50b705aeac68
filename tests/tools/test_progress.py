"""What any tool may do while it runs: say how it goes, wait for a person, and tell what models behind it used."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from dragoman.conversation import (
    Conversation,
    Event,
    HandedOver,
    Message,
    TextDelta,
    ToolCall,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    Usage,
    conversation_from_json,
    conversation_to_json,
)
from dragoman.tools import (
    Paused,
    PendingApproval,
    ToolConfig,
    ToolContext,
    ToolExecutor,
    ToolPaused,
    ToolRun,
    approve,
    deny,
    tool,
)
from dragoman.tools.batch import _MAX_UNREAD

Watch = Callable[..., list[Any]]


@pytest.fixture(params=["plain", "async"])
def watch(request: pytest.FixtureRequest) -> Watch:
    """Carries calls out and gives what happened."""

    def plain(executor: ToolExecutor, calls: list[ToolCall], run: ToolRun) -> list[Any]:
        return list(executor.events(executor.batch(calls, run)))

    def on_loop(executor: ToolExecutor, calls: list[ToolCall], run: ToolRun) -> list[Any]:
        async def collect() -> list[Any]:
            return [event async for event in executor.aevents(executor.batch(calls, run))]

        return asyncio.run(collect())

    return plain if request.param == "plain" else on_loop


@tool
def count(context: ToolContext[Any], to: int) -> str:
    """Count aloud."""
    for number in range(to):
        context.report(str(number))
    return "counted"


@tool
async def acount(context: ToolContext[Any], to: int) -> str:
    """Count aloud."""
    for number in range(to):
        context.report(str(number))
        await asyncio.sleep(0)
    return "counted"


@pytest.mark.parametrize("parallel", [1, 3])
def test_reports_stand_between_start_and_end_in_order(watch: Watch, parallel: int) -> None:
    calls = [ToolCall(f"c{n}", "count" if n % 2 else "acount", '{"to": 200}') for n in range(5)]
    with ToolExecutor([count, acount], ToolConfig(max_parallel_tools=parallel)) as executor:
        events = watch(executor, calls, ToolRun(watched=True))
    for call in calls:
        of_call = [e for e in events if getattr(e, "call_id", "") == call.id]
        assert [each.said for each in of_call] == [str(number) for number in range(200)]
        begin = events.index(ToolStarted(call))
        end = next(n for n, e in enumerate(events) if isinstance(e, ToolFinished) and e.result.call_id == call.id)
        assert all(begin < events.index(each) < end for each in of_call)


def test_reports_are_dropped_without_a_reader(watch: Watch) -> None:
    with ToolExecutor([count]) as executor:
        events = watch(executor, [ToolCall("c", "count", '{"to": 5}')], ToolRun())
    assert [type(event) for event in events] == [ToolStarted, ToolFinished]


def test_reports_from_many_threads(watch: Watch) -> None:
    @tool
    def spread(context: ToolContext[Any]) -> str:
        """Speak with many voices."""
        threads = [
            threading.Thread(target=lambda n=n: [context.report(f"{n} {i}") for i in range(50)]) for n in range(8)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return "said"

    with ToolExecutor([spread]) as executor:
        events = watch(executor, [ToolCall("c", "spread")], ToolRun(watched=True))
    said = [event.said for event in events if isinstance(event, ToolProgress)]
    assert len(said) == 400
    for voice in range(8):
        own = [int(text.split()[1]) for text in said if text.startswith(f"{voice} ")]
        assert own == sorted(own)


def test_behind_too_many_unread_reports_further_ones_are_left_out() -> None:
    @tool
    def babble(context: ToolContext[Any]) -> str:
        """Speak without end."""
        for number in range(_MAX_UNREAD + 25):
            context.report(str(number))
        return "said"

    # In the caller's own thread nobody reads before the function is done.
    with ToolExecutor([babble], ToolConfig(max_parallel_tools=1)) as executor:
        events = list(executor.events(executor.batch([ToolCall("c", "babble")], ToolRun(watched=True))))
    said = [event.said for event in events if isinstance(event, ToolProgress)]
    assert said == [str(number) for number in range(_MAX_UNREAD)]
    assert isinstance(events[-1], ToolFinished)


def test_what_is_said_too_late_is_not_heard(watch: Watch) -> None:
    timed_out, said = threading.Event(), threading.Event()

    @tool(timeout=0.05)
    def slow(context: ToolContext[Any]) -> str:
        """Too slow."""
        timed_out.wait(30)
        context.report("too late")
        said.set()
        return "never"

    @tool
    def other() -> str:
        """Keeps the batch open until then."""
        return str(said.wait(30))

    def look(call: ToolCall, _result: Any) -> None:
        if call.name == "slow":
            timed_out.set()

    with ToolExecutor([slow, other], on_result=look) as executor:
        events = watch(executor, [ToolCall("a", "slow"), ToolCall("b", "other")], ToolRun(watched=True))
    assert [event.result.text for event in events if isinstance(event, ToolFinished)][1] == "True"
    assert not [event for event in events if isinstance(event, ToolProgress)]


def test_the_json_of_events_inside_events() -> None:
    inner = ToolProgress("c2", "helper", TextDelta(0, "", "Hi"))
    event = ToolProgress("c1", "clerk", inner, left_out=2)
    data = msgspec.json.encode(event)
    assert msgspec.json.decode(data)["said"]["said"] == {"type": "text_delta", "index": 0, "id": "", "text": "Hi"}
    assert msgspec.json.decode(data, type=ToolProgress) == event
    handed = HandedOver("billing", "openai:gpt-4o", ("a part",))
    assert msgspec.json.decode(msgspec.json.encode(handed), type=HandedOver) == handed
    assert msgspec.json.decode(msgspec.json.encode(event), type=Event) == event  # type: ignore[arg-type]


# --- pausing ----------------------------------------------------------------------------------------------------------

TRANSFER = ToolCall("t", "transfer", '{"amount": 5}')


@tool
def pay(context: ToolContext[Any]) -> str:
    """Pay, if somebody agrees."""
    said = context.answer_about(TRANSFER)
    if said is None:
        raise Paused([PendingApproval(call=TRANSFER, reason="it is much")])
    return "paid" if said.approved else f"not paid: {said.reason}"


@pytest.mark.parametrize("agreed", [True, False])
def test_a_tool_waits_for_a_person(watch: Watch, agreed: bool) -> None:
    call = ToolCall("c1", "pay")
    with ToolExecutor([pay]) as executor:
        batch = executor.batch([call], ToolRun())
        assert [type(event) for event in executor.events(batch)] == [ToolStarted, ToolPaused]
        (waiting,) = batch.pending
        assert batch.results == ()
        assert waiting == PendingApproval(
            call=ToolCall("c1>t", "transfer", '{"amount": 5}'), reason="it is much", within=call
        )
        answer = approve(waiting.call) if agreed else deny(waiting.call, reason="no")
        (_, done) = watch(executor, [call], ToolRun(approvals=[answer]))
        assert done.result.text == ("paid" if agreed else "not paid: no")
        # An answer about other arguments, or inside another call, is none.
        other = msgspec.structs.replace(waiting.call, arguments='{"amount": 500}')
        again = executor.execute_all([call], ToolRun(approvals=[approve(other)]))
        assert again.pending == (waiting,)
        elsewhere = executor.execute_all([ToolCall("c2", "pay")], ToolRun(approvals=[answer]))
        assert elsewhere.pending[0].call.id == "c2>t"


def test_a_pause_that_cannot_be_resumed_is_denied() -> None:
    with ToolExecutor([pay]) as executor:
        (result,) = executor.execute_all([ToolCall("c1", "pay")], ToolRun(pauses=False)).results
        assert result.error_type == "denied"
        assert "cannot be given here" in result.text
        assert "much" in executor.execute(ToolCall("c1", "pay")).text


def test_an_approved_call_that_pauses_is_not_asked_for_again() -> None:
    asking = msgspec.structs.replace(pay, options=msgspec.structs.replace(pay.options, requires_approval=True))
    call = ToolCall("c1", "pay")
    with ToolExecutor([asking]) as executor:
        (first,) = executor.execute_all([call]).pending
        assert first.within is None
        (second,) = executor.execute_all([call], ToolRun(approvals=[approve(call)])).pending
        assert second.within == call
        (result,) = executor.execute_all([call], ToolRun(approvals=[approve(second.call)])).results
        assert result.text == "paid"


# --- what was used ----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 1000), st.one_of(st.none(), st.floats(0, 9))), min_size=1, max_size=5))
def test_what_models_behind_a_tool_used_is_in_its_result(calls: list[tuple[int, float | None]]) -> None:
    @tool
    def ask(context: ToolContext[Any]) -> str:
        """Ask models."""
        for tokens, cost in calls:
            context.used(Usage(input=tokens, output=0, charged=cost))
        context.used(tool_calls=2)
        raise ValueError("after all that")

    run = ToolRun()
    with ToolExecutor([ask]) as executor:
        result = executor.execute(ToolCall("c", "ask"), run)
    assert result.is_error
    assert result.usage is not None
    assert result.usage.tokens == sum(tokens for tokens, _ in calls)
    known = all(cost is not None for _, cost in calls)
    assert (result.usage.charged is not None) == known
    meter = run.meter
    assert (meter.model_calls, meter.tool_calls, meter.tokens) == (len(calls), 2, result.usage.tokens)
    assert meter.inside == result.usage
    kept = Conversation(messages=(Message.user("x"), Message.assistant(ToolCall("c", "ask")), Message.tool([result])))
    assert conversation_from_json(conversation_to_json(kept)) == kept
    assert kept.usage.tokens == result.usage.tokens
