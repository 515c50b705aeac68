"""Agents as tools: turns of other clients, their events, approvals, budgets, ends, and what is kept of them."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dragoman import agent_tool
from dragoman.chat import ChatClient, handoff
from dragoman.conversation import (
    Message,
    RunEnded,
    TextDelta,
    ToolCall,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    Usage,
)
from dragoman.engines import AsyncScriptedEngine, ScriptedEngine
from dragoman.errors import ConfigurationError, LimitReachedError, OverloadedError, UnknownCostError
from dragoman.loop import AwaitApproval, Cancelled, LimitReached, Limits
from dragoman.providers import Prices
from dragoman.simulator import Reply, Simulator
from dragoman.stores import AsyncStore, MemoryStore, SqliteStore, is_inner, resume
from dragoman.tools import Allow, Deny, ToolConfig, ToolExecutor, ToolRegistry, approve, deny, execute_tool, tool
from dragoman.transport import SocketTransport
from tests.chat.killed_agents import make_tools
from tests.chat.scenarios import add, delete, weather
from tests.chat.talking import ROOT, WAYS, AsyncTalk, PlainTalk, Stage, Start, Talk, threads_left
from tests.engines.talking import MODELS

ASKING = Message.assistant(ToolCall("c1", "clerk", '{"prompt": "Do it."}'))
DELETING = Message.assistant(ToolCall("c1", "delete", '{"path": "a"}'))
ADDING = Message.assistant(ToolCall("c1", "add", '{"a": 1, "b": 2}'))


def used(message: Message | str, tokens: int = 10, cost: float | None = None) -> Message:
    """A reply that took so many tokens."""
    said = Message.assistant(message) if isinstance(message, str) else message
    return structs.replace(said, usage=Usage(input=tokens - 1, output=1, charged=cost))


def clerk(colour: str, script: list[Any], *tools: Any, name: str = "clerk", **options: Any) -> Any:
    """An agent with a script of its own."""
    engine = (ScriptedEngine if colour == "plain" else AsyncScriptedEngine)(script, piece=4)
    return agent_tool(name, "Does things.", engine, tools, **options)


def store_for(colour: str) -> Any:
    return MemoryStore() if colour == "plain" else AsyncStore(MemoryStore())


def texts(talk: Talk) -> list[str]:
    return [result.text for message in talk.client.history for result in message.tool_results]


# --- one turn inside another ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_an_agent_answers_with_every_provider(model: str, way: str) -> None:
    script = [
        Reply(ToolCall("call_1", "clerk", '{"prompt": "The weather in Lyon?"}')),
        Reply(ToolCall("call_2", "weather", '{"city": "Lyon"}')),
        Reply("It rains."),
        Reply("Take an umbrella."),
    ]
    events: list[Any] = []
    with Simulator(script) as simulator:
        stage = Stage(simulator, model, way)
        agent = agent_tool("clerk", "Knows the weather.", tools=[weather], system="You know the weather.")
        with stage.client([agent, add], system="You help.") as talk:
            result = talk.chat("Umbrella?", callback=events.append)
            assert result.text == "Take an umbrella."
            assert texts(talk) == ["It rains."]
            assert result.spent.model_calls == 4
            assert result.spent.tool_calls == 2
            assert result.usage.tokens == result.spent.tokens == talk.client.usage.tokens
            (answer,) = result.conversation.messages[2].tool_results
            assert answer.usage is not None
            assert answer.usage.known
        systems = [request.system for request in simulator.requests]
        assert systems == ["You help.", "You know the weather.", "You know the weather.", "You help."]
        assert list(simulator.requests[1].tools) == ["weather"]
        assert simulator.wait_until_idle()
    if stage.streamed:
        kinds = [type(event) for event in events]
        first, last = kinds.index(ToolStarted), kinds.index(ToolFinished)
        inside = events[first + 1 : last]
        assert all(isinstance(each, ToolProgress) and each.name == "clerk" for each in inside)
        told = [type(each.said) for each in inside]
        assert told.index(ToolStarted) < told.index(ToolFinished) < told.index(TextDelta)
        assert told[-1] is RunEnded
        assert ToolProgress not in kinds[:first] + kinds[last:]


def test_wrong_options_of_an_agent_are_refused_at_once() -> None:
    for options, message in (
        ({"id": "x"}, "'id' belongs to a conversation"),
        ({"stateless": True}, "'stateless' belongs to a conversation"),
        ({"base_url": "http://127.0.0.1"}, "uses its caller's"),
        ({"transport": SocketTransport()}, "uses its caller's"),
        ({"temperature": 1}, "temperature"),
        ({"limits": 5}, "Expected a Limits, not a int"),
        ({"system": 5}, "cannot be made of a int"),
    ):
        with pytest.raises(ConfigurationError, match=message) as caught:
            agent_tool("clerk", "Does things.", **options)  # type: ignore[arg-type]
        assert caught.value.hint


def test_an_engine_of_the_other_colour_is_refused_at_once(start: Start, colour: str) -> None:
    other = clerk("async" if colour == "plain" else "plain", ["Hi."])
    with pytest.raises(ConfigurationError):
        start(["Hi."], [agent_tool("outer", "Has an agent.", tools=[other])])


@pytest.mark.parametrize(
    ("model", "said"), [("openai:gpt-4o", "no key for openai"), ("opnai:gpt-4o", "no provider"), (42, "not int")]
)
def test_an_unusable_model_is_refused_when_the_client_is_created(
    start: Start, monkeypatch: pytest.MonkeyPatch, model: Any, said: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    inner = agent_tool("inner", "Does things.", model)
    with pytest.raises(ConfigurationError, match=said) as raised:
        start(["Hi"], [agent_tool("outer", "Does things.", tools=[inner])])
    assert raised.value.__notes__ == ["This is about the model of the agent 'inner'."]


def test_a_client_is_a_tool_of_another_one(start: Start, colour: str) -> None:
    other = start([used("Three.")], (), system="You add.")
    talk = start([ASKING, "It is three."], [other.client.as_tool("clerk", "Adds.")])
    assert talk.chat("Add.").text == "It is three."
    assert texts(talk) == ["Three."]
    assert other.client.engine.calls[0].conversation.system == "You add."
    assert other.client.history == ()


def test_an_agent_that_fails_is_a_tool_that_fails(start: Start, colour: str) -> None:
    talk = start([ASKING, "Sorry."], [clerk(colour, [used(ADDING), OverloadedError("busy")], add)])
    assert talk.chat("Do.").text == "Sorry."
    assert "busy" in texts(talk)[0]
    assert talk.client.usage.tokens == 10  # what it used until then is counted


def test_without_a_chat_client_an_agent_has_a_model_of_its_own() -> None:
    agent = clerk("plain", [DELETING, "Not done."], delete)
    assert execute_tool([agent], "clerk", {"prompt": "Delete."}) == "Not done."
    with pytest.raises(Exception, match="not called by a chat client"):
        execute_tool([agent_tool("clerk", "Does things.")], "clerk", {"prompt": "Delete."})


def test_agents_run_in_parallel_up_to_the_limit(start: Start, colour: str) -> None:
    asking = Message.assistant(*[ToolCall(f"c{n}", "clerk", f'{{"prompt": "{n}"}}') for n in range(6)])
    running, most, lock = 0, 0, threading.Lock()

    @tool
    def count() -> str:
        """Count."""
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.02)
        with lock:
            running -= 1
        return "ok"

    def said(call: Any) -> Any:
        return "Done." if call.conversation.last.role == "tool" else Message.assistant(ToolCall("c", "count", "{}"))

    agent = clerk(colour, [said] * 12, count)
    talk = start([asking, "All done."], [agent], tool_config=ToolConfig(max_parallel_tools=2))
    assert talk.chat("Go.").text == "All done."
    assert texts(talk) == ["Done."] * 6
    assert most <= 2


def test_recursion_of_agents_is_limited(start: Start, colour: str) -> None:
    tools = ToolRegistry()

    def said(call: Any) -> Any:
        return "Enough." if call.conversation.last.role == "tool" else ASKING

    talk = start([said] * 40, tools)
    tools.register(agent_tool("clerk", "Asks itself.", tools=tools))
    assert talk.chat("Go.").text == "Enough."
    assert "deep" in talk.client.engine.calls[9].conversation.messages[-1].tool_results[0].text
    assert len(talk.client.engine.calls) == 18


# --- people -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_a_call_of_an_agent_waits_for_approval(start: Start, colour: str, streamed: bool, kept: bool) -> None:
    agent = clerk(colour, [used(DELETING), used("Deleted.")], delete)
    talk = start(
        [used(ASKING), used("It is gone.")], [agent], streamed=streamed, store=store_for(colour) if kept else None
    )
    result = talk.chat("Delete a.")
    (waiting,) = result.pending
    assert isinstance(result.ending, AwaitApproval)
    assert (waiting.call.name, waiting.call.arguments) == ("delete", '{"path": "a"}')
    assert waiting.within == talk.client.conversation.pending_tool_calls[0]
    assert talk.client.pending == (waiting,)
    with pytest.raises(ConfigurationError, match="does not wait"):  # bound to that very call, inside that very call
        talk.chat(None, approve(DELETING.tool_calls[0]))
    assert talk.chat().pending == (waiting,)  # nobody has answered, and nothing was asked again
    assert talk.chat(None, approve(waiting.call)).text == "It is gone."
    assert texts(talk) == ["Deleted."]
    assert talk.client.usage.tokens == 40
    assert talk.client.pending == ()


def test_two_agents_wait_with_the_same_call(start: Start, colour: str) -> None:
    both = Message.assistant(ToolCall("a", "clerk", '{"prompt": "x"}'), ToolCall("b", "clerk", '{"prompt": "x"}'))

    def said(call: Any) -> Any:
        last = call.conversation.last
        return DELETING if last.role == "user" else last.tool_results[0].error_type or "Deleted."

    talk = start([both, "Fine."], [clerk(colour, [said] * 4, delete)])
    first, second = talk.chat("Delete.").pending
    assert first.call != second.call
    assert talk.chat(None, approve(second.call)).pending == (first,)
    assert talk.chat(None, deny(first.call)).text == "Fine."
    assert texts(talk) == ["denied", "Deleted."]


def test_a_new_prompt_drops_the_waiting_turn(start: Start, colour: str) -> None:
    store = store_for(colour)
    talk = start([ASKING, "As you like."], [clerk(colour, [DELETING], delete)], store=store)
    talk.chat("Delete a.")

    def kept() -> list[bool]:
        page = talk.runner.run(store.list()) if isinstance(talk, AsyncTalk) else store.list()
        return sorted([is_inner(each.root) for each in page.items])

    assert kept() == [False, True]
    assert talk.chat("Never mind.").text == "As you like."
    assert kept() == [False]
    assert talk.client.pending == ()


@pytest.mark.parametrize("by", ["agent", "handoff"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_deeper_calls_wait_as_well(start: Start, colour: str, elsewhere: bool, by: str) -> None:
    deeper = clerk(colour, [DELETING, "Gone."], delete, name="helper")
    asking = Message.assistant(ToolCall("c1", "helper", '{"prompt": "x"}' if by == "agent" else "{}"))
    if by == "handoff":
        engine = (ScriptedEngine if colour == "plain" else AsyncScriptedEngine)([DELETING, "Helped."])
        deeper = handoff("helper", "Takes over.", engine, [delete])
    agents, store = [clerk(colour, [asking, "Helped."], deeper)], store_for(colour)
    talk = start([ASKING, "Fine."], agents, store=store)
    (waiting,) = talk.chat("Delete.").pending
    if elsewhere:
        id, talk = talk.client.id, start(["Fine."], agents, store=store)
        talk.do("restore", id)
        assert [(each.call, each.within) for each in talk.client.pending] == [(waiting.call, waiting.within)]
    assert waiting.call.id == ("c1>c1>c1" if by == "agent" else "c1>c1")
    assert waiting.within is not None
    assert waiting.within.name == "clerk"
    assert talk.chat(None, approve(waiting.call)).text == "Fine."
    assert texts(talk) == ["Helped."]


def test_an_agent_without_a_permission_check_uses_the_callers(start: Start, colour: str) -> None:
    def check(call: ToolCall, *_: Any) -> Any:
        return Deny("no sums today") if call.name == "add" else Allow()

    read: list[str] = []

    def last(call: Any) -> str:
        read.append(call.conversation.last.tool_results[0].text)
        return "So be it."

    talk = start([ASKING, "Ok."], [clerk(colour, [ADDING, last], add)], permission=check)
    assert talk.chat("Add.").text == "Ok."
    free = clerk(colour, [ADDING, last], add, permission=lambda *_: Allow())
    start([ASKING, "Ok."], [free], permission=check).chat("Add.")
    assert "no sums today" in read[0]
    assert read[1] == "3"


def test_waiting_calls_do_not_leak_into_another_conversation(start: Start, colour: str) -> None:
    inner = [ADDING, DELETING, "Of the first.", DELETING, "Of the second."]
    talk = start([ASKING, "Done."], [clerk(colour, inner, delete, add)])
    talk.chat("The first.")
    other = start([ASKING], [clerk(colour, [DELETING], delete)])
    other.chat("The second.")
    talk.do("restore", other.do("save"))
    assert [each.call.id for each in talk.client.pending] == ["c1"]
    talk.chat()
    assert texts(talk) == ["Of the first."]  # the next line of the script: a turn of its own, in which nothing waits


def test_waiting_calls_survive_a_restore_of_another_conversation(start: Start, colour: str) -> None:
    store = store_for(colour)
    agents = [clerk(colour, [ADDING, DELETING, "Gone."], delete, add)]
    elsewhere = start(["Hello."], agents, store=store)
    elsewhere.chat("Hi")
    talk = start([ASKING, "Done."], agents, store=store)
    (waiting,) = talk.chat("Do it.").pending
    here = talk.client.id
    talk.do("restore", elsewhere.client.id)
    talk.do("restore", here)
    assert [each.call for each in talk.client.pending] == [waiting.call]
    assert talk.chat(None, approve(waiting.call)).text == "Done."


def test_limits_of_an_agent_apply_where_nobody_can_be_asked(start: Start, colour: str) -> None:
    insisting = [Message.assistant(ToolCall(f"c{n}", "delete", '{"path": "a"}')) for n in range(50)]
    agent = clerk(colour, insisting, delete, limits=Limits(steps=3))
    talk = start([ASKING, "Done."], [agent], stateless=True)
    result = talk.chat("Hi")
    assert result.spent.model_calls == 5
    assert "max iterations (3) reached" in result.conversation.messages[2].tool_results[0].text


def test_an_ambiguous_approval_is_refused(start: Start, colour: str) -> None:
    both = Message.assistant(ToolCall("c1>c1", "delete", '{"path": "a"}'), ToolCall("c1", "clerk", '{"prompt": "Do."}'))
    talk = start([both, "Fine."], [clerk(colour, [DELETING, "Gone."], delete), delete])
    outer, inner = talk.chat("Hi").pending
    assert outer.call == inner.call
    for each in (outer, inner):
        with pytest.raises(ConfigurationError, match="two calls 'c1>c1'"):
            talk.chat(None, approve(each.call))
    assert talk.chat("Neither.").text == "Fine."
    assert all("deleted" not in text for text in texts(talk))


def test_an_agent_uses_the_permission_check_of_an_executor() -> None:
    def permission(call: ToolCall, *_: object) -> Allow | Deny:
        return Deny("not here") if call.name == "add" else Allow()

    engine = ScriptedEngine([ADDING, "Fine."])
    agent = agent_tool("clerk", "Does things.", engine, [add])
    with ToolExecutor([agent], permission=permission) as executor:
        executor.execute(ToolCall("c1", "clerk", '{"prompt": "Add."}'))
    assert "not here" in engine.calls[1].conversation.messages[-1].tool_results[0].text


def test_calls_that_wait_in_agents_of_the_moment_are_restored(start: Start, colour: str) -> None:
    store = store_for(colour)
    engine = (ScriptedEngine if colour == "plain" else AsyncScriptedEngine)([DELETING, "Gone."])
    agent = agent_tool("clerk", "Does things.", engine, lambda _run: [delete])
    talk = start([ASKING], lambda _run: [agent], store=store)
    (waiting,) = talk.chat("Hi").pending
    again = start(["Done."], lambda _run: [agent], store=store)
    again.do("restore", talk.client.id)
    assert [each.call for each in again.client.pending] == [waiting.call]
    assert again.chat(None, approve(waiting.call)).text == "Done."
    assert texts(again) == ["Gone."]


def test_users_of_a_stateless_client_are_separate(start: Start, colour: str) -> None:
    def said(call: Any) -> Any:
        last = call.conversation.last
        return DELETING if last.role == "user" else last.tool_results[0].text

    talk = start([ASKING, "One.", ASKING, "Two."], [clerk(colour, [said] * 4, delete)], stateless=True)
    for answer in ("One.", "Two."):
        result = talk.chat("Delete.")
        assert result.pending == ()
        assert result.text == answer
        assert "nobody can be asked here" in result.conversation.messages[2].tool_results[0].text


# --- budgets ----------------------------------------------------------------------------------------------------------


def test_usage_of_agents_counts_for_all_callers(start: Start, colour: str) -> None:
    both = Message.assistant(*[ToolCall(f"c{n}", "clerk", '{"prompt": "x"}') for n in range(2)])

    def said(call: Any) -> Any:
        return used(ADDING, 100)

    agent = clerk(colour, [said] * 100, add)
    talk = start([used(both), "Never said."], [agent], limits=Limits(tokens=500), on_limit="return")
    result = talk.chat("Add for ever.")
    assert result.ending == LimitReached("tokens", 500)
    assert 510 <= result.spent.tokens <= 610  # each of them may have been in the middle of a call
    assert result.spent.tokens == result.usage.tokens
    assert all("limit of 500 tokens" in text for text in texts(talk))


@pytest.mark.parametrize("limits", [Limits(model_calls=3), Limits(tool_calls=3), Limits(cost=0.35)])
def test_every_limit_of_the_caller_stops_the_agent(colour: str, limits: Limits) -> None:
    asked = 0

    def said(_call: Any) -> Any:
        nonlocal asked
        asked += 1
        return used(ADDING, cost=0.1)

    class Priced(ScriptedEngine if colour == "plain" else AsyncScriptedEngine):  # type: ignore[misc]
        priced = True

    agent = agent_tool("clerk", "Adds.", Priced([said] * 100), [add])
    kind = PlainTalk if colour == "plain" else AsyncTalk
    script = [used(ASKING, cost=0.1), used("Well.", cost=0.1)]
    talk = kind(Priced(script), [agent], streamed=False, limits=limits, on_limit="return")
    result = talk.chat("Add for ever.")
    assert asked <= 3
    name = next(name for name in ("model_calls", "tool_calls", "cost") if getattr(limits, name) is not None)
    assert "limit of" in texts(talk)[0]
    if name == "tool_calls":
        assert result.text == "Well."
    else:
        assert isinstance(result.ending, LimitReached)
        assert result.ending.limit == name
    talk.close()


def test_an_agent_of_unknown_cost_is_not_asked_under_a_limit_of_cost(start: Start, colour: str) -> None:
    with Simulator([Reply(ToolCall("c1", "clerk", '{"prompt": "x"}')), Reply("Well.")]) as simulator:
        options = {"base_url": simulator.base_url("openai"), "key": "k", "prices": Prices(input=1, output=1)}
        kind = PlainTalk if colour == "plain" else AsyncTalk
        talk = kind("openai:gpt-4o", [clerk(colour, ["Hi."])], streamed=False, limits=Limits(cost=5), **options)
        assert talk.chat("Ask.").text == "Well."
        assert "not known what scripted:model costs" in texts(talk)[0]
        talk.close()


def test_an_agent_has_limits_of_its_own(start: Start, colour: str) -> None:
    agent = clerk(colour, [ADDING] * 9, add, limits=Limits(steps=2))
    talk = start([ASKING, "Enough."], [agent])
    assert talk.chat("Add.").text == "Enough."
    assert "max iterations (2) reached" in texts(talk)[0]


def test_costs_of_agents_are_part_of_the_cost(start: Start, colour: str) -> None:
    agent = clerk(colour, [used("Yes.", cost=0.25)])
    talk = start([used(ASKING, cost=0.5), used("Ok.", cost=0.5)], [agent], store=store_for(colour))
    result = talk.chat("Ask.")
    assert result.cost == talk.client.cost == 1.25
    saved = talk.do("save")
    assert saved.conversation.messages[2].tool_results[0].usage.charged == 0.25
    unknown = start([used(ASKING, cost=0.5), used("Ok.", cost=0.5)], [clerk(colour, [used("Yes.")])])
    assert unknown.chat("Ask.").cost is None


# --- the end ----------------------------------------------------------------------------------------------------------


class _Stuck:
    """A tool that waits until its call is stopped."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.ended = threading.Event()

    def wait(self) -> str:
        """Wait."""
        from dragoman._stop import sleep

        self.reached.set()
        try:
            sleep(60)
        finally:
            self.ended.set()
        return "never"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("how", ["cancel", "deadline"])
