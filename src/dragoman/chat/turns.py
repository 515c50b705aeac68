"""How a chat client takes turns: exclusive access, how a turn starts, and what is kept when it ends.

Owns: the conversation of a client, and which agent is in charge of it.
Must not know: event loops. ChatClient steps this code, AsyncChatClient awaits it.

What belongs together is one value: `Held`, what a client has of a conversation, and `Runtime`, what takes its turns.
Each is built complete and then assigned, both of them and the ledger's `Place` in one statement without calls: Ctrl-C
comes between calls, so it finds the client before the change or after it.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast
from weakref import WeakSet

from msgspec import Struct, structs

import dragoman._observer
from dragoman._checks import check_names, overlay
from dragoman._files import read_message
from dragoman._observer import follow, within
from dragoman._stepping import Inner, exhaust
from dragoman.conversation import Block, Conversation, Event, Message, Text, ToolCall, ToolResult, ToolSpec
from dragoman.engines import AsyncEngine, Engine
from dragoman.errors import ConcurrentUseError, ConfigurationError, InvalidAnswerError, LimitReachedError, StoppedError
from dragoman.loop import (
    NOTHING_SPENT,
    Cancelled,
    LimitReached,
    LoopIO,
    LoopRun,
    LoopSettings,
    NoAnswer,
    RunResult,
    Spent,
    close_engine,
    note_on,
    refuse_unanswered_calls,
    settings_of,
    warn_of_unknown_window,
)
from dragoman.tools import PendingApproval

from . import later
from .options import ELSEWHERE, CallOptions, ChatOptions, TurnOptions, make_executor

if TYPE_CHECKING:
    from dragoman.stores import AsyncConversationStore, ConversationStore
    from dragoman.tools import AnyTools, Approval, ToolContext, ToolExecutor, ToolSet

    from .agents import Agent, Staff
    from .answers import AnswerJudge, TypedResult
    from .ledger import Ledger

IN_CHARGE: Final = "dragoman.agent"
"""The metadata key under which a conversation names the agent in charge."""

E = TypeVar("E", bound=Engine | AsyncEngine)

_BUSY = (
    "Wait for the turn to end, or leave the `with` block of its stream. For concurrent turns, create one client each, "
    "or share one with stateless=True."
)

Prompt: TypeAlias = str | Block | Message | Sequence[str | Block]
"""A text, a block such as an image, several of them, or a whole message."""


def make_message(prompt: Prompt) -> Message:
    """The user message of a prompt."""
    if isinstance(prompt, str) and prompt:  # nearly always
        return Message(role="user", blocks=(Text(prompt),))
    if isinstance(prompt, Message):
        message = prompt
    else:
        content = (prompt,) if isinstance(prompt, str) or not isinstance(prompt, Sequence) else tuple(prompt)
        message = Message.user(*content)
    for block in cast("Sequence[object]", message.blocks):  # also without a type checker
        if not isinstance(block, Block):
            text = f"A message cannot contain a {type(block).__name__}."
            raise ConfigurationError(text, hint="Give a text, a block such as Media, a list of these, or a Message.")
    if all(isinstance(block, Text) and not block.text for block in message.blocks):
        text = "The message is empty."
        raise ConfigurationError(text, hint="Give a text or a block.")
    if message.role != "user" or any(isinstance(block, ToolCall | ToolResult) for block in message.blocks):
        for change in Conversation().plus(message).repaired().changes:
            if change.kind != "added_result":  # results may follow later
                text = f"This message would make the history invalid: {change.problem}."
                hint = "Send text and media; tool results are added by the client."
                raise ConfigurationError(text, hint=hint)
    return read_message(message)


class Lease(Generic[E]):
    """An engine and its users: clients, their forks and agents. The last one to leave closes what was made here."""

    def __init__(self, engine: E, *, owned: bool) -> None:
        self.engine: E = engine
        self._owned: bool = owned
        # Weak: a user that Ctrl-C lost before anybody had it does not count.
        self._users: WeakSet[object] = WeakSet()
        self._lock: threading.RLock = threading.RLock()

    def join(self, user: object) -> Lease[E]:
        with self._lock:
            self._users.add(user)
        return self

    async def leave(self, user: object) -> None:
        """Remove a user; the last one closes the engine."""
        with self._lock:
            self._users.discard(user)
            unused = self._owned and not self._users
            self._owned = self._owned and not unused
        if unused:
            await close_engine(self.engine)


class Held(Struct, frozen=True, eq=False):
    """What a client has of a conversation."""

    conversation: Conversation
    pending: tuple[PendingApproval, ...] = ()
    uncertain: tuple[PendingApproval, ...] = ()
    queue: tuple[Message, ...] = ()
    """Messages added while calls wait for approval; they follow after the results."""
    paused: dict[str, Any] = {}
    """The clients of agents' turns that wait for approval, by call id, if there is no store."""
    kept: dict[str, str] = {}
    """The ids of agents' conversations in the store, by call id."""

    @property
    def paused_by_tools(self) -> tuple[PendingApproval, ...]:
        """What tools other than agents have paused their calls for."""
        agents = (*self.paused, *self.kept)
        return tuple([each for each in self.pending if each.within is not None and each.within.id not in agents])


