"""Agents: clients as tools. `agent_tool` lets a model ask another one; handoffs.py has those that take over.

Must not know: how a turn works. An agent's turn is an ordinary turn of a client.

With a store, an agent's conversation is kept there until the call has its result, under an id derived from the caller's
conversation and the call. So a call that was running when a program died can simply be made again.
"""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, Unpack, assert_never, cast

from msgspec import structs

from dragoman._checks import check_names
from dragoman._stepping import Inner, step
from dragoman.conversation import Conversation, ToolCall
from dragoman.engines import AsyncEngine, Engine, Models, made_here
from dragoman.errors import (
    ConfigurationError,
    SnapshotNotFoundError,
    StoreError,
    ToolBudgetError,
    ToolCancelledError,
    ToolExecutionError,
)
from dragoman.loop import (
    NOTHING_SPENT,
    AwaitApproval,
    Cancelled,
    Done,
    LimitReached,
    LoopRun,
    NoAnswer,
    RunResult,
    settings_of,
)
from dragoman.providers import ModelOptions
from dragoman.stores import aresume, inner_id
from dragoman.tools import (
    AnyTools,
    Paused,
    PendingApproval,
    PermissionCheck,
    Tool,
    ToolConfig,
    ToolContext,
    ToolSet,
    as_tool_set,
    deny,
    fingerprint,
)
from dragoman.transport import Transport

from .client import AsyncChatClient, ChatClient
from .core import ChatCore
from .options import ELSEWHERE, ChatOptions, drop_engine_options, find_engine, list_engine_options
from .turns import Held, Lease, Runtime, TurnCore

if TYPE_CHECKING:
    from dragoman.stores import AsyncConversationStore


Core: TypeAlias = ChatCore[Any]

DEEPEST: Final = 8
"""How many agents may wait for each other, so that one that calls itself ends."""

_MAKING: Final = threading.Lock()
_NOBODY: Final = "nobody can be asked here: a client that keeps no conversation cannot continue the turn of its agent"
_PROMPT: Final = {
    "type": "object",
    "properties": {"prompt": {"type": "string", "description": "What to do, with everything needed to do it."}},
    "required": ["prompt"],
    "additionalProperties": False,
}
_OF_CONVERSATIONS: Final = ("id", "stateless", "answer")
_OF_RUNS: Final = ("limits", "on_limit", "hooks", "conversation", "deps")


# --- what an agent is -------------------------------------------------------------------------------------------------


class Agent:
    """A model, its tools, and the options of a chat client, under a name. Without a model, the caller's is used."""

    def __init__(
        self,
        name: str,
        model: object,
        tools: AnyTools,
        transport: Transport | None,
        options: ChatOptions,
        *,
        takes_over: bool = False,
    ) -> None:
        check_names(options, ChatOptions.__annotations__, "An agent", ELSEWHERE)
        for each in (*_OF_CONVERSATIONS, *(_OF_RUNS if takes_over else ())):
            if each in options:
                message = f"{each!r} belongs to a conversation, not to an agent."
                raise ConfigurationError(message, hint="Leave it out, or pass it to the client that has the agent.")
        foreign = [*list_engine_options(options), *(["transport"] if transport else [])] if model is None else []
        if foreign:
            message = f"{foreign[0]!r} belongs to a model, but this agent uses its caller's."
            raise ConfigurationError(message, hint=f"Leave {foreign[0]} out, or name the agent's model.")
        self.name: Final = name
        self.model: Final = model
        self.tools: Final[ToolSet] = as_tool_set(tools)
        self.transport: Final = transport
        # Iterators can be read only once.
        lists = {name: tuple(cast("Any", value)) for name, value in options.items() if name in ("hooks", "context")}
        self.options: Final = cast("ChatOptions", {**options, **lists})
        settings_of(self.options, ModelOptions(), ToolConfig())  # raises if they are wrong
        self.takes_over: Final = takes_over
        """Whether calling the tool puts the agent in charge."""
        self.checked: Final = set[type[Engine] | type[AsyncEngine]]()
        """The colours in which its engine is known to work."""


def agent_tool(
    name: str,
    description: str,
    model: Engine | Models[Engine] | AsyncEngine | Models[AsyncEngine] | None = None,
    tools: AnyTools = (),
    *,
    transport: Transport | None = None,
    **options: Unpack[ChatOptions],
) -> Tool[..., object]:
    """Create a tool that asks another model, with its own tools, instructions and limits, and returns its answer.

    The options are those of a chat client. `model`, `permission` and `deps` default to the caller's.
    """
    return _make_tool(Agent(name, model, tools, transport, options), description)


