"""The parts of a reply while they arrive: text, reasoning in four forms, tool calls, pictures and speech.

Owns: the order of the parts, and joining the pieces of each, whatever ids and indexes a server omits or repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2s
from typing import ClassVar, Final

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import (
    BlockReceived,
    Media,
    Native,
    Opaque,
    ReplyEvent,
    TextDelta,
    TextEnded,
    TextStarted,
    ThinkingDelta,
    ThinkingEnded,
    ThinkingStarted,
    ToolCallDelta,
    ToolCallEnded,
    ToolCallStarted,
)
from dragoman.errors import ProtocolError
from dragoman.providers.wire import (
    MALFORMED,
    Growing,
    as_object,
    decode_base64,
    elements,
    integer,
    is_empty,
    is_json,
    is_object,
    join_members,
    members,
    string,
    text_or_json,
)

FIELD: Final = "field"
"""The native field of a block that names the member of the message it came in."""

_encode: Final = msgspec.json.encode
_TEXT: Final = ("text",)
_REFUSAL: Final = ("refusal",)
# Members that are read elsewhere or add nothing: the role is always the same, `channel` (Groq) only repeats that
# reasoning is reasoning.
_NOT_KEPT: Final = frozenset(["role", "channel"])
_OF_THOUGHT: Final = frozenset(["text", "summary", "data", "signature"])
_OF_CALL: Final = frozenset(["index", "type", "function", "custom"])
# The request names the format of a spoken answer, the reply does not.
_AUDIO_TYPES: Final = {"mp3": "mpeg", "flac": "flac", "opus": "opus", "aac": "aac", "pcm16": "pcm"}


def _keep(fields: Mapping[str, Raw], known: frozenset[str] = frozenset()) -> dict[str, Raw]:
    """Copies of the members that have no place of their own in our values."""
    return {name: raw.copy() for name, raw in fields.items() if name not in known and not is_empty(raw)}


class _Part(Struct, eq=False):
    """A text, a refusal or a piece of reasoning while it grows."""

    index: int
    key: tuple[str, ...]
    """What a further piece must have in common with this one to belong to it; the member's name comes first."""
    fields: dict[str, Raw]
    """The native fields of the block."""
    pieces: list[str] = []
    signature: str = ""
    encrypted: str = ""

    def think(self, text: str, events: list[ReplyEvent]) -> None:
        if text:
            events.append(ThinkingDelta(self.index, "", text))

    def take_detail(self, fields: dict[str, Raw], events: list[ReplyEvent]) -> None:
        """A piece of `reasoning_details`, or what a chunk of type `thinking` has besides its text."""
        self.think(string(fields.get("text")), events)
        self.think(string(fields.get("summary")), events)
        self.signature = string(fields.get("signature")) or self.signature
        self.encrypted += string(fields.get("data"))
        self.fields.update(_keep(fields, _OF_THOUGHT))

    def end(self, reader: str, events: list[ReplyEvent]) -> None:
        native = Native(reader, self.fields) if self.fields else None
        if self.key is _TEXT or self.key is _REFUSAL:
            events.append(TextEnded(self.index, "", native))
        else:
            events.append(ThinkingEnded(self.index, "", self.signature or None, self.encrypted or None, native))


class _ToolCall(Struct, eq=False):
    """A tool call while it grows."""

    wire_id: str
    wire_index: int | None
    id: str = ""
    name: str = ""
    index: int = -1
    """Which part of the reply; -1 until the name is known and the part has started."""
    pieces: list[str] = []
    fields: dict[str, Raw] = {}
    """The native fields of the call."""

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def looks_complete(self) -> bool:
        """Whether the arguments so far are a whole JSON object, or `null` for none."""
        text = self.arguments.strip()
        return text == "null" or (text.endswith("}") and is_json(text))