def test_a_tool_inside_is_stopped_with_the_caller(colour: str, streamed: bool, how: str) -> None:
    stuck, before, store = _Stuck(), threading.enumerate(), store_for(colour)
    agent = clerk(colour, [Message.assistant(ToolCall("c1", "wait", "{}")), "Never."], tool(stuck.wait))
    limits = Limits(seconds=4) if how == "deadline" else Limits()
    kind, engine = (PlainTalk, ScriptedEngine) if colour == "plain" else (AsyncTalk, AsyncScriptedEngine)
    options: dict[str, Any] = {"limits": limits, "on_limit": "return", "store": store}
    talk = kind(engine([ASKING, "Never."]), [agent], streamed=streamed, **options)

    def stop() -> None:
        stuck.reached.wait(30)
        talk.client.cancel()

    stopping = threading.Thread(target=stop)
    if how == "cancel":
        stopping.start()
    result = talk.chat("Wait.")
    if how == "cancel":
        stopping.join()
    assert isinstance(result.ending, Cancelled if how == "cancel" else LimitReached)
    assert stuck.ended.wait(30)
    assert talk.client.conversation.is_valid
    talk.close()
    assert not [name for name in threads_left(before) if "tool" in name]


@pytest.mark.parametrize("how", ["cancel", "leaving", "close"])
@pytest.mark.parametrize("way", WAYS)
def test_a_model_inside_is_stopped_with_the_caller(way: str, how: str) -> None:
    from dragoman.simulator import Stall

    kind, streamed = WAYS[way]
    if how == "leaving" and not streamed:
        pytest.skip("only a stream can be left")
    if how == "close" and kind is AsyncTalk:
        pytest.skip("the test of stops closes beside a turn")
    asked = threading.Event()
    script = [
        Reply(ToolCall("c1", "clerk", '{"prompt": "x"}')),
        Reply("Once upon a time. " * 50, faults=[Stall(after=2000 if streamed else 0)]),
    ]
    with Simulator(script) as simulator:
        options = {"base_url": simulator.base_url("openai"), "key": "k"}
        talk = kind("openai:gpt-4o", [agent_tool("clerk", "Tells.")], streamed=streamed, **options)

        def look(event: Any) -> bool:
            told = isinstance(event, ToolProgress) and isinstance(event.said, TextDelta)
            if told:
                asked.set()
            return not (told and how == "leaving")

        def stop() -> None:
            if streamed:
                asked.wait(30)
            else:
                assert simulator.wait_for_requests(2)
            talk.client.cancel() if how == "cancel" else talk.close()

        stopping = threading.Thread(target=stop)
        if how != "leaving":
            stopping.start()
        result = talk.chat("Tell.", callback=look)
        if how != "leaving":
            stopping.join()
        assert isinstance(result.ending, Cancelled)
        assert talk.client.conversation.is_valid
        if how != "close":
            talk.close()
        assert len(simulator.requests) == 2
        assert simulator.wait_until_idle()


