"""One reply as it grows: pieces of a message in, events out.

Owns: which part of the reply is open, in which order parts stand, and how the reply ends. Whole replies pass through
here as one big piece, so they cannot differ from streamed ones.
Must not know: framing, and when the bytes end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from msgspec import Raw

from dragoman.conversation import (
    BlockReceived,
    Completed,
    Media,
    Native,
    Opaque,
    ReplyEvent,
    ReplyStarted,
    TextDelta,
    TextEnded,
    TextStarted,
    Usage,
    UsageReported,
)
from dragoman.providers.codec import Call
from dragoman.providers.failures import failure

from .calls import Calls, made_up_id
from .extras import Extras
from .finish import CUT, FAILED, stop_reason_of
from .output_media import Sound, image_of
from .think_tags import ThinkTags
from .thoughts import Thought, thinking_text
from .wire import Delta, elements, integer, is_nothing, members, reader_of, string, text_or_json

__all__ = ["Reply"]

REFUSAL: Final = {"type": Raw(b'"refusal"')}
"""The native fields of a text that came as a refusal, so that it goes back as one."""

# Members that say nothing: the role is always the same, `channel` (Groq) only repeats that reasoning is reasoning.
_SAYS_NOTHING: Final = frozenset(["role", "channel"])
_OF_CALL: Final = frozenset(["index", "function", "custom"])


class Reply:
    """Collects one reply."""

    __slots__ = (
        "_call",
        "_calls",
        "_next",
        "_reader",
        "_refusal",
        "_refused",
        "_sealed",
        "_sound",
        "_tags",
        "_thought",
        "_tool_names",
        "_whole",
        "extras",
        "finish_reason",
        "id",
        "started",
        "text_index",
        "usage",
    )

    def __init__(self, call: Call, tool_names: Mapping[str, str]) -> None:
        self._call = call
        self._tool_names: Mapping[str, str] = tool_names
        self._reader: str = reader_of(call.profile.provider)
        self._next: int = 0
        self._whole: bool = False
        self.started: bool = False
        self.id: str | None = None
        self.text_index: int = -1
        """The part that text goes to; -1 while none is open."""
        self._refusal: int = -1
        self._refused: bool = False
        self._thought: Thought | None = None
        self._sealed: dict[tuple[str, ...], Thought] = {}
        """Encrypted thoughts; they may come late, after text that goes on."""
        self._sound: Sound | None = None
        self._tags: ThinkTags | None = ThinkTags() if "think_tags" in call.profile.quirks else None
        self._calls: Calls | None = None
        self.extras: Extras = Extras()
        self.finish_reason: str = ""
        self.usage: Usage | None = None

    # --- the course of a reply ---

    def start(self, reply_id: str | None, model: str | None, events: list[ReplyEvent]) -> None:
        """The first chunk, or the whole reply, is here."""
        self.started = True
        self.id = reply_id or None
        events.append(ReplyStarted(self._call.profile.provider, model or self._call.model, self.id))

    def complete(self, events: list[ReplyEvent]) -> None:
        """The reply has come to its end. Raises a ProviderError if its finish reason says that it failed."""
        reason = self.finish_reason
        stop = stop_reason_of(
            reason,
            self.extras.choice("native_finish_reason"),
            stop_sequence=bool(self.extras.choice("stop_reason")),  # vLLM: the sequence, or the number of a token
            refused=self._refused,
            calls=self._calls is not None,
        )
        if reason.lower() in FAILED:
            self.break_off(events)
            raise failure(self._call, None, reason.lower(), FAILED[reason.lower()], {})
        self.flush(events)
        self._close(events)
        for thought in self._sealed.values():
            thought.end(self._reader, events)
        if self._sound is not None and (block := self._sound.block(self._reader, self._call.options)) is not None:
            self.block(block, events)
        if self._calls is not None:
            self._calls.end(events, cut=stop in CUT)
            self._calls = None  # it refers back to this object, and only the collector could free both
        self.report_usage(events)
        events.append(Completed(stop, reason or None, self.extras.native(self._reader)))

    def break_off(self, events: list[ReplyEvent]) -> None:
        """The reply will not be completed: give out what is still held."""
        self.flush(events)
        self.report_usage(events)

    def report_usage(self, events: list[ReplyEvent]) -> None:
        if self.usage is not None:
            events.append(UsageReported(self.usage))

    # --- its parts ---

    def open_text(self, events: list[ReplyEvent]) -> int:
        """The index of the text that is open, or of a new one."""
        if self.text_index < 0:
            self._close(events)
            self.text_index = self._new_part()
            events.append(TextStarted(self.text_index, ""))
        return self.text_index

    def text(self, piece: str, events: list[ReplyEvent]) -> None:
        if self._tags is not None:
            thought, piece = self._tags.split(piece)
            self.think("think_tags", thought, events)
            if self._tags.done:
                self._tags = None
        if piece:
            events.append(TextDelta(self.open_text(events), "", piece))

    def flush(self, events: list[ReplyEvent]) -> None:
        """Give out what was held back for a tag that never came."""
        tags, self._tags = self._tags, None
        if tags is not None:
            thought, piece = tags.rest()
            self.think("think_tags", thought, events)
            self.text(piece, events)

    def refuse(self, piece: str, events: list[ReplyEvent]) -> None:
        if not piece:
            return
        if self._refusal < 0:
            self._close(events)
            self._refused = True
            self._refusal = self._new_part()
            events.append(TextStarted(self._refusal, ""))
        events.append(TextDelta(self._refusal, "", piece))

    def think(self, field: str, piece: str, events: list[ReplyEvent]) -> None:
        if piece:
            self._open_thought((field,), events).grow(piece, events)

    def block(self, block: Media | Opaque, events: list[ReplyEvent]) -> None:
        self._close(events)
        events.append(BlockReceived(self._new_part(), "", block))

    def delta(self, delta: Delta, events: list[ReplyEvent]) -> None:
        """A piece of the message in its plain form."""
        if delta.reasoning_content:
            self.think("reasoning_content", delta.reasoning_content, events)
        elif delta.reasoning:
            self.think("reasoning", delta.reasoning, events)
        if delta.content:
            self.text(delta.content, events)
        if delta.refusal:
            self.refuse(delta.refusal, events)
        for call in delta.tool_calls or ():
            function = call.function
            if function is not None:
                name, arguments = function.name or "", function.arguments or ""
                self._take_call(events, call.index, call.id or "", name, arguments)

    def _take_call(
        self, events: list[ReplyEvent], index: int | None, call_id: str, name: str, arguments: str
    ) -> dict[str, Raw] | None:
        """A piece of a call; the place for its further members, unless the piece says nothing."""
        if not (call_id or name or arguments):
            return None
        if self._calls is None:
            self._calls = Calls(self._reader, self._tool_names, self._new_call_part, self._new_id)
        return self._calls.piece(events, index, call_id, name, arguments)

    def message(self, fields: dict[str, Raw], events: list[ReplyEvent], *, whole: bool) -> None:
        """A piece of the message, or the whole of it, member by member; nothing is passed over."""
        self._whole = whole
        told = self._take_details(fields.pop("reasoning_details", None), events)
        for name in ("reasoning_content", "reasoning"):
            raw = fields.pop(name, None)
            if raw is not None and not told:  # where several are given they say the same
                piece = string(raw)
                self.think(name, piece, events)
                told = bool(piece)
        for name, take in self._MEMBERS.items():
            raw = fields.pop(name, None)
            if raw is not None:
                take(self, raw, events)
        for name, raw in fields.items():
            if name not in _SAYS_NOTHING:
                self.extras.of_message(name, raw)

    # --- members of the message ---

    def _take_content(self, raw: Raw, events: list[ReplyEvent]) -> None:
        piece = string(raw)
        if piece:
            self.text(piece, events)
            return
        for part in elements(raw):
            self._take_chunk(part, events)

    def _take_chunk(self, part: Raw, events: list[ReplyEvent]) -> None:
        """An element of a list of content."""
        piece = string(part)
        if piece:
            self.text(piece, events)
            return
        fields = members(part)
        kind = string(fields.get("type"))
        if kind == "text" and set(fields) <= {"type", "text"}:
            self.text(string(fields.get("text")), events)
        elif kind == "refusal":
            self.refuse(string(fields.get("refusal")), events)
        elif kind == "thinking":
            thought = self._open_thought(("content",), events)
            thought.grow(thinking_text(fields.pop("thinking", None)), events)
            del fields["type"]
            thought.detail(fields, events)
        elif kind == "text":
            self._take_marked_text(fields, events)
        else:
            self.block(Opaque(self._reader, part.copy()), events)

    def _take_marked_text(self, fields: dict[str, Raw], events: list[ReplyEvent]) -> None:
        """A text that carries something beside it, e.g. citations: a part of its own, so that both stay together."""
        self._close(events)
        index = self._new_part()
        rest = {name: raw.copy() for name, raw in fields.items() if name not in ("type", "text")}
        events.extend([TextStarted(index, ""), TextDelta(index, "", string(fields.get("text")))])
        events.append(TextEnded(index, "", Native(self._reader, rest)))

    def _take_refusal(self, raw: Raw, events: list[ReplyEvent]) -> None:
        self.refuse(string(raw), events)

    def _take_details(self, raw: Raw | None, events: list[ReplyEvent]) -> bool:
        """Whether the details say something readable."""
        readable = False
        for place, element in enumerate(elements(raw)):
            fields = members(element)
            # Pieces of one detail share their type and index; a whole reply has no pieces.
            number = place if self._whole else integer(fields.get("index"))
            key = ("reasoning_details", string(fields.get("type")), str(number))
            if "data" in fields:
                thought = self._sealed.get(key)
                if thought is None:
                    thought = self._sealed[key] = Thought(self._new_part(), key, self._reader, events)
            else:
                thought = self._open_thought(key, events)
                readable = True
            thought.detail(fields, events)
        return readable

    def _take_calls(self, raw: Raw, events: list[ReplyEvent]) -> None:
        for place, element in enumerate(elements(raw)):
            fields = members(element)
            index = place if self._whole else integer(fields.get("index"))
            custom = string(fields.pop("type", None)) == "custom"
            inner = fields.pop("custom" if custom else "function", None)
            function = members(inner) if inner is not None and not is_nothing(inner) else {}
            call_id, name = string(fields.pop("id", None)), string(function.get("name"))
            arguments = text_or_json(function.get("input" if custom else "arguments"))
            kept = self._take_call(events, index, call_id, name, arguments)
            if kept is None:
                continue
            if custom:
                kept["type"] = Raw(b'"custom"')
            for member, value in fields.items():
                if member not in _OF_CALL and not is_nothing(value):
                    kept[member] = value.copy()

    def _take_function(self, raw: Raw, events: list[ReplyEvent]) -> None:
        """The form that `tool_calls` replaced; some servers still speak it, others send it empty."""
        fields = members(raw) if not is_nothing(raw) else {}
        name, arguments = string(fields.get("name")), text_or_json(fields.get("arguments"))
        self._take_call(events, 0, "", name, arguments)

    def _take_audio(self, raw: Raw, events: list[ReplyEvent]) -> None:
        if is_nothing(raw):
            return
        if self._sound is None:
            self._sound = Sound()
        self._sound.grow(members(raw))

    def _take_images(self, raw: Raw, events: list[ReplyEvent]) -> None:
        for element in elements(raw):
            self.block(image_of(element, self._reader), events)

    _MEMBERS: ClassVar[dict[str, Callable[[Reply, Raw, list[ReplyEvent]], None]]] = {
        "content": _take_content,
        "refusal": _take_refusal,
        "tool_calls": _take_calls,
        "function_call": _take_function,
        "images": _take_images,
        "audio": _take_audio,
    }

    # --- which part is open ---

    def _open_thought(self, key: tuple[str, ...], events: list[ReplyEvent]) -> Thought:
        thought = self._thought
        if thought is None or thought.key != key:
            self._close(events)
            thought = self._thought = Thought(self._new_part(), key, self._reader, events)
        return thought

    def _close(self, events: list[ReplyEvent]) -> None:
        """End the text, refusal or thought that is open; calls stay open until the reply ends."""
        if self._thought is not None:
            self._thought.end(self._reader, events)
            self._thought = None
        if self.text_index >= 0:
            events.append(TextEnded(self.text_index, ""))
            self.text_index = -1
        if self._refusal >= 0:
            events.append(TextEnded(self._refusal, "", Native(self._reader, REFUSAL)))
            self._refusal = -1

    def _new_part(self) -> int:
        index = self._next
        self._next += 1
        return index

    def _new_call_part(self, events: list[ReplyEvent]) -> int:
        self._close(events)
        return self._new_part()

    def _new_id(self, number: int) -> str:
        return made_up_id(self.id, len(self._call.conversation.messages), number)
