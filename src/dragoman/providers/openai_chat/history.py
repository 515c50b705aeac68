"""The history of a conversation, as the wire has it, and what of it this server does not get.

Owns: the order of messages on the wire and what must stand between them; the wire form of each kind of message and
block. The form of each message is kept beside it, and that of the messages so far beside the conversation, so that a
turn on a long history costs its new messages and a join.

One of our messages may be several of the wire's: each tool result is one. What a result holds that the wire cannot
take inside of it (an image, for most servers) stands behind all results, in a message of the user.
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import blake2s
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import (
    Block,
    Conversation,
    Media,
    Message,
    Native,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    memory_of,
)
from dragoman.errors import ToolValidationError
from dragoman.providers.codec import Loss, Written, written_up_to
from dragoman.providers.profile import Profile
from dragoman.providers.requests import ToolNames, form_key, why_not_media, with_error_said
from dragoman.providers.wire import join_members, members, string

from .parts import CLOSE, FIELD, OPEN

CACHE_MARK: Final = b'"cache_control":{"type":"ephemeral"}'

_encode: Final = msgspec.json.encode
_BRIDGE: Final = b'{"role":"assistant","content":"OK."}'
"""What stands between results and a message of the user for servers that refuse the latter right behind the former."""

_Found = tuple[int, str, str]
"""A loss within a message: index of the block, its kind, and why it is not there."""


def reader_of(provider: str) -> str:
    """The name under which blocks say that only this server can read them back."""
    return f"openai_chat:{provider}"


class _Wire(NamedTuple):
    """A message on the wire."""

    messages: bytes
    """JSON objects with commas between them; empty if nothing is left of the message."""
    behind: bytes
    """Parts of content for a message of the user behind all results."""
    losses: tuple[_Found, ...]


class _Written(Written, frozen=True, kw_only=True):
    behind: tuple[bytes, ...] = ()
    """What results hold and cannot carry; it follows all of them."""
    after_results: bool = False


_NOTHING: Final = _Written()


class HistoryWriter:
    """Writes histories for one server and one set of tools."""

    def __init__(self, profile: Profile, names: ToolNames, *, mark: bool) -> None:
        self._profile = profile
        self._names = names
        self._mark = mark
        """Whether the system prompt and the end are marked for the provider's cache."""
        self._bridge = "assistant_after_tool" in profile.quirks
        self._key = form_key(profile, names)

    def write(self, conversation: Conversation) -> tuple[bytes, tuple[Loss, ...]]:
        """All messages as JSON with commas between them, and what of them this server does not get."""
        messages = conversation.messages
        # A mark is not there to stay: the message that has it now is written without it in the next turn.
        count = len(messages) - 1 if self._mark and messages else len(messages)
        written = written_up_to(conversation, count, self._key, self._write_further, _NOTHING)
        if self._mark:
            written = self._write_further(written, messages[count:], mark=True)
        out = written.pieces
        if conversation.system:
            text = conversation.system
            content = b"[" + _text_part(text, mark=True) + b"]" if self._mark else _encode(text)
            out = (b'{"role":"%s","content":%s}' % (self._profile.system_role.encode(), content), *out)
        if written.behind:
            out = (*out, *([_BRIDGE] if self._bridge else []), _user_message(written.behind))
        return b",".join(out), written.losses

    def _write_further(self, written: _Written, messages: tuple[Message, ...], *, mark: bool = False) -> _Written:
        """What was written, and these messages behind it."""
        behind, after_results = written.behind, written.after_results
        key = f"{self._key}|marked" if mark else self._key
        out: list[bytes] = []
        losses: list[Loss] = []
        for at, message in enumerate(messages, written.count):
            memory = memory_of(message)
            wire: _Wire | None = memory.get(key)
            if wire is None:
                wire = memory[key] = self._write_message(message, mark=mark)
            if wire.losses:
                losses += [Loss(at, *loss) for loss in wire.losses]
            if after_results and message.role != "tool":
                if self._bridge and (behind or message.role == "user"):
                    out.append(_BRIDGE)
                if behind:  # nothing may come between a call and its results
                    out.append(_user_message(behind))
                    behind = ()
            after_results = message.role == "tool"
            if wire.messages:
                out.append(wire.messages)
            if wire.behind:
                behind = (*behind, wire.behind)
        return _Written(
            count=written.count + len(messages),
            pieces=(*written.pieces, *out),
            losses=(*written.losses, *losses),
            behind=behind,
            after_results=after_results,
        )

    def _write_message(self, message: Message, *, mark: bool) -> _Wire:
        kept = message.native is not None and "message" in message.native.fields
        if len(message.blocks) == 1 and not kept and not mark:
            block = message.blocks[0]
            if type(block) is Text and block.native is None and message.role != "tool":  # as nearly all are
                return _Wire(b'{"role":"%s","content":%s}' % (message.role.encode(), _encode(block.text)), b"", ())
        writer = _MessageWriter(self._profile, self._names, reader_of(self._profile.provider))
        if message.role == "assistant":
            written = writer.write_assistant(message)
        elif message.role == "tool":
            written = writer.write_results(message, mark=mark)
        else:
            written = writer.write_user(message, mark=mark)
        return _Wire(written, b",".join(writer.behind), tuple(writer.losses))


