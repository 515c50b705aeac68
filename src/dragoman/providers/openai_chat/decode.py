"""From bytes to events: streams, whole replies, and errors in place of either.

A whole reply is one big piece of a message, so it cannot differ from a streamed one; parts.py reads the message.

A reply is complete when it has a finish reason. `[DONE]` alone is not enough, as servers send it after an aborted reply
too; `[DONE]` after a token count is, since OpenAI omits the count when a stream is cut. Without `[DONE]` a stream was
cut if an answer that was asked for has not begun, or, at a service that always sends it, if there is no count.
Everything else is a ProtocolError, never a finished reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec import Raw, Struct

from dragoman._decoding import measured_decoder_of
from dragoman.conversation import (
    Completed,
    Native,
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
    Places,
    as_object,
    document,
    elements,
    integer,
    is_empty,
    is_object,
    join_members,
    members,
    read_charge,
    read_counts,
    string,
    value_of,
)

from .history import reader_of
from .parts import Parts

# --- a chunk of nothing but text --------------------------------------------------------------------------------------

# Most chunks of a stream. Any other chunk fails to decode, on purpose, and is then read member by member, so that
# nothing is lost. Members that are listed and never used are also in the first or the last chunk, or are padding.


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


_decode_text_chunk: Final = measured_decoder_of(_TextChunk).decode


# The same for a whole reply of nothing but text and calls, as most are (docs/decisions/0002 has the gain).


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


_decode_plain_reply: Final = measured_decoder_of(_PlainReply).decode
_KEPT_OF_PLAIN_REPLY: Final = ("created", "usage", "service_tier", "system_fingerprint")

# --- what a reply cost, and why it ended ------------------------------------------------------------------------------

_COUNTS: Final[Places] = {
    "prompt_tokens_details": {
        "cached_tokens": "cache_read",
        "cache_write_tokens": "cache_write",
        "cache_creation_tokens": "cache_write",
        "audio_tokens": "audio_input",
    },
    "prompt_token_details": {"cached_tokens": "cache_read"},
    "completion_tokens_details": {"reasoning_tokens": "reasoning", "audio_tokens": "audio_output"},
    "prompt_tokens": "input",
    "completion_tokens": "output",
    "total_tokens": "total",
    "reasoning_tokens": "reasoning",
    "prompt_cache_hit_tokens": "cache_read",  # DeepSeek
    "num_cached_tokens": "cache_read",  # Mistral
    "cached_tokens": "cache_read",  # Together, Moonshot
}


def _read_usage(fields: Mapping[str, Raw]) -> Usage | None:
    """The token counts in a reply, a chunk or a choice; None if there are none."""
    usage = fields.get("usage")
    if (usage is None or is_empty(usage)) and is_object(groq := fields.get("x_groq")):
        usage = members(groq).get("usage")
    if usage is None:
        return None
    found = as_object(value_of(usage))
    counts = read_counts(found, _COUNTS)
    read, written, total = counts.get("input"), counts.get("output"), counts.get("total")
    if read is None and written is None and total is None:
        return None
    reasoning = counts.get("reasoning")
    if reasoning and read is not None and written is not None and total == read + written + reasoning:
        counts["output"] += reasoning  # xAI counts reasoning beside the completion; here it is a part of the output
    return Usage(**counts, charged=read_charge(found))


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
"""Finish reasons that mean that the answer is not finished."""

# Members that are read elsewhere or add nothing: `obfuscation` and `p` are padding against eavesdroppers.
_KNOWN_OF_REPLY: Final = frozenset(["id", "object", "model", "choices", "obfuscation", "p", "error"])
_KNOWN_OF_CHOICE: Final = frozenset(["index", "delta", "message", "finish_reason", "usage", "error", "logprobs"])


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
    """Reads one reply: its chunks and choices, and how it ends."""

    # Defaults here cost less than attributes of each decoder.
    _started: bool = False
    _finish_reason: str = ""
    _usage: Usage | None = None
    _counted: bool = False
    """Whether a count of tokens came behind the last choice."""
    _takes_text: bool = False
    """Whether chunks of nothing but text are read as such: not the first one, and none behind a count."""

    def __init__(self, call: Call, encoded: Encoded) -> None:
        super().__init__(call, encoded)
        self._reader: str = reader_of(call.profile.provider)
        self._parts: Parts = Parts(self._reader, self.names)
        # Members that are not known, kept as raw JSON.
        self._of_reply: dict[str, Raw] = {}
        self._of_choice: dict[str, Raw] = {}
        self._logprobs: dict[str, list[bytes]] = {}
        self._other_choices: list[bytes] = []
        self._others: set[int] = set()
        """The indexes of further answers that have begun; one that broke off is kept as far as it came."""

    # --- streams and whole replies ------------------------------------------------------------------------------------

    def take_event(self, name: bytes, payload: bytes, events: list[ReplyEvent]) -> None:
        if name == b"error":
            raise self._read_error(payload, events)
        if self._takes_text:
            try:
                text = _decode_text_chunk(payload).choices[0].delta.content
            except (msgspec.DecodeError, UnicodeError):
                pass
            else:
                self._parts.say(text, events)
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
        if len(self._others) + 1 < (self.call.options.choices or 1):
            raise self.broken("the stream ended before all answers had begun")
        if self._usage is None and "ends_with_done" in self.call.profile.quirks:
            raise self.broken("the stream ended behind the answer, before its count of tokens")
        self._complete(events)

    def _take_chunk(self, fields: dict[str, Raw], events: list[ReplyEvent], *, whole: bool = False) -> None:
        if _says_error(fields):
            self._take_usage(fields)
            self.break_off(events)
            raise error_in(fields, self.call)
        choices = [members(raw) for raw in elements(fields.get("choices"))]
        if whole and not choices:
            raise self.broken("the reply has no choices")
        id = string(fields.get("id"))
        if not self._started and (choices or id):
            self._start(id, string(fields.get("model")), events)
        self._keep_of_reply(fields)
        # With several answers, the first one is the reply.
        first = next((choice for choice in choices if not integer(choice.get("index"))), choices[0]) if whole else None
        for choice in choices:
            index = integer(choice.get("index")) or 0
            if choice is not first if whole else index:
                self._other_choices.append(join_members(choice))
                self._others.add(index)
            else:
                self._counted = False
                self._take_choice(choice, events, whole=whole)
        self._take_usage(fields)
        self._counted = self._counted or (not choices and "usage" in fields and self._usage is not None)
        self._takes_text = self._started and not self._counted

    def take_whole(self, body: bytes, events: list[ReplyEvent]) -> None:
        if body.startswith(b"["):
            raise self._read_error(body, events)
        try:
            body.decode()  # raw members are kept without being parsed, and must be UTF-8
            reply = _decode_plain_reply(body)
        except (msgspec.DecodeError, UnicodeError):
            pass
        else:
            said = reply.choices[0].message
            if reply.id and reply.model and (said.tool_calls or said.content):
                self._take_plain_reply(reply, events)
                return
        self._take_chunk(document(body), events, whole=True)
        self._complete(events)

    def _take_plain_reply(self, reply: _PlainReply, events: list[ReplyEvent]) -> None:
        choice, parts = reply.choices[0], self._parts
        said, self._usage = choice.message, _read_usage({"usage": reply.usage})
        self._start(reply.id, reply.model, events)
        if said.content:
            index, parts.count = parts.count, parts.count + 1  # nothing is open before it
            events += [TextStarted(index, ""), TextDelta(index, "", said.content), TextEnded(index, "")]
        stop = _STOP_REASONS[choice.finish_reason]
        if said.tool_calls:
            stop = StopReason.TOOL_CALLS
            for place, call in enumerate(said.tool_calls):
                parts.grow_call(place, call.id, call.function.name, call.function.arguments, events)
            parts.end_calls(events, cut=False)
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

    def _start(self, id: str, model: str, events: list[ReplyEvent]) -> None:
        self._started, call = True, self.call
        # A server without ids for calls may have none for replies: generated ids depend on the place as well.
        self._parts.place = f"{id or None}/{len(call.conversation.messages)}"
        events.append(ReplyStarted(call.profile.provider, model or call.model, id or None, call.time))

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
        if not whole and "delta" in choice and (not is_empty(choice["delta"]) or self._parts.count):
            message = choice["delta"]  # Perplexity repeats in `message` all that came before
        if message is not None and not is_empty(message):
            self._parts.take_message(members(message), events, whole=whole)
        self._finish_reason = string(choice.get("finish_reason")) or self._finish_reason
        self._take_usage(choice)  # Moonshot counts here

    def _take_usage(self, fields: Mapping[str, Raw]) -> None:
        self._usage = _read_usage(fields) or self._usage

    def _keep_of_reply(self, fields: dict[str, Raw]) -> None:
        """Keep members beside `choices`; the newest wins, as most servers repeat them in every chunk."""
        for name, raw in fields.items():
            if name not in _KNOWN_OF_REPLY and not is_empty(raw):
                self._of_reply[name] = raw

    def _complete(self, events: list[ReplyEvent]) -> None:
        """The reply has come to its end. Raises a ProviderError if its finish reason says that it failed."""
        word = self._finish_reason.lower()
        if word in _FAILED:
            self.break_off(events)
            raise failure(self.call, None, word, _FAILED[word], {})
        stop = self._stop_reason()
        self._parts.end(self.call.options.extra_body.get("audio"), events, cut=stop in _CUT)
        self._cite(events)
        self._report_usage(events)
        self.ended = True
        events.append(Completed(stop, self._finish_reason or None, self._native()))

    def _cite(self, events: list[ReplyEvent]) -> None:
        texts, annotations = self._parts.texts, self._parts.unknown.get("annotations")
        citations, results = self._of_reply.get("citations"), self._of_reply.get("search_results")
        if annotations is not None:
            events += cite(texts, read_citations(annotations.whole(), of_openai))
        elif citations is not None or results is not None:
            events += cite(texts, read_sources(citations, results, texts))

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
        if self._parts.refused and found in (StopReason.END, StopReason.OTHER, StopReason.TOOL_CALLS):
            return StopReason.REFUSAL  # even beside calls, which are then not run
        if found not in (StopReason.END, StopReason.OTHER):
            return found
        if self._parts.calls:  # several servers say "stop" even then
            return StopReason.TOOL_CALLS
        # vLLM: the stop sequence, or the number of a token.
        return StopReason.STOP_SEQUENCE if string(self._of_choice.get("stop_reason")) else found

    def _native(self) -> Native | None:
        """Unknown members of the reply, and under `choice` and `message` those of the two objects inside it."""
        fields = {name: raw.copy() for name, raw in self._of_reply.items()}
        if logprobs := {
            part: Raw(b"[" + b",".join(tokens) + b"]") for part, tokens in self._logprobs.items() if tokens
        }:
            self._of_choice["logprobs"] = Raw(join_members(logprobs))
        of_message = {name: member.whole() for name, member in self._parts.unknown.items()}
        for name, inner in (("choice", self._of_choice), ("message", of_message)):
            if inner:
                fields[name] = Raw(join_members(inner))
        if self._other_choices:
            fields["choices"] = Raw(b"[" + b",".join(self._other_choices) + b"]")
            if self.names:  # whoever decodes them needs the tools' own names
                fields["tool_names"] = Raw(msgspec.json.encode(dict(self.names)))
        return Native(self._reader, fields) if fields else None
