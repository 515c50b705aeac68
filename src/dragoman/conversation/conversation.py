"""The conversation: a system prompt, messages and metadata, never changed in place.

A branch is free: two conversations share the messages they have in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from dragoman.errors import InvalidConversationError

from .blocks import ToolCall, ToolResult
from .message import Message
from .usage import Usage
from .validity import Change, last_turn, repair
from .values import FrozenDict, Value, memory_of

_NO_METADATA = FrozenDict()
_OF_TOOLS: Final = frozenset({ToolCall, ToolResult})
_NOTHING_CHECKED: Final = (0, 0)
_VALID: Final = "valid"
"""The key in the memory of a valid conversation for its length, and where its last turn begins."""


# dict=True: what is known about the messages is kept in the memory of the value and passed on, so that a turn on a long
# history checks only its new messages. It must stay true when messages are added, and when the system prompt or the
# metadata change (`pending_tool_calls` is computed again). It is no part of the value: not compared, written or copied.
class Conversation(Value, frozen=True, dict=True, gc=True):
    """A system prompt and messages. Every change returns a new conversation."""

    system: str | None = None
    messages: tuple[Message, ...] = ()
    metadata: dict[str, object] = _NO_METADATA
    """Free-form JSON data of your program; never sent to a model."""

    def __post_init__(self) -> None:
        if type(self.metadata) is not FrozenDict:
            msgspec.structs.force_setattr(self, "metadata", FrozenDict(self.metadata))

    def plus(self, *messages: Message) -> Conversation:
        """This conversation with more messages at its end."""
        longer = msgspec.structs.replace(self, messages=self.messages + messages)
        known = memory_of(longer)
        known.update(memory_of(self))
        if messages:
            waiting = known.pop("pending_tool_calls", None)
            if messages[-1].role != "tool":
                known["pending_tool_calls"] = _unanswered_calls(messages)
            elif waiting is not None and len(messages) == 1:  # as in a loop that runs tools
                answered = [result.call_id for result in messages[0].tool_results]
                known["pending_tool_calls"] = tuple([call for call in waiting if call.id not in answered])
        return longer

    def with_system(self, system: str | None) -> Conversation:
        """This conversation with another system prompt."""
        return self._pass_memory(msgspec.structs.replace(self, system=system))

    def with_metadata(self, metadata: Mapping[str, object]) -> Conversation:
        """This conversation with other metadata."""
        return self._pass_memory(msgspec.structs.replace(self, metadata=FrozenDict(metadata)))

    def _pass_memory(self, changed: Conversation) -> Conversation:
        """Pass what is known about the messages on to a copy with the same messages."""
        memory_of(changed).update(memory_of(self))
        return changed

    def up_to(self, count: int) -> Conversation:
        """A branch with the first `count` messages."""
        return msgspec.structs.replace(self, messages=self.messages[:count])

    @property
    def last(self) -> Message | None:
        """The newest message."""
        return self.messages[-1] if self.messages else None

    @property
    def text(self) -> str:
        """The text of the model's last message."""
        for message in reversed(self.messages):
            if message.role == "assistant":
                return message.text
        return ""

    @cached_property
    def pending_tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls of the model's last message that have no result yet, in order.

        A call with incomplete arguments is not pending, nor is any call of a reply that was cut off: none can be run.
        """
        return _unanswered_calls(self.messages)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why this conversation cannot be sent, one line per problem; empty if it can."""
        return tuple([str(change) for change in repair(self.messages)[1]])

    @property
    def is_valid(self) -> bool:
        """Whether it can be sent: every tool call has exactly one result, in order."""
        known, length = memory_of(self), len(self.messages)
        checked, since = known.get(_VALID, _NOTHING_CHECKED)
        if checked < length:
            last: int | None = since
            for index in range(checked, length):
                message = self.messages[index]
                if message.role == "assistant":
                    since = last = index
                if not _is_plain(message):  # calls and results: check the whole turn again
                    last = last_turn(self.messages, since)
                    break
            if last is None:
                return False
            known[_VALID] = (length, last)
        return True

    def ensure_valid(self) -> None:
        """Raise InvalidConversationError unless it can be sent."""
        if self.is_valid:
            return
        problems = self.problems
        more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
        raise InvalidConversationError(f"The conversation cannot be sent: {problems[0]}{more}.", problems=problems)

    def repaired(self) -> Repaired:
        """A conversation that can be sent, and the changes that were needed; itself if it is valid."""
        messages, changes = repair(self.messages)
        return Repaired(msgspec.structs.replace(self, messages=messages) if changes else self, changes)

    def to_html(self, *, note: str = "") -> str:
        """The conversation as inert HTML, with a note below; notebooks show it like this."""
        from .html import messages_to_html  # only notebooks need it

        return messages_to_html(self.messages, system=self.system, note=note)

    def _repr_html_(self) -> str:
        return self.to_html()

    @property
    def usage(self) -> Usage:
        """The total usage of all replies, and of models inside tools."""
        used = [message.usage for message in self.messages if message.role == "assistant"]
        used += [result.usage for message in self.messages for result in message.tool_results if result.usage]
        return Usage.total_of(used) if used else Usage()


def _is_plain(message: Message) -> bool:
    """Whether the message has content and no tool calls or results, like nearly all messages."""
    return message.role != "tool" and bool(message.blocks) and _OF_TOOLS.isdisjoint(map(type, message.blocks))


def _unanswered_calls(messages: tuple[Message, ...]) -> tuple[ToolCall, ...]:
    answered: set[str] = set()
    for message in reversed(messages):
        if message.role == "user":
            break
        if message.role == "assistant":
            if message.cut_off:
                return ()
            return tuple(
                [b for b in message.blocks if isinstance(b, ToolCall) and b.id not in answered and not b.partial]
            )
        answered.update([result.call_id for result in message.tool_results])
    return ()


class Repaired(NamedTuple):
    """A conversation that can be sent, and the changes that were needed."""

    conversation: Conversation
    changes: tuple[Change, ...]
