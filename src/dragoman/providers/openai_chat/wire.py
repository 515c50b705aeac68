"""The JSON of chat completions and what it means: read without believing all of it, and put together again.

Owns: the plain form of a chunk; token counts, finish reasons, media, think tags and unknown members of a reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import Media, Native, Opaque, StopReason, Usage
from dragoman.errors import ProtocolError
from dragoman.providers.wire import (
    as_object,
    decode_base64,
    elements,
    first_count,
    integer,
    is_empty,
    is_object,
    join_members,
    members,
    string,
    value_of,
)

FIELD: Final = "field"
"""Under this name a block's native fields keep the name of the wire's field that it came in."""


def reader_of(provider: str) -> str:
    """The name under which blocks say that only this server can read them back."""
    return f"openai_chat:{provider}"


# --- a chunk of nothing but text --------------------------------------------------------------------------------------

# Most chunks of a stream. Anything else makes this decoder fail on purpose: such a chunk is read member by member, so
# that nothing is lost. Members that are listed and never looked at say nothing new in the middle of a stream: they
# stand in the first or the last chunk as well, which are read member by member (`obfuscation` and `p` are padding).


class _Delta(Struct, forbid_unknown_fields=True, gc=False):
    content: str
    role: str | None = None
    refusal: None = None
    reasoning_content: None = None
    reasoning: None = None
    channel: str | None = None
    tool_calls: None = None
    function_call: None = None
    audio: None = None
    token_id: int | None = None


class _NoLogprobs(Struct, forbid_unknown_fields=True, gc=False):
    """Log probabilities that were not asked for; a server may send the member all the same."""

    content: None = None
    refusal: None = None


class _Choice(Struct, forbid_unknown_fields=True, gc=False):
    delta: _Delta
    index: Literal[0] = 0
    finish_reason: None = None
    native_finish_reason: str | None = None
    logprobs: _NoLogprobs | None = None
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


decode_text_chunk: Final = msgspec.json.Decoder(_TextChunk).decode


# --- token counts -----------------------------------------------------------------------------------------------------


def read_usage(fields: Mapping[str, Raw]) -> Usage | None:
    """The token counts in the members of a reply, a chunk or a choice; None if there are none."""
    found = fields.get("usage")
    if found is None or is_empty(found):
        groq = fields.get("x_groq")
        found = members(groq).get("usage") if is_object(groq) else None
    counts = as_object(value_of(found))
    read, written = first_count(counts.get("prompt_tokens")), first_count(counts.get("completion_tokens"))
    total = first_count(counts.get("total_tokens"))
    if read is None and written is None and total is None:
        return None
    prompt, completion = as_object(counts.get("prompt_tokens_details")), counts.get("completion_tokens_details")
    reasoning = first_count(as_object(completion).get("reasoning_tokens"), counts.get("reasoning_tokens"))
    if reasoning and read is not None and written is not None and total == read + written + reasoning:
        written += reasoning  # xAI counts reasoning beside the completion; here it is a part of the output
    cached = first_count(
        prompt.get("cached_tokens"),
        as_object(counts.get("prompt_token_details")).get("cached_tokens"),
        counts.get("prompt_cache_hit_tokens"),  # DeepSeek
        counts.get("num_cached_tokens"),  # Mistral
        counts.get("cached_tokens"),  # Together, Moonshot
    )
    stored = first_count(prompt.get("cache_write_tokens"), prompt.get("cache_creation_tokens"))
    return Usage(input=read, output=written, cache_read=cached, cache_write=stored, reasoning=reasoning, total=total)


# --- why a reply ended ------------------------------------------------------------------------------------------------

_WORDS: Final[dict[StopReason, str]] = {
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
STOP_REASONS: Final = {word: reason for reason, words in _WORDS.items() for word in words.split()}

FAILED: Final[dict[str, str]] = {
    "error": "the server reports that it failed while it answered",
    "abort": "the server aborted the answer",
    "insufficient_system_resource": "the server ran out of resources while it answered",  # DeepSeek
    "network_error": "the server lost its own connection to the model",  # Z.ai
}
"""Finish reasons that say that the answer was not finished, and what they mean."""


# --- media that the model made ----------------------------------------------------------------------------------------


def image_of(raw: Raw, reader: str) -> Media | Opaque:
    """An element of `images` (OpenRouter): a data URL or another one, in the shape of a part of content."""
    try:
        url = string(members(members(raw)["image_url"]).get("url"))
    except (ProtocolError, KeyError):
        return Opaque(reader, raw.copy())
    native = Native(reader, {FIELD: Raw(b'"images"')})
    if not url.startswith("data:"):
        return Media(kind="image", mime_type="image/*", url=url, native=native)
    kind, _, encoded = url[5:].partition(";base64,")
    data = decode_base64([encoded])
    if data is None or not kind:
        return Opaque(reader, raw.copy())
    return Media(kind="image", mime_type=kind, data=data, native=native)


# --- what else a reply says -------------------------------------------------------------------------------------------

# What is known and taken elsewhere, or says nothing: `obfuscation` is padding against eavesdroppers.
_KNOWN_OF_REPLY: Final = frozenset(["id", "object", "model", "choices", "obfuscation", "p", "error"])
_KNOWN_OF_CHOICE: Final = frozenset(["index", "delta", "message", "finish_reason", "usage", "error"])


class Extras(Struct, eq=False):
    """Unknown members of a reply, kept as raw JSON; those of the message go back to the server that sent them."""

    _reply: dict[str, Raw] = {}
    _choice: dict[str, Raw] = {}
    _message: dict[str, Raw] = {}
    _logprobs: dict[str, list[bytes]] = {}

    def add_of_reply(self, fields: dict[str, Raw]) -> None:
        """Members beside `choices`; the newest stands, for most servers repeat them in every chunk."""
        for name, raw in fields.items():
            if name not in _KNOWN_OF_REPLY and not is_empty(raw):
                self._reply[name] = raw

    def add_of_choice(self, fields: dict[str, Raw]) -> None:
        """Members beside `message`. Log probabilities come token by token and are put behind each other."""
        for name, raw in fields.items():
            if name in _KNOWN_OF_CHOICE or is_empty(raw):
                continue
            if name == "logprobs" and is_object(raw):
                for part, tokens in members(raw).items():
                    self._logprobs.setdefault(part, []).extend([bytes(token) for token in elements(tokens)])
            else:
                self._choice[name] = raw.copy()

    def add_of_message(self, name: str, raw: Raw) -> None:
        """A member of the message, or the next piece of it."""
        if not is_empty(raw):
            before = self._message.get(name)
            self._message[name] = raw.copy() if before is None else Raw(_merge(bytes(before), bytes(raw)))

    def of_choice(self, name: str) -> str:
        """A string member of the choice, e.g. `native_finish_reason`; empty if there is none."""
        return string(self._choice.get(name))

    def native(self, reader: str) -> Native | None:
        """Everything, as the reply's own fields: `choice` and `message` stand for members inside them."""
        fields = {name: raw.copy() for name, raw in self._reply.items()}
        logprobs = {name: Raw(b"[" + b",".join(tokens) + b"]") for name, tokens in self._logprobs.items() if tokens}
        if logprobs:
            self._choice["logprobs"] = Raw(join_members(logprobs))
        for name, inner in (("choice", self._choice), ("message", self._message)):
            if inner:
                fields[name] = Raw(join_members(inner))
        return Native(reader, fields) if fields else None


