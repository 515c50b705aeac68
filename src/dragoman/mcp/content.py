"""Converts results of tools to MCP content and back. Nothing is fetched: a link stays a link."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias, cast
from urllib.parse import quote

import mcp_types as types
import msgspec
from msgspec import Raw

from dragoman._files import read_media
from dragoman.conversation import Json, Media, ResultPart, Text, ToolResult

_MIME = re.compile(r"[A-Za-z0-9.+*-]{1,100}/[A-Za-z0-9.+*-]{1,100}").fullmatch
_TEXTUAL = re.compile(r"text/|application/(?:json|xml|javascript|yaml|[\w.-]+\+(?:json|xml))$").match
_MAX_PARTS = 1_000

_Block: TypeAlias = types.ContentBlock


# --- ours to theirs --------------------------------------------------------------------------------------------------


def to_content(parts: Iterable[ResultPart]) -> list[_Block]:
    """Convert parts to content blocks. Reads the files of media; raises ConfigurationError."""
    return [_to_block(part) for part in parts]


def to_structured(result: ToolResult) -> object | None:
    """The structured value of a result: its own, or its content if that is one JSON object; else None."""
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
    data = read_media(part).data or b""
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
            pass  # not text, whatever its type says
    return types.BlobResourceContents(uri=uri, mime_type=part.mime_type, blob=_base64(data))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


# --- theirs to ours --------------------------------------------------------------------------------------------------


def result_from_mcp(result: types.CallToolResult, max_bytes: int) -> ToolResult:
    """Convert the result of a call. The executor adds name and id."""
    reader = _Reader(max_bytes)
    structured = None
    dropped: tuple[ResultPart, ...] = ()
    if "structured_content" in result.model_fields_set and result.structured_content is not None:
        raw = msgspec.json.encode(result.structured_content)
        if len(raw) <= reader.left:
            reader.left -= len(raw)
            structured = Json(Raw(raw))
        else:
            dropped = (Text(f"[left out: a structured value of {len(raw)} bytes]"),)
    content = reader.parts(result.content) + dropped
    if not content and structured is not None:
        content = (structured,)
    error_type = "execution" if result.is_error else None
    return ToolResult("", "", content, is_error=result.is_error, error_type=error_type, structured=structured)


class _Reader:
    """Converts blocks to parts, up to the byte limit of a result."""

    def __init__(self, limit: int) -> None:
        self._limit: int = limit
        self.left: int = limit

    def parts(self, blocks: Sequence[_Block]) -> tuple[ResultPart, ...]:
        parts: list[ResultPart] = []
        for block in blocks:
            if self.left <= 0 or len(parts) >= _MAX_PARTS:
                parts.append(Text(f"[left out: {len(blocks) - len(parts)} further parts of the result]"))
                break
            parts.append(self._part(block))
        return tuple(parts)

    def _part(self, block: _Block) -> ResultPart:
        if isinstance(block, types.TextContent):
            return self._text(block.text)
        if isinstance(block, types.ImageContent):
            return self._media(block.data, block.mime_type, kind="image")
        if isinstance(block, types.AudioContent):
            return self._media(block.data, block.mime_type, kind="audio")
        if isinstance(block, types.ResourceLink):
            # Not as media by URL: the provider would fetch any URL that a server chooses.
            kind = f" ({block.mime_type})" if block.mime_type else ""
            about = f": {block.description}" if block.description else ""
            return self._text(f"[resource {block.name} at {block.uri}{kind}{about}]")
        resource = block.resource
        if isinstance(resource, types.TextResourceContents):
            return self._text(resource.text)
        return self._media(resource.blob, resource.mime_type, kind="resource", name=resource.uri)

    def _text(self, text: str) -> Text:
        """The text as valid UTF-8, cut to what still fits, with a mark."""
        raw = text.encode("utf-8", "backslashreplace")
        kept = raw[: self.left]
        self.left -= len(kept)
        if len(kept) == len(raw):
            return Text(text if text.isascii() else raw.decode())
        mark = f"[cut here: a result may hold {self._limit} bytes, and {len(raw) - len(kept)} more came]"
        return Text(f"{kept.decode('utf-8', 'ignore')}\n{mark}")

    def _media(self, data: str, mime_type: str | None, *, kind: str, name: str | None = None) -> ResultPart:
        bare = (mime_type or "").partition(";")[0].strip()
        mime = bare if _MIME(bare) else "application/octet-stream"
        if len(data) * 3 // 4 > self.left:
            return Text(f"[left out: {kind} of type {mime}, about {len(data) * 3 // 4} bytes]")
        try:
            decoded = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return Text(f"[left out: {kind} of type {mime} that is not valid base64]")
        self.left -= len(decoded)
        usable = name if name is not None and len(name) <= 2_048 and name.isprintable() else None
        return Media.from_bytes(decoded, mime, name=usable)
