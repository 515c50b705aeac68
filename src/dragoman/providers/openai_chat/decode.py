"""From bytes to events: streams, whole replies, and what servers send in place of either.

Owns: when a reply is complete, and the parts of a reply while they grow; parts.py has those that are more than text. A
whole reply is one big piece of a message, so it cannot differ from a streamed one.

A reply is complete when a finish reason came. `[DONE]` alone is not enough, for a server may send it after it broke
off; with a count of tokens behind the last choice, which OpenAI's documentation says is missing when a stream is cut,
it is. Everything else is a ProtocolError, never a finished reply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Literal

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
    Usage,
    UsageReported,
)
from dragoman.errors import ProviderError
from dragoman.providers.citations import cite, of_openai, read_citations, read_sources
from dragoman.providers.codec import Call, Encoded
from dragoman.providers.failures import error_in, failure
from dragoman.providers.wire import (
    ABSENT,
    MALFORMED,
    DecoderBase,
    Growing,
    as_object,
    count_of,
    document,
    elements,
    integer,
    is_empty,
    is_object,
    join_members,
    members,
    read_charge,
    string,
    text_or_json,
    value_of,
)

from .history import reader_of
from .parts import Calls, Speech, Thoughts, image_of

# --- a chunk of nothing but text --------------------------------------------------------------------------------------

# Most chunks of a stream. Anything else makes this decoder fail on purpose: such a chunk is read member by member, so
# that nothing is lost. Members that are listed and never looked at say nothing new in the middle of a stream: they
# stand in the first or the last chunk as well, which are read member by member (`obfuscation` and `p` are padding).


class _Said(Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    role: str | None = None
    refusal: None = None
    reasoning_content: None = None
    reasoning: None = None
    channel: str | None = None
    function_call: None = None
    audio: None = None
    annotations: tuple[()] | None = None
    token_id: int | None = None


class _Delta(_Said, kw_only=True):
    content: str
    tool_calls: None = None


class _Choice(Struct, forbid_unknown_fields=True, gc=False):
    delta: _Delta
    index: Literal[0] = 0
    finish_reason: None = None
    native_finish_reason: str | None = None
    logprobs: None = None
    matched_stop: None = None
    stop_reason: None = None
    token_ids: None = None
    seed: int | None = None
    text: str | None = None


class _TextChunk(Struct, forbid_unknown_fields=True, gc=False):
    choices: tuple[_Choice]
    id: str | None = None
    object: str | None = None
    created: int | float | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    provider: str | None = None
    usage: None = None
    obfuscation: str | None = None
    p: str | None = None
    prompt_token_ids: None = None
    sla_metrics: Raw | None = None


_decode_text_chunk: Final = msgspec.json.Decoder(_TextChunk).decode


# The same for a whole reply of nothing but text and calls: what most turns get (docs/decisions/0002 says what it buys).


class _Function(Struct, forbid_unknown_fields=True, gc=False):
    name: str
    arguments: str


class _PlainCall(Struct, forbid_unknown_fields=True, gc=False):
    function: _Function
    id: str
    type: Literal["function"] = "function"
    index: int = 0


class _PlainMessage(_Said, kw_only=True):
    content: str | None = None
    tool_calls: tuple[_PlainCall, ...] | None = None


class _PlainChoice(Struct, forbid_unknown_fields=True, gc=False):
    message: _PlainMessage
    finish_reason: Literal["stop", "tool_calls"]
    index: Literal[0] = 0
    logprobs: None = None


class _PlainReply(Struct, forbid_unknown_fields=True, gc=False):
    choices: tuple[_PlainChoice]
    id: str
    model: str
    usage: Raw
    object: str | None = None
    created: Raw = ABSENT
    service_tier: Raw = ABSENT
    system_fingerprint: Raw = ABSENT


_decode_plain_reply: Final = msgspec.json.Decoder(_PlainReply).decode
_KEPT_OF_PLAIN_REPLY: Final = ("created", "usage", "service_tier", "system_fingerprint")

# --- what a reply cost, and why it ended ------------------------------------------------------------------------------


# Where a member is counted, those in objects of their own first.
_DETAILS: Final = {
    "prompt_tokens_details": {
        "cached_tokens": "cache_read",
        "cache_write_tokens": "cache_write",
        "cache_creation_tokens": "cache_write",
        "audio_tokens": "audio_input",
    },
    "prompt_token_details": {"cached_tokens": "cache_read"},
    "completion_tokens_details": {"reasoning_tokens": "reasoning", "audio_tokens": "audio_output"},
}
_COUNTS: Final = {
    "prompt_tokens": "input",
    "completion_tokens": "output",
    "total_tokens": "total",
    "reasoning_tokens": "reasoning",
    "prompt_cache_hit_tokens": "cache_read",  # DeepSeek
    "num_cached_tokens": "cache_read",  # Mistral
    "cached_tokens": "cache_read",  # Together, Moonshot
}
_NOT_IF_ZERO: Final = ("audio_input", "audio_output")


def _read_usage(fields: Mapping[str, Raw]) -> Usage | None:
    """The token counts in the members of a reply, a chunk or a choice; None if there are none."""
    found = fields.get("usage")
    if (found is None or is_empty(found)) and is_object(groq := fields.get("x_groq")):
        found = members(groq).get("usage")
    if found is None:
        return None
    said, counts = as_object(value_of(found)), dict[str, Any]()
    for name, inner in _DETAILS.items():
        if name in said:
            _count(as_object(said[name]), inner, counts)
    _count(said, _COUNTS, counts)
    read, written, total = counts.get("input"), counts.get("output"), counts.get("total")
    if read is None and written is None and total is None:
        return None
    reasoning = counts.get("reasoning")
    if reasoning and read is not None and written is not None and total == read + written + reasoning:
        counts["output"] += reasoning  # xAI counts reasoning beside the completion; here it is a part of the output
    return Usage(**counts, charged=read_charge(said) if "cost" in said else None)


def _count(said: dict[str, object], places: Mapping[str, str], counts: dict[str, Any]) -> None:
    for name, value in said.items():
        place = places.get(name)
        if place is not None and (count := count_of(value)) is not None and (count or place not in _NOT_IF_ZERO):
            counts.setdefault(place, count)


_REASONS: Final[dict[StopReason, str]] = {
    StopReason.END: "stop eos eos_token end_turn completed",
    StopReason.MAX_TOKENS: "length max_tokens max_output_tokens",
    StopReason.TOOL_CALLS: "tool_calls tool_use function_call",
    StopReason.CONTENT_FILTER: "content_filter sensitive safety recitation prohibited_content",  # sensitive: Z.ai
    StopReason.REFUSAL: "refusal",
    StopReason.STOP_SEQUENCE: "stop_sequence",
    # Mistral; Z.ai and Claude behind OpenRouter.
    StopReason.CONTEXT_FULL: "model_length model_context_window_exceeded",
    StopReason.PAUSED: "pause_turn",
}
_STOP_REASONS: Final = {word: reason for reason, words in _REASONS.items() for word in words.split()}
_CUT: Final = frozenset([StopReason.MAX_TOKENS, StopReason.CONTEXT_FULL, StopReason.CONTENT_FILTER])
"""Why the last call may be cut off in the middle of its arguments."""
_FAILED: Final[dict[str, str]] = {
    "error": "the server reports that it failed while it answered",
    "abort": "the server aborted the answer",
    "insufficient_system_resource": "the server ran out of resources while it answered",  # DeepSeek
    "network_error": "the server lost its own connection to the model",  # Z.ai
}
"""Finish reasons that say that the answer was not finished, and what they mean."""

# What is known and taken elsewhere, or says nothing: `obfuscation` is padding against eavesdroppers, the role is always
# the same, `channel` (Groq) only repeats that reasoning is reasoning.
_KNOWN_OF_REPLY: Final = frozenset(["id", "object", "model", "choices", "obfuscation", "p", "error"])
_KNOWN_OF_CHOICE: Final = frozenset(["index", "delta", "message", "finish_reason", "usage", "error", "logprobs"])
_KNOWN_OF_MESSAGE: Final = frozenset(["role", "channel"])
_REFUSAL: Final = {"type": Raw(b'"refusal"')}
"""The native fields of a text that came as a refusal, so that it goes back as one."""


def _says_error(fields: dict[str, Raw]) -> bool:
    """Whether this JSON object is an error. A chunk may be both: OpenRouter puts `error` beside `choices`."""
    error = fields.get("error")
    if error is not None and not is_empty(error):
        return True
    if "choices" in fields:
        return False
    flat = string(fields.get("message")) and ("code" in fields or "type" in fields)
    return bool(flat) or string(fields.get("object")) == "error" or "detail" in fields


class ReplyDecoder(DecoderBase):
    """Reads one reply: which parts are open, in which order they stand, and how it ends."""

    # What few replies have, or only streams, stands here and not in each of them.
    _id: str | None = None
    _started: bool = False
    _finish_reason: str = ""
    _usage: Usage | None = None
    _counted: bool = False
    """Whether a count of tokens came behind the last choice."""
    _takes_text: bool = False
    """Whether chunks of nothing but text are read as such: not the first one, and none behind a count."""
    # The parts:
    _next_index: int = 0
    _text: int = -1
    """The part that text goes to, and that of a refusal; -1 while none is open."""
    _refusal: int = -1
    _refused: bool = False
    # Made when they are needed: they refer back to this, and such a circle is left to the collector.
    _thoughts: Thoughts | None = None
    _calls: Calls | None = None
    _speech: Speech | None = None

    def __init__(self, call: Call, encoded: Encoded) -> None:
        super().__init__(call, encoded)
        self._reader: str = reader_of(call.profile.provider)
        self._texts: dict[int, list[str]] = {}
        # Members that are not known, kept as raw JSON; those of the message go back to the server that sent them.
        self._of_reply: dict[str, Raw] = {}
        self._of_choice: dict[str, Raw] = {}
        self._of_message: dict[str, Growing] = {}
        self._logprobs: dict[str, list[bytes]] = {}
        self._other_choices: list[bytes] = []

    # --- streams and whole replies ------------------------------------------------------------------------------------

    def take_event(self, name: bytes, payload: bytes, events: list[ReplyEvent]) -> None:
        if name == b"error":
            raise self._read_error(payload, events)
        if self._takes_text:
            try:
                text = _decode_text_chunk(payload).choices[0].delta.content
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                pass
            else:
                self._say(text, events)
                return
        if not payload or payload.isspace():
            return
        if payload.strip() == b"[DONE]":
            if not self._finish_reason and not (self._started and self._counted):
                raise self.broken("the server ended the stream without saying why the reply ended")
            self._complete(events)
        else:
            self._take_chunk(document(payload), events)

    def end_stream(self, events: list[ReplyEvent]) -> None:
        if not self._started:
            raise self.broken("it is neither JSON nor a stream of chunks")
        if not self._finish_reason:
            raise self.broken("the stream ended before the reply was complete")
        self._complete(events)

    def _take_chunk(self, fields: dict[str, Raw], events: list[ReplyEvent]) -> None:
        if _says_error(fields):
            self._take_usage(fields)
            self.break_off(events)
            raise error_in(fields, self.call)
        choices = [members(raw) for raw in elements(fields.get("choices"))]
        if not self._started and (choices or string(fields.get("id"))):
            self._start(fields, events)
        self._keep_of_reply(fields)
        for choice in choices:
            if integer(choice.get("index")):  # with several answers, the first one is the reply
                self._other_choices.append(join_members(choice))
            else:
                self._counted = False
                self._take_choice(choice, events, whole=False)
        self._take_usage(fields)
        self._counted = self._counted or (not choices and "usage" in fields and self._usage is not None)
        self._takes_text = self._started and not self._counted

    def take_whole(self, body: bytes, events: list[ReplyEvent]) -> None:
        if not body:
            raise self.broken("the reply is empty")
        if body.startswith(b"["):
            raise self._read_error(body, events)
        try:
            body.decode()  # what is kept unread is not looked through below
            reply = _decode_plain_reply(body)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
        else:
            said = reply.choices[0].message
            if reply.id and reply.model and (said.tool_calls or said.content):
                self._take_plain_reply(reply, events)
                return
        fields = document(body)
        if _says_error(fields):
            raise error_in(fields, self.call)
        choices = [members(raw) for raw in elements(fields.get("choices"))]
        if not choices:
            raise self.broken("the reply has no choices")
        self._start(fields, events)
        self._keep_of_reply(fields)
        first = next((choice for choice in choices if not integer(choice.get("index"))), choices[0])
        self._other_choices += [join_members(choice) for choice in choices if choice is not first]
        self._take_choice(first, events, whole=True)
        self._take_usage(fields)
        self._complete(events)

    def _take_plain_reply(self, reply: _PlainReply, events: list[ReplyEvent]) -> None:
        choice, self._id = reply.choices[0], reply.id
        said, self._usage = choice.message, _read_usage({"usage": reply.usage})
        events.append(ReplyStarted(self.call.profile.provider, reply.model, reply.id, self.call.time))
        if said.content:
            index = self._new_index()
            events += [TextStarted(index, ""), TextDelta(index, "", said.content), TextEnded(index, "")]
        stop = _STOP_REASONS[choice.finish_reason]
        if said.tool_calls:
            stop, calls = StopReason.TOOL_CALLS, self._open_calls()
            for place, call in enumerate(said.tool_calls):
                calls.grow(place, call.id, call.function.name, call.function.arguments, events)
            calls.end(self._reader, events, cut=False)
            self._calls = None  # they know this decoder: nothing of it should have to wait for the garbage collector
        self._report_usage(events)
        kept: dict[str, Raw] = {}
        for name in _KEPT_OF_PLAIN_REPLY:
            raw: Raw = getattr(reply, name)
            if raw is not ABSENT and not is_empty(raw):
                kept[name] = raw.copy()
        self.ended = True
        events.append(Completed(stop, choice.finish_reason, Native(self._reader, kept) if kept else None))

    def _read_error(self, payload: bytes, events: list[ReplyEvent]) -> ProviderError:
        self.break_off(events)
        try:
            found = elements(Raw(payload)) if payload.startswith(b"[") else [Raw(payload)]
            return error_in(members(found[0]), self.call)
        except (*MALFORMED, IndexError):
            return self.broken(f"the server reports an error that is not JSON: {payload[:200]!r}")

    # --- the reply ----------------------------------------------------------------------------------------------------

    def _start(self, fields: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        self._started = True
        self._id = string(fields.get("id")) or None
        model = string(fields.get("model")) or self.call.model
        events.append(ReplyStarted(self.call.profile.provider, model, self._id, self.call.time))

    def _take_choice(self, choice: dict[str, Raw], events: list[ReplyEvent], *, whole: bool) -> None:
        error = choice.get("error")
        if error is not None and not is_empty(error):
            self.break_off(events)
            raise error_in(choice, self.call)
        for name, raw in choice.items():
            if name not in _KNOWN_OF_CHOICE and not is_empty(raw):
                self._of_choice[name] = raw.copy()
        if is_object(logprobs := choice.get("logprobs")):  # token by token, put behind each other
            for part, tokens in members(logprobs).items():
                self._logprobs.setdefault(part, []).extend([bytes(token) for token in elements(tokens)])
        message = choice.get("message", choice.get("delta"))
        if not whole and "delta" in choice and (not is_empty(choice["delta"]) or self._next_index):
            message = choice["delta"]  # Perplexity repeats in `message` all that came before
        if message is not None and not is_empty(message):
            self._take_message(members(message), events, whole=whole)
        self._finish_reason = string(choice.get("finish_reason")) or self._finish_reason
        self._take_usage(choice)  # Moonshot counts here

    def _take_usage(self, fields: Mapping[str, Raw]) -> None:
        self._usage = _read_usage(fields) or self._usage

    def _keep_of_reply(self, fields: dict[str, Raw]) -> None:
        """Members beside `choices`; the newest stands, for most servers repeat them in every chunk."""
        for name, raw in fields.items():
            if name not in _KNOWN_OF_REPLY and not is_empty(raw):
                self._of_reply[name] = raw

    def _complete(self, events: list[ReplyEvent]) -> None:
        """The reply has come to its end. Raises a ProviderError if its finish reason says that it failed."""
        word = self._finish_reason.lower()
        if word in _FAILED:
            self.break_off(events)
            raise failure(self.call, None, word, _FAILED[word], {})
        self._close_part(events)
        if self._thoughts is not None:
            self._thoughts.end_sealed(events)
        if self._speech is not None and (block := self._speech.block(self.call, self._reader)) is not None:
            self._add_block(block, events)
        stop = self._stop_reason()
        if self._calls is not None:
            self._calls.end(self._reader, events, cut=stop in _CUT)
            self._calls = None  # as above
        self._cite(events)
        self._report_usage(events)
        self.ended = True
        events.append(Completed(stop, self._finish_reason or None, self._native()))

    def _cite(self, events: list[ReplyEvent]) -> None:
        annotations = self._of_message.get("annotations")
        citations, results = self._of_reply.get("citations"), self._of_reply.get("search_results")
        if annotations is not None:
            events += cite(self._texts, read_citations(annotations.whole(), of_openai))
        elif citations is not None or results is not None:
            events += cite(self._texts, read_sources(citations, results, self._texts))

    def break_off(self, events: list[ReplyEvent]) -> None:
        self._report_usage(events)

    def _report_usage(self, events: list[ReplyEvent]) -> None:
        usage, self._usage = self._usage, None
        if usage is not None:
            events.append(UsageReported(usage))

    def _stop_reason(self) -> StopReason:
        found = _STOP_REASONS.get(self._finish_reason.lower()) if self._finish_reason else StopReason.OTHER
        if found is None:
            return StopReason.OTHER
        if found is StopReason.END:  # the server behind a router may have said more
            found = _STOP_REASONS.get(string(self._of_choice.get("native_finish_reason")).lower(), StopReason.END)
        if found not in (StopReason.END, StopReason.OTHER):
            return found
        if self._refused:
            return StopReason.REFUSAL
        if self._calls:  # several servers say "stop" even then
            return StopReason.TOOL_CALLS
        # vLLM: the stop sequence, or the number of a token.
        return StopReason.STOP_SEQUENCE if string(self._of_choice.get("stop_reason")) else found

    def _native(self) -> Native | None:
        """What is not known, as the reply's own fields: `choice` and `message` stand for members inside them."""
        fields = {name: raw.copy() for name, raw in self._of_reply.items()}
        if logprobs := {
            part: Raw(b"[" + b",".join(tokens) + b"]") for part, tokens in self._logprobs.items() if tokens
        }:
            self._of_choice["logprobs"] = Raw(join_members(logprobs))
        of_message = {name: member.whole() for name, member in self._of_message.items()}
        for name, inner in (("choice", self._of_choice), ("message", of_message)):
            if inner:
                fields[name] = Raw(join_members(inner))
        if self._other_choices:
            fields["choices"] = Raw(b"[" + b",".join(self._other_choices) + b"]")
            if self.names:  # by which whoever reads them gives tools their own names
                fields["tool_names"] = Raw(msgspec.json.encode(dict(self.names)))
        return Native(self._reader, fields) if fields else None

    # --- pieces of the message ----------------------------------------------------------------------------------------

    def _take_message(self, fields: dict[str, Raw], events: list[ReplyEvent], *, whole: bool) -> None:
        """A piece of the message, or the whole of it, member by member; nothing is passed over."""
        thinks = False
        for name in [name for name in self._MEMBERS if name in fields]:
            raw = fields[name]
            # Where several members have the reasoning they say the same.
            if not is_empty(raw) and not (thinks and name in ("reasoning_content", "reasoning")):
                thinks = bool(self._MEMBERS[name](self, name, raw, events, whole)) or thinks
        for name, raw in fields.items():
            if name not in _KNOWN_OF_MESSAGE and name not in self._MEMBERS and not is_empty(raw):
                self._of_message.setdefault(name, Growing(deltas=True)).add(raw)

    def _take_details(self, _name: str, raw: Raw, events: list[ReplyEvent], whole: bool) -> bool:
        return self._think().take_details(raw, events, whole=whole)

    def _take_reasoning(self, name: str, raw: Raw, events: list[ReplyEvent], _whole: bool) -> bool:
        piece = string(raw)
        if piece:
            self._think().open((name,), events).grow(piece, events)
        return bool(piece)

    def _take_content(self, _name: str, raw: Raw, events: list[ReplyEvent], _whole: bool) -> None:
        if not bytes(raw).startswith(b"["):
            self._say(text_or_json(raw), events)  # Cloudflare sends an object where a schema was asked for
            return
        for part in elements(raw):
            if piece := string(part):
                self._say(piece, events)
            else:
                self._take_part(members(part), part, events)

    def _take_part(self, fields: dict[str, Raw], raw: Raw, events: list[ReplyEvent]) -> None:
        kind = string(fields.get("type"))
        if kind == "text" and set(fields) <= {"type", "text"}:
            self._say(string(fields.get("text")), events)
        elif kind == "text":  # with citations or the like: a part of its own, so that both stay together
            index = self._new_part(events)
            self._texts[index] = [string(fields.get("text"))]
            rest = {name: value.copy() for name, value in fields.items() if name not in ("type", "text")}
            events += [TextStarted(index, ""), TextDelta(index, "", self._texts[index][0])]
            events.append(TextEnded(index, "", Native(self._reader, rest)))
        elif kind == "refusal":
            self._take_refusal("refusal", fields.get("refusal", raw), events, False)
        elif kind == "thinking":
            self._think().take_chunk(fields, events)
        else:
            self._add_block(Opaque(self._reader, raw.copy()), events)

    def _take_refusal(self, _name: str, raw: Raw, events: list[ReplyEvent], _whole: bool) -> None:
        piece = string(raw)
        if not piece:
            return
        if self._refusal < 0:
            self._refused = True
            self._refusal = self._new_part(events)
            events.append(TextStarted(self._refusal, ""))
        events.append(TextDelta(self._refusal, "", piece))

    def _take_calls(self, name: str, raw: Raw, events: list[ReplyEvent], whole: bool) -> None:
        if name == "function_call":  # what `tool_calls` replaced; some servers still speak it
            raw = Raw(b'[{"index":0,"function":%b}]' % bytes(raw))
        self._open_calls().take(raw, events, whole=whole)

    def _take_images(self, _name: str, raw: Raw, events: list[ReplyEvent], _whole: bool) -> None:
        for image in elements(raw):
            self._add_block(image_of(image, self._reader), events)

    def _take_audio(self, _name: str, raw: Raw, _events: list[ReplyEvent], _whole: bool) -> None:
        self._speech = self._speech or Speech()
        self._speech.take(members(raw))

    # In the order in which a message has its parts, whatever the order of its members.
    _MEMBERS: ClassVar[dict[str, Callable[[ReplyDecoder, str, Raw, list[ReplyEvent], bool], bool | None]]] = {
        "reasoning_details": _take_details,
        "reasoning_content": _take_reasoning,
        "reasoning": _take_reasoning,
        "content": _take_content,
        "refusal": _take_refusal,
        "tool_calls": _take_calls,
        "function_call": _take_calls,
        "images": _take_images,
        "audio": _take_audio,
    }

    # --- parts come and go --------------------------------------------------------------------------------------------

    def _say(self, piece: str, events: list[ReplyEvent]) -> None:
        if piece:
            if self._text < 0:
                self._text = self._new_part(events)
                self._texts[self._text] = []
                events.append(TextStarted(self._text, ""))
            self._texts[self._text].append(piece)
            events.append(TextDelta(self._text, "", piece))

    def _think(self) -> Thoughts:
        self._thoughts = self._thoughts or Thoughts(self._reader, self._new_part, self._new_index)
        return self._thoughts

    def _open_calls(self) -> Calls:
        if self._calls is None:
            # A server without ids for calls may have none for replies: what we make up depends on the place as well.
            place = f"{self._id}/{len(self.call.conversation.messages)}"
            self._calls = Calls(self.names, place, self._new_part)
        return self._calls

    def _add_block(self, block: Media | Opaque, events: list[ReplyEvent]) -> None:
        events.append(BlockReceived(self._new_part(events), "", block))

    def _new_part(self, events: list[ReplyEvent]) -> int:
        """The index of a part that begins now, behind whatever is open."""
        self._close_part(events)
        return self._new_index()

    def _new_index(self) -> int:
        index = self._next_index
        self._next_index += 1
        return index

    def _close_part(self, events: list[ReplyEvent]) -> None:
        """End the text, refusal or thought that is open; calls stay open until the reply ends."""
        if self._thoughts is not None:
            self._thoughts.close(events)
        if self._text >= 0:
            events.append(TextEnded(self._text, ""))
            self._text = -1
        if self._refusal >= 0:
            events.append(TextEnded(self._refusal, "", Native(self._reader, _REFUSAL)))
            self._refusal = -1