# --- one message ------------------------------------------------------------------------------------------------------


class _MessageWriter(Struct, eq=False):
    """Writes one message for one server."""

    profile: Profile
    names: ToolNames
    reader: str
    losses: list[_Found] = []
    behind: list[bytes] = []

    def write_user(self, message: Message, *, mark: bool) -> bytes:
        parts: list[bytes] = []
        texts: list[str] = []
        plain = not mark
        for at, block in enumerate(message.blocks):
            if isinstance(block, Text):
                fields = self._native(block.native)
                plain = plain and not fields
                texts.append(block.text)
                parts.append(_text_part(block.text, fields))
            elif isinstance(block, Media):
                if (part := self._media_part(at, block)) is not None:
                    parts.append(part)
            elif isinstance(block, Opaque) and block.provider == self.reader:
                parts.append(bytes(block.raw))
            else:
                self._lose(at, block)
        if not parts:
            return b""
        if plain and len(texts) == len(parts):  # a string is what every server takes
            return b'{"role":"user","content":%s}' % _encode("\n\n".join(texts))
        return _user_message(_with_mark(parts) if mark else parts)

    def write_results(self, message: Message, *, mark: bool) -> bytes:
        written: list[bytes] = []
        for at, block in enumerate(message.blocks):
            if isinstance(block, ToolResult):
                written.append(self._result(at, block, mark=mark and at == len(message.blocks) - 1))
            else:
                self._lose(at, block)
        return b",".join(written)

    def _result(self, at: int, result: ToolResult, *, mark: bool) -> bytes:
        texts: list[str] = []
        parts: list[bytes] = []
        media_inside = False
        content = (*result.content, *([result.structured] if not result.content and result.structured else []))
        for piece in with_error_said(content) if result.is_error else content:
            if not isinstance(piece, Media):
                texts.append(piece.text)
                parts.append(_text_part(piece.text))
                continue
            part = self._media_part(at, piece)
            if part is None:
                continue
            if piece.kind in self.profile.tool_result_media:
                parts.append(part)
                media_inside = True
            else:
                note = f"[{piece.kind} of the result of {result.name}, call {result.call_id}]"
                texts.append(f"{note} follows in the next message of the user.")
                parts.append(_text_part(texts[-1]))
                self.behind += [_text_part(f"{note}:"), part]
        written = _encode("\n".join(texts))
        if media_inside or mark:
            parts = parts or [_text_part("")]
            written = b"[" + b",".join(_with_mark(parts) if mark else parts) + b"]"
        return b'{"role":"tool","tool_call_id":%s,"content":%s}' % (self._call_id(result.call_id), written)

    def write_assistant(self, message: Message) -> bytes:
        out = _Assistant()
        for at, block in enumerate(message.blocks):
            fields = self._native(block.native) if isinstance(block, Text | Media) else {}
            if isinstance(block, Text):
                out.add_text(block, fields)
            elif isinstance(block, ToolCall):
                out.calls.append(self._call(at, block))
            elif isinstance(block, Thinking) and block.provider == self.reader:
                if self.profile.reasoning_replayed:
                    out.add_thought(block)
            elif isinstance(block, Opaque) and block.provider == self.reader:
                out.plain = False
                out.parts.append(bytes(block.raw))
            elif isinstance(block, Media) and "id" in fields:  # sound goes back by its id
                out.audio = join_members({"id": fields["id"]})
            elif isinstance(block, Media) and fields:
                out.images.append(_by_url(b"image_url", block, {}))
            else:
                self._lose(at, block)
        if out.is_empty():
            return b""
        quirks = self.profile.quirks
        own = message.provider == self.profile.provider
        written = out.members("" if own else "\n\n", content_always="content_always" in quirks)
        if out.calls and "reasoning_with_calls" in quirks:
            # DeepSeek refuses a turn that called tools and does not show its reasoning, even one of another model.
            written.setdefault("reasoning_content", b'""')
        kept = self._native(message.native).get("message")
        if kept is not None and "plain_history" not in quirks:
            written = {**members(kept), **written}
        return b'{"role":"assistant",' + join_members(written)[1:]

    def _call(self, at: int, call: ToolCall) -> bytes:
        name, call_id = _encode(self.names.wire(call.name)), self._call_id(call.id)
        native = dict(self._native(call.native))
        if string(native.pop("type", None)) == "custom":
            written = b'{"id":%s,"type":"custom","custom":{"name":%s,"input":%s}}'
            written %= (call_id, name, _encode(call.arguments))
        else:
            written = b'{"id":%s,"type":"function","function":{"name":%s,"arguments":%s}}'
            written %= (call_id, name, _encode(self._arguments(at, call)))
        return b"%s,%s" % (written[:-1], join_members(native)[1:]) if native else written

    def _arguments(self, at: int, call: ToolCall) -> str:
        """The arguments as text of a JSON object: many servers parse it and fail on anything else, OpenAI does not."""
        if not call.arguments or call.arguments.isspace():
            return "{}"
        if "any_arguments" in self.profile.quirks:
            return call.arguments
        try:
            call.parsed  # noqa: B018 -- raises if it cannot be parsed
        except ToolValidationError:
            why = "its arguments are not a JSON object; they are sent as the text inside one"
            self.losses.append((at, "tool_call", why))
            return _encode({"malformed_arguments": call.arguments}).decode()
        return call.arguments

    def _call_id(self, call_id: str) -> bytes:
        """The id as this server takes it: always changed in the same way, so that a call and its result still agree."""
        for quirk, (legal, length) in _CALL_IDS.items():
            if quirk in self.profile.quirks and legal.fullmatch(call_id) is None:
                return _encode(blake2s(call_id.encode()).hexdigest()[:length])
        return _encode(call_id)

    def _native(self, native: Native | None) -> dict[str, Raw]:
        """The fields of a block that are this server's own."""
        return native.fields if native is not None and native.provider == self.reader else {}

    def _lose(self, at: int, block: Block) -> None:
        if isinstance(block, Thinking):
            self.losses.append((at, "thinking", f"only {block.provider} can read this reasoning"))
        elif isinstance(block, Opaque):
            self.losses.append((at, "opaque", f"only {block.provider} understands this block"))
        elif isinstance(block, Media):
            self.losses.append((at, "media", "this API has no place for media in such a message"))
        else:
            kind = "tool_result" if isinstance(block, ToolResult) else "tool_call"
            self.losses.append((at, kind, "it stands in a message of the wrong role"))

    # --- media --------------------------------------------------------------------------------------------------------

    def _media_part(self, at: int, media: Media) -> bytes | None:
        """Media as a part of content; None if the model cannot take it, which is noted."""
        is_text = media.kind == "document" and media.data is not None and _is_text(media.mime_type)
        why = None if is_text else why_not_media(media, self.profile.media, self.profile.media_urls)
        if why is not None:
            self.losses.append((at, "media", why))
            return None
        if is_text:  # `file` parts take PDF only
            name, text = media.name or "document", (media.data or b"").decode(errors="replace")
            return _text_part(f'<document name="{name}" type="{media.mime_type}">\n{text}\n</document>')
        native = {name: raw for name, raw in self._native(media.native).items() if name != FIELD}
        if media.kind == "document":
            return self._document_part(media, native)
        if media.kind == "audio" and media.data is not None:
            return self._audio_part(media.data, media.mime_type, native)
        return _by_url(b"%s_url" % media.kind.encode(), media, native)  # audio: vLLM

    def _document_part(self, media: Media, native: dict[str, Raw]) -> bytes:
        if "document_url" in self.profile.quirks:  # Mistral
            named: dict[str, bytes | Raw] = {"document_name": _encode(media.name)} if media.name else {}
            return join_members({"type": b'"document_url"', "document_url": _url(media), **named, **native})
        name = media.name or ("document.pdf" if media.mime_type == "application/pdf" else "document")
        return b'{"type":"file","file":%s}' % join_members(
            {"filename": _encode(name), "file_data": _url(media), **native}
        )

    def _audio_part(self, data: bytes, mime_type: str, native: dict[str, Raw]) -> bytes:
        audio = b'"%s"' % b64encode(data)
        if "plain_input_audio" not in self.profile.quirks:  # which is Mistral's
            kind = mime_type.partition(";")[0].strip()
            form = _AUDIO_FORMATS.get(kind, kind.partition("/")[2])
            audio = join_members({"data": audio, "format": _encode(form), **native})
        return b'{"type":"input_audio","input_audio":%s}' % audio


