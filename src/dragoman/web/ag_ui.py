"""AG-UI: what is read of a run's input, and events as those of the protocol.

A conversation is a thread, a turn a run. A call that needs approval ends the run with an interrupt, whose id is the
call's fingerprint; the next run answers it in `resume`, and then has the result of the call. The server has everything
that is needed to continue, so no snapshot is sent with an interrupt.
"""

from __future__ import annotations

from collections.abc import Iterable
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
from .turns import TurnEnded, TurnEvent

PROTOCOL_VERSION: Final = "1.0"
_ANSWER: Final = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
}


# --- requests ---------------------------------------------------------------------------------------------------------


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
    """The input of a run. Only the last message is used; tools, context and state of the client are not."""

    thread_id: str = msgspec.field(name="threadId")
    run_id: str = msgspec.field(name="runId")
    messages: list[_Message] = []
    resume: list[_Resume] = []


def read_prompt(request: Request) -> Message:
    """The user's message: the texts and files of the last one."""
    last = request.messages[-1] if request.messages else None
    if last is None or last.role != "user":
        message = "The input does not end with a message of the user, and resumes nothing."
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
    """The user's answers about calls. To cancel is to refuse."""
    return [
        (each.interrupt_id, each.status == "resolved" and each.payload.approved, each.payload.reason)
        if each.payload is not None
        else (each.interrupt_id, False, "")
        for each in request.resume
    ]


# --- events -----------------------------------------------------------------------------------------------------------


class Encoder:
    """The events of one turn as those of a run."""

    def __init__(self, thread: str, run: str) -> None:
        self._thread: str = thread
        self._run: str = run
        self._reply: int = 0
        self._provider: str = ""
        self._model: str | None = None

    def begin(self) -> Iterable[object]:
        same = {"threadId": self._thread, "runId": self._run}
        return [{"type": "RUN_STARTED", **same, "protocolVersion": PROTOCOL_VERSION}]

    def encode(self, event: TurnEvent) -> Iterable[object]:
        match event:
            case TextDelta() | ThinkingDelta():
                kind = "TEXT_MESSAGE_CONTENT" if isinstance(event, TextDelta) else "REASONING_MESSAGE_CONTENT"
                delta = {"type": kind, "messageId": self._id(event.index), "delta": event.text}
                return [delta] if event.text else []
            case ToolCallDelta():
                delta = {"type": "TOOL_CALL_ARGS", "toolCallId": event.id, "delta": event.arguments}
                return [delta] if event.arguments else []
            case ReplyStarted():
                self._reply += 1
                self._provider, self._model = event.provider, event.model
                return []
            case TextStarted():
                return [{"type": "TEXT_MESSAGE_START", "messageId": self._id(event.index), "role": "assistant"}]
            case TextEnded():
                return [{"type": "TEXT_MESSAGE_END", "messageId": self._id(event.index)}]
            case ThinkingStarted():
                return [
                    {"type": "REASONING_START", "messageId": self._id(event.index)},
                    {"type": "REASONING_MESSAGE_START", "messageId": self._id(event.index), "role": "reasoning"},
                ]
            case ThinkingEnded():
                return [
                    {"type": "REASONING_MESSAGE_END", "messageId": self._id(event.index)},
                    {"type": "REASONING_END", "messageId": self._id(event.index)},
                ]
            case ToolCallStarted():
                same = {"toolCallId": event.id, "toolCallName": event.name}
                return [{"type": "TOOL_CALL_START", **same, "parentMessageId": self._id("calls")}]
            case ToolCallEnded():
                return [{"type": "TOOL_CALL_END", "toolCallId": event.id}]
            case ToolFinished():
                return [self._result(event.result)]
            case TurnEnded():
                return [self._end(event)]
            case _:
                return []

    def _id(self, part: int | str) -> str:
        """The id of a message: each text and thought of a reply is one, and all its calls together."""
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
        if ended.note:  # the protocol has no outcome between success and error
            finished["result"] = {"ending": ended.ending, "note": ended.note}
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


def refusal(request: Request, error: ConfigurationError) -> list[object]:
    """A run that fails at once, since its input does not fit the thread."""
    started = Encoder(request.thread_id, request.run_id).begin()
    return [*started, {"type": "RUN_ERROR", "message": error.message, "code": type(error).__name__}]
