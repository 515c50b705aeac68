"""Tools, calls, results and schemas as texts that a small model reads, and what it writes taken apart again.

A conversation becomes plain messages that alternate between user and assistant, which every chat template can take:
whether a model's own template knows tools, and how, makes no difference. The wording was chosen by measuring
(bench/local_quality.py). The fence is not the usual one for JSON, so that somebody who asks for JSON while there are
tools gets JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Literal

import msgspec
from msgspec import Raw

from dragoman.conversation import (
    Completed,
    Conversation,
    Json,
    Media,
    Message,
    Opaque,
    ReplyEvent,
    ReplyStarted,
    StopReason,
    Text,
    TextDelta,
    TextEnded,
    TextStarted,
    Thinking,
    ThinkingDelta,
    ThinkingEnded,
    ThinkingStarted,
    ToolCall,
    ToolCallDelta,
    ToolCallEnded,
    ToolCallStarted,
    ToolResult,
    ToolSpec,
    UsageReported,
)
from dragoman.providers import Decoder, Loss, description_with_examples

from .models import Thinks

FENCE: Final = "```tool_call"
CLOSING: Final = "}\n```"
INSTEAD: Final = "\n\nThere is no such function, so I answer in plain text:\n\n"
"""What a model is made to write after a call of a function that it does not have; it and the call are not shown."""

_TOOLS: Final = """# Tools

You may call one function to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

