"""Structured replies, also from models without a feature for them.

"native": the provider enforces the schema. "tool": the model answers by calling a tool whose arguments have the schema.
"prompt": the model is asked for bare JSON. In all cases the reply becomes a text of JSON. Where a provider wants an
object and the schema describes something else, the answer is asked for as the one property of an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Raw, Struct

from dragoman._decoding import decode_as
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
    parse_schema,
)
from dragoman.tools import is_array, is_object, map_subschemas

from .codec import Call, Decoder
from .options import ResponseFormat
from .requests import possible_choices
from .schema.document import Document, Schema

_WRAPPER_PROPERTY: Final = "answer"
"""The property that holds an answer which is not an object."""


def prepare(call: Call) -> tuple[Call, AnswerReader | None]:
    """The call as the model can take it, and the reader of its reply; the same call if nothing has to be done."""
    wanted, profile = call.options.response_format, call.profile
    if wanted is None:
        return call, None
    way = profile.structured
    if way == "native" and not profile.native_beside_tools and (call.tools or call.options.server_tools):
        way = "tool" if call.tools else "prompt"  # a function may also be refused beside the provider's own tools
    if way == "native":
        schema, wrapped = _wrap_schema(wanted.schema)
        if not wrapped:
            return call, None
        return _with_format(call, msgspec.structs.replace(wanted, schema=schema)), AnswerReader(wrapped=True)
    if way == "tool" and call.tools and call.options.tool_choice == "required":
        # The caller wants one of the tools first; the answer comes in a later turn, as with the native feature.
        return _with_format(call, None), None
    if way == "tool" and profile.tools:
        return _prepare_tool(call, wanted)
    return _prepare_prompt(call, wanted), AnswerReader(fenced=True)


def _with_format(call: Call, wanted: ResponseFormat | None) -> Call:
    return msgspec.structs.replace(call, options=msgspec.structs.replace(call.options, response_format=wanted))


# --- asking by a tool -------------------------------------------------------------------------------------------------


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
    """The strongest tool choice that leads to the answer and still allows the caller's tools."""
    wanted, possible = call.options.tool_choice, possible_choices(call.profile, call.options)
    if isinstance(wanted, OneTool):
        return wanted  # the caller wants that one first
    reasoning = call.options.reasoning
    if reasoning is not None and not reasoning.is_off:
        return "auto"  # models that reason cannot be forced
    alone = not call.tools or wanted == "none"
    if alone and "tool" in possible:
        return OneTool(name)
    return "required" if "required" in possible else "auto"


# --- asking in the prompt ---------------------------------------------------------------------------------------------


def _prepare_prompt(call: Call, wanted: ResponseFormat) -> Call:
    about = f" ({wanted.description.strip()})" if wanted.description.strip() else ""
    instruction = (
        f"Answer with one JSON value{about} that is valid against the JSON Schema below, and with nothing else: "
        f"no explanation before or after it, no code fence around it.\n\n{bytes(wanted.schema).decode()}"
    )
    return _add_instruction(_with_format(call, None), instruction)


def _add_instruction(call: Call, instruction: str) -> Call:
    system = call.conversation.system
    conversation = call.conversation.with_system(f"{system}\n\n{instruction}" if system else instruction)
    return msgspec.structs.replace(call, conversation=conversation)


# --- answers that are not objects -------------------------------------------------------------------------------------

_DEFINITIONS: Final = ("$defs", "definitions")
_MOVED_REFERENCE: Final = re.compile(r"#(?:$|/(?!\$defs/|definitions/))")


def _wrap_schema(raw: Raw) -> tuple[Raw, bool]:
    """A schema of type object for the answer, and whether the answer is a property of it."""
    inner = parse_schema(raw)
    if _describes_object(Document(inner), inner, set()):
        return raw, False
    kept = {word: inner[word] for word in _DEFINITIONS if word in inner}
    moved = _move_references({word: value for word, value in inner.items() if word not in kept})
    whole: Schema = {"type": "object", "properties": {_WRAPPER_PROPERTY: moved}, "required": [_WRAPPER_PROPERTY]}
    definitions = map_subschemas(kept, _move_references)
    return Raw(msgspec.json.encode({**whole, "additionalProperties": False, **definitions})), True


def _describes_object(document: Document, schema: object, followed: set[str]) -> bool:
    """Whether a schema describes one kind of object; alternatives are wrapped."""
    if not is_object(schema) or schema.keys() & {"anyOf", "oneOf", "enum", "const"}:
        return False
    if isinstance(reference := schema.get("$ref"), str):
        pointer = document.pointer(reference)
        if pointer in followed:
            return False
        followed.add(pointer)
        return _describes_object(document, document.at(pointer), followed)
    if "type" in schema or "properties" in schema:
        return schema.get("type", "object") == "object" and schema.get("nullable") is not True
    parts = found if is_array(found := schema.get("allOf")) else []
    return any(_describes_object(document, part, followed) for part in parts)


def _move_references(schema: Schema) -> Schema:
    """The schema with its references adjusted to its new place inside of an object."""
    copy = map_subschemas(schema, _move_references)
    reference = copy.get("$ref")
    if isinstance(reference, str) and _MOVED_REFERENCE.match(reference):
        copy["$ref"] = f"#/properties/{_WRAPPER_PROPERTY}{reference.removeprefix('#')}"
    return copy


# --- reading the reply: its events become those of a text of JSON -----------------------------------------------------

_FENCE: Final = re.compile(r"\s*```[\w+-]*(?:\s+|(?=[\[{\"]))")
"""The word after the fence names a language; some models write the JSON on the same line."""
_FENCE_END: Final = re.compile(r"\s*```\s*\Z")
_WRAPPER: Final = re.compile(rf'\s*\{{\s*"{_WRAPPER_PROPERTY}"\s*:\s*(?=\S)')


