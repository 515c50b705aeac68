"""From the bytes of a reply to events: one JSON object, server-sent events, or a JSON array of chunks.

A whole reply is one chunk. A proxy may answer a request for a stream with a whole reply, or with the array that the API
sends if events were not asked for. Chunks are split into raw members, so that nothing is lost. A chunk with a finish
reason is not always the last one: the reply is complete when the bytes end.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import chain
from typing import ClassVar, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from dragoman._decoding import decode, measured_decoder_of
from dragoman.conversation import (
    BlockReceived,
    Completed,
    Media,
    Native,
    Opaque,
    ReplyEvent,
    ReplyStarted,
    ServerToolUse,
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
from dragoman.errors import ContentFilteredError, ProtocolError
from dragoman.providers.citations import cite, read_grounding
from dragoman.providers.codec import Call, Encoded
from dragoman.providers.failures import error_from
from dragoman.providers.wire import (
    ABSENT,
    MALFORMED,
    DecoderBase,
    Growing,
    Places,
    as_object,
    as_objects,
    count_of,
    elements,
    is_object,
    read_counts,
    read_elements,
    read_members,
    read_text,
    value_of,
)

from .history import MADE_UP_ID, READER, SIGNATURE
from .server_tools import read_use

_encode = msgspec.json.encode
_read_string = measured_decoder_of(str).decode
_read_bool = measured_decoder_of(bool).decode
_read_index = measured_decoder_of(int).decode


def _read_given(data: bytes | str | Raw) -> dict[str, Raw]:
    """The members of a JSON object without those that are null: Google omits them, proxies do not."""
    return {name: raw for name, raw in read_members(data).items() if bytes(raw) != b"null"}


def _compact(raw: Raw) -> Raw:
    """A copy without the spaces between tokens, as whole replies are pretty-printed. Numbers and strings keep their
    spelling."""
    return Raw(msgspec.json.format(bytes(raw), indent=-1))


def _native(members: dict[str, Raw]) -> Native | None:
    return Native(READER, {name: _compact(raw) for name, raw in members.items()}) if members else None


# --- why a reply ended, and what it cost ------------------------------------------------------------------------------

_REASONS: Final[dict[StopReason, str]] = {
    StopReason.END: "STOP",
    StopReason.MAX_TOKENS: "MAX_TOKENS",
    StopReason.CONTENT_FILTER: """SAFETY RECITATION BLOCKLIST PROHIBITED_CONTENT SPII MODEL_ARMOR IMAGE_SAFETY
        IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION""",
    StopReason.ERROR: """MALFORMED_FUNCTION_CALL MALFORMED_RESPONSE MISSING_THOUGHT_SIGNATURE
        UNEXPECTED_TOOL_CALL""",
    StopReason.PAUSED: "CONTINUATION",  # the token that comes with it fetches the rest
}
_STOP_REASONS: Final = {word: reason for reason, words in _REASONS.items() for word in words.split()}
"""Others (LANGUAGE, NO_IMAGE, TOO_MANY_TOOL_CALLS, …) are OTHER."""

# A reply with calls ends like any other. An "unexpected" call names a function that was not declared; it is a call too,
# and its result tells the model so.
_CALLING: Final = frozenset(["STOP", "UNEXPECTED_TOOL_CALL"])


_COUNTS: Final[Places] = {
    "promptTokenCount": "input",
    "candidatesTokenCount": "output",
    "thoughtsTokenCount": "reasoning",
    "cachedContentTokenCount": "cache_read",
    "totalTokenCount": "total",
}
_AUDIO: Final = {
    "promptTokensDetails": "audio_input",
    "candidatesTokensDetails": "audio_output",
    "cacheTokensDetails": "audio_cache_read",
}
"""Lists of counts by modality: sounds have a price of their own."""


def _read_usage(raw: Raw) -> Usage | None:
    """The usage in a `usageMetadata`; None if it has no counts at all."""
    usage = as_object(value_of(raw))
    counts = read_counts(usage, _COUNTS)
    if counts.keys() & {"output", "reasoning", "total"}:
        # A count of zero is omitted: where the total is known, what is absent is zero.
        counts["output"] = counts.get("output", 0) + counts.get("reasoning", 0)
    elif "input" not in counts:
        return None
    if (of_tools := count_of(usage.get("toolUsePromptTokenCount"))) is not None:  # read by the model, too
        counts["input"] = counts.get("input", 0) + of_tools
    for name, field in _AUDIO.items() if b"AUDIO" in bytes(raw) else ():
        sounds = [one for one in as_objects(usage.get(name)) if one.get("modality") == "AUDIO"]
        if sounds:
            counts[field] = sum([count_of(one.get("tokenCount")) or 0 for one in sounds])
    return Usage(**counts)


# --- the content of a reply -------------------------------------------------------------------------------------------
# Within one chunk every part is a block of its own; a text at the start of the next chunk continues the open text. So a
# whole reply keeps its parts, and the many pieces of a stream become one text. A part with a thought signature (or
# anything else beside its text) ends its text, which keeps the signature: Google requires each signature in the part it
# came in. A signature on an empty text belongs to the text before it; if there is none, the part is kept as it is.

# Members of a part that describe its data.
_ABOUT_DATA = frozenset(
    ["thought", SIGNATURE, "partMetadata", "videoMetadata", "mediaResolution", "mediaProcessing", "speechMetadata"]
)
_CALL_MEMBERS = frozenset(["id", "name", "args", "willContinue"])
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")
_PLAIN_ALPHABET = str.maketrans("-_", "+/")


_Handler: TypeAlias = "Callable[[_Content, str, Raw, Raw | None, dict[str, Raw], list[ReplyEvent]], None]"
"""Takes the kind of a part, the raw part, its data and its other members."""


class _Content(Struct, eq=False):
    """The parts of one reply while they grow."""

    names: Mapping[str, str]
    """The tools' own names by their names on the wire."""
    id_prefix: str = MADE_UP_ID
    first_number: int = 0
    """The prefix and the first number of ids that are generated for calls without one."""
    calls: int = 0
    index: int = -1
    at_head: bool = True
    """Whether the next part is the first of its chunk."""
    open: bool | None = None
    """The open part: a thought (True), a text (False), or none."""
    texts: dict[int, list[str]] = {}
    _ids: set[str] = set()

    def add_text(self, text: str, thought: bool, events: list[ReplyEvent]) -> None:
        """A plain piece of text or thought: nearly all parts of a stream."""
        if text:
            if self.open is not thought or not self.at_head:
                self._start(thought, events)
            self.at_head = False
            if not thought:
                self.texts.setdefault(self.index, []).append(text)
            events.append((ThinkingDelta if thought else TextDelta)(self.index, "", text))

    def add_part(self, raw: Raw, events: list[ReplyEvent]) -> None:
        members = _read_given(raw)
        if "thought" in members and not _read_bool(members["thought"]):
            del members["thought"]  # from here on, a part with this member is a thought
        kind = next((name for name in self._HANDLERS if name in members), "text")
        data = members.pop(kind, None)
        if data is None and not members.keys() <= _ABOUT_DATA:
            # Parts of the provider's own tools, and new kinds.
            self._keep(raw, events, read_use(members))
        else:
            self._HANDLERS[kind](self, kind, raw, data, members, events)

    def end(self, events: list[ReplyEvent], native: Native | None = None, signature: str | None = None) -> None:
        """End the text or thought that is open, if one is."""
        if self.open is not None:
            ended = ThinkingEnded(self.index, "", signature, None, native) if self.open else None
            events.append(ended or TextEnded(self.index, "", native))
            self.open = None

    def _start(self, thought: bool, events: list[ReplyEvent]) -> None:
        self.end(events)
        self.index += 1
        self.open = thought
        events.append(ThinkingStarted(self.index, "", READER) if thought else TextStarted(self.index, ""))

    def _next_index(self, events: list[ReplyEvent]) -> int:
        self.end(events)
        self.at_head = False
        self.index += 1
        return self.index

    def _keep(self, raw: Raw, events: list[ReplyEvent], used: ServerToolUse | None = None) -> None:
        index = self._next_index(events)
        events.append(BlockReceived(index, "", Opaque(READER, _compact(raw), used)))

    # --- one handler for each kind of data ---

    def _take_text(
        self, _kind: str, raw: Raw, data: Raw | None, beside: dict[str, Raw], events: list[ReplyEvent]
    ) -> None:
        text = _read_string(data) if data is not None else ""
        thought = beside.pop("thought", None) is not None
        if not beside:
            self.add_text(text, thought, events)
            return
        continues = self.at_head and self.open is thought
        if not text and not thought and not continues:
            # To be sent back, an empty part must have a kind.
            self._keep(raw if data is not None else Raw(_encode({"text": "", **beside})), events)
            return
        if text:
            self.add_text(text, thought, events)
        elif not continues:
            self._start(thought, events)
        signature = _read_string(beside.pop(SIGNATURE)) if thought and SIGNATURE in beside else None
        self.at_head = False
        self.end(events, _native(beside), signature)

    def _take_call(
        self, _kind: str, _raw: Raw, data: Raw | None, beside: dict[str, Raw], events: list[ReplyEvent]
    ) -> None:
        members = _read_given(data) if data is not None else {}
        if "partialArgs" in members or bytes(members.get("willContinue", b"")) == b"true":
            hint = "Leave `streamFunctionCallArguments` out of `extra_body`: a call is then sent in one piece."
            raise ProtocolError("A function call arrives in pieces, which is not supported.", hint=hint)
        if "name" not in members:
            raise ProtocolError("The model calls a function without naming it.")
        name = _read_string(members["name"])
        id = _read_string(members["id"]) if "id" in members else ""
        if not id or id in self._ids:
            id = f"{self.id_prefix}{self.first_number + self.calls}"
        self._ids.add(id)
        self.calls += 1
        index = self._next_index(events)
        events.append(ToolCallStarted(index, id, self.names.get(name, name)))
        if "args" in members:
            given = members["args"]  # some proxies give them as a text
            text = _read_string(given) if bytes(given)[:1] == b'"' else bytes(_compact(given)).decode()
            events.append(ToolCallDelta(index, id, text))
        if further := {name: raw for name, raw in members.items() if name not in _CALL_MEMBERS}:
            beside["functionCall"] = Raw(_encode(further))
        events.append(ToolCallEnded(index, id, _native(beside)))

    def _take_media(
        self, kind: str, raw: Raw, data: Raw | None, beside: dict[str, Raw], events: list[ReplyEvent]
    ) -> None:
        fields = _read_given(data) if data is not None else {}
        if "thought" in beside or (kind == "fileData" and "fileUri" not in fields):
            self._keep(raw, events)  # a sketch on the way to the picture, which is no part of the answer; or no file
            return
        mime_type = _read_string(fields.pop("mimeType", b'"application/octet-stream"'))
        if kind == "fileData":
            media = Media.from_url(_read_string(fields.pop("fileUri")), mime_type=mime_type)
        else:
            media = Media.from_bytes(_read_base64(fields.pop("data", b'""')), mime_type)
        if fields:
            beside[kind] = Raw(_encode(fields))
        media = msgspec.structs.replace(media, native=_native(beside)) if beside else media
        events.append(BlockReceived(self._next_index(events), "", media))

    # In this order: a text beside a call belongs to the call.
    _HANDLERS: ClassVar[dict[str, _Handler]] = {
        "functionCall": _take_call,
        "inlineData": _take_media,
        "fileData": _take_media,
        "text": _take_text,
    }