# What ids of calls must look like, and how long they are made: Mistral's and OpenAI's.
_CALL_IDS: Final = {
    "call_id_of_9": (re.compile(r"[a-zA-Z0-9]{9}"), 9),
    "call_id_of_40": (re.compile(r".{1,40}", re.DOTALL), 40),
}
# Formats whose name is not simply what stands behind the slash.
_AUDIO_FORMATS: Final = {
    **dict.fromkeys(["audio/wav", "audio/x-wav", "audio/wave"], "wav"),
    **dict.fromkeys(["audio/mpeg", "audio/mp3"], "mp3"),
    "audio/mp4": "m4a",
    "audio/pcm": "pcm16",
}
_TEXT_TYPES: Final = frozenset(["application/json", "application/xml", "application/x-yaml", "application/yaml"])


class _Assistant(Struct, eq=False):
    """The members of one message of the model, while they are gathered."""

    texts: list[str] = []
    parts: list[bytes] = []
    plain: bool = True
    """Whether the texts alone say all that is in the parts."""
    refusal: list[str] = []
    reasoning: dict[str, str] = {}
    details: list[bytes] = []
    images: list[bytes] = []
    audio: bytes = b""
    calls: list[bytes] = []

    def is_empty(self) -> bool:
        return not any((self.parts, self.refusal, self.reasoning, self.details, self.images, self.audio, self.calls))

    def add_text(self, block: Text, fields: dict[str, Raw]) -> None:
        if string(fields.get("type")) == "refusal":
            self.refusal.append(block.text)
            return
        self.plain = self.plain and not fields
        self.texts.append(block.text)
        self.parts.append(_text_part(block.text, fields))

    def add_thought(self, thought: Thinking) -> None:
        """Reasoning goes back to the server that wrote it in the form that it came in."""
        kept: dict[str, bytes | Raw] = dict(thought.native.fields) if thought.native is not None else {}
        field = string(Raw(kept.pop(FIELD, b'""'))) or "reasoning_content"
        text = _encode(thought.text)
        proof = {"signature": _encode(thought.signature)} if thought.signature is not None else {}
        if field == "content":
            self.plain = False
            chunk = {"type": b'"thinking"', "thinking": b'[{"type":"text","text":%s}]' % text}
            self.parts.append(join_members({**chunk, **proof, **kept}))
        elif field == "reasoning_details":
            kind = string(Raw(kept.get("type", b'""')))
            if thought.text and kind != "reasoning.encrypted":
                kept["summary" if kind == "reasoning.summary" else "text"] = text
            if thought.encrypted is not None:
                kept["data"] = _encode(thought.encrypted)
            self.details.append(join_members({**kept, **proof}))
        elif field == "think_tags":
            self.texts.append(f"{OPEN}{thought.text}{CLOSE}\n\n")
            self.parts.append(_text_part(self.texts[-1]))
        else:
            self.reasoning[field] = self.reasoning.get(field, "") + thought.text

    def members(self, separator: str, *, content_always: bool) -> dict[str, bytes | Raw]:
        found: dict[str, bytes | Raw] = {}
        if not self.parts:
            if content_always or not (self.calls or self.refusal or self.audio):
                found["content"] = b'""'
        elif self.plain:
            found["content"] = _encode(separator.join(self.texts))
        else:
            found["content"] = b"[" + b",".join(self.parts) + b"]"
        if self.refusal:
            found["refusal"] = _encode("".join(self.refusal))
        found.update({field: _encode(text) for field, text in self.reasoning.items()})
        arrays = (("reasoning_details", self.details), ("images", self.images), ("tool_calls", self.calls))
        found.update({name: b"[" + b",".join(items) + b"]" for name, items in arrays if items})
        if self.audio:
            found["audio"] = self.audio
        return found


