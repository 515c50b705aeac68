"""The messages of a conversation as content blocks, and what this provider does not get.

A message is encoded as the inside of its content array, so that consecutive messages of one role are joined to one.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw, field

from dragoman.conversation import (
    Conversation,
    Media,
    MediaKind,
    Message,
    Native,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from dragoman.providers.history import NOT_REPLAYED, Turn, Turns, TurnsWriter, content_of, legal_id, why_not_media
from dragoman.providers.requests import ToolNames
from dragoman.providers.wire import elements, read_members, read_text

READER: Final = "anthropic"
"""The provider name of this dialect's thinking, opaque blocks and native fields."""

# Marks of a message that holds thinking, a file stored at the provider, or a call that the provider ran itself.
THINKS: Final = "thinks"
FILES: Final = "files"
_SERVER_CALLS: Final = "server_calls"

_LEGAL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ALL_OF_IT: Final[Mapping[int, str]] = {}
_UNANSWERED: Final = "the provider ran this call itself and its result never arrived"
_OUTDATED: Final = "it found a tool that is no longer offered"
_NO_ERROR_TEXT: Final = "The tool failed and gave no reason."

_encode = msgspec.json.encode


# --- all messages -----------------------------------------------------------------------------------------------------


class ClaudeHistory(TurnsWriter["_Turn"]):
    """Messages as turns: tool results come first in the turn after their calls, as the API requires."""

    def write_message(self, message: Message, left_out: Mapping[int, str] = _ALL_OF_IT) -> _Turn:
        turn = _Turn(self.profile, self.names, READER, message.role, left_out=left_out)
        turn.finish(message)
        return turn

    def write(self, conversation: Conversation, count: int | None = None) -> Turns:
        history = super().write(conversation, count)
        if _SERVER_CALLS not in history.marks:
            return history
        return self.join(self.nothing, self.all_turns(conversation.messages))

    def mark_turn(self, content: bytes, mark: bytes) -> bytes:
        return content[:-1] + b"," + mark + b"}"

    def all_turns(self, messages: Sequence[Message]) -> list[_Turn]:
        """All messages, without calls that the provider ran itself and never answered.

        It refuses such a call unless its result may still come, when nothing but tool results follows.
        """
        turns = self.forms(messages)
        answered = frozenset[str]().union(*[turn.server_results for turn in turns])
        gone = _outdated_searches(turns, self.names) if any(turn.references for turn in turns) else {}
        for at, turn in enumerate(turns):
            lost = {block: _UNANSWERED for block, id in turn.server_calls if id not in answered}
            if lost and not messages[at].interrupted and all(later.role == "tool" for later in messages[at + 1 :]):
                lost = {}
            if lost or at in gone:
                turns[at] = self.write_message(messages[at], {**lost, **gone.get(at, {})})
        return turns


def _outdated_searches(turns: Sequence[_Turn], names: ToolNames) -> dict[int, dict[int, str]]:
    """Searches that found a tool that is no longer declared, which the provider refuses."""
    known = set(names.to_wire.values())  # empty: without any tools nothing is refused
    found = [(at, *reference) for at, turn in enumerate(turns) for reference in turn.references]
    outdated = [(at, block, call) for at, block, call, tools in found if known and not known.issuperset(tools)]
    gone: dict[int, dict[int, str]] = {}
    for at, block, call in outdated:
        gone.setdefault(at, {})[block] = _OUTDATED
        gone[at] |= {made: _OUTDATED for made, id in turns[at].server_calls if id == call}
    return gone


# --- one message ------------------------------------------------------------------------------------------------------


