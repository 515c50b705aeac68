"""One turn of a conversation, with why a reply ended, said alike for all providers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from typing import Final, Literal, TypeAlias

from .blocks import Block, Citation, Opaque, ServerToolUse, Text, Thinking, ToolCall, ToolResult
from .usage import Usage
from .values import Native, Value


class StopReason(Enum):
    """Why a reply ended."""

    END = "end"
    """The model finished its answer."""
    TOOL_CALLS = "tool_calls"
    """The model waits for the results of its tool calls."""
    MAX_TOKENS = "max_tokens"
    """The answer was cut at the limit of tokens."""
    STOP_SEQUENCE = "stop_sequence"
    """One of the caller's stop sequences was reached."""
    REFUSAL = "refusal"
    """The model declined."""
    CONTENT_FILTER = "content_filter"
    """The provider cut or withheld the answer."""
    CONTEXT_FULL = "context_full"
    """The model's context window ran out while it answered."""
    PAUSED = "paused"
    """The provider paused a long turn; send the conversation again to continue it."""
    INTERRUPTED = "interrupted"
    """The stream ended before the reply was complete: cancelled, or the connection broke."""
    ERROR = "error"
    """The provider reported an error in the middle of the reply."""
    OTHER = "other"
    """None of these; the raw reason says more."""


BROKEN_OFF: Final = (StopReason.INTERRUPTED, StopReason.ERROR)
"""Of a reply that is not complete."""


class Attempt(Value, frozen=True):
    """One attempt of a model call, as it is kept with the reply."""

    outcome: str
    """`ok`, or why it failed, in a few words."""
    waited: float = 0.0
    """Seconds waited before it."""
    queued: float = 0.0
    """Seconds in a line of our own before it."""
    duration: float = 0.0
    first_token: float | None = None
    """Seconds until something of the answer came; of a streamed reply only."""
    model: str | None = None
    """The model that was asked, where the ledger says so."""
    status: int | None = None


class Account(Value, frozen=True):
    """When and how a reply came about. A conversation that is kept in a store has one on each of its replies."""

    began: datetime
    """When the model was asked."""
    seconds: float
    """From then until the reply was complete."""
    attempts: tuple[Attempt, ...] = ()
    """Every attempt, in order; none where the engine keeps no ledger."""


Role: TypeAlias = Literal["user", "assistant", "tool"]
"""Whose turn a message is; results of tools have one of their own."""


# dict=True: a message never changes, so codecs keep its wire form beside it instead of encoding it every turn.
class Message(Value, frozen=True, dict=True, gc=True):
    """One turn: the user's, the model's, or the results of the tools that the model called."""

    role: Role
    blocks: tuple[Block, ...] = ()
    provider: str | None = None
    model: str | None = None
    id: str | None = None
    """The provider's id of the reply."""
    usage: Usage | None = None
    stop_reason: StopReason | None = None
    raw_stop_reason: str | None = None
    time: datetime | None = None
    native: Native | None = None
    account: Account | None = None
    """Of a reply in a conversation that is kept: how it came about. Never sent to a model."""

    @classmethod
    def user(cls, *content: str | Block, time: datetime | None = None) -> Message:
        """A message of the user: texts and media in the given order."""
        return cls(role="user", blocks=_blocks(content), time=time)

    @classmethod
    def assistant(cls, *content: str | Block, time: datetime | None = None) -> Message:
        """A message put into the model's mouth, for examples and tests."""
        return cls(role="assistant", blocks=_blocks(content), time=time)

    @classmethod
    def tool(cls, results: Iterable[ToolResult], *, time: datetime | None = None) -> Message:
        """The results of the calls of the message before, in the order of the calls."""
        return cls(role="tool", blocks=tuple(results), time=time)

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        return "".join([block.text for block in self.blocks if isinstance(block, Text)])

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Where the texts come from, in order; a span is one of the text block that has the citation."""
        return tuple([one for block in self.blocks if isinstance(block, Text) for one in block.citations])

    @property
    def thinking(self) -> str:
        """All readable reasoning, joined."""
        return "".join([block.text for block in self.blocks if isinstance(block, Thinking)])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls in this message, in order."""
        return tuple([block for block in self.blocks if isinstance(block, ToolCall)])

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """The results in this message, in order."""
        return tuple([block for block in self.blocks if isinstance(block, ToolResult)])

    @property
    def server_tool_uses(self) -> tuple[ServerToolUse, ...]:
        """What the provider's own tools did, in order."""
        return tuple([block.used for block in self.blocks if isinstance(block, Opaque) and block.used is not None])

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        from .html import message_to_html  # which knows messages

        return message_to_html(self)

    @property
    def interrupted(self) -> bool:
        """Whether the reply broke off before it was complete."""
        return self.stop_reason in BROKEN_OFF


def _blocks(content: tuple[str | Block, ...]) -> tuple[Block, ...]:
    return tuple([Text(part) if isinstance(part, str) else part for part in content])
