"""From the claude program's messages to the events of one reply, or to a typed error.

Owns: what belongs to a reply. The program may ask its model several times before it is our turn (it runs tools of its
own, goes on after a cut, corrects a structured answer); for us all of that is one reply, up to the model's next call of
one of our tools, or to the end of the turn.
Must not know: lines, processes, control requests (protocol.py). What a message of the API says is read by its decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

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
"""What the program puts before the names of our tools."""
STRUCTURED: Final = "StructuredOutput"
"""The tool by which the program has its model give a structured answer."""
_SYNTHETIC: Final = "<synthetic>"
"""The model of messages that the program made up itself, mostly to tell of a failure."""


class ReplyReader(Struct, eq=False):
    """Reads one reply. Events are told as they come if it is streamed, else when a message of the model is whole."""

    call: Call
    names: Mapping[str, str]
    own_tools: Callable[[], frozenset[str]]
    structured: bool = False
    answer: AnswerReader | None = None
    calls: list[ToolCall] = []
    """The calls of our tools, as far as they are whole."""
    ids: set[str] = set()
    """The ids of all calls that the model has begun, also of those that are not whole."""
    complete: bool = False
    """Whether the model waits for our tools."""
    _decoder: ReplyDecoder | None = None
    _streamed: str | None = None
    """The id of the message that is, or was last, streamed."""
    _whole: dict[str, Any] = {}
    """A message that was not streamed, as far as it has come."""
    _held: list[ReplyEvent] = []
    _late: list[dict[str, Any]] = []
    """Results of the program's own tools that came in the middle of a message."""
    _pieces: dict[int, tuple[ToolCallStarted, list[str]]] = {}
    _given: str | None = None
    """The arguments of the last structured answer, as the model wrote them."""
    _offset: int = 0
    _next: int = 0
    _started: bool = False
    _handed_on: bool = False
    _usage: Usage | None = None
    _usage_before: Usage | None = None
    _stop: tuple[StopReason, str | None] = (StopReason.END, None)

    @property
    def _held_back(self) -> bool:
        return self.structured or not self.call.stream

    def _new_decoder(self) -> ReplyDecoder:
        return ReplyDecoder(self.call, Encoded(request=WireRequest(path="", body=b""), tool_names=self.names))

    # --- a message while it arrives ---

    def stream(self, event: dict[str, Any], events: list[ReplyEvent]) -> None:
        if event["type"] == "message_start":
            self.settle(events)
            self._begin_anew()
            self._streamed = event["message"].get("id")
            self._decoder = self._new_decoder()
        if self._decoder is None:
            return
        found: list[ReplyEvent] = []
        self._decoder.feed(b"data: " + msgspec.json.encode(event) + b"\n\n", found)
        self._take(found, events)

    def whole(self, message: dict[str, Any], events: list[ReplyEvent]) -> None:
        """A message that may have been streamed before; if not, it comes block by block under one id."""
        id = message.get("id")
        if id is not None and id == self._streamed:
            return
        if self._whole and self._whole.get("id") != id:
            self.settle(events)
        before = self._whole.get("content", [])
        self._whole = {**message, **self._whole, "content": [*before, *message.get("content", [])]}

    def settle(self, events: list[ReplyEvent], *, over: bool = False) -> None:
        """Nothing more will come of a message that was not streamed. What the program made up counts at the end."""
        message = self._whole
        if not message or self.complete or (message.get("model") == _SYNTHETIC and not over):
            return
        self._whole = {}
        self._begin_anew()
        if message.get("stop_reason") is None:
            calls = any(block.get("type") == "tool_use" for block in message["content"])
            message["stop_reason"] = "tool_use" if calls else "end_turn"
        found: list[ReplyEvent] = []
        decoder = self._new_decoder()
        decoder.feed(msgspec.json.encode(message), found)
        decoder.finish(found)
        self._take(found, events)

    def _begin_anew(self) -> None:
        if self._decoder is not None:
            if self._handed_on and not self._held_back:
                raise broke_off(self.call)
            self._decoder = None
            self._held = [event for event in self._held if isinstance(event, ReplyStarted)]
            self._pieces.clear()
            self.calls.clear()
            self._usage = self._usage_before
        self._usage_before = self._usage
        self._offset = self._next
        self._handed_on = False

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
        self._handed_on = True
        into.append(event if self._offset == 0 else msgspec.structs.replace(event, index=index))

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
        return call.name in self.own_tools() or (self.structured and call.name == STRUCTURED)

    def _end_message(self, event: Completed, events: list[ReplyEvent]) -> None:
        self._decoder = None
        self._stop = (event.stop_reason, event.raw_stop_reason)
        if self._held_back:
            # Beside a structured answer there is no place for other texts; with calls of ours it is no answer yet.
            events += self._held if self.calls or not self.structured else self._accounts_only()
            self._held.clear()
        self._usage_before = self._usage
        late, self._late = self._late, []
        for block in late:
            self.own_result(block, events)
        if self.calls:
            self.complete = True
            self._stop = (StopReason.TOOL_CALLS, event.raw_stop_reason)

    def _accounts_only(self) -> list[ReplyEvent]:
        kept: list[ReplyEvent] = [event for event in self._held if isinstance(event, ReplyStarted | UsageReported)]
        self._next = self._offset
        return kept

    # --- what the program did itself ---

    def own_result(self, block: dict[str, Any], events: list[ReplyEvent]) -> None:
        """The result of a tool that the program ran itself; one that comes within a message waits for its end."""
        if self._decoder is not None:
            self._late.append(block)
        elif not self.structured:
            events.append(BlockReceived(self._next, "", Opaque(PROVIDER, Raw(msgspec.json.encode(block)))))
            self._next += 1

    # --- the end ---

    def finish(self, result: dict[str, Any], events: list[ReplyEvent]) -> None:
        self.settle(events, over=True)
        if self._decoder is not None:
            raise malformed(self.call, "a turn ended in the middle of a message")
        if not self._started:
            self._started = True
            events.append(ReplyStarted(self.call.profile.provider, self.call.model, time=self.call.time))
        answer, said = result.get("structured_output"), str(result.get("result") or "")
        if self.structured and answer is not None:
            # If the model wrote the same value itself, in its own spelling.
            same = self._given is not None and _json(self._given) == answer
            said = self._given if same and self._given is not None else msgspec.json.encode(answer).decode()
            self._stop = (StopReason.END, self._stop[1])
        if self.structured or (self._next == 0 and said):
            self._tell(said, events)

    def _tell(self, said: str, events: list[ReplyEvent]) -> None:
        index = self._next
        self._next += 1
        found: list[ReplyEvent] = [TextStarted(index, ""), TextDelta(index, "", said), TextEnded(index, "")]
        events += found if self.answer is None else self.answer.events(found)

    def ending(self, native: Native) -> Completed:
        return Completed(self._stop[0], self._stop[1], native)


