"""What happens while a model answers and tools run, as frozen values.

Every part of a reply (text, thinking, a tool call's arguments) has a start, deltas and an end, all with the part's
index and id; blocks that arrive whole have one event. The JSON form of an event carries its kind in `type`
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


# Deltas are made for every chunk of every stream and hold only strings and numbers: they need no garbage collector.
class _Part(_Event, frozen=True, gc=False):
    index: int
    """Which part of the reply, counted from 0 in the order of the reply."""
    id: str
    """The provider's id of the part; of a tool call, the call's id. Empty where there is none."""


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
    """Sources of a text, in addition to those before. They may come while it grows, or behind its end."""

    citations: tuple[Citation, ...]


class ThinkingStarted(_Part, frozen=True, gc=False):
    """Reasoning begins; `provider` is the one that can read it back."""

    provider: str


class ThinkingDelta(_Part, frozen=True, gc=False):
    """A piece of reasoning."""

    text: str


class ThinkingEnded(_Part, frozen=True):
    """Reasoning is complete; what proves or hides it comes with the end."""

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
    """This and `hosted` are the call's own."""


class BlockReceived(_Part, frozen=True):
    """A block that arrives whole: media that the model made, or one that only the provider understands."""

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
    """The model that answered in the end, where another one took over from that which began."""


class Failed(_Event, frozen=True):
    """The reply, or the run, failed; the same error is raised to the caller after this event."""

    error: str
    """The name of the error's class in `dragoman.errors`."""
    message: str


class ToolStarted(_Event, frozen=True):
    """A tool begins to run."""

    call: ToolCall


class ToolProgress(_Event, frozen=True):
    """What a tool says while it runs: between its start and its end, in the order in which it was said."""

    call_id: str
    name: str
    said: str | Event
    """A text; or an event of the turn of an agent, which may be a ToolProgress itself."""
    left_out: int = 0
    """How many were left out before this one, since nobody had read those before them."""


class ToolFinished(_Event, frozen=True):
    """A tool is done, whatever came of it."""

    result: ToolResult


class AnswerGrown(_Event, frozen=True):
    """More of a typed answer is there; comes in turns that were asked for one, and begins anew with each reply."""

    value: object
    """The JSON value so far: members that are not complete or do not fit are left out, texts may be cut."""


class HandedOver(_Event, frozen=True):
    """Another agent is in charge from here on."""

    agent: str
    model: str
    """As in `provider:model`."""
    losses: tuple[str, ...] = ()
    """The parts of the history that its model does not get, or gets in another form."""


class RunEnded(_Event, frozen=True):
    """A run is over: the last event of its stream, unless an error ended it (then Failed is)."""

    ending: Literal["done", "await_approval", "limit_reached", "cancelled"]
    answer: str = ""
    """The text of the model's latest answer."""
    usage: Usage = Usage()
    """The tokens of the run, added up."""


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
"""What a model's reply is made of."""

Event: TypeAlias = ReplyEvent | ToolStarted | ToolProgress | ToolFinished | AnswerGrown | HandedOver | RunEnded
"""Everything that a caller of a loop can see."""
