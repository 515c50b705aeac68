"""The loop's only decision, what to do next, as a pure function of data.

The state of a loop is its conversation, so any process that has the conversation decides alike. This module has the
limits and what counts against them (`Spent`; meter.py adds it up), the kinds of steps, and how tool calls are taken
from a conversation and results appended to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
from msgspec import Struct

import dragoman.tools
from dragoman._checks import CheckedMeta, NotNegative
from dragoman.conversation import (
    Conversation,
    Message,
    StopReason,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
    unanswered_cut_reply,
)
from dragoman.errors import ConfigurationError, InvalidConversationError
from dragoman.tools import Approval, PendingApproval

if TYPE_CHECKING:
    from dragoman.providers import ModelOptions, Profile
    from dragoman.tools import ToolConfig, ToolExecutor, ToolSet


class Spent(Struct, frozen=True, kw_only=True):
    """What a run has used so far."""

    steps: int = 0
    """Replies of the model, without those requested by context policies."""
    model_calls: int = 0
    """All model calls that were sent, including those of context policies and agents. Retries do not count."""
    tool_calls: int = 0
    tokens: int = 0
    cost: float | None = 0.0
    """US dollars, counted only if `Limits.cost` is set (`result.cost` always knows); None if unknown."""
    seconds: float = 0.0
    at_least: bool = False
    """Whether model calls were given up, or their usage was not reported: tokens and cost are lower bounds."""
    passed: tuple[str, ...] = ()
    """The names of limits that were passed, because the last call used more than was left."""


class Limits(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How far a run may go. None: no limit of its own. `inf` lifts a limit that is set elsewhere."""

    steps: NotNegative | None = None
    """Replies of the model. None: `ToolConfig.max_iterations`, 20 by default."""
    model_calls: NotNegative | None = None
    tool_calls: NotNegative | None = None
    tokens: NotNegative | None = None
    """Input and output tokens of all replies together. A reply that exceeds the limit is kept and is the last one.
    A server that does not report them is not asked again: UnknownUsageError."""
    cost: NotNegative | None = None
    """US dollars. A reply that exceeds the limit is kept and is the last one. A model without a known price is not
    called: UnknownCostError."""
    seconds: NotNegative | None = None
    """For the whole run: a model call in progress is ended, and running tools are abandoned."""

    def reached(self, spent: Spent) -> tuple[str, float] | None:
        """The first limit that rules out another model call.

        `tool_calls` is not checked: after the last tool call the model may still answer.
        """
        if self.steps is not None and spent.steps >= self.steps:
            return "steps", self.steps
        if self.model_calls is not None and spent.model_calls >= self.model_calls:
            return "model_calls", self.model_calls
        if self.tokens is not None and spent.tokens >= self.tokens:
            return "tokens", self.tokens
        if self.cost is not None and (spent.cost or 0.0) >= self.cost:
            return "cost", self.cost
        if self.seconds is not None and spent.seconds >= self.seconds:
            return "seconds", self.seconds
        return None

    def reached_by_tools(self, spent: Spent, calls: int) -> tuple[str, float] | None:
        """The first limit that rules out running this many tool calls."""
        if self.tool_calls is not None and spent.tool_calls + calls > self.tool_calls:
            return "tool_calls", self.tool_calls
        if self.seconds is not None and spent.seconds >= self.seconds:
            return "seconds", self.seconds
        return None


class AskModel(Struct, frozen=True):
    """Call the model."""

    first: bool
    """Whether this is the first step of a turn: only then does `tool_choice="required"` apply."""


class RunTools(Struct, frozen=True):
    """Run these tool calls."""

    calls: tuple[ToolCall, ...]


class RefuseCalls(Struct, frozen=True):
    """This reply was cut off, so none of its calls is run: give each an error result (`conversation.repaired()`)."""

    reply: Message


class AwaitApproval(Struct, frozen=True):
    """These calls wait for approval; nothing else can happen before."""

    pending: tuple[PendingApproval, ...]


class Done(Struct, frozen=True):
    """The model has given its final answer. `note` says what is wrong with it, if it is not a whole one."""

    message: Message

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the model stopped."""
        return self.message.stop_reason

    @property
    def note(self) -> str:
        """Why a part of the answer is missing, and what to do about it; empty for a whole answer."""
        message = self.message
        if message.interrupted:
            return "The answer is not complete: it was broken off. Ask again."
        return f"The answer is not complete: {message.cut_off}. {hint_after(message)}" if message.cut_off else ""


class NoAnswer(Struct, frozen=True):
    """The model has given no answer, and asking it again would not help.

    Twice in a row its reply was empty or its calls were cut off, or its calls were cut off for a reason that remains.
    """

    message: Message
    """The last reply. An empty one is no part of the conversation."""

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the model stopped."""
        return self.message.stop_reason

    def __str__(self) -> str:
        what = "The model gave no answer"
        if not self.message.cut_off:
            return f"{what}: its reply was empty, twice in a row. {hint_after(self.message)}"
        lost = "its reply was cut off" if self.message.says_nothing else "the reply with its tool calls was cut off"
        return f"{what}: {lost}, {self.message.cut_off}. {hint_after(self.message)} A new message continues."


