"""The instructions of whoever is in charge are sent, on every road; the table is in tests/instructions.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.chat import AsyncChatClient, ChatClient, Config, agent_tool, handoff, new
from dragoman.conversation import Conversation, Message, ToolCall
from dragoman.engines import AsyncScriptedEngine, ScriptedEngine
from dragoman.errors import OverloadedError
from dragoman.simulator import Simulator
from dragoman.stores import MemoryStore, MessageAdded, ToolCallBegun
from dragoman.tools import approve, tool
from tests import instructions
from tests.instructions import Cell, Road, Sent, exercised_here

REPLIES = ["Fine."] * 9


@tool(requires_approval=True)
def act(x: int) -> str:
    """Act."""
    return f"done {x}"


ACTING = Message.assistant(ToolCall("a1", "act", '{"x": 1}'))
HANDING = Message.assistant(ToolCall("h1", "desk", "{}"))
ASKING = Message.assistant(ToolCall("i1", "helper", '{"prompt": "Help."}'))


def _told(client: ChatClient | AsyncChatClient) -> str | None:
    """What `client.system` says will be sent."""
    system = client.system
    parts = [system] if isinstance(system, str) else system or ()
    return "\n\n".join([each if isinstance(each, str) else str(each(None)) for each in parts]) or None  # type: ignore[arg-type]


def _sent(client: ChatClient, turn: Callable[[], object], engine: ScriptedEngine | None = None) -> Sent:
    """Take a turn: what arrived, which is what the client said before, and what the conversation names."""
    told = _told(client)
    turn()
    wire = (engine or client.engine).calls[-1].conversation.system  # type: ignore[attr-defined]
    assert told == wire == _told(client)
    kept = client.conversation.system
    assert client.save().system_prompt == kept
    return Sent(wire, kept)


def _engine(*first: Any) -> ScriptedEngine:
    return ScriptedEngine([*first, *REPLIES])


def _begun(cell: Cell, store: MemoryStore, *first: Any, tools: Any = ()) -> ChatClient:
    """A client of somebody else, after its first turn."""
    client = ChatClient(_engine(*first), tools, store=store, **cell.before)
    client.chat("Begin.")
    return client


# --- a client ---------------------------------------------------------------------------------------------------------


def _client(cell: Cell) -> Sent:
    client = ChatClient(_engine(), conversation=cell.conversation, **cell.options)
    return _sent(client, lambda: client.chat("x"))


def _streamed(cell: Cell) -> Sent:
    client = ChatClient(_engine(), conversation=cell.conversation, **cell.options)
    return _sent(client, lambda: client.stream_chat("x", lambda _: None))


def _async(cell: Cell) -> Sent:
    async def turn() -> Sent:
        engine = AsyncScriptedEngine(REPLIES)
        async with AsyncChatClient(engine, conversation=cell.conversation, **cell.options) as client:
            told = _told(client)
            await client.chat("x")
            assert told == engine.calls[-1].conversation.system
            return Sent(engine.calls[-1].conversation.system, (await client.save()).system_prompt)

    return asyncio.run(turn())


def _question(cell: Cell) -> Sent:
    client = ChatClient(_engine(), conversation=cell.conversation, **cell.options)
    return _sent(client, lambda: client.ask("x"))


def _configured(cell: Cell) -> Sent:
    with Simulator(REPLIES) as simulator:
        fixed = cell.options.get("system")
        prompt = fixed if isinstance(fixed, str) else ""  # a configuration has texts only
        address = simulator.base_url("openai")
        config = Config(provider="openai", model="gpt-4o", token="k", base_url=address, system_prompt=prompt)
        with new(config, conversation=cell.conversation, **({} if prompt else cell.options)) as client:
            client.chat("x")
            return Sent(simulator.requests[-1].system or None, client.conversation.system)


def _stateless(cell: Cell) -> Sent:
    """The web service of the README."""
    engine = _engine()
    client = ChatClient(engine, stateless=True, **cell.options)
    result = client.chat("x", conversation=cell.conversation)
    assert client.chat("y", conversation=result.conversation).conversation.system == result.conversation.system
    first, second = [each.conversation.system for each in engine.calls]
    # What a function says is kept nowhere; the next turn asks it again.
    assert first == second
    return Sent(first, result.conversation.system)


def _stateless_resumed(cell: Cell) -> Sent:
    before = ChatClient(_engine(ACTING), [act], stateless=True, **cell.before)
    waiting = before.chat("x")
    engine = _engine()
    client = ChatClient(engine, [act], stateless=True, **cell.options)
    answers = [approve(each.call) for each in waiting.pending]
    result = client.chat(approvals=answers, conversation=waiting.conversation)
    return Sent(engine.calls[-1].conversation.system, result.conversation.system)


def _assigned(cell: Cell) -> Sent:
    client = ChatClient(_engine(), conversation=cell.conversation, system="Something else.")
    client.chat("x")
    client.system = cell.options.get("system")
    if cell.kind == "none":  # it has none now, and gives a conversation its own back
        client.restore(ChatClient(_engine(), conversation=cell.conversation).save())
    return _sent(client, lambda: client.chat("x"))


# --- restored ---------------------------------------------------------------------------------------------------------


def _restored(cell: Cell) -> Sent:
    store = MemoryStore()
    before = _begun(cell, store)
    client = ChatClient(_engine(), store=store, **cell.options)
    client.restore(before.id or "")
    return _sent(client, lambda: client.chat("x"))


def _from_snapshot(cell: Cell) -> Sent:
    snapshot = _begun(cell, MemoryStore()).save()
    client = ChatClient(_engine(), **cell.options)
    client.restore(snapshot)
    assert client.conversation == snapshot.conversation  # until a turn
    return _sent(client, lambda: client.chat("x"))


def _restored_twice(cell: Cell) -> Sent:
    """A client without instructions sends the texts that were in force; what functions said is kept nowhere."""
    store = MemoryStore()
    before = _begun(cell, store)
    client = ChatClient(_engine(), store=store, **cell.options)
    client.restore(before.id or "")
    sent = _sent(client, lambda: client.chat("x"))
    bare = ChatClient(_engine(), store=store)
    bare.restore(client.id or "")
    assert _sent(bare, lambda: bare.chat("y")) == Sent(sent.kept, sent.kept)
    return sent


def _approved(cell: Cell) -> Sent:
    store = MemoryStore()
    before = _begun(cell, store, ACTING, tools=[act])
    client = ChatClient(_engine(), [act], store=store, **cell.options)
    client.restore(before.id or "")
    return _sent(client, lambda: client.resume(*[approve(each.call) for each in client.pending]))


def _crashed(cell: Cell) -> Sent:
    """The journal alone has the last turn, and a call may have done its work."""
    store = MemoryStore()
    snapshot = _begun(cell, store).save()
    call = ToolCall("d1", "act", '{"x": 2}')
    store.record(snapshot.id, [MessageAdded(Message.user("Go on.")), MessageAdded(Message.assistant(call))], after=0)
    store.record(snapshot.id, [ToolCallBegun(call)], after=2)
    client = ChatClient(_engine(), [act], store=store, **cell.options)
    client.restore(snapshot.id)
    assert client.uncertain
    return _sent(client, lambda: client.resume(*[approve(each.call) for each in client.pending]))


def _fork(cell: Cell) -> Sent:
    client = ChatClient(_engine(), conversation=cell.conversation, **cell.options).fork()
    return _sent(client, lambda: client.chat("x"))


def _fork_of_restored(cell: Cell) -> Sent:
    store = MemoryStore()
    before = _begun(cell, store)
    client = ChatClient(_engine(), store=store, **cell.options)
    client.restore(before.id or "")
    twin = client.fork().fork()
    return _sent(twin, lambda: twin.chat("x"))


def _switched(cell: Cell) -> Sent:
    client = ChatClient(_engine(), conversation=cell.conversation, **cell.options)
    client.chat("x")
    client.switch(_engine())
    return _sent(client, lambda: client.chat("x"))


# --- agents -----------------------------------------------------------------------------------------------------------


def _front(options: dict[str, Any], *, desk: ScriptedEngine | None = None, **given: Any) -> ChatClient:
    """A client whose model hands over at once to an agent with these options."""
    agent = handoff("desk", "Takes over.", desk or _engine(), [act], **options)
    return ChatClient(_engine(HANDING), [agent], system="FRONT", **given)


def _handed_over(cell: Cell) -> Sent:
    desk = _engine()
    client = _front(cell.options, desk=desk, conversation=cell.conversation)
    client.chat("x")
    return Sent(desk.calls[-1].conversation.system, client.save().system_prompt)


def _handed_over_before(cell: Cell) -> Sent:
    client = _front(cell.options, conversation=cell.conversation)
    client.chat("x")
    return _sent(client, lambda: client.chat("y"))


def _handed_over_stateless(cell: Cell) -> Sent:
    desk = _engine()
    client = _front(cell.options, desk=desk, stateless=True)
    first = client.chat("x", conversation=cell.conversation)
    second = client.chat("y", conversation=first.conversation)
    assert desk.calls[0].conversation.system == desk.calls[1].conversation.system
    assert first.conversation.system == second.conversation.system
    return Sent(desk.calls[1].conversation.system, second.conversation.system)


def _handed_over_restored(cell: Cell) -> Sent:
    """The agent that took over had other instructions then."""
    store = MemoryStore()
    before = _front(cell.before, store=store)
    before.chat("x")
    client = _front(cell.options, store=store)
    client.restore(before.id or "")
    assert client.agent == "desk"
    return _sent(client, lambda: client.chat("y"))


def _handed_over_approved(cell: Cell) -> Sent:
    store = MemoryStore()
    before = _front(cell.before, desk=_engine(ACTING), store=store)
    before.chat("x")
    client = _front(cell.options, store=store)
    client.restore(before.id or "")
    return _sent(client, lambda: client.resume(*[approve(each.call) for each in client.pending]))


def _handed_over_forked(cell: Cell) -> Sent:
    client = _front(cell.options, conversation=cell.conversation)
    client.chat("x")
    twin = client.fork()
    twin.switch(_engine())
    return _sent(twin, lambda: twin.chat("y"))


def _agent(cell: Cell) -> Sent:
    engine = _engine()
    helper = agent_tool("helper", "Helps.", engine, conversation=cell.conversation, **cell.options)
    client = ChatClient(_engine(ASKING), [helper], system="FRONT")
    assert _sent(client, lambda: client.chat("x")) == Sent("FRONT", "FRONT")
    return Sent(*[engine.calls[-1].conversation.system, cells_kept(cell)])


def cells_kept(cell: Cell) -> str | None:
    """An agent's conversation is gone with its answer."""
    return instructions.CLIENT[cell].kept


