"""Read replies: streams of events, and JSON that is split but not fully parsed.

What a codec does not know is kept unchanged as `Raw`: slices that keep the whole bytes alive, so copy those that are
stored. `read_*` raise for unexpected types; the other functions are lenient. `DecoderBase` is what the decoders of all
dialects have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypeGuard, cast

import msgspec
from msgspec import Raw

from dragoman._decoding import check_depth, decode, decoder_of, measured_decoder_of
from dragoman.conversation import ReplyEvent
from dragoman.errors import ProtocolError

from .codec import Call, Encoded

ABSENT: Final = Raw(b"")
"""A member that is missing."""

MALFORMED: Final = (msgspec.MsgspecError, UnicodeError, KeyError)
"""What decoding malformed bytes can raise."""

read_members: Final = decoder_of(dict[str, Raw]).decode
"""The members of a JSON object."""

read_elements: Final = decoder_of(list[Raw]).decode
"""The elements of a JSON array."""

_read_text = measured_decoder_of(str | None).decode
_read_string = measured_decoder_of(str).decode
_read_number = measured_decoder_of(int | None).decode
_read_value: Final[Callable[[bytes | Raw], object]] = msgspec.json.Decoder().decode
_EMPTY: Final = frozenset([b"null", b'""', b"[]", b"{}"])


def read_text(raw: Raw | None) -> str | None:
    """A string; None where it is absent or null."""
    return None if raw is None else _read_text(raw)


def read_number(raw: Raw | None) -> int | None:
    """A whole number; None where it is absent or null."""
    return None if raw is None else _read_number(raw)


# --- lenient reading --------------------------------------------------------------------------------------------------


def document(data: bytes) -> dict[str, Raw]:
    """The members of a whole JSON document, which may not be valid UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode(errors="replace").encode()
    return members(data)


def members(data: bytes | Raw) -> dict[str, Raw]:
    """The members of a JSON object. Raises one of MALFORMED if it is not one."""
    try:
        return read_members(data)
    except MALFORMED:
        pass
    try:
        return read_members(_repair(bytes(data)))
    except ValueError as error:
        message = f"it is not a JSON object: {error}. It starts {bytes(data)[:80]!r}"
        raise msgspec.DecodeError(message) from None


def elements(raw: Raw | None) -> list[Raw]:
    """The elements of a JSON array; none if it is something else."""
    try:
        return read_elements(raw) if raw is not None else []
    except MALFORMED:
        return []


def value_of(raw: Raw | None) -> object:
    """The decoded value; None if it cannot be read."""
    if raw is None:
        return None
    try:
        return _read_value(raw)
    except MALFORMED:
        pass
    try:
        return _read_value(_repair(bytes(raw)))
    except ValueError:
        return None


def string(raw: Raw | None) -> str:
    """A JSON string's text; empty if it is something else."""
    if raw is None:
        return ""
    try:
        return _read_string(raw)
    except MALFORMED:
        value = value_of(raw)
        return value if isinstance(value, str) else ""


def integer(raw: Raw | None) -> int | None:
    """A JSON integer; None if it is something else."""
    value = value_of(raw)
    return None if isinstance(value, str) else _whole_number(value)


def text_or_json(raw: Raw | None) -> str:
    """A JSON string's text, or the JSON itself of anything else: some servers send arguments as an object."""
    value = value_of(raw)
    if value is None:
        return ""
    return value if isinstance(value, str) else bytes(cast("Raw", raw)).decode()


def is_empty(raw: Raw) -> bool:
    """Whether a value is null, or an empty string, array or object."""
    return len(raw) <= 4 and bytes(raw) in _EMPTY


def is_object(raw: Raw | None) -> TypeGuard[Raw]:
    return raw is not None and bytes(raw).startswith(b"{")


def is_json(text: str) -> bool:
    try:
        decode(text)
    except MALFORMED:
        return False
    return True


def join_members(fields: Mapping[str, bytes | Raw]) -> bytes:
    """A JSON object of members whose values are JSON already."""
    encode = msgspec.json.encode
    return b"{" + b",".join([encode(name) + b":" + bytes(value) for name, value in fields.items()]) + b"}"


_Node: TypeAlias = "dict[str, _Node] | list[bytes] | bytes"
"""JSON that is being merged: an object, the elements of an array, or any other value as bytes."""


