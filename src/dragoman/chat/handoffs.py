"""Handoffs: tools that put another agent in charge of a conversation.

Must not know: stores. The conversation itself says who is in charge: in its metadata, or by a handoff's result at its
end.
"""

# pyright: reportPrivateUsage=false
from __future__ import annotations

from typing import Any, Unpack, cast

from msgspec import structs

from dragoman.conversation import Conversation, HandedOver
from dragoman.engines import AsyncEngine, Engine, Models, lossy
from dragoman.errors import ConfigurationError, ToolDeniedError
from dragoman.loop import LoopIO, LoopRun
from dragoman.tools import AnyTools, Tool, ToolContext, ToolSet
from dragoman.transport import Transport

from .agents import Agent, Core, agent_of, list_agents, run_of, staff_of
from .options import ChatOptions, drop_engine_options, make_executor
from .turns import IN_CHARGE, Runtime, TurnCore


def handoff(
    name: str,
    description: str,
    model: Engine | Models[Engine] | AsyncEngine | Models[AsyncEngine] | None = None,
    tools: AnyTools = (),
    *,
    transport: Transport | None = None,
    **options: Unpack[ChatOptions],
) -> Tool[..., object]:
    """Create a tool that puts another agent in charge of the conversation: its model, tools, instructions and options.

    The run continues within its limits, and the agent stays in charge until it hands over to another one.
    """
    agent = Agent(name, model, tools, transport, options, takes_over=True)

    def hand_over(context: ToolContext[object]) -> object:
        return _admit(agent, context)

    made = Tool.from_schema(hand_over, name=name, description=description, retries=0, idempotent=True)
    return structs.replace(made, agent=agent)


def _admit(agent: Agent, context: ToolContext[object]) -> str:
    """Check that this agent may take over: the text for the model, or a ToolError."""
    run, about = run_of(context), {"tool_name": context.tool_name, "call_id": context.call_id}
    if run is None or run.owner is None:
        message = f"A handoff needs a chat client; {agent.name!r} cannot take over here."
        raise ToolDeniedError(message, **about)
    tools = run.executor.tools
    if agent_of(tools, context.tool_name, takes_over=True) is None:
        message = f"{agent.name!r} cannot take over: this handoff comes from a function of the moment."
        raise ToolDeniedError(message, hint="Pass handoffs to the client itself.", **about)
    asked = context.conversation.pending_tool_calls
    first = next((each for each in asked if agent_of(tools, each.name, takes_over=True)), None)
    if first is not None and first.id != context.call_id:
        message = f"Only the first handoff of a reply counts, which was {first.name!r}."
        raise ToolDeniedError(message, **about)
    losses = staff_of(cast("Core", run.owner)).lease_of(agent).engine.losses(context.conversation)
    if losses and agent.options.get("strict", False):
        raise ToolDeniedError(f"{agent.name!r} cannot take over: {lossy(agent.name, losses).message}", **about)
    return f"{agent.name} is in charge from now on."


# --- who is in charge -------------------------------------------------------------------------------------------------


def hand_to_right_one(
    core: TurnCore[Any], conversation: Conversation, tools: ToolSet | None = None
) -> tuple[Conversation, Runtime]:
    """The conversation with the name of the agent in charge of it, and that agent's runtime, or the client's own.

    It is the agent that the conversation names, or that its last results, of these `tools`, put in charge.
    """
    name = conversation.metadata.get(IN_CHARGE)
    led_to = () if name is None else list_agents(core._runtimes[None].executor.tools, handoffs=True)
    candidates = (core._runtime.agent, *core._runtimes, *led_to)
    known = [each for each in candidates if each is not None and each.name == name]
    if name is not None and not known:
        message = f"The agent {name!r} is in charge of this conversation, but this client has no handoff to it."
        hint = "Give the client its tools again, with the handoff(…) of that name."
        raise ConfigurationError(message, hint=hint)
    now = known[0] if known else None
    found = put_in_charge(runtime_of(core, now).executor.tools, conversation)
    if found is None and tools is not None:
        found = put_in_charge(tools, conversation)
    runtime = runtime_of(core, found or now)
    return name_agent(runtime, conversation), runtime


def put_in_charge(tools: ToolSet, conversation: Conversation) -> Agent | None:
    """The agent whose handoff is among the last results, once all calls have theirs."""
    if conversation.last is None or conversation.last.role != "tool" or conversation.pending_tool_calls:
        return None
    done = [result for result in conversation.last.tool_results if not result.is_error]
    return next((agent for each in done if (agent := agent_of(tools, each.name, takes_over=True))), None)


def runtime_of(core: TurnCore[Any], agent: Agent | None) -> Runtime:
    """What an agent in charge works with, created when first needed; None: what the client itself does."""
    with core._state:
        if agent not in core._runtimes:
            assert agent is not None
            first = core._runtimes[None].options
            kept = {name: value for name, value in first.items() if name not in ("system", "options")}
            options = cast("ChatOptions", {**kept, **drop_engine_options(agent.options)})
            lease, executor = staff_of(core).lease_of(agent), make_executor(agent.tools, options)
            core._runtimes[agent] = core._make_runtime(agent, lease.join(core), executor, options)
        return core._runtimes[agent]


def name_agent(runtime: Runtime, conversation: Conversation) -> Conversation:
    """The conversation with the name of the agent in charge, and with its instructions if that was another one."""
    agent = runtime.agent
    if agent is None or conversation.metadata.get(IN_CHARGE) == agent.name:
        return conversation
    named = conversation.with_metadata({**conversation.metadata, IN_CHARGE: agent.name})
    return runtime.settings.instructed(named)


def hand_over(core: TurnCore[Any], run: LoopRun) -> LoopIO | None:
    """Continue a run with the agent that its last results put in charge, if there is one."""
    agent = put_in_charge(run.executor.tools, run.conversation)
    if agent is None:
        return None
    runtime = runtime_of(core, agent)
    conversation, engine = name_agent(runtime, run.conversation), runtime.lease.engine
    losses = tuple(map(str, engine.losses(conversation)))
    event = HandedOver(agent=agent.name, model=engine.name, losses=losses)
    run.hand_over(event, conversation, runtime.executor, runtime.settings)
    if not core._stateless:
        core._runtime = runtime
    return runtime.io
