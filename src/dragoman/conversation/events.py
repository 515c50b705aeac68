"""The events of a run, while a model answers and tools run.

Every part of a reply (text, thinking, a tool call's arguments) has a start, deltas and an end, all with the part's
index and id; blocks that arrive whole have one event. The JSON form of an event has its kind in `type`
(`text_delta`, `tool_call_started`, …), for logs and for programs that read events line by line.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Struct

from .blocks import Citation, Media, Opaque, ToolCall, ToolResult
from .message import StopReason
from .usage import Usage
from .values import Native


def _snake(name: str) -> str:
    return "".join([f"_{letter.lower()}" if letter.isupper() else letter for letter in name]).lstrip("_")


class _Event(Struct, frozen=True, omit_defaults=True, tag=_snake, tag_field="type"):
    pass


# There is a delta for every chunk of every stream; they hold only strings and numbers and need no garbage collector.
class _Part(_Event, frozen=True, gc=False):
    index: int
    """The number of the part in the reply, counted from 0."""
    id: str
    """The provider's id of the part; for a tool call, the call's id. May be empty."""


class ReplyStarted(_Event, frozen=True):
    """The model begins to answer."""

    provider: str
    model: str | None = None
    id: str | None = None
    time: datetime | None = None


class TextStarted(_Part, frozen=True, gc=False):
    """A text begins."""


class TextDelta(_Part, frozen=True, gc=False):
    """A piece of text."""

    text: str


class TextEnded(_Part, frozen=True):
    """A text is complete."""

    native: Native | None = None


class TextCited(_Part, frozen=True):
    """More sources of a text. They may come while it grows, or after its end."""

    citations: tuple[Citation, ...]


class ThinkingStarted(_Part, frozen=True, gc=False):
    """Reasoning begins; only `provider` can use it again."""

    provider: str


class ThinkingDelta(_Part, frozen=True, gc=False):
    """A piece of reasoning."""

    text: str


class ThinkingEnded(_Part, frozen=True):
    """Reasoning is complete; its signature or encrypted form comes with the end."""

    signature: str | None = None
    encrypted: str | None = None
    native: Native | None = None


class ToolCallStarted(_Part, frozen=True, gc=False):
    """The model begins to call a tool."""

    name: str


class ToolCallDelta(_Part, frozen=True, gc=False):
    """A piece of the arguments' JSON text."""

    arguments: str


class ToolCallEnded(_Part, frozen=True):
    """The call is complete."""

    native: Native | None = None
    hosted: bool = False
    asks: str = ""
    """Like `hosted`, see ToolCall."""


class BlockReceived(_Part, frozen=True):
    """A block that arrives whole: media from the model, or one that only the provider understands."""

    block: Media | Opaque


class UsageReported(_Event, frozen=True):
    """Token counts so far; a later report replaces an earlier one."""

    usage: Usage


class Completed(_Event, frozen=True):
    """The reply is complete. Without this event a reply counts as interrupted."""

    stop_reason: StopReason
    raw_stop_reason: str | None = None
    native: Native | None = None
    model: str | None = None
    """The model that completed the reply, if another one took over."""


class Failed(_Event, frozen=True):
    """The reply, or the run, failed; the same error is raised to the caller after this event."""

    error: str
    """The name of the error's class in `dragoman.errors`."""
    message: str


class ToolStarted(_Event, frozen=True):
    """A tool begins to run."""

    call: ToolCall


class ToolProgress(_Event, frozen=True):
    """Progress of a running tool, in order, between its start and its end."""

    call_id: str
    name: str
    said: str | Event
    """A text; or an event of an agent's turn, which may itself be a ToolProgress."""
    left_out: int = 0
    """How many events before this one were dropped, because the reader was too slow."""


class ToolFinished(_Event, frozen=True):
    """A tool has finished, with a result or an error."""

    result: ToolResult


class AnswerGrown(_Event, frozen=True):
    """More of a typed answer has arrived; starts again with each reply."""

    value: object
    """The JSON value so far, without incomplete or invalid members; texts may be incomplete."""


class HandedOver(_Event, frozen=True):
    """Another agent is in charge from here on."""

    agent: str
    model: str
    """As in `provider:model`."""
    losses: tuple[str, ...] = ()
    """The parts of the history that its model does not receive, or receives in another form."""


Ended: TypeAlias = Literal["done", "await_approval", "limit_reached", "no_answer", "cancelled"]
"""How a run ended, in a word."""


class RunEnded(_Event, frozen=True):
    """A run is over: the last event of its stream, unless an error ended it (then Failed is)."""

    ending: Ended
    answer: str = ""
    """The text of the model's latest answer."""
    usage: Usage = Usage()
    """The total tokens of the run."""
    stop_reason: StopReason | None = None
    """Why the model's last reply ended."""
    note: str = ""
    """What is wrong with the answer, in a sentence or two; empty if nothing is."""


ReplyEvent: TypeAlias = (
    ReplyStarted
    | TextStarted
    | TextDelta
    | TextEnded
    | TextCited
    | ThinkingStarted
    | ThinkingDelta
    | ThinkingEnded
    | ToolCallStarted
    | ToolCallDelta
    | ToolCallEnded
    | BlockReceived
    | UsageReported
    | Completed
    | Failed
)
"""An event of a model's reply."""

Event: TypeAlias = ReplyEvent | ToolStarted | ToolProgress | ToolFinished | AnswerGrown | HandedOver | RunEnded
"""Any event of a run."""