def _agent_approved(cell: Cell) -> Sent:
    """The agent's own turn waits in the store, and is continued by a newer version of the agent."""
    store = MemoryStore()
    first = agent_tool("helper", "Helps.", _engine(ACTING), [act], **cell.before)
    before = ChatClient(_engine(ASKING), [first], system="FRONT", store=store)
    before.chat("x")
    engine = _engine()
    helper = agent_tool("helper", "Helps.", engine, [act], **cell.options)
    client = ChatClient(_engine(), [helper], store=store)
    client.restore(before.id or "")
    assert _sent(client, lambda: client.resume(*[approve(each.call) for each in client.pending])).wire == "FRONT"
    return Sent(engine.calls[-1].conversation.system, cells_kept(cell))


def _as_tool(cell: Cell) -> Sent:
    engine = _engine()
    helper = ChatClient(engine, conversation=cell.conversation, **cell.options).as_tool("helper", "Helps.")
    ChatClient(_engine(ASKING), [helper], system="FRONT").chat("x")
    return Sent(engine.calls[-1].conversation.system, cells_kept(cell))


ROADS: dict[str, Road] = {
    "a client": _client,
    "a streamed turn": _streamed,
    "an async client": _async,
    "a question": _question,
    "a client from a configuration": _configured,
    "stateless": _stateless,
    "stateless, resumed": _stateless_resumed,
    "assigned": _assigned,
    "restored by id": _restored,
    "restored from a snapshot": _from_snapshot,
    "restored, and restored elsewhere without instructions": _restored_twice,
    "restored and approved": _approved,
    "restored after a crash": _crashed,
    "a fork": _fork,
    "a fork of a fork that was restored": _fork_of_restored,
    "switched": _switched,
    "handed over in the turn": _handed_over,
    "handed over before": _handed_over_before,
    "handed over, stateless": _handed_over_stateless,
    "handed over and restored": _handed_over_restored,
    "handed over, restored and approved": _handed_over_approved,
    "handed over, forked and switched": _handed_over_forked,
    "an agent behind a tool": _agent,
    "an agent behind a tool, restored and approved": _agent_approved,
    "a client as a tool": _as_tool,
}


