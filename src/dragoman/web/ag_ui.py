"""AG-UI: what a run's input may say, and a turn's events as the protocol's.

A turn is a run of the thread that is the conversation. A call that needs approval ends the run with an interrupt, whose
id is the call's fingerprint; the next run answers it in `resume`, and its result comes then, for the call that the
client already knows. All that is needed to go on is here on the server, so no snapshot is sent with an interrupt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from dragoman.conversation import (
    Media,
    Message,
    ReplyStarted,
    Text,
    TextDelta,
    TextEnded,
    TextStarted,
    ThinkingDelta,
    ThinkingEnded,
    ThinkingStarted,
    ToolCallDelta,
    ToolCallEnded,
    ToolCallStarted,
    ToolFinished,
    ToolResult,
    Usage,
)
from dragoman.errors import ConfigurationError
from dragoman.tools import PendingApproval, fingerprint

from .ai_sdk import read_file
from .turns import Happening, TurnEnded

PROTOCOL_VERSION: Final = "1.0"
_ANSWER: Final = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
}
_write: Final = msgspec.json.Encoder().encode


# --- what a request may say -------------------------------------------------------------------------------------------


class _Source(Struct):
    type: str
    value: str
    mime_type: str = msgspec.field(name="mimeType", default="")


class _Part(Struct):
    type: str
    text: str = ""
    source: _Source | None = None


class _Message(Struct):
    role: str
    content: str | list[_Part] | None = None


class _Answer(Struct):
    approved: bool
    reason: str = ""


class _Resume(Struct):
    interrupt_id: str = msgspec.field(name="interruptId")
    status: str
    payload: _Answer | None = None


class Request(Struct):
    """A run's input. Of the messages only the last one is heard; tools, context and state of the client are not."""

    thread_id: str = msgspec.field(name="threadId")
    run_id: str = msgspec.field(name="runId")
    messages: list[_Message] = []
    resume: list[_Resume] = []


def read_prompt(request: Request) -> Message:
    """What the user says: the texts and files of the last message."""
    last = request.messages[-1] if request.messages else None
    if last is None or last.role != "user":
        message = "The run's input ends with no message of the user, and resumes nothing."
        raise ConfigurationError(message, hint="Add a message of the role `user`, or answer the interrupts.")
    if isinstance(last.content, str):
        return Message.user(last.content)
    return Message.user(*[_read_part(part) for part in last.content or ()])


def _read_part(part: _Part) -> Text | Media:
    if part.source is None:
        return Text(part.text)
    source = part.source
    if source.type == "data":
        return read_file(f"data:{source.mime_type};base64,{source.value}", source.mime_type)
    return read_file(source.value, source.mime_type)


def read_answers(request: Request) -> list[tuple[str, bool, str]]:
    """What the user answered about calls. Who cancels has refused."""
    return [
        (each.interrupt_id, each.status == "resolved" and each.payload.approved, each.payload.reason)
        if each.payload is not None
        else (each.interrupt_id, False, "")
        for each in request.resume
    ]


# --- a turn as events -------------------------------------------------------------------------------------------------


class Encoder:
    """The events of one turn as events of a run."""

    def __init__(self, thread: str, run: str) -> None:
        self._thread: str = thread
        self._run: str = run
        self._reply: int = 0
        self._provider: str = ""
        self._model: str | None = None

    def begin(self) -> Iterable[bytes]:
        same = {"threadId": self._thread, "runId": self._run}
        return [_write({"type": "RUN_STARTED", **same, "protocolVersion": PROTOCOL_VERSION})]

    def encode(self, happening: Happening) -> Iterable[bytes]:
        return map(_write, self._events(happening))

    def _events(self, happening: Happening) -> Iterable[Mapping[str, object]]:
        match happening:
            case TextDelta() | ThinkingDelta():
                kind = "TEXT_MESSAGE_CONTENT" if isinstance(happening, TextDelta) else "REASONING_MESSAGE_CONTENT"
                delta = {"type": kind, "messageId": self._id(happening.index), "delta": happening.text}
                return [delta] if happening.text else []
            case ToolCallDelta():
                delta = {"type": "TOOL_CALL_ARGS", "toolCallId": happening.id, "delta": happening.arguments}
                return [delta] if happening.arguments else []
            case ReplyStarted():
                self._reply += 1
                self._provider, self._model = happening.provider, happening.model
                return []
            case TextStarted():
                return [{"type": "TEXT_MESSAGE_START", "messageId": self._id(happening.index), "role": "assistant"}]
            case TextEnded():
                return [{"type": "TEXT_MESSAGE_END", "messageId": self._id(happening.index)}]
            case ThinkingStarted():
                return [
                    {"type": "REASONING_START", "messageId": self._id(happening.index)},
                    {"type": "REASONING_MESSAGE_START", "messageId": self._id(happening.index), "role": "reasoning"},
                ]
            case ThinkingEnded():
                return [
                    {"type": "REASONING_MESSAGE_END", "messageId": self._id(happening.index)},
                    {"type": "REASONING_END", "messageId": self._id(happening.index)},
                ]
            case ToolCallStarted():
                same = {"toolCallId": happening.id, "toolCallName": happening.name}
                return [{"type": "TOOL_CALL_START", **same, "parentMessageId": self._id("calls")}]
            case ToolCallEnded():
                return [{"type": "TOOL_CALL_END", "toolCallId": happening.id}]
            case ToolFinished():
                return [self._result(happening.result)]
            case TurnEnded():
                return [self._end(happening)]
            case _:
                return []

    def _id(self, part: int | str) -> str:
        """The id of a message: each text and thought of a reply is one, and all of its calls are."""
        return f"{self._run}.{self._reply}.{part}"

    def _result(self, result: ToolResult) -> dict[str, object]:
        return {
            "type": "TOOL_CALL_RESULT",
            "messageId": f"{self._run}.{result.call_id}",
            "toolCallId": result.call_id,
            "content": result.text,
            "role": "tool",
        }

    def _end(self, ended: TurnEnded) -> dict[str, object]:
        if ended.error is not None:
            return {"type": "RUN_ERROR", "message": ended.error.message, "code": ended.error.error}
        outcome: dict[str, object] = {"type": "cancelled" if ended.ending == "cancelled" else "success"}
        if ended.pending:
            outcome = {"type": "interrupt", "interrupts": [_interrupt(each) for each in ended.pending]}
        finished: dict[str, object] = {"type": "RUN_FINISHED", "threadId": self._thread, "runId": self._run}
        return finished | {"outcome": outcome, "usage": [self._usage(ended.usage)]}

    def _usage(self, usage: Usage) -> dict[str, object]:
        found: dict[str, object | None] = {
            "provider": self._provider or None,
            "model": self._model,
            "inputTokens": usage.input,
            "outputTokens": usage.output,
            "totalTokens": usage.tokens,
            "reasoningTokens": usage.reasoning,
            "cachedInputTokens": usage.cache_read,
        }
        return {name: value for name, value in found.items() if value is not None}


def _interrupt(pending: PendingApproval) -> dict[str, object]:
    call = pending.call
    return {
        "id": fingerprint(call),
        "reason": "tool_call",
        "message": pending.reason or f"{call.name} wants to run.",
        "toolCallId": pending.held.id,
        "responseSchema": _ANSWER,
    }


def refusal(request: Request, error: ConfigurationError) -> list[bytes]:
    """A run that is over before it began, since its input does not fit the thread."""
    started = Encoder(request.thread_id, request.run_id).begin()
    return [*started, _write({"type": "RUN_ERROR", "message": error.message, "code": type(error).__name__})]
