"""Servers that send too much: `python flood.py http` serves over HTTP, `python flood.py stdio REQUEST BODY` on pipes.

The path of a URL, as in /call/endless-json/mcp, says which request of the client gets which hostile body; all other
requests get harmless answers. Of the standard library alone, so that it starts at once.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

MOST = 2 * 1024 * 1024
"""The client's max_message_bytes."""
MESSAGE = MOST - 4_096
_ENDLESS = 64 * 1024 * 1024
"""Far more than may be read. It ends then, so that no client has to wait until its patience is over."""

HTTP_REQUESTS = (
    "discover", "initialize", "initialized", "list", "call", "answer", "stream", "resume", "end",
    "challenge", "resource", "issuer", "register", "token", "refresh",
)  # fmt: skip
STDIO_REQUESTS = ("discover", "initialize", "list", "call", "idle")

_TOOL = {"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object"}}
_FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}


# --- messages that take more memory than their size -------------------------------------------------------------------


def _filled(begin: str, piece: str, end: str) -> str:
    count = (MESSAGE - len(begin) - len(end)) // len(piece.encode())
    return begin + piece * count + end


def _keys() -> str:
    return "{" + ",".join(f'"{number:x}":1' for number in range(MESSAGE // 11)) + "}"


VALUES: dict[str, Callable[[], str]] = {
    "lists": lambda: _filled("[", "[],", "0]"),
    "objects": lambda: _filled("[", '{"a":{}},', "0]"),
    "deep": lambda: _filled("[", "[[[[[[]]]]]],", "0]"),
    "numbers": lambda: _filled("[", "999,", "0]"),
    "texts": lambda: _filled("[", '"Āā",', "0]"),
    "keys": _keys,
    "wide": lambda: _filled('"\U0001f600', "x", '"'),
}


def _repeated(piece: bytes) -> Iterator[bytes]:
    return itertools.repeat(piece, _ENDLESS // len(piece))


def _message(values: str, number: object) -> bytes:
    return b'{"jsonrpc":"2.0","id":%s,"result":{"tools":[],"content":[],"x":%s}}' % (
        json.dumps(number).encode(),
        values.encode(),
    )


def _note(method: str, **more: object) -> bytes:
    params = {"x": "y" * (MESSAGE - 200)}
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()


def _named(number: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": "ping", "id": number}).encode() + b"\n"


def _pings() -> Iterator[bytes]:
    return (_note("ping", id=number) for number in range(_ENDLESS // MESSAGE))


# --- harmless answers -------------------------------------------------------------------------------------------------


def harmless(message: dict[str, Any]) -> dict[str, Any]:
    version = message.get("params", {}).get("protocolVersion", "")
    about = {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "flood", "version": "1"}}
    results: dict[str, dict[str, Any]] = {
        "initialize": {"protocolVersion": version, **about},
        "tools/list": {"tools": [_TOOL]},
        "tools/call": {"content": [{"type": "text", "text": "ok"}]},
    }
    if (result := results.get(message["method"])) is None:
        return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "Method not found"}}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def kind_of(message: dict[str, Any]) -> str:
    if "method" not in message:
        return "answer"
    kinds = {"server/discover": "discover", "notifications/initialized": "initialized"}
    return kinds.get(message["method"], message["method"].rpartition("/")[2])


# --- over HTTP --------------------------------------------------------------------------------------------------------

_JSON, _EVENTS = "application/json", "text/event-stream"


def _head(status: str, kind: str = "", *lines: str) -> bytes:
    fields = [f"HTTP/1.1 {status}", *([f"content-type: {kind}"] if kind else []), *lines, "connection: close", "", ""]
    return "\r\n".join(fields).encode()


def _endless(head: bytes, piece: bytes) -> Iterator[bytes]:
    return itertools.chain([head], _repeated(piece))


def _events(pieces: Iterator[bytes]) -> Iterator[bytes]:
    return itertools.chain([_head("200 OK", _EVENTS)], (b"data: " + each + b"\n\n" for each in pieces))


_X = b"x" * 65_536
_ELSEWHERE = "location: /nothing/-/mcp"
BODIES: dict[str, Callable[[object], Iterator[bytes]]] = {
    "endless-json": lambda _: _endless(_head("200 OK", _JSON), _X),
    "endless-text": lambda _: _endless(_head("200 OK"), _X),
    "endless-line": lambda _: _endless(_head("200 OK", _EVENTS) + b"data: ", _X),
    "endless-lines": lambda _: _endless(_head("200 OK", _EVENTS), b"data:xx\n" * 8_192),
    "endless-comments": lambda _: _endless(_head("200 OK", _EVENTS), b": x\n\n" * 8_192),
    "endless-strange": lambda _: _endless(_head("200 OK", _EVENTS), b"event: x\ndata: y\n\n" * 4_096),
    "endless-notes": lambda _: _events(_repeated(_note("notifications/message"))),
    "endless-pings": lambda _: _events(_pings()),
    "large-id": lambda _: iter([_head("200 OK", _EVENTS) + b"retry: 0\nid: " + b"i" * MESSAGE + b"\ndata: \n\n"]),
    "redirect-events": lambda _: _endless(_head("307 Elsewhere", _EVENTS, _ELSEWHERE), _X),
    "redirect-json": lambda _: _endless(_head("307 Elsewhere", _JSON, _ELSEWHERE), _X),
    "error-events": lambda _: _endless(_head("500 Failed", _EVENTS), _X),
    "error-json": lambda _: _endless(_head("400 Wrong", _JSON), _X),
    "refused-events": lambda _: _endless(_head("401 Unauthorized", _EVENTS), _X),
    "gzip": lambda _: iter([_head("200 OK", _JSON, "content-encoding: gzip") + _BOMB]),
    "headers": lambda _: _endless(b"HTTP/1.1 200 OK\r\n", b"x-a: " + _X[:4_000] + b"\r\n"),
    **{
        f"json-{name}": lambda number, make=make: iter([_head("200 OK", _JSON), _message(make(), number)])
        for name, make in VALUES.items()
    },
    **{
        f"event-{name}": lambda number, make=make: _events(iter([_message(make(), number)]))
        for name, make in VALUES.items()
    },
}
_BOMB = gzip.compress(b"x" * 200_000_000, 1)


flooded: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
"""By path: whether its flood is over."""


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            given = await reader.readexactly(int(fields.get("content-length", 0)))
            verb, path, _ = lines[0].split()
            where, body, *rest = path.strip("/").split("/")
            if ".well-known" in path:  # these begin with the place where they are looked for
                where, body = path.split("/")[3:5] if path.count("/") > 3 else ("nothing", "-")
            kind, message = _request(verb, "/".join(rest), path, fields, given)
            number = message.get("id")
            if kind == where and body in BODIES:
                _say(where, body)  # so that a test knows that it got so far
                try:
                    for piece in BODIES[body](number):
                        writer.write(piece)
                        await writer.drain()
                finally:
                    flooded[path].set()
                break
            if kind == "call" and where == "stream":
                await flooded[path].wait()
            writer.write(_answer(kind, where, f"http://{fields['host']}", f"/{where}/{body}", message))
            await writer.drain()
            if kind == "call" and where == "resume":
                break
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


def _request(verb: str, rest: str, path: str, fields: dict[str, str], given: bytes) -> tuple[str, dict[str, Any]]:
    documents = {"oauth-protected-resource": "resource", "oauth-authorization-server": "issuer"}
    for name, kind in documents.items():
        if name in path:
            return kind, {}
    if rest in ("register", "token"):
        return ("refresh" if b"refresh_token=" in given else rest), {}
    if verb == "DELETE":
        return "end", {}
    if verb == "GET":
        return ("resume" if "last-event-id" in fields else "stream"), {}
    message = json.loads(given) if given.startswith(b"{") else {}  # a redirect may lead a form here
    needs_token = "authorization" not in fields and fields.get("user-agent") and SIGN_IN & {path.split("/")[1]}
    return ("challenge" if needs_token else kind_of(message)), message


SIGN_IN = frozenset({"challenge", "resource", "issuer", "register", "token", "refresh"})


def _answer(kind: str, where: str, origin: str, base: str, message: dict[str, Any]) -> bytes:
    issuer = origin + base
    documents: dict[str, dict[str, Any]] = {
        "resource": {"resource": f"{issuer}/mcp", "authorization_servers": [issuer]},
        "issuer": {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer}/agree",
            "token_endpoint": f"{issuer}/token",
            "registration_endpoint": f"{issuer}/register",
            "response_types_supported": ["code"],
        },
        "register": {
            "client_id": "me",
            "redirect_uris": ["http://127.0.0.1:1/callback"],
            "token_endpoint_auth_method": "none",
        },
        "token": {"access_token": "t", "token_type": "Bearer", "refresh_token": "r", "expires_in": 3_600},
    }
    if where == "refresh":
        documents["token"]["expires_in"] = -1
    if kind in documents:
        return _plain("200 OK", json.dumps(documents[kind]).encode())
    if kind == "challenge":
        return _plain("401 Unauthorized", b"{}")
    if kind in ("stream", "resume", "end"):
        return _plain("405 Not Allowed", b"")
    if kind == "call" and where in ("resume", "answer"):
        # A stream that breaks off, or a question in it.
        first = (
            b""
            if where == "resume"
            else json.dumps({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": _FORM}).encode()
        )
        last = b"" if where == "resume" else json.dumps(harmless(message)).encode()
        events = b"".join(b"id: 1\ndata: " + each + b"\n\n" for each in (first, last) if each or where == "resume")
        return _plain("200 OK", events, _EVENTS)
    if "id" not in message or "method" not in message:
        return _plain("202 Accepted", b"")
    return _plain("200 OK", json.dumps(harmless(message)).encode(), _JSON, "mcp-session-id: s")


def _plain(status: str, body: bytes, kind: str = _JSON, *lines: str) -> bytes:
    fields = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", *lines, "", ""]
    return "\r\n".join(fields).encode() + body


def _say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


async def _http() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    _say(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


# --- over pipes -------------------------------------------------------------------------------------------------------

LINES: dict[str, Callable[[object], Iterator[bytes]]] = {
    "endless-line": lambda _: _repeated(_X),
    "endless-lines": lambda _: _repeated(b"{}\n" * 8_192),
    "endless-notes": lambda _: _repeated(_note("notifications/message") + b"\n"),
    "endless-pings": lambda _: (each + b"\n" for each in _pings()),
    "long-names": lambda _: (_named(f"{number}" + "i" * 900_000) for number in range(64)),
    "two-messages": lambda number: _repeated(_message(VALUES["wide"](), number) + b"\n"),
    **{
        f"json-{name}": lambda number, make=make: iter([_message(make(), number) + b"\n"])
        for name, make in VALUES.items()
    },
}


def _stdio(where: str, body: str) -> None:
    out = sys.stdout.buffer

    def flood(number: object) -> None:
        for piece in LINES[body](number):
            out.write(piece)
            out.flush()

    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        if kind_of(message) == where:
            flood(message["id"])
            break  # so that no client waits for more
        out.write(json.dumps(harmless(message)).encode() + b"\n")
        out.flush()
        if where == "idle" and kind_of(message) == "list":
            flood(0)


if __name__ == "__main__":
    if sys.argv[1] == "http":
        asyncio.run(_http())
    else:
        _stdio(sys.argv[2], sys.argv[3])
