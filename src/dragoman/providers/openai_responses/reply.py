"""From the items of a reply to events: one reducer for streamed and whole replies.

Owns: which items are open, what became of each, and how a reply ends. An item that arrives whole is an item that is
added and done at once, so the two ways cannot differ.
Must not know: bytes and framing (decode.py), and how events become a message.

Items are found by `output_index`, else by id, else the last one is meant: there are servers that leave the index out,
use the same one for all items, or give an item another id in every event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Raw

from dragoman.conversation import (
    BlockReceived,
    Opaque,
    ReplyEvent,
    ReplyStarted,
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
from dragoman.providers.codec import Call

from .parts import BETWEEN_THOUGHTS, Item, Part, is_json, same_json, texts_of
from .pictures import picture_of
from .wire import READER, Event, encode, items_of, members_of, native, text_of, value_of

__all__ = ["Reply"]

_Growth = type[TextDelta] | type[ThinkingDelta] | type[ToolCallDelta]

# Where the text of a message's content part is, by the part's type.
_TEXT_MEMBER: Final[dict[str | None, str]] = {"output_text": "text", "refusal": "refusal"}


class Reply:
    """The reply so far."""

    __slots__ = (
        "_call",
        "_highest",
        "_items",
        "_next",
        "_order",
        "_own_names",
        "called",
        "ended",
        "id",
        "refused",
        "started",
    )

    def __init__(self, call: Call, own_names: Mapping[str, str]) -> None:
        self._call = call
        self._own_names = own_names
        self._items: dict[int | str | None, Item] = {}
        self._order: list[Item] = []
        self._next = 0
        self._highest = 0
        self.started = False
        self.ended = False
        self.id = ""
        self.called = False
        """Whether there is a complete call."""
        self.refused = False

    @property
    def items(self) -> list[Item]:
        """The items in the order in which they came."""
        return self._order

    def broken(self, what: str) -> ProtocolError:
        """The error for a reply that breaks the protocol."""
        where = f"{self._call.profile.provider}:{self._call.model}"
        return ProtocolError(
            f"The reply of {where} is not what the protocol allows: {what}.",
            provider=self._call.profile.provider,
            model=self._call.model,
        )

    def start(self, members: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        """Take in what the first event with a response object says; without any, nothing is known."""
        if self.started:
            return
        self.started = True
        self.id = text_of(members.get("id")) or ""
        provider = self._call.profile.provider
        events.append(ReplyStarted(provider, model=text_of(members.get("model")), id=self.id or None))

    # --- items come and go -------------------------------------------------------------------------------------------

    def add(self, index: int | None, raw: Raw, events: list[ReplyEvent]) -> Item:
        """An item begins. The same item added again changes nothing."""
        self.start({}, events)
        members = members_of(raw)
        item_id = text_of(members.get("id")) or ""
        kind = text_of(members.get("type")) or ""
        known = self._items.get(item_id if index is None else index)
        if known is not None and known.id == item_id and known.kind == kind and item_id:
            return known
        if index is not None and known is None and index < self._highest:
            raise self.broken("the items came in another order than they have")
        item = Item(kind, item_id, raw)
        self._items[item_id if index is None else index] = item
        self._highest = max(self._highest, index or 0)
        self._order.append(item)
        if kind == "reasoning":
            item.part = self._part(item_id)
            events.append(ThinkingStarted(item.part.index, item_id, READER))
        elif kind == "function_call":
            self._add_call(item, members, events)
        else:
            item.part = self._part(item_id)
        return item

    def finish(self, item: Item, raw: Raw, events: list[ReplyEvent]) -> None:
        """An item is complete, and this is all of it. Complete twice is complete."""
        if item.closed:
            return
        str(raw, "utf-8")  # raw JSON that is kept must be text; skipping over it does not prove that
        members = members_of(raw)
        kind = text_of(members.get("type")) or item.kind
        if kind != item.kind:
            raise self.broken(f"an item began as {item.kind!r} and ended as {kind!r}")
        item.closed = True
        self._FINISH.get(kind, Reply._finish_block)(self, item, members, raw, events)

    def find(self, index: int | None, item_id: str | None) -> Item | None:
        """The item that an event speaks of."""
        found = self._items.get(index) if index is not None else None
        if item_id and (found is None or (found.id and found.id != item_id)):
            found = next((item for item in reversed(self._order) if item.id == item_id), found)
        if found is None and index is None and self._order:
            return self._order[-1]
        return found

    # --- parts grow: the hot path ------------------------------------------------------------------------------------

    def grow_text(self, event: Event, events: list[ReplyEvent]) -> None:
        """A piece of a message's text, or of a refusal."""
        delta = event.delta
        if not delta:
            return
        item = self._items.get(event.output_index)  # None finds nothing: see _text_part
        part = item.texts.get(event.content_index) if item is not None else None
        if part is None:
            part = self._text_part(event, events)
        part.pieces.append(delta)
        events.append(TextDelta(part.index, part.id, delta))

    def grow_summary(self, event: Event, events: list[ReplyEvent]) -> None:
        """A piece of a summary of the model's thoughts."""
        self._grow_thinking(event, ("summary", event.summary_index or 0), events)

    def grow_thoughts(self, event: Event, events: list[ReplyEvent]) -> None:
        """A piece of the thoughts themselves, which open models give."""
        self._grow_thinking(event, ("content", event.content_index or 0), events)

    def grow_call(self, event: Event, events: list[ReplyEvent]) -> None:
        """A piece of a call's arguments."""
        item = self.find(event.output_index, event.item_id)
        part = item.part if item is not None and item.kind == "function_call" and not item.closed else None
        if part is None:
            raise self.broken("arguments came for a call that is not open")
        delta = event.delta
        if delta:
            part.pieces.append(delta)
            if part.started:
                events.append(ToolCallDelta(part.index, part.id, delta))

    def _grow_thinking(self, event: Event, source: tuple[str, int], events: list[ReplyEvent]) -> None:
        item = self.find(event.output_index, event.item_id)
        if item is None:
            added = Raw(encode({"type": "reasoning", "id": event.item_id or "", "summary": []}))
            item = self.add(event.output_index, added, events)
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
                part.pieces.append(BETWEEN_THOUGHTS)
                events.append(ThinkingDelta(part.index, part.id, BETWEEN_THOUGHTS))
            item.source = source
        part.pieces.append(delta)
        events.append(ThinkingDelta(part.index, part.id, delta))

    # --- messages ----------------------------------------------------------------------------------------------------

    def open_part(self, event: Event, events: list[ReplyEvent]) -> None:
        """A content part begins. Only texts are opened now; what else there may be arrives whole."""
        item = self.find(event.output_index, event.item_id)
        if item is None or item.kind != "message" or item.closed or not event.part:
            return
        if text_of(members_of(event.part).get("type")) in _TEXT_MEMBER:
            self._text_part(event, events)

    def _text_part(self, event: Event, events: list[ReplyEvent]) -> Part:
        item = self.find(event.output_index, event.item_id)
        if item is None:
            added = Raw(encode({"type": "message", "id": event.item_id or "", "role": "assistant"}))
            item = self.add(event.output_index, added, events)
        if item.kind != "message" or item.closed:
            raise self.broken("text came for an item that is not open")
        index = event.content_index or 0
        return item.texts.get(index) or self._open_text(item, index, events)

    def _open_text(self, item: Item, content_index: int, events: list[ReplyEvent]) -> Part:
        part = item.texts[content_index] = self._next_part(item)
        events.append(TextStarted(part.index, part.id))
        return part

    def _next_part(self, item: Item) -> Part:
        """The place of the next block of a message. The first was kept free, as other items may have begun since."""
        part, item.part = item.part, None
        return part or self._part(item.id)

    def _finish_message(self, item: Item, members: dict[str, Raw], raw: Raw, events: list[ReplyEvent]) -> None:
        content = items_of(members.pop("content", None))
        shell = Raw(encode(members))
        for place, part_raw in enumerate(content):
            fields = members_of(part_raw)
            kind = text_of(fields.get("type"))
            member = _TEXT_MEMBER.get(kind)
            text = text_of(fields.get(member)) if member is not None else None
            if member is None or text is None:
                whole = Raw(encode({**members, "content": [part_raw]}))
                events.append(BlockReceived(self._next_part(item).index, item.id, Opaque(READER, whole)))
                continue
            part = item.texts.get(place) or self._open_text(item, place, events)
            self._catch_up(part, text, TextDelta, events)
            del item.texts[place], fields[member]
            if kind == "output_text":
                del fields["type"]
            else:
                self.refused = True
            events.append(TextEnded(part.index, part.id, native({"item": shell, **fields})))
        # Texts that the finished item does not repeat.
        events += [TextEnded(part.index, part.id, native({"item": shell})) for part in item.texts.values()]
        if not content and not item.texts:
            events.append(BlockReceived(self._next_part(item).index, item.id, Opaque(READER, raw.copy())))
        item.texts = {}

    # --- reasoning ---------------------------------------------------------------------------------------------------

    def _finish_reasoning(self, item: Item, members: dict[str, Raw], _raw: Raw, events: list[ReplyEvent]) -> None:
        part = item.part
        assert part is not None
        read = item.source[0] if item.source else "content" if texts_of(members.get("content")) else "summary"
        self._catch_up(part, BETWEEN_THOUGHTS.join(texts_of(members.get(read))), ThinkingDelta, events)
        encrypted = text_of(members.get("encrypted_content"))
        kept = {k: v for k, v in members.items() if k != "type" and not (k == "encrypted_content" and encrypted)}
        events.append(ThinkingEnded(part.index, part.id, encrypted=encrypted or None, native=native(kept)))

    # --- calls -------------------------------------------------------------------------------------------------------

    def _add_call(self, item: Item, members: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        part = item.part = self._part(item.id)
        # Servers exist that name the tool only when the call is complete; its start then waits for that.
        part.started = bool(text_of(members.get("name")) and text_of(members.get("call_id")))
        if part.started:
            self._start_call(part, members, events)

    def _start_call(self, part: Part, members: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        part.started = True
        name = text_of(members.get("name")) or ""
        call_id = text_of(members.get("call_id")) or text_of(members.get("id")) or f"call_{self.id}_{part.index}"
        # Amazon's servers count calls anew in every reply (`call_0`), while a conversation needs one name a call.
        scoped = "reply_scoped_call_ids" in self._call.profile.quirks and self.id
        part.id = f"{self.id}:{call_id}" if scoped else call_id
        events.append(ToolCallStarted(part.index, part.id, self._own_names.get(name, name)))

    def _finish_call(self, item: Item, members: dict[str, Raw], _raw: Raw, events: list[ReplyEvent]) -> None:
        part = item.part
        assert part is not None
        if not part.started:
            self._start_call(part, members, events)
            if part.pieces:
                events.append(ToolCallDelta(part.index, part.id, "".join(part.pieces)))
        given = members.get("arguments")
        arguments = value_of(given)
        # A string by the protocol; some servers send the object itself.
        final = arguments if isinstance(arguments, str) else str(given, "utf-8") if arguments and given else ""
        self._catch_up(part, final, ToolCallDelta, events)
        if text_of(members.get("status")) == "incomplete":
            return  # cut off: without an end the call counts as partial and is never run
        self.called = True
        kept = {k: v for k, v in members.items() if k not in {"type", "call_id", "name", "arguments"}}
        events.append(ToolCallEnded(part.index, part.id, native(kept)))

    # --- all other items ---------------------------------------------------------------------------------------------

    def _finish_block(self, item: Item, members: dict[str, Raw], raw: Raw, events: list[ReplyEvent]) -> None:
        part = item.part
        assert part is not None
        block = picture_of(members) or Opaque(READER, raw.copy())
        events.append(BlockReceived(part.index, item.id, block))

    # --- the end -----------------------------------------------------------------------------------------------------

    def settle(self, output: list[Raw], events: list[ReplyEvent], *, complete: bool) -> None:
        """The reply ends with these items: finish what was added but never done.

        It is no mistake if the list is shorter than what was streamed (vLLM has sent none), or if the service never
        says that an item is done (OpenAI's lists of MCP tools).
        """
        by_id = {item.id: item for item in self._order if item.id}
        by_place = self._items if len(self._items) == len(self._order) else dict(enumerate(self._order))
        for place, raw in enumerate(output):
            members = members_of(raw)
            item = by_id.get(text_of(members.get("id")) or "") or by_place.get(place) or self.add(place, raw, events)
            if item.kind == (text_of(members.get("type")) or ""):
                self.finish(item, raw, events)
        for item in self._order:
            if not item.closed:
                self._abandon(item, events, complete=complete)

    def _abandon(self, item: Item, events: list[ReplyEvent], *, complete: bool) -> None:
        """An item that the service never finished: what was streamed of it must be all there is."""
        if item.kind == "function_call" and not (complete and item.part and is_json("".join(item.part.pieces))):
            if complete:
                raise self.broken("the reply is complete, but the arguments of a call are not")
            return
        members = members_of(item.added)
        for name in ("status", "encrypted_content"):  # of the beginning: no longer true, or not yet all of it
            members.pop(name, None)
        self.finish(item, Raw(encode(members)), events)

    # --- small things ------------------------------------------------------------------------------------------------

    def _part(self, part_id: str) -> Part:
        part = Part(self._next, part_id)
        self._next += 1
        return part

    def _catch_up(self, part: Part, final: str, growth: _Growth, events: list[ReplyEvent]) -> None:
        """Add what the finished item has beyond what was streamed. The two must not contradict each other."""
        so_far = "".join(part.pieces)
        if not final or final == so_far:
            return
        if final.startswith(so_far):
            events.append(growth(part.index, part.id, final[len(so_far) :]))
            return
        same = final.strip() == so_far.strip()  # some servers tidy the ends up in the finished item
        if not same and not (growth is ToolCallDelta and same_json(final, so_far)):
            raise self.broken("the pieces of an item are not what the finished item says")

    _Finish = Callable[["Reply", Item, dict[str, Raw], Raw, list[ReplyEvent]], None]
    _FINISH: Final[dict[str, _Finish]] = {
        "message": _finish_message,
        "reasoning": _finish_reasoning,
        "function_call": _finish_call,
    }
