"""From bytes to events: streams, whole replies, and what servers send in place of either.

Owns: telling a stream from a whole reply, when a reply is complete, and the parts of a reply while they grow. A whole
reply is one big piece of a message, so it cannot differ from a streamed one.

A reply is complete when a finish reason came. `[DONE]` alone is not enough, for a server may send it after it broke
off; with a count of tokens behind the last choice, which OpenAI's documentation says is missing when a stream is cut,
it is. The quirk `done_is_enough` takes `[DONE]` alone. Everything else is a ProtocolError, never a finished reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2s
from typing import Final, cast

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
from dragoman.errors import ProtocolError, ProviderError
from dragoman.providers.codec import Call, Encoded
from dragoman.providers.failures import error_in, failure
from dragoman.providers.wire import (
    ReplyBytes,
    decode_base64,
    document,
    elements,
    integer,
    is_empty,
    is_json,
    is_object,
    join_members,
    members,
    string,
    text_or_json,
)

from .wire import (
    FAILED,
    FIELD,
    STOP_REASONS,
    Extras,
    ThinkTags,
    decode_text_chunk,
    image_of,
    read_usage,
    reader_of,
)


class ChatDecoder(Struct, eq=False):
    """Reads one reply: a stream or a whole one, whichever comes."""

    _call: Call
    _reply: Reply
    _bytes: ReplyBytes = msgspec.field(default_factory=ReplyBytes)
    _counted: bool = False
    """Whether a count of tokens came behind the last choice."""
    _takes_text: bool = False
    """Whether chunks of nothing but text are read as such: not the first one, and none behind a count."""
    _done: bool = False

    @classmethod
    def of(cls, call: Call, encoded: Encoded) -> ChatDecoder:
        """A decoder for the reply to this request."""
        tags = ThinkTags() if "think_tags" in call.profile.quirks else None
        return cls(call, Reply(call, encoded.tool_names, reader_of(call.profile.provider), Extras(), tags))

    def feed(self, data: bytes, events: list[ReplyEvent]) -> None:
        """Take in the next bytes and append the events that they complete."""
        try:
            for name, payload in self._bytes.feed(data):
                self._read_event(name, payload, events)
        except ProtocolError as error:
            raise self._sign(error) from error.__cause__

    def finish(self, events: list[ReplyEvent]) -> None:
        """The bytes have ended. Raises ProtocolError if the reply has not."""
        if self._done:
            return
        try:
            if self._bytes.is_stream:
                self._finish_stream(events)
            else:
                self._read_whole(self._bytes.whole(), events)
        except ProtocolError as error:
            raise self._sign(error) from error.__cause__

    # --- streams ------------------------------------------------------------------------------------------------------

    def _read_event(self, name: bytes, payload: bytes, events: list[ReplyEvent]) -> None:
        if self._done:
            return
        if name == b"error":
            raise self._read_error(payload, events)
        if payload and not payload.isspace():
            self._read_chunk(payload, events)

    def _read_chunk(self, payload: bytes, events: list[ReplyEvent]) -> None:
        if self._takes_text:
            try:
                text = decode_text_chunk(payload).choices[0].delta.content
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                pass
            else:
                self._reply.say(text, events)
                return
        if payload.strip() == b"[DONE]":
            self._end_stream(events)
        else:
            self._read_members(document(payload), events)

    def _read_members(self, fields: dict[str, Raw], events: list[ReplyEvent]) -> None:
        """A chunk, member by member."""
        reply = self._reply
        if _says_error(fields):
            reply.take_usage(fields)
            reply.break_off(events)
            raise error_in(fields, self._call)
        choices = [members(raw) for raw in elements(fields.get("choices"))]
        if not reply.started and (choices or string(fields.get("id"))):
            reply.start(fields, events)
        reply.extras.add_of_reply(fields)
        for choice in choices:
            if not integer(choice.get("index")):  # with several answers, the first one is the reply
                self._counted = False
                self._read_choice(choice, events)
        reply.take_usage(fields)
        self._counted = self._counted or (not choices and "usage" in fields and reply.usage is not None)
        self._takes_text = reply.started and not self._counted

    def _read_choice(self, choice: dict[str, Raw], events: list[ReplyEvent], *, whole: bool = False) -> None:
        if "error" in choice and not is_empty(choice["error"]):
            raise error_in(choice, self._call)
        reply = self._reply
        reply.extras.add_of_choice(choice)
        for name in ("message", "delta"):
            if name in choice and not is_empty(choice[name]):
                reply.take_message(members(choice[name]), events, whole=whole)
                break
        reply.finish_reason = string(choice.get("finish_reason")) or reply.finish_reason
        reply.take_usage(choice)  # Moonshot counts here

    def _end_stream(self, events: list[ReplyEvent]) -> None:
        """`[DONE]` came."""
        reply = self._reply
        enough = self._counted or "done_is_enough" in self._call.profile.quirks
        if not reply.finish_reason and not (reply.started and enough):
            reply.break_off(events)
            raise _broken("the server ended the stream without saying why the reply ended")
        self._complete(events)

    def _finish_stream(self, events: list[ReplyEvent]) -> None:
        reply = self._reply
        try:
            for name, payload in self._bytes.finish():
                self._read_event(name, payload, events)
        except ProtocolError as error:
            reply.break_off(events)
            raise _broken("the stream ended in the middle of an event") from error
        if self._done:
            return
        if not reply.started:
            raise _broken("it is neither JSON nor a stream of chunks")
        if not reply.finish_reason:
            reply.break_off(events)
            raise _broken("the stream ended before the reply was complete")
        self._complete(events)

    def _complete(self, events: list[ReplyEvent]) -> None:
        self._done = True
        self._reply.complete(events)

    # --- whole replies ------------------------------------------------------------------------------------------------

    def _read_whole(self, body: bytes, events: list[ReplyEvent]) -> None:
        self._done = True
        if not body:
            raise _broken("the reply is empty")
        if body.startswith(b"["):
            raise self._read_error(body, events)
        try:
            fields = document(body)
        except ProtocolError as error:
            raise _broken("the reply is cut off, or not JSON at all") from error
        if _says_error(fields):
            raise error_in(fields, self._call)
        choices = [members(raw) for raw in elements(fields.get("choices"))]
        if not choices:
            raise _broken("the reply has no choices")
        reply = self._reply
        reply.start(fields, events)
        reply.extras.add_of_reply(fields)
        first = next((choice for choice in choices if not integer(choice.get("index"))), choices[0])
        self._read_choice(first, events, whole=True)
        reply.take_usage(fields)
        reply.complete(events)

    # --- errors -------------------------------------------------------------------------------------------------------

    def _read_error(self, payload: bytes, events: list[ReplyEvent]) -> ProviderError:
        self._reply.break_off(events)
        try:
            found = elements(Raw(payload)) if payload.startswith(b"[") else [Raw(payload)]
            return error_in(members(found[0]), self._call)
        except (ProtocolError, IndexError):
            return _broken(f"the server reports an error that is not JSON: {payload[:200]!r}")

    def _sign(self, error: ProtocolError) -> ProtocolError:
        error.provider, error.model = self._call.profile.provider, self._call.model
        return error


def _broken(what: str) -> ProtocolError:
    return ProtocolError(f"The reply cannot be used: {what}.")


def _says_error(fields: dict[str, Raw]) -> bool:
    """Whether this JSON object is an error. A chunk may be both: OpenRouter puts `error` beside `choices`."""
    error = fields.get("error")
    if error is not None and not is_empty(error):
        return True
    if "choices" in fields:
        return False
    flat = string(fields.get("message")) and ("code" in fields or "type" in fields)
    return bool(flat) or string(fields.get("object")) == "error" or "detail" in fields


# --- a reply while it grows -------------------------------------------------------------------------------------------

_REFUSAL: Final = {"type": Raw(b'"refusal"')}
"""The native fields of a text that came as a refusal, so that it goes back as one."""

# The format of a spoken answer is named in the request, nowhere in the reply.
_AUDIO_TYPES: Final = {"mp3": "mpeg", "flac": "flac", "opus": "opus", "aac": "aac", "pcm16": "pcm"}
_CUT: Final = frozenset([StopReason.MAX_TOKENS, StopReason.CONTEXT_FULL, StopReason.CONTENT_FILTER])
"""Why the last call may be cut off in the middle of its arguments."""
# Members that say nothing: the role is always the same, `channel` (Groq) only repeats that reasoning is reasoning.
_SAYS_NOTHING: Final = frozenset(["role", "channel"])
_OF_CALL: Final = frozenset(["index", "function", "custom"])
# Members of a piece of reasoning that have a place of their own in a Thinking block.
_OF_THOUGHT: Final = frozenset(["text", "summary", "data", "signature"])


class _Thought(Struct, eq=False):
    """One piece of reasoning while it grows.

    Servers give reasoning in four forms: a string in `reasoning_content` (DeepSeek, Z.ai, vLLM, …) or in `reasoning`
    (Groq, Cerebras, Ollama, …); a list of `reasoning_details` (OpenRouter); chunks of type `thinking` among the content
    (Mistral). What must go with it when it is sent back is kept in `fields`.
    """

    index: int
    key: tuple[str, ...]
    """What a further piece must have in common with this one to belong to it; the field's name comes first."""
    fields: dict[str, Raw]
    signature: str = ""
    encrypted: str = ""

    def grow(self, text: str, events: list[ReplyEvent]) -> None:
        if text:
            events.append(ThinkingDelta(self.index, "", text))

    def take_detail(self, fields: dict[str, Raw], events: list[ReplyEvent]) -> None:
        """A piece of `reasoning_details`, or a chunk of type `thinking` without its text."""
        self.grow(string(fields.get("text")), events)
        self.grow(string(fields.get("summary")), events)
        self.signature = string(fields.get("signature")) or self.signature
        self.encrypted += string(fields.get("data"))
        kept = {name: raw.copy() for name, raw in fields.items() if name not in _OF_THOUGHT and not is_empty(raw)}
        self.fields.update(kept)

    def end(self, reader: str, events: list[ReplyEvent]) -> None:
        native = Native(reader, self.fields)
        events.append(ThinkingEnded(self.index, "", self.signature or None, self.encrypted or None, native))