def _json(written: str) -> object:
    try:
        return msgspec.json.decode(written) if written.strip() else {}
    except msgspec.MsgspecError:
        return written


# --- what goes wrong --------------------------------------------------------------------------------------------------

_CODES: Final = {
    "authentication_failed": "authentication_error",
    "billing_error": "billing_error",
    "invalid_request": "invalid_request_error",
    "oauth_org_not_allowed": "permission_error",
    "overloaded": "overloaded_error",
    "rate_limit": "rate_limit_error",
}
"""The program's words for a failure, in those of the API."""
_LOGIN: Final = (
    "Start `claude` in a terminal and log in with /login; or give a key: claude-local takes key=…, and the variable "
    "ANTHROPIC_API_KEY."
)
_LIMITS: Final = ("usage limit", "session limit", "weekly limit", "hit your limit")


def refused(call: Call, result: Mapping[str, object], word: str | None) -> ProviderError:
    """The error of a turn that the program says has failed. `word` is what it called the failure before."""
    said = _failure_text(result)
    status = result.get("api_error_status")
    code = _CODES.get(word or "", None)
    if code is None and any(words in said.lower() for words in _LIMITS):
        code = "rate_limit_error"
    subtype = result.get("subtype")
    error = failure(call, status if isinstance(status, int) else None, code, said, {})
    if isinstance(error, AuthenticationError):
        error.hint = _LOGIN
    if error.code is None and isinstance(subtype, str) and subtype != "success":
        error.code = subtype
    return error


def _failure_text(result: Mapping[str, object]) -> str:
    errors = result.get("errors")
    if isinstance(errors, list) and errors:
        return "; ".join([str(each) for each in errors])  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    text = result.get("result")
    if isinstance(text, str) and text.strip():
        return text
    return str(result.get("subtype") or "")


def crashed(call: Call, code: int | None, words: str) -> ProviderError:
    how = "ended" if code is None or code >= 0 else f"was killed by signal {-code} and ended"
    status = f" with exit code {code}" if code is not None and code >= 0 else ""
    message = f"The claude program {how}{status} before its reply was complete.{_quote(words)}"
    hint = "Start `claude` in a terminal to see whether it works there."
    return ConnectionFailedError(message, hint=hint, provider=PROVIDER, model=call.model, code="exited")


def silent(call: Call, seconds: float, doing: str, words: str, code: str = "read_timeout") -> ProviderError:
    message = f"The claude program was given up after {seconds:g} seconds while it was {doing}.{_quote(words)}"
    return RequestTimeoutError(message, provider=PROVIDER, model=call.model, code=code)


def broke_off(call: Call) -> ProviderError:
    """Its connection to the provider broke, and it began anew after a part had been handed on."""
    message = f"The reply of {PROVIDER}:{call.model} broke off, and the program began it anew."
    hint = "Ask again; what had arrived is in error.partial."
    return ConnectionFailedError(message, hint=hint, provider=PROVIDER, model=call.model, code="cut_off")


def malformed(call: Call, what: str) -> ProviderError:
    return ProtocolError(f"What the claude program said cannot be used: {what}.", provider=PROVIDER, model=call.model)


def _quote(words: str) -> str:
    return f" Its last words: {words}" if words else ""