# --- another process --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where", ["in the agent's tool", "in the agent's model", "in the caller's model", "at a pause"]
)
def test_a_killed_process_is_continued_inside_the_agent(tmp_path: Path, where: str) -> None:
    path, log = tmp_path / "talks.db", tmp_path / "ran"
    command = [sys.executable, "-m", "tests.chat.killed_agents", str(path), str(log), where]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    with SqliteStore(path) as store:
        (id,) = [each.root for each in store.list().items if not is_inner(each.root)]
        inner = [each.root for each in store.list().items if is_inner(each.root)]
        assert bool(inner) == (where != "in the caller's model")
        rest: list[Any] = ["Both are noted."]
        if where != "in the agent's tool":
            rest = [Message.assistant(ToolCall("c1", "note", '{"text": "second"}')), *rest]
        if where == "in the caller's model":
            rest = []
        tools = make_tools(log, rest, asks=where == "at a pause")
        with ChatClient(ScriptedEngine(["Done."]), tools, store=store) as client:
            client.restore(id)
            result = None
            while client.pending and (where in ("in the agent's tool", "at a pause")):
                (waiting,) = client.pending
                assert waiting.within is not None
                assert waiting.call.name == "note"
                if where == "in the agent's tool":  # it may have done its work, and is not run again unasked
                    assert client.uncertain == (waiting,)
                    assert client.chat().pending == (waiting,)
                    result = client.resume(deny(waiting.call, reason="it was done"))
                else:
                    result = client.resume(approve(waiting.call))
            result = result or client.chat()
            assert result.text == "Done."
            (answer,) = client.history[2].tool_results
            assert answer.text == "Both are noted."
        assert log.read_text().split() == ["first", "second"]  # nothing has run twice
        assert [each.root for each in store.list().items] == [id]
        assert resume(store, id).conversation.is_valid