def _read_base64(raw: Raw | bytes) -> bytes:
    """Bytes in base64 of either alphabet, padded or not."""
    text = _read_string(raw).translate(_PLAIN_ALPHABET).rstrip("=")
    try:
        return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise ProtocolError("The media in the reply are not valid base64.") from None


# --- the reply --------------------------------------------------------------------------------------------------------


class ReplyDecoder(DecoderBase):
    """Reads one reply."""

    def __init__(self, call: Call, encoded: Encoded) -> None:
        super().__init__(call, encoded)
        self._content: _Content | None = None
        self._finish_reason: str | None = None
        self._usage: Raw = ABSENT
        """The newest `usageMetadata`: each replaces the one before."""
        self._first_usage: Usage | None = None
        self._kept: dict[str, Growing] = {}
        """Members of chunks and candidates that have no place in our values."""
        self._counted: bool = False
        """Whether a count came with the finish reason, or after it."""
        self._others: list[bytes] = []
        self._ended: dict[int, bool] = {}
        """Further candidates by index, and whether each has its finish reason."""
        self._logprobs: dict[str, list[Raw]] = {}

    @property
    def done(self) -> bool:
        """As in Decoder: whether every candidate has a finish reason and there is a last count. Chunks that follow at
        once are read too."""
        if self.ended:
            return True
        is_last = self.call.options.choices in (None, 1) and all(self._ended.values())  # others may not have begun
        return is_last and self._finish_reason is not None and self._counted

    def take_event(self, name: bytes, payload: bytes, events: list[ReplyEvent]) -> None:
        if name == b"error":
            raise error_from(decode(payload), self.call)
        if payload != b"[DONE]":  # sent by proxies
            # Raw members are kept without being parsed, and must be UTF-8.
            self._take_members(_read_given(payload.decode()), events)

    def take_whole(self, body: bytes, events: list[ReplyEvent]) -> None:
        for chunk in map(bytes, read_elements(body)) if body.startswith(b"[") else [body]:
            self.take_event(b"", chunk, events)
        self._complete(events, whole=body.startswith(b"{"))

    def end_stream(self, events: list[ReplyEvent]) -> None:
        self._complete(events, whole=False)

    def _complete(self, events: list[ReplyEvent], *, whole: bool) -> None:
        content = self._content
        if content is None or (self._finish_reason is None and not (whole and content.index >= 0)):
            raise self.broken("it broke off without a finish reason")
        content.end(events)
        self._report_usage(events)
        if self._usage is not ABSENT:
            bytes(self._usage).decode()  # as in take_event
            self._keep("usageMetadata", self._usage)
        kept = {name: member.whole() for name, member in self._kept.items()}
        grounding, recited = kept.get("groundingMetadata"), kept.get("citationMetadata")
        if grounding is not None or recited is not None:
            events += cite(content.texts, read_grounding(grounding, recited, content.texts))
        if self._others:
            kept["candidates"] = Raw(b"[" + b",".join(self._others) + b"]")
            if self.names:  # whoever decodes them needs the tools' own names
                kept["tool_names"] = Raw(_encode(dict(self.names)))
        if self._logprobs:
            joined = {part: [*chain(*map(elements, came))] or came[-1] for part, came in self._logprobs.items()}
            kept["logprobsResult"] = Raw(_encode(joined))
        reason = _STOP_REASONS.get(self._finish_reason or "", StopReason.OTHER)
        if content.calls and self._finish_reason in _CALLING:
            reason = StopReason.TOOL_CALLS
        self.ended = True
        events.append(Completed(reason, self._finish_reason, Native(READER, kept) if kept else None))

    def break_off(self, events: list[ReplyEvent]) -> None:
        with suppress(*MALFORMED):  # the reply fails with another error already
            self._report_usage(events)

    # --- chunks ---

    def _take_members(self, chunk: dict[str, Raw], events: list[ReplyEvent]) -> None:
        error = chunk.pop("error", None)
        if error is not None:
            raise error_from(decode(error), self.call)
        candidates = read_elements(chunk.pop("candidates", b"[]"))
        feedback = chunk.pop("promptFeedback", None)
        counts = "usageMetadata" in chunk
        self._usage = chunk.pop("usageMetadata", self._usage)
        content = self._content or self._start(chunk, events)
        for name, raw in chunk.items():
            if name not in ("modelVersion", "responseId"):
                self._keep(name, raw)
        content.at_head = True
        for candidate in candidates:
            self._take_candidate(candidate, content, events)
        self._counted = self._counted or (counts and self._finish_reason is not None)
        if feedback is not None:
            # A blocked prompt has no reply, which is an error and never an empty answer.
            told = _read_given(feedback)
            reason = _read_string(told["blockReason"]) if "blockReason" in told else "BLOCK_REASON_UNSPECIFIED"
            if not candidates and reason != "BLOCK_REASON_UNSPECIFIED":
                said = f": {_read_string(told['blockReasonMessage'])}" if "blockReasonMessage" in told else "."
                provider, model = self.call.profile.provider, self.call.model
                message = f"{provider}:{model} blocked the prompt ({reason}){said}"
                raise ContentFilteredError(message, provider=provider, model=model, code=reason)
            self._keep("promptFeedback", feedback)

    def _take_candidate(self, raw: Raw, content: _Content, events: list[ReplyEvent]) -> None:
        candidate = _read_given(raw)
        if (index := _read_index(candidate.pop("index", b"0"))) != 0:
            self._others.append(bytes(_compact(raw)))  # the first candidate is the reply, the others are kept
            self._ended[index] = self._ended.get(index, False) or "finishReason" in candidate
            return
        for part in read_elements(_read_given(candidate.pop("content", b"{}")).get("parts", b"[]")):
            content.add_part(part, events)
        finish = candidate.pop("finishReason", None)
        if finish is not None and (word := _read_string(finish)) != "FINISH_REASON_UNSPECIFIED":
            self._finish_reason = word
        logprobs = candidate.get("logprobsResult")
        if is_object(logprobs):  # in pieces, token by token
            for part, tokens in _read_given(candidate.pop("logprobsResult")).items():
                self._logprobs.setdefault(part, []).append(_compact(tokens))
        for name, member in candidate.items():
            self._keep(name, member)

    def _start(self, chunk: Mapping[str, Raw], events: list[ReplyEvent]) -> _Content:
        call, model, id = self.call, read_text(chunk.get("modelVersion")), read_text(chunk.get("responseId"))
        content = self._content = _Content(self.names)
        if mark := _NOT_IN_IDS.sub("", id or "")[-24:]:
            content.id_prefix = f"{MADE_UP_ID}{mark}_"
        else:  # the number of each call in the conversation makes its id unique
            content.first_number = sum(len(message.tool_calls) for message in call.conversation.messages)
        events.append(ReplyStarted(call.profile.provider, model or call.model, id or None, call.time))
        if self._usage is not ABSENT:  # the cost of the prompt is known even if the reply is aborted
            self._first_usage = _read_usage(self._usage)
            if self._first_usage is not None:
                events.append(UsageReported(self._first_usage))
        return content

    # --- metadata ---

    def _keep(self, name: str, raw: Raw) -> None:
        if bytes(raw) not in (b"{}", b"[]", b"null"):
            self._kept.setdefault(name, Growing()).add(_compact(raw))

    def _report_usage(self, events: list[ReplyEvent]) -> None:
        """Report the newest usage, with the cached tokens that only the first chunk may report."""
        usage, first = _read_usage(self._usage) if self._usage is not ABSENT else None, self._first_usage
        if usage is not None:
            if usage.cache_read is None and first is not None and first.cache_read is not None:
                cached = {"cache_read": first.cache_read, "audio_cache_read": first.audio_cache_read}
                usage = msgspec.structs.replace(usage, **cached)
            events.append(UsageReported(usage))
