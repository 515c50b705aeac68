"""What came of a run: how it ended, what was said, and the account of it."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

import dragoman.providers
from dragoman.conversation import Citation, Conversation, HandedOver, Usage
from dragoman.engines import Reply
from dragoman.tools import PendingApproval

from .step import AwaitApproval, Done, LimitReached, Spent

_SHOWN: Final = 80


class Cancelled(Struct, frozen=True):
    """The run was told to stop."""


Ending: TypeAlias = Done | AwaitApproval | LimitReached | Cancelled
"""How a run can end other than by an error."""

Ended: TypeAlias = Literal["done", "await_approval", "limit_reached", "cancelled"]
"""The same in a word."""
ENDINGS: Final[dict[type[Ending], Ended]] = {
    Done: "done",
    AwaitApproval: "await_approval",
    LimitReached: "limit_reached",
    Cancelled: "cancelled",
}


class RunResult(Struct, frozen=True):
    """What came of a run."""

    conversation: Conversation
    ending: Ending
    replies: tuple[Reply, ...]
    """The account of every call of the model, in order."""
    spent: Spent
    behind_tools: tuple[Usage, ...] = ()
    """What models behind tools used, those of agents say, for each of their calls."""
    handoffs: tuple[HandedOver, ...] = ()
    """The agents that were put in charge, one after the other."""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= _SHOWN else self.text[: _SHOWN - 1] + "…"
        return f"<RunResult {ENDINGS[type(self.ending)]}: {text!r}>"

    def _repr_html_(self) -> str:
        """How a notebook shows it: the turn, and how it ended."""
        messages = self.conversation.messages
        begin = max([place for place, each in enumerate(messages) if each.role == "user"], default=0)
        facts = [ENDINGS[type(self.ending)].replace("_", " "), f"{self.spent.seconds:.1f} s"]
        if self.usage.tokens:
            facts.append(f"{self.usage.tokens:,} tokens")
        return Conversation(messages=messages[begin:]).to_html(note=" · ".join(facts))

    @property
    def text(self) -> str:
        """The model's latest answer."""
        return self.conversation.text

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Where the latest answer comes from, as far as the provider says."""
        return self.replies[-1].message.citations if self.replies else ()

    @property
    def usage(self) -> Usage:
        """The tokens of this run, those of agents included, added up."""
        return Usage.total_of([*[reply.message.usage for reply in self.replies], *self.behind_tools])

    @property
    def cost(self) -> float | None:
        """What this run cost, in US dollars; None if a part of it is not known."""
        costs = [*[reply.cost for reply in self.replies], *[each.charged for each in self.behind_tools]]
        return dragoman.providers.total_cost(costs)

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for a person."""
        return self.ending.pending if isinstance(self.ending, AwaitApproval) else ()