def make_tool_of(core: Core, name: str, description: str) -> Tool[..., object]:
    """A client as a tool: its model, tools and options, and its current system prompt."""
    own = core._runtimes[None]
    options = drop_engine_options(own.options)
    for each in (*_OF_CONVERSATIONS, "conversation"):
        options.pop(each, None)
    if core._runtime.agent is None:
        options["system"] = core.system
    return _make_tool(Agent(name, own.lease.engine, own.executor.tools, None, options), description)


def _make_tool(agent: Agent, description: str) -> Tool[..., object]:
    def ask(context: ToolContext[object], prompt: str) -> object:
        run = run_of(context)
        staff = Staff(None) if run is None or run.owner is None else staff_of(cast("Core", run.owner))
        working = staff.work(agent, context, prompt)
        # An event loop awaits the coroutine; elsewhere this is a thread of the turn's own.
        return step(working) if staff.is_plain(agent) else working

    made = Tool.from_schema(ask, _PROMPT, name=agent.name, description=description, retries=0)
    return structs.replace(made, agent=agent)


def run_of(context: ToolContext[object]) -> LoopRun | None:
    """The loop's run that a call belongs to, if there is one."""
    run = None if context.run is None else context.run.caller
    return run if isinstance(run, LoopRun) else None


def list_agents(tools: ToolSet, *, handoffs: bool = False) -> Iterator[Agent]:
    """All agents behind these tools and behind their tools, each once; or only those that handoffs lead to."""
    seen, waiting = set[int](), [tools]
    while waiting:
        for tool in waiting.pop(0):
            agent = cast("Agent | None", tool.agent)
            if agent is None or id(agent) in seen or (handoffs and not agent.takes_over):
                continue
            seen.add(id(agent))
            waiting.append(agent.tools)
            yield agent


def check_agents(tools: ToolSet, kind: type[Engine] | type[AsyncEngine]) -> None:
    """Refuse agents whose model does not exist, has no key, or is of the other colour, before any model is asked."""
    for agent in list_agents(tools):
        if agent.model is not None and kind not in agent.checked:
            try:
                find_engine(agent.model, agent.transport, agent.options, kind)  # it has no connections yet
            except ConfigurationError as error:
                error.add_note(f"This is about the model of the agent {agent.name!r}.")
                raise
            agent.checked.add(kind)


def agent_of(tools: ToolSet, name: str, *, takes_over: bool) -> Agent | None:
    """The agent behind the tool of that name, if it is (or is not) one that takes over."""
    found = tools.find(name)
    agent = None if found is None else cast("Agent | None", found.agent)
    return agent if agent is not None and agent.takes_over is takes_over else None


# --- the agents of a client -------------------------------------------------------------------------------------------


class Restored(NamedTuple):
    """What a client is about to hold: a conversation of its store, under its id there, and who takes its turns."""

    id: str
    held: Held
    runtime: Runtime


def staff_of(core: TurnCore[Any]) -> Staff:
    """The Staff of a client, created when an agent is first called."""
    with core._state:
        if core._staff is None:
            core._staff = Staff(core)
        return core._staff


