"""Who is in charge of a conversation: what a handoff changes, and how that is found out again.

Owns: which agent a conversation names, what that works with, and how a run goes on with it.
Must not know: stores. The conversation says it all: its metadata, or the result of a handoff at its end.
"""

# pyright: reportPrivateUsage=false
from __future__ import annotations

from typing import cast

from dragoman.conversation import Conversation, HandedOver
from dragoman.loop import LoopRun, Succession, split_instructions
from dragoman.tools import ToolSet

from .agents import Agent, Core, find_agent, staff_of, takes_over
from .core import IN_CHARGE, Charge, Shared
from .options import ChatOptions, drop_engine_options, make_executor


def in_charge(core: Core, conversation: Conversation) -> Agent | None:
    """The agent that a conversation names, or whose handoff has just got its result; None: the client itself."""
    name, first = conversation.metadata.get(IN_CHARGE), charge_of(core, None).executor.tools
    known = (core._agent, *core._charges)
    now = None if name is None else next((each for each in known if each and each.name == name), None)
    if name is not None and now is None:
        now = find_agent(first, cast("str", name))
    return put_in_charge(charge_of(core, now).executor.tools, conversation) or now


def put_in_charge(tools: ToolSet, conversation: Conversation) -> Agent | None:
    """The agent whose handoff is among the results at the end, if all calls have theirs."""
    if conversation.last is None or conversation.last.role != "tool" or conversation.pending_tool_calls:
        return None
    done = [result for result in conversation.last.tool_results if not result.is_error]
    return next((agent for each in done if (agent := takes_over(tools, each.name)) is not None), None)


def charge_of(core: Core, agent: Agent | None) -> Charge:
    """What an agent in charge works with, made when it first is; None: what the client was made with."""
    with core._state:
        found = core._charges.get(agent)
        if found is None and agent is core._agent:
            found = Charge(core._engine, core._executor, core._options)
        if found is None:
            assert agent is not None
            engine, first = staff_of(core).engine_of(agent), charge_of(core, None).options
            kept = {name: value for name, value in first.items() if name not in ("system", "options")}
            options = cast("ChatOptions", {**kept, **drop_engine_options(agent.options)})
            found = Charge(Shared(engine, owned=False), make_executor(agent.tools, options), options)
            core._charges[agent] = found
        return found


def name_agent(agent: Agent | None, conversation: Conversation) -> Conversation:
    """The conversation with this agent in charge."""
    if agent is None or conversation.metadata.get(IN_CHARGE) == agent.name:
        return conversation
    named = conversation.with_metadata({**conversation.metadata, IN_CHARGE: agent.name})
    return named.with_system(split_instructions(agent.options.get("system"))[0])


def hand_over(core: Core, run: LoopRun) -> Succession | None:
    """Who takes over behind the results that a run has just taken in, if anybody does."""
    agent = put_in_charge(run.executor.tools, run.conversation)
    if agent is None:
        return None
    charge, conversation = charge_of(core, agent), name_agent(agent, run.conversation)
    settings, io = core._equip(charge)
    if not core._stateless:
        core._put_in_charge(agent)
    engine = charge.engine.engine
    losses = tuple(map(str, engine.losses(conversation)))
    event = HandedOver(agent=agent.name, model=engine.name, losses=losses)
    return Succession(conversation=conversation, executor=charge.executor, settings=settings, io=io, event=event)
