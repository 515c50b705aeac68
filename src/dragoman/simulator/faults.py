"""What can go wrong between a provider and its client, as values.

Faults combine: Reply("Hello", faults=[Drip(), UnknownFields(), Cut(after=200)]). Those that change events do so in
the given order; a whole reply counts as one event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from .dialect import Frame, Refusal
from .exchange import items, members
from .plan import Ending, Plan

Effect: TypeAlias = Literal["none", "failure", "broken", "silence", "unclear"]
"""How a client must react to a reply with a fault.

    none      unusual but valid: it must return the complete reply
    failure   the provider reports a failure: it must raise an error of the right kind
    broken    the reply is damaged or incomplete: it must not be taken for a complete one
    silence   nothing more is sent: only the client's timeout, or the simulator's limit, ends it
    unclear   depends on the dialect, or cannot be noticed
"""


class Fault(Struct, frozen=True):
    """Something that goes wrong. To write your own, override `apply`, which changes a `plan.Plan`."""

    def effect(self, *, streamed: bool = True) -> Effect:
        """How a client must react to a streamed, or a whole, reply with this fault."""
        match self:
            case Status() | ErrorEvent():
                return "failure"
            case Stall(go_on=False, where="head" | "body"):
                return "silence"
            case Cut(after=int(after)) if streamed and after < 0:
                return "unclear"  # the stream may be complete before its last byte
            case WrongLength() if streamed:
                return "unclear"  # the stream may be complete before the missing bytes
            case Malformed(what="utf8"):
                return "unclear"  # some clients replace invalid characters
            case NoResponse() | Cut() | WrongLength() | Malformed():
                return "broken"
            case MissingEnd(all_marks=True) if streamed:
                return "broken"
            case MissingEnd() | Duplicated() | Reordered() if streamed:
                return "unclear"  # compatible servers leave the last mark out, so some clients do without it
            case _:
                return "none"

    def apply(self, plan: Plan) -> None:
        """Change what will be sent."""
        raise NotImplementedError


# --- instead of a reply ----------------------------------------------------------------------------------------------


class Status(Fault, frozen=True):
    """An error status with a body in the provider's shape, e.g. Status(429, headers={"retry-after": "1"})."""

    status: int
    message: str = ""
    code: str | None = None
    """The provider's error code; by default the dialect's usual one for the status."""
    headers: Mapping[str, str] = {}
    body: str | None = None
    """Sent as HTML instead of the provider's error, like the error page of a proxy."""

    @property
    def refusal(self) -> Refusal:
        text = self.message or f"The simulator answers with status {self.status}."
        wait = self.headers.get("retry-after", "")
        return Refusal(self.status, text, self.code, retry_after=wait if wait.isdecimal() else None)

    def apply(self, plan: Plan) -> None:
        plan.refuse(self.refusal)
        plan.headers |= self.headers
        if self.body is not None:
            plan.replaced = self.body.encode()
            plan.headers["content-type"] = "text/html; charset=UTF-8"


class NoResponse(Fault, frozen=True):
    """The connection ends before the first byte of the response."""

    how: Literal["reset", "close"] = "close"

    def apply(self, plan: Plan) -> None:
        plan.abandoned = self.how


# --- in how it is sent -----------------------------------------------------------------------------------------------


class Drip(Fault, frozen=True):
    """The reply comes in small pieces with pauses between them."""

    size: int = 64
    seconds: float = 0.001

    def apply(self, plan: Plan) -> None:
        plan.drip = self


class _Positioned(Fault, frozen=True, kw_only=True):
    """A fault at a position of the body."""

    after: int | None = None
    """Bytes of the body, from its end if negative; by default a share of it."""
    share: float = 0.5

    def position(self, total: int) -> int:
        after = int(total * self.share) if self.after is None else self.after
        return min(total, after) if after >= 0 else max(total + after, 0)


