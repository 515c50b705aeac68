"""The messages of a conversation as contents, and what a model does not get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw, field

from dragoman.conversation import Json, Media, Message, Native, Opaque, Text, Thinking, ToolCall, ToolResult
from dragoman.providers.history import NOT_REPLAYED, HistoryWriter, MessageWriter, PlainForm, Written, why_not_media
from dragoman.providers.profile import Profile
from dragoman.providers.requests import ToolNames
from dragoman.providers.wire import read_members

READER: Final = "gemini"
"""The provider name of this dialect's thinking, opaque blocks and native fields."""
SIGNATURE: Final = "thoughtSignature"
# Older models give their calls no ids. The ids that we generate must not be sent, as the model never used them. They
# are marked by this prefix, because a tool's result has only the id of its call.
MADE_UP_ID: Final = "call_gem_"

# Google's own value for calls that it did not sign, e.g. another model's.
_UNSIGNED: Final = "skip_thought_signature_validator"
_RESULT_TYPES: Final = frozenset(["image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"])
"""Media types that a function's response may hold."""
_INVOCATIONS: Final = frozenset(["toolCall", "toolResponse"])

_encode = msgspec.json.encode
_Part = dict[str, object]


class GeminiHistory(HistoryWriter[Written, PlainForm]):
    nothing = Written()

    def __init__(self, profile: Profile, names: ToolNames, *, vertex: bool) -> None:
        super().__init__(profile, names, vertex)
        self.invocations: bool = "tool_invocations" in profile.quirks and not vertex
        """Whether the calls and results of the provider's own tools are sent back (Gemini 3, not on Vertex AI)."""

    def append(self, before: Written, messages: Sequence[Message]) -> Written:
        forms = self.forms(messages)
        return Written(
            count=before.count + len(forms),
            pieces=(*before.pieces, *[form.content for form in forms if form.content]),
            losses=before.losses_with(forms),
        )

    def write_message(self, message: Message) -> PlainForm:
        """One content, or two with a comma between them."""
        role, blocks = "model" if message.role == "assistant" else "user", message.blocks
        if len(blocks) == 1 and type(block := blocks[0]) is Text and block.native is None and block.text:
            return PlainForm(_encode({"role": role, "parts": [{"text": block.text}]}))  # as most are
        writer = _Contents(self.profile, self.names, READER, message.role, invocations=self.invocations)
        writer.write_blocks(blocks)
        if not writer.parts and message.role == "user":
            writer.parts.append({"text": ""})  # it remains a turn, even if nothing is left of it
        # Beside results, other parts would be taken for the model's own: they get a content of their own.
        contents = [{"role": role, "parts": parts} for parts in (writer.parts, writer.behind) if parts]
        return PlainForm(b",".join([_encode(content) for content in contents]), tuple(writer.losses))


class _Contents(MessageWriter):
    invocations: bool = False
    parts: list[object] = field(default_factory=list)
    behind: list[object] = field(default_factory=list)
    """Parts of a second content, behind the results."""
    called: bool = False

    def write_text(self, block: Text) -> None:
        part = self._with_native({"text": block.text}, block.native)
        if block.text or len(part) > 1:  # Vertex AI refuses an empty text
            self.parts.append(part)

    def write_thinking(self, block: Thinking) -> None:
        if self.profile.reasoning == "none" or not self.profile.reasoning_replayed:
            self.lose("thinking", NOT_REPLAYED)
        elif block.text or block.signature:
            signature = {SIGNATURE: block.signature} if block.signature else {}
            self.parts.append(self._with_native({"text": block.text, "thought": True, **signature}, block.native))

    def write_call(self, block: ToolCall) -> None:
        call: _Part = {} if block.id.startswith(MADE_UP_ID) else {"id": block.id}
        call["name"] = self.names.wire(block.name)
        if block.has_arguments:
            call["args"] = Raw(self.arguments(block))
        part = self._with_native(self._with_inner("functionCall", call, block.native), block.native)
        if "thought_signatures" in self.profile.quirks and not self.called:  # Gemini 3 wants one on the first call
            part.setdefault(SIGNATURE, _UNSIGNED)
        self.called = True
        self.parts.append(part)

    def write_result(self, block: ToolResult) -> None:
        result: _Part = {} if block.call_id.startswith(MADE_UP_ID) else {"id": block.call_id}
        result["name"] = self.names.wire(block.name)
        result["response"] = _response(block)
        inside: list[_Part] = []
        behind: list[_Part] = []
        for media in [part for part in block.content if isinstance(part, Media)]:
            why = self._why_not(media)
            is_readable = media.stored is None or why is None
            if is_readable and media.kind in self.profile.tool_result_media and media.mime_type in _RESULT_TYPES:
                inside.append(self._media(media))
            elif why is None:
                behind.append(self._with_native(self._media(media), media.native))
                self.lose("tool_result", f"a result cannot hold {media.mime_type} here; it is sent after it")
            else:
                self.lose("tool_result", why)
        if inside:
            result["parts"] = inside
        if behind:
            self.behind += [{"text": f"What the call of {block.name} returned:"}, *behind]
        self.parts.append({"functionResponse": result})

    def write_media(self, block: Media) -> None:
        if (why := self._why_not(block)) is None:
            self.parts.append(self._with_native(self._media(block), block.native))
        else:
            self.lose("media", why)

    def write_opaque(self, block: Opaque) -> None:
        if not self.invocations and not _INVOCATIONS.isdisjoint(read_members(block.raw)):
            self.lose("opaque", "this model does not take back what the provider's own tools did")
        else:
            self.parts.append(block.raw)

    def _with_native(self, part: Mapping[str, object], native: Native | None) -> _Part:
        """The part with its native members."""
        return {**part, **self.native(native), **part}

    def _with_inner(self, kind: str, data: _Part, native: Native | None) -> _Part:
        """A part of this kind, with the native members inside its data."""
        further = self.native(native).get(kind)
        return {kind: data if further is None else {**data, **read_members(further)}}

    def _why_not(self, media: Media) -> str | None:
        return why_not_media(media, self.profile.media, self.profile.media_urls, self.profile.provider)

    def _media(self, media: Media) -> _Part:
        if media.url is not None:
            uri = media.url if media.stored is None else media.stored[1]
            return self._with_inner("fileData", {"mimeType": media.mime_type, "fileUri": uri}, media.native)
        return self._with_inner("inlineData", {"mimeType": media.mime_type, "data": media.data}, media.native)


def _response(result: ToolResult) -> object:
    """A result as an object: the keys `output` and `error` have a meaning to Google, and an object without them is the
    output itself."""
    readable = [part for part in result.content if not isinstance(part, Media)]
    key = "error" if result.is_error else "output"
    if len(readable) == 1 and isinstance(readable[0], Json):
        raw = readable[0].raw
        plain = bytes(raw).lstrip()[:1] == b"{" and read_members(raw).keys().isdisjoint(("output", "error"))
        return raw if plain and not result.is_error else {key: raw}
    if not readable and result.content and not result.is_error:
        return {}  # there are only media
    return {key: result.text}
