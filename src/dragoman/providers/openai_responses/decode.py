"""From bytes to events: streams of server-sent events, and whole replies.

An item that arrives whole is added and done at once, so streams and whole replies cannot differ.

Items are found by `output_index`, else by id, else the last one is meant: some servers omit the index, use the same one
for all items, or give an item another id in every event.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

import msgspec
from msgspec import Raw, Struct

from dragoman._decoding import measured_decoder_of
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
    Places,
    as_object,
    decode_base64,
    elements,
    is_empty,
    is_json,
    read_charge,
    read_counts,
    read_members,
    string,
    value_of,
)

from .history import READER, native_of
from .server_tools import read_use
from .waiting import WaitingItem, call_of, waiting_item

_encode: Final = msgspec.json.encode
_KEPT_EVENTS: Final = 100
"""How many events of unknown types are kept."""
_CUT_SHORT: Final = frozenset(["incomplete", "failed", "cancelled"])
# Events whose content the finished item repeats.
_PROGRESS: Final = re.compile(
    r"keepalive|response\.[\w.]+\.(added|compacting|completed|delta|done|failed|generating|in_progress|interpreting"
    r"|partial_image|searching)"
)


# One struct for all events, so that each is parsed once, with the members that any handler uses. Objects stay raw;
# `logprobs` and `obfuscation` of a delta are skipped (the finished item repeats the former, the latter is padding).
class Event(Struct, gc=False):
    type: str = ""
    delta: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    item_id: str | None = None
    item: Raw = ABSENT
    response: Raw = ABSENT
    error: Raw = ABSENT


_decode_event: Final = measured_decoder_of(Event).decode


# --- items while they grow --------------------------------------------------------------------------------------------

_BETWEEN_THOUGHTS: Final = "\n\n"
_SUMMARY: Final = "response.reasoning_summary_text.delta"
# The member that holds the text of a content part, by the part's type.
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
    """The item as it was added."""
    part: _Part
    """The block that it becomes; of a message, its first block."""
    closed: bool = False
    has_block: bool = False
    """Of a message: whether its first block has begun."""
    texts: dict[int | None, _Part] = {}
    """Of a message: its text parts by content index."""
    source: tuple[str, int] | None = None
    """Of reasoning: whether the summary or the thoughts themselves are read, and the index of the current one."""


class ReplyDecoder(DecoderBase):
    """Reads one reply: which items are open, and what becomes of each."""

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
        """Whether there is a complete call among the items."""
        self._refused: bool = False
        self._unknown: list[bytes] = []

    # --- streams ------------------------------------------------------------------------------------------------------

    def take_event(self, name: bytes, payload: bytes, events: list[ReplyEvent]) -> None:
        if payload[:1] != b"{":
            # `[DONE]`, which ends a stream of the older API, does not prove that this one is complete.
            if payload.strip(BLANK) not in {b"", b"[DONE]"}:
                raise self.broken("an event of the stream is not an object")
            return
        try:
            event = _decode_event(payload)
        except msgspec.ValidationError:
            # A member of an unexpected type is fatal only in a known event.
            event = Event(type=string(read_members(payload).get("type")))
            if event.type in self._HANDLERS:
                raise
        kind = event.type = event.type or name.decode()
        handler = self._HANDLERS.get(kind)
        if handler is not None:
            handler(self, event, events)
        elif kind == "error" or (event.error and not is_empty(event.error) and not kind.startswith("response.")):
            raise error_in(read_members(payload), self.call)
        elif _PROGRESS.fullmatch(kind) is None and len(self._unknown) < _KEPT_EVENTS:
            payload.decode()
            read_members(payload)
            self._unknown.append(bytes(payload))

    def end_stream(self, events: list[ReplyEvent]) -> None:
        begun = self._started
        raise self.broken("the stream ended before the reply did" if begun else "it is neither JSON nor a stream")

    def _begin(self, event: Event, events: list[ReplyEvent]) -> None:
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
        # The name of the event decides, but some servers call a reply completed that was cut short.
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
        """Read the first event with a response object; without any, nothing is known."""
        if not self._started:
            self._started = True
            self._id = string(members.get("id"))
            model = string(members.get("model")) or None
            events.append(ReplyStarted(self.call.profile.provider, model, self._id or None, self.call.time))

    def _close(self, members: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        status = string(members.get("status"))
        self._start(members, events)
        self._settle(elements(members.get("output")), events, complete=status not in _CUT_SHORT)
        usage = as_object(value_of(members.get("usage")))
        if usage:
            events.append(UsageReported(_read_usage(usage)))
        if status == "failed":
            raise error_in(members, self.call)
        stop, word = self._stop_reason(status, members)
        self.ended = True
        events.append(Completed(stop, word, _keep(members, usage, self._unknown)))

    def _stop_reason(self, status: str, members: Mapping[str, Raw]) -> tuple[StopReason, str | None]:
        if status == "incomplete":
            reason = as_object(value_of(members.get("incomplete_details"))).get("reason")
            word = reason if isinstance(reason, str) else status
            known = {"max_output_tokens": StopReason.MAX_TOKENS, "content_filter": StopReason.CONTENT_FILTER}
            return known.get(word, StopReason.OTHER), word
        if status == "cancelled":
            return StopReason.INTERRUPTED, status
        if status not in ("", "completed", "complete"):  # the last one from some compatible servers
            # A response that runs in the background is `queued` or `in_progress`.
            return StopReason.OTHER, status
        if self._refused:  # even beside calls, which are then not run
            return StopReason.REFUSAL, status or None
        return (StopReason.TOOL_CALLS if self._called else StopReason.END), status or None

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
            # Some servers name the tool only when the call is complete; its start then waits for that.
            part.started = bool(string(members.get("name")) and string(members.get("call_id")))
            if part.started:
                self._start_call(part, members, events)
        return item

    def _finish(self, item: _Item, raw: Raw, events: list[ReplyEvent]) -> None:
        """An item is complete. It may be reported twice."""
        if item.closed:
            return
        str(raw, "utf-8")  # raw members are kept without being parsed, and must be UTF-8
        members = read_members(raw)
        kind = string(members.get("type")) or item.kind
        if kind != item.kind:
            raise self.broken(f"an item began as {item.kind!r} and ended as {kind!r}")
        item.closed = True
        if kind == "message":
            self._finish_message(item, members, raw, events)
        elif kind == "reasoning":
            self._finish_reasoning(item, members, events)
        elif kind == "function_call":
            self._finish_call(item.part, members, events)
        elif (waits := waiting_item(members)) is not None:
            self._finish_waiting(waits, item.part, members, raw, events)
        else:
            block = _picture_of(members) or Opaque(READER, raw.copy(), read_use(members))
            events.append(BlockReceived(item.part.index, item.id, block))

    def _find(self, index: int | None, item_id: str | None) -> _Item | None:
        found = self._item_at.get(index) if index is not None else None
        if item_id and (found is None or (found.id and found.id != item_id)):
            found = self._item_of.get(item_id, found)
        if found is None and index is None and self._items:
            return self._items[-1]
        return found

    def _settle(self, output: list[Raw], events: list[ReplyEvent], *, complete: bool) -> None:
        """The reply ends with these items: finish those that were added but never done.

        The list may be shorter than what was streamed (vLLM's was empty), and some items are never reported as done
        (OpenAI's lists of MCP tools).
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
        """End an item that was never done: what was streamed must be all of it."""
        if item.kind == "function_call" and not (complete and is_json("".join(item.part.pieces))):
            if complete:
                raise self.broken("the reply is complete, but the arguments of a call are not")
            return
        members = read_members(item.added)
        if waiting_item(members) is not None:  # what was added may be incomplete
            if complete:
                raise self.broken(f"the reply is complete, but an item of type {item.kind!r} is not")
            return
        for name in ("status", "encrypted_content"):  # outdated, or incomplete
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
        """Add what the finished item has beyond what was streamed; raise if the two differ."""
        so_far = "".join(part.pieces)
        if not final or final == so_far:
            return
        if final.startswith(so_far):
            events.append(delta(part.index, part.id, final[len(so_far) :]))
            return
        same = final.strip() == so_far.strip()  # some servers strip the finished item
        if not same and not (delta is ToolCallDelta and _is_same_json(final, so_far)):
            raise self.broken("the pieces of an item are not what the finished item says")

    # --- messages -----------------------------------------------------------------------------------------------------

    def _grow_text(self, event: Event, events: list[ReplyEvent]) -> None:
        delta = event.delta
        if not delta:
            return
        item = self._item_at.get(event.output_index)
        part = item.texts.get(event.content_index) if item is not None else None
        if part is None:
            part = self._text_part(event, events)
        part.pieces.append(delta)
        events.append(TextDelta(part.index, part.id, delta))

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
        """The next block of a message. The index of the first is reserved, as other items may have begun since."""
        if item.has_block:
            return self._new_part(item.id)
        item.has_block = True
        return item.part

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
        """A piece of a summary, or of the thoughts themselves (open models)."""
        if event.type == _SUMMARY:
            source = ("summary", event.summary_index or 0)
        else:
            source = ("content", event.content_index or 0)
        item = self._find(event.output_index, event.item_id)
        if item is None:
            added = Raw(_encode({"type": "reasoning", "id": event.item_id or "", "summary": []}))
            item = self._add(event.output_index, added, events)
        if item.closed or item.kind != "reasoning":
            raise self.broken("thoughts came for an item that is not open")
        part, delta = item.part, event.delta
        if not delta:
            return
        if item.source != source:
            if item.source is not None and item.source[0] != source[0]:
                return  # of thoughts and summary the one that comes first is read, `native` keeps the other
            if part.pieces:
                part.pieces.append(_BETWEEN_THOUGHTS)
                events.append(ThinkingDelta(part.index, part.id, _BETWEEN_THOUGHTS))
            item.source = source
        part.pieces.append(delta)
        events.append(ThinkingDelta(part.index, part.id, delta))

    def _finish_reasoning(self, item: _Item, members: dict[str, Raw], events: list[ReplyEvent]) -> None:
        part = item.part
        read = item.source[0] if item.source else "content" if _texts_of(members.get("content")) else "summary"
        self._catch_up(part, _BETWEEN_THOUGHTS.join(_texts_of(members.get(read))), ThinkingDelta, events)
        encrypted = string(members.get("encrypted_content"))
        kept = {k: v for k, v in members.items() if k != "type" and not (k == "encrypted_content" and encrypted)}
        events.append(ThinkingEnded(part.index, part.id, encrypted=encrypted or None, native=native_of(kept)))

    # --- calls --------------------------------------------------------------------------------------------------------

    def _grow_call(self, event: Event, events: list[ReplyEvent]) -> None:
        item = self._find(event.output_index, event.item_id)
        if item is None or item.closed or item.kind != "function_call":
            raise self.broken("arguments came for a call that is not open")
        part, delta = item.part, event.delta
        if delta:
            part.pieces.append(delta)
            if part.started:
                events.append(ToolCallDelta(part.index, part.id, delta))

    def _start_call(self, part: _Part, members: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        part.started = True
        name = string(members.get("name"))
        call_id = string(members.get("call_id")) or string(members.get("id")) or f"call_{self._id}_{part.index}"
        # Amazon's servers count calls anew in every reply (`call_0`); ids must be unique in the conversation.
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
        # Some servers send an object instead of a string.
        final = arguments if isinstance(arguments, str) else str(given, "utf-8") if arguments and given else ""
        self._catch_up(part, final, ToolCallDelta, events)
        if string(members.get("status")) == "incomplete":
            return  # without an end the call counts as partial and is never run
        self._called = True
        kept = {k: v for k, v in members.items() if k not in {"type", "call_id", "name", "arguments"}}
        events.append(ToolCallEnded(part.index, part.id, native_of(kept)))

    def _finish_waiting(
        self, waits: WaitingItem, part: _Part, members: dict[str, Raw], raw: Raw, events: list[ReplyEvent]
    ) -> None:
        """An item that the client must answer becomes a call, which is sent back as the item."""
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
        **dict.fromkeys([f"response.{status}" for status in ("completed", *_CUT_SHORT)], _end),
    }


def _streamed_text(item: _Item, place: int, text: str) -> _Part | None:
    """The streamed text at this place. Amazon's deltas count from 1, the finished item from 0."""
    if place in item.texts:
        return item.texts[place]
    return next((part for part in item.texts.values() if part.pieces and text.startswith("".join(part.pieces))), None)


def _texts_of(parts: Raw | None) -> list[str]:
    """The texts in a list of summaries or thoughts, without empty ones."""
    texts = [string(read_members(part).get("text")) for part in elements(parts)]
    return [text for text in texts if text]


def _picture_of(members: dict[str, Raw]) -> Media | None:
    """The picture in an item, with the rest of the item as native field; None if there is none."""
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

_COUNTS: Final[Places] = {
    "input_tokens": "input",
    "output_tokens": "output",
    "total_tokens": "total",
    "input_tokens_details": {"cached_tokens": "cache_read", "cache_write_tokens": "cache_write"},
    "output_tokens_details": {"reasoning_tokens": "reasoning"},
}
# Members that repeat the request, or have a place in our values.
_NOT_KEPT: Final = """
    id object created_at completed_at model status output output_text error usage background frequency_penalty include
    instructions max_output_tokens max_tool_calls metadata parallel_tool_calls presence_penalty previous_response_id
    prompt prompt_cache_key prompt_cache_options prompt_cache_retention reasoning safety_identifier store stream
    stream_options temperature text tool_choice tools top_logprobs top_p truncation user
"""
_NAMES_NOT_KEPT: Final = frozenset(_NOT_KEPT.split())


def _read_usage(usage: dict[str, object]) -> Usage:
    return Usage(**read_counts(usage, _COUNTS), charged=read_charge(usage))


def _keep(members: Mapping[str, Raw], usage: dict[str, object], unknown_events: list[bytes]) -> Native | None:
    """What is kept of the response: members that are neither in the request nor in our values."""
    kept = {name: raw for name, raw in members.items() if name not in _NAMES_NOT_KEPT and not is_empty(raw)}
    if not usage.keys() <= _COUNTS.keys():
        kept["usage"] = members["usage"]
    if unknown_events:
        kept["events"] = Raw(b"[" + b",".join(unknown_events) + b"]")
    return native_of(kept) if kept else None