class Growing:
    """Merges the pieces of an unknown member. Objects are merged, and a list continues the known one unless it starts
    with it. Other values are replaced; in deltas strings are joined, and list elements of the same `index` merged."""

    __slots__ = ("_deltas", "_lists", "_node", "_repeats", "_texts")

    def __init__(self, *, deltas: bool = False) -> None:
        self._deltas: bool = deltas
        self._node: _Node = b""
        self._texts: list[bytes] = []
        """Consecutive strings, in deltas; while they are all the same, `_repeats` counts them."""
        self._repeats: int = 0
        self._lists: int = 0
        """How many lists came consecutively."""

    def add(self, piece: Raw) -> None:
        data = bytes(piece)
        self._lists = self._lists + 1 if data[:1] == b"[" else 0
        if not self._deltas or data[:1] != b'"':
            self._texts = []
            self._node = _grow(self._node, data)
        elif not self._texts:
            self._texts, self._repeats, self._node = [data], 0, b""
        elif len(self._texts) == 1 and self._texts[0] == data:
            self._repeats += 1
        else:
            self._texts += [self._texts[0]] * self._repeats
            self._texts.append(data)
            self._repeats = 0

    def whole(self) -> Raw:
        """The merged value."""
        if self._texts:
            return Raw(b'"' + b"".join([text[1:-1] for text in self._texts]) + b'"')
        node = self._node
        return Raw(_join(_mix(node) if self._deltas and self._lists > 1 and isinstance(node, list) else node))


def _grow(node: _Node, piece: bytes) -> _Node:
    if piece.startswith(b"{"):
        mixed = node if isinstance(node, dict) else {}
        for name, raw in members(piece).items():
            mixed[name] = _grow(mixed.get(name, b""), bytes(raw))
        return mixed
    if piece.startswith(b"["):
        known, more = node if isinstance(node, list) else [], [*map(bytes, elements(Raw(piece)))]
        if more[: len(known)] == known:
            return more
        known += more
        return known
    return piece


def _join(node: _Node) -> bytes:
    if isinstance(node, dict):
        return join_members({name: _join(inner) for name, inner in node.items()})
    return b"[" + b",".join(node) + b"]" if isinstance(node, list) else node


def _mix(several: list[bytes]) -> list[bytes]:
    """The elements, with those of the same `index` merged."""
    mixed: dict[int, bytes | dict[str, Raw]] = {}
    for place, one in enumerate(several):
        fields = members(one) if one.startswith(b"{") else {}
        index = integer(fields.get("index"))
        if index is None or index < 0:
            mixed[-1 - place] = one
        elif isinstance(known := mixed.setdefault(index, fields), dict):
            known.update(fields)
    return [one if isinstance(one, bytes) else join_members(one) for one in mixed.values()]


def _repair(data: bytes) -> bytes:
    """The same as strict JSON. Python servers write NaN and Infinity, JavaScript ones split surrogate pairs."""
    import json  # few servers need this

    check_depth(data)
    value: object = json.loads(data.decode(errors="replace"), parse_constant=lambda _name: None)
    # The detour gives U+FFFD for half a surrogate pair, where "replace" alone would write a question mark.
    return json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass").decode(errors="replace").encode()


