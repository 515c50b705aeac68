"""The messages of a conversation as input items, and what a model does not get.

The service's own items are sent back as they came, with their ids, phases and encrypted reasoning. Rules of the API:
- without storage (`store: false`) reasoning needs its encrypted content, or the plain content of an open model;
- reasoning must be followed by the item that it led to, and an item with an id must not come without its reasoning;
- a model that does not reason refuses reasoning items.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw, field

from dragoman.conversation import (
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
from dragoman.providers.wire import elements, read_members, string

from .waiting import ANSWERS, WAITING, answer_to, text_of, tools_found

READER: Final = "openai_responses"
"""The provider name of this dialect's thinking, opaque blocks and native fields."""

_encode: Final = msgspec.json.encode

_LEGAL_ID: Final = re.compile(r".{1,64}", re.DOTALL)
_ALONE: Final = "the reasoning before it was left out, and the service requires both or none"

_NO_PICTURE: Final = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)

_Part = dict[str, object]
"""A content part or an item, ready to be written."""


_NO_ANSWERS: Final[Mapping[str, _Part]] = {}


class _Form(NamedTuple):
    """A message on the wire."""

    content: bytes
    """The items, with commas between them; empty where nothing is left of the message."""
    losses: tuple[FoundLoss, ...] = ()
    answers: Mapping[str, _Part] = {}
    """Further members of results, by call id: the type of an item that does not answer a function, or the caller of a
    call by a program of the model."""


class _Written(Written, frozen=True, kw_only=True):
    answers: Mapping[str, _Part] = {}


class ResponsesHistory(HistoryWriter[_Written, _Form]):
    nothing = _Written()

    def __init__(self, profile: Profile, names: ToolNames, *, stateless: bool) -> None:
        super().__init__(profile, names, stateless)
        self._stateless = stateless
        """Whether the service stores nothing of this request."""

    def append(self, before: _Written, messages: Sequence[Message]) -> _Written:
        answers = before.answers
        forms: list[_Form] = []
        for message in messages:
            depends = bool(answers) and message.role == "tool"  # on the message before
            form = self.write_message(message, answers) if depends else self.form_of(message)
            answers = form.answers
            forms.append(form)
        return _Written(
            count=before.count + len(messages),
            pieces=(*before.pieces, *[form.content for form in forms if form.content]),
            losses=before.losses_with(forms),
            answers=answers,
        )

    def write_message(self, message: Message, answers: Mapping[str, _Part] = _NO_ANSWERS) -> _Form:
        block = message.blocks[0] if len(message.blocks) == 1 else None
        if message.role == "user" and type(block) is Text and block.native is None:  # as most are
            return _Form(b'{"role":"user","content":%b}' % _encode(block.text))
        # Other services with this dialect cannot read what this one encrypted or stored.
        own = message.provider is None or message.provider == self.profile.provider
        writer = _MessageWriter(self.profile, self.names, READER, message.role, own=own, answers=answers)
        writer.stateless = self._stateless
        if message.role == "assistant" and type(block) is Text:
            writer.write_text(block)
        else:
            writer.write_blocks(message.blocks)
        if message.role == "user" and not writer.items:  # nothing that this model can take
            writer.say(_text_part(""))
        return writer.finish()


# --- one message ------------------------------------------------------------------------------------------------------


