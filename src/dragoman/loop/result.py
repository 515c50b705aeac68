"""The result of a run: how it ended, the conversation, and what was used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias, assert_never

from msgspec import Struct

import dragoman.providers
from dragoman.conversation import BROKEN_OFF, CUT_OFF, Citation, Conversation, Ended, HandedOver, StopReason, Usage
from dragoman.engines import Reply
from dragoman.tools import PendingApproval

from .step import AwaitApproval, Done, LimitReached, NoAnswer, Spent

_SHOWN: Final = 80


class Cancelled(Struct, frozen=True):
    """The run was cancelled."""


Ending: TypeAlias = Done | AwaitApproval | LimitReached | NoAnswer | Cancelled
"""How a run can end other than by an error."""

ENDINGS: Final[dict[type[Ending], Ended]] = {
    Done: "done",
    AwaitApproval: "await_approval",
    LimitReached: "limit_reached",
    NoAnswer: "no_answer",
    Cancelled: "cancelled",
}


class RunResult(Struct, frozen=True):
    """The result of a run."""

    conversation: Conversation
    ending: Ending
    replies: tuple[Reply, ...]
    """The reply of every model call, in order."""
    spent: Spent
    besides: Usage | None = None
    """What was used besides these replies: by models inside tools, and by calls that were given up."""
    handoffs: tuple[HandedOver, ...] = ()
    """The agents that took over, in order."""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= _SHOWN else self.text[: _SHOWN - 1] + "…"
        return f"<RunResult {self._how_it_ended}: {text!r}>"

    @property
    def _how_it_ended(self) -> str:
        """The ending in words, with how many calls wait, what the stop reason says is missing, and limits passed."""
        words, reason = ENDINGS[type(self.ending)], self.stop_reason
        further = [reason.value] if reason is not None and reason in (*CUT_OFF, *BROKEN_OFF) else []
        if waiting := len(self.pending):
            further.append(f"{waiting} {'call waits' if waiting == 1 else 'calls wait'}")
        if not isinstance(self.ending, LimitReached):
            further += [f"past its limit of {name.replace('_', ' ')}" for name in self.spent.passed]
        return f"{words} ({', '.join(further)})" if further else words

    def _repr_html_(self) -> str:
        """The turn and how it ended, for notebooks."""
        messages = self.conversation.messages
        begin = max([place for place, each in enumerate(messages) if each.role == "user"], default=0)
        facts = [self._how_it_ended.replace("_", " "), f"{self.spent.seconds:.1f} s"]
        if self.usage.tokens:
            facts.append(f"{self.usage.tokens:,} tokens")
        return Conversation(messages=messages[begin:]).to_html(note=" · ".join(facts))

    @property
    def text(self) -> str:
        """The model's last answer."""
        # An empty reply is no part of the conversation, whose last answer would be that of an earlier turn.
        return self.ending.message.text if isinstance(self.ending, Done | NoAnswer) else self.conversation.text

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the model's last reply ended: `max_tokens` if the answer was cut at the limit of tokens."""
        if isinstance(self.ending, Done | NoAnswer):
            return self.ending.stop_reason
        return self.replies[-1].message.stop_reason if self.replies else None

    @property
    def note(self) -> str:
        """What is wrong with the answer and what to do about it, in a sentence or two; empty if nothing is."""
        match self.ending:
            case Done():
                return self.ending.note
            case NoAnswer() | LimitReached():
                return str(self.ending)
            case AwaitApproval() | Cancelled():
                return ""
            case _:
                assert_never(self.ending)

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The sources of the last answer, if the provider reports them."""
        return self.replies[-1].message.citations if self.replies else ()

    @property
    def usage(self) -> Usage:
        """The tokens of this run, including its agents."""
        return add_usage(self.replies, self.besides)

    @property
    def cost(self) -> float | None:
        """The cost of this run in US dollars; None if any part of it is unknown."""
        besides = () if self.besides is None else (self.besides.charged,)
        return dragoman.providers.total_cost([*[reply.cost for reply in self.replies], *besides])

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for approval."""
        return self.ending.pending if isinstance(self.ending, AwaitApproval) else ()


def add_usage(replies: Iterable[Reply], besides: Usage | None) -> Usage:
    """The usage of these replies, and what was used besides."""
    used = [reply.message.usage for reply in replies]
    return Usage.total_of(used if besides is None else [*used, besides])
