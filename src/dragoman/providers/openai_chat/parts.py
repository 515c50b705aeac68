"""What a reply can hold besides text: reasoning in four forms, tool calls, pictures and speech.

Owns: putting the pieces of each together, whatever ids and indexes a server leaves out or repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2s
from typing import Final, cast

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import (
    Media,
    Native,
    Opaque,
    ReplyEvent,
    ThinkingDelta,
    ThinkingEnded,
    ThinkingStarted,
    ToolCallDelta,
    ToolCallEnded,
    ToolCallStarted,
)
from dragoman.errors import ProtocolError
from dragoman.providers.codec import Call
from dragoman.providers.wire import (
    MALFORMED,
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
"""Under this name a block's native fields keep the name of the wire's field that it came in."""

# --- reasoning --------------------------------------------------------------------------------------------------------

# Members of a piece of reasoning that have a place of their own in a Thinking block.
_OF_THOUGHT: Final = frozenset(["text", "summary", "data", "signature"])


class Thought(Struct, eq=False):
    """One piece of reasoning while it grows. What must go with it when it is sent back is kept in `fields`."""

    index: int
    key: tuple[str, ...]
    """What a further piece must have in common with this one to belong to it; the field's name comes first."""
    fields: dict[str, Raw]
    signature: str = ""
    encrypted: str = ""

    def grow(self, text: str, events: list[ReplyEvent]) -> None:
        if text:
            events.append(ThinkingDelta(self.index, "", text))

    def take_detail(self, fields: dict[str, Raw], events: list[ReplyEvent]) -> None:
        """A piece of `reasoning_details`, or a chunk of type `thinking` without its text."""
        self.grow(string(fields.get("text")), events)
        self.grow(string(fields.get("summary")), events)
        self.signature = string(fields.get("signature")) or self.signature
        self.encrypted += string(fields.get("data"))
        kept = {name: raw.copy() for name, raw in fields.items() if name not in _OF_THOUGHT and not is_empty(raw)}
        self.fields.update(kept)

    def end(self, reader: str, events: list[ReplyEvent]) -> None:
        native = Native(reader, self.fields)
        events.append(ThinkingEnded(self.index, "", self.signature or None, self.encrypted or None, native))


class Thoughts:
    """The reasoning of one reply.

    Servers give it in four forms: a string in `reasoning_content` (DeepSeek, Z.ai, vLLM, …) or in `reasoning` (Groq,
    Cerebras, Ollama, …); a list of `reasoning_details` (OpenRouter); chunks of type `thinking` among the content
    (Mistral).
    """

    def __init__(self, reader: str, new_part: Callable[[list[ReplyEvent]], int], new_index: Callable[[], int]) -> None:
        self._reader: str = reader
        self._new_part: Callable[[list[ReplyEvent]], int] = new_part
        self._new_index: Callable[[], int] = new_index
        self._open: Thought | None = None
        self._sealed: dict[tuple[str, ...], Thought] = {}
        """Encrypted thoughts; they may come late, after text that goes on."""

    def open(self, key: tuple[str, ...], events: list[ReplyEvent]) -> Thought:
        """The thought that is open, if it has this key; else a new one."""
        if self._open is None or self._open.key != key:
            self._open = self._begin(self._new_part(events), key, events)
        return self._open

    def close(self, events: list[ReplyEvent]) -> None:
        thought, self._open = self._open, None
        if thought is not None:
            thought.end(self._reader, events)

    def end_sealed(self, events: list[ReplyEvent]) -> None:
        for thought in self._sealed.values():
            thought.end(self._reader, events)

    def take_chunk(self, fields: dict[str, Raw], events: list[ReplyEvent]) -> None:
        thought = self.open(("content",), events)
        thinking = fields.pop("thinking", None)
        pieces = [string(members(part).get("text")) for part in elements(thinking) if is_object(part)]
        thought.grow(string(thinking) or "".join(pieces), events)
        del fields["type"]
        thought.take_detail(fields, events)

    def take_details(self, raw: Raw, events: list[ReplyEvent], *, whole: bool) -> bool:
        """`reasoning_details`. Whether they say something readable."""
        readable = False
        for place, element in enumerate(elements(raw)):
            fields = members(element)
            # Pieces of one detail share their type and index; a whole reply has no pieces.
            number = place if whole else integer(fields.get("index"))
            key = ("reasoning_details", string(fields.get("type")), str(number))
            if "data" in fields:
                if key not in self._sealed:
                    self._sealed[key] = self._begin(self._new_index(), key, events)
                thought = self._sealed[key]
            else:
                thought = self.open(key, events)
                readable = True
            thought.take_detail(fields, events)
        return readable

    def _begin(self, index: int, key: tuple[str, ...], events: list[ReplyEvent]) -> Thought:
        events.append(ThinkingStarted(index, "", self._reader))
        return Thought(index, key, {FIELD: Raw(msgspec.json.encode(key[0]))})