class AnswerReader(Struct, frozen=True, kw_only=True):
    """Turns the events of a reply into those of a text of JSON. One serves any number of replies."""

    tool: str | None = None
    """The name of the tool that takes the answer; None if the answer is the text."""
    fenced: bool = False
    """Whether there may be a code fence around the text."""
    wrapped: bool = False
    """Whether the answer is the one property of an object."""

    def wrap(self, decoder: Decoder) -> Decoder:
        """A decoder that rewrites the events of another one."""
        return _AnswerDecoder(self, decoder)

    def events(self, events: Iterable[ReplyEvent]) -> list[ReplyEvent]:
        """The rewritten events of a whole reply."""
        rewriting = _AnswerDecoder(self)
        return [*rewriting.rewrite(events), *rewriting.rest()]


class _Unwrapper(Struct):
    """Removes a fence or an object from around an answer while its text streams; the answer is passed on at once."""

    reader: AnswerReader
    held: str = ""
    """What was not passed on: the text up to the answer, or what may be its end."""
    inside: bool = False
    """Whether the answer has begun."""
    bare: bool = False
    """Whether there is nothing to remove."""
    depth: int = 0
    quoted: bool = False
    escaped: bool = False
    complete: bool = False
    """Whether the answer has ended; what follows is part of the object around it."""

    def take(self, piece: str) -> str:
        """The part of the answer that a piece brings."""
        wrapped = self.reader.wrapped
        if self.bare or not (wrapped or self.reader.fenced):
            return piece
        text, self.held = self.held + piece, ""
        if not self.inside:
            opening = (_WRAPPER if wrapped else _FENCE).match(text)
            start = text.lstrip()[:3]
            if opening is not None and opening.end() < len(text):
                self.inside, text = True, text[opening.end() :]
            elif not wrapped and start and not "```".startswith(start):
                self.bare = True
                return text
            else:
                self.held = text
                return ""
        if wrapped:
            return text[: self._find_end(text)]
        kept = text.rstrip("` \t\r\n")
        self.held = text[len(kept) :]
        return kept

    def end(self) -> str:
        """The rest of the answer when the text has ended."""
        if self.inside:
            return _FENCE_END.sub("", self.held)
        if not self.reader.wrapped:
            return self.held
        try:
            return bytes(decode_as(self.held, dict[str, Raw])[_WRAPPER_PROPERTY]).decode()
        except (msgspec.MsgspecError, KeyError):  # not what was asked for; it is left as it is
            return self.held

    def _find_end(self, piece: str) -> int:
        """How much of a piece belongs to the JSON value that is being read."""
        for place, sign in enumerate(piece if not self.complete else ""):
            if self.quoted:
                self.quoted = self.escaped or sign != '"'
                self.escaped = sign == "\\" and not self.escaped
                self.complete = not self.quoted and not self.depth
            elif sign in "]},\t\n\r " and not self.depth:  # after a number or a word
                self.complete = True
                return place
            else:
                self.quoted = sign == '"'
                self.depth += (sign in "[{") - (sign in "]}")
                self.complete = sign in "]}" and not self.depth
            if self.complete:
                return place + 1
        return 0 if self.complete else len(piece)


class _AnswerDecoder(Struct, eq=False):
    """Rewrites the events of one reply; with an inner decoder it is a decoder itself.

    Without a tool each text may be the answer. The first call of the answer's tool becomes a text; later calls repeat
    it and are left out.
    """

    reader: AnswerReader
    decoder: Decoder | None = None
    open: dict[int, _Unwrapper] = {}
    """The answers that are not complete yet, by index."""
    answer: int | None = None
    """The index of the call that became a text."""
    is_empty: bool = True
    repeated: set[int] = set()
    other_calls: bool = False

    @property
    def done(self) -> bool:
        return self.decoder is not None and self.decoder.done

    def feed(self, data: bytes, events: list[ReplyEvent]) -> None:
        """As in Decoder: events before an error are in the list when it is raised."""
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
                self.open[event.index] = _Unwrapper(self.reader)
            case TextDelta() if event.index in self.open:
                return self._grow(event.index, event.id, event.text)
            case TextEnded() if event.index in self.open:
                return [*self._end(event.index, event.id), event]
            case TextCited() if (
                self.reader.fenced or self.reader.wrapped
            ):  # its spans are offsets in the unchanged text
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
                if self.is_empty and not self.reader.wrapped:  # a call without arguments
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
        self.open[event.index] = _Unwrapper(self.reader)
        return [TextStarted(event.index, "")]

    def _grow(self, index: int, part_id: str, piece: str) -> list[ReplyEvent]:
        return _delta(index, part_id, self.open[index].take(piece))

    def _end(self, index: int, part_id: str) -> list[ReplyEvent]:
        return _delta(index, part_id, self.open.pop(index).end())


def _delta(index: int, part_id: str, text: str) -> list[ReplyEvent]:
    return [TextDelta(index, part_id, text)] if text else []


_FENCED = re.compile(r"```[^\n`]*\n(.*?)\s*```", re.DOTALL)


def answer_text(message: Message) -> str:
    """The JSON of a structured reply: its last text, or the last code fence in it."""
    texts = [block.text.strip() for block in message.blocks if isinstance(block, Text) and block.text.strip()]
    if not texts:
        return ""
    fenced = _FENCED.findall(texts[-1])
    return fenced[-1] if fenced and texts[-1][:1] not in ("{", "[", '"') else texts[-1]
