"""From bytes to events: streams, whole replies, and what servers send in place of either.

Owns: telling a stream from a whole reply, the order of events in time, the end of a reply, errors inside of one.
Must not know: how parts of a message become events (reply.py does).

A reply is complete when a finish reason came. `[DONE]` alone is not enough, for a server may send it after it broke
off; with a count of tokens behind the last choice, which OpenAI's documentation says is missing when a stream is cut,
it is. The quirk `done_is_enough` takes `[DONE]` alone. Everything else is a ProtocolError, never a finished reply.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import ReplyEvent, TextDelta
from dragoman.errors import ProtocolError, ProviderError
from dragoman.providers.codec import Call, Encoded
from dragoman.providers.sse import EventStream

from .errors import error_in, says_error
from .reply import Reply
from .usage import usage_in
from .wire import CHUNK, document, elements, integer, is_nothing, members, string

__all__ = ["ChatDecoder"]

_BEFORE: Final = b" \t\r\n\xef\xbb\xbf"
"""What may stand before a reply: OpenRouter sends spaces to keep the connection, others a byte-order mark."""


# A struct, because one is made for every reply, and a struct is made at a third of the cost.
class ChatDecoder(Struct, eq=False):
    """Reads one reply."""

    _call: Call
    _encoded: Encoded
    _reply_so_far: Reply | None = None
    _stream: EventStream | None = None
    _body: list[bytes] = []
    """The pieces of a whole reply, or those in front of which it is not clear yet what they begin."""
    _at_boundary: bool = False
    """Whether the last piece of the stream ended with an event, so that the next one begins with one."""
    _counted: bool = False
    """Whether a count of tokens came behind the last choice."""
    _hot: bool = False
    """Whether plain chunks may take the short road: not the first one, and none behind a count."""
    _done: bool = False
    _is_whole: bool = False

    @property
    def _reply(self) -> Reply:
        """Made when it is needed: most whole replies do without."""
        reply = self._reply_so_far
        if reply is None:
            reply = self._reply_so_far = Reply(self._call, self._encoded.tool_names)
        return reply

    def feed(self, data: bytes, events: list[ReplyEvent]) -> None:
        try:
            # Nearly every piece of a stream is one event or several, and nearly every event is a piece of text. Both
            # are checked here and at the start of _chunk; whatever is different in any way takes the long road.
            if self._at_boundary and data.startswith(b"data: {") and data.endswith(b"}\n\n"):
                if data.find(b"\n", 7) == len(data) - 2:
                    self._chunk(data[6:-2], events)
                    return
                payloads = data[6:-2].split(b"\n\ndata: ")
                if data.count(b"\n") == 2 * len(payloads):
                    for payload in payloads:
                        if not self._done:
                            self._chunk(payload, events)
                    return
            if not self._body and self._stream is None and data.startswith(b"{"):
                self._is_whole = True
                self._body.append(data)
            else:
                self._feed_any(data, events)
        except ProtocolError as error:
            raise self._signed(error) from error.__cause__

    def _feed_any(self, data: bytes, events: list[ReplyEvent]) -> None:
        if self._stream is None:
            if self._is_whole:
                self._body.append(data)
                return
            data = self._begin(data)
            if self._stream is None:
                return
        for name, payload in self._stream.feed(data):
            self._event(name, payload, events)
        self._at_boundary = not self._done and data.endswith(b"\n\n")

    def finish(self, events: list[ReplyEvent]) -> None:
        if self._done:
            return
        try:
            if self._stream is None:
                self._whole(b"".join(self._body), events)
            else:
                self._finish_stream(self._stream, events)
        except ProtocolError as error:
            raise self._signed(error) from error.__cause__

    def _finish_stream(self, stream: EventStream, events: list[ReplyEvent]) -> None:
        try:
            for name, payload in stream.finish():
                self._event(name, payload, events)
        except ProtocolError as error:
            self._reply.break_off(events)
            raise _broken("the stream ended in the middle of an event") from error
        if self._done:
            return
        if not self._reply.started:
            raise _broken("it is neither JSON nor a stream of chunks")
        if not self._reply.finish_reason:
            self._reply.break_off(events)
            raise _broken("the stream ended before the reply was complete")
        self._complete(events)

    # --- streams ---

    def _begin(self, data: bytes) -> bytes:
        """Tell a stream from a whole reply by its first byte; the bytes to read as a stream, if it is one."""
        self._body.append(data)
        start = b"".join(self._body).lstrip(_BEFORE)
        if start:
            self._is_whole = start.startswith((b"{", b"["))
            if not self._is_whole:
                self._stream = EventStream()
                self._body.clear()
        return start

    def _event(self, name: bytes, payload: bytes, events: list[ReplyEvent]) -> None:
        if self._done:
            return
        if name == b"error":
            raise self._error(payload, events)
        if payload.strip():
            self._chunk(payload, events)

    def _chunk(self, payload: bytes, events: list[ReplyEvent]) -> None:
        reply = self._reply_so_far or self._reply
        if self._hot:
            try:
                choices = CHUNK(payload).choices
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                pass
            else:
                if len(choices) == 1:
                    choice = choices[0]
                    if not choice.finish_reason and not choice.index:
                        delta = choice.delta
                        if not delta.reasoning_details:
                            if delta.content and reply.text_index >= 0 and delta.tool_calls is None:
                                events.append(TextDelta(reply.text_index, "", delta.content))
                            else:
                                reply.delta(delta, events)
                            return
        if payload.strip() == b"[DONE]":
            self._end_of_stream(events)
        else:
            self._careful_chunk(document(payload), events)

    def _careful_chunk(self, fields: dict[str, Raw], events: list[ReplyEvent]) -> None:
        """A chunk, member by member."""
        if says_error(fields):
            self._take_usage(fields)
            self._reply.break_off(events)
            raise error_in(fields, self._call)
        choices = [members(raw) for raw in elements(fields.get("choices"))]
        if not self._reply.started and (choices or string(fields.get("id"))):
            self._start(fields, events)
        self._reply.extras.of_reply(fields)
        for choice in choices:
            if not integer(choice.get("index")):  # with several answers, the first one is the reply
                self._counted = False
                self._take_choice(choice, events)
        self._take_usage(fields)
        self._counted = self._counted or (not choices and "usage" in fields and self._reply.usage is not None)
        self._hot = self._reply.started and not self._counted

    def _start(self, fields: dict[str, Raw], events: list[ReplyEvent]) -> None:
        self._reply.start(string(fields.get("id")), string(fields.get("model")), events)

    def _take_choice(self, choice: dict[str, Raw], events: list[ReplyEvent], *, whole: bool = False) -> None:
        if "error" in choice and not is_nothing(choice["error"]):
            raise error_in(choice, self._call)
        reply = self._reply
        reply.extras.of_choice(choice)
        for name in ("message", "delta"):
            if name in choice and not is_nothing(choice[name]):
                reply.message(members(choice[name]), events, whole=whole)
                break
        reply.finish_reason = string(choice.get("finish_reason")) or reply.finish_reason
        self._take_usage(choice)  # Moonshot counts here

    def _take_usage(self, fields: dict[str, Raw]) -> None:
        self._reply.usage = usage_in(fields) or self._reply.usage

    def _end_of_stream(self, events: list[ReplyEvent]) -> None:
        """`[DONE]` came."""
        reply = self._reply
        enough = self._counted or "done_is_enough" in self._call.profile.quirks
        if not reply.finish_reason and not (reply.started and enough):
            reply.break_off(events)
            raise _broken("the server ended the stream without saying why the reply ended")
        self._complete(events)

    def _complete(self, events: list[ReplyEvent]) -> None:
        self._done, self._at_boundary = True, False
        self._reply.complete(events)

    # --- whole replies ---

    def _whole(self, body: bytes, events: list[ReplyEvent]) -> None:
        self._done = True
        self._take_usage(self._members_of_whole(body.lstrip(_BEFORE), events))
        self._reply.complete(events)

    def _members_of_whole(self, body: bytes, events: list[ReplyEvent]) -> dict[str, Raw]:
        """Read a whole reply, member by member; gives its members."""
        if not body:
            raise _broken("the reply is empty")
        if body.startswith(b"["):
            raise self._error(body, events)
        try:
            fields = document(body)
        except ProtocolError as error:
            raise _broken("the reply is cut off, or not JSON at all") from error
        if says_error(fields):
            raise error_in(fields, self._call)
        choices = [members(raw) for raw in elements(fields.get("choices"))]
        if not choices:
            raise _broken("the reply has no choices")
        self._start(fields, events)
        self._reply.extras.of_reply(fields)
        first = next((choice for choice in choices if not integer(choice.get("index"))), choices[0])
        self._take_choice(first, events, whole=True)
        return fields

    # --- errors ---

    def _error(self, payload: bytes, events: list[ReplyEvent]) -> ProviderError:
        self._reply.break_off(events)
        try:
            found = elements(Raw(payload)) if payload.startswith(b"[") else [Raw(payload)]
            return error_in(members(found[0]), self._call)
        except (ProtocolError, IndexError):
            return _broken(f"the server reports an error that is not JSON: {payload[:200]!r}")

    def _signed(self, error: ProtocolError) -> ProtocolError:
        error.provider, error.model = self._call.profile.provider, self._call.model
        return error


def _broken(what: str) -> ProtocolError:
    return ProtocolError(f"The reply cannot be used: {what}.")