class Staff:
    """The engines of a client's agents, and those of the agents' turns that wait for approval."""

    def __init__(self, owner: TurnCore[Any] | None) -> None:
        calling = None if owner is None or owner._caller is None else run_of(owner._caller)
        caller: Any = None if calling is None else calling.owner
        above = None if caller is None else staff_of(caller)
        self._owner: TurnCore[Any] | None = owner
        self._above: Staff | None = above
        """The caller's, if the owner is an agent's client: both share the engines."""
        self._top: Staff = self if above is None else above._top
        """Who uses the engines for all of them."""
        self._leases: dict[Agent, Lease[Any]] = {} if above is None else above._leases
        keeps = owner is not None and not owner._stateless
        self._can_pause: bool = keeps if above is None else above._can_pause
        if owner is not None and owner._kept_in is not None:
            owner._ledger.then = self.forget

    def is_plain(self, agent: Agent) -> bool:
        """Whether the turns of this agent run without an event loop."""
        return not isinstance(agent.model if self._owner is None else self._owner, AsyncEngine | AsyncChatClient)

    def lease_of(self, agent: Agent, caller: Runtime | None = None) -> Lease[Any]:
        """The agent's engine, created for its first turn; one without a model uses that of the caller's runtime."""
        if agent.model is None:
            if self._owner is None:
                message = f"The agent {agent.name!r} has no model, and is not called by a chat client that has one."
                raise ConfigurationError(message, hint="Name its model: agent_tool(name, description, 'openai:…').")
            return (self._owner._runtimes[None] if agent.takes_over else caller or self._owner._runtime).lease
        with _MAKING:
            if agent not in self._leases:
                kind: Any = Engine if self.is_plain(agent) else AsyncEngine
                made: Any = find_engine(agent.model, agent.transport, agent.options, kind)
                owned = made_here(made, cast("Any", agent.model))
                self._leases[agent] = Lease[Any](made, owned=owned).join(self._top)
            return self._leases[agent]

    @staticmethod
    async def leave_behind(before: Held) -> None:
        """Close the clients that wait for a conversation that the client has left."""
        while before.paused:
            await before.paused.popitem()[1]._close()

    async def close(self) -> None:
        """Leave the engines, and close the waiting clients."""
        if self._owner is not None:
            await self.leave_behind(self._owner._held)
        if self._above is None:
            while self._leases:
                await self._leases.popitem()[1].leave(self)

    # --- a turn on behalf of a call ---

    async def work(self, agent: Agent, context: ToolContext[object], prompt: str) -> str:
        """Run a turn of the agent, or continue it, and return the text of its answer."""
        run = run_of(context)
        if run is not None and sum(1 for _ in run.meter.callers) >= DEEPEST:
            message = f"Agents can call each other only {DEEPEST} deep; {agent.name!r} would be one more."
            raise ToolBudgetError(message, tool_name=context.tool_name, call_id=context.call_id)
        waited = context.run is not None and context.call_id in context.run.earlier
        paused: dict[str, Core] = {} if self._owner is None else self._owner._held.paused
        client, waits = paused.pop(context.call_id, None), False
        continues = client is not None
        if client is None:
            desk = context.desk
            call = ToolCall(context.call_id, context.tool_name) if desk is None else desk.call
            permission = None if desk is None else desk.permission
            client = self._make_client(agent, call, context.conversation, context.deps, permission=permission)
        client._caller = context
        if client._kept_in is not None:  # a call that is stopped has its result, and will not be continued
            context.stop.wakers[client] = client._ledger.give_up
        try:
            continues = continues or await _continue_stored(client)
            if continues and not waited:  # the program died; the result includes what was used before
                context.meter.include(client._used)
            result = await self._carry_out(client, context, None if continues else prompt)
            waits = isinstance(result.ending, AwaitApproval) and client._kept_in is None
            if waits:
                paused[context.call_id] = client
            return _answer_of(agent, context, result)
        finally:
            if not waits:
                await client._close()
            if client._kept_in is not None:
                context.stop.wakers.pop(client, None)
                if context.stop.cancelled:  # a write may have finished after the deletion
                    with suppress(StoreError):
                        await delete_inner(client._kept_in, client.id or "")
            if self._owner is None:
                await self.close()

    def _make_client(
        self,
        agent: Agent,
        call: ToolCall,
        conversation: Conversation,
        deps: object,
        *,
        permission: PermissionCheck | None = None,
        restored: Restored | None = None,
    ) -> Core:
        """A client for the turn of this call, with the caller's deps and permission check as defaults.

        It is for what the owner holds, or is about to hold.
        """
        options: Any = {"deps": deps, "permission": permission, **drop_engine_options(agent.options)}
        options["on_limit"] = "return"
        store = None if self._owner is None else self._owner._store
        if self._owner is not None and store is not None:
            held, id = (self._owner._held, self._owner.id) if restored is None else (restored.held, restored.id)
            options["id"] = held.kept[call.id] = inner_id_of(id or "", conversation, call)
            begin = options.get("conversation", Conversation())
            parent = {"dragoman.parent": id, "dragoman.call": call.id}
            options["conversation"] = begin.with_metadata({**begin.metadata, **parent})
        kind: Any = ChatClient if self.is_plain(agent) else AsyncChatClient
        lease = self.lease_of(agent, None if restored is None else restored.runtime)
        client: Core = kind(lease.engine, agent.tools, store=store, **options)
        client._set(client._held, client._runtime._replace(lease=lease.join(client)))
        return client

    async def _carry_out(self, client: Core, context: ToolContext[object], prompt: str | None) -> RunResult:
        spent = NOTHING_SPENT
        answers = [answer for each in client.pending if (answer := context.answer_about(each.call)) is not None]
        while True:
            begun: list[LoopRun] = []
            begin = partial(client._begin_turn, prompt, {"approvals": answers}, None, spent)
            async with Inner(client._turn(begin, begun, streamed=context.watched)) as events:
                async for event in events:
                    context.report(event)
            result = begun[0].result
            if not result.pending or self._can_pause:
                return result
            prompt, answers = None, [deny(each.call, reason=_NOBODY) for each in result.pending]
            spent = result.spent

    async def forget(self, call_id: str) -> None:
        """Delete what was kept for a call, whose result is now in the caller's journal."""
        if self._owner is not None:
            await self._forget(self._owner._held, call_id)

    async def _forget(self, held: Held, call_id: str) -> None:
        id = held.kept.pop(call_id, None)
        if id is not None and self._owner is not None and self._owner._kept_in is not None:
            await delete_inner(self._owner._kept_in, id)

    async def forget_answered(self, held: Held) -> None:
        """The same for calls that got a result in another way: they were refused or cancelled."""
        waiting = {call.id for call in held.conversation.pending_tool_calls}
        for call_id in [each for each in held.paused if each not in waiting]:
            await held.paused.pop(call_id)._close()
        for call_id in [each for each in held.kept if each not in waiting]:
            await self._forget(held, call_id)

    async def list_waiting(self, restored: Restored, tools: ToolSet) -> tuple[PendingApproval, ...]:
        """The calls that wait in agents' conversations in the store; deletes those of calls that have a result."""
        assert self._owner is not None
        conversation = restored.held.conversation
        asked = next((each for each in reversed(conversation.messages) if each.role != "tool"), None)
        for call in () if asked is None else asked.tool_calls:
            restored.held.kept[call.id] = inner_id_of(restored.id, conversation, call)
        await self.forget_answered(restored.held)
        found = list[PendingApproval]()
        for call in conversation.pending_tool_calls:
            agent = agent_of(tools, call.name, takes_over=False)
            if agent is None:
                continue
            deps = restored.runtime.settings.deps
            client = self._make_client(agent, call, conversation, deps, restored=restored)
            try:
                if await _continue_stored(client):
                    found += [each.inside(call, client._used) for each in client.pending]
            finally:
                await client._close()
        return tuple(found)


