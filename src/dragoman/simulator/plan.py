"""What will be sent in answer to one request, and how it is sent: events as bytes, pieces, HTTP's framing.

Must not know: particular faults, sockets, clocks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal, TypeAlias

from .dialect import Answer, Dialect, Frame, Refusal

Ending: TypeAlias = Literal["reset", "close", "end"]
"""A reset of the connection; a close before the body is complete; a body that HTTP takes for complete."""


@dataclass(frozen=True)
class Place:
    """A place in the body as it is sent: after so many bytes (from its end if negative), or after a share of all."""

    after: int | None = None
    share: float = 0.5

    def of(self, total: int) -> int:
        if self.after is None:
            return min(total, int(total * self.share))
        return min(total, self.after) if self.after >= 0 else max(total + self.after, 0)


@dataclass(frozen=True)
class Pause:
    """Nothing is sent for a while. `seconds` None: until the client closes, or the simulator's own limit."""

    seconds: float | None
    go_on: bool = False
    """Whether the rest follows; otherwise the connection is closed."""


@dataclass
class Plan:
    """The response to one request. Faults change it before it is sent."""

    dialect: Dialect
    answer: Answer
    streamed: bool
    """Whether the body is a stream of events; otherwise it is one JSON value."""
    frames: list[Frame]
    """The events; of a body that is one JSON value, that value."""
    headers: dict[str, str]
    status: int = 200
    replaced: bytes | None = None
    line_end: bytes = b"\n"
    keep_alive_comment: bytes = b""
    """Sent before every event; before a whole reply as an empty line."""
    compressed: bool = False
    length_error: int = 0
    """How much more, or less, the content length promises than is sent."""
    before: Pause | None = None
    abandoned: Ending | None = None
    """The connection ends without any response."""
    stall: tuple[Place, Pause] | None = None
    cut: tuple[Place, Ending] | None = None
    drip: tuple[int, float] | None = None
    """Bytes of a write, and seconds after it."""

    def middle(self, share: float = 0.5) -> int:
        """An index among the events at which something may be put in: behind the first, not behind the last marks."""
        last = next((i for i, frame in enumerate(self.frames) if frame.kind in {"finish", "end"}), len(self.frames))
        return max(min(1, last), min(last, round(last * share)))

    def refuse(self, refusal: Refusal) -> None:
        self.status, self.streamed = refusal.status, False
        self.frames = [Frame(self.dialect.failure(refusal, self.answer.id("req_")))]
        self.headers |= {"content-type": self.dialect.whole_type} | self.dialect.failure_headers(refusal)


def steps(plan: Plan) -> Iterator[bytes | Pause | Ending]:
    """What the connection does: writes, waits, and how it ends. A pause that does not go on is the last step."""
    if plan.before is not None:
        yield plan.before
    if plan.abandoned is not None:
        yield plan.abandoned
        return
    pieces = _cut_into_writes(_compress(_render(plan), plan), plan)
    total = sum(map(len, pieces))
    ending: Ending = "close" if plan.length_error else "end"
    if plan.cut is not None:
        place, ending = plan.cut
        pieces = _split(pieces, place.of(total))[0]
    length = (sum(map(len, pieces)) if ending == "end" else total) + plan.length_error
    chunked = plan.streamed and not plan.length_error
    yield _head(plan, None if chunked else max(length, 0))
    if plan.stall is not None:
        place, pause = plan.stall
        before, pieces = _split(pieces, place.of(total))
        yield from _frame_pieces(before, plan, chunked=chunked)
        yield pause
    yield from _frame_pieces(pieces, plan, chunked=chunked)
    if chunked and ending == "end":
        yield b"0\r\n\r\n"
    yield ending


def _head(plan: Plan, length: int | None) -> bytes:
    try:
        phrase = HTTPStatus(plan.status).phrase
    except ValueError:  # 529, for one, is not in the register
        phrase = "Simulated"
    lines = [f"HTTP/1.1 {plan.status} {phrase}", *(f"{name}: {value}" for name, value in plan.headers.items())]
    if plan.compressed:
        lines.append("content-encoding: gzip")
    lines.append("transfer-encoding: chunked" if length is None else f"content-length: {length}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _render(plan: Plan) -> list[bytes]:
    """The events as bytes; or a whole reply, which `keep_alive_comment` puts empty lines before."""
    if plan.replaced is not None:
        return [plan.replaced]
    end = plan.line_end
    datas = [frame.encoded for frame in plan.frames]
    if not plan.streamed:
        return [end, end, datas[0]] if plan.keep_alive_comment else [datas[0] + (end if end == b"\r\n" else b"")]
    rendered: list[bytes] = []
    for frame, data in zip(plan.frames, datas, strict=True):
        if plan.keep_alive_comment and plan.dialect.has_comments:
            rendered.append(plan.keep_alive_comment + end + end)
        rendered.append(plan.dialect.event(frame.name, data, end))
    return rendered


def _compress(pieces: list[bytes], plan: Plan) -> list[bytes]:
    """Every piece is flushed, so that an event can be read when it has come."""
    if not plan.compressed:
        return pieces
    packer = zlib.compressobj(wbits=31)  # 31: with a gzip header
    return [*(packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) for piece in pieces), packer.flush()]


def _cut_into_writes(pieces: list[bytes], plan: Plan) -> list[bytes]:
    if plan.drip is None:
        return pieces
    whole, size = b"".join(pieces), plan.drip[0]
    return [whole[start : start + size] for start in range(0, len(whole), size)]


def _frame_pieces(pieces: Sequence[bytes], plan: Plan, *, chunked: bool) -> Iterator[bytes | Pause]:
    for piece in filter(None, pieces):
        yield b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece
        if plan.drip is not None:
            yield Pause(plan.drip[1], go_on=True)


def _split(pieces: Sequence[bytes], place: int) -> tuple[list[bytes], list[bytes]]:
    """What comes before a place, counted in bytes, and what comes after."""
    before: list[bytes] = []
    after: list[bytes] = []
    for piece in pieces:
        before.append(piece[: max(place, 0)])
        after.append(piece[max(place, 0) :])
        place -= len(piece)
    return before, after
