"""From the claude program's messages to the events of one reply, or to a typed error.

The program may call its model several times before it is our turn: it runs its own tools, continues after a cut,
corrects a structured answer. For us all of that is one reply, up to a call of one of our tools or the end of the turn.
Messages of the API are read by the API's decoder.
"""

from __future__ import annotations

from collections.abc import Mapping, Set as AbstractSet
from typing import Any, Final, cast

import msgspec
from msgspec import Raw, Struct

from dragoman._decoding import decode
from dragoman.conversation import (
    CUT_OFF,
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
from dragoman.errors import (
    AuthenticationError,
    ConnectionFailedError,
    ProtocolError,
    ProviderError,
    RequestTimeoutError,
)
from dragoman.providers import AnswerReader, Call, Encoded, ReplyDecoder, WireRequest, failure

PROVIDER: Final = "claude-local"
PREFIX: Final = "mcp__dragoman__"
"""The program's prefix for the names of our tools."""
STRUCTURED: Final = "StructuredOutput"
"""The tool with which the program's model gives a structured answer."""
_SYNTHETIC: Final = "<synthetic>"
"""The model of messages that the program wrote itself, mostly to report a failure."""


class ReplyReader(Struct, eq=False):
    """Reads one reply. If it is not streamed, events are held back until the model's message is complete."""

    call: Call
    names: Mapping[str, str]
    own_tools: AbstractSet[str]
    structured: bool = False
    answer: AnswerReader | None = None
    calls: list[ToolCall] = []
    """The complete calls of our tools."""
    ids: set[str] = set()
    """The ids of all calls that the model has begun."""
    complete: bool = False
    """Whether the model waits for our tools."""
    _decoder: ReplyDecoder | None = None
    _streamed: str | None = None
    """The id of the last message that was streamed."""
    _whole: dict[str, Any] = {}
    """A message that was not streamed, as far as it has arrived."""
    _held: list[ReplyEvent] = []
    _late: list[dict[str, Any]] = []
    """Results of the program's own tools that arrived in the middle of a message."""
    _pieces: dict[int, tuple[ToolCallStarted, list[str]]] = {}
    _structured_answer: str | None = None
    """The last one, as the model wrote it."""
    _offset: int = 0
    _next: int = 0
    _started: bool = False
    _passed_on: bool = False
    _usage: Usage | None = None
    _usage_before: Usage | None = None
    _stop: tuple[StopReason, str | None] = (StopReason.END, None)

    @property
    def _held_back(self) -> bool:
        return self.structured or not self.call.stream

    def _new_decoder(self) -> ReplyDecoder:
        return ReplyDecoder(self.call, Encoded(request=WireRequest(path="", body=b""), tool_names=self.names))

    def stream(self, event: dict[str, Any], events: list[ReplyEvent]) -> None:
        """Take the next event of a streamed message."""
        if event["type"] == "message_start":
            self.settle(events)
            self._start_message()
            self._streamed = event["message"].get("id")
            self._decoder = self._new_decoder()
        if self._decoder is None:
            return
        found: list[ReplyEvent] = []
        self._decoder.feed(b"data: " + msgspec.json.encode(event) + b"\n\n", found)
        self._take(found, events)

    def whole(self, message: dict[str, Any], events: list[ReplyEvent]) -> None:
        """Take a message, unless it was streamed before. It comes block by block, all with the same id."""
        id = message.get("id")
        if id is not None and id == self._streamed:
            return
        if self._whole and self._whole.get("id") != id:
            self.settle(events)
        before = self._whole.get("content", [])
        self._whole = {**message, **self._whole, "content": [*before, *message.get("content", [])]}

    def settle(self, events: list[ReplyEvent], *, over: bool = False) -> None:
        """Read a message that was not streamed, once it is complete. One by the program itself counts at the end."""
        message = self._whole
        if not message or self.complete or (message.get("model") == _SYNTHETIC and not over):
            return
        self._whole = {}
        self._start_message()
        if message.get("stop_reason") is None:
            calls = any(block.get("type") == "tool_use" for block in message["content"])
            message["stop_reason"] = "tool_use" if calls else "end_turn"
        found: list[ReplyEvent] = []
        decoder = self._new_decoder()
        decoder.feed(msgspec.json.encode(message), found)
        decoder.finish(found)
        self._take(found, events)

    def _start_message(self) -> None:
        if self._decoder is not None:  # the program's connection broke, and it asks for the message again
            if self._passed_on and not self._held_back:
                message = f"The reply of {PROVIDER}:{self.call.model} broke off, and the program started it again."
                hint = "Ask again; what had arrived is in error.partial."
                model = self.call.model
                raise ConnectionFailedError(message, hint=hint, provider=PROVIDER, model=model, code="cut_off")
            self._decoder = None
            self._held = [event for event in self._held if isinstance(event, ReplyStarted)]
            self._pieces.clear()
            self.calls.clear()
            self._usage = self._usage_before
        self._usage_before = self._usage
        self._offset = self._next
        self._passed_on = False

    def _take(self, found: list[ReplyEvent], events: list[ReplyEvent]) -> None:
        into = self._held if self._held_back else events
        for event in found:
            match event:
                case Completed():
                    self._end_message(event, events)
                    return
                case ReplyStarted():
                    into += [] if self._started else [event]
                    self._started = True
                case UsageReported():
                    before = self._usage_before
                    self._usage = event.usage if before is None else before + event.usage
                    into.append(UsageReported(self._usage))
                case ToolCallStarted():
                    started = msgspec.structs.replace(event, name=event.name.removeprefix(PREFIX))
                    self.ids.add(event.id)
                    self._pieces[event.index] = (started, [])
                    if not self._is_own(started):
                        self._pass(started, into)
                case ToolCallDelta():
                    started, pieces = self._pieces[event.index]
                    pieces.append(event.arguments)
                    if not self._is_own(started):
                        self._pass(event, into)
                case ToolCallEnded():
                    self._end_call(event, into)
                case _:
                    self._pass(event, into)

    def _pass(self, event: Any, into: list[ReplyEvent]) -> None:
        index = event.index + self._offset
        self._next = max(self._next, index + 1)
        self._passed_on = True
        into.append(event if self._offset == 0 else msgspec.structs.replace(event, index=index))

    def _end_call(self, event: ToolCallEnded, into: list[ReplyEvent]) -> None:
        started, pieces = self._pieces.pop(event.index)
        arguments = "".join(pieces)
        if not self._is_own(started):
            self.calls.append(ToolCall(started.id, started.name, arguments))
            self._pass(event, into)
        elif started.name == STRUCTURED:
            self._structured_answer = arguments
        else:
            block = {"type": "tool_use", "id": started.id, "name": started.name, "input": parse_arguments(arguments)}
            self._pass(BlockReceived(event.index, event.id, Opaque(PROVIDER, Raw(msgspec.json.encode(block)))), into)

    def _is_own(self, call: ToolCallStarted) -> bool:
        return call.name in self.own_tools or (self.structured and call.name == STRUCTURED)

    def _end_message(self, event: Completed, events: list[ReplyEvent]) -> None:
        self._decoder = None
        self._stop = (event.stop_reason, event.raw_stop_reason)
        if self._held_back:
            if self.structured and not self.calls:  # the answer comes at the end of the turn, and is the only text
                self._held = [event for event in self._held if isinstance(event, ReplyStarted | UsageReported)]
                self._next = self._offset
            events += self._held
            self._held.clear()
        self._usage_before = self._usage
        late, self._late = self._late, []
        for block in late:
            self.own_result(block, events)
        if self.calls:
            self.complete = True
            if event.stop_reason not in CUT_OFF:
                self._stop = (StopReason.TOOL_CALLS, event.raw_stop_reason)

    def own_result(self, block: dict[str, Any], events: list[ReplyEvent]) -> None:
        """Take the result of a tool that the program ran itself; in the middle of a message it is kept for its end."""
        if self._decoder is not None:
            self._late.append(block)
        elif not self.structured:
            events.append(BlockReceived(self._next, "", Opaque(PROVIDER, Raw(msgspec.json.encode(block)))))
            self._next += 1

    def finish(self, result: dict[str, Any], events: list[ReplyEvent]) -> None:
        """End the reply with the result of the turn."""
        self.settle(events, over=True)
        if self._decoder is not None:
            message = "The claude program ended a turn in the middle of a message."
            raise ProtocolError(message, provider=PROVIDER, model=self.call.model)
        if not self._started:
            self._started = True
            events.append(ReplyStarted(self.call.profile.provider, self.call.model, time=self.call.time))
        answer, text = result.get("structured_output"), str(result.get("result") or "")
        if self.structured and answer is not None:
            text = self._structured_answer
            if not text or parse_arguments(text) != answer:  # the program has changed what the model wrote
                text = msgspec.json.encode(answer).decode()
            self._stop = (StopReason.END, self._stop[1])
        if self.structured or (self._next == 0 and text):
            at = self._next
            found: list[ReplyEvent] = [TextStarted(at, ""), TextDelta(at, "", text), TextEnded(at, "")]
            events += found if self.answer is None else self.answer.events(found)

    def ending(self, native: Native) -> Completed:
        return Completed(self._stop[0], self._stop[1], native)


def parse_arguments(text: str) -> object:
    """The value of a JSON text; {} for an empty one, and the text itself if it is not JSON."""
    try:
        return decode(text) if text.strip() else {}
    except msgspec.MsgspecError:
        return text


# --- errors -----------------------------------------------------------------------------------------------------------

_CODES: Final = {
    "authentication_failed": "authentication_error",
    "billing_error": "billing_error",
    "invalid_request": "invalid_request_error",
    "oauth_org_not_allowed": "permission_error",
    "overloaded": "overloaded_error",
    "rate_limit": "rate_limit_error",
}
"""The program's names for failures, and the API's."""
_LOGIN: Final = (
    "Start `claude` in a terminal and log in with /login; or give a key: claude-local takes key=…, and the variable "
    "ANTHROPIC_API_KEY."
)
_LIMITS: Final = ("usage limit", "session limit", "weekly limit", "hit your limit")


def turn_failure(call: Call, result: Mapping[str, Any], name: str | None) -> ProviderError:
    """The error for a turn whose result is a failure. `name` is the program's name for it, from an earlier message."""
    subtype, status, errors = str(result.get("subtype") or ""), result.get("api_error_status"), result.get("errors")
    listed = "; ".join(map(str, cast("list[object]", errors))) if isinstance(errors, list) else ""
    text = listed or str(result.get("result") or "").strip() or subtype
    code = _CODES.get(name or "")
    if code is None and any(words in text.lower() for words in _LIMITS):
        code = "rate_limit_error"
    error = failure(call, status if isinstance(status, int) else None, code, text, {})
    if isinstance(error, AuthenticationError):
        error.hint = _LOGIN
    if error.code is None and subtype != "success":
        error.code = subtype or None
    return error


def exit_error(call: Call, code: int | None, output: str) -> ProviderError:
    """The error for a program that has exited in the middle of a reply."""
    how = "exited" if code is None else f"exited with code {code}" if code >= 0 else f"was killed by signal {-code}"
    message = f"The claude program {how} before its reply was complete.{_quote(output)}"
    hint = "Start `claude` in a terminal to see whether it works there."
    return ConnectionFailedError(message, hint=hint, provider=PROVIDER, model=call.model, code="exited")


def timeout_error(call: Call, seconds: float, doing: str, output: str, code: str) -> ProviderError:
    """The error for a program that took too long."""
    message = f"The claude program was stopped after {seconds:g} seconds while it was {doing}.{_quote(output)}"
    return RequestTimeoutError(message, provider=PROVIDER, model=call.model, code=code)


def _quote(output: str) -> str:
    return f" Its last output: {output}" if output else ""