async def _continue_stored(client: Core) -> bool:
    """Continue a turn from the store; False if it has none."""
    if client._kept_in is None:
        return False
    try:
        await client._restore(client.id or "")
    except SnapshotNotFoundError:
        return False
    return True


def _answer_of(agent: Agent, context: ToolContext[object], result: RunResult) -> str:
    about: dict[str, Any] = {"tool_name": context.tool_name, "call_id": context.call_id}
    last_words = f" Its last words were: {result.text}" if result.text else ""
    match result.ending:
        case AwaitApproval():
            raise Paused(result.pending)
        case LimitReached():
            raise ToolBudgetError(f"The agent {agent.name!r} did not finish. {result.ending}{last_words}", **about)
        case Cancelled():
            raise ToolCancelledError(f"The agent {agent.name!r} was stopped.", **about)
        case NoAnswer():
            raise ToolExecutionError(f"The agent {agent.name!r} did not answer. {result.note}{last_words}", **about)
        case Done() if result.note and not result.text:
            raise ToolExecutionError(f"The agent {agent.name!r} did not answer. {result.note}", **about)
        case Done():
            return f"{result.text}\n\n[{result.note}]" if result.note else result.text
        case _:
            assert_never(result.ending)


# --- agents' conversations in the store -------------------------------------------------------------------------------


def inner_id_of(parent: str, conversation: Conversation, call: ToolCall) -> str:
    """The id in the store of the agent's conversation for this call."""
    messages = conversation.messages
    place = max([index for index, each in enumerate(messages) if each.role == "assistant"], default=0)
    return inner_id(parent, f"{place} {fingerprint(call)}")


async def delete_inner(store: AsyncConversationStore, id: str) -> None:
    """Delete an agent's conversation, and those of unfinished calls in it."""
    try:
        conversation = (await aresume(store, id)).conversation
    except SnapshotNotFoundError:
        return
    for call in conversation.pending_tool_calls:
        await delete_inner(store, inner_id_of(id, conversation, call))
    with suppress(SnapshotNotFoundError):
        await store.delete(id)
