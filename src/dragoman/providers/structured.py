"""Replies of a given schema, also from models that have no feature of their own for them.

Owns: how they are asked for. "tool": the answer is the call of a tool made up for it, whose arguments have the schema.
"prompt": the model is asked for bare JSON. Either way the reply becomes a text of JSON, as with the native feature.
Where an answer has to be an object but is not meant to be one, it is asked for as the one property of an object.

A model may write some words before it calls the tool; `answer_text` takes the answer alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, cast

import msgspec
from msgspec import Raw, Struct

from dragoman.conversation import (
    Completed,
    Message,
    OneTool,
    ReplyEvent,
    StopReason,
    Text,
    TextCited,
    TextDelta,
    TextEnded,
    TextStarted,
    ToolCallDelta,
    ToolCallEnded,
    ToolCallStarted,
    ToolChoice,
    ToolSpec,
)

from .codec import Call, Decoder
from .options import ResponseFormat
from .schema.document import Document
from .schema.rules import Schema, is_array, is_object, map_subschemas

_WRAPPING: Final = "answer"
"""The property that holds an answer which is not an object."""


def prepare(call: Call) -> tuple[Call, AnswerReader | None]:
    """The call as the model can take it, and what reads its reply; the call itself where nothing is to be done."""
    wanted, profile = call.options.response_format, call.profile
    if wanted is None:
        return call, None
    way = profile.structured
    if way == "native" and not profile.native_beside_tools and (call.tools or call.options.server_tools):
        way = "tool" if call.tools else "prompt"  # a function may be as unwelcome beside the provider's own tools
    if way == "native":
        return _prepare_native(call, wanted)
    if way == "tool" and call.tools and call.options.tool_choice == "required":
        # One of the caller's tools is meant; the answer has its time afterwards, as with the native feature.
        return msgspec.structs.replace(call, options=msgspec.structs.replace(call.options, response_format=None)), None
    if way == "tool" and profile.tools:
        return _prepare_tool(call, wanted)
    return _prepare_prompt(call, wanted), AnswerReader(fenced=True)


def _prepare_native(call: Call, wanted: ResponseFormat) -> tuple[Call, AnswerReader | None]:
    schema, wrapped = _wrap_schema(wanted.schema)
    if not wrapped:
        return call, None
    options = msgspec.structs.replace(call.options, response_format=msgspec.structs.replace(wanted, schema=schema))
    return msgspec.structs.replace(call, options=options), AnswerReader(wrapped=True)


# --- by a tool --------------------------------------------------------------------------------------------------------


def _prepare_tool(call: Call, wanted: ResponseFormat) -> tuple[Call, AnswerReader]:
    taken = {spec.name for spec in call.tools}
    name = next(n for n in (wanted.name, *[f"{wanted.name}_{i}" for i in range(2, len(taken) + 3)]) if n not in taken)
    schema, wrapped = _wrap_schema(wanted.schema)
    description = wanted.description or "The answer in its final form."
    spec = ToolSpec(name, f"{description} Call this tool once, to give it.", schema, wanted.strict or None)
    choice = _choice(call, name)
    options = msgspec.structs.replace(call.options, response_format=None, tool_choice=choice)
    if not call.tools and call.profile.single_tool_calls and options.parallel_tool_calls is None:
        options = msgspec.structs.replace(options, parallel_tool_calls=False)
    # Where no tool can be named, the caller's "none" is kept by offering no other tool.
    others = call.tools if call.options.tool_choice != "none" or choice == OneTool(name) else ()
    changed = msgspec.structs.replace(call, tools=(*others, spec), options=options)
    if choice != OneTool(name):
        changed = _add_instruction(
            changed, f"When you have the answer, give it by calling the tool {name!r}, not as text."
        )
    return changed, AnswerReader(tool=name, wrapped=wrapped)


def _choice(call: Call, name: str) -> ToolChoice:
    """The strongest choice that leads to the answer and leaves the caller's own tools their part."""
    wanted, possible = call.options.tool_choice, call.profile.tool_choices
    if isinstance(wanted, OneTool):
        return wanted  # the caller wants that one first
    reasoning = call.options.reasoning
    if reasoning is not None and reasoning.effort != "none":
        return "auto"  # models that think refuse to be forced
    alone = not call.tools or wanted == "none"
    if alone and "tool" in possible:
        return OneTool(name)
    return "required" if "required" in possible else "auto"


