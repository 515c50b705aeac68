"""One part of a reply → events.

Owns: which parts make one text, what becomes of each kind of part, and the ids of calls that come without one.
Must not know: chunks, framing, and what a reply says beside its content.

Texts and thoughts: within one chunk every part stands for itself; a text at the head of the next chunk continues the
text that was open. So a whole reply keeps its parts as they are, and a stream gives one text for its many pieces. A
part with a thought signature (or anything else beside its text) ends the text it belongs to, and the signature is kept
on it: Google wants each signature back in the part it came in. A signature on an empty text belongs to the text before
it; where there is none, the part is kept as it came.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import ClassVar

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

from .partial_call import PartialCall
from .wire import MADE_UP_ID, READER, SIGNATURE, compact, given_members, text_of

__all__ = ["Parts", "arguments_of", "made_up_id", "mark_of"]

# Members of a part that say something about its data and are no data themselves.
_ABOUT_DATA = frozenset(
    ["thought", SIGNATURE, "partMetadata", "videoMetadata", "mediaResolution", "mediaProcessing", "speechMetadata"]
)
_CALL_MEMBERS = frozenset(["id", "name", "args", "partialArgs", "willContinue"])
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")
_UNKNOWN_TYPE = "application/octet-stream"

_truth = msgspec.json.Decoder(bool).decode


class Parts(Struct, eq=False):
    """The content of one reply while it grows."""

    _names: Mapping[str, str]
    _first_number: Callable[[], int]
    """For replies without an id: the number that makes our ids unique in the conversation."""
    open: bool | None = None
    """The part that can grow: a thought (True), a text (False), or none."""
    first: bool = True
    """Whether the next part is the first of its chunk."""
    calls: int = 0
    index: int = -1
    _ids: set[str] = set()
    _mark: str = ""
    """What the reply's id adds to the ids of its calls where they have none."""
    _call: PartialCall | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing has come yet."""
        return self.index < 0

    def of_reply(self, reply_id: str | None) -> None:
        """The reply's id, from which the ids of its calls are made where they have none."""
        self._mark = mark_of(reply_id)

    def piece(self, text: str, thought: bool, events: list[ReplyEvent]) -> None:
        """A plain piece of text or thought: nearly all parts of a stream."""
        if not text:
            return
        if self.open is not thought or not self.first:
            self._start(thought, events)
        self.first = False
        events.append((ThinkingDelta if thought else TextDelta)(self.index, "", text))

    def part(self, raw: Raw, events: list[ReplyEvent]) -> None:
        """Any part."""
        members = given_members(raw)
        if "thought" in members and not _truth(members["thought"]):
            del members["thought"]  # from here on, what has this member is a thought
        kind = next((name for name in self._HANDLERS if name in members), "text")
        data = members.pop(kind, None)
        if data is None and not members.keys() <= _ABOUT_DATA:
            # The provider's own tools (executableCode, codeExecutionResult, toolCall, toolResponse), and what is new.
            self._keep(raw, events)
        else:
            self._HANDLERS[kind](self, raw, data, members, events)

    def end(self, events: list[ReplyEvent], native: Native | None = None, signature: str | None = None) -> None:
        """End the text or thought that is open, if one is."""
        if self.open is not None:
            ended = ThinkingEnded(self.index, "", signature, None, native) if self.open else None
            events.append(ended or TextEnded(self.index, "", native))
            self.open = None

    # --- one handler for each kind of data that we know: it gets the raw part, its data and its other members ---

    def _text(self, raw: Raw, data: Raw | None, beside: dict[str, Raw], events: list[ReplyEvent]) -> None:
        text = text_of(data) if data is not None else ""
        thought = beside.pop("thought", None) is not None
        if not beside:
            self.piece(text, thought, events)
            return
        continues = self.first and self.open is thought
        if not text and not thought and not continues:
            # An empty part must have a kind to be accepted when it goes back.
            self._keep(raw if data is not None else _with_empty_text(beside), events)
            return
        if text:
            self.piece(text, thought, events)
        elif not continues:
            self._start(thought, events)
        signature = text_of(beside.pop(SIGNATURE)) if thought and SIGNATURE in beside else None
        self.first = False
        self.end(events, _native(beside), signature)

    def _function_call(self, _raw: Raw, data: Raw | None, beside: dict[str, Raw], events: list[ReplyEvent]) -> None:
        call = given_members(data) if data is not None else {}
        going_on = _truth(call["willContinue"]) if "willContinue" in call else False
        if self._call is None or "name" in call:
            self._start_call(call, events)
        current = self._call
        assert current is not None
        current.native.update(_kept(beside))
        further = {name: raw for name, raw in call.items() if name not in _CALL_MEMBERS}
        if further:
            current.native["functionCall"] = compact(Raw(msgspec.json.encode(further)))
        if "args" in call:
            events.append(ToolCallDelta(current.index, current.id, arguments_of(call["args"])))
        elif "partialArgs" in call:
            current.take(call["partialArgs"])
        if not going_on:
            self._end_call(current, events)

    def _inline_data(self, raw: Raw, data: Raw | None, beside: dict[str, Raw], events: list[ReplyEvent]) -> None:
        if "thought" in beside:  # a sketch on the way to the picture: not part of the answer
            self._keep(raw, events)
            return
        blob = given_members(data) if data is not None else {}
        content = _base64(blob.pop("data")) if "data" in blob else b""
        media = Media.from_bytes(content, _mime_type(blob))
        self._media(media, "inlineData", blob, beside, events)

    def _file_data(self, raw: Raw, data: Raw | None, beside: dict[str, Raw], events: list[ReplyEvent]) -> None:
        file = given_members(data) if data is not None else {}
        if "thought" in beside or "fileUri" not in file:
            self._keep(raw, events)
            return
        media = Media.from_url(text_of(file.pop("fileUri")), mime_type=_mime_type(file))
        self._media(media, "fileData", file, beside, events)

    # --- what the handlers share ---

    def _start(self, thought: bool, events: list[ReplyEvent]) -> None:
        self.end(events)
        self.index += 1
        self.open = thought
        events.append(ThinkingStarted(self.index, "", READER) if thought else TextStarted(self.index, ""))

    def _next(self, events: list[ReplyEvent]) -> int:
        """The index of a new part that is neither text nor thought."""
        self.end(events)
        self.first = False
        self.index += 1
        return self.index

    def _keep(self, raw: Raw, events: list[ReplyEvent]) -> None:
        index = self._next(events)
        events.append(BlockReceived(index, "", Opaque(READER, compact(raw))))

    def _media(
        self, media: Media, kind: str, further: dict[str, Raw], beside: dict[str, Raw], events: list[ReplyEvent]
    ) -> None:
        if further:
            beside[kind] = Raw(msgspec.json.encode(further))
        native = _native(beside)
        index = self._next(events)
        events.append(BlockReceived(index, "", msgspec.structs.replace(media, native=native) if native else media))

    def _start_call(self, call: dict[str, Raw], events: list[ReplyEvent]) -> None:
        if "name" not in call:
            raise ProtocolError("The model calls a function without naming it.")
        name = text_of(call["name"])
        given = text_of(call["id"]) if "id" in call else ""
        call_id = given if given and given not in self._ids else self._made_up_id()
        self._ids.add(call_id)
        self.calls += 1
        self._call = PartialCall(self._next(events), call_id)
        events.append(ToolCallStarted(self._call.index, call_id, self._names.get(name, name)))

    def _end_call(self, call: PartialCall, events: list[ReplyEvent]) -> None:
        grown = call.arguments()
        if grown is not None:
            events.append(ToolCallDelta(call.index, call.id, grown))
        native = Native(READER, call.native) if call.native else None
        events.append(ToolCallEnded(call.index, call.id, native))
        self._call = None

    def _made_up_id(self) -> str:
        if self._mark:
            return made_up_id(self._mark, self.calls)
        return f"{MADE_UP_ID}{self._first_number() + self.calls}"

    # In this order: a part has one kind of data, but a text beside a call would be an addition to the call.
    _HANDLERS: ClassVar[dict[str, Callable[[Parts, Raw, Raw | None, dict[str, Raw], list[ReplyEvent]], None]]] = {
        "functionCall": _function_call,
        "inlineData": _inline_data,
        "fileData": _file_data,
        "text": _text,
    }


