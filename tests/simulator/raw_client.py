"""A client that shows every byte (one request on one socket, read until the server ends it), and what a reply says."""

from __future__ import annotations

import json
import socket
import zlib
from dataclasses import dataclass
from typing import Any

from dragoman.conversation import Conversation, Usage
from dragoman.providers import Call, Encoded, WireRequest, codec_of, profile_of
from dragoman.simulator import Simulator
from tests.providers.feeding import message_of

DIALECTS = ("openai_chat", "openai_responses", "anthropic", "gemini")


def path_of(dialect: str, *, stream: bool, sse: bool = True) -> str:
    if dialect == "gemini":
        method = "streamGenerateContent" if stream else "generateContent"
        return f"/v1beta/models/any-model:{method}" + ("?alt=sse" if stream and sse else "")
    paths = {"openai_chat": "/v1/chat/completions", "openai_responses": "/v1/responses", "anthropic": "/v1/messages"}
    return paths[dialect]


def body_of(dialect: str, text: str = "Hi", *, stream: bool = False) -> dict[str, Any]:
    if dialect == "gemini":
        return {"contents": [{"role": "user", "parts": [{"text": text}]}]}
    body: dict[str, Any] = {"model": "any-model", "stream": stream}
    if dialect == "openai_responses":
        return body | {"input": [{"role": "user", "content": [{"type": "input_text", "text": text}]}]}
    if dialect == "anthropic":
        body["max_tokens"] = 100
    if dialect == "openai_chat" and stream:
        body["stream_options"] = {"include_usage": True}
    return body | {"messages": [{"role": "user", "content": text}]}


def request_bytes(
    target: str, body: object = None, *, method: str = "POST", headers: dict[str, str | None] | None = None
) -> bytes:
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    named: dict[str, str | None] = {
        "host": "simulator",
        "connection": "close",
        "anthropic-version": "2023-06-01",
        "accept-encoding": "gzip",
    }
    named |= {"content-length": str(len(data))} | (headers or {})
    lines = [
        f"{method} {target} HTTP/1.1",
        *(f"{name}: {value}" for name, value in named.items() if value is not None),
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + data


@dataclass
class Answer:
    """What came, and how the connection ended."""

    status: int
    headers: dict[str, str]
    body: bytes
    """The content: without chunks and compression."""
    complete: bool
    """Whether HTTP says that the body is complete."""
    ending: str
    """`close` or `reset`."""
    chunks: list[bytes]
    """The chunks as they were sent."""
    rest: bytes = b""
    """What came after the end of the body."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[tuple[str, str]]:
        """(name, data) of each event of a stream."""
        found: list[tuple[str, str]] = []
        for frame in self.body.decode().replace("\r\n", "\n").split("\n\n"):
            fields = dict(line.split(": ", 1) for line in frame.split("\n") if line and not line.startswith(":"))
            if "data" in fields:
                found.append((fields.get("event", ""), fields["data"]))
        return found

    @property
    def datas(self) -> list[Any]:
        """The parsed data of each event."""
        return [json.loads(data) for _, data in self.events if data != "[DONE]"]


def read_to_end(sock: socket.socket) -> tuple[bytes, str]:
    received = b""
    while True:
        try:
            data = sock.recv(65536)
        except ConnectionResetError:
            return received, "reset"
        if not data:
            return received, "close"
        received += data


def parse(received: bytes, ending: str) -> Answer:
    head, separator, raw = received.partition(b"\r\n\r\n")
    if not separator:
        return Answer(0, {}, b"", complete=False, ending=ending, chunks=[])
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    if "transfer-encoding" in headers:
        chunks, complete, rest = _chunks(raw)
        body = b"".join(chunks)
    else:
        length = int(headers["content-length"])
        body, complete, rest, chunks = raw[:length], len(raw) >= length, raw[length:], [raw[:length]]
    if headers.get("content-encoding") == "gzip":
        body = zlib.decompressobj(wbits=31).decompress(body)
    return Answer(int(first.split(" ")[1]), headers, body, complete, ending, chunks, rest)


def _chunks(raw: bytes) -> tuple[list[bytes], bool, bytes]:
    chunks: list[bytes] = []
    while True:
        size, separator, rest = raw.partition(b"\r\n")
        if not separator:
            return chunks, False, raw
        length = int(size, 16)
        if length == 0:
            return chunks, rest.startswith(b"\r\n"), rest[2:]
        chunks.append(rest[:length])
        if len(rest) < length + 2:
            return chunks, False, b""
        raw = rest[length + 2 :]


def send(
    simulator: Simulator,
    target: str,
    body: object = None,
    *,
    method: str = "POST",
    headers: dict[str, str | None] | None = None,
) -> Answer:
    """Send a request on a connection of its own, and read all that comes."""
    with socket.create_connection(("127.0.0.1", simulator.port), timeout=20) as sock:
        sock.sendall(request_bytes(target, body, method=method, headers=headers))
        return parse(*read_to_end(sock))


def ask(
    simulator: Simulator,
    dialect: str,
    text: str = "Hi",
    *,
    stream: bool = False,
    headers: dict[str, str | None] | None = None,
) -> Answer:
    """Ask something in a dialect."""

    target = path_of(dialect, stream=stream)
    return send(simulator, target, body_of(dialect, text, stream=stream), headers=headers)


MODELS = {
    "openai_chat": ("deepseek", "deepseek-chat"),
    "openai_responses": ("openai-responses", "gpt-5-mini"),
    "anthropic": ("anthropic", "claude-sonnet-4-5"),
    "gemini": ("gemini", "gemini-2.5-flash"),
}


@dataclass
class Said:
    text: str
    thinking: str
    calls: list[tuple[str, str, Any]]
    stop: str | None
    input: int | None
    output: int | None


def said(dialect: str, answer: Answer, *, stream: bool) -> Said:
    provider, model = MODELS[dialect]
    call = Call(model=model, conversation=Conversation(), profile=profile_of(provider, model), stream=stream)
    decoder = codec_of(dialect).decoder(call, Encoded(request=WireRequest(path="", body=b"")))  # type: ignore[arg-type]
    message = message_of(decoder, [answer.body])
    usage = message.usage or Usage()
    calls = [(each.id, each.name, each.parsed) for each in message.tool_calls]
    return Said(message.text, message.thinking, calls, message.raw_stop_reason, usage.input, usage.output)
