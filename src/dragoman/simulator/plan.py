"""The response to one request before it is sent, and how it is sent: events as bytes, writes, HTTP framing.

Must not know: sockets, clocks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, TypeAlias

from .dialect import Answer, Dialect, Frame, Refusal

if TYPE_CHECKING:  # faults change plans, which carry out some of them
    from .faults import Cut, Drip, Stall

Ending: TypeAlias = Literal["reset", "close", "end"]
"""A reset of the connection; a close before the body is complete; a body that is complete for HTTP."""


@dataclass
class Plan:
    """The response to one request. Faults change it before it is sent."""

    dialect: Dialect
    answer: Answer
    headers: dict[str, str]
    streamed: bool = False
    """Whether the body is a stream of events; otherwise it is one JSON value."""
    frames: list[Frame] = field(default_factory=list[Frame])
    """The events, or the one JSON value."""
    status: int = 200
    replaced: bytes | None = None
    """Sent instead of the frames."""
    forms: set[str] = field(default_factory=set[str])
    """Other ways to write the body: `gzip`, `keep_alive`, `crlf`."""
    length_error: int = 0
    """How many bytes the content length is off."""
    delay: Stall | None = None
    abandoned: Ending | None = None
    """The connection ends without a response."""
    stall: Stall | None = None
    cut: Cut | None = None
    drip: Drip | None = None

    def middle(self, share: float = 0.5) -> int:
        """An index for a further event: after the first event, and before those that end the reply."""
        last = next((i for i, frame in enumerate(self.frames) if frame.kind in {"finish", "end"}), len(self.frames))
        return max(min(1, last), min(last, round(last * share)))

    def refuse(self, refusal: Refusal) -> None:
        self.status, self.streamed = refusal.status, False
        self.frames = [Frame(self.dialect.failure(refusal, self.answer.id("req_")))]
        self.headers |= {"content-type": "application/json"} | self.dialect.failure_headers(refusal)


def steps(plan: Plan) -> Iterator[bytes | float | Stall | Ending]:
    """What the connection does: writes, short pauses, stalls, and how it ends."""
    if plan.delay is not None:
        yield plan.delay
    if plan.abandoned is not None:
        yield plan.abandoned
        return
    pieces = _render(plan)
    is_compressed = "gzip" in plan.forms and "gzip" in plan.answer.request.headers.get("accept-encoding", "")
    if is_compressed:
        plan.headers["content-encoding"] = "gzip"
        packer = zlib.compressobj(wbits=31)  # 31: with a gzip header; each piece is flushed
        pieces = [*(packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) for piece in pieces), packer.flush()]
    if plan.drip is not None:
        whole, size = b"".join(pieces), plan.drip.size
        pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
    total = sum(map(len, pieces))
    ending: Ending = "close" if plan.length_error else "end"
    if plan.cut is not None:
        ending = plan.cut.how
        pieces = _split(pieces, plan.cut.position(total))[0]
    length = (sum(map(len, pieces)) if ending == "end" else total) + plan.length_error
    chunked = plan.streamed and not plan.length_error
    yield _head(plan, None if chunked else max(length, 0))
    if plan.stall is not None:
        before, pieces = _split(pieces, plan.stall.position(total))
        yield from _writes(before, plan, chunked=chunked)
        yield plan.stall
    yield from _writes(pieces, plan, chunked=chunked)
    if chunked and ending == "end":
        yield b"0\r\n\r\n"
    yield ending


def _head(plan: Plan, length: int | None) -> bytes:
    try:
        phrase = HTTPStatus(plan.status).phrase
    except ValueError:  # such as 529
        phrase = "Simulated"
    lines = [f"HTTP/1.1 {plan.status} {phrase}", *(f"{name}: {value}" for name, value in plan.headers.items())]
    lines.append("transfer-encoding: chunked" if length is None else f"content-length: {length}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _render(plan: Plan) -> list[bytes]:
    """The events as bytes, or the whole reply."""
    if plan.replaced is not None:
        return [plan.replaced]
    end = b"\r\n" if "crlf" in plan.forms else b"\n"
    if not plan.streamed:
        body = plan.frames[0].encoded
        return [end, end, body] if "keep_alive" in plan.forms else [body + (end if "crlf" in plan.forms else b"")]
    comment = b": keep-alive" + end + end if "keep_alive" in plan.forms and plan.dialect.has_comments else b""
    events = [plan.dialect.event(frame.name, frame.encoded, end) for frame in plan.frames]
    return [piece for event in events for piece in (comment, event) if piece]


def _writes(pieces: Sequence[bytes], plan: Plan, *, chunked: bool) -> Iterator[bytes | float]:
    for piece in filter(None, pieces):
        yield b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece
        if plan.drip is not None:
            yield float(plan.drip.seconds)


def _split(pieces: Sequence[bytes], position: int) -> tuple[list[bytes], list[bytes]]:
    """The pieces before and after a position, which counts bytes."""
    before: list[bytes] = []
    after: list[bytes] = []
    for piece in pieces:
        before.append(piece[: max(position, 0)])
        after.append(piece[max(position, 0) :])
        position -= len(piece)
    return before, after
