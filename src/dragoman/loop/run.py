"""One run of the loop, written once: ask, run tools, ask again, as a generator of effects.

Owns: the order of things in a run, what it has spent, steering, cancellation, and that the conversation is complete and
valid whenever somebody looks at it, however the run ended.
Must not know: threads, event loops, how a model is called. It asks for effects; a plain and an async driver carry them
out (plain.py, on_loop.py). What is to be done next is decided in step.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from dragoman.conversation import Conversation, Message, Text, ToolCall, ToolChoice, ToolResult, ToolSpec, Usage
from dragoman.engines.reply import Reply
from dragoman.errors import (
    ConfigurationError,
    DragomanError,
    LimitReachedError,
    ProviderError,
    StepLimitError,
    ToolAbortedError,
)
from dragoman.providers.profile import Profile
from dragoman.tools.run import ToolRun
from dragoman.tools.permission import Approval, PendingApproval

from .calls import answering, append_tool_results, without_odd_calls
from .context import ContextUse, estimated_tokens
from .effects import CallModel, CallTools, Effect, Tell
from .hooks import Hook, LoopHooks
from .limits import Spent
from .settings import LoopSettings
from .step import NOTHING_SPENT, AskModel, AwaitApproval, Done, LimitReached, RunTools, next_step

if TYPE_CHECKING:
    from dragoman.tools.batch import Batch
    from dragoman.tools.executor import ToolExecutor

__all__ = ["Cancelled", "Ending", "LoopRun", "RunResult"]


class Cancelled(Struct, frozen=True):
    """The run was told to stop."""


Ending: TypeAlias = Done | AwaitApproval | LimitReached | Cancelled
"""How a run can end other than by an error."""


class RunResult(Struct, frozen=True):
    """What came of a run."""

    conversation: Conversation
    ending: Ending
    spent: Spent
    replies: tuple[Reply, ...]
    """The account of every call of the model, in order."""

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """The model's latest answer."""
        return self.conversation.text

    @property
    def usage(self) -> Usage:
        """The tokens of this run, added up."""
        total = Usage(input=0, output=0)
        for reply in self.replies:
            total += reply.message.usage or Usage()
        return total

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for a person."""
        return self.ending.pending if isinstance(self.ending, AwaitApproval) else ()


_TOOL_FREE: Final[tuple[ToolSpec, ...]] = ()
_LIMIT = "This call was not carried out: {}"


class LoopRun:
    """A run under way. `conversation` is right at any time; `add` and `cancel` may be called from any thread."""

    def __init__(
        self,
        conversation: Conversation,
        executor: ToolExecutor,
        settings: LoopSettings,
        profile: Profile,
        *,
        approvals: Iterable[Approval] = (),
        waiting: Iterable[PendingApproval] = (),
        unread: Iterable[Message] = (),
    ) -> None:
        self.pending: tuple[PendingApproval, ...] = ()
        """The calls that wait for a person."""
        self.cancelled: bool = False
        """Whether the run was told to stop. Say `cancel()` to stop it."""
        self._tools: ToolRun | None = None
        """What all batches of calls have in common, once there is one."""
        if approvals or waiting:
            calls = conversation.pending_tool_calls
            tools = self._tools = ToolRun(deps=settings.deps, approvals=answering(calls, approvals))
            self.pending = tuple([each for each in waiting if each.call in calls and not tools.approval_of(each.call)])
        self.conversation: Conversation = conversation
        self.ending: Ending | None = None
        self.replies: list[Reply] = []
        self.has_done_something: bool = False
        """Whether the model has said something or tools were begun: what was done must not be forgotten."""
        self.added: list[Message] = []
        """What was said to `add`, taken in or not."""
        self.partial: Message | None = None
        """What the model has said so far in a reply that is still arriving; the driver keeps it."""
        self._executor: ToolExecutor = executor
        self._settings: LoopSettings = settings
        self._profile: Profile = profile
        self._inbox: deque[Message] = deque(unread)
        self._batch: Batch | None = None
        self._steps: int = 0
        self._tool_calls: int = 0
        self._tokens: int = 0
        self._cost: float = 0.0
        self._began: float = settings.clock()
        self._last: Spent | None = None
        """What was used up, once that is all."""
        self.hooks: tuple[LoopHooks, ...] = settings.hooks

    # --- from outside ---

    def add(self, message: Message) -> None:
        """Say something while the run is under way; the model reads it before it speaks next."""
        self.added.append(message)
        self._inbox.append(message)

    @property
    def unread(self) -> tuple[Message, ...]:
        """What was said to the run and has not been taken in."""
        return tuple(self._inbox)

    def cancel(self) -> None:
        """Stop at the next opportunity: tools are given up, a stream is closed, a whole reply is waited for."""
        self.cancelled = True
        if self._tools is not None:
            self._tools.cancel()

    @property
    def was_cut_short(self) -> bool:
        """Whether the run was cancelled, or ended by an error."""
        return self.ending is None or isinstance(self.ending, Cancelled)

    @property
    def spent(self) -> Spent:
        """What the run has used up so far."""
        return self._last or Spent(
            steps=self._steps,
            model_calls=len(self.replies),
            tool_calls=self._tool_calls,
            tokens=self._tokens,
            cost=self._cost,
            seconds=self._settings.clock() - self._began,
        )

    @property
    def result(self) -> RunResult:
        """What came of the run, once it has ended."""
        if self.ending is None:
            message = "The run has not ended yet, or it ended with an error."
            raise ConfigurationError(message, hint="Read the stream to its end; `conversation` has what was done.")
        return RunResult(self.conversation, self.ending, self.spent, tuple(self.replies))

    # --- the run ---

    def effects(self) -> Generator[Effect, Any, None]:
        """Carry the run out. An error that ends it has the conversation so far where it has a place for one."""
        limits, shortened = self._settings.limits, not self._settings.context
        try:
            while True:
                if self._inbox:
                    self._take_in()
                spent = self.spent if self.replies or self._tool_calls else NOTHING_SPENT
                step = next_step(self.conversation, limits, spent, self.pending)
                if self.cancelled and (isinstance(step, AskModel | RunTools) or self._broke_off(step)):
                    step = Cancelled()
                if isinstance(step, AskModel):
                    if not shortened:  # this may have called the model, so what is next is to be decided again
                        yield from self._shorten()
                        shortened = True
                        continue
                    if not (yield from self._ask(step)):
                        self._last = self.spent
                        break
                    shortened = not self._settings.context
                elif isinstance(step, RunTools):
                    yield from self._run_tools(step.calls)
                elif isinstance(step, Done) and self._inbox and not self.conversation.pending_tool_calls:
                    continue  # somebody spoke in the very last moment
                else:
                    self.ending, self._last = step, spent
                    break
        except GeneratorExit:  # the driver was told to stop, or interrupted
            self.ending = Cancelled()
            raise
        except (ProviderError, ToolAbortedError) as error:
            self.settle()
            error.conversation = self.conversation
            raise
        if isinstance(self.ending, LimitReached):
            self._answer_for(str(self.ending))
            if self._settings.on_limit == "raise":
                raise _limit_error(self.ending, self.conversation)

    def settle(self) -> None:
        """Take in what there is of an unfinished step, so that every call has its result and nothing is lost."""
        ending = self.ending
        if type(ending) is Done and self.partial is None and self._batch is None and not ending.message.interrupted:
            return  # nearly always: the model has said what it had to say
        # Ctrl-C may come between any two calls of functions, so what was taken in is marked as such in the same breath.
        if self.partial is not None:
            said = without_odd_calls(self.partial)
            grown = self.conversation.plus(said) if said.blocks else self.conversation
            self.has_done_something = self.has_done_something or bool(said.blocks)
            self.conversation, self.partial = grown, None
        if self._batch is not None:
            grown = append_tool_results(self.conversation, self._batch.results)
            self.conversation, self._batch = grown, None
        last = self.conversation.last
        if isinstance(self.ending, AwaitApproval):
            return  # a pause is just that: calls whose results are still to come
        if last is not None and (last.interrupted or self.conversation.pending_tool_calls):
            self.conversation = self.conversation.repaired().conversation

    @staticmethod
    def _broke_off(step: object) -> bool:
        return isinstance(step, Done) and step.message.interrupted

    def _take_in(self) -> None:
        while self._inbox and not self.conversation.pending_tool_calls:
            grown = self.conversation.plus(self._inbox[0])
            self.conversation = grown
            self._inbox.popleft()

    # --- the model ---

    def _ask(self, step: AskModel) -> Generator[Effect, Any, bool]:
        """Ask the model and take its answer in; False if it said nothing at all, which ends the run."""
        for hook in self.hooks:
            yield from _told(hook.before_model(self))
        specs = self.offered
        options = self._settings.options
        choice = self._choice(step, specs)
        if choice != options.tool_choice:
            options = msgspec.structs.replace(options, tool_choice=choice)
        reply: Reply = yield CallModel(self.conversation, specs, options, True)
        self._count(reply)
        message = without_odd_calls(reply.message)
        grown = self.conversation.plus(message) if message.blocks else self.conversation
        self.conversation, self.partial = grown, None
        self._steps += 1
        if message.blocks or not message.interrupted:
            self.has_done_something = True
        for hook in self.hooks:
            yield from _told(hook.after_model(self, reply))
        if message.blocks or self._inbox:
            return True
        # An empty message has no place in a history, and to ask the same again would bring the same.
        self.ending = Cancelled() if self.cancelled else Done(message)
        return False

    @property
    def offered(self) -> tuple[ToolSpec, ...]:
        """What the model is told of tools."""
        config = self._executor.config
        if not config.enabled:
            return _TOOL_FREE
        specs = self._executor.tools.specs
        if config.allowed_tools is None:
            return specs
        return tuple([spec for spec in specs if spec.name in config.allowed_tools])

    def _choice(self, step: AskModel, specs: Sequence[ToolSpec]) -> ToolChoice:
        """The caller's choice; one that forces a call holds for the first step, or the loop would never end."""
        wanted = self._settings.options.tool_choice
        chosen = self._executor.config.tool_choice if wanted == "auto" else wanted
        if chosen in ("auto", "none"):
            return chosen if specs else "auto"
        if not specs:
            message = "The model must call a tool, but there is none."
            raise ConfigurationError(message, hint="Give it tools, or leave tool_choice at 'auto'.")
        return chosen if step.first or self._settings.repeat_tool_choice else "auto"

    def _count(self, reply: Reply) -> None:
        self.replies.append(reply)
        usage = reply.message.usage or Usage()
        self._tokens += usage.tokens or 0
        prices = self._settings.limits.prices
        if prices is not None:
            self._cost += prices.cost(usage)

    def _shorten(self) -> Generator[Effect, Any, None]:
        """Let the context policies have their say."""
        for policy in self._settings.context:
            before = self.conversation
            after = policy(before, ContextUse(estimated_tokens(before), self._profile.context_window))
            if isinstance(after, Generator):
                after = yield from self._with_model(after)
            if not isinstance(after, Conversation):
                message = f"A context policy gave back a {type(after).__name__}."
                raise ConfigurationError(message, hint="Return a conversation: the same one, or a shorter one.")
            if after is not before:
                after.ensure_valid()
                self.conversation = after
                for hook in self.hooks:
                    yield from _told(hook.compacted(self, before))

    def _with_model(self, shortening: Generator[Conversation, Message, Conversation]) -> Generator[Effect, Any, Any]:
        options = msgspec.structs.replace(self._settings.options, tool_choice="auto", response_format=None)
        go_on = partial(next, shortening)
        while True:
            try:
                asked = go_on()
            except StopIteration as stop:
                return stop.value
            try:
                reply: Reply = yield CallModel(asked, _TOOL_FREE, options, False)
            except DragomanError as error:  # the policy may know a way without the model
                go_on = partial(shortening.throw, error)
                continue
            self._count(reply)
            go_on = partial(shortening.send, reply.message)

    # --- the tools ---

    def _run_tools(self, calls: tuple[ToolCall, ...]) -> Generator[Effect, Any, None]:
        for hook in self.hooks:
            yield from _told(hook.before_tools(self, calls))
        self._batch = batch = self._executor.batch(calls, self._tool_run())
        self.has_done_something = True
        yield CallTools(batch)
        results = batch.results
        self._tool_calls += len(results)
        self.pending = (*[each for each in self.pending if each.call not in calls], *batch.pending)
        grown = append_tool_results(self.conversation, results)
        self.conversation, self._batch = grown, None
        for hook in self.hooks:
            yield from _told(hook.after_tools(self, results))
        aborted = batch.abortion
        if aborted is not None:
            raise aborted

    def _tool_run(self) -> ToolRun:
        """What the calls of this step have in common with those before."""
        tools, seconds = self._tools, self._settings.limits.seconds
        if tools is None:
            tools = self._tools = ToolRun(deps=self._settings.deps)
        if seconds is not None:
            tools.deadline = self._began + seconds
        tools.conversation = self.conversation
        if self.cancelled:  # by another thread, which did not know these yet
            tools.cancel()
        return tools

    def _answer_for(self, why: str) -> None:
        """Answer the calls that will not be run, so that the history can be sent."""
        results = [
            ToolResult(call.id, call.name, (Text(_LIMIT.format(why)),), is_error=True, error_type="budget")
            for call in self.conversation.pending_tool_calls
        ]
        self.conversation = append_tool_results(self.conversation, results)


def _told(hook: Hook) -> Generator[Effect, Any, None]:
    if hook is not None:
        yield Tell(hook)


def _limit_error(reached: LimitReached, conversation: Conversation) -> DragomanError:
    kind = StepLimitError if reached.limit == "steps" else LimitReachedError
    return kind(str(reached), conversation=conversation, limit=reached.limit)
