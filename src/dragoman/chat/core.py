"""What a chat client can do besides taking turns: its state, switching models, saving, restoring and forking.

Must not know: event loops. ChatClient steps this code, AsyncChatClient awaits it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from msgspec import structs

import dragoman.providers
from dragoman._checks import of_unmade
from dragoman.conversation import Conversation, Message, Usage
from dragoman.engines import EngineOptions, lossy
from dragoman.errors import ConfigurationError
from dragoman.loop import (
    UNCERTAIN,
    Instruction,
    Instructions,
    RunContext,
    close_engine,
    tools_of,
)
from dragoman.providers import Loss
from dragoman.tools import PendingApproval

from . import later
from .options import ChatOptions, make_executor
from .turns import E, Held, Lease, Prompt, Runtime, TurnCore, make_message

if TYPE_CHECKING:
    from dragoman.stores import Recovered, Snapshot
    from dragoman.tools import AnyTools, Tool

    from .ledger import Place


class ChatCore(TurnCore[E]):
    """A conversation with a model and tools."""

    # --- state ---

    @property
    def agent(self) -> str | None:
        """The agent that took over by a `handoff`; None if the client itself is in charge."""
        agent = self._runtime.agent
        return None if agent is None else agent.name

    @property
    def system(self) -> str | tuple[str | Instruction, ...] | None:
        """The system prompt that will be sent: its text, or the text and its functions.

        It is that of the client, or of the agent in charge; a client without one sends that of its conversation.
        Assigning to it takes effect with the next turn.
        """
        settings = self._runtime.settings
        text, functions = settings.instructed(self._held.conversation).system, settings.instructions
        return (*([text] if text else []), *functions) if functions else text or None

    @system.setter
    def system(self, system: Instructions | None) -> None:
        with self._claimed(), self._state:
            agent, lease, executor, options, *_ = self._runtime
            made = self._make_runtime(agent, lease, executor, {**options, "system": system})
            conversation = self._held.conversation.with_system(made.settings.system or None)
            self._set(structs.replace(self._held, conversation=conversation), made)

    @property
    def conversation(self) -> Conversation:
        """The conversation so far, including a turn in progress."""
        with self._state:
            self._catch_up()
            return self._held.conversation if self._run is None else self._run.conversation

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages so far."""
        return self.conversation.messages

    @property
    def usage(self) -> Usage:
        """The tokens of all replies in the conversation, including those of agents."""
        waiting = self._used_by_waiting
        return Usage.total_of([self.conversation.usage, *waiting]) if waiting else self.conversation.usage

    @property
    def cost(self) -> float | None:
        """The cost of all replies in the conversation in US dollars; None if any part of it is unknown."""
        known = dragoman.providers.conversation_cost(self.conversation.messages)
        return dragoman.providers.total_cost([known, *[each.charged for each in self._used_by_waiting]])

    @property
    def _used(self) -> Usage:
        """`usage`, with `cost` as its charge."""
        return structs.replace(self.usage, charged=self.cost)

    @property
    def _used_by_waiting(self) -> list[Usage]:
        """What agents have used whose calls have no result yet, because they wait for approval."""
        pending = (*self._held.pending, *self._held.uncertain)
        if not pending:
            return []
        calls = self.conversation.pending_tool_calls
        waiting = {each.held.id: each.used for each in pending if each.held in calls}
        return [each for each in waiting.values() if each is not None]

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The calls without a result, and why: answer them with `resume(approve(call), deny(other))`."""
        found, held = list[PendingApproval](), self._held
        for call in held.conversation.pending_tool_calls:
            known = {each.call.id: each for each in (*held.pending, *held.uncertain) if each.held.id == call.id}
            found += known.values() or [PendingApproval(call=call)]
        return tuple(found)

    @property
    def uncertain(self) -> tuple[PendingApproval, ...]:
        """The pending calls that were running when an earlier process died; they may or may not have done their work.

        `approve(call)` runs such a call again; `deny(call, reason="…")` does not, and gives the model the reason.
        """
        return self._held.uncertain

    @property
    def kept_as(self) -> tuple[Snapshot, int] | None:
        """What this client last saved: the newest snapshot, and the position in the journal after it.

        If the store has another position, another program has written to it; `restore` loads that.
        """
        return None if self._kept is None else self._kept.kept_as

    # --- changes that need no I/O ---

    def add(self, prompt: Prompt) -> None:
        """Append a message without calling the model.

        During a turn (from another thread or task), the model reads it before its next reply.
        """
        message = make_message(prompt)
        with self._state:
            self._catch_up()
            if self._run is not None:
                self._run.add(message)
            elif self._held.conversation.pending_tool_calls:
                self._held = structs.replace(self._held, queue=(*self._held.queue, message))
            else:
                self._held = structs.replace(self._held, conversation=self._held.conversation.plus(message))

    def set_tools(self, tools: AnyTools) -> None:
        """Replace the tools."""
        with self._claimed():
            with self._state:
                agent, lease, before, options, *_ = self._runtime
                self._set(self._held, self._make_runtime(agent, lease, make_executor(tools, options), options))
            before.close()

    def as_tool(self, name: str, description: str) -> Tool[..., object]:
        """This client as a tool for another one: an agent with its model, tools and options; see `agent_tool`.

        Each call is a separate conversation; the one that this client holds is not involved.
        """
        return later.make_tool_of(self, name, description)

    def cancel(self) -> None:
        """Stop the current turn at once, from any thread, task or signal handler; what was done is kept.

        A stateless client stops all of its turns.
        """
        for run in list(self._runs):
            run.cancel()

    # --- other models, other conversations ---

    async def _save(self) -> Snapshot:
        with self._claimed():
            return await self._ledger.save(self._held.conversation)

    async def _restore(self, saved: Snapshot | str) -> tuple[Loss, ...]:
        with self._claimed():
            if isinstance(saved, str):
                if self._kept_in is None:
                    message = "This client has no store to look into."
                    raise ConfigurationError(message, hint="Make it with store=…, or restore a Snapshot.")
                return await self._take_up_recovered(await self._ledger.recover(saved))
            fork = self._kept_in is not None and not await self._ledger.has_as_newest(saved)
            conversation, runtime = self._hand_to_right_one(saved.conversation)
            losses = runtime.lease.engine.losses(conversation)
            await self._take_up(Held(conversation), runtime, later.place_of(saved, fork=fork))
            return losses

    async def _switch(self, engine: E, options: EngineOptions, *, owned: bool) -> tuple[Loss, ...]:
        """Use this model from now on. Returns what it will not get of the history."""
        agent, before, executor, given, *_ = self._runtime
        try:
            losses = engine.losses(self._held.conversation)
            if losses and options.get("strict", False):
                raise lossy(engine.name, losses)
            if "options" in options:
                given = cast("ChatOptions", {**given, "options": options["options"]})
            lease = before if engine is before.engine else Lease(engine, owned=owned).join(self)
            made = self._make_runtime(agent, lease, executor, given)
        except BaseException:
            if owned:
                await close_engine(engine)
            raise
        with self._state:
            for other, runtime in list(self._runtimes.items()):
                if other not in (None, agent) and other.model is None and runtime.lease is before:
                    del self._runtimes[other]  # made anew, with the new model, when it is in charge again
                    runtime.executor.close()
            self._set(self._held, made)
        if all(each.lease is not before for each in self._runtimes.values()):
            await before.leave(self)
        return losses

    async def _take_up_recovered(self, recovered: Recovered) -> tuple[Loss, ...]:
        conversation, *_ = later.put_together(recovered, self.tools.tools)
        conversation, runtime = self._hand_to_right_one(conversation)
        executor, engine, tools = runtime.executor, runtime.lease.engine, runtime.executor.tools
        if tools.function is not None and (conversation.pending_tool_calls or recovered.done_results):
            moment = RunContext(deps=runtime.settings.deps, conversation=conversation, model=engine.name)
            tools = await tools_of(tools, moment, runtime.io.wait_for)
        conversation, pending, uncertain = later.put_together(recovered, executor.searched(tools))
        conversation, runtime = self._hand_to_right_one(conversation)
        losses = runtime.lease.engine.losses(conversation)
        held = Held(conversation, pending, uncertain)
        if any(tool.agent is not None for tool in tools):
            restored = later.Restored(recovered.snapshot.root, held, runtime)
            inside = await later.staff_of(self).list_waiting(restored, tools)
            pending = (*pending, *[each for each in inside if each.reason != UNCERTAIN])
            uncertain = (*uncertain, *[each for each in inside if each.reason == UNCERTAIN])
            held = structs.replace(held, pending=pending, uncertain=uncertain)
        await self._take_up(held, runtime, later.recovered_place(recovered))
        return losses

    async def _take_up(self, held: Held, runtime: Runtime, place: Place) -> None:
        """Continue this conversation instead of the present one."""
        ledger, agent = self._ledger, runtime.agent
        with self._state:
            before = self._held
            self._held, self._runtime, self._runtimes[agent], ledger.place = held, runtime, runtime, place
        if self._staff is not None:
            await self._staff.leave_behind(before)

    def _set(self, held: Held, runtime: Runtime) -> None:
        """Change what the client has. All of it or nothing: Ctrl-C does not come within a statement without calls."""
        agent = runtime.agent
        self._held, self._runtime, self._runtimes[agent] = held, runtime, runtime

    def _fork_into(self, other: ChatCore[E]) -> None:
        """Make the other client a fork of this conversation, on the same engines."""
        with self._state:
            held, agent, runtimes = self._held, self._runtime.agent, dict(self._runtimes)
        for each in runtimes.values():
            executor = other.tools if each.agent is None else make_executor(each.executor.tools, each.options)
            other._runtimes[each.agent] = other._make_runtime(
                each.agent, each.lease.join(other), executor, each.options
            )
        # Unfinished turns of agents stay with this client: they are conversations of their own.
        pending = (*[each for each in held.pending if each.within is None], *held.paused_by_tools)
        uncertain = tuple([each for each in held.uncertain if each.within is None])
        other._held = Held(held.conversation, pending, uncertain, held.queue)
        other._runtime = other._runtimes[agent]
        if self._kept is not None and self._kept.snapshot is not None:
            other._ledger.place = later.place_of(self._kept.snapshot, fork=True)

    # --- the end ---

    async def _close(self) -> None:
        """Refuse further calls, stop the current turn, and close what the client owns."""
        with self._state:
            if self._closed:
                return
            self._catch_up()
            self._closed = True  # from here on nothing replaces the executor or the engine
        self.cancel()
        runtimes = list(self._runtimes.values())
        for runtime in runtimes:
            runtime.executor.close()
        if self._staff is not None:
            await self._staff.close()
        for runtime in runtimes:
            await runtime.lease.leave(self)

    @of_unmade
    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.model}, {len(self.history)} messages>"
