"""Messages → contents.

Owns: how each block is written as parts, and what a model does not get of it. A message's contents are made once and
kept beside it; those of the messages so far are kept beside the conversation.
Must not know: options, tools' declarations, the rest of the request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import msgspec
from msgspec import Raw

from dragoman.conversation import (
    Block,
    Json,
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
from dragoman.conversation.values import memory_of
from dragoman.errors import ConfigurationError, ToolValidationError
from dragoman.providers.codec import Loss, Written
from dragoman.providers.names import ToolNames
from dragoman.providers.profile import Profile

from .wire import MADE_UP_ID, READER, SIGNATURE, raw_members

__all__ = ["NO_USER", "Content", "Manner", "contents_of"]

_json = msgspec.json.encode

NO_USER = b'{"role":"user","parts":[{"text":""}]}'
"""An empty turn of the user, for conversations that begin with something else: the API wants the user first."""

# Google's own word for calls that it did not sign, e.g. another model's: "skip the check of this step".
_UNSIGNED = b'"skip_thought_signature_validator"'

_RESULT_TYPES = frozenset(["image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"])
"""Media types that a function's response may hold."""

_INVOCATIONS = frozenset(["toolCall", "toolResponse"])


class Manner(NamedTuple):
    """What a message's contents depend on besides the message."""

    key: str
    names: ToolNames
    signed: bool
    """Whether the first call of a message must have a signature (Gemini 3)."""
    invocations: bool
    """Whether the provider takes back the account of its own tools' work (Gemini 3, not on Vertex AI)."""
    thinks: bool
    media: frozenset[MediaKind]
    result_media: frozenset[MediaKind]

    @classmethod
    def of(cls, profile: Profile, names: ToolNames, *, vertex: bool) -> Manner:
        """What the profile says about it, for a request with these tools."""
        signed = "thought_signatures" in profile.quirks
        invocations = "tool_invocations" in profile.quirks and not vertex
        thinks = profile.reasoning != "none" and profile.reasoning_replayed
        limits, changed = profile.tool_limits, sorted(names.to_own.items())
        kinds = [",".join(sorted(kinds)) for kinds in (profile.media, profile.tool_result_media)]
        key = (
            f"gemini {signed:d}{invocations:d}{thinks:d} {' '.join(kinds)} "
            f"{limits.name_pattern} {limits.max_name_length} {changed}"
        )
        return cls(key, names, signed, invocations, thinks, profile.media, profile.tool_result_media)

    def further(self, written: Written, messages: tuple[Message, ...]) -> Written:
        """What was written, and these messages behind it."""
        contents: list[bytes] = []
        losses: list[Loss] = []
        for index, message in enumerate(messages, written.count):
            data, lost = contents_of(message, self)
            if data:
                contents.append(data)
            if lost:
                losses += [Loss(index, block, what, why) for block, what, why in lost]
        return Written(
            count=written.count + len(messages),
            pieces=(*written.pieces, *contents),
            losses=(*written.losses, *losses),
        )


class Content(NamedTuple):
    """A message as the API gets it."""

    data: bytes
    """One content, or several behind each other with commas; empty if nothing is left of the message."""
    losses: tuple[tuple[int, str, str], ...]
    """What was left out or changed: index of the block, kind, reason."""


def contents_of(message: Message, manner: Manner) -> Content:
    """The contents of a message."""
    memory = memory_of(message)  # what `remembered` does, without two calls for each new message
    content = memory.get(manner.key)
    if content is None:
        content = memory[manner.key] = _plain_content(message) or _Writer(message, manner).content()
    return content


def _plain_content(message: Message) -> Content | None:
    """The contents of a message that is one text, as most are; None for any other."""
    if len(message.blocks) != 1:
        return None
    block = message.blocks[0]
    if type(block) is not Text or block.native is not None or not block.text:
        return None
    role = b"model" if message.role == "assistant" else b"user"
    return Content(b'{"role":"%b","parts":[{"text":%b}]}' % (role, _json(block.text)), ())


