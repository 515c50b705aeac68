"""Faults in what a reply says: its events, and their order; a whole reply counts as one event.

Owns: damage, doubles, wrong order, errors in mid-stream, missing ends, and what is new but harmless.
Must not know: how a dialect writes its events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from dragoman.simulator.dialects.dialect import ErrorForm, Frame
from dragoman.simulator.json_access import items, members
from dragoman.simulator.plan import Plan

from .fault import Effect, Fault
from .refusals import Status

__all__ = [
    "Crlf",
    "Duplicated",
    "ErrorEvent",
    "KeepAlive",
    "Malformed",
    "MissingEnd",
    "Reordered",
    "UnknownEvent",
    "UnknownFields",
]

_DAMAGES: Final[dict[str, Callable[[bytes], bytes]]] = {
    "json": lambda data: data[: max(len(data) // 2, 1)],
    "html": lambda _data: b"<html><body><h1>502 Bad Gateway</h1></body></html>",
    # Every text that is the value of a member, so that nobody passes the damage by.
    "utf8": lambda data: data.replace(b':"', b':"\xff'),
}


class Malformed(Fault, frozen=True):
    """An event, or the whole reply, cannot be read."""

    what: Literal["json", "html", "utf8"] = "json"
    """JSON that breaks off; a page of HTML; bytes that are not UTF-8."""
    share: float = 0.5
    """Which event: after this share of all."""

    def effect(self, *, streamed: bool = True) -> Effect:
        """Some clients put the sign for unreadable characters in the place of bytes that are not UTF-8."""
        return "unclear" if self.what == "utf8" else "broken"

    def apply(self, plan: Plan) -> None:
        """Damage one event."""
        index = min(plan.middle(self.share), len(plan.frames) - 1)
        frame = plan.frames[index]
        data = frame.data if isinstance(frame.data, bytes) else msgspec.json.encode(frame.data)
        plan.frames[index] = Frame(_DAMAGES[self.what](data), frame.name, frame.kind)


class Duplicated(Fault, frozen=True):
    """An event comes twice."""

    which: Literal["start", "middle", "end"] = "middle"

    usual_effect = "unclear"
    streams_only = True

    def apply(self, plan: Plan) -> None:
        """Double one event."""
        if plan.streamed:
            last = len(plan.frames) - 1
            index = {"start": 0, "middle": min(plan.middle(), last), "end": last}[self.which]
            plan.frames.insert(index, plan.frames[index])


class Reordered(Fault, frozen=True):
    """An event comes after one that it should come before."""

    which: Literal["part", "delta"] = "part"
    """The start of a part (where the dialect has such events) comes after the first delta behind it, or the first delta
    after the second."""

    usual_effect = "unclear"
    streams_only = True

    def apply(self, plan: Plan) -> None:
        """Move one event back."""
        if plan.streamed:
            kinds = [frame.kind for frame in plan.frames]
            index = kinds.index(self.which) if self.which in kinds else kinds.index("delta") if "delta" in kinds else 0
            behind = kinds.index("delta", index + 1) if "delta" in kinds[index + 1 :] else index + 1
            plan.frames.insert(behind, plan.frames.pop(index))


class ErrorEvent(Fault, frozen=True):
    """The stream began well and then tells of an error. A whole reply is an error in spite of its status 200."""

    status: int = 503
    """Which error: its code and text are those of this status."""
    message: str = ""
    code: str | None = None
    share: float = 0.5
    """How much of the reply comes before it."""
    form: ErrorForm = "event"
    """For the responses dialect, which knows three: as documented; as OpenAI's servers were seen to write it; as a
    response that failed."""

    usual_effect = "failure"

    def apply(self, plan: Plan) -> None:
        """Put the error in the place of the rest."""
        refusal = Status(self.status, self.message, self.code).refusal
        if plan.streamed:
            index = plan.middle(self.share)
            plan.frames[index:] = plan.dialect.failure_in_stream(refusal, plan.answer, index, self.form)
        else:
            plan.frames = [Frame(plan.dialect.failure_in_whole(refusal, plan.answer, self.form))]


class MissingEnd(Fault, frozen=True):
    """The last mark of a stream never comes: [DONE], message_stop, response.completed, the finish reason."""

    all_marks: bool = False
    """Also the marks before it: nothing says that, or why, the reply ended."""

    streams_only = True

    def effect(self, *, streamed: bool = True) -> Effect:
        """Compatible servers leave the last mark out, so that some clients do without it."""
        if not streamed:
            return "none"
        return "broken" if self.all_marks else "unclear"

    def apply(self, plan: Plan) -> None:
        """Leave the marks out."""
        marks = {"finish", "end"} if self.all_marks else {"end"}
        if plan.streamed:
            plan.frames = [frame for frame in plan.frames if frame.kind not in marks]


class UnknownEvent(Fault, frozen=True):
    """An event of a kind that the client cannot know."""

    share: float = 0.5
    """How much of the reply comes before it."""

    streams_only = True

    def apply(self, plan: Plan) -> None:
        """Put the event in."""
        if plan.streamed:
            plan.frames = plan.dialect.with_unknown(plan.answer, plan.frames, plan.middle(self.share))


_GROWING: Final = frozenset(
    {
        *("candidates", "choices", "content", "content_block", "delta", "item", "message", "output", "part", "parts"),
        *("response", "tool_calls", "usage", "usageMetadata"),
    }
)
"""Members whose objects are the API's own: a tool's arguments, for one, are not among them."""


class UnknownFields(Fault, frozen=True):
    """Every object of the reply has a member that the client cannot know."""

    name: str = "x_simulated"

    def apply(self, plan: Plan) -> None:
        """Put the members in."""
        plan.frames = [
            frame if isinstance(frame.data, bytes) else Frame(members(self._grown(frame.data)), frame.name, frame.kind)
            for frame in plan.frames
        ]

    def _grown(self, value: object) -> object:
        if array := items(value):
            return [self._grown(item) for item in array]
        if not (found := members(value)):
            return value
        grown = {name: self._grown(inner) if name in _GROWING else inner for name, inner in found.items()}
        return grown | {self.name: {"new": [1, None, "field"]}}


class KeepAlive(Fault, frozen=True):
    """Comments between the events that keep the connection open; before a whole reply, empty lines."""

    comment: str = "keep-alive"

    def apply(self, plan: Plan) -> None:
        """Put the comments in."""
        plan.keep_alive_comment = f": {self.comment}".encode()


class Crlf(Fault, frozen=True):
    """Lines end with CR LF."""

    def apply(self, plan: Plan) -> None:
        """End lines that way."""
        plan.line_end = b"\r\n"