class Parts(Struct, eq=False):
    """The parts of one reply.

    A text, a refusal or a piece of reasoning is open until another part begins; calls are open until the reply ends.
    """

    reader: str
    names: Mapping[str, str]
    """The tools' own names by their names on the wire."""
    place: str = ""
    """Makes the ids unique that are generated for calls without one."""
    count: int = 0
    texts: dict[int, list[str]] = {}
    """The pieces of each text, by index."""
    refused: bool = False
    calls: list[_ToolCall] = []
    unknown: dict[str, Growing] = {}
    """Members of the message that are not known; they are sent back to the server."""
    _open: _Part | None = None
    _sealed: dict[tuple[str, ...], _Part] = {}
    """Encrypted reasoning, which may arrive late, in the middle of a text."""
    _call_of_index: dict[int, _ToolCall] = {}
    """The newest call of each index of the wire."""
    _call_ids: set[str] = set()
    _speech: dict[str, Raw] = {}
    _speech_data: list[str] = []
    _transcript: list[str] = []

    def take_message(self, fields: dict[str, Raw], events: list[ReplyEvent], *, whole: bool) -> None:
        """A piece of the message, or all of it, member by member; nothing is lost."""
        thinks = False
        for name in [name for name in self._MEMBERS if name in fields]:
            raw = fields[name]
            # Members that repeat the reasoning of another one are skipped.
            if not is_empty(raw) and not (thinks and name in ("reasoning_content", "reasoning")):
                thinks = bool(self._MEMBERS[name](self, name, raw, events, whole)) or thinks
        for name, raw in fields.items():
            if name not in _NOT_KEPT and name not in self._MEMBERS and not is_empty(raw):
                self.unknown.setdefault(name, Growing(deltas=True)).add(raw)

    def end(self, audio: object, events: list[ReplyEvent], *, cut: bool) -> None:
        """End all parts. `audio`: how the request asked for speech. `cut`: the last call may be incomplete."""
        self._close(events)
        for thought in self._sealed.values():
            thought.end(self.reader, events)
        self._end_speech(audio, events)
        self.end_calls(events, cut=cut)

    def _new_index(self, events: list[ReplyEvent]) -> int:
        """The index of a part that begins now; the one that is open ends."""
        self._close(events)
        self.count += 1
        return self.count - 1

    def _open_part(self, key: tuple[str, ...], events: list[ReplyEvent]) -> _Part:
        """The part that is open, if it has this key; else a new one."""
        part = self._open
        if part is None or part.key != key:
            part = self._open = self._begin(self._new_index(events), key, events)
        return part

    def _begin(self, index: int, key: tuple[str, ...], events: list[ReplyEvent]) -> _Part:
        if key is _TEXT:
            events.append(TextStarted(index, ""))
            part = _Part(index, key, {})
            self.texts[index] = part.pieces
            return part
        if key is _REFUSAL:  # the native field makes it go back as one
            events.append(TextStarted(index, ""))
            return _Part(index, key, {"type": Raw(b'"refusal"')})
        events.append(ThinkingStarted(index, "", self.reader))
        return _Part(index, key, {FIELD: Raw(_encode(key[0]))})

    def _close(self, events: list[ReplyEvent]) -> None:
        part, self._open = self._open, None
        if part is not None:
            part.end(self.reader, events)

    # --- text ---------------------------------------------------------------------------------------------------------

    def say(self, piece: str, events: list[ReplyEvent]) -> None:
        if piece:
            part = self._open
            if part is None or part.key is not _TEXT:
                part = self._open_part(_TEXT, events)
            part.pieces.append(piece)
            events.append(TextDelta(part.index, "", piece))

    def _take_content(self, _name: str, raw: Raw, events: list[ReplyEvent], _whole: bool) -> None:
        if not bytes(raw).startswith(b"["):
            self.say(text_or_json(raw), events)  # Cloudflare sends an object where a schema was asked for
            return
        for part in elements(raw):
            if piece := string(part):
                self.say(piece, events)
            else:
                self._take_part(members(part), part, events)

    def _take_part(self, fields: dict[str, Raw], raw: Raw, events: list[ReplyEvent]) -> None:
        kind = string(fields.get("type"))
        if kind == "text" and fields.keys() <= {"type", "text"}:
            self.say(string(fields.get("text")), events)
        elif kind == "text":  # with citations or the like: a part of its own, so that both stay together
            index, text = self._new_index(events), string(fields.get("text"))
            self.texts[index] = [text]
            rest = {name: value.copy() for name, value in fields.items() if name not in ("type", "text")}
            events += [TextStarted(index, ""), TextDelta(index, "", text)]
            events.append(TextEnded(index, "", Native(self.reader, rest)))
        elif kind == "refusal":
            self._take_refusal("refusal", fields.get("refusal", raw), events, False)
        elif kind == "thinking":
            self._take_thinking(fields, events)
        else:
            self._add_block(Opaque(self.reader, raw.copy()), events)

    def _take_refusal(self, _name: str, raw: Raw, events: list[ReplyEvent], _whole: bool) -> None:
        if piece := string(raw):
            self.refused = True
            events.append(TextDelta(self._open_part(_REFUSAL, events).index, "", piece))

    def _add_block(self, block: Media | Opaque, events: list[ReplyEvent]) -> None:
        events.append(BlockReceived(self._new_index(events), "", block))

    # --- reasoning ----------------------------------------------------------------------------------------------------
    # Servers send it in four forms: a string in `reasoning_content` (DeepSeek, Z.ai, vLLM, …) or in `reasoning` (Groq,
    # Cerebras, Ollama, …); a list of `reasoning_details` (OpenRouter); chunks of type `thinking` among the content
    # (Mistral).

    def _take_reasoning(self, name: str, raw: Raw, events: list[ReplyEvent], _whole: bool) -> bool:
        piece = string(raw)
        if piece:
            self._open_part((name,), events).think(piece, events)
        return bool(piece)

    def _take_details(self, _name: str, raw: Raw, events: list[ReplyEvent], whole: bool) -> bool:
        """Returns whether there is readable reasoning among the details."""
        readable = False
        for place, element in enumerate(elements(raw)):
            fields = members(element)
            # Pieces of one detail share their type and index; a whole reply has no pieces.
            number = place if whole else integer(fields.get("index"))
            key = ("reasoning_details", string(fields.get("type")), str(number))
            if "data" not in fields:
                thought = self._open_part(key, events)
                readable = True
            elif (thought := self._sealed.get(key)) is None:
                thought = self._sealed[key] = self._begin(self.count, key, events)
                self.count += 1
            thought.take_detail(fields, events)
        return readable

    def _take_thinking(self, fields: dict[str, Raw], events: list[ReplyEvent]) -> None:
        thought = self._open_part(("content",), events)
        thinking = fields.pop("thinking", None)
        pieces = [string(members(part).get("text")) for part in elements(thinking) if is_object(part)]
        thought.think(string(thinking) or "".join(pieces), events)
        del fields["type"]
        thought.take_detail(fields, events)

    # --- tool calls ---------------------------------------------------------------------------------------------------

    def _take_calls(self, name: str, raw: Raw, events: list[ReplyEvent], whole: bool) -> None:
        if name == "function_call":  # the predecessor of `tool_calls`, which some servers still use
            raw = Raw(b'[{"index":0,"function":%b}]' % bytes(raw))
        for place, element in enumerate(elements(raw)):
            fields = members(element)
            index = place if whole else integer(fields.pop("index", None))
            # Only the first piece has a type; Snowflake sends both members, one of them empty.
            custom = string(fields.get("type")) == "custom" or ("custom" in fields and "function" not in fields)
            inner = fields.get("custom" if custom else "function")
            function = members(inner) if inner is not None and not is_empty(inner) else {}
            call_id, tool = string(fields.pop("id", None)), string(function.get("name"))
            arguments = text_or_json(function.get("input" if custom else "arguments"))
            call = self.grow_call(index, call_id, tool, arguments, events)
            if call is not None:
                if custom:
                    call.fields["type"] = Raw(b'"custom"')
                call.fields.update(_keep(fields, _OF_CALL))

    def grow_call(
        self, index: int | None, call_id: str, name: str, arguments: str, events: list[ReplyEvent]
    ) -> _ToolCall | None:
        """Add a piece to the call it belongs to, and return the call; None if the piece is empty."""
        if not (call_id or name or arguments):
            return None
        call = self._find_call(index, call_id, name, arguments)
        if call is None:
            call = _ToolCall(call_id, index)
            self.calls.append(call)
        if index is not None:
            self._call_of_index[index] = call
        if arguments:
            call.pieces.append(arguments)
        if call.index < 0:
            if name:
                self._start_call(call, name, events)
        elif arguments:
            events.append(ToolCallDelta(call.index, call.id, arguments))
        return call

    def _find_call(self, index: int | None, call_id: str, name: str, arguments: str) -> _ToolCall | None:
        """The call that this piece continues; None if it begins a new one.

        Ids may be missing, an index may always be 0, and the name may be repeated in every piece.
        """
        if index is not None:
            call = self._call_of_index.get(index)
        elif call_id:
            call = next((call for call in self.calls if call.wire_id == call_id), None)
        else:
            call = self.calls[-1] if self.calls else None
        if call is None or (call_id and call_id == call.wire_id):
            return call
        if name and call.name and self.names.get(name, name) != call.name:
            return None
        if not call_id or not call.wire_id:
            # A server that gives neither ids nor indexes sends each call whole.
            is_new = name and arguments.lstrip().startswith(("{", "null")) and call.looks_complete()
            return None if is_new else call
        # Another id under the same index is a new call if it names a tool and the call before it is complete. Some
        # servers generate a new id for every piece, but not a name.
        return None if name and (not call.pieces or call.looks_complete()) else call

    def _start_call(self, call: _ToolCall, name: str, events: list[ReplyEvent]) -> None:
        call.index = self._new_index(events)
        call.name = self.names.get(name, name)
        number = len(self._call_ids)
        # Generated ids are the same whenever this reply is decoded, and differ between replies.
        call.id = call.wire_id or f"call_{blake2s(self.place.encode(), digest_size=8).hexdigest()}_{number}"
        if call.id in self._call_ids:  # results could not be told apart
            call.id = f"{call.id}_{number}"
        self._call_ids.add(call.id)
        events.append(ToolCallStarted(call.index, call.id, call.name))
        if call.pieces:
            events.append(ToolCallDelta(call.index, call.id, call.arguments))

    def end_calls(self, events: list[ReplyEvent], *, cut: bool) -> None:
        for call in self.calls:
            if call.index < 0:
                which = call.wire_id or call.wire_index
                raise ProtocolError(f"The model called a tool without naming it (call {which!r}).")
        for call in self.calls:
            if cut and call is self.calls[-1] and not is_json(call.arguments):
                continue  # without an end it counts as partial and is never run
            native = Native(self.reader, call.fields) if call.fields else None
            events.append(ToolCallEnded(call.index, call.id, native))

    # --- media made by the model --------------------------------------------------------------------------------------

    def _take_images(self, _name: str, raw: Raw, events: list[ReplyEvent], _whole: bool) -> None:
        for image in elements(raw):
            self._add_block(_read_image(image, self.reader), events)

    def _take_audio(self, _name: str, raw: Raw, _events: list[ReplyEvent], _whole: bool) -> None:
        fields = members(raw)
        self._speech_data.append(string(fields.pop("data", None)))
        self._transcript.append(string(fields.pop("transcript", None)))
        self._speech.update(_keep(fields))

    def _end_speech(self, audio: object, events: list[ReplyEvent]) -> None:
        """Add the spoken answer, if there is one; some servers send the member empty."""
        fields = self._speech
        if "id" not in fields and not any(self._speech_data):
            return
        if transcript := "".join(self._transcript):
            fields["transcript"] = Raw(_encode(transcript))
        data = decode_base64(self._speech_data)
        if data is None:
            inner = join_members({**fields, "data": _encode("".join(self._speech_data))})
            self._add_block(Opaque(self.reader, Raw(join_members({"type": b'"audio"', "audio": inner}))), events)
            return
        kind = f"audio/{_AUDIO_TYPES.get(str(as_object(audio).get('format')), 'wav')}"
        self._add_block(Media(kind="audio", mime_type=kind, data=data, native=Native(self.reader, fields)), events)

    # In the order in which a message has its parts, whatever the order of its members.
    _MEMBERS: ClassVar[dict[str, Callable[[Parts, str, Raw, list[ReplyEvent], bool], bool | None]]] = {
        "reasoning_details": _take_details,
        "reasoning_content": _take_reasoning,
        "reasoning": _take_reasoning,
        "content": _take_content,
        "refusal": _take_refusal,
        "tool_calls": _take_calls,
        "function_call": _take_calls,
        "images": _take_images,
        "audio": _take_audio,
    }


def _read_image(raw: Raw, reader: str) -> Media | Opaque:
    """An element of `images` (OpenRouter): a data URL or another one, in the shape of a content part."""
    try:
        url = string(members(members(raw)["image_url"]).get("url"))
    except MALFORMED:
        return Opaque(reader, raw.copy())
    native = Native(reader, {FIELD: Raw(b'"images"')})
    if not url.startswith("data:"):
        return Media(kind="image", mime_type="image/*", url=url, native=native)
    kind, _, encoded = url[5:].partition(";base64,")
    data = decode_base64([encoded])
    if data is None or not kind:
        return Opaque(reader, raw.copy())
    return Media(kind="image", mime_type=kind, data=data, native=native)
