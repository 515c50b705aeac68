"""The UI message stream of the Vercel AI SDK: what is read of a request of `useChat`, and events as its parts.

The stream is that of versions 5 to 7 of the SDK (`x-vercel-ai-ui-message-stream: v1`); clients support approvals from
version 6 on. Each of our replies is a step, with the results of its tools; the results of calls that waited for
approval come in the stream of the next request, without a step of their own.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Final, assert_never

import msgspec
from msgspec import Struct

from dragoman.conversation import (
    BlockReceived,
    Completed,
    Conversation,
    Media,
    Message,
    ReplyStarted,
    StopReason,
    Text,
    TextCited,
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
    ToolFinished,
    ToolProgress,
    ToolResult,
    ToolStarted,
    sources_of,
)
from dragoman.errors import ConfigurationError, ToolError
from dragoman.tools import PendingApproval, fingerprint

from .turns import TurnEnded, TurnEvent

HEADERS: Final = {"x-vercel-ai-ui-message-stream": "v1"}
END: Final = b"data: [DONE]\n\n"

_FINISH: Final = {
    StopReason.END: "stop",
    StopReason.STOP_SEQUENCE: "stop",
    StopReason.MAX_TOKENS: "length",
    StopReason.CONTEXT_FULL: "length",
    StopReason.CONTENT_FILTER: "content-filter",
    StopReason.REFUSAL: "content-filter",
    StopReason.TOOL_CALLS: "tool-calls",
}
_PARTS: Final = {
    TextStarted: "text-start",
    TextDelta: "text-delta",
    TextEnded: "text-end",
    ThinkingStarted: "reasoning-start",
    ThinkingDelta: "reasoning-delta",
    ThinkingEnded: "reasoning-end",
}


# --- requests ---------------------------------------------------------------------------------------------------------


class _Approval(Struct):
    id: str
    approved: bool | None = None
    reason: str = ""


class _Part(Struct):
    """The fields of a part that are used."""

    type: str
    text: str = ""
    url: str = ""
    media_type: str = msgspec.field(name="mediaType", default="")
    filename: str | None = None
    state: str = ""
    approval: _Approval | None = None


class _Message(Struct):
    role: str
    parts: list[_Part] = []


class Request(Struct):
    """What `useChat` sends. Only the last message is used; see `read_prompt` and `read_answers`."""

    id: str
    messages: list[_Message] = []
    trigger: str = "submit-message"
    message_id: str | None = msgspec.field(name="messageId", default=None)

    @property
    def last(self) -> _Message:
        if not self.messages:
            raise ConfigurationError("The request has no message.", hint="Send the message of the user.")
        return self.messages[-1]

    @property
    def user_count(self) -> int:
        """The number of user messages that the client has, including the last one."""
        return sum([message.role == "user" for message in self.messages])


def read_prompt(message: _Message) -> Message:
    """The user's message: its texts and files, and nothing else."""
    blocks: list[Text | Media] = []
    for part in message.parts:
        if part.type == "text" and part.text:
            blocks.append(Text(part.text))
        elif part.type == "file":
            blocks.append(read_file(part.url, part.media_type, part.filename))
    return Message(role="user", blocks=tuple(blocks))


def read_file(url: str, media_type: str, name: str | None = None) -> Media:
    """The file of a data: or https: URL. The latter is fetched by the provider, never by this server."""
    if url.startswith("https://"):
        try:
            return Media.from_url(url, mime_type=media_type or None)
        except ValueError:
            message = "The type of a file is not clear from its address."
            raise ConfigurationError(message, hint="Send its media type along.") from None
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        raise ConfigurationError("A file must be a data: address in base64, or an https: one.", hint="Send it as such.")
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigurationError("A file of the message is not valid base64.", hint="Send it again.") from None
    found = media_type or head[5:-7].partition(";")[0] or "application/octet-stream"
    return Media.from_bytes(content, found, name=name)


def read_answers(message: _Message) -> list[tuple[str, bool, str]]:
    """The user's answers about calls: the id of each approval, whether it is approved, and a reason."""
    return [
        (part.approval.id, part.approval.approved, part.approval.reason)
        for part in message.parts
        if part.state == "approval-responded" and part.approval is not None and part.approval.approved is not None
    ]