class LimitReached(Struct, frozen=True):
    """Another step would exceed a limit of the run."""

    limit: str
    """Its name in `Limits`."""
    value: float

    def __str__(self) -> str:
        if self.limit == "steps":
            return f"max iterations ({self.value:g}) reached"
        return f"The run reached its limit of {self.value:g} {self.limit.replace('_', ' ')}."


Step: TypeAlias = AskModel | RunTools | RefuseCalls | AwaitApproval | Done | NoAnswer | LimitReached
"""What can come next in a conversation."""

NOTHING_SPENT: Final = Spent()
UNCERTAIN: Final = "it had begun when the program was stopped, and nobody knows whether it did its work"
"""Why a call that an earlier process started waits for approval."""


# --- replies that are no answer ---------------------------------------------------------------------------------------

_HINTS: Final[dict[StopReason, str]] = {
    StopReason.MAX_TOKENS: "Raise max_tokens, or ask for less.",
    StopReason.CONTEXT_FULL: "Shorten the history.",
    StopReason.REFUSAL: "Rephrase the request.",
    StopReason.CONTENT_FILTER: "Rephrase the request.",
}
_FOR_GOOD: Final = (StopReason.CONTEXT_FULL, StopReason.REFUSAL, StopReason.CONTENT_FILTER)
"""Ends after which asking again, with a history that is no shorter, would bring the same."""
_EMPTY_ON_PURPOSE: Final = (StopReason.MAX_TOKENS, StopReason.STOP_SEQUENCE)
"""Ends that the caller has asked for: an empty reply with one of them is the end, unless a call of it was lost."""


def hint_after(reply: Message) -> str:
    """What to do after a reply that was cut off, or was empty."""
    return _HINTS.get(reply.stop_reason or StopReason.OTHER, "Ask again, or ask another model.")


def is_left_out(reply: Message) -> bool:
    """Whether a reply says so little that it is no part of the conversation: providers refuse empty messages."""
    unfinished = reply.stop_reason in (StopReason.PAUSED, StopReason.INTERRUPTED)  # what it thought is kept
    return not reply.blocks or (reply.says_nothing and not unfinished)


def is_asked_again(reply: Message, *, lost_call: bool) -> bool:
    """Whether the model is asked again after a reply that was left out, if it was the first in a row.

    `lost_call`: the reply had a call that was cut off in the middle.
    """
    if reply.stop_reason in (*_FOR_GOOD, StopReason.INTERRUPTED):
        return False
    return lost_call or reply.stop_reason not in _EMPTY_ON_PURPOSE


def has_spoken(conversation: Conversation) -> bool:
    """Whether a tool has told the user something since the user's last message."""
    for message in reversed(conversation.messages):
        if message.role == "user":
            break
        if True in [result.spoke for result in message.tool_results]:
            return True
    return False


def _cut_replies(conversation: Conversation) -> list[Message]:
    """The replies at the end of the conversation whose calls were refused because they were cut off, newest first."""
    found = list[Message]()
    for message in reversed(conversation.messages):
        if message.role == "user" or (message.role == "assistant" and not (message.cut_off and message.tool_calls)):
            break
        if message.role == "assistant":
            found.append(message)
    return found


def next_step(
    conversation: Conversation,
    limits: Limits,
    spent: Spent = NOTHING_SPENT,
    waiting: Collection[PendingApproval] = (),
    silent: Sequence[Message] = (),
) -> Step:
    """The next step for this conversation.

    `waiting` are the calls known to need approval; the others can be run. `silent` are the replies since its last
    message that said nothing and are no part of it.
    """
    if not conversation.messages:
        message = "The conversation has no message that a model could answer."
        raise InvalidConversationError(message, hint="Add a message of the user first.")
    last = conversation.messages[-1]
    refused = unanswered_cut_reply(conversation.messages)
    if refused is not None:
        return RefuseCalls(refused)
    calls = conversation.pending_tool_calls
    if calls and not (last.role == "assistant" and last.interrupted):
        # Providers reuse ids, so calls are compared as a whole.
        waiting = tuple([each for each in waiting if each.held in calls])
        if waiting:
            asked = {pending.held.id for pending in waiting}
            calls = tuple([call for call in calls if call.id not in asked])
            if not calls:
                return AwaitApproval(waiting)
        reached = limits.reached_by_tools(spent, len(calls))
        return RunTools(calls) if reached is None else LimitReached(*reached)
    # A model that paused a long turn with its own tools continues when it is called again.
    if last.role == "assistant" and last.stop_reason is not StopReason.PAUSED:
        return Done(last)
    cut = _cut_replies(conversation) if last.role == "tool" else []
    if len(cut) + len(silent) > 1 or (cut and cut[0].stop_reason in _FOR_GOOD):
        return NoAnswer(cut[0] if cut else silent[-1])
    reached = limits.reached(spent)
    # A run that continues after tool results, for example after an approval, is in the middle of its turn.
    first = spent.steps == len(silent) and last.role == "user"
    return AskModel(first=first) if reached is None else LimitReached(*reached)


