"""One turn of a conversation.

Owns: the message and its views; the short ways to build one by hand.
Must not know: providers. A reply of a model is built by `fold`, nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal, TypeAlias

from .blocks import Block, Text, Thinking, ToolCall, ToolResult
from .stop_reason import StopReason
from .usage import Usage
from .values import Native, Value

__all__ = ["Message", "Role"]

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
    def interrupted(self) -> bool:
        """Whether the reply broke off before it was complete."""
        return self.stop_reason in (StopReason.INTERRUPTED, StopReason.ERROR)


def _blocks(content: tuple[str | Block, ...]) -> tuple[Block, ...]:
    return tuple([Text(part) if isinstance(part, str) else part for part in content])