# --- tool calls -------------------------------------------------------------------------------------------------------


_OF_CALL: Final = frozenset(["index", "type", "function", "custom"])


class _ToolCall(Struct, eq=False):
    """One tool call while it grows."""

    wire_id: str
    wire_index: int | None
    id: str = ""
    name: str = ""
    index: int = -1
    """Which part of the reply; -1 until the name is known and the part has started."""
    pieces: list[str] = []
    fields: dict[str, Raw] = {}
    """Members that have no place of their own."""

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def looks_complete(self) -> bool:
        """Whether the arguments so far are a whole JSON object."""
        text = self.arguments
        return text.rstrip().endswith("}") and is_json(text)


class Calls:
    """The tool calls of one reply."""

    def __init__(self, names: Mapping[str, str], place: str, new_part: Callable[[list[ReplyEvent]], int]) -> None:
        self._names: Mapping[str, str] = names
        self._place: str = place
        """What ids are made of for calls that come without one."""
        self._new_part: Callable[[list[ReplyEvent]], int] = new_part
        self._calls: list[_ToolCall] = []
        self._call_of_index: dict[int, _ToolCall] = {}
        """The newest call of each index of the wire."""
        self._ids: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._calls)

    def take(self, raw: Raw, events: list[ReplyEvent], *, whole: bool) -> None:
        """`tool_calls`: calls, or pieces of them."""
        for place, element in enumerate(elements(raw)):
            fields = members(element)
            index = place if whole else integer(fields.pop("index", None))
            # Only the first piece says its type; Snowflake sends both members, one of them with nothing in it.
            custom = string(fields.get("type")) == "custom" or ("custom" in fields and "function" not in fields)
            inner = fields.get("custom" if custom else "function")
            function = members(inner) if inner is not None and not is_empty(inner) else {}
            call_id, name = string(fields.pop("id", None)), string(function.get("name"))
            arguments = text_or_json(function.get("input" if custom else "arguments"))
            call = self.grow(index, call_id, name, arguments, events)
            if call is not None:
                if custom:
                    call.fields["type"] = Raw(b'"custom"')
                kept = {
                    name: value.copy() for name, value in fields.items() if name not in _OF_CALL and not is_empty(value)
                }
                call.fields.update(kept)

    def grow(
        self, index: int | None, call_id: str, name: str, arguments: str, events: list[ReplyEvent]
    ) -> _ToolCall | None:
        """Take in a piece of a call; gives the call, unless the piece says nothing."""
        if not (call_id or name or arguments):
            return None
        call = self._find(index, call_id, name, arguments)
        if call is None:
            call = _ToolCall(call_id, index)
            self._calls.append(call)
        if index is not None:
            self._call_of_index[index] = call
        if arguments:
            call.pieces.append(arguments)
        if call.index < 0:
            if name:
                self._start(call, name, events)
        elif arguments:
            events.append(ToolCallDelta(call.index, call.id, arguments))
        return call

    def _find(self, index: int | None, call_id: str, name: str, arguments: str) -> _ToolCall | None:
        """The call that this piece continues; None if it begins a new one.

        Ids may be missing, an index may always be 0, and the name may stand in every piece.
        """
        if index is not None:
            call = self._call_of_index.get(index)
        elif call_id:
            call = next((call for call in self._calls if call.wire_id == call_id), None)
        else:
            call = self._calls[-1] if self._calls else None
        if call is None or (call_id and call_id == call.wire_id):
            return call
        if name and call.name and self._names.get(name, name) != call.name:
            return None
        if not call_id or not call.wire_id:
            # A server that gives neither ids nor indexes sends each call whole.
            fresh = name and arguments.lstrip().startswith("{") and call.looks_complete()
            return None if fresh else call
        # Another id under the same index: a new call, if it names a tool and the one before it is done. Some servers
        # make up a new id for every piece, but not a name.
        return None if name and (not call.pieces or call.looks_complete()) else call

    def _start(self, call: _ToolCall, name: str, events: list[ReplyEvent]) -> None:
        call.index = self._new_part(events)
        call.name = self._names.get(name, name)
        number = len(self._ids)
        # The same for the same reply, and another one in every other reply.
        call.id = call.wire_id or f"call_{blake2s(self._place.encode(), digest_size=8).hexdigest()}_{number}"
        if call.id in self._ids:  # two calls of one id could not be told apart in their results
            call.id = f"{call.id}_{number}"
        self._ids.add(call.id)
        events.append(ToolCallStarted(call.index, call.id, call.name))
        if call.pieces:
            events.append(ToolCallDelta(call.index, call.id, call.arguments))

    def end(self, reader: str, events: list[ReplyEvent], *, cut: bool) -> None:
        """With `cut` the reply was stopped by a limit, and the last call may be a part of one only."""
        for call in self._calls:
            if call.index < 0:
                which = call.wire_id or call.wire_index
                message = f"The model called a tool without saying which one (call {which!r})."
                raise ProtocolError(message)
        for call in self._calls:
            if cut and call is self._calls[-1] and not is_json(call.arguments):
                continue  # without an end it counts as partial and is never run
            native = Native(reader, call.fields) if call.fields else None
            events.append(ToolCallEnded(call.index, call.id, native))


