"""A fast loopback server with precomputed replies, in a process of its own: `with serving() as port: …`.

It answers every request on a connection at once, without parsing more than it must: a body that asks for a stream gets
the stream, any other the whole reply. What is measured against it is the client.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

CHUNKS = 2_000

_CHUNK = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-4o",'
    b'"choices":[{"index":0,%s}]}\n\n'
)
_TEXT = b'"delta":{"content":"token "},"finish_reason":null'

WHOLE_BODY = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"gpt-4o","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"Hello there, how can I help you today?"},"logprobs":null,"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":12,"completion_tokens":10,"total_tokens":22}}'
)
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
    len(WHOLE_BODY),
    WHOLE_BODY,
)


def _piece(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


STREAM = b"".join(
    [
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        _piece(_CHUNK % b'"delta":{"role":"assistant","content":""},"finish_reason":null'),
        *[_piece(_CHUNK % _TEXT)] * CHUNKS,
        _piece(_CHUNK % b'"delta":{},"finish_reason":"stop"'),
        _piece(b"data: [DONE]\n\n"),
        b"0\r\n\r\n",
    ]
)


class _Connection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        while True:
            head, separator, rest = self._received.partition(b"\r\n\r\n")
            if not separator:
                return
            length = next(
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
            )
            if len(rest) < length:
                return
            body, self._received = rest[:length], rest[length:]
            self._transport.write(STREAM if b'"stream":true' in body else WHOLE)


async def _main() -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def serving() -> Iterator[int]:
    """Start the server and give its port."""
    process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    asyncio.run(_main())
