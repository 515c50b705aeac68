"""Tools, calls, results and schemas as texts for a small model, and its replies parsed again.

A conversation becomes plain messages that alternate between user and assistant, which every chat template accepts,
whether it knows tools or not. The wording was chosen by measuring (bench/local_quality.py). The fence of a call is not
the usual one for JSON, so that a user who asks for JSON while tools are offered gets JSON.
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

from dragoman._decoding import check_depth
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
FENCE_END: Final = "\n```"
CLOSING: Final = "}" + FENCE_END
INSTEAD: Final = "\n\nThere is no such function, so I answer in plain text:\n\n"
"""What a model is made to write after a call of an unknown function; the reader drops it and the call."""

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
    "answer {how}.)"
)
_RESULT: Final = "Function result of {name}:\n{text}\n\nUse this result to answer the user in plain text."
_ERROR: Final = "The function {name} failed:\n{text}\n\nTell the user, or call it again with other arguments."
_ANSWER: Final = "{question}\n\nAnswer with one JSON value{about} that is valid against this JSON Schema:\n{schema}"


def call_start(name: str) -> str:
    """What comes before the arguments of a call, as the prompt shows it to the model."""
    return f'{FENCE}\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '


def start_parts(name: str) -> tuple[str, ...]:
    """The same in parts, which blanks may separate: models like to spread JSON over many lines."""
    return (FENCE, "{", '"name"', ":", json.dumps(name, ensure_ascii=False), ",", '"arguments"', ":")


def write_call(name: str, arguments: str) -> str:
    return call_start(name) + arguments + CLOSING


def add_tools(system: str | None, tools: Sequence[ToolSpec], *, must_call: bool) -> str | None:
    """The system prompt, followed by the tools."""
    if not tools:
        return system
    functions = [
        {"name": each.name, "description": description_with_examples(each), "parameters": each.parameters}
        for each in tools
    ]
    lines = [msgspec.json.encode({"type": "function", "function": function}).decode() for function in functions]
    described = _TOOLS.format(tools="\n".join(lines), when=_MUST if must_call else _MAY)
    return f"{system or _NOBODY}\n\n{described}{'' if must_call else _INSTEAD}"


def add_reminder(conversation: Conversation, tools: Sequence[ToolSpec], how: str) -> Conversation:
    """The conversation with a reminder of the tools in its last question: after small talk a small model forgets them.

    Measured with the default model after small talk: 11 of 20 right choices without it, 20 with it. The first question
    is answered better without.
    """
    *earlier, last = conversation.messages
    if last.role != "user" or not earlier:
        return conversation
    names = ", ".join([spec.name for spec in tools])
    question = _REMINDER.format(question=last.text, names=names, how=how)
    return conversation.up_to(len(earlier)).plus(Message.user(question))


def ask_for_schema(conversation: Conversation, schema: Raw, description: str) -> Conversation:
    """The conversation with a request for a JSON answer in its last question."""
    about = f" ({description.strip()})" if description.strip() else ""
    *earlier, last = conversation.messages
    question = _ANSWER.format(question=last.text, about=about, schema=bytes(schema).decode())
    if last.role != "user":  # the model continues after its own message
        return conversation.plus(Message.user(question.removeprefix(last.text).strip()))
    return conversation.up_to(len(earlier)).plus(Message.user(question))


def to_plain_text(conversation: Conversation, system: str | None) -> tuple[Conversation, tuple[Loss, ...]]:
    """The conversation as plain texts, and what is lost."""
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
            return write_call(block.name, block.arguments.strip() if block.has_arguments else "{}")
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


# --- what the model writes --------------------------------------------------------------------------------------------

_JSON: Final = json.JSONDecoder()
_THINK: Final = "<think>"
_END: Final = "</think>"


class LocalDecoder:
    """Rewrites the events of another decoder: its text becomes a thought, a text and a call."""

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
        decoded: list[ReplyEvent] = []
        try:
            decode(decoded)
        finally:
            events += [new for event in decoded for new in self._rewrite(event)]

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
        if reason is StopReason.MAX_TOKENS:  # even behind a call that looks whole
            is_full = self._context is not None and self._tokens >= self._context - 1
            return StopReason.CONTEXT_FULL if is_full else reason
        return StopReason.TOOL_CALLS if self._text.called else reason


class _TextReader:
    """Splits one text into a thought, the text itself, and a call at its end, which is kept until it is complete."""

    def __init__(self, tools: Collection[str], thinks: Thinks) -> None:
        self.call_id: str = ""
        self.called: bool = False
        """Whether there is a complete call."""
        names = "|".join([re.escape(start_parts(name)[4]) for name in tools])
        parts = [f"({names})" if part == '""' else re.escape(part) for part in start_parts("")]
        self._start: re.Pattern[str] | None = re.compile(r"\s*".join(["", *parts, ""])) if tools else None
        """Matches what comes before the arguments of a call."""
        self._thoughts: _ThoughtReader = _ThoughtReader(thinks)
        self._held: str = ""
        """What may be a call."""
        self._index: int = 0
        self._block: Literal["", "thinking", "text", "call"] = ""

    def feed(self, text: str, *, last: bool = False) -> Iterator[ReplyEvent]:
        thought, text = self._thoughts.split(text, last=last)
        if self._block != "thinking":
            thought = thought.lstrip("\n") if thought.strip() else ""
        yield from self._write("thinking", thought)
        self._held += text
        size = len(self._held) if self._start is None else self._count_text()
        yield from self._write("text", self._held[:size])
        self._held = self._held[size:]

    def finish(self) -> Iterator[ReplyEvent]:
        yield from self.feed("", last=True)
        rest = self._held
        if self._start is not None and (found := self._start.match(rest)):
            yield from self._begin("call")
            yield from self._call(msgspec.json.decode(found[1]), rest[found.end() :].lstrip())
            return
        if self._start is not None and INSTEAD in rest:  # after a call of an unknown tool
            answer = rest.partition(INSTEAD)[2]
            rest = f"\n\n{answer}" if self._block == "text" else answer
        yield from self._write("text", rest)
        if self._block != "text":  # an empty reply
            yield from self._begin("text")
        yield TextEnded(self._index, "")

    def _write(self, block: Literal["thinking", "text"], text: str) -> Iterator[ReplyEvent]:
        if text:
            if self._block != block:
                yield from self._begin(block)
            yield (ThinkingDelta if block == "thinking" else TextDelta)(self._index, "", text)

    def _begin(self, block: Literal["thinking", "text", "call"]) -> Iterator[ReplyEvent]:
        if self._block:
            yield (ThinkingEnded if self._block == "thinking" else TextEnded)(self._index, "")
            self._index += 1
        self._block = block
        if block == "thinking":
            yield ThinkingStarted(self._index, "", "local")
        elif block == "text":
            yield TextStarted(self._index, "")

    def _count_text(self) -> int:
        """How many characters at the start of what is held are text for certain. Blanks before a call are not."""
        at = self._held.find(FENCE)
        if at < 0:
            at = len(self._held) - _begun(FENCE, self._held)
        return len(self._held[:at].rstrip())

    def _call(self, name: str, arguments: str) -> Iterator[ReplyEvent]:
        end: int | None = None
        with suppress(ValueError):  # it was cut off
            check_depth(arguments)
            _, end = _JSON.raw_decode(arguments)
        yield ToolCallStarted(self._index, self.call_id, name)
        yield ToolCallDelta(self._index, self.call_id, arguments[:end])
        if end is not None:
            self.called = True
            yield ToolCallEnded(self._index, self.call_id)


class _ThoughtReader(msgspec.Struct):
    """Splits a thought, `<think>…</think>`, off the start of a text that arrives in pieces."""

    _thinks: Thinks
    _state: Literal["start", "thought", "between", "text"] = "start"
    _held: str = ""
    """What may be the beginning of a tag."""

    def split(self, piece: str, *, last: bool = False) -> tuple[str, str]:
        """What of the next piece is thought, and what is text. Of the last piece nothing is held back."""
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


def _begun(tag: str, text: str) -> int:
    """How many characters at the end of a text may be the beginning of a tag."""
    sizes = range(min(len(text), len(tag) - 1), 0, -1)
    return next((size for size in sizes if text.endswith(tag[:size])), 0)