def extract_tool_calls(conversation: Conversation) -> tuple[ToolCall, ...]:
    """The calls in the model's last message that have no result yet, in order."""
    return conversation.pending_tool_calls


def append_tool_results(conversation: Conversation, results: Iterable[ToolResult]) -> Conversation:
    """The conversation with these results appended.

    Results may be given in any order and in several steps: they are collected in one message, in call order. A result
    for a call that is not pending raises InvalidConversationError.
    """
    given = {result.call_id: result for result in results}
    if not given:
        return conversation
    wanted = {call.id for call in conversation.pending_tool_calls}
    for call_id in given:
        if call_id not in wanted:
            message = f"The result {call_id!r} belongs to no pending tool call."
            raise InvalidConversationError(message, hint="Take the calls from extract_tool_calls(conversation).")
    answered = 0
    for message in reversed(conversation.messages):
        if message.role == "assistant":
            break
        answered += 1
        for earlier in message.tool_results:
            given[earlier.call_id] = earlier
    kept = conversation.messages[: len(conversation.messages) - answered]
    in_order = [given[call.id] for call in kept[-1].tool_calls if call.id in given]
    if not answered:
        return conversation.plus(Message.tool(in_order))
    return msgspec.structs.replace(conversation, messages=(*kept, Message.tool(in_order)))


def refuse_outdated(waiting: Sequence[PendingApproval], answers: Iterable[Approval]) -> None:
    """Raise ConfigurationError for an answer to a call that is not waiting: it must not apply to a later one.

    Also for an answer that fits two calls: a call inside an agent may have the same id as another one.
    """
    for answer in answers:
        meant = {each.held.id for each in waiting if answer.answers(each.call)}
        if not meant:
            message = f"The call {answer.call_id!r} does not wait for an answer, or was made with other arguments."
            raise ConfigurationError(message, hint="Answer the calls in `pending`: approve(call) or deny(call).")
        if len(meant) > 1:
            message = f"There are two calls {answer.call_id!r}; it is unclear which one the answer is for."
            raise ConfigurationError(message, hint="Send another message instead: then neither of them is run.")


def refuse_unanswered_calls(
    conversation: Conversation, answers: Iterable[Approval], waiting: Iterable[PendingApproval] = ()
) -> Conversation:
    """The conversation after the user sends a message instead of answering: unanswered calls are not run.

    A call counts as answered if an approval inside it (of an agent's call) is answered.
    """
    calls, given, waiting = conversation.pending_tool_calls, list(answers), tuple(waiting)
    inside = {each.held.id for each in waiting if any(answer.answers(each.call) for answer in given)}
    unanswered = {call.id for call in calls if not any(answer.answers(call) for answer in given)} - inside
    if not unanswered:
        return conversation
    *_, last = conversation.repaired().conversation.messages
    refused = [each for each in last.tool_results if each.call_id in unanswered]
    return append_tool_results(conversation, with_usage(refused, waiting))


def with_usage(results: Iterable[ToolResult], waiting: Iterable[PendingApproval]) -> list[ToolResult]:
    """The results of calls that waited and will not go on, with what was used inside them until then."""
    used = {each.held.id: each.used for each in waiting if each.used is not None}
    return [msgspec.structs.replace(each, usage=used.get(each.call_id, each.usage)) for each in results]


# --- tools and options of a request; also used by the workers of workflow engines ------------------------------------


def offered_tools(
    executor: ToolExecutor,
    conversation: Conversation,
    profile: Profile,
    options: ModelOptions,
    tools: ToolSet | None = None,
) -> tuple[ToolSpec, ...]:
    """The tool specs sent to the model: those of the executor, or of `tools` if a function supplied them."""
    config, tools = executor.config, executor.tools if tools is None else tools
    if not config.enabled:
        return ()
    if config.search is not None and (many := dragoman.tools.many_tools(tools, config)) is not None:
        return many.offer(conversation, _choice(options, config), profile.tool_search)
    specs = tools.specs if tools.by_name else ()
    if config.allowed_tools is None:
        return specs
    return tuple([spec for spec in specs if spec.name in config.allowed_tools])


def step_options(options: ModelOptions, config: ToolConfig, specs: Sequence[ToolSpec], *, first: bool) -> ModelOptions:
    """The options with the effective tool choice; one that forces a call applies to the first step only."""
    choice = _choice(options, config)
    if choice not in ("auto", "none"):
        if not specs:
            message = "The model must call a tool, but there is none."
            raise ConfigurationError(message, hint="Give it tools, or leave tool_choice at 'auto'.")
        if not first:
            choice = "auto"
    elif not specs:
        choice = "auto"
    return options if choice == options.tool_choice else msgspec.structs.replace(options, tool_choice=choice)


def _choice(options: ModelOptions, config: ToolConfig) -> ToolChoice:
    return config.tool_choice if options.tool_choice == "auto" else options.tool_choice
