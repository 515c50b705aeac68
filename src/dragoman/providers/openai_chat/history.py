"""The messages of a conversation on the wire, and what this server does not get.

One of our messages may become several: each tool result is one. Media that a result cannot hold (an image, for most
servers) are sent after all results, in a message of the user.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw, field

from dragoman.conversation import Conversation, Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from dragoman.providers.codec import Loss
from dragoman.providers.history import (
    NOT_REPLAYED,
    FoundLoss,
    HistoryWriter,
    MessageWriter,
    Written,
    content_of,
    legal_id,
    url_of,
    why_not_media,
)
from dragoman.providers.profile import Profile
from dragoman.providers.requests import ToolNames
from dragoman.providers.wire import join_members, members, string

from .parts import FIELD

_encode: Final = msgspec.json.encode


def reader_of(provider: str) -> str:
    """The provider name of blocks and native fields that only this server can read."""
    return f"openai_chat:{provider}"


class _Form(NamedTuple):
    """A message on the wire."""

    content: bytes
    """JSON objects with commas between them; empty if nothing is left of the message."""
    behind: bytes = b""
    """Content parts for a message of the user after all results."""
    losses: tuple[FoundLoss, ...] = ()


class _Written(Written, frozen=True, kw_only=True):
    behind: tuple[bytes, ...] = ()
    """Media of results, to be sent after all of them."""


class ChatHistory(HistoryWriter[_Written, _Form]):
    nothing = _Written()

    def __init__(self, profile: Profile, names: ToolNames, mark: bytes) -> None:
        super().__init__(profile, names)
        self._mark = mark
        """The cache mark of the system prompt and of the last message; empty for none."""

    def write_all(self, conversation: Conversation) -> tuple[bytes, tuple[Loss, ...]]:
        """All messages as JSON with commas between them, and what this server does not get."""
        if self._mark and (messages := conversation.messages):
            # The last message is not cached with its mark, which moves on in the next turn.
            written = self.write(conversation, len(messages) - 1)
            written = self.append(written, messages[-1:], self._mark)
        else:
            written = self.write(conversation)
        out = written.pieces
        if conversation.system:
            text = conversation.system
            content = b"[" + _with_mark(_text_part(text), self._mark) + b"]" if self._mark else _encode(text)
            out = (b'{"role":"%s","content":%s}' % (self.profile.system_role.encode(), content), *out)
        if written.behind:
            out = (*out, _user_message([*written.behind]))
        return b",".join(out), written.losses

    def append(self, before: _Written, messages: Sequence[Message], mark: bytes = b"") -> _Written:
        behind, losses = before.behind, before.losses
        out: list[bytes] = []
        for at, message in enumerate(messages, before.count):
            form = self.write_message(message, mark) if mark else self.form_of(message)
            if form.losses:
                losses = (*losses, *[Loss(at, *loss) for loss in form.losses])
            if behind and message.role != "tool":  # not before, as nothing may come between a call and its results
                out.append(_user_message([*behind]))
                behind = ()
            if form.content:
                out.append(form.content)
            if form.behind:
                behind = (*behind, form.behind)
        return _Written(
            count=before.count + len(messages),
            pieces=(*before.pieces, *out),
            losses=losses,
            behind=behind,
        )

    def write_message(self, message: Message, mark: bytes = b"") -> _Form:
        kept = message.native is not None and "message" in message.native.fields
        if len(message.blocks) == 1 and not kept and not mark:
            block = message.blocks[0]
            if type(block) is Text and block.native is None and message.role != "tool":  # as nearly all are
                return _Form(b'{"role":"%s","content":%s}' % (message.role.encode(), _encode(block.text)))
        writer = _MessageWriter(self.profile, self.names, reader_of(self.profile.provider), message.role)
        writer.write_blocks(message.blocks)
        return _Form(writer.finish(message, mark), b",".join(writer.behind), tuple(writer.losses))


# --- one message ------------------------------------------------------------------------------------------------------


class _MessageWriter(MessageWriter):
    """Collects the members of one message."""

    texts: list[str] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)
    plain: bool = True
    """Whether the parts are nothing but the texts."""
    refusal: list[str] = field(default_factory=list)
    reasoning: dict[str, str] = field(default_factory=dict)
    details: list[bytes] = field(default_factory=list)
    images: list[bytes] = field(default_factory=list)
    audio: bytes = b""
    calls: list[bytes] = field(default_factory=list)
    results: list[tuple[ToolResult, list[bytes], bytes]] = field(default_factory=list)
    """Each with its content in parts, and as a string unless there are media."""
    behind: list[bytes] = field(default_factory=list)

    def write_text(self, block: Text) -> None:
        fields = self.native(block.native)
        if self.role == "assistant" and string(fields.get("type")) == "refusal":
            self.refusal.append(block.text)
            return
        self.plain = self.plain and not fields
        self.texts.append(block.text)
        self.parts.append(_text_part(block.text, fields))

    def write_media(self, block: Media) -> None:
        fields = self.native(block.native)
        if self.role != "assistant":
            if (part := self._media_part(block)) is not None:
                self.plain = False
                self.parts.append(part)
        elif "id" in fields:  # speech is sent back by its id
            self.audio = join_members({"id": fields["id"]})
        elif fields:
            self.images.append(_by_url("image_url", block, {}))
        else:
            self.lose("media", "this API has no place for media in such a message")

    def write_opaque(self, block: Opaque) -> None:
        self.plain = False
        self.parts.append(bytes(block.raw))

    def write_thinking(self, block: Thinking) -> None:
        """Reasoning is sent back in the form that it came in."""
        if not self.profile.reasoning_replayed:
            self.lose("thinking", NOT_REPLAYED)
            return
        kept: dict[str, bytes | Raw] = dict(self.native(block.native))
        form = string(Raw(kept.pop(FIELD, b'""'))) or "reasoning_content"
        text = _encode(block.text)
        proof = {"signature": _encode(block.signature)} if block.signature is not None else {}
        if form == "content":
            self.plain = False
            chunk = {"type": b'"thinking"', "thinking": b'[{"type":"text","text":%s}]' % text}
            self.parts.append(join_members({**chunk, **proof, **kept}))
        elif form == "reasoning_details":
            kind = string(Raw(kept.get("type", b'""')))
            if block.text and kind != "reasoning.encrypted":
                kept["summary" if kind == "reasoning.summary" else "text"] = text
            if block.encrypted is not None:
                kept["data"] = _encode(block.encrypted)
            self.details.append(join_members({**kept, **proof}))
        else:
            self.reasoning[form] = self.reasoning.get(form, "") + block.text

    def write_call(self, block: ToolCall) -> None:
        name, call_id = _encode(self.names.wire(block.name)), self._call_id(block.id)
        native = dict(self.native(block.native))
        custom = native.pop("type", None) is not None  # the others have none
        # Unlike OpenAI, many servers fail if arguments are not a JSON object.
        as_it_is = custom or ("any_arguments" in self.profile.quirks and block.has_arguments)
        arguments = block.arguments if as_it_is else self.arguments(block).decode()
        written = b'{"id":%s,"type":"function","function":{"name":%s,"arguments":%s}}'
        if custom:
            written = b'{"id":%s,"type":"custom","custom":{"name":%s,"input":%s}}'
        written %= (call_id, name, _encode(arguments))
        self.calls.append(b"%s,%s" % (written[:-1], join_members(native)[1:]) if native else written)

    def write_result(self, block: ToolResult) -> None:
        texts: list[str] = []
        parts: list[bytes] = []
        media_inside = False
        for piece in content_of(block, error_said=True):
            if not isinstance(piece, Media):
                texts.append(piece.text)
                parts.append(_text_part(piece.text))
                continue
            part = self._media_part(piece)
            if part is None:
                continue
            if piece.kind in self.profile.tool_result_media:
                parts.append(part)
                media_inside = True
            else:
                note = f"[{piece.kind} of the result of {block.name}, call {block.call_id}]"
                texts.append(f"{note} follows in the next message of the user.")
                parts.append(_text_part(texts[-1]))
                self.behind += [_text_part(f"{note}:"), part]
        self.results.append((block, parts, b"" if media_inside else _encode("\n".join(texts))))

    # --- the message --------------------------------------------------------------------------------------------------

    def finish(self, message: Message, mark: bytes) -> bytes:
        """The message as one or several of the wire, with commas between them; empty if nothing is left."""
        if self.role == "tool":
            last = len(self.results) - 1
            written = [self._finish_result(*one, mark if at == last else b"") for at, one in enumerate(self.results)]
            return b",".join(written)
        if self.role == "assistant":
            return self._finish_assistant(message)
        if self.parts and self.plain and not mark:  # a string is what every server takes
            return b'{"role":"user","content":%s}' % _encode("\n\n".join(self.texts))
        return _user_message(self.parts, mark) if self.parts else b""

    def _finish_result(self, result: ToolResult, parts: list[bytes], text: bytes, mark: bytes) -> bytes:
        content = text if text and not mark else _array(parts or [_text_part("")], mark)
        return b'{"role":"tool","tool_call_id":%s,"content":%s}' % (self._call_id(result.call_id), content)

    def _finish_assistant(self, message: Message) -> bytes:
        quirks = self.profile.quirks
        found: dict[str, bytes | Raw] = {}
        if self.parts:
            separator = "" if message.provider == self.profile.provider else "\n\n"
            found["content"] = _encode(separator.join(self.texts)) if self.plain else _array(self.parts)
        elif not (self.refusal or self.reasoning or self.details or self.images or self.audio or self.calls):
            return b""
        elif "content_always" in quirks or not (self.calls or self.refusal or self.audio):
            found["content"] = b'""'
        if self.refusal:
            found["refusal"] = _encode("".join(self.refusal))
        found.update({name: _encode(text) for name, text in self.reasoning.items()})
        arrays = (("reasoning_details", self.details), ("images", self.images), ("tool_calls", self.calls))
        found.update({name: _array(items) for name, items in arrays if items})
        if self.audio:
            found["audio"] = self.audio
        if self.calls and "reasoning_with_calls" in quirks:
            # DeepSeek refuses a turn that called tools and does not show its reasoning, even one of another model.
            found.setdefault("reasoning_content", b'""')
        kept = self.native(message.native).get("message")
        if kept is not None and "plain_history" not in quirks:
            found = {**members(kept), **found}
        return b'{"role":"assistant",' + join_members(found)[1:]

    def _call_id(self, call_id: str) -> bytes:
        for quirk, (legal, length) in _CALL_IDS.items():
            if quirk in self.profile.quirks:
                return _encode(legal_id(call_id, legal, length))
        return _encode(call_id)

    # --- media --------------------------------------------------------------------------------------------------------

    def _media_part(self, media: Media) -> bytes | None:
        """Media as a content part; None if the model cannot take it, which is a loss."""
        if media.kind == "document" and media.data is not None and _is_text(media.mime_type):
            name, text = media.name or "document", media.data.decode(errors="replace")  # `file` parts take PDF only
            if "\ufffd" in text and "\ufffd".encode() not in media.data:
                self.lose("media", "the text of the document is not UTF-8; what cannot be read is replaced")
            return _text_part(f'<document name="{name}" type="{media.mime_type}">\n{text}\n</document>')
        profile = self.profile
        why = why_not_media(media, profile.media, profile.media_urls, profile.provider)
        if why is None and media.stored is not None and media.kind != "document":
            why = f"this API takes no {media.kind} that the provider keeps; the one of responses does"
        if why is not None:
            self.lose("media", why)
            return None
        native = {name: raw for name, raw in self.native(media.native).items() if name != FIELD}
        if media.kind == "document":
            return self._document_part(media, native)
        if media.kind == "audio" and media.data is not None:
            return self._audio_part(media.data, media.mime_type, native)
        return _by_url(f"{media.kind}_url", media, native)  # audio: vLLM

    def _document_part(self, media: Media, native: dict[str, Raw]) -> bytes:
        if media.stored is not None:
            return b'{"type":"file","file":%s}' % join_members({"file_id": _encode(media.stored[1]), **native})
        url = _encode(url_of(media))
        if "document_url" in self.profile.quirks:  # Mistral
            named: dict[str, bytes | Raw] = {"document_name": _encode(media.name)} if media.name else {}
            return join_members({"type": b'"document_url"', "document_url": url, **named, **native})
        name = media.name or ("document.pdf" if media.mime_type == "application/pdf" else "document")
        return b'{"type":"file","file":%s}' % join_members({"filename": _encode(name), "file_data": url, **native})

    def _audio_part(self, data: bytes, mime_type: str, native: dict[str, Raw]) -> bytes:
        audio = b'"%s"' % b64encode(data)
        if "plain_input_audio" not in self.profile.quirks:  # which is Mistral's
            kind = mime_type.partition(";")[0].strip()
            form = _AUDIO_FORMATS.get(kind, kind.partition("/")[2])
            audio = join_members({"data": audio, "format": _encode(form), **native})
        return b'{"type":"input_audio","input_audio":%s}' % audio


# Legal ids of calls, and the length of generated ones: Mistral's and OpenAI's.
_CALL_IDS: Final = {
    "call_id_of_9": (re.compile(r"[a-zA-Z0-9]{9}"), 9),
    "call_id_of_40": (re.compile(r".{1,40}", re.DOTALL), 40),
}
# Formats that differ from the subtype.
_AUDIO_FORMATS: Final = {
    **dict.fromkeys(["audio/wav", "audio/x-wav", "audio/wave"], "wav"),
    **dict.fromkeys(["audio/mpeg", "audio/mp3"], "mp3"),
    "audio/mp4": "m4a",
    "audio/pcm": "pcm16",
}
_TEXT_TYPES: Final = frozenset(["application/json", "application/xml", "application/x-yaml", "application/yaml"])


# --- parts of content -------------------------------------------------------------------------------------------------


def _text_part(text: str, fields: Mapping[str, Raw] | None = None) -> bytes:
    part = b'{"type":"text","text":%s}' % _encode(text)
    return part[:-1] + b"," + join_members(fields)[1:] if fields else part


def _with_mark(part: bytes, mark: bytes) -> bytes:
    return part[:-1] + b"," + mark + b"}"


def _array(parts: list[bytes], mark: bytes = b"") -> bytes:
    """A JSON array, with a cache mark on its last part if there is one."""
    return b"[" + b",".join([*parts[:-1], _with_mark(parts[-1], mark)] if mark else parts) + b"]"


def _user_message(parts: list[bytes], mark: bytes = b"") -> bytes:
    return b'{"role":"user","content":' + _array(parts, mark) + b"}"


def _is_text(mime_type: str) -> bool:
    kind = mime_type.partition(";")[0].strip()
    return kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(("+json", "+xml"))


def _by_url(kind: str, media: Media, native: dict[str, Raw]) -> bytes:
    url = join_members({"url": _encode(url_of(media)), **native})
    return join_members({"type": _encode(kind), kind: url})
