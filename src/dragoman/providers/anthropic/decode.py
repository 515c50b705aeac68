"""From the bytes of a reply to events.

Owns: the order of a reply (start, blocks, usage, end), whole or as a stream; what counts as complete.
Must not know: what is inside a block (parts.py), and how a refusal is worded (errors.py).

The frequent events of a stream, deltas of text, thinking and arguments, are decoded straight into structs, and so are
most whole replies (whole.py). Everything else takes the careful way, as raw members, so that nothing we do not know is
lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import Completed, Native, ReplyEvent, ReplyStarted, UsageReported
from dragoman.errors import ProtocolError
from dragoman.providers.codec import Call
from dragoman.providers.sse import EventStream

from .ending import stop_reason_of, usage_of
from .errors import error_inside
from .parts import Part, open_part
from .wire import PIECES, READER, decode_delta, decode_piece, joined, known, members, number, text

__all__ = ["ReplyDecoder"]

_MALFORMED = (msgspec.MsgspecError, UnicodeError, RecursionError, KeyError)
_DELTA: Final = b"content_block_delta"
_BLANK: Final = b" \t\r\n\xef\xbb\xbf"  # also the bytes of a byte-order mark
_FIRST_OF_STREAM: Final = frozenset([b"e", b"d", b":"])
"""`event:`, `data:` or a comment: nothing that is JSON of a message begins so."""
_KEPT_EVENTS: Final = 100
"""How many events of unknown types a reply may keep."""

_decode_list = msgspec.json.Decoder(list[Raw]).decode


# A struct, because one is made for every reply, and a struct is made at a third of the cost.
class ReplyDecoder(Struct, eq=False):
    """Reads one reply."""

    _call: Call
    _names: Mapping[str, str]
    _undecided: bool = True
    _sse: EventStream | None = None
    """Set once it is known that the reply is a stream."""
    _body: list[bytes] = []
    """The reply so far, where it is not a stream or not yet known to be one."""
    _started: bool = False
    _done: bool = False
    _id: str | None = None
    _open: dict[int, Part] = {}
    _seen: set[int] = set()
    _usage: dict[str, Raw] = {}
    _extras: dict[str, Raw] = {}
    """Members of the reply that have no place in our events, and its stop reason until it ends."""

    def feed(self, data: bytes, events: list[ReplyEvent]) -> None:
        """Take in the next bytes; see Decoder."""
        if self._sse is None:
            self._body.append(data)
            if not self._undecided or not self._is_stream():
                return
            data = b"".join(self._body)
            self._body.clear()
            self._sse = EventStream()
        for name, payload in self._sse.feed(data):
            self._take(name, payload, events)

    def finish(self, events: list[ReplyEvent]) -> None:
        """The bytes have ended; see Decoder."""
        if self._sse is None:
            self._take_whole(b"".join(self._body), events)
            return
        for name, payload in self._sse.finish():
            self._take(name, payload, events)
        if not self._done:
            raise self._broken("the stream ended before the reply was complete")

    def _is_stream(self) -> bool:
        """Whether the first byte says so: a server may answer a request for a stream with plain JSON."""
        if len(self._body) == 1 and self._body[0].startswith(b"{"):  # as nearly all whole replies do
            self._undecided = False
            return False
        first = b"".join(self._body).lstrip(_BLANK)[:1]
        self._undecided = not first
        return first in _FIRST_OF_STREAM or (self._call.stream and first not in {b"", b"{"})

    # --- a stream ---

    def _take(self, name: bytes, payload: bytes, events: list[ReplyEvent]) -> None:
        if name == _DELTA or not name:
            try:
                event = decode_delta(payload)
            except (msgspec.MsgspecError, UnicodeError):
                pass  # not one of the frequent ones, or malformed: the careful way will tell
            else:
                part = self._open.get(event.index)
                if part is not None and part.grow(event.delta, events):
                    return
        try:
            payload.decode()  # members that are kept unread must be fit to be stored
            event = members(payload)
            kind = text(event.get("type")) or name.decode()
            self._HANDLERS.get(kind, ReplyDecoder._keep)(self, event, events)
        except _MALFORMED as error:
            raise self._broken(f"an event cannot be read ({error})") from None

    def _start(self, event: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        if self._started:
            raise self._broken("it started twice")
        message = members(event["message"])
        self._begin(message, events)
        for index, block in enumerate(_decode_list(message.get("content", Raw(b"[]")))):
            self._take_block(index, block, events)
        self._report(message.get("usage"), events)

    def _start_block(self, event: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        index = self._index(event)
        if index in self._seen or not self._started or self._done:
            raise self._broken(f"block {index} began out of order")
        self._seen.add(index)
        self._open[index] = open_part(index, members(event["content_block"]), events, self._id, self._names)

    def _grow_block(self, event: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        index = self._index(event)
        part = self._open.get(index)
        if part is None:
            raise self._broken(f"block {index} grew but was not open")
        delta = members(event["delta"])
        kind = text(delta.get("type"))
        if kind not in PIECES:
            part.merge(delta)
        elif not part.grow(decode_piece(event["delta"]), events):
            if not part.foreign:
                raise self._broken(f"block {index} got a {kind}, which is not of its kind")
            part.merge(delta)

    def _end_block(self, event: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        index = self._index(event)
        if index not in self._open:
            raise self._broken(f"block {index} ended but was not open")
        self._open.pop(index).end(events)

    def _change(self, event: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        """Late news of the reply as a whole: why it stopped and what it cost."""
        if not self._started:
            raise self._broken("it did not begin with its start")
        if self._done:
            return
        self._extras.update(known(members(event.get("delta", Raw(b"{}")))))
        self._extras.update(known(event, "type", "delta", "usage"))
        self._report(event.get("usage"), events)

    def _stop(self, _event: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        if self._done:
            return
        if self._open:
            raise self._broken(f"it ended while block {min(self._open)} was still open")
        self._complete(events)

    def _ping(self, _event: Mapping[str, Raw], _events: list[ReplyEvent]) -> None:
        """The provider keeps the connection alive."""

    def _fail(self, event: Mapping[str, Raw], _events: list[ReplyEvent]) -> None:
        if not self._done:
            raise error_inside(event, self._call)

    def _keep(self, event: Mapping[str, Raw], _events: list[ReplyEvent]) -> None:
        """An event of a type we do not know. The provider may add types at any time."""
        kept = _decode_list(self._extras.get("events", Raw(b"[]")))
        if len(kept) < _KEPT_EVENTS and not self._done:
            parts = [bytes(raw) for raw in kept] + [joined(event.items())]
            self._extras["events"] = Raw(b"[" + b",".join(parts) + b"]")

    # --- a whole reply ---

    def _take_whole(self, body: bytes, events: list[ReplyEvent]) -> None:
        try:
            body.decode()  # members that are kept unread must be fit to be stored
            message = members(body.removeprefix(b"\xef\xbb\xbf"))
            if text(message.get("type")) == "error":
                raise error_inside(message, self._call)
            blocks = _decode_list(message["content"])
            self._begin(message, events)
            for index, block in enumerate(blocks):
                self._take_block(index, block, events)
            self._report(message.get("usage"), events)
            self._complete(events)
        except _MALFORMED as error:
            raise self._broken(f"its body is not a message in JSON ({error})") from None

    def _take_block(self, index: int, block: Raw, events: list[ReplyEvent]) -> None:
        self._seen.add(index)
        open_part(index, members(block), events, self._id, self._names).end(events)

    # --- both ---

    def _begin(self, message: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        self._started = True
        self._id = text(message.get("id"))
        self._extras.update(known(message, "id", "type", "role", "model", "content", "usage"))
        events.append(ReplyStarted(self._call.profile.provider, text(message.get("model")), self._id))

    def _report(self, usage: Raw | None, events: list[ReplyEvent]) -> None:
        """Counts of a stream are running totals: a later one replaces an earlier one, and may leave some out."""
        if usage is None or bytes(usage) == b"null":
            return
        self._usage.update(known(members(usage)))
        events.append(UsageReported(usage_of(self._usage)))

    def _complete(self, events: list[ReplyEvent]) -> None:
        reason = text(self._extras.pop("stop_reason", None))
        if reason is None:
            raise self._broken("it ended without saying why")
        self._done = True
        if self._usage:
            self._extras["usage"] = Raw(joined(self._usage.items()))
        native = Native(READER, self._extras) if self._extras else None
        events.append(Completed(stop_reason_of(reason), reason, native))

    def _index(self, event: Mapping[str, Raw]) -> int:
        index = number(event["index"])
        if index is None:
            raise self._broken("an event does not say which block it is about")
        return index

    def _broken(self, what: str) -> ProtocolError:
        where = f"{self._call.profile.provider}:{self._call.model}"
        return ProtocolError(
            f"The reply of {where} cannot be used: {what}.",
            provider=self._call.profile.provider,
            model=self._call.model,
        )

    _HANDLERS: ClassVar[dict[str, Callable[[ReplyDecoder, Mapping[str, Raw], list[ReplyEvent]], None]]] = {
        "message_start": _start,
        "content_block_start": _start_block,
        "content_block_delta": _grow_block,
        "content_block_stop": _end_block,
        "message_delta": _change,
        "message_stop": _stop,
        "ping": _ping,
        "error": _fail,
    }