# --- parts of content -------------------------------------------------------------------------------------------------


def _text_part(text: str, fields: dict[str, Raw] | None = None, *, mark: bool = False) -> bytes:
    part = b'{"type":"text","text":%s}' % _encode(text)
    if fields:
        part = part[:-1] + b"," + join_members(fields)[1:]
    return _with_mark([part])[0] if mark else part


def _with_mark(parts: list[bytes]) -> list[bytes]:
    """These parts, with a mark for the provider's cache at the last one."""
    return [*parts[:-1], parts[-1][:-1] + b"," + CACHE_MARK + b"}"]


def _user_message(parts: list[bytes] | tuple[bytes, ...]) -> bytes:
    return b'{"role":"user","content":[' + b",".join(parts) + b"]}"


def _is_text(mime_type: str) -> bool:
    kind = mime_type.partition(";")[0].strip()
    return kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(("+json", "+xml"))


def _url(media: Media) -> bytes:
    """The URL, or the bytes as one."""
    if media.data is None:
        return _encode(media.url or "")
    return b'"data:%s;base64,%s"' % (media.mime_type.encode(), b64encode(media.data))


def _by_url(kind: bytes, media: Media, native: dict[str, Raw]) -> bytes:
    return b'{"type":"%s","%s":%s}' % (kind, kind, join_members({"url": _url(media), **native}))