def test_an_agent_that_was_done_is_not_asked_again(tmp_path: Path) -> None:
    """The agent has answered, and the program died before the caller's journal had it."""

    class Dead(BaseException):
        pass

    class Dying(SqliteStore):
        def record(self, id: str, entries: Any, *, after: int) -> int:
            found = list(entries)
            if type(found[0]).__name__ == "ToolCallDone" and not is_inner(self.latest(id).root):
                raise Dead
            return super().record(id, found, after=after)

    path = tmp_path / "talks.db"
    with Dying(path) as dying, pytest.raises(Dead):
        ChatClient(ScriptedEngine([ASKING]), [clerk("plain", ["Yes."])], store=dying).chat("Ask.")
    with SqliteStore(path) as store:
        (id,) = [each.root for each in store.list().items if not is_inner(each.root)]
        with ChatClient(ScriptedEngine(["Ok."]), [clerk("plain", [])], store=store) as again:
            again.restore(id)
            assert again.chat().text == "Ok."
            assert again.history[2].tool_results[0].text == "Yes."


def test_the_limit_of_a_caller_is_its_own_error(start: Start, colour: str) -> None:
    agent = clerk(colour, [used(ADDING, 100)] * 9, add)
    talk = start([used(ASKING), "Never."], [agent], limits=Limits(tokens=150))
    with pytest.raises(LimitReachedError) as caught:
        talk.chat("Add.")
    assert caught.value.limit == "tokens"
    assert not isinstance(caught.value, UnknownCostError)


def test_a_cancelled_agent_leaves_nothing_in_the_store() -> None:
    writing, go_on, before = threading.Event(), threading.Event(), threading.enumerate()

    class Slow(MemoryStore):
        def save(self, snapshot: Any, *, after: int = 0) -> None:
            if is_inner(snapshot.root):
                writing.set()
                assert go_on.wait(20)
            super().save(snapshot, after=after)

    store = Slow()
    client = ChatClient(ScriptedEngine([ASKING, "Done."]), [clerk("plain", ["Never."])], store=store)
    stopping = threading.Thread(target=lambda: (writing.wait(20), client.cancel(), go_on.set()))
    stopping.start()
    assert client.chat("Hi").ending == Cancelled()
    stopping.join()
    client.close()
    assert not threads_left(before)
    assert [is_inner(each.root) for each in store.list().items] == [False]
