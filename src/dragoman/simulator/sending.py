"""From a plan to the steps that carry it out: bytes to send, pauses, and how the connection ends.

Owns: events as bytes, compression, the cutting into writes, HTTP's framing of a response.
Must not know: sockets and clocks. The steps are data, and somebody else takes them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from .dialects.dialect import Frame
from .plan import Body, Ending, Pause, Plan

__all__ = ["End", "Send", "Step", "response", "steps_of"]


class Send(Struct, frozen=True):
    """Write these bytes."""

    data: bytes


class End(Struct, frozen=True):
    """The response is over. `end`: properly, so that the connection may be used again."""

    how: Ending


Step: TypeAlias = Send | Pause | End


def steps_of(plan: Plan) -> Iterator[Step]:
    """The steps that carry the plan out; the last is always an End, or a pause after which nothing comes."""
    if plan.before is not None:
        yield plan.before
        if not plan.before.go_on:
            return
    if plan.abandoned is not None:
        yield End(plan.abandoned)
        return
    pieces = _written(_compressed(_rendered(plan), plan), plan)
    total = _length(pieces)
    ending: Ending = "close" if plan.length_error else "end"
    if plan.cut is not None:
        place, ending = plan.cut
        pieces = _split(pieces, place.of(total))[0]
    length = (_length(pieces) if ending == "end" else total) + plan.length_error
    chunked = plan.body != "json" and not plan.length_error
    body = _Framing(plan, pieces, ending=ending, chunked=chunked)
    head = _head(plan, None if chunked else max(length, 0))
    if plan.chunking.write == "reply" and plan.stall is None and plan.drip is None:
        yield Send(head + b"".join(step.data for step in body.sends(pieces)) + body.tail)
        yield End(ending)
        return
    yield Send(head)
    if plan.stall is not None:
        place, pause = plan.stall
        before, pieces = _split(pieces, place.of(total))
        yield from body.steps(before)
        yield pause
        if not pause.go_on:
            return
    yield from body.steps(pieces)
    if body.tail:
        yield Send(body.tail)
    yield End(ending)


def response(status: int, headers: dict[str, str], body: bytes) -> bytes:
    """A plain response, for what belongs to no plan."""
    lines = [f"HTTP/1.1 {status} {_phrase(status)}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode("latin-1") + body


class _Framing:
    """Writes of a body, as HTTP frames them."""

    def __init__(self, plan: Plan, pieces: Sequence[bytes], *, ending: Ending, chunked: bool) -> None:
        self._chunked = chunked
        self._pause = Pause(plan.drip[1], go_on=True) if plan.drip is not None else None
        self.tail = b"0\r\n\r\n" if chunked and ending == "end" else b""

    def sends(self, pieces: Sequence[bytes]) -> Iterator[Send]:
        for piece in pieces:
            if piece:
                yield Send(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)

    def steps(self, pieces: Sequence[bytes]) -> Iterator[Step]:
        for send in self.sends(pieces):
            yield send
            if self._pause is not None:
                yield self._pause


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:  # 529, for one, is not in the register
        return "Simulated"


def _head(plan: Plan, length: int | None) -> bytes:
    framing = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    lines = [f"HTTP/1.1 {plan.status} {_phrase(plan.status)}"]
    lines += [f"{name}: {value}" for name, value in plan.headers.items()]
    if plan.compressed:
        lines.append("content-encoding: gzip")
    return "\r\n".join([*lines, framing, "", ""]).encode("latin-1")


# --- events as bytes -------------------------------------------------------------------------------------------------


def _rendered(plan: Plan) -> list[bytes]:
    if plan.replaced is not None:
        return [plan.replaced]
    return list(_RENDERERS[plan.body](plan))


def _json(frame: Frame) -> bytes:
    return frame.data if isinstance(frame.data, bytes) else msgspec.json.encode(frame.data)


def _events(plan: Plan) -> Iterator[bytes]:
    end = plan.line_end
    for frame in plan.frames:
        if plan.keep_alive_comment:
            yield plan.keep_alive_comment + end + end
        name = b"event: " + frame.name.encode() + end if frame.name else b""
        yield name + b"data: " + _json(frame) + end + end


def _array(plan: Plan) -> Iterator[bytes]:
    """What Gemini streams without `alt=sse`: one array, element by element."""
    for index, frame in enumerate(plan.frames):
        if plan.keep_alive_comment:
            yield plan.line_end
        yield (b"," + plan.line_end if index else b"[") + _json(frame)
    yield b"]" if plan.frames else b"[]"


def _value(plan: Plan) -> Iterator[bytes]:
    if plan.keep_alive_comment:
        yield plan.line_end
        yield plan.line_end
    yield _json(plan.frames[0]) + (plan.line_end if plan.line_end == b"\r\n" else b"")


_RENDERERS = {"sse": _events, "array": _array, "json": _value}
assert set(_RENDERERS) == set(Body.__args__)


# --- pieces ----------------------------------------------------------------------------------------------------------


def _length(pieces: Sequence[bytes]) -> int:
    return sum(map(len, pieces))


def _compressed(pieces: list[bytes], plan: Plan) -> list[bytes]:
    """Every piece is flushed, so that an event can be read when it has come."""
    if not plan.compressed:
        return pieces
    packer = zlib.compressobj(wbits=31)  # 31: with a gzip header
    return [*(packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) for piece in pieces), packer.flush()]


def _written(pieces: list[bytes], plan: Plan) -> list[bytes]:
    """The pieces as they are written one by one."""
    size: int | Literal["event", "reply"] = plan.chunking.write if plan.drip is None else plan.drip[0]
    if size == "event":
        return pieces
    whole = b"".join(pieces)
    step = max(len(whole), 1) if size == "reply" else size
    return [whole[start : start + step] for start in range(0, len(whole), step)]


def _split(pieces: Sequence[bytes], place: int) -> tuple[list[bytes], list[bytes]]:
    """What comes before a place, counted in bytes, and what comes after."""
    before: list[bytes] = []
    after: list[bytes] = []
    for piece in pieces:
        before.append(piece[: max(place, 0)])
        after.append(piece[max(place, 0) :])
        place -= len(piece)
    return before, after
