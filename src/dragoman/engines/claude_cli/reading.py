"""From the claude program's messages to the events of one reply.

Owns: what belongs to a reply. The program may ask its model several times before it is our turn (it runs tools of its
own, goes on after a cut, corrects a structured answer); for us all of that is one reply, up to the model's next call of
one of our tools, or to the end of the turn.
Must not know: lines, processes, control requests (dialogue.py). What a message of the API says is read by its decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from dragoman.conversation import (
    BlockReceived,
    Completed,
    Native,
    Opaque,
    ReplyEvent,
    ReplyStarted,
    StopReason,
    TextDelta,
    TextEnded,
    TextStarted,
    ToolCall,
    ToolCallDelta,
    ToolCallEnded,
    ToolCallStarted,
    Usage,
    UsageReported,
)
from dragoman.providers.anthropic.decode import ReplyDecoder
from dragoman.providers.codec import Call
from dragoman.providers.structured import AnswerReader
from dragoman.providers.wire import read_members as members
from dragoman.providers.wire import read_text as text

from .failures import broke_off, malformed
from .mcp import PREFIX
from .names import PROVIDER

__all__ = ["STRUCTURED", "ReplyReader"]

STRUCTURED: Final = "StructuredOutput"
"""The tool by which the program has its model give a structured answer."""
_SYNTHETIC: Final = "<synthetic>"
"""The model of messages that the program made up itself, mostly to tell of a failure."""

_decode_list = msgspec.json.Decoder(list[Raw]).decode


class ReplyReader:
    """Reads one reply. Events are told as they come if it is streamed, else when a message of the model is whole."""

    def __init__(
        self,
        call: Call,
        names: Mapping[str, str],
        *,
        own_tools: Callable[[], frozenset[str]],
        structured: bool = False,
        answer: AnswerReader | None = None,
    ) -> None:
        self.calls: list[ToolCall] = []
        """The calls of our tools, as far as they are whole."""
        self.ids: set[str] = set()
        """The ids of all calls that the model has begun, also of those that are not whole."""
        self.complete: bool = False
        """Whether the model waits for our tools."""
        self._call: Call = call
        self._names: Mapping[str, str] = names
        self._own_tools: Callable[[], frozenset[str]] = own_tools
        self._structured: bool = structured
        self._answer: AnswerReader | None = answer
        self._held_back: bool = structured or not call.stream
        self._decoder: ReplyDecoder | None = None
        self._streamed: str | None = None
        """The id of the message that is, or was last, streamed."""
        self._whole: dict[str, Raw] = {}
        self._blocks: list[Raw] = []
        self._held: list[ReplyEvent] = []
        self._late: list[Raw] = []
        """Results of the program's own tools that came in the middle of a message."""
        self._pieces: dict[int, tuple[ToolCallStarted, list[str]]] = {}
        self._given: str | None = None
        """The arguments of the last structured answer, as the model wrote them."""
        self._offset: int = 0
        self._next: int = 0
        self._started: bool = False
        self._handed_on: bool = False
        self._usage: Usage | None = None
        self._usage_before: Usage | None = None
        self._stop: tuple[StopReason, str | None] = (StopReason.END, None)

    # --- a message while it arrives ---

    def stream(self, event: Raw, events: list[ReplyEvent]) -> None:
        """One event of the API's stream."""
        kind = _kind(event)
        if kind == "message_start":
            self.settle(events)
            self._begin_anew()
            self._streamed = text(members(members(event)["message"]).get("id"))
            self._decoder = ReplyDecoder(self._call, self._names)
        if self._decoder is None:
            return
        found: list[ReplyEvent] = []
        self._decoder.feed(b"data: " + bytes(event).replace(b"\r", b" ") + b"\n\n", found)
        self._take(found, events)

    def whole(self, message: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        """A message that may have been streamed before; if not, it comes block by block under one id."""
        id = text(message.get("id"))
        if id is not None and id == self._streamed:
            return
        if self._whole and text(self._whole.get("id")) != id:
            self.settle(events)
        if not self._whole:
            self._whole = {name: raw.copy() for name, raw in message.items()}
            self._blocks = []
        self._blocks += [raw.copy() for raw in _decode_list(message.get("content", Raw(b"[]")))]

    def settle(self, events: list[ReplyEvent], *, over: bool = False) -> None:
        """Nothing more will come of a message that was not streamed. What the program made up counts at the end."""
        message, blocks = self._whole, self._blocks
        if not message or self.complete:
            return
        made_up = text(message.get("model")) == _SYNTHETIC
        if made_up and not over:
            return
        self._whole, self._blocks = {}, []
        self._begin_anew()
        if text(message.get("stop_reason")) is None:
            calls = any(_kind(block) == "tool_use" for block in blocks)
            message["stop_reason"] = Raw(b'"tool_use"' if calls else b'"end_turn"')
        message["content"] = Raw(b"[" + b",".join([bytes(block) for block in blocks]) + b"]")
        found: list[ReplyEvent] = []
        decoder = ReplyDecoder(self._call, self._names)
        decoder.feed(msgspec.json.encode(message), found)
        decoder.finish(found)
        self._take(found, events)

    def _begin_anew(self) -> None:
        """Forget a message that broke off, if nobody has seen it."""
        if self._decoder is not None:
            if self._handed_on and not self._held_back:
                raise broke_off(self._call)
            self._decoder = None
            self._held.clear()
            self._pieces.clear()
            self.calls.clear()
            self._usage = self._usage_before
        self._usage_before = self._usage
        self._offset = self._next
        self._handed_on = False

    def _take(self, found: list[ReplyEvent], events: list[ReplyEvent]) -> None:
        into = self._held if self._held_back else events
        for event in found:
            if isinstance(event, Completed):
                self._end_message(event, events)
                return
            handler = self._HANDLERS.get(type(event))
            if handler is not None:
                handler(self, event, into)
                continue
            self._pass(event, into)

    def _pass(self, event: Any, into: list[ReplyEvent]) -> None:
        index = event.index + self._offset
        self._next = max(self._next, index + 1)
        self._handed_on = True
        into.append(event if self._offset == 0 else msgspec.structs.replace(event, index=index))

    def _start(self, event: ReplyStarted, into: list[ReplyEvent]) -> None:
        if not self._started:
            self._started = True
            into.append(event)

    def _count(self, event: UsageReported, into: list[ReplyEvent]) -> None:
        before = self._usage_before
        self._usage = event.usage if before is None else before + event.usage
        into.append(UsageReported(self._usage))

    def _start_call(self, event: ToolCallStarted, into: list[ReplyEvent]) -> None:
        name = event.name.removeprefix(PREFIX)
        ours = msgspec.structs.replace(event, name=name)
        self.ids.add(event.id)
        self._pieces[event.index] = (ours, [])
        if not self._is_own(ours):
            self._pass(ours, into)

    def _grow_call(self, event: ToolCallDelta, into: list[ReplyEvent]) -> None:
        started, pieces = self._pieces[event.index]
        pieces.append(event.arguments)
        if not self._is_own(started):
            self._pass(event, into)

    def _end_call(self, event: ToolCallEnded, into: list[ReplyEvent]) -> None:
        started, pieces = self._pieces.pop(event.index)
        arguments = "".join(pieces)
        if not self._is_own(started):
            self.calls.append(ToolCall(started.id, started.name, arguments))
            self._pass(event, into)
        elif started.name == STRUCTURED:
            self._given = arguments
        else:
            block = {"type": "tool_use", "id": started.id, "name": started.name, "input": _json(arguments)}
            self._pass(BlockReceived(event.index, event.id, Opaque(PROVIDER, Raw(msgspec.json.encode(block)))), into)

    def _is_own(self, call: ToolCallStarted) -> bool:
        return call.name in self._own_tools() or (self._structured and call.name == STRUCTURED)

    def _end_message(self, event: Completed, events: list[ReplyEvent]) -> None:
        self._decoder = None
        self._stop = (event.stop_reason, event.raw_stop_reason)
        if self._held_back:
            # Beside a structured answer there is no place for other texts; with calls of ours it is no answer yet.
            events += self._held if self.calls or not self._structured else self._accounts_only()
            self._held.clear()
        self._usage_before = self._usage
        late, self._late = self._late, []
        for block in late:
            self._append_late(block, events)
        if self.calls:
            self.complete = True
            self._stop = (StopReason.TOOL_CALLS, event.raw_stop_reason)

    def _accounts_only(self) -> list[ReplyEvent]:
        kept: list[ReplyEvent] = [event for event in self._held if isinstance(event, ReplyStarted | UsageReported)]
        self._next = self._offset
        return kept

    # --- what the program did itself ---

    def own_result(self, block: Raw, events: list[ReplyEvent]) -> None:
        """The result of a tool that the program ran itself."""
        if self._decoder is not None:
            self._late.append(block.copy())
        else:
            self._append_late(block.copy(), events)

    def _append_late(self, block: Raw, events: list[ReplyEvent]) -> None:
        if not self._structured:
            events.append(BlockReceived(self._next, "", Opaque(PROVIDER, block)))
            self._next += 1

    # --- the end ---

    def finish(self, result: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        """The turn is over, and well."""
        self.settle(events, over=True)
        if self._decoder is not None:
            raise malformed(self._call, "a turn ended in the middle of a message")
        if not self._started:
            self._started = True
            events.append(ReplyStarted(self._call.profile.provider, self._call.model))
        if self._structured:
            self._tell_answer(result, events)
        elif self._next == 0 and (said := text(result.get("result"))):
            self._tell(said, events)

    def _tell_answer(self, result: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        answer = result.get("structured_output")
        if answer is None or bytes(answer) == b"null":
            self._tell(text(result.get("result")) or "", events)
            return
        written = bytes(answer).decode()
        if self._given is not None and _json(self._given) == msgspec.json.decode(written):
            written = self._given  # the same value in the model's own spelling
        self._stop = (StopReason.END, self._stop[1])
        self._tell(written, events)

    def _tell(self, said: str, events: list[ReplyEvent]) -> None:
        index = self._next
        self._next += 1
        found: list[ReplyEvent] = [TextStarted(index, ""), TextDelta(index, "", said), TextEnded(index, "")]
        events += found if self._answer is None else self._answer.events(found)

    def ending(self, native: Native) -> Completed:
        """The last event."""
        return Completed(self._stop[0], self._stop[1], native)

    _HANDLERS: Final[Mapping[type[ReplyEvent], Callable[..., None]]] = {
        ReplyStarted: _start,
        UsageReported: _count,
        ToolCallStarted: _start_call,
        ToolCallDelta: _grow_call,
        ToolCallEnded: _end_call,
    }


def _kind(raw: Raw) -> str | None:
    return text(members(raw).get("type"))


def _json(written: str) -> object:
    try:
        return msgspec.json.decode(written) if written.strip() else {}
    except msgspec.MsgspecError:
        return written