# --- by asking --------------------------------------------------------------------------------------------------------


def _prepare_prompt(call: Call, wanted: ResponseFormat) -> Call:
    about = f" ({wanted.description.strip()})" if wanted.description.strip() else ""
    instruction = (
        f"Answer with one JSON value{about} that is valid against the JSON Schema below, and with nothing else: "
        f"no explanation before or after it, no code fence around it.\n\n{bytes(wanted.schema).decode()}"
    )
    options = msgspec.structs.replace(call.options, response_format=None)
    return _add_instruction(msgspec.structs.replace(call, options=options), instruction)


def _add_instruction(call: Call, instruction: str) -> Call:
    system = call.conversation.system
    conversation = call.conversation.with_system(f"{system}\n\n{instruction}" if system else instruction)
    return msgspec.structs.replace(call, conversation=conversation)


# --- answers that are no objects --------------------------------------------------------------------------------------

_DEFINITIONS: Final = ("$defs", "definitions")
_LEADS_INSIDE: Final = re.compile(r"#(?:$|/(?!\$defs/|definitions/))")


def _wrap_schema(raw: Raw) -> tuple[Raw, bool]:
    """The schema of an object that is or holds the answer, and whether it holds it."""
    schema = cast("object", msgspec.json.decode(raw))
    if is_object(schema) and _describes_object(Document(schema), schema, set()):
        return raw, False
    inner: Schema = schema if is_object(schema) else {"not": {}} if schema is False else {}
    kept = {word: inner[word] for word in _DEFINITIONS if word in inner}
    moved = _move_references({word: value for word, value in inner.items() if word not in kept}, "")
    whole: Schema = {"type": "object", "properties": {_WRAPPING: moved}, "required": [_WRAPPING]}
    definitions = {word: map_subschemas({word: value}, "", _move_references)[word] for word, value in kept.items()}
    return Raw(msgspec.json.encode({**whole, "additionalProperties": False, **definitions})), True


def _describes_object(document: Document, schema: object, followed: set[str]) -> bool:
    """Whether a schema is about one kind of object; of alternatives nobody would know which one is meant."""
    if not is_object(schema) or schema.keys() & {"anyOf", "oneOf", "enum", "const"}:
        return False
    if isinstance(reference := schema.get("$ref"), str):
        pointer = document.pointer(reference, "")
        if pointer in followed:
            return False
        followed.add(pointer)
        return _describes_object(document, document.at(pointer), followed)
    if "type" in schema or "properties" in schema:
        return schema.get("type", "object") == "object" and schema.get("nullable") is not True
    parts = found if is_array(found := schema.get("allOf")) else []
    return any(_describes_object(document, part, followed) for part in parts)


def _move_references(schema: object, _at: str) -> object:
    """A schema whose references still lead to the same places, now that these are inside of an object."""
    if not is_object(schema):
        return schema
    copy = map_subschemas(schema, "", _move_references)
    reference = copy.get("$ref")
    if isinstance(reference, str) and _LEADS_INSIDE.match(reference):
        copy["$ref"] = f"#/properties/{_WRAPPING}{reference.removeprefix('#')}"
    return copy


# --- reading the reply: its events become those of a text of JSON -----------------------------------------------------

# The word behind the fence names a language; some models write the JSON on the same line.
_FENCE: Final = re.compile(r"\s*```[\w+-]*(?:\s+|(?=[\[{\"]))")
_END: Final = re.compile(r"\s*```\s*\Z")
_OF_THE_END: Final = "` \t\r\n"
_WRAPPED: Final = re.compile(rf'\s*\{{\s*"{_WRAPPING}"\s*:\s*(?=\S)')


