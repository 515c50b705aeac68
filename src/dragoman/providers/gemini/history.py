"""Messages of a conversation as contents, and what of them a model does not get.

A message's contents are written once and kept beside it; those of the messages so far are kept beside the conversation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import (
    Block,
    Conversation,
    Json,
    Media,
    Message,
    Native,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from dragoman.errors import ConfigurationError, ToolValidationError
from dragoman.providers.codec import Loss, Written, remembered, written_up_to
from dragoman.providers.profile import Profile
from dragoman.providers.requests import ToolNames, form_key
from dragoman.providers.wire import read_members

READER: Final = "gemini"
"""The name under which thinking, opaque blocks and native fields of this dialect are kept."""
SIGNATURE: Final = "thoughtSignature"
# Older models give their calls no ids. The ids that we make up for them must not go back: the model would meet names
# that it never used. The mark is in the id itself, because a tool's result knows of its call only the id.
MADE_UP_ID: Final = "call_gem_"

# Google's own word for calls that it did not sign, e.g. another model's: "skip the check of this step".
_UNSIGNED: Final = "skip_thought_signature_validator"
_RESULT_TYPES: Final = frozenset(["image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"])
"""Media types that a function's response may hold."""
_INVOCATIONS: Final = frozenset(["toolCall", "toolResponse"])

_encode = msgspec.json.encode


class Rules(NamedTuple):
    """What a message's contents depend on besides the message."""

    profile: Profile
    names: ToolNames
    signed: bool
    """Whether the first call of a message must have a signature (Gemini 3)."""
    invocations: bool
    """Whether the provider takes back the account of its own tools' work (Gemini 3, not on Vertex AI)."""
    thinks: bool
    key: str
    """Names all of it that matters; see `remembered`."""

    @classmethod
    def of(cls, profile: Profile, names: ToolNames, *, vertex: bool) -> Rules:
        """The rules of a request to such a model with these tools."""
        signed = "thought_signatures" in profile.quirks
        invocations = "tool_invocations" in profile.quirks and not vertex
        thinks = profile.reasoning != "none" and profile.reasoning_replayed
        return cls(profile, names, signed, invocations, thinks, f"{form_key(profile, names)} {vertex}")


def write_history(conversation: Conversation, count: int, rules: Rules) -> Written:
    """The contents of the first so many messages."""

    def append(before: Written, new: tuple[Message, ...]) -> Written:
        written = [remembered(message, rules.key, lambda message=message: _write(message, rules)) for message in new]
        losses = [Loss(at, *loss) for at, one in enumerate(written, before.count) for loss in one.losses]
        return Written(
            count=before.count + len(new),
            pieces=(*before.pieces, *[one.data for one in written if one.data]),
            losses=(*before.losses, *losses),
        )

    return written_up_to(conversation, count, rules.key, append, Written())


# --- one message ------------------------------------------------------------------------------------------------------


class _Contents(Struct, eq=False):
    """A message as the API gets it: filled while its blocks are written, and never changed after that."""

    rules: Rules
    data: bytes = b""
    """One content, or several behind each other with commas; empty if nothing is left of the message."""
    losses: list[tuple[int, str, str]] = []
    """What was left out or changed: index of the block, kind, reason."""
    index: int = 0
    """Of the block that is being written."""
    parts: list[object] = []
    behind: list[object] = []
    """Parts of a second content, behind the results."""
    called: bool = False

    def lose(self, what: str, why: str) -> None:
        self.losses.append((self.index, what, why))


def _write(message: Message, rules: Rules) -> _Contents:
    contents = _Contents(rules)
    for contents.index, block in enumerate(message.blocks):
        _WRITERS[type(block)](contents, block)
    if not contents.parts and message.role == "user":
        contents.parts.append({"text": ""})  # the turn stays a turn, whatever is left of it
    role = "model" if message.role == "assistant" else "user"
    # In one content with results, other parts are taken for the model's own: they get a content to themselves.
    written = [{"role": role, "parts": parts} for parts in (contents.parts, contents.behind) if parts]
    contents.data = b",".join([_encode(content) for content in written])
    return contents


def _write_text(contents: _Contents, block: Text) -> None:
    part = _with_native({"text": block.text}, block.native)
    if block.text or len(part) > 1:  # an empty text says nothing, and Vertex AI refuses it
        contents.parts.append(part)


def _write_thinking(contents: _Contents, block: Thinking) -> None:
    if block.provider != READER:
        contents.lose("thinking", f"only {block.provider} can read it back")
    elif not contents.rules.thinks:
        contents.lose("thinking", "this model does not take thoughts back")
    elif block.text or block.signature:
        signature = {SIGNATURE: block.signature} if block.signature else {}
        part: dict[str, object] = {"text": block.text, "thought": True, **signature}
        contents.parts.append(_with_native(part, block.native))