# --- media that the model made ----------------------------------------------------------------------------------------

# The format of a spoken answer is named in the request, nowhere in the reply.
_AUDIO_TYPES: Final = {"mp3": "mpeg", "flac": "flac", "opus": "opus", "aac": "aac", "pcm16": "pcm"}


class Speech(Struct, eq=False):
    """A spoken answer: an id to speak of it later, and what else comes with it."""

    fields: dict[str, Raw] = {}
    data: list[str] = []
    transcript: list[str] = []

    def take(self, fields: dict[str, Raw]) -> None:
        self.data.append(string(fields.pop("data", None)))
        self.transcript.append(string(fields.pop("transcript", None)))
        self.fields.update({name: value.copy() for name, value in fields.items() if not is_empty(value)})

    def block(self, call: Call, reader: str) -> Media | Opaque | None:
        """All of it; None if nothing was said, for some servers send the member empty."""
        if "id" not in self.fields and not any(self.data):
            return None
        if transcript := "".join(self.transcript):
            self.fields["transcript"] = Raw(msgspec.json.encode(transcript))
        data = decode_base64(self.data)
        if data is None:
            fields = {**self.fields, "data": msgspec.json.encode("".join(self.data))}
            return Opaque(reader, Raw(join_members({"type": b'"audio"', "audio": join_members(fields)})))
        asked = call.options.extra_body.get("audio")
        form = cast("dict[str, object]", asked).get("format") if isinstance(asked, dict) else None
        kind = f"audio/{_AUDIO_TYPES.get(str(form), 'wav')}"
        return Media(kind="audio", mime_type=kind, data=data, native=Native(reader, self.fields))


def image_of(raw: Raw, reader: str) -> Media | Opaque:
    """An element of `images` (OpenRouter): a data URL or another one, in the shape of a part of content."""
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