class AnswerReader(Struct, frozen=True, kw_only=True):
    """Turns the events of a reply into those of a text of JSON. One serves any number of replies."""

    tool: str | None = None
    """The name of the tool that takes the answer; None if the answer is the text."""
    fenced: bool = False
    """Whether there may be a code fence around the text."""
    wrapped: bool = False
    """Whether the answer is the one property of an object."""

    def wrap(self, decoder: Decoder) -> Decoder:
        """A decoder that gives the events of another one, rewritten."""
        return _AnswerDecoder(self, decoder)

    def events(self, events: Iterable[ReplyEvent]) -> list[ReplyEvent]:
        """The same for the events of a whole reply."""
        reading = _AnswerDecoder(self)
        return [*reading.rewrite(events), *reading.rest()]

    def bare(self, text: str) -> str:
        if self.wrapped:
            try:
                return bytes(msgspec.json.decode(text, type=dict[str, Raw])[_WRAPPING]).decode()
            except (msgspec.MsgspecError, KeyError):  # not what was asked for; it stays as it is
                return text
        fence = _FENCE.match(text) if self.fenced else None
        return text if fence is None else _END.sub("", text[fence.end() :])


class _Opening(Struct):
    """A text with something around the answer, as it comes; what belongs to the answer is passed on at once."""

    reader: AnswerReader
    held: str = ""
    """What was not passed on."""
    begun: bool = False
    """Whether what is around the answer was found; all that comes now is of the answer, up to its end."""
    bare: bool = False
    """Whether nothing is around it."""
    depth: int = 0
    quoted: bool = False
    escaped: bool = False
    over: bool = False
    """Whether the answer is complete: what comes behind it is of the object around it."""

    def take(self, piece: str) -> str:
        """What of the answer a piece brings."""
        if not self.begun and not self.bare:
            self.held += piece
            found = (_WRAPPED if self.reader.wrapped else _FENCE).match(self.held)
            start = self.held.lstrip()[:3]
            if found is not None and found.end() < len(self.held):
                self.begun, piece, self.held = True, self.held[found.end() :], ""
            elif self.reader.fenced and start and not "```".startswith(start):
                self.bare, piece, self.held = True, self.held, ""
            else:
                return ""
        if self.bare:
            return piece
        if self.reader.wrapped:
            return piece[: self._find_end(piece)]
        self.held += piece
        kept = self.held.rstrip(_OF_THE_END)
        self.held = self.held[len(kept) :]
        return kept

    def end(self) -> str:
        """What is left when the text has ended."""
        return _END.sub("", self.held) if self.begun else self.reader.bare(self.held)

    def _find_end(self, piece: str) -> int:
        """How much of a piece belongs to the JSON value that began before it."""
        for place, sign in enumerate(piece if not self.over else ""):
            if self.quoted:
                self.quoted = self.escaped or sign != '"'
                self.escaped = sign == "\\" and not self.escaped
                self.over = not self.quoted and not self.depth
            elif sign in "]},\t\n\r " and not self.depth:  # of a number or a word
                self.over = True
                return place
            else:
                self.quoted = sign == '"'
                self.depth += (sign in "[{") - (sign in "]}")
                self.over = sign in "]}" and not self.depth
            if self.over:
                return place + 1
        return 0 if self.over else len(piece)