def _kept(members: dict[str, Raw]) -> dict[str, Raw]:
    return {name: compact(raw) for name, raw in members.items()}


def _native(members: dict[str, Raw]) -> Native | None:
    return Native(READER, _kept(members)) if members else None


def mark_of(reply_id: str | None) -> str:
    """What of a reply's id is fit to stand in the ids of its calls."""
    return _NOT_IN_IDS.sub("", reply_id or "")[-24:]


def made_up_id(mark: str, number: int) -> str:
    """The id of a call that has none: the mark of its reply, and how many calls came before it there."""
    return f"{MADE_UP_ID}{mark}_{number}"


def arguments_of(raw: Raw) -> str:
    """The arguments as JSON text; some proxies give them as such already."""
    return text_of(raw) if bytes(raw)[:1] == b'"' else bytes(compact(raw)).decode()


def _with_empty_text(members: dict[str, Raw]) -> Raw:
    return Raw(msgspec.json.encode({"text": "", **members}))


def _mime_type(members: dict[str, Raw]) -> str:
    return text_of(members.pop("mimeType")) if "mimeType" in members else _UNKNOWN_TYPE


def _base64(raw: Raw) -> bytes:
    """Bytes in base64 of either alphabet, padded or not."""
    text = text_of(raw).translate(_PLAIN_ALPHABET).rstrip("=")
    try:
        return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise ProtocolError("The media in the reply are not valid base64.") from None


_PLAIN_ALPHABET = str.maketrans("-_", "+/")
