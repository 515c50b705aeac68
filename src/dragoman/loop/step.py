"""What to do next: the loop's only decision, a pure function of data.

Owns: next_step and the kinds of steps. The state of a loop is its conversation: whoever holds one, in whatever process,
gets the same answer.
Must not know: engines, executors, clocks.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeAlias

from msgspec import Struct

from dragoman.conversation import Conversation, Message, StopReason, ToolCall
from dragoman.errors import InvalidConversationError
from dragoman.tools.permission import PendingApproval

from .limits import Limits, Spent


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


def next_step(
    conversation: Conversation,
    limits: Limits,
    spent: Spent = NOTHING_SPENT,
    waiting: Collection[PendingApproval] = (),
) -> Step:
    """What is to be done with this conversation.

    `waiting` are the calls of which it is known that a person must be asked; the others can be run.
    """
    last = conversation.last
    if last is None:
        message = "The conversation has no message that a model could answer."
        raise InvalidConversationError(message, hint="Add a message of the user first.")
    calls = conversation.pending_tool_calls
    if calls and not last.interrupted:
        # Providers use ids again: a call that waits is known by all of it.
        waiting = tuple([each for each in waiting if each.call in calls])
        if waiting:
            asked = {pending.call.id for pending in waiting}
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
