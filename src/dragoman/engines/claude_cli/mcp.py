"""Our tools as the claude program sees them: an MCP server at the other end of its control channel.

Owns: the answers to its JSON-RPC messages, a tool's description and a result in MCP's form.
Must not know: when a call is answered, and by whom.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw

from dragoman._version import __version__
from dragoman.conversation import Json, Media, ResultPart, Text, ToolResult, ToolSpec
from dragoman.providers.codec import remembered
from dragoman.providers.requests import ToolNames

__all__ = ["PREFIX", "SERVER", "answer_to", "error_of", "result_of", "wire_tools"]

SERVER: Final = "dragoman"
PREFIX: Final = f"mcp__{SERVER}__"
"""What the program puts before the names of our tools."""

MAX_RESULT: Final = 500_000
"""Characters of a result that reach the model; of longer ones the program shows the beginning and keeps a file."""

_METHOD_NOT_FOUND: Final = -32601
_OLDEST: Final = "2025-06-18"


def wire_tools(tools: Sequence[ToolSpec], names: ToolNames) -> list[Raw]:
    """The tools as `tools/list` gives them."""
    return [_wire_tool(spec, names.wire(spec.name)) for spec in tools]


def _wire_tool(spec: ToolSpec, name: str) -> Raw:
    def make() -> Raw:
        tool = {
            "name": name,
            "description": spec.description,
            "inputSchema": spec.schema,
            # Shown to the model from the start, and with all that they say.
            "_meta": {"anthropic/alwaysLoad": True, "anthropic/maxResultSizeChars": MAX_RESULT},
        }
        return Raw(msgspec.json.encode(tool))

    return remembered(spec, f"claude_cli {name}", make)


def answer_to(message: Mapping[str, object], tools: Sequence[Raw]) -> dict[str, object]:
    """The answer to anything but a call: what we are, which tools there are."""
    method, id = message.get("method"), message.get("id")
    if id is None:  # a notification wants no answer, but the request that carried it does
        return {"jsonrpc": "2.0", "result": {}}
    if method == "initialize":
        asked = message.get("params")
        version = asked.get("protocolVersion") if isinstance(asked, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        return _result(
            id,
            {
                "protocolVersion": version if isinstance(version, str) else _OLDEST,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": SERVER, "version": __version__},
            },
        )
    if method == "tools/list":
        return _result(id, {"tools": list(tools)})
    if method == "ping":
        return _result(id, {})
    return error_of(id, f"there is no method {method!r} here")


def _result(id: object, result: dict[str, object]) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def error_of(id: object, what: str) -> dict[str, object]:
    """A refusal in JSON-RPC's form."""
    return {"jsonrpc": "2.0", "id": id, "error": {"code": _METHOD_NOT_FOUND, "message": what}}


def result_of(id: object, result: ToolResult) -> dict[str, object]:
    """What came of a call."""
    content = [_part(part) for part in result.content]
    if not content and result.is_error:
        content = [{"type": "text", "text": "The tool failed and gave no reason."}]
    return _result(id, {"content": content, "isError": result.is_error})


def _part(part: ResultPart) -> dict[str, object]:
    match part:
        case Text() | Json():
            return {"type": "text", "text": part.text}
        case Media(kind="image", data=bytes() as data):
            return {"type": "image", "data": b64encode(data).decode(), "mimeType": part.mime_type}
        case Media():
            where = part.url or part.name or part.mime_type
            return {"type": "text", "text": f"[{part.kind}: {where}]"}