@pytest.mark.parametrize("road", exercised_here(__name__, ROADS))
def test_what_is_sent(road: str) -> None:
    instructions.check(road, ROADS[road])


def test_every_road_is_gone_somewhere() -> None:
    assert instructions.missing() == []


def test_a_turn_that_failed_leaves_no_trace() -> None:
    """Not even of instructions that were never answered."""
    client = ChatClient(ScriptedEngine([OverloadedError("gone"), "Fine."]), system="NEW")
    saved = ChatClient(_engine(), system="OLD")
    saved.chat("x")
    client.restore(saved.save())
    with pytest.raises(OverloadedError):
        client.chat("y")
    assert client.conversation.system == "OLD"
    assert client.system == "NEW"
    client.chat("y")
    assert client.conversation.system == "NEW"


def test_every_agent_of_a_chain_has_its_own_instructions() -> None:
    """Text, none, function: none of them gets a word of another one's, within a turn and after it."""
    last = handoff("last", "The last.", ScriptedEngine(["At last.", "Again."]), system=instructions.function)
    calls_last = Message.assistant(ToolCall("h2", "last", "{}"))
    middle_engine = ScriptedEngine([calls_last])
    middle = handoff("desk", "The middle.", middle_engine, [last])
    store = MemoryStore()
    first = _engine(HANDING)
    client = ChatClient(first, [middle], system="FRONT", store=store)
    client.chat("x")
    assert first.calls[-1].conversation.system == "FRONT"
    assert middle_engine.calls[-1].conversation.system is None
    assert _sent(client, lambda: client.chat("y")) == Sent("F", None)


def test_one_client_for_conversations_of_many() -> None:
    """A client without state serves conversations that began under other instructions, one after the other."""
    engine = _engine()
    client = ChatClient(engine, system="NEW", stateless=True)
    for own in ("A", "B", None, "C"):
        client.chat("x", conversation=Conversation(own))
    assert {each.conversation.system for each in engine.calls} == {"NEW"}
