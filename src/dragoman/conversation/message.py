"""Messages, and why a reply ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    """The answer reached the limit of tokens."""
    STOP_SEQUENCE = "stop_sequence"
    """One of the caller's stop sequences was reached."""
    REFUSAL = "refusal"
    """The model declined."""
    CONTENT_FILTER = "content_filter"
    """The provider withheld the answer or a part of it."""
    CONTEXT_FULL = "context_full"
    """The model's context was full before the answer was complete."""
    PAUSED = "paused"
    """The provider paused a long turn; send the conversation again to continue it."""
    INTERRUPTED = "interrupted"
    """The stream ended before the reply was complete: it was cancelled, or the connection broke."""
    ERROR = "error"
    """The provider reported an error in the middle of the reply."""
    OTHER = "other"
    """None of these; see `raw_stop_reason`."""


BROKEN_OFF: Final = (StopReason.INTERRUPTED, StopReason.ERROR)
"""The stop reasons of incomplete replies."""

CUT_OFF: Final[Mapping[StopReason, str]] = {
    StopReason.MAX_TOKENS: "it reached the limit of tokens for a reply (max_tokens)",
    StopReason.CONTEXT_FULL: "the model's context window was full",
    StopReason.REFUSAL: "the model declined to answer",
    StopReason.CONTENT_FILTER: "the provider withheld the rest",
}
"""The stop reasons of replies that may lack a part, and what happened. Their calls are never run, not even one that
looks whole: providers complete cut JSON, so that it can be read proves nothing."""


class Attempt(Value, frozen=True):
    """One attempt of a model call, stored with the reply."""

    outcome: str
    """`ok`, or a short reason why it failed."""
    waited: float = 0.0
    """Seconds waited before it."""
    queued: float = 0.0
    """Seconds in our own queue before it."""
    duration: float = 0.0
    first_token: float | None = None
    """Seconds until the first part of the answer; only for streamed replies."""
    model: str | None = None
    """The requested model, if the ledger has it."""
    status: int | None = None


class Account(Value, frozen=True):
    """When and how a reply was made. In a store, every reply of a conversation has one."""

    began: datetime
    """When the request was sent."""
    seconds: float
    """Until the reply was complete."""
    attempts: tuple[Attempt, ...] = ()
    """Every attempt, in order; empty if the engine keeps no ledger."""


Role: TypeAlias = Literal["user", "assistant", "tool"]
"""The author of a message; tool results have a role of their own."""


# dict=True: a message never changes, so codecs keep its wire form in its memory instead of encoding it every turn.
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
    """How a stored reply was made. Never sent to a model."""

    @classmethod
    def user(cls, *content: str | Block) -> Message:
        """A message of the user, with texts and media."""
        return cls(role="user", blocks=_blocks(content))

    @classmethod
    def assistant(cls, *content: str | Block) -> Message:
        """A message of the model, for examples and tests."""
        return cls(role="assistant", blocks=_blocks(content))

    @classmethod
    def tool(cls, results: Iterable[ToolResult]) -> Message:
        """The results of the message before, in the order of its calls."""
        return cls(role="tool", blocks=tuple(results))

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        return "".join([block.text for block in self.blocks if isinstance(block, Text)])

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The sources of the texts, in order; a span refers to the text block with the citation."""
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
        from .html import message_to_html  # only notebooks need it

        return message_to_html(self)

    @property
    def interrupted(self) -> bool:
        """Whether the reply is incomplete."""
        return self.stop_reason in BROKEN_OFF

    @property
    def cut_off(self) -> str:
        """Why a part of the reply may be missing, in words; empty if it ended by itself."""
        return "" if self.stop_reason is None else CUT_OFF.get(self.stop_reason, "")

    @property
    def says_nothing(self) -> bool:
        """Whether there is nothing in it but thinking and blank text."""
        return not any(map(_says_something, self.blocks))


def _says_something(block: Block) -> bool:
    return bool(block.text.strip()) if isinstance(block, Text) else not isinstance(block, Thinking)


def _blocks(content: tuple[str | Block, ...]) -> tuple[Block, ...]:
    return tuple([Text(part) if isinstance(part, str) else part for part in content])
