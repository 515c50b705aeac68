"""From bytes to events: streams of server-sent events, and whole replies.

Owns: telling a stream from a whole reply, the table of events, and that nothing but a proper end counts as one.
Must not know: what becomes of items (reply.py), and how a reply's end is read (ending.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Final

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import Completed, ReplyEvent, UsageReported
from dragoman.errors import ProviderError
from dragoman.providers.codec import Call, Encoded
from dragoman.providers.sse import EventStream

from .ending import kept_of, stop_of, usage_of
from .errors import reported_error
from .reply import Reply
from .wire import Event, decode_event, items_of, members_of, text_of

__all__ = ["ReplyDecoder"]

_BLANK: Final = b" \t\r\n"
_STREAM_STARTS: Final = (b"event:", b"data:", b"id:", b"retry:", b":")
_CUT_SHORT: Final = frozenset(["incomplete", "failed", "cancelled"])
_MALFORMED: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


_Handle = Callable[[Reply, Event, list[ReplyEvent]], None]
_HOT: Final[dict[str, _Handle]] = {
    "response.output_text.delta": Reply.grow_text,
    "response.refusal.delta": Reply.grow_text,
    "response.function_call_arguments.delta": Reply.grow_call,
    "response.reasoning_summary_text.delta": Reply.grow_summary,
    "response.reasoning_text.delta": Reply.grow_thoughts,
}

# Events that say only what the finished item says again.
_PROGRESS: Final = frozenset([
    "keepalive",
    "response.content_part.done",
    "response.output_text.done",
    "response.output_text.annotation.added",
    "response.refusal.done",
    "response.function_call_arguments.done",
    "response.reasoning_text.done",
    *(f"response.reasoning_summary_{what}" for what in ("part.added", "part.done", "text.done")),
    *(f"response.audio.{what}" for what in ("delta", "done", "transcript.delta", "transcript.done")),
    *(f"response.custom_tool_call_input.{what}" for what in ("delta", "done")),
    *(f"response.code_interpreter_call_code.{what}" for what in ("delta", "done")),
    *(f"response.code_interpreter_call.{what}" for what in ("in_progress", "interpreting", "completed")),
    *(f"response.file_search_call.{what}" for what in ("in_progress", "searching", "completed")),
    *(f"response.web_search_call.{what}" for what in ("in_progress", "searching", "completed")),
    *(f"response.image_generation_call.{w}" for w in ("in_progress", "generating", "partial_image", "completed")),
    *(f"response.mcp_call_arguments.{what}" for what in ("delta", "done")),
    *(f"response.mcp_call.{what}" for what in ("in_progress", "completed", "failed")),
    *(f"response.mcp_list_tools.{what}" for what in ("in_progress", "completed", "failed")),
    *(f"response.shell_call_command.{what}" for what in ("added", "delta", "done")),
    *(f"response.shell_call_output_content.{what}" for what in ("delta", "done")),
    "response.compaction.compacting",
])  # fmt: skip


# A struct, because one is made for every reply, and a struct is made at a third of the cost.
class ReplyDecoder(Struct, eq=False):
    """Reads one reply."""

    _call: Call
    _encoded: Encoded
    _reply_so_far: Reply | None = None
    _stream_so_far: EventStream | None = None
    _sniffed: bool = False
    _whole: bool = False
    """Whether it was seen, when a stream was asked for, that this is none."""
    _body: list[bytes] = []
    _unknown: list[bytes] = []

    @property
    def _reply(self) -> Reply:
        """Made when it is needed: most whole replies do without."""
        reply = self._reply_so_far
        if reply is None:
            reply = self._reply_so_far = Reply(self._call, self._encoded.tool_names)
        return reply

    @property
    def _stream(self) -> EventStream:
        stream = self._stream_so_far
        if stream is None:
            stream = self._stream_so_far = EventStream()
        return stream

    def feed(self, data: bytes, events: list[ReplyEvent]) -> None:
        """Take in the next bytes and append the events that they complete."""
        if not self._call.stream:
            self._body.append(data)
            return
        if not self._sniffed:
            self._sniff(data)
        if self._whole:
            self._body.append(data)
        else:
            self._read((self._stream_so_far or self._stream).feed(data), events)

    def finish(self, events: list[ReplyEvent]) -> None:
        """The bytes have ended. Raises ProtocolError if the reply has not."""
        if self._whole or not self._call.stream:
            body = b"".join(self._body)
            if not body.lstrip(_BLANK).startswith(_STREAM_STARTS):
                self._read_whole(body, events)
                return
            self._read(self._stream.feed(body), events)  # a stream that nobody asked for
        self._read(self._stream.finish(), events)
        if not self._reply.ended:
            raise self._reply.broken("the stream ended before the reply did")

    def _sniff(self, data: bytes) -> None:
        """A server may answer a request for a stream with a plain object; no stream begins like one."""
        begin = data.lstrip(_BLANK)
        if begin:
            self._sniffed = True
            self._whole = begin.startswith(b"{")

    # --- streams -----------------------------------------------------------------------------------------------------

    def _read(self, frames: Iterable[tuple[bytes, bytes]], events: list[ReplyEvent]) -> None:
        reply = self._reply
        try:
            for name, payload in frames:
                if reply.ended:
                    return
                if payload[:1] != b"{":
                    self._read_odd(payload)
                    continue
                try:
                    event = decode_event(payload)
                except msgspec.ValidationError:
                    event = self._loosely(payload)
                handle = _HOT.get(event.type)
                if handle is not None:
                    handle(reply, event, events)
                else:
                    self._read_rare(event, name, payload, events)
        except _MALFORMED as error:
            raise reply.broken(f"an event of the stream is malformed ({error})") from None

    def _read_odd(self, payload: bytes) -> None:
        # `[DONE]` ends a stream of the older API; some servers send it here too. It proves nothing.
        if payload.strip(_BLANK) not in {b"", b"[DONE]"}:
            raise self._reply.broken("an event of the stream is not an object")

    def _loosely(self, payload: bytes) -> Event:
        """An event with a known member of an unexpected type: fatal if we know the event, none of our business else."""
        kind = text_of(members_of(payload).get("type")) or ""
        if kind in _HOT or kind in self._RARE:
            raise self._reply.broken(f"the event {kind} is malformed")
        return Event(type=kind)

    def _read_rare(self, event: Event, name: bytes, payload: bytes, events: list[ReplyEvent]) -> None:
        kind = event.type or name.decode()
        if kind in _HOT:  # the type stands only in the line `event:`
            _HOT[kind](self._reply, event, events)
        elif kind in self._RARE:
            self._RARE[kind](self, event, events)
        elif kind == "error" or (bytes(event.error) not in {b"", b"null"} and not kind.startswith("response.")):
            raise reported_error(self._call, members_of(payload))
        elif kind not in _PROGRESS:
            payload.decode()
            members_of(payload)
            self._unknown.append(bytes(payload))

    def _begin(self, event: Event, events: list[ReplyEvent]) -> None:
        if self._reply.items and not self._reply.id:
            raise self._reply.broken("it began after its first item")
        self._reply.start(members_of(event.response) if event.response else {}, events)

    def _add(self, event: Event, events: list[ReplyEvent]) -> None:
        self._reply.add(event.output_index, event.item, events)

    def _done(self, event: Event, events: list[ReplyEvent]) -> None:
        reply = self._reply
        item_id = text_of(members_of(event.item).get("id"))
        item = reply.find(event.output_index, item_id or event.item_id)
        if item is None or (item.closed and event.output_index is None and item.id != item_id):
            item = reply.add(event.output_index, event.item, events)
        reply.finish(item, event.item, events)

    def _open_part(self, event: Event, events: list[ReplyEvent]) -> None:
        self._reply.open_part(event, events)

    def _completed(self, event: Event, events: list[ReplyEvent]) -> None:
        self._end(event, "completed", events)

    def _incomplete(self, event: Event, events: list[ReplyEvent]) -> None:
        self._end(event, "incomplete", events)

    def _failed(self, event: Event, events: list[ReplyEvent]) -> None:
        self._end(event, "failed", events)

    def _cancelled(self, event: Event, events: list[ReplyEvent]) -> None:
        self._end(event, "cancelled", events)

    def _end(self, event: Event, status: str, events: list[ReplyEvent]) -> None:
        str(event.response, "utf-8")
        members = members_of(event.response) if event.response else {}
        # The event's name decides, except that a server may call a reply completed that was cut short.
        if text_of(members.get("status")) not in _CUT_SHORT:
            members["status"] = Raw(msgspec.json.encode(status))
        self._close(members, events)

    # --- whole replies -----------------------------------------------------------------------------------------------

    def _read_whole(self, body: bytes, events: list[ReplyEvent]) -> None:
        try:
            body.decode()
            members = members_of(body)
            if "output" not in members:
                raise self._not_a_reply(members)
            self._close(members, events)
        except _MALFORMED as error:
            raise self._reply.broken(f"the body is not the JSON of a response ({error})") from None

    def _not_a_reply(self, members: Mapping[str, Raw]) -> ProviderError:
        if "error" in members:
            return reported_error(self._call, members)
        return self._reply.broken("the body has no output")

    # --- the end of both ---------------------------------------------------------------------------------------------

    def _close(self, members: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        reply = self._reply
        status = text_of(members.get("status"))
        reply.start(members, events)
        reply.settle(items_of(members.get("output")), events, complete=status not in _CUT_SHORT)
        usage = usage_of(members)
        if usage is not None:
            events.append(UsageReported(usage))
        if status == "failed":
            raise reported_error(self._call, members)
        stop, raw_stop = stop_of(members, called=reply.called, refused=reply.refused)
        reply.ended = True
        events.append(Completed(stop, raw_stop, kept_of(members, self._unknown)))

    _RARE: ClassVar[dict[str, Callable[[ReplyDecoder, Event, list[ReplyEvent]], None]]] = {
        "response.created": _begin,
        "response.queued": _begin,
        "response.in_progress": _begin,
        "response.output_item.added": _add,
        "response.output_item.done": _done,
        "response.content_part.added": _open_part,
        "response.completed": _completed,
        "response.incomplete": _incomplete,
        "response.failed": _failed,
        "response.cancelled": _cancelled,
    }