class Runtime(NamedTuple):
    """What takes turns: the client itself, or an agent in charge, with everything that it works with."""

    agent: Agent | None
    """None: the client itself."""
    lease: Lease[Any]
    executor: ToolExecutor
    options: ChatOptions
    settings: LoopSettings
    io: LoopIO


Begin: TypeAlias = Callable[[], tuple[LoopRun, LoopIO]]


class TurnCore(Generic[E]):
    """A conversation with a model and tools, and its turns."""

    _make_io: ClassVar[type[LoopIO]]
    """Creates the I/O of a run: sync or async."""

    def __init__(
        self, engine: E, tools: AnyTools, options: ChatOptions, store: AsyncConversationStore | None, *, owned: bool
    ) -> None:
        # Iterators are read here once: a switch and forks need them again.
        hooks, context = tuple(options.get("hooks", ())), tuple(options.get("context", ()))
        own: ChatOptions = {**options, "hooks": hooks, "context": context}
        self._chosen_id: str | None = options.get("id")
        self._stateless: bool = options.get("stateless", False)
        if self._stateless and store is not None:
            message = "A stateless client has no conversation to store."
            raise ConfigurationError(message, hint="Omit the store, or stateless=True.")
        self._held: Held = Held(options.get("conversation", Conversation()))
        self._kept: Ledger | None = None
        """The ledger, once `_ledger` was used."""
        self._kept_in: AsyncConversationStore | None = store
        """Every step of a turn is written here before its effect is visible."""
        self._store: ConversationStore | AsyncConversationStore | None = None
        """The store as the caller passed it."""
        self._staff: Staff | None = None
        """The agents behind tools, once one was called."""
        self._caller: ToolContext[object] | None = None
        """The context of the call that this client answers, if it is an agent's."""
        self._run: LoopRun | None = None
        self._runs: WeakSet[LoopRun] = WeakSet()
        """All turns in progress; a stateless client may have many."""
        self._holder: object | None = None
        """Marks who is using the client at the moment."""
        # Re-entrant: a signal handler, or the finaliser of a stream, may run at any moment.
        self._state: threading.RLock = threading.RLock()
        self._closed: bool = False
        lease = Lease(engine, owned=owned).join(self)
        self._runtime: Runtime = self._make_runtime(None, lease, make_executor(tools, own), own)
        """That of whoever is in charge; see `handoff`."""
        self._runtimes: dict[Agent | None, Runtime] = {None: self._runtime}
        """Those of the client itself and of agents that are or were in charge."""
        self._held = Held(self._runtime.settings.instructed(self._held.conversation))

    def _make_runtime(
        self, agent: Agent | None, lease: Lease[Any], executor: ToolExecutor, options: ChatOptions
    ) -> Runtime:
        """A complete runtime, or an error if an agent behind its tools cannot work."""
        engine = lease.engine
        if agent is not None and options.get("system") is None:
            options = {**options, "system": ""}  # never that of the one before it, which is in the conversation
        if any(tool.agent is not None for tool in executor.tools):
            later.check_agents(executor.tools, Engine if isinstance(engine, Engine) else AsyncEngine)
        settings = settings_of(options, engine.options, executor.config)
        warn_of_unknown_window(settings.context, engine)
        if self._kept_in is not None:
            settings = structs.replace(settings, hooks=(self._ledger, *settings.hooks), accounts=True)
        return Runtime(agent, lease, executor, options, settings, self._make_io(engine, executor))

    @property
    def engine(self) -> E:
        """The engine that calls the model."""
        return self._runtime.lease.engine

    @property
    def model(self) -> str:
        """As in `provider:model`."""
        return self.engine.name

    @property
    def tools(self) -> ToolExecutor:
        """The executor that runs the tools; `tools.tools` are the tools themselves."""
        return self._runtime.executor

    @property
    def id(self) -> str | None:
        """The id of the conversation in its store; None until the first save, unless an id was given."""
        return self._chosen_id if self._kept is None else self._kept.id

    # --- a turn ---

    def _claim(self, holder: object) -> None:
        """Reserve the client for one caller, who releases it with `self._holder = None`.

        Not with a method: Ctrl-C may interrupt any call, and the client would stay reserved for ever.
        """
        with self._state:
            if self._closed:
                message = "The client is closed."
                raise ConfigurationError(message, hint="Create a new one, or close it later.")
            if self._stateless:
                return
            if self._holder is not None:
                message = "This client is busy with another turn; a client holds one conversation."
                raise ConcurrentUseError(message, hint=_BUSY)
            self._catch_up()
            self._runs.clear()  # Ctrl-C may have come before a run began
            self._holder = holder

    @contextmanager
    def _claimed(self) -> Generator[None]:
        """Reserve the client for the block."""
        holder = object()
        try:
            self._claim(holder)
            if self._runs:
                message = "This stateless client cannot be changed while turns are in progress."
                raise ConcurrentUseError(message, hint="Wait for them, or create another client.")
            yield
        finally:
            if self._holder is holder:
                self._holder = None

    async def _turn(self, begin: Begin, begun: list[LoopRun], *, streamed: bool) -> AsyncGenerator[Event, None]:
        """The events of a turn or question. It starts with the first event; its run is then in `begun`."""
        holder = object()
        try:
            self._claim(holder)
            with self._state:  # `add` may be called by another thread
                run, io = begin()
            begun.append(run)
            try:
                events = run.events(io, streamed=streamed)
                if run.observed is not None:
                    events = follow(run.observed, events)
                async with Inner(events) as inner:
                    async for event in inner:
                        yield event
            except BaseException as error:
                await self._finish(run, error)
                raise
            await self._finish(run)
        finally:
            if self._holder is holder:
                self._holder = None

    async def _carry_out(self, begin: Begin) -> LoopRun:
        """Run a turn or question to its end."""
        begun = list[LoopRun]()
        await exhaust(self._turn(begin, begun, streamed=False))
        return begun[0]

    async def _chat(self, prompt: Prompt | None, given: TurnOptions, answer: object = None) -> RunResult:
        judge = None if answer is None else self._make_judge(answer, given)
        return (await self._carry_out(partial(self._begin_turn, prompt, given, judge))).result

    def _make_judge(self, answer: object, given: CallOptions) -> AnswerJudge[Any]:
        """The judge that validates the answer of a turn or question."""
        nearest = given.get("options")
        if nearest is not None and nearest.response_format is not None:
            message = "A turn cannot have both `answer` and options with a response_format."
            raise ConfigurationError(message, hint="Omit the response_format.")
        return later.AnswerJudge(later.answer_type(answer), given.get("retries", 1))

    def _begin_turn(
        self, prompt: Prompt | None, given: TurnOptions, judge: AnswerJudge[Any] | None, spent: Spent = NOTHING_SPENT
    ) -> tuple[LoopRun, LoopIO]:
        """The run of a turn, and its I/O."""
        answers = tuple(given.get("approvals", ()))
        start, said = self._start_of(prompt, given.get("conversation"), answers)
        start, runtime = self._hand_to_right_one(start)
        settings, executor, io = runtime.settings, runtime.executor, runtime.io
        if given:
            settings = self._settings_for(given, TurnOptions, settings)
            if "tools" in given:
                executor = make_executor(given["tools"], runtime.options)
                io = self._make_io(io.engine, executor)
            if "retries" in given and judge is None:
                message = "`retries` is for typed answers, but no `answer` type was given."
                raise ConfigurationError(
                    message, hint="Pass answer=…; model calls are retried by retry=RetryPolicy(…)."
                )
        if judge is not None:
            settings = judge.settings(settings)
        run = self._begin(runtime, settings, executor, start, said, answers=answers, spent=spent)
        if "tools" in given:
            run.extra = executor
        return run, io

    def _settings_for(self, given: CallOptions, kind: type[CallOptions], settings: LoopSettings) -> LoopSettings:
        check_names(given, kind.__annotations__, "A turn" if kind is TurnOptions else "A question", ELSEWHERE)
        return structs.replace(
            settings,
            options=overlay(given.get("options"), settings.options),
            limits=overlay(given.get("limits"), settings.limits),
            deps=given.get("deps", settings.deps),
        )

    async def _finish(self, run: LoopRun, error: BaseException | None = None) -> None:
        """Take over the conversation of a run and save it, however the run ended."""
        try:
            # Leaving a stream after its last event is not a failure.
            self._end(run, failed=isinstance(error, Exception))
            if self._kept_in is not None:
                with note_on(error), within(run.observed):
                    await self._ledger.write(self._ledger.end, self._held.conversation)
            if self._staff is not None and not self._stateless:
                await self._staff.forget_answered(self._held)
        except BaseException as problem:
            error = error or problem
            raise
        finally:
            if run.observed is not None:
                run.observed.end(run, error)
            if run.extra is not None:
                run.extra.close()

    def _start_of(
        self, prompt: Prompt | None, given: Conversation | None = None, answers: Sequence[Approval] = ()
    ) -> tuple[Conversation, Sequence[Message]]:
        """The conversation at the start of a turn, and what the user says: calls left unanswered are then refused."""
        if given is not None and not self._stateless:
            message = "This client holds a conversation of its own."
            raise ConfigurationError(message, hint="Omit `conversation`, or create the client with stateless=True.")
        held = self._held
        start = held.conversation if given is None else given
        if prompt is None:
            return start, ()
        said = make_message(prompt)
        if start.pending_tool_calls:
            start = refuse_unanswered_calls(start, answers, (*held.pending, *held.uncertain))
        return start, (said,)

    def _begin(
        self,
        runtime: Runtime,
        settings: LoopSettings,
        executor: ToolExecutor,
        start: Conversation,
        said: Sequence[Message],
        *,
        answers: Sequence[Approval] = (),
        spent: Spent = NOTHING_SPENT,
        single: bool = False,
    ) -> LoopRun:
        held = self._held
        run = LoopRun(
            start,
            executor,
            settings,
            approvals=answers,
            waiting=held.uncertain,
            inside=held.pending,
            unread=(*held.queue, *said),
            spent=spent,
            single=single,
        )
        run.owner, run.succeed = self, self._succeed
        if self._caller is not None:
            run.work_for(self._caller)
        if (told := dragoman._observer.current) is not None:
            run.observed = told.run(run, runtime.lease.engine, lambda: self.id)
        self._runs.add(run)
        if not self._stateless:
            self._run, self._runtime = run, runtime
        if self._closed:  # meanwhile, from another thread
            run.cancel()
        return run

    def _end(self, run: LoopRun, *, failed: bool = False) -> None:
        """Take over the conversation of the turn. May run twice: Ctrl-C can interrupt it."""
        if not run.settled:
            run.settle()
        self._runs.discard(run)
        with self._state:
            if self._run is not run:
                return
            held, queue, unread = self._held, (), tuple(run.unread)
            cut_short = failed or run.ending is None or isinstance(run.ending, Cancelled)
            if run.has_done_something or not cut_short:
                conversation, pending, tools = run.conversation, run.pending, run.executor.tools
                uncertain = tuple([each for each in held.uncertain if each in pending])
            else:
                # The turn failed, was cancelled or ran out of time before anything was done, so it leaves no trace: the
                # caller can send the prompt again. Messages added meanwhile are kept.
                conversation, pending, uncertain = held.conversation, held.pending, held.uncertain
                queue, unread, tools = held.queue, tuple(run.added), None
            conversation, runtime = self._hand_to_right_one(conversation, tools)
            waiting = conversation.pending_tool_calls
            if unread and waiting:
                queue = (*queue, *unread)
            elif unread:
                conversation = conversation.plus(*unread)
            uncertain = tuple([each for each in uncertain if each.held in waiting])
            held = structs.replace(held, conversation=conversation, pending=pending, uncertain=uncertain, queue=queue)
            self._held, self._runtime, self._run = held, runtime, None

    def _catch_up(self) -> None:
        """Finish a turn whose end was interrupted."""
        if self._holder is None and self._run is not None:
            self._end(self._run)

    # --- a question ---

    async def _ask(self, question: Prompt, answer: object, given: CallOptions) -> object:
        """A turn without tools that ends with an answer."""
        # The given type, or the client's default, or text.
        judge = self._make_judge(answer if answer is not None else self._runtime.options.get("answer", str), given)
        run = await self._carry_out(partial(self._begin_question, question, given, judge))
        if isinstance(run.ending, Cancelled):
            raise StoppedError("The question was cancelled.")
        if isinstance(run.ending, LimitReached):
            raise LimitReachedError(str(run.ending), conversation=run.conversation, limit=run.ending.limit)
        if isinstance(run.ending, NoAnswer):
            raise InvalidAnswerError(str(run.ending), text=run.ending.message.text, conversation=run.conversation)
        return cast("TypedResult[Any]", run.result).answer

    def _begin_question(self, question: Prompt, given: CallOptions, judge: AnswerJudge[Any]) -> tuple[LoopRun, LoopIO]:
        start, said = self._start_of(question)
        start, runtime = self._hand_to_right_one(start)
        engine = runtime.lease.engine
        executor = later.without_tools(engine.profile, start, runtime.executor)
        settings = judge.settings(self._settings_for(given, CallOptions, runtime.settings))
        options = structs.replace(settings.options, tool_choice="none", parallel_tool_calls=None)
        run = self._begin(runtime, structs.replace(settings, options=options), executor, start, said, single=True)
        return run, self._make_io(engine, executor)

    @property
    def _ledger(self) -> Ledger:
        """Writes the conversation to the store; loaded on first use, with the code of the stores."""
        with self._state:
            if self._kept is None:
                self._kept = later.Ledger(
                    self._circumstances,
                    lambda: [each.call for each in self._held.uncertain],
                    lambda: self._held.paused_by_tools,
                    id=self._chosen_id,
                    store=self._kept_in,
                )
            return self._kept

    def _circumstances(self) -> tuple[str, str, tuple[ToolSpec, ...]]:
        provider, _, model = self.model.partition(":")
        return provider, model, self.tools.tools.specs

    # --- which agent is in charge; see handoffs.py ---

    def _succeed(self, run: LoopRun) -> LoopIO | None:
        """If one of the last results is a handoff, let that agent take over."""
        for result in run.conversation.messages[-1].tool_results:
            tool = run.executor.tools.find(result.name)
            if tool is not None and tool.agent is not None:
                return later.hand_over(self, run)
        return None

    def _hand_to_right_one(
        self, conversation: Conversation, tools: ToolSet | None = None
    ) -> tuple[Conversation, Runtime]:
        """The conversation, with the name of the agent that it puts in charge, and what that one works with.

        `tools` are those of its last step, if they are not those of who was in charge.
        """
        if IN_CHARGE not in conversation.metadata and len(self._runtimes) == 1:  # nearly always
            ended = bool(conversation.messages) and conversation.messages[-1].role == "tool"
            known = (*self.tools.tools, *(tools or ())) if ended else ()
            if not any(tool.agent is not None for tool in known):
                return conversation, self._runtime
        return later.hand_to_right_one(self, conversation, tools)