def as_object(value: object) -> dict[str, object]:
    """A decoded object; an empty one if it is something else."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def as_items(value: object) -> list[object]:
    """A decoded array; an empty one if it is something else."""
    return cast("list[object]", value) if isinstance(value, list) else []


def as_objects(value: object) -> list[dict[str, object]]:
    """The objects in a decoded array, without empty ones."""
    return [each for each in map(as_object, as_items(value)) if each]


def texts_in(value: object, member: str) -> tuple[str, ...]:
    """This member of each object in a decoded array, where it is a text."""
    found = [each.get(member) for each in as_objects(value)]
    return tuple([each for each in found if isinstance(each, str) and each])


def plain_text(value: object) -> str:
    """Arguments for display: a single text, several texts as lines, otherwise JSON."""
    if len(fields := as_object(value)) == 1:
        (value,) = fields.values()
    if isinstance(value, str):
        return value
    texts = [each for each in as_items(value) if isinstance(each, str)]
    if texts and len(texts) == len(as_items(value)):
        return "\n".join(texts)
    return msgspec.json.encode(value).decode() if value else ""


def count_of(value: object) -> int | None:
    """A count of tokens; None if it is something else. One below zero counts as not reported: it would lift limits."""
    number = _whole_number(value)
    return None if number is None or number < 0 else number


def _whole_number(value: object) -> int | None:
    """An integer, also if written as 1.0 or, as protobuf does, as "1"; None if it is something else."""
    if type(value) is int:
        return value
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdigit():
        return int(value)
    return int(value) if type(value) is float and value.is_integer() else None


def read_charge(counts: Mapping[str, object]) -> float | None:
    """The cost in US dollars that OpenRouter reports; None for a user's own key, where it is only OpenRouter's fee."""
    cost = counts.get("cost")
    if isinstance(cost, bool) or not isinstance(cost, int | float) or counts.get("is_byok") is True:
        return None
    return cost if cost >= 0 else None


_RARE_COUNTS: Final = frozenset(["audio_input", "audio_output", "cache_write_1h"])
Places: TypeAlias = "Mapping[str, str | Places]"


def read_counts(usage: Mapping[str, object], places: Places, counts: dict[str, Any] | None = None) -> dict[str, Any]:
    """The token counts in a decoded object as fields of Usage, added to `counts`.

    `places` has the field of each member, or those of the members inside it. Of several members for one field the first
    wins; rare kinds are counted only where there are any.
    """
    counts = {} if counts is None else counts
    for name, place in places.items():
        value = usage.get(name)
        if value is None:
            continue
        if isinstance(place, str):
            count = count_of(value)
            if count is not None and place not in counts and (count or place not in _RARE_COUNTS):
                counts[place] = count
        else:
            read_counts(as_object(value), place, counts)
    return counts


def decode_base64(pieces: list[str]) -> bytes | None:
    """The bytes of base64 pieces, each with its own padding or all as one text; None if they are something else."""
    from base64 import b64decode  # few replies have any

    for attempt in (pieces, ["".join(pieces)]):
        try:
            return b"".join([b64decode(piece, validate=True) for piece in attempt])
        except ValueError:
            continue
    return None


# --- server-sent events -----------------------------------------------------------------------------------------------

BLANK: Final = b" \t\r\n\xef\xbb\xbf"
"""What may come before a reply: OpenRouter sends spaces to keep the connection alive, others a byte-order mark."""
_MAX_EVENT_BYTES = 64 * 1024 * 1024


class Framing(Protocol):
    """Splits a stream of bytes into events."""

    def feed(self, data: bytes) -> Iterable[tuple[bytes, bytes]]:
        """The events that these bytes complete, each as (name, data)."""
        ...

    def finish(self) -> Iterable[tuple[bytes, bytes]]:
        """The bytes have ended."""
        ...


class EventStream:
    """Splits server-sent events; `DecoderBase` has removed a byte-order mark before them."""

    __slots__ = ("_carriage_return", "_kept", "_kept_bytes")

    def __init__(self) -> None:
        self._kept: list[bytes] = []
        """The pieces of an incomplete event; joining them each time would take quadratic time."""
        self._kept_bytes: int = 0
        self._carriage_return: bool = False
        """Whether the last byte was a CR; an LF right after it belongs to the same line break."""

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The events that these bytes complete, each as (name, data); the name is empty where none is given."""
        if b"\r" in data or self._carriage_return:
            data = self._with_plain_newlines(data)
        kept = self._kept
        if not kept and data.startswith(b"data: ") and data.find(b"\n") == len(data) - 2 and data.endswith(b"\n\n"):
            return [(b"", data[6:-2])]  # as most pieces are
        if b"\n\n" not in data and not (kept and data.startswith(b"\n") and kept[-1].endswith(b"\n")):
            if data:
                self._keep(data)
            return []
        if kept:
            kept.append(data)
            data = b"".join(kept)
            kept.clear()
            self._kept_bytes = 0
        *frames, rest = data.split(b"\n\n")
        if rest:
            self._keep(rest)
        return [event for frame in frames if (event := _parse(frame)) is not None]

    def finish(self) -> list[tuple[bytes, bytes]]:
        """The last event, if the blank line after it is missing."""
        frame = b"".join(self._kept)
        self._kept.clear()
        event = _parse(frame)
        return [] if event is None else [event]

    def _with_plain_newlines(self, data: bytes) -> bytes:
        if self._carriage_return and data.startswith(b"\n"):
            data = data[1:]
            self._carriage_return = False
        if data:
            self._carriage_return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _keep(self, rest: bytes) -> None:
        self._kept_bytes += len(rest)
        if self._kept_bytes > _MAX_EVENT_BYTES:
            message = f"A single event of the stream is longer than {_MAX_EVENT_BYTES} bytes."
            raise ProtocolError(message)
        self._kept.append(rest)