def _write_call(contents: _Contents, block: ToolCall) -> None:
    call: dict[str, object] = {} if block.id.startswith(MADE_UP_ID) else {"id": block.id}
    call["name"] = contents.rules.names.wire(block.name)
    if block.arguments and not block.arguments.isspace():
        try:
            _ = block.parsed
            call["args"] = Raw(block.arguments.encode())
        except ToolValidationError:
            contents.lose("tool_call", "its arguments are not a JSON object; they are sent as a text in one")
            call["args"] = {"arguments": block.arguments}
    part = _with_native(_with_inner_native("functionCall", call, block.native), block.native)
    if contents.rules.signed and not contents.called:
        part.setdefault(SIGNATURE, _UNSIGNED)
    contents.called = True
    contents.parts.append(part)


def _write_result(contents: _Contents, block: ToolResult) -> None:
    profile = contents.rules.profile
    result: dict[str, object] = {} if block.call_id.startswith(MADE_UP_ID) else {"id": block.call_id}
    result["name"] = contents.rules.names.wire(block.name)
    result["response"] = _response(block)
    inside: list[dict[str, object]] = []
    behind: list[dict[str, object]] = []
    for media in [part for part in block.content if isinstance(part, Media)]:
        if media.kind in profile.tool_result_media and media.mime_type in _RESULT_TYPES:
            inside.append(_encode_media(media))
        elif media.kind in profile.media:
            behind.append(_with_native(_encode_media(media), media.native))
            contents.lose("tool_result", f"{media.mime_type} cannot stand in a result here; it is sent behind it")
        else:
            contents.lose("tool_result", f"this model does not take {media.kind}")
    if inside:
        result["parts"] = inside
    if behind:
        contents.behind += [{"text": f"What the call of {block.name} returned:"}, *behind]
    contents.parts.append({"functionResponse": result})


def _write_media(contents: _Contents, block: Media) -> None:
    if block.kind in contents.rules.profile.media:
        contents.parts.append(_with_native(_encode_media(block), block.native))
    else:
        contents.lose("media", f"this model does not take {block.kind}")


def _write_opaque(contents: _Contents, block: Opaque) -> None:
    if block.provider != READER:
        contents.lose("opaque", f"only {block.provider} can read it back")
    elif not contents.rules.invocations and not _INVOCATIONS.isdisjoint(read_members(block.raw)):
        contents.lose("opaque", "this model does not take back what the provider's own tools did")
    else:
        contents.parts.append(block.raw)


# Each takes its own kind of block, which the key guarantees and a type cannot say.
_WRITERS: Final[dict[type[Block], Callable[[_Contents, Any], None]]] = {
    Text: _write_text,
    Thinking: _write_thinking,
    ToolCall: _write_call,
    ToolResult: _write_result,
    Media: _write_media,
    Opaque: _write_opaque,
}


def _own_fields(native: Native | None) -> dict[str, Raw]:
    return native.fields if native is not None and native.provider == READER else {}


def _with_native(part: dict[str, object], native: Native | None) -> dict[str, object]:
    """The part with the members beside its data that have no place in our blocks."""
    return {**part, **_own_fields(native), **part}


def _with_inner_native(kind: str, data: dict[str, object], native: Native | None) -> dict[str, object]:
    """A part with this data, and with the members inside of it that have no place in our blocks."""
    further = _own_fields(native).get(kind)
    return {kind: data if further is None else {**data, **read_members(further)}}


def _encode_media(media: Media) -> dict[str, object]:
    """The part that holds the media, or says where they are."""
    if media.path is not None:
        message = f"The file {media.name or media.path!r} was not read before the conversation was sent."
        hint = "If it may be read, call dragoman.engines.read_files(conversation) first."
        raise ConfigurationError(message, hint=hint)
    if media.url is not None:
        return _with_inner_native("fileData", {"mimeType": media.mime_type, "fileUri": media.url}, media.native)
    return _with_inner_native("inlineData", {"mimeType": media.mime_type, "data": media.data}, media.native)


def _response(result: ToolResult) -> object:
    """What the model reads of a result, as an object: Google gives the keys `output` and `error` a meaning, and takes
    an object without them for the output itself."""
    readable = [part for part in result.content if not isinstance(part, Media)]
    key = "error" if result.is_error else "output"
    if len(readable) == 1 and isinstance(readable[0], Json):
        raw = readable[0].raw
        plain = bytes(raw).lstrip()[:1] == b"{" and read_members(raw).keys().isdisjoint(("output", "error"))
        return raw if plain and not result.is_error else {key: raw}
    if not readable and result.content and not result.is_error:
        return {}  # all there is are media
    return {key: result.text}
