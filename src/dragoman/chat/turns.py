"""How a chat client takes turns: exclusive access, how a turn starts, and what is kept when it ends.

Owns: the conversation of a client, and which agent is in charge of it.
Must not know: event loops. ChatClient steps this code, AsyncChatClient awaits it.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

from msgspec import structs

import dragoman._observer
from dragoman._checks import check_names, overlay
from dragoman._files import read_message
from dragoman._observer import follow, within
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
    split_instructions,
)
from dragoman.tools import PendingApproval

from . import later
from .options import ELSEWHERE, CallOptions, ChatOptions, TurnOptions, make_executor

if TYPE_CHECKING:
    from dragoman.stores import AsyncConversationStore, ConversationStore
    from dragoman.tools import AnyTools, Approval, ToolContext, ToolExecutor

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


class Shared(Generic[E]):
    """The engine that a client shares with its forks; the last one closes it if the client created it."""

    def __init__(self, engine: E, *, owned: bool) -> None:
        self.engine: E = engine
        self._users: int = 1 if owned else 0
        self._lock: threading.Lock = threading.Lock()

    def join(self) -> Shared[E]:
        with self._lock:
            self._users += 1 if self._users else 0
        return self

    async def leave(self) -> None:
        """Remove one user; the last one closes the engine."""
        with self._lock:
            self._users -= 1
            unused = self._users == 0
        if unused:
            await close_engine(self.engine)


class Charge(NamedTuple):
    """The engine, executor and options of an agent."""

    engine: Shared[Any]
    executor: ToolExecutor
    options: ChatOptions


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
        self._options: ChatOptions = {**options, "hooks": hooks, "context": context}
        self._stateless: bool = options.get("stateless", False)
        if self._stateless and store is not None:
            message = "A stateless client has no conversation to store."
            raise ConfigurationError(message, hint="Omit the store, or stateless=True.")
        self._engine: Shared[E] = Shared(engine, owned=owned)
        self._executor: ToolExecutor = make_executor(tools, options)
        self._conversation: Conversation = options.get("conversation", Conversation())
        fixed, _ = split_instructions(options.get("system"))
        if fixed is not None:
            self._conversation = self._conversation.with_system(fixed)
        self._kept: Ledger | None = None
        """The ledger, once `_ledger` was used."""
        self._kept_in: AsyncConversationStore | None = store
        """Every step of a turn is written here before its effect is visible."""
        self._store: ConversationStore | AsyncConversationStore | None = None
        """The store as the caller passed it."""
        self._staff: Staff | None = None
        """The agents behind tools, once one was called."""
        self._caller: tuple[LoopRun, ToolContext[object]] | None = None
        """The calling run and its tool context, if this is the client of an agent."""
        self._agent: Agent | None = None
        """The agent in charge; None: the client itself. See `handoff`."""
        self._charges: dict[Agent | None, Charge] = {}
        """What agents (None: the client) that were in charge before use."""
        self._pending: tuple[PendingApproval, ...] = ()
        self._uncertain: tuple[PendingApproval, ...] = ()
        self._queue: tuple[Message, ...] = ()
        """Messages added while calls wait for approval; they follow after the results."""
        self._run: LoopRun | None = None
        self._runs: set[LoopRun] = set()
        """All turns in progress; a stateless client may have many."""
        self._holder: object | None = None
        """Marks who is using the client at the moment."""
        # Re-entrant: a signal handler, or the finaliser of a stream, may run at any moment.
        self._state: threading.RLock = threading.RLock()
        self._closed: bool = False
        self._set_up()

    def _set_up(self) -> None:
        """Rebuild the settings and the I/O of turns after the engine, tools or options changed."""
        if self._has_agents:
            later.check_agents(self.tools.tools, Engine if isinstance(self.engine, Engine) else AsyncEngine)
        settings, io = self._equip(Charge(self._engine, self._executor, self._options))
        self._settings: LoopSettings = settings
        self._io: LoopIO = io

    def _equip(self, charge: Charge) -> tuple[LoopSettings, LoopIO]:
        engine, executor = charge.engine.engine, charge.executor
        settings = settings_of(charge.options, engine.options, executor.config)
        if self._kept_in is not None:
            settings = structs.replace(settings, hooks=(self._ledger, *settings.hooks), accounts=True)
        return settings, self._make_io(engine, executor)

    @property
    def engine(self) -> E:
        """The engine that calls the model."""
        return self._engine.engine

    @property
    def model(self) -> str:
        """As in `provider:model`."""
        return self.engine.name

    @property
    def tools(self) -> ToolExecutor:
        """The executor that runs the tools; `tools.tools` are the tools themselves."""
        return self._executor

    @property
    def id(self) -> str | None:
        """The id of the conversation in its store; None until the first save, unless an id was given."""
        return self._options.get("id") if self._kept is None else self._kept.id

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
                try:
                    async for event in events:
                        yield event
                finally:
                    await events.aclose()
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
        events = self._turn(begin, begun, streamed=False)
        try:
            async for _ in events:
                pass
        finally:
            await events.aclose()
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
        start, settings, executor, io = self._look_who_is_in_charge(start)
        if given:
            settings = self._settings_for(given, TurnOptions, settings)
            if "tools" in given:
                executor = make_executor(given["tools"], self._options)
                io = self._make_io(io.engine, executor)
            if "retries" in given and judge is None:
                message = "`retries` is for typed answers, but no `answer` type was given."
                raise ConfigurationError(
                    message, hint="Pass answer=…; model calls are retried by retry=RetryPolicy(…)."
                )
        if judge is not None:
            settings = judge.settings(settings)
        run = self._begin(settings, executor, start, said, answers, spent=spent)
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
                    await self._ledger.write(self._ledger.end, self._conversation)
            if self._staff is not None and not self._stateless:
                await self._staff.forget_answered(self._conversation)
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
        start = self._conversation if given is None else given
        if prompt is None:
            return start, ()
        said = make_message(prompt)
        if start.pending_tool_calls:
            start = refuse_unanswered_calls(start, answers, (*self._pending, *self._uncertain))
        return start, (said,)

    def _begin(
        self,
        settings: LoopSettings,
        executor: ToolExecutor,
        start: Conversation,
        said: Sequence[Message],
        answers: Sequence[Approval] = (),
        *,
        spent: Spent = NOTHING_SPENT,
        single: bool = False,
    ) -> LoopRun:
        run = LoopRun(
            start,
            executor,
            settings,
            approvals=answers,
            waiting=self._uncertain,
            inside=self._pending,
            unread=(*self._queue, *said),
            spent=spent,
            single=single,
        )
        run.owner, run.succeed = self, self._succeed
        if self._caller is not None:
            run.work_for(*self._caller)
        if (told := dragoman._observer.current) is not None:
            run.observed = told.run(run, self.engine, lambda: self.id)
        self._runs.add(run)
        if not self._stateless:
            self._run = run
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
            pending, uncertain = run.pending, self._uncertain
            cut_short = failed or run.ending is None or isinstance(run.ending, Cancelled)
            if run.has_done_something or not cut_short:
                conversation, queue, unread = run.conversation, (), tuple(run.unread)
                uncertain = tuple([each for each in uncertain if each in pending])
            else:
                # The turn failed, was cancelled or ran out of time before anything was done, so it leaves no trace: the
                # caller can send the prompt again. Messages added meanwhile are kept.
                conversation, queue, unread = self._conversation, self._queue, tuple(run.added)
                pending = self._pending
            waiting = conversation.pending_tool_calls
            if unread and waiting:
                queue = (*queue, *unread)
            elif unread:
                conversation = conversation.plus(*unread)
            uncertain = tuple([each for each in uncertain if each.held in waiting])
            self._conversation, self._queue, self._run = conversation, queue, None
            self._pending, self._uncertain = pending, uncertain

    def _catch_up(self) -> None:
        """Finish a turn whose end was interrupted."""
        if self._holder is None and self._run is not None:
            self._end(self._run)

    # --- a question ---

    async def _ask(self, question: Prompt, answer: object, given: CallOptions) -> object:
        """A turn without tools that ends with an answer."""
        # The given type, or the client's default, or text.
        judge = self._make_judge(answer if answer is not None else self._options.get("answer", str), given)
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
        start, *_ = self._look_who_is_in_charge(start)
        executor = later.without_tools(self.engine.profile, start, self.tools)
        settings = judge.settings(self._settings_for(given, CallOptions, self._settings))
        options = structs.replace(settings.options, tool_choice="none", parallel_tool_calls=None)
        run = self._begin(structs.replace(settings, options=options), executor, start, said, single=True)
        return run, self._make_io(self.engine, executor)

    @property
    def _ledger(self) -> Ledger:
        """Writes the conversation to the store; loaded on first use, with the code of the stores."""
        with self._state:
            if self._kept is None:
                self._kept = later.Ledger(
                    self._circumstances,
                    lambda: [each.call for each in self._uncertain],
                    id=self._options.get("id"),
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

    def _look_who_is_in_charge(self, start: Conversation) -> tuple[Conversation, LoopSettings, ToolExecutor, LoopIO]:
        """What a turn starts with, for the agent that its conversation puts in charge."""
        if self._may_be_handed_over(start):
            agent = later.in_charge(self, start)
            start = later.name_agent(agent, start)
            if self._stateless and agent is not None:
                charge = later.charge_of(self, agent)
                settings, io = self._equip(charge)
                return start, settings, charge.executor, io
            self._put_in_charge(agent)
        return start, self._settings, self._executor, self._io

    def _may_be_handed_over(self, conversation: Conversation) -> bool:
        """Whether another agent may have to take over; cheap, since every turn asks."""
        if self._charges or IN_CHARGE in conversation.metadata:
            return True
        messages = conversation.messages
        return bool(messages) and messages[-1].role == "tool" and self._has_agents

    @property
    def _has_agents(self) -> bool:
        return any(tool.agent is not None for tool in self.tools.tools)

    def _put_right_one_in_charge(self, conversation: Conversation) -> None:
        if self._may_be_handed_over(conversation):
            self._put_in_charge(later.in_charge(self, conversation))

    def _put_in_charge(self, agent: Agent | None) -> None:
        if agent is self._agent:
            return
        with self._state:
            charge = later.charge_of(self, agent)
            self._charges[self._agent] = Charge(self._engine, self._executor, self._options)
            self._charges.pop(agent, None)
            self._agent, (self._engine, self._executor, self._options) = agent, charge
            self._set_up()

    def _own_charge(self) -> Charge:
        """The engine, executor and options of the client itself, whichever agent is in charge."""
        return self._charges.get(None) or Charge(self._engine, self._executor, self._options)