def _parse(frame: bytes) -> tuple[bytes, bytes] | None:
    # Nearly all events are one line of data, or a name and a line of data.
    if frame.startswith(b"data: "):
        if b"\n" not in frame:
            return b"", frame[6:]
    elif frame.startswith(b"event: "):
        name, _, line = frame.partition(b"\n")
        if line.startswith(b"data: ") and b"\n" not in line:
            return name[7:], line[6:]
    return _parse_lines(frame)


def _parse_lines(frame: bytes) -> tuple[bytes, bytes] | None:
    name = b""
    lines: list[bytes] = []
    for line in frame.split(b"\n"):
        field, colon, value = line.partition(b":")
        if colon and value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            lines.append(value)
        elif field == b"event":
            name = value
        elif field == b"error" and value.startswith(b"{"):  # GPUStack
            name = field
            lines.append(value)
    return (name, b"\n".join(lines)) if lines else None


class DecoderBase:
    """Reads one reply, a stream of events or one JSON document; the first byte tells which.

    A dialect implements `take_event` and `take_whole`, and has a `framing` if its streams are not server-sent events.
    """

    framing: ClassVar[type[Framing]] = EventStream

    def __init__(self, call: Call, encoded: Encoded) -> None:
        self.call: Call = call
        self.names: Mapping[str, str] = encoded.tool_names
        """Maps the names of tools back to their own."""
        self.ended: bool = False
        """Whether the last event was emitted."""
        self._stream: Framing | None = None
        self._begun: list[bytes] = []
        """The pieces of a whole reply, or of a beginning that does not tell yet which it is."""
        self._is_whole: bool = False

    @property
    def done(self) -> bool:
        return self.ended

    def take_event(self, name: bytes, payload: bytes, events: list[ReplyEvent]) -> None:
        """Take an event of a stream."""
        raise NotImplementedError

    def take_whole(self, body: bytes, events: list[ReplyEvent]) -> None:
        """Take a whole reply."""
        raise NotImplementedError

    def end_stream(self, events: list[ReplyEvent]) -> None:
        """The stream has ended without the dialect's end marker."""
        raise self.broken("the stream ended before the reply was complete")

    def break_off(self, events: list[ReplyEvent]) -> None:
        """The reply will not be completed: emit what is still held back."""

    def feed(self, data: bytes, events: list[ReplyEvent]) -> None:
        if self._stream is None:
            self._begun.append(data)
            begun = b"" if self._is_whole or not data else b"".join(self._begun).lstrip(BLANK)
            self._is_whole = self._is_whole or begun.startswith((b"{", b"["))
            if self._is_whole or not begun:
                return
            self._stream, self._begun, data = self.framing(), [], begun
        self._take(self._stream.feed(data), events)

    def finish(self, events: list[ReplyEvent]) -> None:
        if self.ended:
            return
        if self._stream is not None:
            self._take(self._stream.finish(), events)
        try:
            if self._stream is None:
                body = b"".join(self._begun).lstrip(BLANK)
                check_depth(body)
                self.take_whole(body, events)
            elif not self.ended:
                self.end_stream(events)
        except (*MALFORMED, ProtocolError) as error:
            raise self._explain(error, events) from None

    def _take(self, frames: Iterable[tuple[bytes, bytes]], events: list[ReplyEvent]) -> None:
        try:
            for name, payload in frames:
                if self.ended:
                    return
                check_depth(payload)
                self.take_event(name, payload, events)
        except (*MALFORMED, ProtocolError) as error:
            raise self._explain(error, events) from None

    def _explain(self, error: Exception, events: list[ReplyEvent]) -> ProtocolError:
        self.break_off(events)
        if not isinstance(error, ProtocolError):
            return self.broken(f"a part of it cannot be read ({error})")
        error.provider, error.model = self.call.profile.provider, self.call.model
        return error

    def broken(self, what: str) -> ProtocolError:
        """The error for a reply that violates the protocol."""
        provider, model = self.call.profile.provider, self.call.model
        message = f"The reply of {provider}:{model} cannot be used: {what}."
        return ProtocolError(message, provider=provider, model=model)