class _Turn(Turn):
    left_out: Mapping[int, str] = _ALL_OF_IT
    """Blocks of the provider's own tools that it would refuse: index and reason."""
    server_calls: list[tuple[int, str]] = field(default_factory=list)
    """Index and id of calls that the provider ran itself."""
    server_results: list[str] = field(default_factory=list)
    """Ids of such calls whose results are here."""
    references: list[tuple[int, str, Collection[str]]] = field(default_factory=list)
    """Of results that refer to tools: index, call id and the tools."""

    def add(self, block: Mapping[str, object], native: Native | None = None, *, cacheable: bool = True) -> None:
        if native is not None:
            block = {**block, **self.native(native), **block}
        self.blocks.append(_encode(block))
        self.cacheable = cacheable and "cache_control" not in block

    def write_text(self, block: Text) -> None:
        # The API refuses blank texts, even those of the model.
        if block.text and not block.text.isspace():
            self.add({"type": "text", "text": block.text}, block.native)

    def write_thinking(self, block: Thinking) -> None:
        if not self.profile.reasoning_replayed:
            self.lose("thinking", NOT_REPLAYED)
        elif not block.signature and block.encrypted is None:
            self.lose("thinking", "its signature never arrived, and the provider takes none without")
        else:
            # Also with an empty text: the signature holds the thought itself.
            shown = {"type": "thinking", "thinking": block.text, "signature": block.signature}
            sealed = {"type": "redacted_thinking", "data": block.encrypted}
            self.add(shown if block.signature else sealed, block.native, cacheable=False)
            self.marks.add(THINKS)

    def write_call(self, block: ToolCall) -> None:
        name, arguments = self.names.wire(block.name), Raw(self.arguments(block))
        member = {"type": "tool_use", "id": legal_id(block.id, _LEGAL_ID), "name": name, "input": arguments}
        self.add(member, block.native)

    def write_result(self, block: ToolResult) -> None:
        parts: list[dict[str, object]] = []
        for part in content_of(block):
            if isinstance(part, Media):
                found, why = self._encode_media(part, self.profile.tool_result_media)
                if found is None:
                    self.lose("tool_result", f"{part.kind} left out: {why}")
                else:
                    parts.append(found)
            elif part.text and not part.text.isspace():
                parts.append({"type": "text", "text": part.text})
        member: dict[str, object] = {"type": "tool_result", "tool_use_id": legal_id(block.call_id, _LEGAL_ID)}
        if len(parts) == 1 and "text" in parts[0]:
            member["content"] = parts[0]["text"]
        elif parts:
            member["content"] = parts
        if block.is_error:
            member.setdefault("content", _NO_ERROR_TEXT)  # the API refuses an error without content
            member["is_error"] = True
        self.add(member)

    def _encode_media(self, media: Media, kinds: frozenset[MediaKind]) -> tuple[dict[str, object] | None, str]:
        found, why = encode_media(media, kinds, self.profile.media_urls, self.profile.provider)
        if found is not None and media.stored is not None:
            self.marks.add(FILES)
        return found, why

    def write_media(self, block: Media) -> None:
        if self.role == "assistant":
            self.lose("media", f"the provider takes no {block.kind} in messages of the model")
            return
        found, why = self._encode_media(block, self.profile.media)
        if found is None:
            self.lose("media", why)
        else:
            self.add(found)

    def write_opaque(self, block: Opaque) -> None:
        if (why := self.left_out.get(self.index)) is not None:
            self.lose("opaque", why)
            return
        self.blocks.append(bytes(block.raw))
        self.cacheable = False
        try:
            fields = read_members(block.raw)
            kind = read_text(fields.get("type")) or ""
            if kind in {"server_tool_use", "mcp_tool_use"}:
                self.server_calls.append((self.index, read_text(fields.get("id")) or ""))
                self.marks.add(_SERVER_CALLS)
            elif kind.endswith("_tool_result"):
                self.server_results.append(read_text(fields.get("tool_use_id")) or "")
            if kind == "tool_search_tool_result":
                found = elements(read_members(fields.get("content", Raw(b"{}"))).get("tool_references"))
                names = [read_text(read_members(each).get("tool_name")) or "" for each in found]
                self.references.append((self.index, self.server_results[-1], names))
        except msgspec.MsgspecError:
            pass  # made by hand; the provider will report what is wrong with it


# --- images and documents ---------------------------------------------------------------------------------------------

_IMAGES: Final = frozenset(["image/jpeg", "image/png", "image/gif", "image/webp"])
_PDF: Final = "application/pdf"
_ALSO_TEXT: Final = frozenset(["application/json", "application/xml", "application/yaml", "application/javascript"])


def encode_media(
    media: Media, kinds: frozenset[MediaKind], url_kinds: frozenset[MediaKind], provider: str = ""
) -> tuple[dict[str, object] | None, str]:
    """The block for an image or a document, or None and why there is none."""
    if (why := why_not_media(media, kinds, url_kinds, provider)) is not None:
        return None, why
    source = _source(media)
    if isinstance(source, str):
        return None, source
    named = {"title": media.name} if media.kind == "document" and media.name else {}
    own = media.native.fields if media.native is not None and media.native.provider == READER else {}
    return {**named, **own, "type": media.kind, "source": source}, ""


def _source(media: Media) -> dict[str, object] | str:
    if media.stored is not None:
        return {"type": "file", "file_id": media.stored[1]}
    kind = media.mime_type
    if media.kind == "document" and kind != _PDF:
        if not (kind.startswith("text/") or kind in _ALSO_TEXT):
            return f"{kind} is not among the document types it takes: PDF and text"
        if media.data is None:
            return "of documents by URL it takes PDF only"
        try:
            # The API names one type for all text, whatever its markup.
            return {"type": "text", "media_type": "text/plain", "data": media.data.decode("utf-8-sig")}
        except UnicodeDecodeError:
            return "the text of the document is not UTF-8"
    if media.url is not None:
        return {"type": "url", "url": media.url}
    if media.kind == "image" and kind not in _IMAGES:
        return f"{kind} is not among the image types it takes: JPEG, PNG, GIF and WebP"
    return {"type": "base64", "media_type": kind, "data": b64encode(media.data or b"").decode()}