{when}return a JSON object with its name and arguments in a tool_call code block:
```tool_call
{{"name": <function-name>, "arguments": <args-json-object>}}
```"""
_MAY: Final = "If a function is needed, "
_MUST: Final = "Call a function: "
_INSTEAD: Final = "\nIf no function is needed, answer the user directly in plain text."
_NOBODY: Final = "You are a helpful assistant."

_REMINDER: Final = (
    "{question}\n\n(If one of the functions {names} is needed for this, reply with its tool_call code block. Otherwise "
    "answer in plain text.)"
)
_RESULT: Final = "Function result of {name}:\n{text}\n\nUse this result to answer the user in plain text."
_ERROR: Final = "The function {name} failed:\n{text}\n\nTell the user, or call it again with other arguments."
_ANSWER: Final = "{question}\n\nAnswer with one JSON value{about} that is valid against this JSON Schema:\n{schema}"


def call_start(name: str) -> str:
    """All that stands before the arguments of a call, as the model is told to write it."""
    return f'{FENCE}\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '


def start_parts(name: str) -> tuple[str, ...]:
    """The same in parts, between which any blanks may stand: models like to spread JSON over many lines."""
    return (FENCE, "{", '"name"', ":", json.dumps(name, ensure_ascii=False), ",", '"arguments"', ":")


def write_call(name: str, arguments: str) -> str:
    return call_start(name) + arguments + CLOSING


def add_tools(system: str | None, tools: Sequence[ToolSpec], *, must_call: bool) -> str | None:
    """The system prompt, with the tools behind it."""
    if not tools:
        return system
    functions = [
        {"name": each.name, "description": description_with_examples(each), "parameters": each.parameters}
        for each in tools
    ]
    lines = [msgspec.json.encode({"type": "function", "function": function}).decode() for function in functions]
    described = _TOOLS.format(tools="\n".join(lines), when=_MUST if must_call else _MAY)
    return f"{system or _NOBODY}\n\n{described}{'' if must_call else _INSTEAD}"


def add_reminder(conversation: Conversation, tools: Sequence[ToolSpec], *, must_call: bool) -> Conversation:
    """The conversation whose last question reminds of the tools: after some talk a small model forgets them.

    Measured with the default model: 11 of 20 right choices after small talk without, 20 with it. The first question
    needs no reminder, and is better off without.
    """
    *earlier, last = conversation.messages
    if last.role != "user" or must_call or not earlier:
        return conversation
    names = ", ".join([spec.name for spec in tools])
    return conversation.up_to(len(earlier)).plus(Message.user(_REMINDER.format(question=last.text, names=names)))


def ask_for_schema(conversation: Conversation, schema: Raw, description: str) -> Conversation:
    """The conversation whose last question asks for an answer of a schema."""
    about = f" ({description.strip()})" if description.strip() else ""
    *earlier, last = conversation.messages
    question = _ANSWER.format(question=last.text, about=about, schema=bytes(schema).decode())
    if last.role != "user":  # the model is to go on after its own words
        return conversation.plus(Message.user(question.removeprefix(last.text).strip()))
    return conversation.up_to(len(earlier)).plus(Message.user(question))


# --- a conversation as texts ------------------------------------------------------------------------------------------


def to_plain_text(conversation: Conversation, system: str | None) -> tuple[Conversation, tuple[Loss, ...]]:
    """The conversation in texts alone, and what of it is not in them."""
    losses: list[Loss] = []
    turns: list[tuple[str, list[str]]] = []
    for at, message in enumerate(conversation.messages):
        role = "assistant" if message.role == "assistant" else "user"
        texts = [text for place, block in enumerate(message.blocks) if (text := _text(at, place, block, losses))]
        if not texts:
            continue
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(texts)
        else:
            turns.append((role, texts))
    makers = {"assistant": Message.assistant, "user": Message.user}
    messages = [makers[role]("\n\n".join(texts)) for role, texts in turns]
    return Conversation(system).plus(*messages), tuple(losses)


def _text(at: int, place: int, block: object, losses: list[Loss]) -> str:
    match block:
        case Text():
            return block.text
        case ToolCall():
            return write_call(block.name, block.arguments.strip() or "{}")
        case ToolResult():
            return _result(at, place, block, losses)
        case Thinking():
            if block.provider != "local":  # its own is not sent back, as usual with such models
                losses.append(Loss(at, place, "thinking", "a local model cannot read it"))
        case Media():
            losses.append(Loss(at, place, "media", f"a local model takes no {block.kind}"))
        case Opaque():
            losses.append(Loss(at, place, "opaque", f"only {block.provider} can read it"))
        case _:
            raise TypeError(block)
    return ""


def _result(at: int, place: int, result: ToolResult, losses: list[Loss]) -> str:
    texts: list[str] = []
    for part in result.content:
        if isinstance(part, Text | Json):
            texts.append(part.text)
        else:
            losses.append(Loss(at, place, "media", f"a local model takes no {part.kind}"))
            texts.append(f"[{part.kind}, left out]")
    if not texts and result.structured is not None:
        texts.append(result.structured.text)
    form = _ERROR if result.is_error else _RESULT
    return form.format(name=result.name, text="\n".join(texts).strip() or "(nothing)")


# --- what it writes ---------------------------------------------------------------------------------------------------

# Pieces are cut anywhere, so what may be the beginning of a tag or of a call is held back.
_JSON: Final = json.JSONDecoder()
_THINK: Final = "<think>"
_END: Final = "</think>"


class LocalDecoder:
    """A decoder that gives the events of another one, rewritten."""

    def __init__(
        self, decoder: Decoder, *, tools: Collection[str], thinks: Thinks, model: str, context: int | None
    ) -> None:
        self._decoder: Decoder = decoder
        self._model: str = model
        self._context: int | None = context
        self._tokens: int = 0
        self._text: _TextReader = _TextReader(tools, thinks)

    @property
    def done(self) -> bool:
        return self._decoder.done

    def feed(self, data: bytes, events: list[ReplyEvent]) -> None:
        self._pass(partial(self._decoder.feed, data), events)

    def finish(self, events: list[ReplyEvent]) -> None:
        self._pass(self._decoder.finish, events)

    def _pass(self, decode: Callable[[list[ReplyEvent]], None], events: list[ReplyEvent]) -> None:
        fresh: list[ReplyEvent] = []
        try:
            decode(fresh)
        finally:
            events += [new for event in fresh for new in self._rewrite(event)]

    def _rewrite(self, event: ReplyEvent) -> Iterator[ReplyEvent]:
        match event:
            case ReplyStarted():
                self._text.call_id = f"call_{(event.id or '').rpartition('-')[2] or 'local'}"
                yield msgspec.structs.replace(event, model=self._model)  # the server would name the file
            case TextStarted():
                pass
            case TextDelta():
                yield from self._text.feed(event.text)
            case TextEnded():
                yield from self._text.finish()
            case UsageReported():
                self._tokens = event.usage.tokens or 0
                yield event
            case Completed():
                yield msgspec.structs.replace(event, stop_reason=self._stop_reason(event.stop_reason))
            case _:
                yield event

    def _stop_reason(self, reason: StopReason) -> StopReason:
        if self._text.called:
            return StopReason.TOOL_CALLS
        if reason is StopReason.MAX_TOKENS and self._context is not None and self._tokens >= self._context - 1:
            return StopReason.CONTEXT_FULL
        return reason


class _TextReader:
    """Takes one text apart: a thought, the text itself, and at its end a call."""

    def __init__(self, tools: Collection[str], thinks: Thinks) -> None:
        self.call_id: str = ""
        self.called: bool = False
        """Whether a call was written to its end."""
        names = "|".join([re.escape(start_parts(name)[4]) for name in tools])
        parts = [f"({names})" if part == '""' else re.escape(part) for part in start_parts("")]
        self._start: re.Pattern[str] | None = re.compile(r"\s*".join(["", *parts, ""])) if tools else None
        """What stands before the arguments of a call."""
        self._thoughts: _ThoughtReader = _ThoughtReader(thinks)
        self._held: str = ""
        """What may be the beginning of a call."""
        self._index: int = 0
        self._block: str = ""
        """What is being written: nothing yet, a thought, a text or a call."""
        self._arguments: str = ""

    def feed(self, text: str, *, last: bool = False) -> Iterator[ReplyEvent]:
        thought, said = self._thoughts.split(text, last=last)
        yield from self._think(thought)
        yield from self._feed_text(said)

    def finish(self) -> Iterator[ReplyEvent]:
        """Nothing follows: what was held back is what it is."""
        yield from self.feed("", last=True)
        if self._block != "call":
            yield from self._say(self._held)
            if self._block != "text":  # nothing was said; that is a reply too
                yield from self._begin("text")
            yield TextEnded(self._index, "")

    # --- blocks ---

    def _begin(self, block: str) -> Iterator[ReplyEvent]:
        if self._block == "thinking":
            yield ThinkingEnded(self._index, "")
        elif self._block == "text":
            yield TextEnded(self._index, "")
        self._index += bool(self._block)
        self._block = block
        if block == "thinking":
            yield ThinkingStarted(self._index, "", "local")
        elif block == "text":
            yield TextStarted(self._index, "")

    def _think(self, thought: str) -> Iterator[ReplyEvent]:
        if self._block != "thinking":
            thought = thought.lstrip("\n")
            if not thought.strip():
                return
            yield from self._begin("thinking")
        if thought:
            yield ThinkingDelta(self._index, "", thought)

    def _say(self, text: str) -> Iterator[ReplyEvent]:
        if text:
            if self._block != "text":
                yield from self._begin("text")
            yield TextDelta(self._index, "", text)

    # --- texts and calls ---

    def _feed_text(self, text: str) -> Iterator[ReplyEvent]:
        if self._block == "call":
            yield from self._grow_call(text)
            return
        self._held += text
        size = len(self._held) if self._start is None else self._certain()
        yield from self._say(self._held[:size])
        self._held = self._held[size:]
        if self._start is not None and (found := self._start.match(self._held)):
            yield from self._begin("call")
            yield ToolCallStarted(self._index, self.call_id, msgspec.json.decode(found[1]))
            rest, self._held = self._held[found.end() :], ""
            yield from self._grow_call(rest)
        elif INSTEAD in self._held:  # what stands before it is a call of nothing that we know
            rest, self._held = self._held.partition(INSTEAD)[2], ""
            yield from self._feed_text(f"\n\n{rest}" if self._block == "text" else rest)

    def _certain(self) -> int:
        """How many letters at the start of what is held are certainly text. Blanks before a call are no part of it."""
        held = self._held
        at = held.find(FENCE)
        if at < 0:
            at = len(held) - _begun(FENCE, held)
        return len(held[:at].rstrip())

    def _grow_call(self, text: str) -> Iterator[ReplyEvent]:
        if self.called:
            return  # what closes the call is no part of it
        before = len(self._arguments)
        self._arguments = (self._arguments + text).lstrip()
        end: int | None = None
        if "}" in text:
            with suppress(ValueError, RecursionError):
                _, end = _JSON.raw_decode(self._arguments)
        if inside := self._arguments[before:end]:
            yield ToolCallDelta(self._index, self.call_id, inside)
        if end is not None:
            self.called = True
            yield ToolCallEnded(self._index, self.call_id)


class _ThoughtReader(msgspec.Struct):
    """Takes a thought, `<think>…</think>`, off the start of a text that comes in pieces."""

    _thinks: Thinks
    _state: Literal["start", "thought", "between", "text"] = "start"
    _held: str = ""
    """What may be the beginning of a tag."""

    def split(self, piece: str, *, last: bool = False) -> tuple[str, str]:
        """What of the next piece belongs to the thought, and what to the text. Nothing is held back of the last one."""
        text, thought, self._held = self._held + piece, "", ""
        if self._thinks == "never":
            return "", text
        if self._state == "start":
            start = text.lstrip()
            if not last and _THINK.startswith(start) and start != _THINK:
                self._held = text
                return "", ""
            if start.startswith(_THINK) or self._thinks == "always":  # some models repeat the tag of the prompt
                self._state, text = "thought", start.removeprefix(_THINK)
            else:
                self._state = "text"
        if self._state == "thought":
            thought, closed, text = text.partition(_END)
            if not closed:
                whole = len(thought) if last else len(thought) - _begun(_END, thought)
                self._held = thought[whole:]
                return thought[:whole], ""
            self._state = "between"
        if self._state == "between":  # line breaks there belong to neither
            text = text.lstrip("\n")
            self._state = "text" if text else "between"
        return thought, text


def _begun(mark: str, text: str) -> int:
    """How many letters at the end of a text may be the beginning of a mark."""
    sizes = range(min(len(text), len(mark) - 1), 0, -1)
    return next((size for size in sizes if text.endswith(mark[:size])), 0)
