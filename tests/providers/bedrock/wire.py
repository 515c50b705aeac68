"""Replies of Bedrock as bytes, and Amazon's own library as the judge of requests and the reader of replies."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from struct import pack
from typing import Any
from zlib import crc32

from botocore import parsers
from botocore.awsrequest import HeadersDict
from botocore.session import get_session
from botocore.validate import ParamValidator


def frame(name: str, payload: object, *, kind: str = "event", extra: bytes = b"") -> bytes:
    """One frame. `extra` are further headers."""
    headers = b"".join(
        [
            pack(">B", len(key)) + key + pack(">BH", 7, len(value)) + value
            for key, value in (
                (f":{kind}-type".encode(), name.encode()),
                (b":content-type", b"application/json"),
                (b":message-type", kind.encode()),
            )
        ]
    )
    data = payload if isinstance(payload, bytes) else json.dumps(payload, ensure_ascii=False).encode()
    headers += extra
    sizes = pack(">II", len(headers) + len(data) + 16, len(headers))
    whole = sizes + pack(">I", crc32(sizes)) + headers + data
    return whole + pack(">I", crc32(whole))


def delta(index: int, **piece: object) -> bytes:
    return frame("contentBlockDelta", {"contentBlockIndex": index, "delta": piece, "p": "abc"})


def stop(index: int) -> bytes:
    return frame("contentBlockStop", {"contentBlockIndex": index, "p": "a"})


USAGE = {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}
STARTED = frame("messageStart", {"role": "assistant", "p": "abcd"})


def ended(reason: str = "end_turn") -> bytes:
    about = {"usage": USAGE, "metrics": {"latencyMs": 9}, "trace": {"guardrail": {"actionReason": "No action."}}}
    return frame("messageStop", {"stopReason": reason}) + frame("metadata", about)


def call(index: int, *pieces: str, id: str = "t1", name: str = "add") -> bytes:
    start = {"contentBlockIndex": index, "start": {"toolUse": {"toolUseId": id, "name": name}}}
    pushed = [delta(index, toolUse={"input": piece}) for piece in pieces]
    return frame("contentBlockStart", start) + b"".join(pushed) + stop(index)


def whole(*content: object, reason: str = "end_turn", **more: object) -> bytes:
    reply = {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": reason, "usage": USAGE}
    return json.dumps(reply | more).encode()


# --- Amazon's own library ---------------------------------------------------------------------------------------------


@cache
def service() -> Any:
    return get_session().get_service_model("bedrock-runtime")


def problems(body: dict[str, Any]) -> str:
    """What Amazon's library says against a request; empty if it takes it."""
    shape = service().operation_model("Converse").input_shape
    return ParamValidator().validate({"modelId": "m", **_with_bytes(body)}, shape).generate_report()


def _with_bytes(value: Any) -> Any:
    """The library wants bytes where the wire has base64."""
    if isinstance(value, list):
        return [_with_bytes(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: one.encode() if name in ("bytes", "redactedContent") and isinstance(one, str) else _with_bytes(one)
        for name, one in value.items()
    }


class _Body:
    """A body as the library reads one."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def stream(self) -> Iterator[bytes]:
        yield self._data


def read_by_amazon(data: bytes, *, streamed: bool) -> dict[str, Any]:
    """What the library reads from a reply, in the form of a whole one; bytes as base64."""
    name = "ConverseStream" if streamed else "Converse"
    response = {
        "status_code": 200,
        "headers": HeadersDict({"content-type": "application/json"}),
        "body": _Body(data) if streamed else data,
        "context": {"operation_name": name},
    }
    parsed = parsers.create_parser("rest-json").parse(response, service().operation_model(name).output_shape)
    return _with_text(gather(parsed["stream"]) if streamed else parsed)


def gather(events: Any) -> dict[str, Any]:
    """A stream as its user would put it together."""
    blocks: dict[int, dict[str, Any]] = {}
    found: dict[str, Any] = {}
    for event in events:
        [(kind, said)] = event.items()
        if kind == "contentBlockStart":
            blocks[said["contentBlockIndex"]] = said["start"]
        elif kind == "contentBlockDelta":
            _grow(blocks.setdefault(said["contentBlockIndex"], {}), said["delta"])
        elif kind in ("messageStop", "metadata"):
            found |= said
    for block in blocks.values():
        if "toolUse" in block:
            block["toolUse"]["input"] = json.loads(block["toolUse"].get("input") or "{}")
    return {**found, "output": {"message": {"role": "assistant", "content": [blocks[at] for at in sorted(blocks)]}}}


def _grow(block: dict[str, Any], piece: dict[str, Any]) -> None:
    [(kind, said)] = piece.items()
    if kind == "text":
        block["text"] = block.get("text", "") + said
    elif kind == "toolUse":
        block["toolUse"]["input"] = block["toolUse"].get("input", "") + said["input"]
    elif kind == "toolResult":
        block["toolResult"].setdefault("content", []).extend(said)
    elif kind == "reasoningContent" and "redactedContent" in said:
        block["reasoningContent"] = said
    elif kind == "reasoningContent":
        text = block.setdefault("reasoningContent", {"reasoningText": {}})["reasoningText"]
        for name, one in said.items():
            text[name] = text.get(name, "") + one
    else:
        raise AssertionError(kind)


def _with_text(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, list):
        return [_with_text(one) for one in value]
    return {name: _with_text(one) for name, one in value.items()} if isinstance(value, dict) else value
