"""Bytes of a reply → events.

Owns: the three forms in which a reply comes (one JSON object, server-sent events, a JSON array of chunks), the quick
way for chunks of plain text and the careful one for all others, and what makes a reply complete.
Must not know: what the parts of the content are.

A whole reply is one chunk. The form is told by the first byte: a proxy may answer a request for a stream with a whole
reply, or with the array that the API gives where events were not asked for. `Completed` comes when the bytes have
ended: a chunk with a finish reason is not always the last one.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
from msgspec import Raw, Struct, field

from dragoman.conversation import Completed, ReplyEvent, ReplyStarted, TextDelta, ThinkingDelta, UsageReported
from dragoman.errors import ProtocolError
from dragoman.providers.codec import Call, Encoded
from dragoman.providers.sse import EventStream

from .about import FINISH_UNKNOWN, About, stop_reason
from .errors import blocked, failed
from .json_array import ArrayStream
from .parts import Parts
from .wire import ABSENT, Chunk, decode_chunk, given_members, raw_list, text_of, text_or_none

__all__ = ["GeminiDecoder"]

_SPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
# All that reading bytes which somebody else wrote can raise.
_MALFORMED = (msgspec.MsgspecError, UnicodeError, RecursionError)

_BLOCK_UNKNOWN = "BLOCK_REASON_UNSPECIFIED"

_decode_index = msgspec.json.Decoder(int).decode


# A struct, because one is made for every reply, and a struct is made at a third of the cost.
class GeminiDecoder(Struct, eq=False):
    """Reads one reply."""

    _call: Call
    _encoded: Encoded
    _about: About = field(default_factory=About)
    _parts_so_far: Parts | None = None
    _started: bool = False
    _form: EventStream | ArrayStream | None = None
    """How the chunks are told apart; None for a whole reply, and before the first byte."""
    _head: bytes = b""
    """Bytes before the form is known."""
    _whole: list[bytes] | None = None

    @property
    def _parts(self) -> Parts:
        """Made when they are needed: most whole replies do without."""
        parts = self._parts_so_far
        if parts is None:
            parts = self._parts_so_far = Parts(self._encoded.tool_names, self._calls_before)
        return parts

    def feed(self, data: bytes, events: list[ReplyEvent]) -> None:
        """Take in the next bytes and append the events that they complete."""
        form = self._form
        if isinstance(form, EventStream):
            for _, chunk in form.feed(data):
                self._chunk(chunk, events)
        elif form is not None:
            for chunk in form.feed(data):
                self._chunk(chunk, events)
        elif self._whole is not None:
            self._whole.append(data)
        elif not self._head and data.startswith(b"{"):  # as nearly all whole replies do
            self._whole = [data]
        else:
            self._begin(self._head + data, events)

    def finish(self, events: list[ReplyEvent]) -> None:
        """The bytes have ended. Appends the last events; raises ProtocolError if the reply is not complete."""
        if isinstance(self._form, EventStream):
            for _, chunk in self._form.finish():
                self._chunk(chunk, events)
        elif isinstance(self._form, ArrayStream):
            if not self._form.complete:
                raise self._broken_off(events)
        elif self._whole is not None:
            self._chunk(b"".join(self._whole), events)
        about, parts = self._about, self._parts
        if about.finish is None and (self._whole is None or parts.empty):
            raise self._broken_off(events)
        parts.end(events)
        try:
            self._report_usage(events)
            native = about.native()
        except _MALFORMED as error:
            raise self._malformed(error) from None
        events.append(Completed(stop_reason(about.finish, calls=parts.calls > 0), about.finish, native))

    # --- the form ---

    def _begin(self, data: bytes, events: list[ReplyEvent]) -> None:
        """See what form the reply has, as soon as enough bytes are there to tell."""
        rest = data.removeprefix(_BOM).lstrip(_SPACE)
        if not rest or _BOM.startswith(rest):
            self._head = data
            return
        self._head = b""
        if rest.startswith(b"["):
            self._form = ArrayStream()
        elif self._call.stream and not rest.startswith(b"{"):
            self._form = EventStream()
        else:
            self._whole = []
        self.feed(rest, events)

    # --- chunks ---

    def _chunk(self, data: bytes, events: list[ReplyEvent]) -> None:
        try:
            chunk = decode_chunk(data)
        except _MALFORMED:
            self._any_chunk(data, events)
            return
        candidates = chunk.candidates
        candidate = candidates[0] if len(candidates) == 1 else None
        if candidate is None or candidate.index or len(candidate.groundingMetadata) > 2:
            self._any_chunk(data, events)
            return
        if chunk.usageMetadata is not ABSENT:
            self._about.usage = chunk.usageMetadata
        if not self._started:
            self._first_chunk(chunk, events)
        parts = self._parts_so_far or self._parts
        parts.first = True
        for part in candidate.content.parts:
            if parts.first and part.text and parts.open is part.thought:  # the usual case, without a call
                parts.first = False
                events.append((ThinkingDelta if part.thought else TextDelta)(parts.index, "", part.text))
            else:
                parts.piece(part.text, part.thought, events)

    def _any_chunk(self, data: bytes, events: list[ReplyEvent]) -> None:
        if data == b"[DONE]":  # not Google's, but proxies end their streams so
            return
        try:
            # Members are kept as slices, which nothing has looked into: what is not UTF-8 must not get that far.
            self._careful(given_members(data.decode()), events)
        except _MALFORMED as error:
            raise self._malformed(error) from None

    def _careful(self, chunk: dict[str, Raw], events: list[ReplyEvent]) -> None:
        error = chunk.pop("error", None)
        if error is not None:
            raise failed(self._call, msgspec.json.decode(error))
        candidates = chunk.pop("candidates", None)
        feedback = chunk.pop("promptFeedback", None)
        self._about.usage = chunk.pop("usageMetadata", self._about.usage)
        model, reply_id = chunk.pop("modelVersion", ABSENT), chunk.pop("responseId", ABSENT)
        if not self._started:
            self._start(model, reply_id, events)
        for name, raw in chunk.items():
            self._about.note(name, raw)
        self._parts.first = True
        given = raw_list(candidates) if candidates is not None else []
        for candidate in given:
            self._candidate(candidate, events)
        if feedback is not None:
            self._feedback(feedback, answered=bool(given))

    def _candidate(self, raw: Raw, events: list[ReplyEvent]) -> None:
        candidate = given_members(raw)
        if _decode_index(candidate.pop("index", b"0")) != 0:
            # One reply is one message. Further candidates, which only `extra_body` can ask for, are kept as they came.
            self._about.note("candidates", Raw(b"[" + bytes(raw) + b"]"))
            return
        content = candidate.pop("content", None)
        if content is not None:
            parts = given_members(content).get("parts")
            for part in raw_list(parts) if parts is not None else ():
                self._parts.part(part, events)
        finish = candidate.pop("finishReason", None)
        if finish is not None and (word := text_of(finish)) != FINISH_UNKNOWN:
            self._about.finish = word
        for name, member in candidate.items():
            self._about.note(name, member)

    def _feedback(self, raw: Raw, *, answered: bool) -> None:
        """What is said about the prompt: a blocked one has no reply, which is an error and never an empty answer."""
        reason = given_members(raw).get("blockReason")
        if reason is not None and not answered and text_of(reason) != _BLOCK_UNKNOWN:
            raise blocked(self._call, msgspec.json.decode(raw))
        self._about.note("promptFeedback", raw)

    # --- beginning and end ---

    def _first_chunk(self, chunk: Chunk, events: list[ReplyEvent]) -> None:
        try:
            self._start(chunk.modelVersion, chunk.responseId, events)
            if chunk.createTime is not ABSENT:
                self._about.note("createTime", chunk.createTime)
        except _MALFORMED as error:
            raise self._malformed(error) from None

    def _start(self, model: Raw, reply_id: Raw, events: list[ReplyEvent]) -> None:
        self._started = True
        call = self._call
        name = text_or_none(model) if model is not ABSENT else None
        own_id = text_or_none(reply_id) if reply_id is not ABSENT else None
        self._parts.of_reply(own_id)
        events.append(ReplyStarted(call.profile.provider, name or call.model, own_id or None))
        if self._about.usage is not ABSENT and (usage := self._about.first_usage()) is not None:
            events.append(UsageReported(usage))

    def _report_usage(self, events: list[ReplyEvent]) -> None:
        usage = self._about.last_usage()
        if usage is not None:
            events.append(UsageReported(usage))

    def _broken_off(self, events: list[ReplyEvent]) -> ProtocolError:
        with suppress(*_MALFORMED):  # the error that follows says more
            self._report_usage(events)
        return self._protocol_error("The reply broke off: it ended without a finish reason.")

    def _malformed(self, error: Exception) -> ProtocolError:
        return self._protocol_error(f"A part of the reply is not what the protocol allows: {error}.")

    def _protocol_error(self, message: str) -> ProtocolError:
        return ProtocolError(message, provider=self._call.profile.provider, model=self._call.model)

    def _calls_before(self) -> int:
        """How many tool calls the conversation has already."""
        return sum(len(message.tool_calls) for message in self._call.conversation.messages)
