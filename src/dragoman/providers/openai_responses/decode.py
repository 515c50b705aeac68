"""From bytes to events: streams of server-sent events, and whole replies.

Owns: telling a stream from a whole reply, the table of events, which items are open and what became of each, and that
nothing but a proper end counts as one. An item that arrives whole is an item that is added and done at once, so streams
and whole replies cannot differ.

Items are found by `output_index`, else by id, else the last one is meant: there are servers that leave the index out,
use the same one for all items, or give an item another id in every event.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import ClassVar, Final, cast

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import (
    BlockReceived,
    Completed,
    Media,
    Native,
    Opaque,
    ReplyEvent,
    ReplyStarted,
    StopReason,
    TextDelta,
    TextEnded,
    TextStarted,
    ThinkingDelta,
    ThinkingEnded,
    ThinkingStarted,
    ToolCallDelta,
    ToolCallEnded,
    ToolCallStarted,
    Usage,
    UsageReported,
)
from dragoman.providers.citations import cite, of_openai, read_citations
from dragoman.providers.codec import Call, Encoded
from dragoman.providers.failures import error_in
from dragoman.providers.wire import (
    ABSENT,
    BLANK,
    DecoderBase,
    as_object,
    count_of,
    decode_base64,
    elements,
    is_empty,
    is_json,
    read_charge,
    read_members,
    string,
    value_of,
)

from .history import READER, native_of
from .server_tools import use_of
from .waiting import WaitingItem, call_of, waiting_item

_encode: Final = msgspec.json.encode
_CUT_SHORT: Final = frozenset(["incomplete", "failed", "cancelled"])
# Events that say only what the finished item says again.
_PROGRESS: Final = re.compile(
    r"keepalive|response\.[\w.]+\.(added|compacting|completed|delta|done|failed|generating|in_progress|interpreting"
    r"|partial_image|searching)"
)


# One struct for all events, so that each is parsed once: the members that any handler looks at. Objects stay raw until
# a handler asks for them; `logprobs` and `obfuscation` of a delta are passed over (the finished item repeats the
# former, and the latter is only padding).
class Event(Struct, gc=False):
    type: str = ""
    delta: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    item_id: str | None = None
    item: Raw = ABSENT
    part: Raw = ABSENT
    response: Raw = ABSENT
    error: Raw = ABSENT


_decode_event: Final = msgspec.json.Decoder(Event).decode


# --- items while they grow --------------------------------------------------------------------------------------------

_BETWEEN_THOUGHTS: Final = "\n\n"
_SUMMARY: Final = "response.reasoning_summary_text.delta"
# Where the text of a message's content part is, by the part's type.
_TEXT_MEMBER: Final[dict[str | None, str]] = {"output_text": "text", "refusal": "refusal"}


class _Part(Struct, eq=False):
    """A text, a thought or a call while it grows."""

    index: int
    id: str
    pieces: list[str] = []
    started: bool = True


class _Item(Struct, eq=False):
    """An output item from when it was added until it is done."""

    kind: str
    id: str
    added: Raw
    """As it was when it was added: the best that is known of it until it is done."""
    part: _Part | None
    """The one block that it becomes; of a message, the place of its first, until that begins."""
    closed: bool = False
    texts: dict[int | None, _Part] = {}
    """Of a message: its text parts by content index."""
    source: tuple[str, int] | None = None
    """Of reasoning: whether summaries or the thoughts themselves are read, and up to which one."""


class ReplyDecoder(DecoderBase):
    """Reads one reply: which items are open, and what became of each."""

    def __init__(self, call: Call, encoded: Encoded) -> None:
        super().__init__(call, encoded)
        self._items: list[_Item] = []
        self._item_at: dict[int | str | None, _Item] = {}
        self._item_of: dict[str, _Item] = {}
        """By id, where they have one."""
        self._highest: int = 0
        self._next_index: int = 0
        self._id: str = ""
        self._started: bool = False
        self._called: bool = False
        """Whether there is a complete call."""
        self._refused: bool = False
        self._unknown: list[bytes] = []

    # --- streams ------------------------------------------------------------------------------------------------------

    def take_event(self, name: bytes, payload: bytes, events: list[ReplyEvent]) -> None:
        if payload[:1] != b"{":
            # `[DONE]` ends a stream of the older API; some servers send it here too. It proves nothing.
            if payload.strip(BLANK) not in {b"", b"[DONE]"}:
                raise self.broken("an event of the stream is not an object")
            return
        try:
            event = _decode_event(payload)
        except msgspec.ValidationError:
            # A known member of an unexpected type: fatal if we know the event, none of our business else.
            event = Event(type=string(read_members(payload).get("type")))
            if event.type in self._HANDLERS:
                raise
        kind = event.type = event.type or name.decode()
        handler = self._HANDLERS.get(kind)
        if handler is not None:
            handler(self, event, events)
        elif kind == "error" or (event.error and not is_empty(event.error) and not kind.startswith("response.")):
            raise error_in(read_members(payload), self.call)
        elif _PROGRESS.fullmatch(kind) is None:
            payload.decode()
            read_members(payload)
            self._unknown.append(bytes(payload))

    def end_stream(self, events: list[ReplyEvent]) -> None:
        begun = self._started
        raise self.broken("the stream ended before the reply did" if begun else "it is neither JSON nor a stream")

    def _begin(self, event: Event, events: list[ReplyEvent]) -> None:
        if self._items and not self._id:
            raise self.broken("it began after its first item")
        self._start(read_members(event.response) if event.response else {}, events)

    def _add_item(self, event: Event, events: list[ReplyEvent]) -> None:
        self._add(event.output_index, event.item, events)

    def _finish_item(self, event: Event, events: list[ReplyEvent]) -> None:
        item_id = string(read_members(event.item).get("id"))
        item = self._find(event.output_index, item_id or event.item_id)
        if item is None or (item.closed and event.output_index is None and item.id != item_id):
            item = self._add(event.output_index, event.item, events)
        self._finish(item, event.item, events)

    def _end(self, event: Event, events: list[ReplyEvent]) -> None:
        str(event.response, "utf-8")
        members = read_members(event.response) if event.response else {}
        # The event's name decides, except that a server may call a reply completed that was cut short.
        if string(members.get("status")) not in _CUT_SHORT:
            members["status"] = Raw(_encode(event.type.removeprefix("response.")))
        self._close(members, events)

    # --- whole replies, and the end of both ---------------------------------------------------------------------------

    def take_whole(self, body: bytes, events: list[ReplyEvent]) -> None:
        body.decode()
        members = read_members(body)
        if "output" in members:
            self._close(members, events)
        elif "error" in members:
            raise error_in(members, self.call)
        else:
            raise self.broken("the body has no output")

    def _start(self, members: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        """Take in what the first event with a response object says; without any, nothing is known."""
        if not self._started:
            self._started = True
            self._id = string(members.get("id"))
            model = string(members.get("model")) or None
            events.append(ReplyStarted(self.call.profile.provider, model, self._id or None, self.call.time))

    def _close(self, members: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        status = string(members.get("status"))
        self._start(members, events)
        self._settle(elements(members.get("output")), events, complete=status not in _CUT_SHORT)
        found = value_of(members.get("usage"))
        counts = cast("dict[str, object]", found) if isinstance(found, dict) else None
        if counts is not None:
            events.append(UsageReported(_read_usage(counts)))
        if status == "failed":
            raise error_in(members, self.call)
        stop, word = self._stop_reason(status, members)
        self.ended = True
        events.append(Completed(stop, word, _keep(members, counts, self._unknown)))

    def _stop_reason(self, status: str, members: Mapping[str, Raw]) -> tuple[StopReason, str | None]:
        if status == "incomplete":
            reason = as_object(value_of(members.get("incomplete_details"))).get("reason")
            word = reason if isinstance(reason, str) else status
            known = {"max_output_tokens": StopReason.MAX_TOKENS, "content_filter": StopReason.CONTENT_FILTER}
            return known.get(word, StopReason.OTHER), word
        if status == "cancelled":
            return StopReason.INTERRUPTED, status
        if status not in ("", "completed", "complete"):  # the last is what some compatible servers say
            # A response that runs in the background is `queued` or `in_progress`: nothing is wrong, but no answer.
            return StopReason.OTHER, status
        if self._called:
            return StopReason.TOOL_CALLS, status or None
        return (StopReason.REFUSAL if self._refused else StopReason.END), status or None

    # --- items come and go --------------------------------------------------------------------------------------------

    def _add(self, index: int | None, raw: Raw, events: list[ReplyEvent]) -> _Item:
        self._start({}, events)
        members = read_members(raw)
        item_id, kind = string(members.get("id")), string(members.get("type"))
        place = item_id if index is None else index
        known = self._item_at.get(place)
        if known is not None and known.id == item_id and known.kind == kind and item_id:
            return known
        if index is not None and known is None and index < self._highest:
            raise self.broken("the items came in another order than they have")
        part = self._new_part(item_id)
        item = self._item_at[place] = _Item(kind, item_id, raw, part)
        self._highest = max(self._highest, index or 0)
        self._items.append(item)
        if item_id:
            self._item_of[item_id] = item
        if kind == "reasoning":
            events.append(ThinkingStarted(part.index, item_id, READER))
        elif kind == "function_call":
            # Servers exist that name the tool only when the call is complete; its start then waits for that.
            part.started = bool(string(members.get("name")) and string(members.get("call_id")))
            if part.started:
                self._start_call(part, members, events)
        return item

    def _finish(self, item: _Item, raw: Raw, events: list[ReplyEvent]) -> None:
        """An item is complete, and this is all of it. Complete twice is complete."""
        if item.closed:
            return
        str(raw, "utf-8")  # raw JSON that is kept must be text; skipping over it does not prove that
        members = read_members(raw)
        kind = string(members.get("type")) or item.kind
        if kind != item.kind:
            raise self.broken(f"an item began as {item.kind!r} and ended as {kind!r}")
        item.closed = True
        if kind == "message":
            self._finish_message(item, members, raw, events)
        elif item.part is not None and kind == "reasoning":
            self._finish_reasoning(item, item.part, members, events)
        elif item.part is not None and kind == "function_call":
            self._finish_call(item.part, members, events)
        elif item.part is not None and (waits := waiting_item(members)) is not None:
            self._finish_waiting(waits, item.part, members, raw, events)
        elif item.part is not None:
            block = _picture_of(members) or Opaque(READER, raw.copy(), use_of(members))
            events.append(BlockReceived(item.part.index, item.id, block))

    def _find(self, index: int | None, item_id: str | None) -> _Item | None:
        found = self._item_at.get(index) if index is not None else None
        if item_id and (found is None or (found.id and found.id != item_id)):
            found = self._item_of.get(item_id, found)
        if found is None and index is None and self._items:
            return self._items[-1]
        return found

    def _settle(self, output: list[Raw], events: list[ReplyEvent], *, complete: bool) -> None:
        """The reply ends with these items: finish what was added but never done.

        It is no mistake if the list is shorter than what was streamed (vLLM has sent none), or if the service never
        says that an item is done (OpenAI's lists of MCP tools).
        """
        by_place = self._item_at if len(self._item_at) == len(self._items) else dict(enumerate(self._items))
        for place, raw in enumerate(output):
            members = read_members(raw)
            item = self._item_of.get(string(members.get("id"))) or by_place.get(place) or self._add(place, raw, events)
            if item.kind == (string(members.get("type"))):
                self._finish(item, raw, events)
        for item in self._items:
            if not item.closed:
                self._abandon(item, events, complete=complete)

    def _abandon(self, item: _Item, events: list[ReplyEvent], *, complete: bool) -> None:
        """An item that the service never finished: what was streamed of it must be all there is."""
        if item.kind == "function_call" and not (complete and item.part and is_json("".join(item.part.pieces))):
            if complete:
                raise self.broken("the reply is complete, but the arguments of a call are not")
            return
        members = read_members(item.added)
        if waiting_item(members) is not None:  # nobody knows whether what was added is all of it
            if complete:
                raise self.broken(f"the reply is complete, but an item of type {item.kind!r} is not")
            return
        for name in ("status", "encrypted_content"):  # of the beginning: no longer true, or not yet all of it
            members.pop(name, None)
        self._finish(item, Raw(_encode(members)), events)

    def _new_part(self, part_id: str) -> _Part:
        part = _Part(self._next_index, part_id)
        self._next_index += 1
        return part

    def _catch_up(
        self,
        part: _Part,
        final: str,
        delta: type[TextDelta | ThinkingDelta | ToolCallDelta],
        events: list[ReplyEvent],
    ) -> None:
        """Add what the finished item has beyond what was streamed. The two must not contradict each other."""
        so_far = "".join(part.pieces)
        if not final or final == so_far:
            return
        if final.startswith(so_far):
            events.append(delta(part.index, part.id, final[len(so_far) :]))
            return
        same = final.strip() == so_far.strip()  # some servers tidy the ends up in the finished item
        if not same and not (delta is ToolCallDelta and _is_same_json(final, so_far)):
            raise self.broken("the pieces of an item are not what the finished item says")

    # --- messages -----------------------------------------------------------------------------------------------------

    def _grow_text(self, event: Event, events: list[ReplyEvent]) -> None:
        delta = event.delta
        if not delta:
            return
        item = self._item_at.get(event.output_index)  # None finds nothing: see _text_part
        part = item.texts.get(event.content_index) if item is not None else None
        if part is None:
            part = self._text_part(event, events)
        part.pieces.append(delta)
        events.append(TextDelta(part.index, part.id, delta))

    def _open_part(self, event: Event, events: list[ReplyEvent]) -> None:
        """A content part begins. Only texts are opened now; what else there may be arrives whole."""
        item = self._find(event.output_index, event.item_id)
        if item is None or item.kind != "message" or item.closed or not event.part:
            return
        if string(read_members(event.part).get("type")) in _TEXT_MEMBER:
            self._text_part(event, events)

    def _text_part(self, event: Event, events: list[ReplyEvent]) -> _Part:
        item = self._find(event.output_index, event.item_id)
        if item is None:
            added = Raw(_encode({"type": "message", "id": event.item_id or "", "role": "assistant"}))
            item = self._add(event.output_index, added, events)
        if item.kind != "message" or item.closed:
            raise self.broken("text came for an item that is not open")
        index = event.content_index or 0
        return item.texts.get(index) or self._open_text(item, index, events)

    def _open_text(self, item: _Item, content_index: int, events: list[ReplyEvent]) -> _Part:
        part = item.texts[content_index] = self._next_part(item)
        events.append(TextStarted(part.index, part.id))
        return part

    def _next_part(self, item: _Item) -> _Part:
        """The place of the next block of a message. The first was kept free, as other items may have begun since."""
        part, item.part = item.part, None
        return part or self._new_part(item.id)

    def _finish_message(self, item: _Item, members: dict[str, Raw], raw: Raw, events: list[ReplyEvent]) -> None:
        content = elements(members.pop("content", None))
        shell = Raw(_encode(members))
        for place, part_raw in enumerate(content):
            fields = read_members(part_raw)
            kind = string(fields.get("type"))
            member = _TEXT_MEMBER.get(kind)
            if member is None or member not in fields:
                whole = Raw(_encode({**members, "content": [part_raw]}))
                events.append(BlockReceived(self._next_part(item).index, item.id, Opaque(READER, whole)))
                continue
            text = string(fields.pop(member))
            part = _streamed_text(item, place, text) or self._open_text(item, place, events)
            item.texts = {at: other for at, other in item.texts.items() if other is not part}
            self._catch_up(part, text, TextDelta, events)
            if kind == "output_text":
                del fields["type"]
            else:
                self._refused = True
            annotations = fields.get("annotations")
            if annotations is not None and not is_empty(annotations):
                events += cite({part.index: [text]}, read_citations(annotations, of_openai), part.id)
            events.append(TextEnded(part.index, part.id, native_of({"item": shell, **fields})))
        # Texts that the finished item does not repeat.
        events += [TextEnded(part.index, part.id, native_of({"item": shell})) for part in item.texts.values()]
        if not content and not item.texts:
            events.append(BlockReceived(self._next_part(item).index, item.id, Opaque(READER, raw.copy())))
        item.texts = {}

    # --- reasoning ----------------------------------------------------------------------------------------------------

    def _grow_thinking(self, event: Event, events: list[ReplyEvent]) -> None:
        """A piece of a summary, or of the thoughts themselves, which open models give."""
        if event.type == _SUMMARY:
            source = ("summary", event.summary_index or 0)
        else:
            source = ("content", event.content_index or 0)
        item = self._find(event.output_index, event.item_id)
        if item is None:
            added = Raw(_encode({"type": "reasoning", "id": event.item_id or "", "summary": []}))
            item = self._add(event.output_index, added, events)
        part = item.part
        if part is None or item.closed or item.kind != "reasoning":
            raise self.broken("thoughts came for an item that is not open")
        delta = event.delta
        if not delta:
            return
        if item.source != source:
            if item.source is not None and item.source[0] != source[0]:
                return  # both the thoughts and a summary: the one that came first is read, `native` keeps the other
            if part.pieces:
                part.pieces.append(_BETWEEN_THOUGHTS)
                events.append(ThinkingDelta(part.index, part.id, _BETWEEN_THOUGHTS))
            item.source = source
        part.pieces.append(delta)
        events.append(ThinkingDelta(part.index, part.id, delta))

    def _finish_reasoning(self, item: _Item, part: _Part, members: dict[str, Raw], events: list[ReplyEvent]) -> None:
        read = item.source[0] if item.source else "content" if _texts_of(members.get("content")) else "summary"
        self._catch_up(part, _BETWEEN_THOUGHTS.join(_texts_of(members.get(read))), ThinkingDelta, events)
        encrypted = string(members.get("encrypted_content"))
        kept = {k: v for k, v in members.items() if k != "type" and not (k == "encrypted_content" and encrypted)}
        events.append(ThinkingEnded(part.index, part.id, encrypted=encrypted or None, native=native_of(kept)))

    # --- calls --------------------------------------------------------------------------------------------------------

    def _grow_call(self, event: Event, events: list[ReplyEvent]) -> None:
        item = self._find(event.output_index, event.item_id)
        part = item.part if item is not None and item.kind == "function_call" and not item.closed else None
        if part is None:
            raise self.broken("arguments came for a call that is not open")
        delta = event.delta
        if delta:
            part.pieces.append(delta)
            if part.started:
                events.append(ToolCallDelta(part.index, part.id, delta))

    def _start_call(self, part: _Part, members: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        part.started = True
        name = string(members.get("name"))
        call_id = string(members.get("call_id")) or string(members.get("id")) or f"call_{self._id}_{part.index}"
        # Amazon's servers count calls anew in every reply (`call_0`), while a conversation needs one name a call.
        scoped = "reply_scoped_call_ids" in self.call.profile.quirks and self._id
        part.id = f"{self._id}:{call_id}" if scoped else call_id
        events.append(ToolCallStarted(part.index, part.id, self.names.get(name, name)))

    def _finish_call(self, part: _Part, members: dict[str, Raw], events: list[ReplyEvent]) -> None:
        if not part.started:
            self._start_call(part, members, events)
            if part.pieces:
                events.append(ToolCallDelta(part.index, part.id, "".join(part.pieces)))
        given = members.get("arguments")
        arguments = value_of(given)
        # A string by the protocol; some servers send the object itself.
        final = arguments if isinstance(arguments, str) else str(given, "utf-8") if arguments and given else ""
        self._catch_up(part, final, ToolCallDelta, events)
        if string(members.get("status")) == "incomplete":
            return  # cut off: without an end the call counts as partial and is never run
        self._called = True
        kept = {k: v for k, v in members.items() if k not in {"type", "call_id", "name", "arguments"}}
        events.append(ToolCallEnded(part.index, part.id, native_of(kept)))

    def _finish_waiting(
        self, waits: WaitingItem, part: _Part, members: dict[str, Raw], raw: Raw, events: list[ReplyEvent]
    ) -> None:
        """An item that the client must answer: a call, which goes back as the item that it was."""
        name, arguments, asks = call_of(waits, members)
        self._start_call(part, {**members, "name": Raw(_encode(name))}, events)
        events.append(ToolCallDelta(part.index, part.id, arguments))
        if string(members.get("status")) == "incomplete":
            return
        self._called = True
        hosted = waits.answer == "mcp_approval_response"
        events.append(ToolCallEnded(part.index, part.id, native_of({"item": raw}), hosted, asks))

    _HANDLERS: ClassVar[dict[str, Callable[[ReplyDecoder, Event, list[ReplyEvent]], None]]] = {
        "response.output_text.delta": _grow_text,
        "response.refusal.delta": _grow_text,
        "response.function_call_arguments.delta": _grow_call,
        _SUMMARY: _grow_thinking,
        "response.reasoning_text.delta": _grow_thinking,
        "response.created": _begin,
        "response.queued": _begin,
        "response.in_progress": _begin,
        "response.output_item.added": _add_item,
        "response.output_item.done": _finish_item,
        "response.content_part.added": _open_part,
        **dict.fromkeys([f"response.{status}" for status in ("completed", *_CUT_SHORT)], _end),
    }


def _streamed_text(item: _Item, place: int, text: str) -> _Part | None:
    """What was streamed of a text. Amazon counts from 1 what stands at 0 in the finished item."""
    if place in item.texts:
        return item.texts[place]
    return next((part for part in item.texts.values() if part.pieces and text.startswith("".join(part.pieces))), None)


def _texts_of(parts: Raw | None) -> list[str]:
    """The texts in a list of summaries or thoughts, without empty ones."""
    texts = [string(read_members(part).get("text")) for part in elements(parts)]
    return [text for text in texts if text]


def _picture_of(members: dict[str, Raw]) -> Media | None:
    """The picture that the model made, with the rest of its item beside it; None where the item holds none."""
    if string(members.get("type")) != "image_generation_call":
        return None
    data = decode_base64([string(members.get("result"))])
    if not data:
        return None
    kind = string(members.get("output_format")) or "png"
    item = Raw(_encode({name: raw for name, raw in members.items() if name != "result"}))
    picture = Media.from_bytes(data, f"image/{'svg+xml' if kind == 'svg' else kind}")
    return msgspec.structs.replace(picture, native=native_of({"item": item}))


def _is_same_json(a: str, b: str) -> bool:
    try:
        return bool(msgspec.json.decode(a) == msgspec.json.decode(b))
    except msgspec.DecodeError:
        return False


# --- the end of a reply -----------------------------------------------------------------------------------------------

_USAGE: Final = frozenset(
    ["input_tokens", "input_tokens_details", "output_tokens", "output_tokens_details", "total_tokens"]
)
# What the caller knows because the request said it, and what has a place of its own in our values.
_NOT_KEPT: Final = """
    id object created_at completed_at model status output output_text error usage background frequency_penalty include
    instructions max_output_tokens max_tool_calls metadata parallel_tool_calls presence_penalty previous_response_id
    prompt prompt_cache_key prompt_cache_options prompt_cache_retention reasoning safety_identifier store stream
    stream_options temperature text tool_choice tools top_logprobs top_p truncation user
"""
_NAMES_NOT_KEPT: Final = frozenset(_NOT_KEPT.split())


def _read_usage(counts: dict[str, object]) -> Usage:
    read, written = as_object(counts.get("input_tokens_details")), as_object(counts.get("output_tokens_details"))
    return Usage(
        input=count_of(counts.get("input_tokens")),
        output=count_of(counts.get("output_tokens")),
        cache_read=count_of(read.get("cached_tokens")),
        cache_write=count_of(read.get("cache_write_tokens")),
        reasoning=count_of(written.get("reasoning_tokens")),
        total=count_of(counts.get("total_tokens")),
        charged=read_charge(counts) if "cost" in counts else None,
    )


def _keep(members: Mapping[str, Raw], counts: dict[str, object] | None, unknown_events: list[bytes]) -> Native | None:
    """What is kept of the response beside the message: what neither the request nor our values say."""
    kept = {name: raw for name, raw in members.items() if name not in _NAMES_NOT_KEPT and not is_empty(raw)}
    if counts is not None and not counts.keys() <= _USAGE:
        kept["usage"] = members["usage"]
    if unknown_events:
        kept["events"] = Raw(b"[" + b",".join(unknown_events) + b"]")
    return native_of(kept) if kept else None
