"""A service that answers each user in the user's own words, in four dialects, and misbehaves as the script says.

Owns: every byte of the replies, and when it is sent.
Must not know: what clients make of it.

What arrives on an idle connection later than the reply it follows is left out: once somebody else has sent a request on
that connection, no client of HTTP/1.1 can tell such bytes from the answer. Surplus is sent along with the last bytes of
the reply instead.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Iterable

from tests.transport.replies import DIALECTS, Say
from tests.transport.server import Exchange
from tests.transport.turns import MARKER, STRANGER, Turn


class Service:
    """The script of a `Server`, for these turns."""

    def __init__(self, turns: Iterable[Turn]) -> None:
        self._turns = {turn.marker: turn for turn in turns}
        self.problems: list[str] = []
        """What users said that they cannot have meant."""

    async def __call__(self, exchange: Exchange) -> None:
        body = exchange.body.decode()
        markers = MARKER.findall(body)
        turn = self._turns.get(markers[-1]) if markers else None
        if turn is None or set(markers) != {turn.marker} or DIALECTS[turn.dialect].path not in exchange.target:
            self.problems.append(f"a strange request for {exchange.target}: {body[:2000]}")
            await exchange.reply(b"{}", 400)
            return
        step = int(f"noted {turn.marker}" in body)
        act = turn.service if step == turn.step else "answers"
        draw = random.Random(f"{turn.marker} {step}")
        reply = _reply(turn, step)
        match act:
            case "answers":
                await _send(exchange, reply, draw)
            case "late":
                early = reply[: draw.choice((0, draw.randrange(len(reply))))]
                await _send(exchange, early, draw)
                await asyncio.sleep(turn.pause)
                await _send(exchange, reply[len(early) :], draw)
            case "closes":
                exchange.hang_up()
                await _send(exchange, _until_close(turn, step) if draw.random() < 0.3 else reply, draw)
            case "cuts":
                exchange.hang_up()
                await _send(exchange, reply[: draw.randrange(len(reply))], draw)
            case "resets":
                await _send(exchange, reply[: draw.randrange(len(reply))], draw)
                exchange.reset()
            case "surplus":
                stranger = Say(f"{STRANGER} " * 3, STRANGER)
                await _send(exchange, reply, draw, behind=_reply(turn, step, stranger))
            case "redirects":
                headers = ["location: http://127.0.0.1:9/elsewhere", *_headers(turn)]
                await _send(exchange, _framed(302, headers, _bodies(turn, turn.replies[step]), turn), draw)
            case "refuses":
                refusal = DIALECTS[turn.dialect].refusal(turn.status, f"Not for {turn.marker}.")
                await _send(exchange, _framed(turn.status, ["content-type: application/json"], [refusal], turn), draw)


async def _send(exchange: Exchange, data: bytes, draw: random.Random, behind: bytes = b"") -> None:
    """Send it in pieces that end anywhere; what is `behind` comes with the last one, in one write."""
    ends = sorted(draw.sample(range(len(data)), min(draw.randrange(4), len(data))))
    start = 0
    for end in ends:
        await exchange.send(data[start:end])
        await asyncio.sleep(draw.choice((0.0, 0.001)))
        start = end
    await exchange.send(data[start:] + behind)


def _bodies(turn: Turn, say: Say) -> list[bytes]:
    """The reply as the dialect writes it: its events, or all of it."""
    dialect = DIALECTS[turn.dialect]
    return dialect.stream(say) if turn.streamed else [dialect.body(say)]


def _headers(turn: Turn) -> list[str]:
    return ["content-type: text/event-stream" if turn.streamed else "content-type: application/json"]


def _reply(turn: Turn, step: int, say: Say | None = None) -> bytes:
    return _framed(200, _headers(turn), _bodies(turn, say or turn.replies[step]), turn)


def _until_close(turn: Turn, step: int) -> bytes:
    """A reply that only the end of the connection ends."""
    return _head(200, _headers(turn)) + b"".join(_bodies(turn, turn.replies[step]))


def _framed(status: int, headers: list[str], parts: list[bytes], turn: Turn) -> bytes:
    if turn.compressed:
        packer = zlib.compressobj(wbits=31)  # 31: with a gzip header
        parts = [*(packer.compress(part) + packer.flush(zlib.Z_SYNC_FLUSH) for part in parts), packer.flush()]
        headers = [*headers, "content-encoding: gzip"]
    if turn.framing == "length":
        body = b"".join(parts)
        return _head(status, [*headers, f"content-length: {len(body)}"]) + body
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part)
    return _head(status, [*headers, "transfer-encoding: chunked"]) + chunks + b"0\r\n\r\n"


def _head(status: int, headers: list[str]) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status} Whatever", *headers, "", ""]).encode()