def _merge(before: bytes, after: bytes) -> bytes:
    """Two pieces of one member: arrays grow (or fill up, element by element, by `index`), strings grow, objects mix."""
    kind = before[:1]
    if before == after or kind != after[:1]:
        return after
    if kind == b'"':
        return msgspec.json.encode(string(Raw(before)) + string(Raw(after)))
    if kind == b"{":
        return join_members({**members(before), **members(after)})
    if kind != b"[":
        return after
    merged = [bytes(element) for element in elements(Raw(before))]
    places = {_index_of(element): place for place, element in enumerate(merged)}
    for piece in map(bytes, elements(Raw(after))):
        place = places.get(index) if (index := _index_of(piece)) is not None else None
        if place is None:
            merged.append(piece)
        else:
            merged[place] = join_members({**members(merged[place]), **members(piece)})
    return b"[" + b",".join(merged) + b"]"


def _index_of(element: bytes) -> int | None:
    try:
        return integer(members(element).get("index")) if element.startswith(b"{") else None
    except ProtocolError:
        return None


# --- think tags -------------------------------------------------------------------------------------------------------

OPEN: Final = "<think>"
CLOSE: Final = "</think>"


class ThinkTags:
    """Takes `<think>…</think>` off the start of a text that comes in pieces; `done` says that the rest is plain.

    Only for servers whose profile says so: elsewhere a text that begins with this tag is a text.
    """

    def __init__(self) -> None:
        self._held: str = ""
        """What may be the beginning of a tag."""
        self._inside: bool = False
        self._behind: bool = False
        """Behind the closing tag, where line breaks belong to neither."""
        self.done: bool = False

    def split(self, piece: str) -> tuple[str, str]:
        """The reasoning and the text in this piece."""
        held = self._held + piece
        self._held = ""
        if not self._inside:
            start = held.lstrip()
            if OPEN.startswith(start) and start != OPEN:
                self._held = held
                return "", ""
            if not start.startswith(OPEN):
                self.done = True
                return "", held
            self._inside = True
            held = start[len(OPEN) :]
        thought, closed, text = ("", CLOSE, held) if self._behind else held.partition(CLOSE)
        if closed:
            text = text.lstrip("\n")
            self._behind, self.done = True, bool(text)
            return thought, text
        lengths = range(min(len(thought), len(CLOSE) - 1), 0, -1)
        length = next((length for length in lengths if thought.endswith(CLOSE[:length])), 0)
        whole = len(thought) - length  # the rest may be the beginning of the closing tag
        self._held = thought[whole:]
        return thought[:whole], ""

    def rest(self) -> tuple[str, str]:
        """What was held back, now that nothing follows."""
        held, self._held = self._held, ""
        return (held, "") if self._inside else ("", held)
