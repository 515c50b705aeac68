"""Replies of a given schema from models that have no feature of their own for them.

Owns: the two ways around. "tool": the answer is the call of a tool made up for it, whose arguments have the schema.
"prompt": the model is asked for bare JSON. Either way the reply becomes a text of JSON, as with the native feature.
Must not know: any dialect. A call is changed before a codec sees it, and events after a codec made them.

A model may write some words before it calls the tool; `answer_text` takes the answer alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from dragoman.conversation import (
    Completed,
    Message,
    OneTool,
    ReplyEvent,
    StopReason,
    Text,
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

__all__ = ["AnswerReader", "answer_text", "prepare"]


class _Reading(Protocol):
    """Rewrites the events of one reply, one by one."""

    def take(self, event: ReplyEvent) -> Iterator[ReplyEvent]:
        """What becomes of one event."""
        ...

    def rest(self) -> Iterator[ReplyEvent]:
        """What was held back, when nothing more comes."""
        ...


class AnswerReader(Struct, frozen=True, kw_only=True):
    """Turns the events of a reply into those of a text of JSON. One serves any number of replies."""

    way: Literal["tool", "prompt"]
    tool: str = ""
    """The name of the tool that takes the answer."""

    def wrap(self, decoder: Decoder) -> Decoder:
        """A decoder that gives the events of another one, rewritten."""
        return _WrappedDecoder(decoder, self._reading())

    def events(self, events: Iterable[ReplyEvent]) -> list[ReplyEvent]:
        """The same for the events of a whole reply."""
        reading = self._reading()
        return [*(new for event in events for new in reading.take(event)), *reading.rest()]

    def _reading(self) -> _Reading:
        return _OfTool(self.tool) if self.way == "tool" else _OfPrompt()


def prepare(call: Call) -> tuple[Call, AnswerReader | None]:
    """The call without its response format, and what reads the reply; the call itself where nothing is to be done."""
    wanted = call.options.response_format
    if wanted is None or call.profile.structured == "native":
        return call, None
    if call.profile.structured == "tool" and call.profile.tools:
        return _with_tool(call, wanted)
    return _with_prompt(call, wanted), AnswerReader(way="prompt")


# --- by a tool --------------------------------------------------------------------------------------------------------


def _with_tool(call: Call, wanted: ResponseFormat) -> tuple[Call, AnswerReader]:
    name = _free_name(wanted.name, {spec.name for spec in call.tools})
    description = wanted.description or "The answer in its final form."
    spec = ToolSpec(name, f"{description} Call this tool once, to give it.", wanted.schema, wanted.strict or None)
    choice = _choice(call, name)
    options = msgspec.structs.replace(call.options, response_format=None, tool_choice=choice)
    if not call.tools and call.profile.parallel_tool_calls and options.parallel_tool_calls is None:
        options = msgspec.structs.replace(options, parallel_tool_calls=False)
    # Where no tool can be named, the caller's "none" is kept by offering no other tool.
    others = call.tools if call.options.tool_choice != "none" or choice == OneTool(name) else ()
    changed = msgspec.structs.replace(call, tools=(*others, spec), options=options)
    if choice != OneTool(name):
        changed = _instructed(changed, f"When you have the answer, give it by calling the tool {name!r}, not as text.")
    return changed, AnswerReader(way="tool", tool=name)


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


def _free_name(name: str, taken: Container[str]) -> str:
    free, number = name, 2
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free


class _OfTool:
    """The first call of the answer's tool becomes a text; further ones are repetitions and are left out."""

    __slots__ = ("_answer", "_empty", "_left_out", "_other_calls", "_tool")

    def __init__(self, tool: str) -> None:
        self._tool: str = tool
        self._answer: int | None = None
        """The index of the part that became a text."""
        self._empty: bool = True
        self._left_out: set[int] = set()
        self._other_calls: bool = False

    def take(self, event: ReplyEvent) -> Iterator[ReplyEvent]:
        handler = _TOOL_EVENTS.get(type(event))
        if handler is None:
            yield event
        else:
            yield from handler(self, event)

    def rest(self) -> Iterator[ReplyEvent]:
        return iter(())

    def started(self, event: ToolCallStarted) -> Iterator[ReplyEvent]:
        if event.name != self._tool:
            self._other_calls = True
            yield event
        elif self._answer is None:
            self._answer = event.index
            yield TextStarted(event.index, "")
        else:
            self._left_out.add(event.index)

    def grew(self, event: ToolCallDelta) -> Iterator[ReplyEvent]:
        if event.index == self._answer:
            self._empty = self._empty and not event.arguments.strip()
            yield TextDelta(event.index, "", event.arguments)
        elif event.index not in self._left_out:
            yield event

    def ended(self, event: ToolCallEnded) -> Iterator[ReplyEvent]:
        if event.index == self._answer:
            if self._empty:  # no arguments at all mean none
                yield TextDelta(event.index, "", "{}")
            yield TextEnded(event.index, "")
        elif event.index not in self._left_out:
            yield event

    def completed(self, event: Completed) -> Iterator[ReplyEvent]:
        done = self._answer is not None and not self._other_calls and event.stop_reason is StopReason.TOOL_CALLS
        yield msgspec.structs.replace(event, stop_reason=StopReason.END) if done else event