# --- events -----------------------------------------------------------------------------------------------------------


class Encoder:
    """The events of one turn as parts. Without a `message_id` they continue the client's last message."""

    def __init__(self, message_id: str | None) -> None:
        self._message_id: str | None = message_id
        self._step: int = 0
        self._arguments: dict[str, list[str]] = {}
        self._names: dict[str, str] = {}
        self._stopped: StopReason = StopReason.OTHER
        self._model: str | None = None

    def begin(self) -> Iterable[object]:
        start = {"type": "start"}
        return [start if self._message_id is None else {**start, "messageId": self._message_id}]

    def encode(self, event: TurnEvent) -> Iterable[object]:
        match event:
            case TextDelta() | ThinkingDelta():
                return [self._part(event) | {"delta": event.text}]
            case ToolCallDelta():
                self._arguments[event.id].append(event.arguments)
                part = {"type": "tool-input-delta", "toolCallId": event.id, "inputTextDelta": event.arguments}
                return [part]
            case ReplyStarted():
                self._model = event.model
                return [*self._end_step(), self._begin_step()]
            case TextStarted() | TextEnded() | ThinkingStarted() | ThinkingEnded():
                return [self._part(event)]
            case TextCited():
                found = sources_of(event.citations)
                parts = [{"type": "source-url", "sourceId": link, "url": link, "title": name} for name, link in found]
                return [part for part in parts if part["url"]]
            case ToolCallStarted():
                self._arguments[event.id], self._names[event.id] = [], event.name
                return [{"type": "tool-input-start", "toolCallId": event.id, "toolName": event.name}]
            case ToolCallEnded():
                arguments = "".join(self._arguments.pop(event.id))
                return [_input_part(ToolCall(event.id, self._names.pop(event.id), arguments))]
            case BlockReceived(block=Media() as media):
                return [_file_part(media)]
            case Completed():
                self._stopped = event.stop_reason
                return []
            case ToolFinished():
                return [_output_part(event.result)]
            case ToolProgress():
                return _parts_inside(event)
            case TurnEnded():
                return self._end(event)
            case _:
                return []

    def _part(
        self, event: TextStarted | TextDelta | TextEnded | ThinkingStarted | ThinkingDelta | ThinkingEnded
    ) -> dict[str, object]:
        return {"type": _PARTS[type(event)], "id": f"{self._step}.{event.index}"}

    def _begin_step(self) -> dict[str, object]:
        self._step += 1
        return {"type": "start-step"}

    def _end_step(self) -> list[dict[str, object]]:
        return [{"type": "finish-step"}] if self._step else []

    def _end(self, ended: TurnEnded) -> list[dict[str, object]]:
        if ended.error is not None:
            return [{"type": "error", "errorText": ended.error.message}]
        if ended.ending == "cancelled":
            return [{"type": "abort"}]
        parts = [_request(each) for each in ended.pending if each.within is None]
        inside = [each for each in ended.pending if each.within is not None]
        if inside:
            # Calls of agents, which the client does not know yet, in a step of their own: a client continues when all
            # calls of the last step have a result or an answer, and the calls of the agents themselves have neither.
            parts += [*self._end_step(), self._begin_step()]
            for each in inside:
                parts += [_input_part(each.call), _request(each)]
        metadata: dict[str, object] = {"model": self._model, "usage": msgspec.to_builtins(ended.usage)}
        if ended.note:
            metadata["note"] = ended.note
        reason = "tool-calls" if parts else self._finish_reason(ended)
        return [*parts, *self._end_step(), {"type": "finish", "finishReason": reason, "messageMetadata": metadata}]

    def _finish_reason(self, ended: TurnEnded) -> str:
        reason = _FINISH.get(self._stopped, "other")
        match ended.ending:
            case "limit_reached":
                return "length"
            case "no_answer":  # an empty reply has stopped like any other
                return reason if reason in ("length", "content-filter") else "other"
            case "done" | "await_approval" | "cancelled" | "failed":
                return reason
            case _:
                assert_never(ended.ending)


