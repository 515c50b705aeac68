"""Replies of a given schema from models that have no such feature.

Owns: the two fallbacks. `tool`: the model must call a tool whose arguments are the answer. `prompt`: it is asked for
bare JSON. Both are undone on the way back, so that the caller sees a text that holds the JSON, as from any other model.
Must not know: dialects. It changes the call before a codec sees it, and the events after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import msgspec
from msgspec import Raw

from dragoman.conversation import (
    Completed,
    OneTool,
    ReplyEvent,
    StopReason,
    TextDelta,
    TextEnded,
    TextStarted,
    ToolCallDelta,
    ToolCallEnded,
    ToolCallStarted,
    ToolChoice,
    ToolSpec,
)
from dragoman.errors import ProviderError

from .codec import Call, Decoder
from .options import ResponseFormat

__all__ = ["AnswerReader", "prepare"]

_ASK = "Answer with JSON only, without any other text and without a code fence. The JSON must fit this JSON Schema:"
_WRAPPED = "answer"
"""The property that holds an answer which is not an object; a tool's arguments always are one."""


class AnswerReader:
    """Undoes a fallback on the way back."""

    def __init__(self, tool: str | None, *, wrapped: bool) -> None:
        self._tool: str | None = tool
        self._wrapped: bool = wrapped

    def wrap(self, decoder: Decoder) -> Decoder:
        """The decoder, with the answer as text."""
        return _Bare(decoder) if self._tool is None else _FromTool(decoder, self._tool, wrapped=self._wrapped)


def prepare(call: Call) -> tuple[Call, AnswerReader | None]:
    """The call as the model can take it, and what reads its answer; the same call if the model needs no help."""
    wanted, style = call.options.response_format, call.profile.structured
    if wanted is None or style == "native":
        return call, None
    if style == "prompt" or not call.profile.tools:
        return _by_prompt(call, wanted), AnswerReader(None, wrapped=False)
    return _by_tool(call, wanted)


def _by_prompt(call: Call, wanted: ResponseFormat) -> Call:
    system = call.conversation.system
    about = f" {wanted.description}" if wanted.description else ""
    instruction = f"{_ASK}{about}\n{bytes(wanted.schema).decode()}"
    conversation = call.conversation.with_system(f"{system}\n\n{instruction}" if system else instruction)
    options = msgspec.structs.replace(call.options, response_format=None)
    return msgspec.structs.replace(call, conversation=conversation, options=options)


def _by_tool(call: Call, wanted: ResponseFormat) -> tuple[Call, AnswerReader]:
    taken = {spec.name for spec in call.tools}
    name = next(name for name in _names(wanted.name) if name not in taken)
    schema = cast("dict[str, object] | bool", msgspec.json.decode(wanted.schema))
    wrapped = isinstance(schema, bool) or schema.get("type") != "object"
    if wrapped:
        schema = {"type": "object", "properties": {_WRAPPED: schema}, "required": [_WRAPPED]}
    description = wanted.description or "Give the final answer. Call this when nothing else is left to be done."
    answer = ToolSpec(name, description, Raw(msgspec.json.encode(schema)), strict=wanted.strict or None)
    options = msgspec.structs.replace(call.options, response_format=None, tool_choice=_choice(call, name))
    changed = msgspec.structs.replace(call, tools=(*call.tools, answer), options=options)
    return changed, AnswerReader(name, wrapped=wrapped)


def _names(wanted: str) -> list[str]:
    return [wanted, *[f"{wanted}_{number}" for number in range(2, 1000)]]


def _choice(call: Call, name: str) -> ToolChoice:
    """With other tools at hand the model may use them first; alone, the answer is what it must give."""
    choices = call.profile.tool_choices
    if not call.tools and "tool" in choices:
        return OneTool(name)
    return "required" if "required" in choices else "auto"


class _Changing:
    """A decoder whose events are changed on their way; what is held back comes out when the reply breaks off."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder: Decoder = decoder
        self._held: dict[int, list[str]] = {}
        """Pieces of text by part, which are told together at the end of the part."""

    def feed(self, data: bytes, events: list[ReplyEvent]) -> None:
        self._pass_on(events, lambda received: self._decoder.feed(data, received))

    def finish(self, events: list[ReplyEvent]) -> None:
        self._pass_on(events, self._decoder.finish)

    def _pass_on(self, events: list[ReplyEvent], receive: Callable[[list[ReplyEvent]], None]) -> None:
        received: list[ReplyEvent] = []
        try:
            receive(received)
        except ProviderError:
            events += [changed for event in received for changed in self._changed(event)]
            events += [TextDelta(index, "", "".join(pieces)) for index, pieces in self._held.items() if pieces]
            self._held.clear()
            raise
        events += [changed for event in received for changed in self._changed(event)]

    def _changed(self, event: ReplyEvent) -> list[ReplyEvent]:
        raise NotImplementedError


class _FromTool(_Changing):
    """Turns the call of the answer's tool into text."""

    def __init__(self, decoder: Decoder, tool: str, *, wrapped: bool) -> None:
        super().__init__(decoder)
        self._tool: str = tool
        self._wrapped: bool = wrapped
        self._other_calls: bool = False

    def _changed(self, event: ReplyEvent) -> list[ReplyEvent]:
        if isinstance(event, ToolCallStarted):
            if event.name != self._tool:
                self._other_calls = True
                return [event]
            self._held[event.index] = []
            return [TextStarted(event.index, "")]
        if isinstance(event, ToolCallDelta) and event.index in self._held:
            if not self._wrapped:
                return [TextDelta(event.index, "", event.arguments)]
            self._held[event.index].append(event.arguments)
            return []
        if isinstance(event, ToolCallEnded) and event.index in self._held:
            return _told(event.index, _unwrapped("".join(self._held.pop(event.index))), TextEnded(event.index, ""))
        if isinstance(event, Completed) and event.stop_reason is StopReason.TOOL_CALLS and not self._other_calls:
            return [msgspec.structs.replace(event, stop_reason=StopReason.END)]
        return [event]


class _Bare(_Changing):
    """Takes a code fence away that the model put around its JSON all the same."""

    def _changed(self, event: ReplyEvent) -> list[ReplyEvent]:
        if isinstance(event, TextDelta):  # whether there is a fence is only known at the end
            self._held.setdefault(event.index, []).append(event.text)
            return []
        if isinstance(event, TextEnded):
            return _told(event.index, _without_fence("".join(self._held.pop(event.index, []))), event)
        return [event]


def _told(index: int, text: str, end: TextEnded) -> list[ReplyEvent]:
    return [TextDelta(index, "", text), end] if text else [end]


def _unwrapped(arguments: str) -> str:
    """The answer out of its wrapping object; arguments that are not what was asked for stay as they are."""
    if not arguments:
        return ""
    try:
        return bytes(msgspec.json.decode(arguments, type=dict[str, Raw])[_WRAPPED]).decode()
    except (msgspec.MsgspecError, KeyError):
        return arguments


def _without_fence(text: str) -> str:
    stripped = text.strip()
    if not (stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped):
        return text
    return stripped.partition("\n")[2].removesuffix("```").rstrip()
