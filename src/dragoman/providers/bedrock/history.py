"""The messages of a conversation as content blocks, and what a model on Bedrock does not get.

A message is encoded as the inside of its content array, so that consecutive messages of one role are joined to one.
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import blake2s
from typing import Final

import msgspec
from msgspec import Raw, field

from dragoman.conversation import Json, Media, MediaKind, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from dragoman.providers.history import NOT_REPLAYED, Turn, TurnsWriter, content_of, legal_id, why_not_media
from dragoman.providers.profile import Profile
from dragoman.providers.wire import decode_base64, read_members

from .profiles import CLAUDE

READER: Final = "bedrock"
"""The provider name of this dialect's opaque blocks and native fields."""
CACHE_POINT: Final = b'{"cachePoint":{"type":"default"}}'
CALLS: Final = "calls"
"""Marks messages with calls or results: the API then requires tools in the request."""

_LEGAL_ID: Final = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")

_encode = msgspec.json.encode


def thinker_of(profile: Profile) -> str:
    """The provider name of thinking: Claude's has the same signatures on all platforms."""
    return "anthropic" if CLAUDE in profile.quirks else READER


class BedrockHistory(TurnsWriter["_Turn"]):
    def write_message(self, message: Message) -> _Turn:
        turn = _Turn(self.profile, self.names, READER, message.role, thinker=thinker_of(self.profile))
        turn.finish(message)
        return turn

    def mark_turn(self, content: bytes, mark: bytes) -> bytes:
        return content + b"," + mark


class _Turn(Turn):
    documents: list[str] = field(default_factory=list)
    """Names of documents: the API requires a text beside them."""
    has_text: bool = False

    def finish(self, message: Message) -> None:
        super().finish(message)
        if self.documents and not self.has_text:
            self.add("text", ", ".join(self.documents))
            self.content = b",".join(self.blocks)

    def add(self, kind: str, value: object) -> None:
        self.blocks.append(_encode({kind: value}))

    def write_text(self, block: Text) -> None:
        if not block.text or block.text.isspace():  # which the API refuses
            return
        self.has_text = True
        cited = self.native(block.native).get("citations")
        if cited is None:
            self.add("text", block.text)
        else:
            self.add("citationsContent", {"content": [{"text": block.text}], "citations": cited})

    def write_thinking(self, block: Thinking) -> None:
        if not self.profile.reasoning_replayed:
            self.lose("thinking", NOT_REPLAYED)
        elif block.encrypted is not None:
            self.add("reasoningContent", {"redactedContent": b64encode(block.encrypted.encode()).decode()})
        elif block.signature:
            self.add("reasoningContent", {"reasoningText": {"text": block.text, "signature": block.signature}})
        elif CLAUDE in self.profile.quirks:
            self.lose("thinking", "its signature never arrived, and the provider takes none without")
        elif block.text:
            self.add("reasoningContent", {"reasoningText": {"text": block.text}})

    def write_call(self, block: ToolCall) -> None:
        arguments = Raw(self.arguments(block))
        called = {"toolUseId": legal_id(block.id, _LEGAL_ID), "name": self.names.wire(block.name), "input": arguments}
        self.add("toolUse", called)
        self.marks.add(CALLS)

    def write_result(self, block: ToolResult) -> None:
        parts: list[dict[str, object]] = []
        for part in content_of(block):
            if isinstance(part, Media):
                found, why = self._media(part, self.profile.tool_result_media)
                if found is None:
                    self.lose("tool_result", f"{part.kind} left out: {why}")
                else:
                    parts.append(found)
            elif isinstance(part, Json) and bytes(part.raw).lstrip()[:1] == b"{":
                parts.append({"json": part.raw})
            elif part.text and not part.text.isspace():
                parts.append({"text": part.text})
        self.marks.add(CALLS)
        status = "error" if block.is_error else "success"
        self.add("toolResult", {"toolUseId": legal_id(block.call_id, _LEGAL_ID), "content": parts, "status": status})

    def write_media(self, block: Media) -> None:
        if self.role == "assistant":
            self.lose("media", f"the provider takes no {block.kind} in messages of the model")
            return
        found, why = self._media(block, self.profile.media)
        if found is None:
            self.lose("media", why)
        else:
            self.blocks.append(_encode(found))
            if block.kind == "document":
                self.documents.append(_document_name(block))

    def write_opaque(self, block: Opaque) -> None:
        self.blocks.append(bytes(block.raw))

    def _media(self, media: Media, kinds: frozenset[MediaKind]) -> tuple[dict[str, object] | None, str]:
        """The block for media, or None and why there is none."""
        stored = media.url is not None and media.url.startswith("s3://") and media.kind in kinds
        if not stored and (why := why_not_media(media, kinds, frozenset())) is not None:
            return None, why
        form = _FORMATS[media.kind].get(media.mime_type.partition(";")[0])
        if form is None:
            return None, f"{media.mime_type} is not among the types of {media.kind} that Bedrock takes"
        content = None if stored else _bytes_of(media)
        if not stored and content is None:
            return None, "its data: URL is not valid base64"
        source: dict[str, object] = {"s3Location": {"uri": media.url}} if stored else {"bytes": content}
        named = {"name": _document_name(media)} if media.kind == "document" else {}
        own = read_members(found) if (found := self.native(media.native).get(media.kind)) is not None else {}
        return {media.kind: {**own, "format": form, **named, "source": source}}, ""


# --- images, documents and the like -----------------------------------------------------------------------------------

_OFFICE: Final = "application/vnd.openxmlformats-officedocument"
_FORMATS: Final[dict[MediaKind, dict[str, str]]] = {
    "image": {f"image/{name}": name for name in ("png", "jpeg", "gif", "webp")},
    "document": {
        "application/pdf": "pdf",
        "text/csv": "csv",
        "text/html": "html",
        "text/plain": "txt",
        "text/markdown": "md",
        "application/msword": "doc",
        "application/vnd.ms-excel": "xls",
        f"{_OFFICE}.wordprocessingml.document": "docx",
        f"{_OFFICE}.spreadsheetml.sheet": "xlsx",
        # Other kinds of text.
        **dict.fromkeys(["application/json", "application/xml", "text/xml", "application/yaml", "text/yaml"], "txt"),
    },
    "video": {
        "video/mp4": "mp4",
        "video/quicktime": "mov",
        "video/x-matroska": "mkv",
        "video/webm": "webm",
        "video/x-flv": "flv",
        "video/mpeg": "mpeg",
        "video/x-ms-wmv": "wmv",
        "video/3gpp": "three_gp",
    },
    "audio": {
        "audio/mpeg": "mp3",
        "audio/mp4": "m4a",
        **{f"audio/{name}": name for name in ("wav", "flac", "ogg", "opus", "aac", "webm")},
    },
}
MIME_TYPES: Final = {form: mime_type for forms in reversed(_FORMATS.values()) for mime_type, form in forms.items()}
"""The type that a format stands for."""
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9()\[\]-]+")


def _document_name(media: Media) -> str:
    """A name that the API takes; without one, a digest of the content, since names must be unique."""
    name = _NOT_IN_NAMES.sub(" ", media.name or "").strip()[:180]
    return name or f"document-{blake2s(media.data or (media.url or '').encode()).hexdigest()[:8]}"


def _bytes_of(media: Media) -> str | None:
    """The bytes in base64, also those of a `data:` URL; None if they cannot be read."""
    if media.url is None:
        return b64encode(media.data or b"").decode()
    head, _, text = media.url.partition(",")
    data = decode_base64([text]) if head.endswith(";base64") else text.encode()
    return None if data is None else b64encode(data).decode()