# Each handler takes its own kind of event, which the key guarantees and a type cannot say.
_TOOL_EVENTS: dict[type[Any], Callable[[_OfTool, Any], Iterator[ReplyEvent]]] = {
    ToolCallStarted: _OfTool.started,
    ToolCallDelta: _OfTool.grew,
    ToolCallEnded: _OfTool.ended,
    Completed: _OfTool.completed,
}


# --- by asking --------------------------------------------------------------------------------------------------------


def _with_prompt(call: Call, wanted: ResponseFormat) -> Call:
    about = f" ({wanted.description.strip()})" if wanted.description.strip() else ""
    instruction = (
        f"Answer with one JSON value{about} that is valid against the JSON Schema below, and with nothing else: "
        f"no explanation before or after it, no code fence around it.\n\n{bytes(wanted.schema).decode()}"
    )
    options = msgspec.structs.replace(call.options, response_format=None)
    return _instructed(msgspec.structs.replace(call, options=options), instruction)


def _instructed(call: Call, instruction: str) -> Call:
    """The call with one more paragraph of instructions."""
    conversation = call.conversation
    system = f"{conversation.system}\n\n{instruction}" if conversation.system else instruction
    return msgspec.structs.replace(call, conversation=msgspec.structs.replace(conversation, system=system))


# The word behind the fence names a language; some models write the JSON on the same line.
_FENCE = re.compile(r"\s*```[\w+-]*(?:\s+|(?=[\[{\"]))")
_MAY_BE_FENCE = re.compile(r"\s*(?:`{0,2}|```[\w+-]*)")
_MAY_BE_END = re.compile(r"\s*`{0,3}\s*\Z")
_END = re.compile(r"\s*```\s*\Z")


class _OfPrompt:
    """Takes a code fence away from around each text."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: dict[int, _Unfenced] = {}

    def take(self, event: ReplyEvent) -> Iterator[ReplyEvent]:
        if isinstance(event, TextStarted):
            self._texts[event.index] = _Unfenced()
            yield event
        elif isinstance(event, TextDelta) and event.index in self._texts:
            yield from _delta(event.index, event.id, self._texts[event.index].take(event.text))
        elif isinstance(event, TextEnded) and event.index in self._texts:
            yield from _delta(event.index, event.id, self._texts.pop(event.index).end())
            yield event
        else:
            yield event

    def rest(self) -> Iterator[ReplyEvent]:
        """Texts that never ended keep what could have been the end of a fence."""
        for index, text in self._texts.items():
            yield from _delta(index, "", text.held)
        self._texts = {}


def _delta(index: int, part_id: str, text: str) -> Iterator[ReplyEvent]:
    if text:
        yield TextDelta(index, part_id, text)


class _Unfenced:
    """One text while it grows. Only what may belong to a fence is held back."""

    __slots__ = ("_state", "held")

    def __init__(self) -> None:
        self._state: Literal["undecided", "fenced", "bare"] = "undecided"
        self.held: str = ""

    def take(self, text: str) -> str:
        """The next piece, as far as it is certain."""
        if self._state == "bare":
            return text
        text, self.held = self.held + text, ""
        if self._state == "undecided":
            if (fence := _FENCE.match(text)) is not None:
                self._state = "fenced"
                text = text[fence.end() :]
            elif _MAY_BE_FENCE.fullmatch(text) is not None:
                self.held = text
                return ""
            else:
                self._state = "bare"
                return text
        # The longest end that may still turn out to be the closing fence.
        cut = _MAY_BE_END.search(text)
        assert cut is not None  # the pattern also fits nothing at all
        self.held = text[cut.start() :]
        return text[: cut.start()]

    def end(self) -> str:
        """The last piece."""
        return _END.sub("", self.held) if self._state == "fenced" else self.held


# --- both -------------------------------------------------------------------------------------------------------------


class _WrappedDecoder:
    __slots__ = ("_decoder", "_reading")

    def __init__(self, decoder: Decoder, reading: _Reading) -> None:
        self._decoder: Decoder = decoder
        self._reading: _Reading = reading

    def feed(self, data: bytes, events: list[ReplyEvent]) -> None:
        """As in Decoder: what came before an error is in the list when it is raised."""
        fresh: list[ReplyEvent] = []
        try:
            self._decoder.feed(data, fresh)
        except BaseException:
            self._pass_on(fresh, events, last=True)
            raise
        self._pass_on(fresh, events, last=False)

    def finish(self, events: list[ReplyEvent]) -> None:
        """As in Decoder."""
        fresh: list[ReplyEvent] = []
        try:
            self._decoder.finish(fresh)
        finally:
            self._pass_on(fresh, events, last=True)

    def _pass_on(self, fresh: list[ReplyEvent], events: list[ReplyEvent], *, last: bool) -> None:
        take = self._reading.take
        for event in fresh:
            events.extend(take(event))
        if last:
            events.extend(self._reading.rest())


_FENCED = re.compile(r"```[^\n`]*\n(.*?)\s*```", re.DOTALL)


def answer_text(message: Message) -> str:
    """The JSON of a structured reply: its last text, or what stands in the last code fence of it."""
    texts = [block.text.strip() for block in message.blocks if isinstance(block, Text) and block.text.strip()]
    if not texts:
        return ""
    fenced = _FENCED.findall(texts[-1])
    return fenced[-1] if fenced and texts[-1][:1] not in ("{", "[", '"') else texts[-1]