class Stall(_Positioned, frozen=True):
    """Nothing is sent for a while, and the connection stays open."""

    seconds: float | None = None
    """By default until the client closes, or the simulator's limit."""
    where: Literal["head", "body", "end"] = "body"
    """Before the headers; in the middle of the body; after the body, before HTTP's end of it."""
    go_on: bool = False
    """Whether the rest is sent after the stall; otherwise the connection is closed."""

    def position(self, total: int) -> int:
        return total if self.where == "end" else super().position(total)

    def apply(self, plan: Plan) -> None:
        if self.where == "head":
            plan.delay = self
        else:
            plan.stall = self


class Cut(_Positioned, frozen=True):
    """The reply breaks off: Cut(after=100), or Cut(share=0.9)."""

    how: Ending = "close"
    """`reset`: the connection is reset; `close`: it is closed, and the body is incomplete for HTTP; `end`: the body is
    short, but complete for HTTP."""

    def apply(self, plan: Plan) -> None:
        plan.cut = self


class WrongLength(Fault, frozen=True):
    """The content length is larger than the body (`by` > 0), or smaller."""

    by: int = 7

    def apply(self, plan: Plan) -> None:
        plan.length_error = self.by


class Form(Fault, frozen=True):
    """The reply is written in an unusual but valid form."""

    what: Literal["gzip", "keep_alive", "crlf"]
    """Compressed, if the client accepts that; with comments between the events (empty lines before a whole reply); with
    CR LF at the ends of lines."""

    def apply(self, plan: Plan) -> None:
        plan.forms.add(self.what)


# --- in its content --------------------------------------------------------------------------------------------------

