"""What a chat client can do besides taking turns: its state, switching models, saving, restoring and forking.

Must not know: event loops. ChatClient steps this code, AsyncChatClient awaits it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import dragoman.providers
from dragoman.conversation import Conversation, Message, Usage
from dragoman.engines import EngineOptions, lossy
from dragoman.errors import ConfigurationError
from dragoman.loop import (
    UNCERTAIN,
    Instruction,
    Instructions,
    RunContext,
    close_engine,
    split_instructions,
    tools_of,
)
from dragoman.providers import Loss
from dragoman.tools import PendingApproval

from . import later
from .options import make_executor
from .turns import E, Prompt, Shared, TurnCore, make_message

if TYPE_CHECKING:
    from dragoman.stores import Recovered, Snapshot
    from dragoman.tools import AnyTools, Tool


class ChatCore(TurnCore[E]):
    """A conversation with a model and tools."""

    # --- state ---

    @property
    def agent(self) -> str | None:
        """The agent that took over by a `handoff`; None if the client itself is in charge."""
        return None if self._agent is None else self._agent.name

    @property
    def system(self) -> str | tuple[str | Instruction, ...] | None:
        """The system prompt: its text, or the text and its functions.

        Assigning to it takes effect with the next turn.
        """
        text, functions = self._conversation.system, self._settings.instructions
        return (*([] if text is None else [text]), *functions) if functions else text

    @system.setter
    def system(self, system: Instructions | None) -> None:
        fixed, _ = split_instructions(system)
        with self._claimed(), self._state:
            self._conversation = self._conversation.with_system(fixed)
            self._options = {**self._options, "system": system}
            self._set_up()

    @property
    def conversation(self) -> Conversation:
        """The conversation so far, including a turn in progress."""
        with self._state:
            self._catch_up()
            return self._conversation if self._run is None else self._run.conversation

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages so far."""
        return self.conversation.messages

    @property
    def usage(self) -> Usage:
        """The tokens of all replies in the conversation, including those of agents."""
        return self.conversation.usage

    @property
    def cost(self) -> float | None:
        """The cost of all replies in the conversation in US dollars; None if any part of it is unknown."""
        return dragoman.providers.conversation_cost(self.conversation.messages)

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The calls without a result, and why: answer them with `resume(approve(call), deny(other))`."""
        found = list[PendingApproval]()
        for call in self._conversation.pending_tool_calls:
            known = {each.call.id: each for each in (*self._pending, *self._uncertain) if each.held.id == call.id}
            found += known.values() or [PendingApproval(call=call)]
        return tuple(found)

    @property
    def uncertain(self) -> tuple[PendingApproval, ...]:
        """The pending calls that were running when an earlier process died; they may or may not have done their work.

        `approve(call)` runs such a call again; `deny(call, reason="…")` does not, and gives the model the reason.
        """
        return self._uncertain

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
            elif self._conversation.pending_tool_calls:
                self._queue = (*self._queue, message)
            else:
                self._conversation = self._conversation.plus(message)

    def set_tools(self, tools: AnyTools) -> None:
        """Replace the tools."""
        with self._claimed():
            made = make_executor(tools, self._options)
            with self._state:
                before, self._executor = self._executor, made
                self._set_up()
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
            return await self._ledger.save(self._conversation)

    async def _restore(self, saved: Snapshot | str) -> tuple[Loss, ...]:
        with self._claimed():
            if isinstance(saved, str):
                if self._kept_in is None:
                    message = "This client has no store to look into."
                    raise ConfigurationError(message, hint="Make it with store=…, or restore a Snapshot.")
                return await self._take_up_recovered(await self._ledger.recover(saved))
            fork = self._kept_in is not None and not await self._ledger.has_as_newest(saved)
            self._put_right_one_in_charge(saved.conversation)
            losses = self.engine.losses(saved.conversation)
            self._ledger.take_up(saved, fork=fork)
            await self._take_up(saved.conversation)
            return losses

    async def _switch(self, engine: E, options: EngineOptions, *, owned: bool) -> tuple[Loss, ...]:
        """Use this model from now on. Returns what it will not get of the history."""
        before: Shared[E] | None = None
        try:
            losses = engine.losses(self._conversation)
            if losses and options.get("strict", False):
                raise lossy(engine.name, losses)
        except BaseException:
            if owned:
                await close_engine(engine)
            raise
        with self._state:
            if "options" in options:
                self._options = {**self._options, "options": options["options"]}
            if engine is not self.engine:
                before, self._engine = self._engine, Shared(engine, owned=owned)
            self._set_up()
        if before is not None:
            await before.leave()
        return losses

    async def _take_up_recovered(self, recovered: Recovered) -> tuple[Loss, ...]:
        conversation, _ = later.put_together(recovered, self.tools.tools)
        self._put_right_one_in_charge(conversation)
        tools = self.tools.tools
        if tools.function is not None and (conversation.pending_tool_calls or recovered.done_results):
            moment = RunContext(deps=self._settings.deps, conversation=conversation, model=self.model)
            tools = await tools_of(tools, moment, self._io.wait_for)
        conversation, uncertain = later.put_together(recovered, self.tools.searched(tools))
        losses = self.engine.losses(conversation)
        self._ledger.take_up_recovered(recovered)
        await self._take_up(conversation, uncertain)
        if any(tool.agent is not None for tool in tools):
            inside = await later.staff_of(self).list_waiting(conversation, tools)
            with self._state:
                self._pending = tuple([each for each in inside if each.reason != UNCERTAIN])
                self._uncertain = (*uncertain, *[each for each in inside if each.reason == UNCERTAIN])
        return losses

    async def _take_up(self, conversation: Conversation, uncertain: Iterable[PendingApproval] = ()) -> None:
        with self._state:
            self._conversation, self._queue = conversation, ()
            self._pending, self._uncertain = (), tuple(uncertain)
        if self._staff is not None:
            await self._staff.leave_behind()

    def _fork_into(self, other: ChatCore[E]) -> None:
        """Make the other client a fork of this conversation, on the same engine."""
        with self._state:
            other._engine = self._own_charge().engine.join()
            other._conversation, other._queue = self._conversation, self._queue
            # Unfinished turns of agents stay with this client: they are conversations of their own.
            other._pending = tuple([each for each in self._pending if each.within is None])
            other._uncertain = tuple([each for each in self._uncertain if each.within is None])
        if self._kept is not None and self._kept.snapshot is not None:
            other._ledger.take_up(self._kept.snapshot, fork=True)
        other._set_up()
        if self._agent is not None:
            other._put_right_one_in_charge(other._conversation)

    # --- the end ---

    async def _close(self) -> None:
        """Refuse further calls, stop the current turn, and close what the client owns."""
        with self._state:
            if self._closed:
                return
            self._catch_up()
            self._closed = True  # from here on nothing replaces the executor or the engine
        self.cancel()
        self._executor.close()
        for charge in self._charges.values():
            charge.executor.close()
            await charge.engine.leave()
        if self._staff is not None:
            await self._staff.close()
        await self._engine.leave()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.model}, {len(self.history)} messages>"