class _AnswerDecoder(Struct, eq=False):
    """Rewrites the events of one reply, one by one; a decoder itself, where it has one to ask.

    Without a tool each text may be the answer. The first call of the answer's tool becomes a text; further ones are
    repetitions and are left out.
    """

    reader: AnswerReader
    decoder: Decoder | None = None
    open: dict[int, _Opening] = {}
    """The answers that are not complete, by index."""
    answer: int | None = None
    """The index of the call that became a text."""
    is_empty: bool = True
    repeated: set[int] = set()
    other_calls: bool = False

    @property
    def done(self) -> bool:
        return self.decoder is not None and self.decoder.done

    def feed(self, data: bytes, events: list[ReplyEvent]) -> None:
        """As in Decoder: what came before an error is in the list when it is raised."""
        fresh: list[ReplyEvent] = []
        try:
            if self.decoder is not None:
                self.decoder.feed(data, fresh)
        except BaseException:
            events.extend([*self.rewrite(fresh), *self.rest()])
            raise
        events.extend(self.rewrite(fresh))

    def finish(self, events: list[ReplyEvent]) -> None:
        fresh: list[ReplyEvent] = []
        try:
            if self.decoder is not None:
                self.decoder.finish(fresh)
        finally:
            events.extend([*self.rewrite(fresh), *self.rest()])

    def rewrite(self, events: Iterable[ReplyEvent]) -> list[ReplyEvent]:
        return [new for event in events for new in self._take(event)]

    def rest(self) -> list[ReplyEvent]:
        return [event for index in [*self.open] for event in self._end(index, "")]

    def _take(self, event: ReplyEvent) -> list[ReplyEvent]:
        match event:
            case TextStarted() if self.reader.tool is None:
                self.open[event.index] = _Opening(self.reader)
            case TextDelta() if event.index in self.open:
                return self._grow(event.index, event.id, event.text)
            case TextEnded() if event.index in self.open:
                return [*self._end(event.index, event.id), event]
            case TextCited() if self.reader.fenced or self.reader.wrapped:  # its spans are those of the whole text
                bare = [msgspec.structs.replace(one, start=None, end=None) for one in event.citations]
                return [TextCited(event.index, event.id, tuple(bare))]
            case ToolCallStarted():
                return self._start(event)
            case ToolCallDelta() | ToolCallEnded() if event.index in self.repeated:
                return []
            case ToolCallDelta() if event.index in self.open:
                self.is_empty = self.is_empty and not event.arguments.strip()
                return self._grow(event.index, "", event.arguments)
            case ToolCallEnded() if event.index in self.open:
                if self.is_empty and not self.reader.wrapped:  # what a call without any arguments means
                    self.open[event.index].held = "{}"
                return [*self._end(event.index, ""), TextEnded(event.index, "")]
            case Completed(stop_reason=StopReason.TOOL_CALLS) if self.answer is not None and not self.other_calls:
                return [msgspec.structs.replace(event, stop_reason=StopReason.END)]
            case _:
                pass
        return [event]

    def _start(self, event: ToolCallStarted) -> list[ReplyEvent]:
        if self.reader.tool is None or event.name != self.reader.tool:
            self.other_calls = True
            return [event]
        if self.answer is not None:
            self.repeated.add(event.index)
            return []
        self.answer = event.index
        self.open[event.index] = _Opening(self.reader)
        return [TextStarted(event.index, "")]

    def _grow(self, index: int, part_id: str, piece: str) -> list[ReplyEvent]:
        plain = not self.reader.fenced and not self.reader.wrapped
        return _delta(index, part_id, piece if plain else self.open[index].take(piece))

    def _end(self, index: int, part_id: str) -> list[ReplyEvent]:
        return _delta(index, part_id, self.open.pop(index).end())


def _delta(index: int, part_id: str, text: str) -> list[ReplyEvent]:
    return [TextDelta(index, part_id, text)] if text else []


# --- the answer alone -------------------------------------------------------------------------------------------------

_FENCED = re.compile(r"```[^\n`]*\n(.*?)\s*```", re.DOTALL)


def answer_text(message: Message) -> str:
    """The JSON of a structured reply: its last text, or what stands in the last code fence of it."""
    texts = [block.text.strip() for block in message.blocks if isinstance(block, Text) and block.text.strip()]
    if not texts:
        return ""
    fenced = _FENCED.findall(texts[-1])
    return fenced[-1] if fenced and texts[-1][:1] not in ("{", "[", '"') else texts[-1]