_DAMAGES: Final[dict[str, Callable[[bytes], bytes]]] = {
    "json": lambda data: data[: max(len(data) // 2, 1)],
    "html": lambda _data: b"<html><body><h1>502 Bad Gateway</h1></body></html>",
    "utf8": lambda data: data.replace(b':"', b':"\xff'),  # in every string value, so that no client skips it
}


class Malformed(Fault, frozen=True):
    """An event, or the whole reply, cannot be parsed."""

    what: Literal["json", "html", "utf8"] = "json"
    """JSON that breaks off; a page of HTML; bytes that are not UTF-8."""

    def apply(self, plan: Plan) -> None:
        index = min(plan.middle(), len(plan.frames) - 1)
        frame = plan.frames[index]
        plan.frames[index] = Frame(_DAMAGES[self.what](frame.encoded), frame.name, frame.kind)


class Duplicated(Fault, frozen=True):
    """An event is sent twice."""

    which: Literal["start", "middle", "end"] = "middle"

    def apply(self, plan: Plan) -> None:
        if plan.streamed:
            last = len(plan.frames) - 1
            index = {"start": 0, "middle": min(plan.middle(), last), "end": last}[self.which]
            plan.frames.insert(index, plan.frames[index])


class Reordered(Fault, frozen=True):
    """An event is sent too late."""

    which: Literal["part", "delta"] = "part"
    """The start of a part (in dialects that have such events) comes after its first delta, or the first delta after the
    second."""

    def apply(self, plan: Plan) -> None:
        if plan.streamed:
            kinds = [frame.kind for frame in plan.frames]
            index = kinds.index(self.which) if self.which in kinds else kinds.index("delta") if "delta" in kinds else 0
            behind = kinds.index("delta", index + 1) if "delta" in kinds[index + 1 :] else index + 1
            plan.frames.insert(behind, plan.frames.pop(index))


class ErrorEvent(Fault, frozen=True):
    """A stream that started well ends with an error. A whole reply is an error in spite of its status 200."""

    status: int = 503
    """Determines the error code and text."""
    message: str = ""
    code: str | None = None
    share: float = 0.5

    def apply(self, plan: Plan) -> None:
        refusal = Status(self.status, self.message, self.code).refusal
        if plan.streamed:
            index = plan.middle(self.share)
            plan.frames[index:] = [plan.dialect.failure_in_stream(refusal, plan.answer, index)]
        else:
            plan.frames = [Frame(plan.dialect.failure(refusal, plan.answer.id("req_")))]


class MissingEnd(Fault, frozen=True):
    """The last event of a stream is missing: [DONE], message_stop, response.completed, the finish reason."""

    all_marks: bool = False
    """Also the events before it that say why the reply ended."""

    def apply(self, plan: Plan) -> None:
        marks = {"finish", "end"} if self.all_marks else {"end"}
        if plan.streamed:
            plan.frames = [frame for frame in plan.frames if frame.kind not in marks]


class UnknownEvent(Fault, frozen=True):
    """An event of a type that the client cannot know."""

    def apply(self, plan: Plan) -> None:
        if plan.streamed:
            plan.frames.insert(plan.middle(), plan.dialect.unknown_event)


_EXTENDED: Final = frozenset(
    {
        *("candidates", "choices", "content", "content_block", "delta", "item", "message", "output", "part", "parts"),
        *("response", "tool_calls", "usage", "usageMetadata", "start", "toolUse", "reasoningContent", "metrics"),
    }
)
"""Fields whose objects belong to the API, unlike a tool's arguments."""


class UnknownFields(Fault, frozen=True):
    """Every object of the reply has a field that the client cannot know."""

    def apply(self, plan: Plan) -> None:
        plan.frames = [
            frame if isinstance(frame.data, bytes) else Frame(members(_extend(frame.data)), frame.name, frame.kind)
            for frame in plan.frames
        ]


def _extend(value: object) -> object:
    if array := items(value):
        return [_extend(item) for item in array]
    if not (fields := members(value)):
        return value
    extended = {name: _extend(inner) if name in _EXTENDED else inner for name, inner in fields.items()}
    return extended | {"x_simulated": {"new": [1, None, "field"]}}


# --- all of them -----------------------------------------------------------------------------------------------------

FAULTS: Final[Mapping[str, Fault]] = {
    # instead of a reply
    **{f"status_{status}": Status(status) for status in (400, 401, 403, 404, 408, 409, 413, 429, 500, 503, 529)},
    "status_429_retry_after": Status(429, headers={"retry-after": "1"}),
    "status_429_retry_after_ms": Status(429, headers={"retry-after-ms": "20", "retry-after": "1"}),
    "status_429_retry_after_date": Status(429, headers={"retry-after": "Thu, 01 Jan 2026 00:00:00 GMT"}),
    "status_502_html": Status(502, body="<html><body><h1>502 Bad Gateway</h1></body></html>"),
    "status_504_empty": Status(504, body=""),
    "silence": Stall(where="head"),
    "no_response_close": NoResponse("close"),
    "no_response_reset": NoResponse("reset"),
    # in how it is sent
    "delay": Stall(0.05, "head", go_on=True),
    "drip": Drip(),
    "stall": Stall(),
    "stall_after_headers": Stall(after=0),
    "stall_at_end": Stall(where="end"),
    "stall_then_go_on": Stall(0.05, go_on=True),
    "cut_close": Cut("close"),
    "cut_reset": Cut("reset"),
    "cut_end": Cut("end"),
    "cut_after_headers": Cut("close", after=0),
    "cut_last_byte": Cut("close", after=-1),
    "length_too_long": WrongLength(7),
    "length_too_short": WrongLength(-7),
    "gzip": Form("gzip"),
    # in its content
    "malformed_json": Malformed("json"),
    "malformed_event": Malformed("html"),
    "malformed_utf8": Malformed("utf8"),
    "duplicated_start": Duplicated("start"),
    "duplicated_event": Duplicated("middle"),
    "duplicated_end": Duplicated("end"),
    "reordered_parts": Reordered("part"),
    "reordered_deltas": Reordered("delta"),
    "error_event": ErrorEvent(),
    "error_event_first": ErrorEvent(share=0.0),
    "missing_end": MissingEnd(),
    "missing_finish": MissingEnd(all_marks=True),
    "unknown_event": UnknownEvent(),
    "unknown_fields": UnknownFields(),
    "keep_alive": Form("keep_alive"),
    "crlf": Form("crlf"),
}
"""Every kind of fault, with settings that work for any reply and dialect: for tests that try them all."""
