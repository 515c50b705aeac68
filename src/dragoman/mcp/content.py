"""Results of tools, from our blocks to MCP's content and back.

Nothing is fetched: a link stays a link.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias, cast
from urllib.parse import quote

import mcp_types as types
import msgspec
from msgspec import Raw

from dragoman.conversation import Json, Media, ResultPart, Text, ToolResult

MAX_FILE_BYTES = 20 * 1024 * 1024
"""How large a file may be that a tool's result refers to."""

_MIME = re.compile(r"[A-Za-z0-9.+*-]{1,100}/[A-Za-z0-9.+*-]{1,100}").match
_BINARY = "application/octet-stream"
_TEXTUAL = re.compile(r"text/|application/(?:json|xml|javascript|yaml|[\w.-]+\+(?:json|xml))$").match

_MAX_PARTS = 1_000

_Block: TypeAlias = types.ContentBlock


# --- ours to theirs --------------------------------------------------------------------------------------------------


def to_content(parts: Iterable[ResultPart]) -> list[_Block]:
    """The parts as content blocks. Files are read here, so not on an event loop; raises OSError, ValueError."""
    return [_to_block(part) for part in parts]


def to_structured(result: ToolResult) -> object | None:
    """The structured value of a result: its own, or its content where that is one JSON object; else None."""
    if result.structured is not None:
        return result.structured.value
    if len(result.content) == 1 and isinstance(result.content[0], Json):
        value = result.content[0].value
        return cast("dict[str, object]", value) if isinstance(value, dict) else None
    return None


def _to_block(part: ResultPart) -> _Block:
    if isinstance(part, Text | Json):
        return types.TextContent(text=part.text)
    if part.url is not None:
        return types.ResourceLink(name=part.name or part.url, uri=part.url, mime_type=part.mime_type)
    data = part.data if part.data is not None else _read(Path(part.path or ""))
    if part.kind == "image":
        return types.ImageContent(data=_base64(data), mime_type=part.mime_type)
    if part.kind == "audio":
        return types.AudioContent(data=_base64(data), mime_type=part.mime_type)
    return types.EmbeddedResource(resource=_resource(part, data))


def _resource(part: Media, data: bytes) -> types.TextResourceContents | types.BlobResourceContents:
    uri = part.name if part.name and "://" in part.name else f"resource://result/{quote(part.name or part.kind)}"
    if _TEXTUAL(part.mime_type):
        try:
            return types.TextResourceContents(uri=uri, mime_type=part.mime_type, text=data.decode())
        except UnicodeDecodeError:
            pass  # it says that it is text, and is not
    return types.BlobResourceContents(uri=uri, mime_type=part.mime_type, blob=_base64(data))


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        message = f"{path.name} is larger than {MAX_FILE_BYTES} bytes"
        raise ValueError(message)
    return data


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


# --- theirs to ours --------------------------------------------------------------------------------------------------


class _Allowance:
    """How many bytes a result may still hold."""

    def __init__(self, limit: int) -> None:
        self.limit: int = limit
        self.left: int = limit

    def take(self, size: int) -> bool:
        if size > self.left:
            return False
        self.left -= size
        return True

    def text(self, text: str) -> str:
        """The text, or as much of it as still fits, with a mark."""
        # A character takes up to four bytes; where even that fits nothing has to be counted.
        if len(text) * 4 <= self.left:
            self.left -= len(text)
            return text
        kept = text.encode("utf-8", "backslashreplace")[: self.left].decode("utf-8", "ignore")
        self.left -= len(kept.encode())
        if len(kept) >= len(text):
            return kept
        rest = len(text) - len(kept)
        return f"{kept}\n[cut here: a result may hold {self.limit} bytes, and {rest} characters more came]"


def result_from_mcp(result: types.CallToolResult, max_bytes: int) -> ToolResult:
    """The result of a call. The executor puts its name and id on it."""
    allowance = _Allowance(max_bytes)
    structured = None
    dropped: tuple[ResultPart, ...] = ()
    if "structured_content" in result.model_fields_set and result.structured_content is not None:
        raw = msgspec.json.encode(result.structured_content)
        if allowance.take(len(raw)):
            structured = Json(Raw(raw))
        else:
            dropped = (Text(f"[left out: a structured value of {len(raw)} bytes]"),)
    content = _parts(result.content, allowance) + dropped
    if not content and structured is not None:
        content = (structured,)
    error_type = "execution" if result.is_error else None
    return ToolResult("", "", content, is_error=result.is_error, error_type=error_type, structured=structured)


def _parts(blocks: Iterable[_Block], allowance: _Allowance) -> tuple[ResultPart, ...]:
    parts: list[ResultPart] = []
    left_out = 0
    for block in blocks:
        if allowance.left <= 0 or len(parts) >= _MAX_PARTS:
            left_out += 1
        else:
            parts.append(_from_block(block, allowance))
    if left_out:
        parts.append(Text(f"[left out: {left_out} further parts of the result]"))
    return tuple(parts)


def _from_block(block: _Block, allowance: _Allowance) -> ResultPart:
    if isinstance(block, types.TextContent):
        return Text(allowance.text(_readable(block.text)))
    if isinstance(block, types.ImageContent):
        return _media(block.data, block.mime_type, allowance, kind="image")
    if isinstance(block, types.AudioContent):
        return _media(block.data, block.mime_type, allowance, kind="audio")
    if isinstance(block, types.ResourceLink):
        # Not as media by URL: that would have the provider fetch what a stranger names.
        kind = f" ({block.mime_type})" if block.mime_type else ""
        about = f": {block.description}" if block.description else ""
        return Text(allowance.text(_readable(f"[resource {block.name} at {block.uri}{kind}{about}]")))
    resource = block.resource
    if isinstance(resource, types.TextResourceContents):
        return Text(allowance.text(_readable(resource.text)))
    return _media(resource.blob, resource.mime_type, allowance, kind="resource", name=resource.uri)


def _media(
    data: str, mime_type: str | None, allowance: _Allowance, *, kind: str, name: str | None = None
) -> ResultPart:
    bare = (mime_type or "").partition(";")[0].strip()
    mime = bare if _is_mime(bare) else _BINARY
    if len(data) * 3 // 4 > allowance.left:
        return Text(f"[left out: {kind} of type {mime}, about {len(data) * 3 // 4} bytes]")
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return Text(f"[left out: {kind} of type {mime} that is not valid base64]")
    allowance.take(len(decoded))
    usable = name if name is not None and len(name) <= 2_048 and name.isprintable() else None
    return Media.from_bytes(decoded, mime, name=usable)


def _is_mime(text: str) -> bool:
    found = _MIME(text)
    return found is not None and found.end() == len(text)


def _readable(text: str) -> str:
    """The text as UTF-8 can carry it."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
