"""A fast loopback server with precomputed replies, in a process of its own: `with serving() as port: …`.

It answers every request on a connection at once, without parsing more than it must: the path tells the dialect, a
request for a stream gets the stream, any other the whole reply. What is measured against it is the client. What comes
first in the path changes the manner:

    /tools/…    a model that calls a tool first
    /paced/…    a stream that comes in small pieces, as from a model that thinks: one at each tick, for all streams
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.processors import take_servers
from bench.wire import CALL_ID, CHUNKS, WIRES, Wire

__all__ = ["CHUNKS", "PACED_CHUNKS", "serving"]

PACED_CHUNKS = 50
TICK = 0.02

_PATHS = {
    b"chat/completions": WIRES["openai_chat"],
    b"/responses": WIRES["openai_responses"],
    b"/messages": WIRES["anthropic"],
    b"enerateContent": WIRES["gemini"],
}
_STREAMS = {id(wire): wire.stream for wire in WIRES.values()}
_CALL = CALL_ID.encode()
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


class _Pace:
    """Gives each open stream its next piece, all at the same moment."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Transport, tuple[Wire, int]] = {}
        self._ticking = False

    def add(self, transport: asyncio.Transport, wire: Wire) -> None:
        transport.write(wire.head + b"".join(wire.opening))
        self._open[transport] = (wire, PACED_CHUNKS)
        if not self._ticking:
            self._ticking = True
            asyncio.get_running_loop().call_later(TICK, self._tick)

    def _tick(self) -> None:
        for transport, (wire, left) in list(self._open.items()):
            if left == 0:
                transport.write(b"".join(wire.closing))
            else:
                transport.write(wire.pieces[left % len(wire.pieces)])
                self._open[transport] = (wire, left - 1)
            if left == 0 or transport.is_closing():
                del self._open[transport]
        self._ticking = bool(self._open)
        if self._ticking:
            asyncio.get_running_loop().call_later(TICK, self._tick)


_pace = _Pace()


class _Connection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = bytearray()
        self._wanted = 0

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= self._wanted:
            end = received.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(received[:end])
            self._wanted = end + 4 + _length(head)
            if len(received) < self._wanted:
                return
            body = bytes(received[end + 4 : self._wanted])
            del received[: self._wanted]
            self._wanted = 0
            self._answer(head.partition(b"\r\n")[0], body)

    def _answer(self, request: bytes, body: bytes) -> None:
        wire = next((wire for sign, wire in _PATHS.items() if sign in request), None)
        if wire is None:
            self._transport.write(_NOT_FOUND)
        elif b"streamGenerateContent" in request or b'"stream":true' in body or b'"stream": true' in body:
            if b" /paced" in request:
                _pace.add(self._transport, wire)
            else:
                self._transport.write(_STREAMS[id(wire)])
        elif b" /tools" in request:
            done = _CALL in body or b"functionResponse" in body or b"function_response" in body
            self._transport.write(wire.after_call if done else wire.call)
        else:
            self._transport.write(wire.whole)


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def _main(tls: ssl.SSLContext | None) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, "127.0.0.1", 0, ssl=tls, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)  # until the parent has gone, however it went


@contextmanager
def serving(certificate: Path | None = None) -> Iterator[int]:
    """Start the server and give its port; with a certificate (and its key in the same file), over TLS."""
    given = [] if certificate is None else ["--certificate", str(certificate)]
    process = subprocess.Popen(
        [sys.executable, __file__, *given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--certificate", help="a PEM file with a certificate and its key: speak TLS")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    take_servers()
    tls = None
    if options.certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(options.certificate)
    asyncio.run(_main(tls))


if __name__ == "__main__":
    main()
