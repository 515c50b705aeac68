"""Ctrl-C at any moment leaves what belongs together together: id, history, model, prompt, tools, and what is stored.

Each engine answers with what it was asked: its own name, the system prompt, the tools and the first message.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from dragoman.chat import ChatClient, agent_tool, handoff
from dragoman.conversation import Conversation, Message, ToolCall
from dragoman.engines import ScriptedEngine
from dragoman.errors import ConfigurationError
from dragoman.stores import MemoryStore, Snapshot, resume
from dragoman.tools import Tool, approve, tool
from tests.chat.interrupting import Interrupting, in_a_thread_of_its_own
from tests.rounds import PROFILE

# An interrupt between making a coroutine and stepping it leaves one that nobody awaits; Python says so, and no more.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@tool(requires_approval=True)
def risky(x: int) -> str:
    """Something risky."""
    return f"did {x}"


@tool
def other(x: int) -> str:
    """Something else."""
    return f"other {x}"


def engine(name: str, **calls: str) -> ScriptedEngine:
    """An engine that says what it was asked; a user's message that is a name in `calls` makes it call that tool."""

    def reply(asked: Any) -> Message | str:
        messages = asked.conversation.messages
        called = calls.get(messages[-1].text.strip(".").lower()) if messages[-1].role == "user" else None
        if called is not None:
            return Message.assistant(ToolCall(f"c{len(messages)}", called, '{"x": 1}' if called == "risky" else "{}"))
        tools = ",".join([each.name for each in asked.tools])
        return f"scripted:{name}|{asked.conversation.system}|{tools}|{messages[0].text}"

    return ScriptedEngine([reply] * 60, name=f"scripted:{name}")


def told(client: ChatClient, first: str | None = None) -> str:
    """What the client says about itself, in the words of `engine`."""
    tools = ",".join(client.tools.tools.by_name)
    begins = client.history[0].text if client.history else first
    return f"{client.model}|{client.system}|{tools}|{begins}"


class World:
    """A client with a conversation of its own, in a store that has others."""

    def __init__(self, other: str = "") -> None:
        self.store = MemoryStore()
        self.begins: dict[str, str] = {}
        """How each stored conversation begins, by its id."""
        self.other = self.begun(self.client("front"), other) if other else ""
        self.mine = self.client("front")
        self.begun(self.mine, "I am B.")

    def client(self, name: str) -> ChatClient:
        desk = handoff("desk", "Takes over.", engine("desk", risk="risky"), [risky], system="DESK")
        model = engine(name, go="desk", risk="risky")
        return ChatClient(model, [risky, desk], store=self.store, system="FRONT")

    def begun(self, client: ChatClient, text: str) -> str:
        client.chat(text)
        assert client.id is not None
        self.begins[client.id] = text
        return client.id

    def check(self, where: str) -> None:
        """Continue: what is asked is what the client has said, and what is saved is what the client is."""
        client = self.mine
        before, id = told(client, "And?"), client.id
        if any(each.name == "desk" and not each.is_error for each in _results(client)):
            assert client.agent == "desk", where
        assert str(client.chat("And?")) == before, where
        assert told(client) == before, where
        assert id in (client.id, None), where
        snapshot = client.save()
        kept = resume(self.store, client.id or "")
        assert kept.conversation == client.conversation, where
        assert f"{snapshot.provider}:{snapshot.model}" == client.model, where
        assert snapshot.system_prompt == client.system, where
        assert [each.name for each in snapshot.tools] == list(client.tools.tools.by_name), where
        for each, begins in self.begins.items():
            assert resume(self.store, each).conversation.messages[0].text == begins, where
        assert client.history[0].text == self.begins.get(client.id or "", client.history[0].text), where


def _results(client: ChatClient) -> list[Any]:
    return [result for message in client.history for result in message.tool_results]


def _nothing(_: World) -> None:
    pass


def _pause(world: World) -> None:
    world.mine.chat("Risk.")


def _take_over(world: World) -> None:
    world.mine.chat("Go.")
    world.mine.switch(engine("third", risk="risky"))


def _resume(world: World) -> None:
    world.mine.resume(*[approve(each.call) for each in world.mine.pending])


def _restore(world: World) -> None:
    world.mine.restore(world.other)


