"""Handoffs: another agent is in charge, of this run, of the next turns, and after a crash."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.chat import ChatClient, agent_tool, handoff
from dragoman.conversation import Conversation, HandedOver, Message, Thinking, ToolCall
from dragoman.engines import AsyncScriptedEngine, ScriptedEngine
from dragoman.errors import ConfigurationError, ConnectionFailedError
from dragoman.loop import LimitReached, Limits, LoopHooks, LoopRun, Orchestrator
from dragoman.simulator import Reply, Simulator
from dragoman.stores import AsyncStore, MemoryStore, SqliteStore
from dragoman.tools import ToolContext, ToolRegistry, approve, tool
from tests.chat.killed_agents import make_tools
from tests.chat.scenarios import add, delete
from tests.chat.talking import ROOT, WAYS, Stage, Start
from tests.engines.talking import MODELS

HANDING = Message.assistant(ToolCall("c1", "billing", "{}"))
ADDING = Message.assistant(ToolCall("c1", "add", '{"a": 1, "b": 2}'))


def billing(colour: str, script: list[Any], tools: Any = (), *, name: str = "billing", **options: Any) -> Any:
    """An agent with a script of its own that can be put in charge."""
    engine = (ScriptedEngine if colour == "plain" else AsyncScriptedEngine)(script, name=f"scripted:{name}")
    return handoff(name, "Takes over.", engine, tools, **{"system": f"You are {name}.", **options})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_another_agent_takes_over_with_every_provider(model: str, way: str) -> None:
    script = [
        Reply(ToolCall("call_1", "billing", "{}")),
        Reply(ToolCall("call_2", "add", '{"a": 1, "b": 2}')),
        Reply("Three."),
        Reply("Still me."),
    ]
    events: list[Any] = []
    with Simulator(script) as simulator:
        stage = Stage(simulator, model, way)
        agent = handoff("billing", "Takes over.", tools=[add], system="You are billing.")
        with stage.client([agent], system="You are the front.") as talk:
            assert talk.client.agent is None
            result = talk.chat("How much?", callback=events.append)
            assert result.text == "Three."
            assert [each.agent for each in result.handoffs] == ["billing"]
            assert talk.client.agent == "billing"
            assert talk.client.system == "You are billing."
            assert talk.chat("And now?").text == "Still me."
        assert [request.system for request in simulator.requests] == ["You are the front.", *["You are billing."] * 3]
        assert [list(request.tools) for request in simulator.requests] == [["billing"], *[["add"]] * 3]
    if stage.streamed:
        assert [each for each in events if isinstance(each, HandedOver)] == list(result.handoffs)


def test_there_and_back_and_around(start: Start, colour: str) -> None:
    tools = ToolRegistry()
    agent = billing(colour, [Message.assistant(ToolCall("c1", "front", "{}")), "Again."], tools)
    front = handoff("front", "Hands back.", tools=[agent], system="You are the front again.")
    tools.register(front)
    back = Message.assistant(ToolCall("c2", "billing", "{}"))
    talk = start([HANDING, "Hello again.", back], [agent], system="You are the front.")
    result = talk.chat("Hi")
    assert result.text == "Hello again."
    assert [each.agent for each in result.handoffs] == ["billing", "front"]
    assert [each.model for each in result.handoffs] == ["scripted:billing", "scripted:model"]
    assert talk.chat("And?").text == "Again."
    assert talk.client.agent == "billing"
    systems = [call.conversation.system for call in talk.client._runtimes[None].lease.engine.calls]
    assert systems == ["You are the front.", "You are the front again.", "You are the front again."]


def test_the_limits_of_the_run_still_apply(start: Start, colour: str) -> None:
    talk = start([HANDING], [billing(colour, [ADDING] * 9, [add])], limits=Limits(steps=3), on_limit="return")
    result = talk.chat("Hi")
    assert result.ending == LimitReached("steps", 3)
    assert result.spent.steps == 3


def test_the_hooks_and_deps_of_the_client_still_apply(start: Start, colour: str) -> None:
    asked: list[str | None] = []

    class Looking(LoopHooks):
        def before_model(self, run: LoopRun) -> None:
            asked.append(run.conversation.system)

    @tool
    def whose(context: ToolContext[Any]) -> str:
        """Whose deps these are."""
        return f"those of {context.deps}"

    asking = Message.assistant(ToolCall("c1", "whose", "{}"))
    agent = billing(colour, [asking, "Fine.", asking, "Still."], [whose])
    shortened: list[int] = []

    def look(conversation: Conversation, _use: object) -> Conversation:
        shortened.append(len(conversation.messages))
        return conversation

    talk = start([HANDING], [agent], system="Front.", hooks=[Looking()], deps="the client", context=[look])
    talk.chat("Hi")
    talk.chat("And?")
    assert asked == ["Front.", *["You are billing."] * 4]
    assert len(shortened) == 5
    told = [result.text for message in talk.client.history for result in message.tool_results]
    assert told[1:] == ["those of the client"] * 2


def test_a_handoff_among_the_tools_of_one_turn_stays_in_charge(start: Start, colour: str) -> None:
    talk = start([HANDING], [])
    assert talk.do("chat", "Hi", tools=[billing(colour, ["Here.", "Still here."])]).text == "Here."
    assert talk.chat("And?").text == "Still here."


def test_only_the_first_of_two_handoffs_counts(start: Start, colour: str) -> None:
    both = Message.assistant(ToolCall("c1", "billing", "{}"), ToolCall("c2", "sales", "{}"))
    agents = [billing(colour, ["Billing here."]), billing(colour, [], name="sales")]
    talk = start([both], agents)
    assert talk.chat("Hi").text == "Billing here."
    first, second = talk.client.history[2].tool_results
    assert not first.is_error
    assert "'billing'" in second.text
    assert second.is_error


def test_a_model_that_cannot_take_the_history_may_refuse(start: Start, colour: str) -> None:
    thinking = Message.assistant(Thinking("Hm.", provider="other", signature="s"), ToolCall("c1", "billing", "{}"))
    with Simulator([Reply("Here.")]) as simulator:
        options: dict[str, Any] = {"base_url": simulator.base_url("anthropic"), "key": "k"}
        strict = handoff("billing", "Takes over.", "anthropic:claude-sonnet-4-5", strict=True, **options)
        talk = start([thinking, "I stay."], [strict])
        result = talk.chat("Hi")
        assert result.text == "I stay."
        assert "cannot take over" in talk.client.history[2].tool_results[0].text
        lenient = handoff("billing", "Takes over.", "anthropic:claude-sonnet-4-5", **options)
        other = start([thinking], [lenient])
        result = other.chat("Hi")
        assert result.text == "Here."
        assert result.handoffs[0].losses
        assert other.client.model == "anthropic:claude-sonnet-4-5"
        other.do("close" if colour == "plain" else "aclose")
        assert simulator.wait_until_idle()  # the agent's engine is closed with the client


def test_with_a_call_that_waits_the_handoff_comes_after_it(start: Start, colour: str) -> None:
    both = Message.assistant(ToolCall("c1", "billing", "{}"), ToolCall("c2", "delete", '{"path": "a"}'))
    talk = start([both], [billing(colour, ["Billing here."]), delete])
    (waiting,) = talk.chat("Hi").pending
    assert talk.client.agent is None
    result = talk.chat(None, approve(waiting.call))
    assert result.text == "Billing here."
    assert talk.client.history[2].tool_results[1].text == "deleted a"


def test_a_user_who_speaks_instead_of_answering_speaks_to_the_agent_that_took_over(start: Start, colour: str) -> None:
    both = Message.assistant(ToolCall("c1", "billing", "{}"), ToolCall("c2", "delete", '{"path": "a"}'))
    talk = start([both], [billing(colour, ["Billing here.", "Still billing."]), delete])
    assert talk.chat("Hi").pending
    result = talk.chat("Leave it.")
    assert (result.text, talk.client.agent) == ("Billing here.", "billing")
    assert "deleted" not in talk.client.history[2].tool_results[1].text
    assert talk.chat("And now?").text == "Still billing."


def test_a_question_instead_of_an_answer_is_for_the_agent_that_took_over(start: Start, colour: str) -> None:
    both = Message.assistant(ToolCall("c1", "billing", "{}"), ToolCall("c2", "delete", '{"path": "a"}'))
    talk = start([both], [billing(colour, ["Billing here.", "Still billing."]), delete])
    assert talk.chat("Hi").pending
    assert talk.do("ask", "Who is there?") == "Billing here."
    assert (talk.chat("And now?").text, talk.client.agent) == ("Still billing.", "billing")


def test_a_turn_that_fails_at_once_leaves_the_calls_that_wait(start: Start, colour: str) -> None:
    both = Message.assistant(ToolCall("c1", "billing", "{}"), ToolCall("c2", "delete", '{"path": "a"}'))
    talk = start([both, "Never said."], [billing(colour, [ConnectionFailedError("down"), "Billing here."]), delete])
    (waiting,) = talk.chat("Hi").pending
    with pytest.raises(ConnectionFailedError):
        talk.chat("Leave it.")
    assert talk.chat(None, approve(waiting.call)).text == "Billing here."
    assert talk.client.history[2].tool_results[1].text == "deleted a"


def test_a_handoff_inside_an_agent_stays_there(start: Start, colour: str) -> None:
    asking = Message.assistant(ToolCall("c1", "clerk", '{"prompt": "x"}'))
    inside = billing(colour, ["From billing."])
    engine = (ScriptedEngine if colour == "plain" else AsyncScriptedEngine)([HANDING])
    talk = start([asking, "So it is."], [agent_tool("clerk", "Does things.", engine, [inside])])
    result = talk.chat("Hi")
    assert result.text == "So it is."
    assert talk.client.history[2].tool_results[0].text == "From billing."
    assert result.handoffs == ()
    assert talk.client.agent is None


def test_forks_and_switches_keep_who_is_in_charge(start: Start, colour: str) -> None:
    agent = billing(colour, ["Billing here.", "In the fork."], [add])
    talk = start([HANDING], [agent])
    talk.chat("Hi")
    twin = talk.do("fork") if colour == "async" else talk.client.fork()
    assert (twin.agent, twin.model, list(twin.tools.tools.by_name)) == ("billing", "scripted:billing", ["add"])
    talk.do("switch", (ScriptedEngine if colour == "plain" else AsyncScriptedEngine)(["Another voice."], name="x:y"))
    assert talk.chat("And?").text == "Another voice."
    assert talk.client.agent == "billing"
    if colour == "plain":
        assert twin.chat("And?").text == "In the fork."
        twin.close()
    else:
        talk.runner.run(twin.aclose())


def test_restore_puts_the_right_one_in_charge(start: Start, colour: str) -> None:
    store = MemoryStore() if colour == "plain" else AsyncStore(MemoryStore())
    tools = [billing(colour, ["Billing here.", "Still billing."], [add])]
    talk = start([HANDING, "Front."], tools, store=store)
    talk.chat("Hi")
    kept = talk.client.id
    other = start(["I am the front."], tools, store=store)
    other.do("restore", kept)
    assert other.client.agent == "billing"
    assert other.chat("And?").text == "Still billing."
    fresh = start(["Front."], (), store=store)
    with pytest.raises(ConfigurationError, match="'billing' is in charge"):
        fresh.do("restore", kept)
    other.do("restore", start(["x"], tools).do("save"))  # a conversation of which nobody else is in charge
    assert other.client.agent is None
    assert other.chat("Hello").text == "I am the front."


def test_a_stateless_client_hands_over_within_a_conversation(start: Start, colour: str) -> None:
    agent = billing(colour, ["Billing here.", "Still billing."])
    talk = start([HANDING, "Front here."], [agent], stateless=True)
    result = talk.chat("Hi")
    assert result.text == "Billing here."
    assert talk.client.agent is None
    if colour == "plain":
        again = talk.client.chat("And?", conversation=result.conversation)
    else:
        again = talk.runner.run(talk.client.chat("And?", conversation=result.conversation))
    assert again.text == "Still billing."
    assert talk.chat("Hello").text == "Front here."


def test_options_of_the_run_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="'limits'"):
        handoff("billing", "Takes over.", limits=Limits(steps=1))


def test_a_handoff_needs_a_chat_client() -> None:
    agent = billing("plain", ["Never."])
    with Orchestrator(ScriptedEngine([HANDING, "I stay."]), [agent]) as loop:
        from dragoman.conversation import Conversation

        result = loop.run(Conversation().plus(Message.user("Hi")))
    assert result.text == "I stay."
    assert "needs a chat client" in result.conversation.messages[2].tool_results[0].text


def test_after_a_crash_the_right_agent_continues(tmp_path: Path) -> None:
    path, log = tmp_path / "talks.db", tmp_path / "ran"
    command = [sys.executable, "-m", "tests.chat.killed_agents", str(path), str(log), "behind a handoff"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    with SqliteStore(path) as store:
        tools = make_tools(log, ["The clerk speaks."], hands_over=True)
        with ChatClient(ScriptedEngine([]), tools, store=store) as client:
            client.restore(store.list().items[0].root)
            assert client.agent == "clerk"
            assert client.chat().text == "The clerk speaks."


def test_a_result_in_the_journal_alone_puts_the_agent_in_charge(tmp_path: Path) -> None:
    """The program died when the handoff had its result, and before the conversation said who is in charge."""

    class Dead(BaseException):
        pass

    class Dying(SqliteStore):
        def save(self, snapshot: Any, *, after: int = 0) -> None:
            if after:
                raise Dead
            super().save(snapshot, after=after)

    path = tmp_path / "talks.db"
    with Dying(path) as dying, pytest.raises(Dead):
        ChatClient(ScriptedEngine([HANDING]), [billing("plain", [])], store=dying).chat("Hi")
    store, tools = SqliteStore(path), [billing("plain", ["Billing here."])]
    with store, ChatClient(ScriptedEngine([]), tools, store=store) as client:
        client.restore(store.list().items[0].root)
        assert client.agent == "billing"
        assert client.chat().text == "Billing here."
        assert client.system == "You are billing."


def test_tools_of_the_moment_do_not_hand_over_by_a_name_alone(start: Start, colour: str) -> None:
    @tool(name="billing")
    def innocent() -> str:
        """Nothing special."""
        return "done"

    talk = start([HANDING, "I stay."], [innocent])
    assert talk.chat("Hi").text == "I stay."
    assert talk.client.agent is None
