"""The chat client without its colour: a conversation with a model and tools.

Owns: the conversation a client holds, how a turn begins and ends, and who may use the client meanwhile.
Must not know: event loops. ChatClient steps what is here, AsyncChatClient awaits it.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

from msgspec import structs

from dragoman.conversation import Conversation, Event, Message, ToolSpec, Usage
from dragoman.engines import EngineOptions, lossy
from dragoman.errors import ConcurrentUseError, ConfigurationError
from dragoman.loop import (
    LoopIO,
    LoopRun,
    LoopSettings,
    RunResult,
    append_tool_results,
    note_on,
    refuse_unanswered_calls,
    settings_of,
)
from dragoman.providers import Loss, ModelOptions, Profile
from dragoman.tools import AnyTools, Approval, PendingApproval

from .leases import Hold, Lease, close_executor
from .options import ChatOptions, Prompt, make_executor, make_message

if TYPE_CHECKING:
    from dragoman.stores import AsyncConversationStore, Recovered, Snapshot
    from dragoman.tools import ToolExecutor

    from .answers import Question
    from .ledger import Journaling, Ledger


class _Described(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def profile(self) -> Profile: ...
    @property
    def options(self) -> ModelOptions: ...
    def losses(self, conversation: Conversation) -> tuple[Loss, ...]: ...


E = TypeVar("E", bound=_Described)

_BUSY = (
    "Wait for the turn, or leave the `with` block of its stream. For several at once make a client each, or share one "
    "made with stateless=True."
)
_UNCERTAIN = "it had begun when the program was stopped, and nobody knows whether it did its work"


class ChatCore(Generic[E]):
    """A conversation with a model and tools."""

    def __init__(self, engine: E, tools: AnyTools, options: ChatOptions, *, owned: bool) -> None:
        self._user: object = object()
        """Who shares the engine and the executor with turns and forks."""
        self._lease: Lease[E] = Lease(engine, self._user, owned=owned)
        # Kept for a switch and for forks: what can be gone through only once is gone through here.
        hooks, context = tuple(options.get("hooks", ())), tuple(options.get("context", ()))
        self._options: ChatOptions = {**options, "hooks": hooks, "context": context}
        self._stateless: bool = options.get("stateless", False)
        self._tools: Lease[ToolExecutor] = Lease(make_executor(tools, options), self._user, owned=True)
        self._conversation: Conversation = options.get("conversation", Conversation())
        if options.get("system") is not None:
            self._conversation = self._conversation.with_system(options.get("system"))
        self._kept: Ledger | None = None
        """What `_ledger` gives, once somebody asked for it."""
        self._journaling: Journaling | None = None
        self._settings: LoopSettings = self._new_settings()
        self._pending: tuple[PendingApproval, ...] = ()
        self._uncertain: tuple[PendingApproval, ...] = ()
        self._queue: tuple[Message, ...] = ()
        """What was added while calls wait for a person; it is said after they are answered."""
        self._run: LoopRun | None = None
        self._holder: object | None = None
        """Whoever is in the middle of something."""
        self._hold: Hold[E] | None = None
        """What the newest turn works with, or worked with."""
        # Re-entrant: a signal handler, or a stream that the garbage collector closes, may come in at any moment.
        self._state: threading.RLock = threading.RLock()
        self._closed: bool = False

    # --- what depends on the colour ---

    def _io(self, hold: Hold[E]) -> LoopIO:
        raise NotImplementedError

    async def _close_engine(self, engine: E) -> None:
        raise NotImplementedError

    # --- what there is ---

    @property
    def engine(self) -> E:
        """The engine that speaks to the model."""
        return self._lease.thing

    @property
    def model(self) -> str:
        """As in `provider:model`."""
        return self.engine.name

    @property
    def conversation(self) -> Conversation:
        """The conversation as it stands; while a turn is under way, as far as that has got."""
        with self._state:
            self._catch_up()
            return self._conversation if self._run is None else self._run.conversation

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages so far."""
        return self.conversation.messages

    @property
    def usage(self) -> Usage:
        """The tokens of all replies in the conversation, added up."""
        return self.conversation.usage

    @property
    def tools(self) -> ToolExecutor:
        """The executor that runs the tools; its `tools` are those that the model may call."""
        return self._tools.thing

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The calls that have no result yet, and why: answer with `approve(call)` or `deny(call)` and `resume`."""
        known = {each.call.id: each for each in (*self._pending, *self._uncertain)}
        calls = self._conversation.pending_tool_calls
        return tuple([known.get(call.id) or PendingApproval(call=call) for call in calls])

    @property
    def uncertain(self) -> tuple[PendingApproval, ...]:
        """Of these, the calls that had begun when an earlier process died; they may or may not have done their work.

        `approve(call)` runs such a call again; `deny(call, reason="…")` does not, and tells the model the reason.
        """
        return self._uncertain

    @property
    def id(self) -> str | None:
        """The id of the conversation in its store; None until something has been saved."""
        return None if self._kept is None else self._kept.id

    # --- what changes it at once ---

    def add(self, prompt: Prompt) -> None:
        """Put a message into the conversation without asking the model.

        While a turn is under way, from another thread or task, the model reads it before it speaks next.
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
        """Give the model these tools in place of those it had."""
        with self._claimed():
            made = Lease(make_executor(tools, self._options), self._user, owned=True)
            with self._state:
                self._ensure_open()
                before, self._tools = self._tools, made
            close_executor(before, self._user)

    def cancel(self) -> None:
        """Stop the turn that is under way, from any thread, task or signal handler; what was done stays.

        Without one nothing happens. A stateless client does not know its turns: cancel their streams.
        """
        run = self._run
        if run is not None:
            run.cancel()

    # --- a turn ---

    def _claim(self, holder: object) -> None:
        """Keep everybody else out of the client; who claims it lets go with `self._holder = None`, and nothing else.

        Not with a function: Ctrl-C may come whenever one is called, and the client would be busy for ever.
        """
        with self._state:
            self._ensure_open()
            if not self._stateless:
                if self._holder is not None:
                    message = "This client is in the middle of a turn; one client holds one conversation."
                    raise ConcurrentUseError(message, hint=_BUSY)
                self._catch_up()
                self._holder = holder
            if isinstance(holder, Hold):
                hold = cast("Hold[E]", holder)
                if not self._stateless:
                    self._hold = hold
                hold.take(self._lease, self._tools, self._settings)

    def _ensure_open(self) -> None:
        if self._closed:
            message = "The client is closed."
            raise ConfigurationError(message, hint="Make a new one, or do not close it so early.")

    @contextmanager
    def _claimed(self) -> Generator[None]:
        """Keeps everybody else out of the client while something is done with it."""
        holder = object()
        try:
            self._claim(holder)
            yield
        finally:
            if self._holder is holder:
                self._holder = None

    async def _chat(
        self, prompt: Prompt | None, approvals: Iterable[Approval], conversation: Conversation | None
    ) -> RunResult:
        begun: list[LoopRun] = []
        async with aclosing(self._turn(prompt, approvals, conversation, begun, streamed=False)) as events:
            async for _ in events:
                pass
        return begun[0].result

    async def _turn(
        self,
        prompt: Prompt | None,
        approvals: Iterable[Approval],
        conversation: Conversation | None,
        begun: list[LoopRun],
        *,
        streamed: bool,
    ) -> AsyncGenerator[Event, None]:
        """One turn. It begins with the first look at its events, and so does the run in `begun`."""
        hold: Hold[E] = Hold()
        try:
            run = self._begin(hold, prompt, approvals, conversation)
            begun.append(run)
            try:
                async with aclosing(run.events(self._io(hold), streamed=streamed)) as events:
                    async for event in events:
                        yield event
            except BaseException as error:
                self._end(run)
                with note_on(error):
                    await self._checkpoint()
                raise
            self._end(run)
            await self._checkpoint()
        finally:
            if self._holder is hold:
                self._holder = None
            await self._close_unused(hold.release())

    async def _checkpoint(self) -> None:
        if self._journaling is not None:
            await self._journaling.write(self._ledger.end, self._conversation)

    async def _close_unused(self, engine: E | None) -> None:
        if engine is not None:
            await self._close_engine(engine)

    def _begin(
        self,
        hold: Hold[E],
        prompt: Prompt | None,
        approvals: Iterable[Approval],
        conversation: Conversation | None,
    ) -> LoopRun:
        """Claim the client, and make a run of the loop for this turn."""
        self._claim(hold)
        if conversation is not None and not self._stateless:
            message = "This client holds a conversation of its own."
            raise ConfigurationError(message, hint="Leave `conversation` out, or make the client with stateless=True.")
        answers = tuple(approvals)
        said = () if prompt is None else (make_message(prompt),)
        with self._state:
            start = self._conversation if conversation is None else conversation
            if said and start.pending_tool_calls:
                start = refuse_unanswered_calls(start, answers)
            run = LoopRun(
                start,
                hold.executor,
                hold.settings,
                hold.engine.profile,
                approvals=answers,
                waiting=self._uncertain,
                unread=(*self._queue, *said),
            )
            if not self._stateless:
                self._run = run
        return run

    def _end(self, run: LoopRun) -> None:
        """Take over what came of the turn. May be done twice: Ctrl-C can come in the middle of it."""
        run.settle()
        with self._state:
            if self._run is not run:
                return
            pending, uncertain = run.pending, self._uncertain
            if run.has_done_something or not run.was_cut_short:
                conversation, queue, unread = run.conversation, (), run.unread
                uncertain = tuple([each for each in uncertain if each in pending])
            else:
                # Nothing was done, because the turn failed or was cancelled, so it leaves no trace: the caller still
                # has the prompt and can say it again. What was added meanwhile nobody else has.
                conversation, queue, unread = self._conversation, self._queue, tuple(run.added)
                pending = self._pending
            waiting = conversation.pending_tool_calls
            if unread and waiting:
                queue = (*queue, *unread)
            elif unread:
                conversation = conversation.plus(*unread)
            uncertain = tuple([each for each in uncertain if each.call in waiting])
            self._conversation, self._queue, self._run = conversation, queue, None
            self._pending, self._uncertain = pending, uncertain

    def _catch_up(self) -> None:
        """Take over what came of a turn whose end was interrupted, and give back what it worked with."""
        if self._holder is not None:
            return
        if self._run is not None:
            self._end(self._run)
        if self._hold is not None:
            self._hold.release()  # the client itself still needs the engine, so there is none to close
            self._hold = None

    # --- a question ---

    async def _ask(self, question: Prompt, answer: object, retries: int) -> object:
        from .answers import Question, answer_type  # with all that knows types; a client that only chats does without

        # The type that was named, or what the client was made for, or text.
        wanted = answer_type(answer) if answer is not None else self._options.get("answer") or answer_type(str)
        hold: Hold[E] = Hold()
        try:
            self._claim(hold)
            said = make_message(question)
            with self._state:
                before, queued = self._conversation, self._queue
            asked = Question(
                refuse_unanswered_calls(before, ()).plus(*queued, said),
                hold.settings.options,
                hold.engine.profile,
                known_tools=hold.executor.tools.specs,
                retries=retries,
                taken_in=(len(before.messages), len(queued)),
            )
            try:
                value = await asked.answer(wanted, self._io(hold))
            except BaseException as error:
                self._take_answer(asked)
                with note_on(error):
                    await self._checkpoint()
                raise
            self._take_answer(asked)
            await self._checkpoint()
            return value
        finally:
            if self._holder is hold:
                self._holder = None
            await self._close_unused(hold.release())

    def _take_answer(self, asked: Question) -> None:
        """Take over a question and its answer; a question that nobody answered leaves no trace."""
        if asked.replies and not self._stateless:
            messages, queued = asked.taken_in
            with self._state:
                added = (*self._queue[queued:], *self._conversation.messages[messages:])
                conversation = asked.conversation.plus(*added) if added else asked.conversation
                self._conversation, self._queue = conversation, ()
                self._pending = self._uncertain = ()

    # --- other models, other conversations ---

    def _new_settings(self) -> LoopSettings:
        settings = settings_of(self._options, self.engine.options, self._tools.thing.config)
        if self._journaling is None:
            return settings
        return structs.replace(settings, hooks=(self._journaling, *settings.hooks))

    def _keep_in(self, store: AsyncConversationStore) -> None:
        """Write every step of a turn to this store before its effect is seen."""
        if self._stateless:
            message = "A stateless client has no conversation to keep in a store."
            raise ConfigurationError(message, hint="Leave the store out, or stateless=True.")
        self._journaling = self._ledger.journaling(store)
        self._settings = self._new_settings()

    async def _save(self) -> Snapshot:
        with self._claimed():
            if self._journaling is None:
                return self._ledger.keep(self._conversation)
            await self._journaling.write(self._ledger.checkpoint, self._conversation)
            return self._ledger.newest

    async def _restore(self, saved: Snapshot | str) -> tuple[Loss, ...]:
        store = self._journaling
        with self._claimed():
            if isinstance(saved, str):
                if store is None:
                    message = "This client has no store to look into."
                    raise ConfigurationError(message, hint="Make it with store=…, or restore a Snapshot.")
                return self._take_up_recovered(await store.recover(saved))
            fork = store is not None and not await store.has_as_newest(saved)
            losses = self.engine.losses(saved.conversation)
            self._ledger.take_up(saved, fork=fork)
            self._take_up(saved.conversation)
            return losses

    @property
    def _ledger(self) -> Ledger:
        """What of the conversation is kept. Loaded when somebody keeps it, and the code of the stores with it."""
        with self._state:
            if self._kept is None:
                from .ledger import Ledger

                self._kept = Ledger(self._circumstances, lambda: [each.call for each in self._uncertain])
            return self._kept

    def _circumstances(self) -> tuple[str, str, tuple[ToolSpec, ...]]:
        provider, _, model = self.model.partition(":")
        return provider, model, self._tools.thing.tools.specs

    async def _switch(self, engine: E, options: EngineOptions, *, owned: bool) -> tuple[Loss, ...]:
        """Speak to this model from now on: what it will not get of the history."""
        try:
            losses, unused = self._switch_to(engine, options, owned=owned)
        except BaseException:
            if owned:
                await self._close_engine(engine)
            raise
        await self._close_unused(unused)
        return losses

    def _switch_to(self, engine: E, options: EngineOptions, *, owned: bool) -> tuple[tuple[Loss, ...], E | None]:
        """The losses, and the engine that nobody needs any more."""
        losses = engine.losses(self._conversation)
        if losses and options.get("strict", False):
            raise lossy(engine.name, losses)
        with self._state:
            self._ensure_open()
            if "options" in options:
                self._options = {**self._options, "options": options["options"]}
            if engine is self.engine:
                self._settings = self._new_settings()
                return losses, None
            old, self._lease = self._lease, Lease(engine, self._user, owned=owned)
            self._settings = self._new_settings()
        return losses, old.release(self._user)

    def _take_up_recovered(self, recovered: Recovered) -> tuple[Loss, ...]:
        found, known = recovered.conversation, self._tools.thing.tools.by_name
        if found.last is not None and found.last.interrupted:
            found = found.repaired().conversation  # the program ended before it could be put right
        waiting = {call.id for call in found.pending_tool_calls}
        done = [result for result in recovered.done_results if result.call_id in waiting]
        conversation = append_tool_results(found, done)
        losses = self.engine.losses(conversation)
        self._ledger.take_up_recovered(recovered)
        uncertain = [call for call in recovered.uncertain_calls if call in conversation.pending_tool_calls]
        self._take_up(
            conversation,
            [
                PendingApproval(call=call, reason=_UNCERTAIN)
                for call in uncertain
                if call.name not in known or not known[call.name].options.idempotent
            ],
        )
        return losses

    def _take_up(self, conversation: Conversation, uncertain: Iterable[PendingApproval] = ()) -> None:
        with self._state:
            self._conversation, self._queue = conversation, ()
            self._pending, self._uncertain = (), tuple(uncertain)

    def _fork_into(self, other: ChatCore[E]) -> None:
        """Make the other client a branch of this conversation, on the same engine."""
        with self._state:
            self._ensure_open()
            other._lease = self._lease.again(other._user)
            other._conversation, other._queue = self._conversation, self._queue
            other._pending, other._uncertain = self._pending, self._uncertain
        if self._kept is not None and self._kept.snapshot is not None:
            other._ledger.take_up(self._kept.snapshot, fork=True)
        other._settings = other._new_settings()

    # --- the end ---

    async def _close(self) -> None:
        """Let nobody in any more and stop the turn under way.

        A turn under way still needs the engine and the executor; they are closed when it has ended.
        """
        with self._state:
            if self._closed:
                return
            self._catch_up()
            self._closed = True  # from here on nobody puts anything else in the place of these two
        self.cancel()
        close_executor(self._tools, self._user)
        await self._close_unused(self._lease.release(self._user))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.model}, {len(self.history)} messages>"
