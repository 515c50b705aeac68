"""The result of a run: how it ended, the conversation, and what was used."""

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
    """The run was cancelled."""


Ending: TypeAlias = Done | AwaitApproval | LimitReached | Cancelled
"""How a run can end other than by an error."""

Ended: TypeAlias = Literal["done", "await_approval", "limit_reached", "cancelled"]
"""The same as a word."""
ENDINGS: Final[dict[type[Ending], Ended]] = {
    Done: "done",
    AwaitApproval: "await_approval",
    LimitReached: "limit_reached",
    Cancelled: "cancelled",
}


class RunResult(Struct, frozen=True):
    """The result of a run."""

    conversation: Conversation
    ending: Ending
    replies: tuple[Reply, ...]
    """The reply of every model call, in order."""
    spent: Spent
    behind_tools: tuple[Usage, ...] = ()
    """The usage of each model call inside a tool, for example by an agent."""
    handoffs: tuple[HandedOver, ...] = ()
    """The agents that took over, in order."""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= _SHOWN else self.text[: _SHOWN - 1] + "…"
        return f"<RunResult {ENDINGS[type(self.ending)]}: {text!r}>"

    def _repr_html_(self) -> str:
        """The turn and how it ended, for notebooks."""
        messages = self.conversation.messages
        begin = max([place for place, each in enumerate(messages) if each.role == "user"], default=0)
        facts = [ENDINGS[type(self.ending)].replace("_", " "), f"{self.spent.seconds:.1f} s"]
        if self.usage.tokens:
            facts.append(f"{self.usage.tokens:,} tokens")
        return Conversation(messages=messages[begin:]).to_html(note=" · ".join(facts))

    @property
    def text(self) -> str:
        """The model's last answer."""
        return self.conversation.text

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The sources of the last answer, if the provider reports them."""
        return self.replies[-1].message.citations if self.replies else ()

    @property
    def usage(self) -> Usage:
        """The tokens of this run, including its agents."""
        return Usage.total_of([*[reply.message.usage for reply in self.replies], *self.behind_tools])

    @property
    def cost(self) -> float | None:
        """The cost of this run in US dollars; None if any part of it is unknown."""
        costs = [*[reply.cost for reply in self.replies], *[each.charged for each in self.behind_tools]]
        return dragoman.providers.total_cost(costs)

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for approval."""
        return self.ending.pending if isinstance(self.ending, AwaitApproval) else ()