class _MessageWriter(MessageWriter):
    """One message while its items are written."""

    stateless: bool = True
    own: bool = True
    """Whether this service wrote it."""
    answers: Mapping[str, _Part] = {}
    items: list[tuple[int, _Part | bytes]] = field(default_factory=list)
    found_answers: dict[str, _Part] = field(default_factory=dict)
    unreasoned: bool = False
    """Whether the reasoning of what follows was left out, which must then have no id."""
    content: list[_Part] | None = None
    """The content of the message item that is being written."""
    shell: bytes = b""

    def finish(self) -> _Form:
        items = self.items
        while self.role == "assistant" and items and _kind_of(items[-1][1]) == "reasoning":
            self.index, _ = items.pop()
            self.lose("thinking", "nothing follows it, and the API takes reasoning only before what it led to")
        joined = b",".join([item if isinstance(item, bytes) else _encode(item) for _, item in items])
        return _Form(joined, tuple(sorted(self.losses)), self.found_answers)

    def native(self, native: Native | None) -> Mapping[str, Raw]:
        return native.fields if self.own and native is not None and native.provider == READER else {}

    def _add(self, item: _Part | bytes) -> None:
        self.content = None
        self.items.append((self.index, item))

    # --- texts and media ----------------------------------------------------------------------------------------------

    def write_text(self, block: Text) -> None:
        fields = self.native(block.native)
        if self.role != "assistant":
            self.say({**_text_part(block.text), **fields})  # such as a mark for the cache
            return
        shell = read_members(fields["item"]) if "item" in fields else {}
        if self.unreasoned or "id" not in shell:
            if block.text:
                phase = {"phase": shell["phase"]} if "phase" in shell else {}
                self._add({"role": "assistant", "content": block.text, **phase})
            return
        kept = {name: raw for name, raw in fields.items() if name != "item"}
        if "type" in kept:
            part: _Part = {**kept, "refusal": block.text}
        else:
            part = {"type": "output_text", "annotations": [], **kept, "text": block.text}
        self._say_again(bytes(fields["item"]), shell, [part])

    def say(self, part: _Part) -> None:
        if self.content is None:
            content: list[_Part] = []
            self._add({"role": "user", "content": content})
            self.content = content
        self.content.append(part)

    def _say_again(self, shell: bytes, members: Mapping[str, Raw], parts: list[_Part]) -> None:
        """Parts of a message of the model; those of one item are sent back as one item."""
        if self.content is None or shell != self.shell:
            content: list[_Part] = []
            self._add({**members, "content": content})
            self.content, self.shell = content, shell
        self.content += parts

    def write_media(self, block: Media) -> None:
        if self.role != "assistant":
            part = self._media_part(block, self.profile.media)
            if isinstance(part, str):
                self.lose("media", part)
            else:
                self.say(part)
            return
        fields = self.native(block.native)
        if "item" not in fields:
            self.lose("media", "the API takes pictures of the model back only if it made them itself")
        elif self.unreasoned and not self.stateless:
            self.lose("media", _ALONE)
        else:  # the whole item, which the service does not store
            self._add({**read_members(fields["item"]), "result": b64encode(block.data or b"").decode()})

    def _media_part(self, media: Media, kinds: frozenset[MediaKind]) -> _Part | str:
        """A piece of media as a content part, or why it cannot be one."""
        if (why := why_not_media(media, kinds, self.profile.media_urls, self.profile.provider)) is not None:
            return why
        if media.stored is not None:
            kind = "input_image" if media.kind == "image" else "input_file"
            return {"type": kind, "file_id": media.stored[1], **MessageWriter.native(self, media.native)}
        if media.kind == "image":
            part: _Part = {"type": "input_image", "image_url": url_of(media), "detail": "auto"}
        elif media.kind == "document" and media.url is not None:
            part = {"type": "input_file", "file_url": media.url}
        elif media.kind == "document":
            # Data needs a name, whose suffix is the type.
            name = media.name or f"file.{_ENDINGS.get(media.mime_type, media.mime_type.rpartition('/')[2])}"
            part = {"type": "input_file", "filename": name, "file_data": url_of(media)}
        elif media.kind == "audio":
            sound = _AUDIO_FORMATS.get(media.mime_type)
            if sound is None or media.data is None:
                return "sounds are taken as the bytes of WAV or MP3 only"
            part = {"type": "input_audio", "input_audio": {"data": b64encode(media.data).decode(), "format": sound}}
        else:
            return "the API has no place for video"
        return {**part, **MessageWriter.native(self, media.native)}  # such as `detail`

    # --- reasoning ----------------------------------------------------------------------------------------------------

    def write_thinking(self, block: Thinking) -> None:
        item = self._reasoning_item(block)
        self.unreasoned = isinstance(item, str)
        if isinstance(item, str):
            self.lose("thinking", item)
        else:
            self._add(item)

    def _reasoning_item(self, block: Thinking) -> _Part | str:
        if not self.own:
            return "only the service that wrote it can read it"
        if self.profile.reasoning == "none" or not self.profile.reasoning_replayed:
            return NOT_REPLAYED
        fields = self.native(block.native)
        if not block.encrypted and self.stateless and bytes(fields.get("content", b"")) in {b"", b"[]", b"null"}:
            return "it came without encrypted content, and the service keeps no copy"
        if not fields and not block.encrypted:
            return "it is not complete"
        summary = [{"type": "summary_text", "text": block.text}] if block.text else []
        sealed = {"encrypted_content": block.encrypted} if block.encrypted else {}
        return {"type": "reasoning", "summary": summary, **fields, **sealed}

    # --- calls and results --------------------------------------------------------------------------------------------

    def write_call(self, block: ToolCall) -> None:
        fields = dict(self.native(block.native))
        raw = fields.pop("item", None)
        item = read_members(raw) if raw is not None else {}
        if raw is not None and string(item.get("type")) in WAITING:
            self.found_answers[block.id] = answer_to(item, block.id)
            # The answer to a hosted call refers to the item by its id.
            if self.unreasoned and not block.hosted and item.pop("id", None):
                raw = Raw(_encode(item))
            self._add(bytes(raw))
            return
        if self.unreasoned:
            fields.pop("id", None)
        if "caller" in fields:
            self.found_answers[block.id] = {"caller": fields["caller"]}
        name, call_id = self.names.wire(block.name), self._call_id(block.id)
        arguments = block.arguments if block.has_arguments else "{}"
        self._add({"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **fields})

    def write_result(self, block: ToolResult) -> None:
        item = self.answers.get(block.call_id, {})
        if "type" not in item:
            item = {"type": "function_call_output", "call_id": self._call_id(block.call_id), **item}
        write = ANSWERS.get(str(item["type"]))
        if item["type"] == "computer_call_output":
            self._write_screen(item, block)
        elif write is None:
            self._add({**item, "output": self._output_of(block)})
        else:
            self._add(write(item, block))
            for media in [part for part in block.content if isinstance(part, Media)]:
                self.lose("tool_result", f"{media.kind} left out: the API takes none from such a tool")
            if item["type"] == "tool_search_output" and tools_found(block) is None:
                self.lose("tool_result", "the API takes nothing but tools from a search; the text is sent after it")
                self.say(_text_part(f"{block.name}: {text_of(block)}"))

    def _write_screen(self, item: _Part, block: ToolResult) -> None:
        """A picture of the screen, the only answer that the API takes from a computer; text is sent after it."""
        media = [part for part in block.content if isinstance(part, Media)]
        pictures = [part for part in media if part.kind == "image"]
        if len(media) > min(len(pictures), 1):
            self.lose("tool_result", "of its media at most the last picture is sent: the API takes one")
        part = self._media_part(pictures[-1], frozenset(["image"])) if pictures else "the computer gave no picture"
        if isinstance(part, str):
            self.lose("tool_result", f"{part}; an empty one is sent, and the text after it")
            part = {"image_url": _NO_PICTURE}
        shown = {name: part[name] for name in ("image_url", "file_id") if name in part}
        if block.is_error:  # nobody has approved what the service wanted a person to check
            item = {name: value for name, value in item.items() if name != "acknowledged_safety_checks"}
        self._add({**item, "output": {"type": "computer_screenshot", **shown}})
        if block.text:
            self.say(_text_part(f"{block.name}: {block.text}"))

    def _output_of(self, block: ToolResult) -> object:
        """The result of a function: a text, or parts if there are media."""
        parts: list[_Part] = []
        for piece in content_of(block, error_said=True):
            part = self._media_part(piece, self.profile.tool_result_media) if isinstance(piece, Media) else piece.text
            if isinstance(part, str) and isinstance(piece, Media):
                self.lose("tool_result", part)
                part = f"[{piece.mime_type} left out: {part}]"
            parts.append(_text_part(part) if isinstance(part, str) else part)
        plain = all(part["type"] == "input_text" for part in parts)
        return "\n".join([str(part["text"]) for part in parts]) if plain else parts

    def _call_id(self, call_id: str) -> str:
        """Ids of other providers may be longer than this API takes."""
        return call_id if "reply_scoped_call_ids" in self.profile.quirks else legal_id(call_id, _LEGAL_ID)

    # --- what only the provider understands ---------------------------------------------------------------------------

    def write_opaque(self, block: Opaque) -> None:
        raw = bytes(block.raw)
        if not self.own:
            self.lose("opaque", "only the service that made it understands it")
        elif self.unreasoned and not self.stateless:
            self.lose("opaque", _ALONE)
        elif not raw.startswith(b"{"):
            self.lose("opaque", "it is not an item")
        else:
            members = read_members(raw)
            parts = elements(members.pop("content", None))
            if self.role == "assistant" and parts and string(members.get("type")) == "message":
                self._say_again(_encode(members), members, [dict(read_members(part)) for part in parts])
            else:
                self._add(raw)


def _kind_of(item: _Part | bytes) -> str:
    kind = read_members(item).get("type") if isinstance(item, bytes) else item.get("type")
    return kind if isinstance(kind, str) else string(kind) if isinstance(kind, Raw) else ""


_AUDIO_FORMATS: Final = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}
_OFFICE: Final = "application/vnd.openxmlformats-officedocument"
# Suffixes that differ from the subtype.
_ENDINGS: Final = {
    "text/plain": "txt",
    "text/markdown": "md",
    "application/msword": "doc",
    f"{_OFFICE}.wordprocessingml.document": "docx",
    f"{_OFFICE}.spreadsheetml.sheet": "xlsx",
    f"{_OFFICE}.presentationml.presentation": "pptx",
}


def _text_part(text: str) -> _Part:
    return {"type": "input_text", "text": text}


def native_of(fields: Mapping[str, Raw]) -> Native:
    """Native fields of a block, as copies: a slice would keep the whole reply in memory."""
    return Native(provider=READER, fields={name: raw.copy() for name, raw in fields.items()})