def _request(pending: PendingApproval) -> dict[str, object]:
    call = pending.call
    return {"type": "tool-approval-request", "approvalId": fingerprint(call), "toolCallId": call.id}


def _parts_inside(progress: ToolProgress) -> list[dict[str, object]]:
    """The start and end of an agent's tool calls; its other events are left out."""
    path, event = progress.call_id, progress.said
    while isinstance(event, ToolProgress):
        path, event = f"{path}>{event.call_id}", event.said
    if isinstance(event, ToolStarted):
        return [_input_part(msgspec.structs.replace(event.call, id=f"{path}>{event.call.id}"))]
    if isinstance(event, ToolFinished):
        return [_output_part(msgspec.structs.replace(event.result, call_id=f"{path}>{event.result.call_id}"))]
    return []


def _input_part(call: ToolCall) -> dict[str, object]:
    same: dict[str, object] = {"toolCallId": call.id, "toolName": call.name}
    try:
        return {"type": "tool-input-available", **same, "input": call.parsed}
    except ToolError as error:
        return {"type": "tool-input-error", **same, "input": call.arguments, "errorText": error.message}


def _output_part(result: ToolResult) -> dict[str, object]:
    same: dict[str, object] = {"toolCallId": result.call_id}
    if result.error_type == "denied":
        return {"type": "tool-output-denied", **same}
    if result.is_error:
        return {"type": "tool-output-error", **same, "errorText": result.text}
    return {"type": "tool-output-available", **same, "output": result.value}


def _file_part(media: Media) -> dict[str, object]:
    data = base64.b64encode(media.data or b"").decode()
    return {"type": "file", "mediaType": media.mime_type, "url": media.url or f"data:{media.mime_type};base64,{data}"}


# --- conversations ----------------------------------------------------------------------------------------------------


def messages_of(conversation: Conversation, pending: Iterable[PendingApproval]) -> list[dict[str, object]]:
    """The conversation as initial messages for `useChat`. All replies between two messages of the user are one message,
    with the pending calls of agents at its end."""
    waiting = {each.call.id for each in pending}
    found: list[dict[str, object]] = []
    parts: list[dict[str, object]] = []
    before = "user"
    for index, message in enumerate(conversation.messages):
        if message.role == "tool":  # results are shown with their calls
            continue
        if message.role == "user" or before == "user":
            parts = []
            found.append({"id": message_id(index), "role": message.role, "parts": parts})
        parts += _message_parts(message, _results_behind(conversation.messages, index), waiting)
        before = message.role
    if inside := [each for each in pending if each.within is not None]:
        parts.append({"type": "step-start"})
        parts += [_call_part(each.call, None, waiting) for each in inside]
    return found


def message_id(index: int) -> str:
    """The id of the message at this index of the conversation."""
    return f"message-{index}"


def _results_behind(messages: Sequence[Message], index: int) -> dict[str, ToolResult]:
    following = messages[index + 1 : index + 2]
    return {result.call_id: result for message in following for result in message.tool_results}


def _message_parts(message: Message, results: dict[str, ToolResult], waiting: set[str]) -> list[dict[str, object]]:
    parts: list[dict[str, object]] = [{"type": "step-start"}] if message.role == "assistant" else []
    for block in message.blocks:
        match block:
            case Text():
                parts.append({"type": "text", "text": block.text})
            case Thinking() if block.text:
                parts.append({"type": "reasoning", "text": block.text})
            case Media():
                parts.append(_file_part(block))
            case ToolCall():
                parts.append(_call_part(block, results.get(block.id), waiting))
            case _:
                pass
    return parts


def _call_part(call: ToolCall, result: ToolResult | None, waiting: set[str]) -> dict[str, object]:
    given = _input_part(call)
    part: dict[str, object] = {"type": f"tool-{call.name}", "toolCallId": call.id, "input": given["input"]}
    if result is None:
        asked = {"state": "approval-requested", "approval": {"id": fingerprint(call)}}
        return part | (asked if call.id in waiting else {"state": "input-available"})
    if result.is_error:
        return part | {"state": "output-error", "errorText": result.text}
    return part | {"state": "output-available", "output": result.value}
