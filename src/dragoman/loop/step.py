"""What to do next: the loop's only decision, a pure function of data.

The state of a loop is its conversation: whoever holds one, in whatever process, gets the same answer. Here are the
limits and what counts against them, the kinds of steps, and how calls leave a conversation and results join it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from dragoman._checks import CheckedMeta, NotNegative
from dragoman.conversation import Conversation, Message, StopReason, ToolCall, ToolResult
from dragoman.errors import ConfigurationError, InvalidConversationError
from dragoman.tools import Approval, PendingApproval


class Spent(Struct, frozen=True, kw_only=True):
    """What a run has used up so far."""

    steps: int = 0
    """Answers of the model that the loop has asked for."""
    model_calls: int = 0
    """Calls of the model, those for shortening the history included."""
    tool_calls: int = 0
    tokens: int = 0
    cost: float | None = 0.0
    """US dollars, counted where there is a limit of them. None: not known; `result.cost` says it without a limit."""
    seconds: float = 0.0


# Without tool calls: who has used all of them may still hear what the model makes of them.
_ASKING: Final = ("steps", "model_calls", "tokens", "cost", "seconds")


class Limits(Struct, metaclass=CheckedMeta, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How far a run may go. None says nothing: no limit, but for steps. `inf` lifts one that is said elsewhere."""

    steps: NotNegative | None = None
    """Answers of the model. None: as many as the tools' config says, 20 by default."""
    model_calls: NotNegative | None = None
    tool_calls: NotNegative | None = None
    tokens: NotNegative | None = None
    """Of all replies of the run, input and output together. A reply that goes beyond is kept; no other is asked for."""
    cost: NotNegative | None = None
    """US dollars. A model of which nobody knows what it costs is not asked at all: UnknownCostError."""
    seconds: NotNegative | None = None
    """For everything in the run: a model call under way is ended, and tools still running are given up."""

    def reached(self, spent: Spent) -> tuple[str, float] | None:
        """The first limit that leaves no room for asking the model once more."""
        for name in _ASKING:
            limit: float | None = getattr(self, name)
            if limit is not None and (getattr(spent, name) or 0.0) >= limit:
                return name, limit
        return None

    def reached_by_tools(self, spent: Spent, calls: int) -> tuple[str, float] | None:
        """The first limit that leaves no room for running so many tool calls."""
        if self.tool_calls is not None and spent.tool_calls + calls > self.tool_calls:
            return "tool_calls", self.tool_calls
        if self.seconds is not None and spent.seconds >= self.seconds:
            return "seconds", self.seconds
        return None


class AskModel(Struct, frozen=True):
    """The model is to speak."""

    first: bool
    """Whether this is the first step of a turn: a tool choice of `required` holds for this one."""


class RunTools(Struct, frozen=True):
    """These calls are to be carried out."""

    calls: tuple[ToolCall, ...]


class AwaitApproval(Struct, frozen=True):
    """A person must answer about these calls before anything else can happen."""

    pending: tuple[PendingApproval, ...]


class Done(Struct, frozen=True):
    """The model has said what it had to say."""

    message: Message

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the model stopped."""
        return self.message.stop_reason


class LimitReached(Struct, frozen=True):
    """Going on would go beyond a limit of the run."""

    limit: str
    """Its name in `Limits`."""
    value: float

    def __str__(self) -> str:
        if self.limit == "steps":
            return f"max iterations ({self.value:g}) reached"
        return f"The run reached its limit of {self.value:g} {self.limit.replace('_', ' ')}."


Step: TypeAlias = AskModel | RunTools | AwaitApproval | Done | LimitReached
"""What can be next in a conversation."""

NOTHING_SPENT: Final = Spent()
UNCERTAIN: Final = "it had begun when the program was stopped, and nobody knows whether it did its work"
"""Why a call waits for a person that had begun in another life of the program."""


def next_step(
    conversation: Conversation,
    limits: Limits,
    spent: Spent = NOTHING_SPENT,
    waiting: Collection[PendingApproval] = (),
) -> Step:
    """What is to be done with this conversation.

    `waiting` are the calls of which it is known that a person must be asked; the others can be run.
    """
    if not conversation.messages:
        message = "The conversation has no message that a model could answer."
        raise InvalidConversationError(message, hint="Add a message of the user first.")
    last = conversation.messages[-1]
    calls = conversation.pending_tool_calls
    if calls and not (last.role == "assistant" and last.interrupted):
        # Providers use ids again: a call that waits is known by all of it.
        waiting = tuple([each for each in waiting if each.held in calls])
        if waiting:
            asked = {pending.held.id for pending in waiting}
            calls = tuple([call for call in calls if call.id not in asked])
            if not calls:
                return AwaitApproval(waiting)
        reached = limits.reached_by_tools(spent, len(calls))
        return RunTools(calls) if reached is None else LimitReached(*reached)
    # A model that paused a long turn of its own tools wants to be asked again, with what it has said so far.
    if last.role == "assistant" and last.stop_reason is not StopReason.PAUSED:
        return Done(last)
    reached = limits.reached(spent)
    # A run that goes on behind tool results, after an approval say, is in the middle of its turn.
    first = spent.steps == 0 and last.role == "user"
    return AskModel(first=first) if reached is None else LimitReached(*reached)


def extract_tool_calls(conversation: Conversation) -> tuple[ToolCall, ...]:
    """The calls of the model's latest message that have no result yet, in order."""
    return conversation.pending_tool_calls


def append_tool_results(conversation: Conversation, results: Iterable[ToolResult]) -> Conversation:
    """The conversation with these results at its end.

    They may come in any order and a part at a time: all results of one message of the model stand in one message, in
    the order of the calls. A result that answers none of the calls that wait is an error.
    """
    given = {result.call_id: result for result in results}
    if not given:
        return conversation
    wanted = {call.id for call in conversation.pending_tool_calls}
    for call_id in given:
        if call_id not in wanted:
            message = f"The result {call_id!r} answers no call that waits for one."
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
    """Raise ConfigurationError for an answer about a call that does not wait: it must not hold for one to come.

    So for one about two calls: a call may have the id that another one, inside a call, is known by.
    """
    for answer in answers:
        meant = {each.held.id for each in waiting if answer.answers(each.call)}
        if not meant:
            message = f"The call {answer.call_id!r} does not wait for an answer, or was made with other arguments."
            raise ConfigurationError(message, hint="Answer the calls in `pending`: approve(call) or deny(call).")
        if len(meant) > 1:
            message = f"There are two calls {answer.call_id!r}, and it cannot be told which one the answer is about."
            raise ConfigurationError(message, hint="Say something else instead: then neither of them is made.")


def refuse_unanswered_calls(
    conversation: Conversation, answers: Iterable[Approval], waiting: Iterable[PendingApproval] = ()
) -> Conversation:
    """The conversation when somebody speaks instead of answering: calls without an answer are not run.

    A call has one, too, if one of those has that wait inside it.
    """
    calls, given = conversation.pending_tool_calls, list(answers)
    inside = {each.held.id for each in waiting if any(answer.answers(each.call) for answer in given)}
    unanswered = {call.id for call in calls if not any(answer.answers(call) for answer in given)} - inside
    if not unanswered:
        return conversation
    *_, last = conversation.repaired().conversation.messages
    return append_tool_results(conversation, [each for each in last.tool_results if each.call_id in unanswered])