def _restore_snapshot(world: World) -> None:
    world.mine.restore(resume(world.store, world.other).snapshot)


def _restore_and_resume(world: World) -> None:
    world.mine.restore(world.other)
    _resume(world)


def _fork(world: World) -> None:
    world.mine = world.mine.fork()


def _assign(world: World) -> None:
    world.mine.system = "NEW"


class Scenario(NamedTuple):
    """What is interrupted, what comes before it, and how another conversation in the store begins."""

    act: Callable[[World], object]
    before: Callable[[World], None] = _nothing
    other: str = ""


SCENARIOS = {
    "restore": Scenario(_restore, other="I am A."),
    "restore a snapshot": Scenario(_restore_snapshot, other="I am A."),
    "restore one that waits": Scenario(_restore_and_resume, other="Risk."),
    "restore one of another agent": Scenario(_restore, other="Go."),
    "restore one of the client, an agent being in charge": Scenario(_restore, _take_over, "I am A."),
    "switch": Scenario(lambda world: world.mine.switch(engine("third"))),
    "switch an agent": Scenario(lambda world: world.mine.switch(engine("fourth")), _take_over),
    "set_tools": Scenario(lambda world: world.mine.set_tools([other])),
    "system": Scenario(_assign),
    "fork": Scenario(_fork),
    "fork a switched agent": Scenario(_fork, _take_over),
    "resume": Scenario(_resume, _pause),
    "handoff": Scenario(lambda world: world.mine.chat("Go.")),
    "handoff, streamed": Scenario(lambda world: world.mine.stream_chat("Go.", lambda _: None)),
}


def _interrupted(scenario: Scenario, at: int) -> tuple[World, Interrupting]:
    world, interrupting = World(scenario.other), Interrupting(at)
    scenario.before(world)
    with suppress(KeyboardInterrupt), interrupting.at_work():
        scenario.act(world)
    return world, interrupting


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_ctrl_c_at_any_moment_leaves_what_belongs_together(scenario: Scenario) -> None:
    """Every moment in a thorough run, else some hundred of each."""

    def at_many_moments() -> None:
        world, uninterrupted = _interrupted(scenario, -1)
        world.check("the end")
        moments = uninterrupted.moments
        assert moments > 20
        for at in range(0, moments, 1 if PROFILE == "thorough" else max(1, moments // 100)):
            world, interrupting = _interrupted(scenario, at)
            assert interrupting.where
            if at % 2:  # what is added meanwhile is for whoever is in charge
                world.mine.add("By the way.")
            world.check(interrupting.where)

    in_a_thread_of_its_own(at_many_moments)


def test_a_fork_of_what_was_never_saved_has_an_id_of_its_own() -> None:
    store, id = MemoryStore(), "01890a5d-ac96-774b-bcce-b302099a8057"
    client = ChatClient(engine("front"), store=store, id=id)
    twin = client.fork()
    client.chat("First.")
    twin.chat("Second.")
    assert client.id == id
    assert twin.id not in (id, None)


def test_an_agent_without_a_model_uses_that_of_its_caller_also_after_a_switch() -> None:
    desk = handoff("desk", "Takes over.", system="DESK")
    client = ChatClient(engine("front", go="desk"), [desk])
    client.chat("Go.")
    conversation = client.save()
    client.restore(Snapshot.first(Conversation(), provider="scripted", model="front"))
    client.switch(engine("third"))
    client.restore(conversation)
    assert (client.agent, client.model) == ("desk", "scripted:third")
    assert str(client.chat("And?")) == told(client)


def test_tools_that_are_refused_do_not_stay() -> None:
    """An agent whose model does not exist is refused before any model is asked; nothing has changed then."""
    client = ChatClient(engine("front"), [other], system="FRONT")
    before = told(client)
    for refused in (agent_tool, handoff):
        wrong: Tool[..., object] = refused("lost", "Has no model.", "nowhere:at-all")
        with pytest.raises(ConfigurationError):
            client.set_tools([wrong])
        assert told(client) == before
    assert str(client.chat("Hello.")) == told(client)


def test_a_refused_switch_changes_nothing() -> None:
    client = ChatClient(engine("front"), [other], system="FRONT")
    before = told(client, "Hello.")
    with pytest.raises(ConfigurationError):
        client.switch("nowhere:at-all")
    assert str(client.chat("Hello.")) == before