class _Writer:
    """Writes one message."""

    __slots__ = ("_behind", "_called", "_index", "_losses", "_manner", "_message", "_parts")

    def __init__(self, message: Message, manner: Manner) -> None:
        self._message: Message = message
        self._manner: Manner = manner
        self._parts: list[bytes] = []
        self._behind: list[bytes] = []
        """Parts of a second content, behind the results."""
        self._called: bool = False
        self._index: int = 0
        self._losses: list[tuple[int, str, str]] = []

    def content(self) -> Content:
        message = self._message
        for self._index, block in enumerate(message.blocks):
            self._HANDLERS[type(block)](self, block)
        if not self._parts and message.role == "user":
            self._parts.append(b'{"text":""}')  # the turn stays a turn, whatever is left of it
        role = b"model" if message.role == "assistant" else b"user"
        # In one content with results, other parts are taken for the model's own: they get a content to themselves.
        written = [_content(role, parts) for parts in (self._parts, self._behind) if parts]
        return Content(b",".join(written), tuple(self._losses))

    # --- one handler for each kind of block ---

    def _text(self, block: Text) -> None:
        beside = _beside(block.native, "text")
        if block.text or beside:  # an empty text says nothing, and Vertex AI refuses it
            self._parts.append(b'{"text":%b%b}' % (_json(block.text), beside))

    def _thinking(self, block: Thinking) -> None:
        if block.provider != READER:
            self._lose("thinking", f"only {block.provider} can read it back")
        elif not self._manner.thinks:
            self._lose("thinking", "this model does not take thoughts back")
        elif block.text or block.signature:
            signature = b',"%b":%b' % (SIGNATURE.encode(), _json(block.signature)) if block.signature else b""
            beside = _beside(block.native, "text", "thought", SIGNATURE)
            self._parts.append(b'{"text":%b,"thought":true%b%b}' % (_json(block.text), signature, beside))

    def _tool_call(self, block: ToolCall) -> None:
        members = [b'"name":' + _json(self._manner.names.wire(block.name))]
        if not block.id.startswith(MADE_UP_ID):
            members.insert(0, b'"id":' + _json(block.id))
        arguments = self._arguments(block)
        if arguments:
            members.append(b'"args":' + arguments)
        fields = _fields(block.native)
        further = fields.get("functionCall")
        members += [b"%b:%b" % (_json(name), bytes(raw)) for name, raw in raw_members(further or b"{}").items()]
        beside = _beside(block.native, "functionCall")
        if self._manner.signed and not self._called and SIGNATURE not in fields:
            beside += b',"%b":%b' % (SIGNATURE.encode(), _UNSIGNED)
        self._called = True
        self._parts.append(b'{"functionCall":{%b}%b}' % (b",".join(members), beside))

    def _arguments(self, block: ToolCall) -> bytes:
        if not block.arguments or block.arguments.isspace():
            return b""
        try:
            _ = block.parsed
        except ToolValidationError:
            self._lose("tool_call", "its arguments are not a JSON object; they are sent as a text in one")
            return _json({"arguments": block.arguments})
        return block.arguments.encode()

    def _tool_result(self, block: ToolResult) -> None:
        members = [b'"name":' + _json(self._manner.names.wire(block.name))]
        if not block.call_id.startswith(MADE_UP_ID):
            members.insert(0, b'"id":' + _json(block.call_id))
        media = [part for part in block.content if isinstance(part, Media)]
        members.append(b'"response":' + _response(block))
        inside: list[bytes] = []
        behind: list[bytes] = []
        for part in media:
            if part.kind in self._manner.result_media and part.mime_type in _RESULT_TYPES:
                inside.append(b"{%b}" % _media(part))
            elif part.kind in self._manner.media:
                behind.append(b"{%b%b}" % (_media(part), _beside(part.native, "inlineData", "fileData")))
                self._lose("tool_result", f"{part.mime_type} cannot stand in a result here; it is sent behind it")
            else:
                self._lose("tool_result", f"this model does not take {part.kind}")
        if inside:
            members.append(b'"parts":[%b]' % b",".join(inside))
        if behind:
            self._behind += [b'{"text":%b}' % _json(f"What the call of {block.name} returned:"), *behind]
        self._parts.append(b'{"functionResponse":{%b}}' % b",".join(members))

    def _media_block(self, block: Media) -> None:
        if block.kind in self._manner.media:
            self._parts.append(b"{%b%b}" % (_media(block), _beside(block.native, "inlineData", "fileData")))
        else:
            self._lose("media", f"this model does not take {block.kind}")

    def _opaque(self, block: Opaque) -> None:
        if block.provider != READER:
            self._lose("opaque", f"only {block.provider} can read it back")
        elif not self._manner.invocations and not _INVOCATIONS.isdisjoint(raw_members(block.raw)):
            self._lose("opaque", "this model does not take back what the provider's own tools did")
        else:
            self._parts.append(bytes(block.raw))

    def _lose(self, what: str, why: str) -> None:
        self._losses.append((self._index, what, why))

    # Each handler takes its own kind of block, which the key guarantees and a type cannot say.
    _HANDLERS: ClassVar[dict[type[Block], Callable[..., None]]] = {
        Text: _text,
        Thinking: _thinking,
        ToolCall: _tool_call,
        ToolResult: _tool_result,
        Media: _media_block,
        Opaque: _opaque,
    }


def _content(role: bytes, parts: list[bytes]) -> bytes:
    return b'{"role":"%b","parts":[%b]}' % (role, b",".join(parts))


def _fields(native: Native | None) -> dict[str, Raw]:
    return native.fields if native is not None and native.provider == READER else {}


def _beside(native: Native | None, *own: str) -> bytes:
    """The members of the part that have no place in our blocks, each behind a comma."""
    return b"".join([b",%b:%b" % (_json(k), bytes(raw)) for k, raw in _fields(native).items() if k not in own])


def _media(media: Media) -> bytes:
    """The member of a part that holds the media, or says where they are."""
    if media.path is not None:
        message = f"The file {media.name or media.path!r} was not read before the request was made."
        raise ConfigurationError(message, hint="Send the conversation through an engine, which reads files.")
    mime_type = _json(media.mime_type)
    if media.url is not None:
        kind, members = b"fileData", b'"mimeType":%b,"fileUri":%b' % (mime_type, _json(media.url))
    else:
        kind, members = b"inlineData", b'"mimeType":%b,"data":%b' % (mime_type, _json(media.data))
    further = _fields(media.native).get(kind.decode())
    beside = b"".join([b",%b:%b" % (_json(k), bytes(raw)) for k, raw in raw_members(further or b"{}").items()])
    return b'"%b":{%b%b}' % (kind, members, beside)


def _response(result: ToolResult) -> bytes:
    """What the model reads of a result, as an object: Google gives the keys `output` and `error` a meaning, and takes
    an object without them for the output itself."""
    readable = [part for part in result.content if not isinstance(part, Media)]
    key = b"error" if result.is_error else b"output"
    if len(readable) == 1 and isinstance(readable[0], Json):
        raw = bytes(readable[0].raw)
        if not result.is_error and _is_plain_object(raw):
            return raw
        return b'{"%b":%b}' % (key, raw)
    if not readable and result.content and not result.is_error:
        return b"{}"  # all there is are media
    return b'{"%b":%b}' % (key, _json(result.text))


def _is_plain_object(raw: bytes) -> bool:
    return raw.lstrip()[:1] == b"{" and raw_members(raw).keys().isdisjoint(("output", "error"))