class _ToolCall(Struct, eq=False):
    """One tool call while it grows."""

    wire_id: str
    wire_index: int | None
    id: str = ""
    name: str = ""
    index: int = -1
    """Which part of the reply; -1 until the name is known and the part has started."""
    pieces: list[str] = []
    fields: dict[str, Raw] = {}
    """Members that have no place of their own."""

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def looks_complete(self) -> bool:
        """Whether the arguments so far are a whole JSON object."""
        text = self.arguments
        return text.rstrip().endswith("}") and is_json(text)


class Reply(Struct, eq=False):
    """The reply so far: which parts are open, in which order they stand, and how it ends."""

    _call: Call
    _tool_names: Mapping[str, str]
    _reader: str
    extras: Extras
    _tags: ThinkTags | None
    started: bool = False
    id: str | None = None
    finish_reason: str = ""
    usage: Usage | None = None
    _text: int = -1
    """The part that text goes to; -1 while none is open."""
    _next_index: int = 0
    _refusal: int = -1
    _refused: bool = False
    _thought: _Thought | None = None
    _sealed: dict[tuple[str, ...], _Thought] = {}
    """Encrypted thoughts; they may come late, after text that goes on."""
    _calls: list[_ToolCall] = []
    _call_of_index: dict[int, _ToolCall] = {}
    """The newest call of each index of the wire."""
    _call_ids: set[str] = set()
    _audio: dict[str, Raw] = {}
    """A spoken answer: an id to speak of it later, and what else comes with it."""
    _audio_data: list[str] = []
    _transcript: list[str] = []

    def start(self, fields: Mapping[str, Raw], events: list[ReplyEvent]) -> None:
        """The first chunk, or the whole reply, is here."""
        self.started = True
        self.id = string(fields.get("id")) or None
        model = string(fields.get("model")) or self._call.model
        events.append(ReplyStarted(self._call.profile.provider, model, self.id))

    def take_usage(self, fields: Mapping[str, Raw]) -> None:
        self.usage = read_usage(fields) or self.usage

    def complete(self, events: list[ReplyEvent]) -> None:
        """The reply has come to its end. Raises a ProviderError if its finish reason says that it failed."""
        word = self.finish_reason.lower()
        if word in FAILED:
            self.break_off(events)
            raise failure(self._call, None, word, FAILED[word], {})
        self._flush_tags(events)
        self._close_part(events)
        for thought in self._sealed.values():
            thought.end(self._reader, events)
        if (block := self._spoken()) is not None:
            self._add_block(block, events)
        stop = self._stop_reason()
        self._end_calls(events, cut=stop in _CUT)
        self._report_usage(events)
        events.append(Completed(stop, self.finish_reason or None, self.extras.native(self._reader)))

    def break_off(self, events: list[ReplyEvent]) -> None:
        """The reply will not be completed: give out what is still held."""
        self._flush_tags(events)
        self._report_usage(events)

    def _report_usage(self, events: list[ReplyEvent]) -> None:
        if self.usage is not None:
            events.append(UsageReported(self.usage))

    def _stop_reason(self) -> StopReason:
        found = STOP_REASONS.get(self.finish_reason.lower()) if self.finish_reason else StopReason.OTHER
        if found is None:
            return StopReason.OTHER
        if found is StopReason.END:  # the server behind a router may have said more
            found = STOP_REASONS.get(self.extras.of_choice("native_finish_reason").lower(), StopReason.END)
        if found not in (StopReason.END, StopReason.OTHER):
            return found
        if self._refused:
            return StopReason.REFUSAL
        if self._calls:  # several servers say "stop" even then
            return StopReason.TOOL_CALLS
        # vLLM: the stop sequence, or the number of a token.
        return StopReason.STOP_SEQUENCE if self.extras.of_choice("stop_reason") else found

    # --- pieces of the message ----------------------------------------------------------------------------------------

    def take_message(self, fields: dict[str, Raw], events: list[ReplyEvent], *, whole: bool) -> None:
        """A piece of the message, or the whole of it, member by member; nothing is passed over."""
        thought = self._take_details(fields.pop("reasoning_details", None), events, whole=whole)
        for name in ("reasoning_content", "reasoning"):
            raw = fields.pop(name, None)
            if raw is not None and not thought:  # where several are given they say the same
                piece = string(raw)
                self._think(name, piece, events)
                thought = bool(piece)
        self._take_content(fields.pop("content", None), events)
        self._refuse(string(fields.pop("refusal", None)), events)
        self._take_calls(fields.pop("tool_calls", None), events, whole=whole)
        self._take_function(fields.pop("function_call", None), events)
        for image in elements(fields.pop("images", None)):
            self._add_block(image_of(image, self._reader), events)
        self._take_audio(fields.pop("audio", None))
        for name, raw in fields.items():
            if name not in _SAYS_NOTHING:
                self.extras.add_of_message(name, raw)

    def _take_content(self, raw: Raw | None, events: list[ReplyEvent]) -> None:
        """A text, or a list of texts and parts."""
        if piece := string(raw):
            self.say(piece, events)
            return
        for part in elements(raw):
            if piece := string(part):
                self.say(piece, events)
            else:
                self._take_part(members(part), part, events)

    def _take_part(self, fields: dict[str, Raw], raw: Raw, events: list[ReplyEvent]) -> None:
        kind = string(fields.get("type"))
        if kind == "text" and set(fields) <= {"type", "text"}:
            self.say(string(fields.get("text")), events)
        elif kind == "text":  # with citations or the like: a part of its own, so that both stay together
            self._close_part(events)
            index = self._new_index()
            rest = {name: value.copy() for name, value in fields.items() if name not in ("type", "text")}
            events += [TextStarted(index, ""), TextDelta(index, "", string(fields.get("text")))]
            events.append(TextEnded(index, "", Native(self._reader, rest)))
        elif kind == "refusal":
            self._refuse(string(fields.get("refusal")), events)
        elif kind == "thinking":
            thought = self._open_thought(("content",), events)
            thinking = fields.pop("thinking", None)
            pieces = [string(members(part).get("text")) for part in elements(thinking) if is_object(part)]
            thought.grow(string(thinking) or "".join(pieces), events)
            del fields["type"]
            thought.take_detail(fields, events)
        else:
            self._add_block(Opaque(self._reader, raw.copy()), events)

    def _take_details(self, raw: Raw | None, events: list[ReplyEvent], *, whole: bool) -> bool:
        """Whether the details say something readable."""
        readable = False
        for place, element in enumerate(elements(raw)):
            fields = members(element)
            # Pieces of one detail share their type and index; a whole reply has no pieces.
            number = place if whole else integer(fields.get("index"))
            key = ("reasoning_details", string(fields.get("type")), str(number))
            if "data" in fields:
                thought = self._sealed.get(key)
                if thought is None:
                    thought = self._sealed[key] = self._new_thought(key, events)
            else:
                thought = self._open_thought(key, events)
                readable = True
            thought.take_detail(fields, events)
        return readable

    def _take_calls(self, raw: Raw | None, events: list[ReplyEvent], *, whole: bool) -> None:
        for place, element in enumerate(elements(raw)):
            fields = members(element)
            index = place if whole else integer(fields.get("index"))
            custom = string(fields.pop("type", None)) == "custom"
            inner = fields.pop("custom" if custom else "function", None)
            function = members(inner) if inner is not None and not is_empty(inner) else {}
            call_id, name = string(fields.pop("id", None)), string(function.get("name"))
            arguments = text_or_json(function.get("input" if custom else "arguments"))
            call = self._grow_call(index, call_id, name, arguments, events)
            if call is None:
                continue
            if custom:
                call.fields["type"] = Raw(b'"custom"')
            for member, value in fields.items():
                if member not in _OF_CALL and not is_empty(value):
                    call.fields[member] = value.copy()

    def _take_function(self, raw: Raw | None, events: list[ReplyEvent]) -> None:
        """The form that `tool_calls` replaced; some servers still speak it, others send it empty."""
        fields = members(raw) if raw is not None and not is_empty(raw) else {}
        self._grow_call(0, "", string(fields.get("name")), text_or_json(fields.get("arguments")), events)

    def _take_audio(self, raw: Raw | None) -> None:
        if raw is not None and not is_empty(raw):
            fields = members(raw)
            self._audio_data.append(string(fields.pop("data", None)))
            self._transcript.append(string(fields.pop("transcript", None)))
            self._audio.update({name: value.copy() for name, value in fields.items() if not is_empty(value)})

    # --- text, reasoning and media ------------------------------------------------------------------------------------

    def say(self, piece: str, events: list[ReplyEvent]) -> None:
        """A piece of text; reasoning between tags is taken off it."""
        if self._tags is not None:
            thought, piece = self._tags.split(piece)
            self._think("think_tags", thought, events)
            if self._tags.done:
                self._tags = None
        if piece:
            if self._text < 0:
                self._close_part(events)
                self._text = self._new_index()
                events.append(TextStarted(self._text, ""))
            events.append(TextDelta(self._text, "", piece))

    def _flush_tags(self, events: list[ReplyEvent]) -> None:
        """Give out what was held back for a tag that never came."""
        tags, self._tags = self._tags, None
        if tags is not None:
            thought, piece = tags.rest()
            self._think("think_tags", thought, events)
            self.say(piece, events)

    def _refuse(self, piece: str, events: list[ReplyEvent]) -> None:
        if not piece:
            return
        if self._refusal < 0:
            self._close_part(events)
            self._refused = True
            self._refusal = self._new_index()
            events.append(TextStarted(self._refusal, ""))
        events.append(TextDelta(self._refusal, "", piece))

    def _think(self, field: str, piece: str, events: list[ReplyEvent]) -> None:
        if piece:
            self._open_thought((field,), events).grow(piece, events)

    def _open_thought(self, key: tuple[str, ...], events: list[ReplyEvent]) -> _Thought:
        thought = self._thought
        if thought is None or thought.key != key:
            self._close_part(events)
            thought = self._thought = self._new_thought(key, events)
        return thought

    def _new_thought(self, key: tuple[str, ...], events: list[ReplyEvent]) -> _Thought:
        thought = _Thought(self._new_index(), key, {FIELD: Raw(msgspec.json.encode(key[0]))})
        events.append(ThinkingStarted(thought.index, "", self._reader))
        return thought

    def _spoken(self) -> Media | Opaque | None:
        """A spoken answer; None if nothing was said, for some servers send the member empty."""
        if "id" not in self._audio and not any(self._audio_data):
            return None
        if transcript := "".join(self._transcript):
            self._audio["transcript"] = Raw(msgspec.json.encode(transcript))
        data = decode_base64(self._audio_data)
        if data is None:
            fields = {**self._audio, "data": msgspec.json.encode("".join(self._audio_data))}
            return Opaque(self._reader, Raw(join_members({"type": b'"audio"', "audio": join_members(fields)})))
        asked = self._call.options.extra_body.get("audio")
        form = cast("dict[str, object]", asked).get("format") if isinstance(asked, dict) else None
        kind = f"audio/{_AUDIO_TYPES.get(str(form), 'wav')}"
        return Media(kind="audio", mime_type=kind, data=data, native=Native(self._reader, self._audio))

    def _add_block(self, block: Media | Opaque, events: list[ReplyEvent]) -> None:
        self._close_part(events)
        events.append(BlockReceived(self._new_index(), "", block))

    def _close_part(self, events: list[ReplyEvent]) -> None:
        """End the text, refusal or thought that is open; calls stay open until the reply ends."""
        if self._thought is not None:
            self._thought.end(self._reader, events)
            self._thought = None
        if self._text >= 0:
            events.append(TextEnded(self._text, ""))
            self._text = -1
        if self._refusal >= 0:
            events.append(TextEnded(self._refusal, "", Native(self._reader, _REFUSAL)))
            self._refusal = -1

    def _new_index(self) -> int:
        index = self._next_index
        self._next_index += 1
        return index

    # --- calls --------------------------------------------------------------------------------------------------------

    def _grow_call(
        self, index: int | None, call_id: str, name: str, arguments: str, events: list[ReplyEvent]
    ) -> _ToolCall | None:
        """Take in a piece of a call; gives the call, unless the piece says nothing."""
        if not (call_id or name or arguments):
            return None
        call = self._find_call(index, call_id, name, arguments)
        if call is None:
            call = _ToolCall(call_id, index)
            self._calls.append(call)
        if index is not None:
            self._call_of_index[index] = call
        if arguments:
            call.pieces.append(arguments)
        if call.index < 0:
            if name:
                self._start_call(call, name, events)
        elif arguments:
            events.append(ToolCallDelta(call.index, call.id, arguments))
        return call

    def _find_call(self, index: int | None, call_id: str, name: str, arguments: str) -> _ToolCall | None:
        """The call that this piece continues; None if it begins a new one.

        Ids may be missing, an index may always be 0, and the name may stand in every piece.
        """
        if index is not None:
            call = self._call_of_index.get(index)
        elif call_id:
            call = next((call for call in self._calls if call.wire_id == call_id), None)
        else:
            call = self._calls[-1] if self._calls else None
        if call is None or (call_id and call_id == call.wire_id):
            return call
        if name and call.name and self._tool_names.get(name, name) != call.name:
            return None
        if not call_id or not call.wire_id:
            # A server that gives neither ids nor indexes sends each call whole.
            fresh = name and arguments.lstrip().startswith("{") and call.looks_complete()
            return None if fresh else call
        # Another id under the same index: a new call, if it names a tool and the one before it is done. Some servers
        # make up a new id for every piece, but not a name.
        return None if name and (not call.pieces or call.looks_complete()) else call

    def _start_call(self, call: _ToolCall, name: str, events: list[ReplyEvent]) -> None:
        self._close_part(events)
        call.name = self._tool_names.get(name, name)
        call.index = self._new_index()
        number = len(self._call_ids)
        call.id = call.wire_id or self._make_up_id(number)
        if call.id in self._call_ids:  # two calls of one id could not be told apart in their results
            call.id = f"{call.id}_{number}"
        self._call_ids.add(call.id)
        events.append(ToolCallStarted(call.index, call.id, call.name))
        if call.pieces:
            events.append(ToolCallDelta(call.index, call.id, call.arguments))

    def _make_up_id(self, number: int) -> str:
        """An id for a call that came without: the same for the same reply, and another one in every other reply.

        It depends on the place in the conversation, since a server without ids for calls may have none for replies.
        """
        place = f"{self.id}/{len(self._call.conversation.messages)}"
        return f"call_{blake2s(place.encode(), digest_size=8).hexdigest()}_{number}"

    def _end_calls(self, events: list[ReplyEvent], *, cut: bool) -> None:
        """With `cut` the reply was stopped by a limit, and the last call may be a part of one only."""
        for call in self._calls:
            if call.index < 0:
                which = call.wire_id or call.wire_index
                message = f"The model called a tool without saying which one (call {which!r})."
                raise ProtocolError(message)
        for call in self._calls:
            if cut and call is self._calls[-1] and not is_json(call.arguments):
                continue  # without an end it counts as partial and is never run
            native = Native(self._reader, call.fields) if call.fields else None
            events.append(ToolCallEnded(call.index, call.id, native))
