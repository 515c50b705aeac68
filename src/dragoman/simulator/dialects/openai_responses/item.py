"""The output items of a reply in the responses dialect.

Owns: one item for each block, as it starts and as it is done, and the events between the two.
Must not know: the response around the items.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from dragoman.conversation import Block, Media, Opaque, StopReason, Text, Thinking, ToolCall, ToolResult
from dragoman.simulator.dialects.dialect import Answer, FrameKind, UnwritableReplyError, native_fields
from dragoman.simulator.json_access import JsonObject, items, members
from dragoman.simulator.signatures import sign

__all__ = ["Item", "Step", "items_of"]

_READER: Final = "openai_responses"


class Step(Struct, frozen=True):
    """An event about an item; the response adds the item's place and a sequence number."""

    type: str
    fields: JsonObject
    kind: FrameKind = "other"


class Item(Struct, frozen=True):
    """An output item."""

    started: JsonObject
    done: JsonObject
    steps: list[Step]


def items_of(answer: Answer) -> list[Item]:
    """The items of a reply, in order."""
    return [item for index, block in enumerate(answer.blocks) if (item := _item(answer, block, index)) is not None]


def _item(answer: Answer, block: Block, index: int) -> Item | None:
    match block:
        case Text() if answer.stop_reason is StopReason.REFUSAL:
            return _message(answer, block, index, "refusal", "refusal")
        case Text():
            return _message(answer, block, index, "output_text", "text")
        case Thinking():
            return _reasoning(answer, block, index)
        case ToolCall():
            return _call(answer, block, index)
        case Opaque():
            if block.provider != _READER:
                return None
            raw = members(block.value)
            return Item(raw, raw, [])
        case Media(data=bytes() as data) if block.kind == "image":
            image: JsonObject = {"id": f"{answer.id('ig_')}_{index}", "type": "image_generation_call"}
            done = image | {"status": "completed", "result": b64encode(data).decode()}
            return Item(image | {"status": "in_progress", "result": None}, done, [])
        case Media() | ToolResult():
            message = "a reply of the openai_responses dialect has no media but images given as bytes"
            raise UnwritableReplyError(message)


def _status(answer: Answer) -> str:
    return "incomplete" if answer.stop_reason is StopReason.MAX_TOKENS else "completed"


def _message(answer: Answer, block: Text, index: int, part_type: str, field: str) -> Item:
    base: JsonObject = {"id": f"{answer.id('msg_')}_{index}", "type": "message", "role": "assistant"}
    rest: JsonObject = {"annotations": [], "logprobs": []} if field == "text" else {}
    empty: JsonObject = {"type": part_type, **rest, field: ""}
    part = empty | {field: block.text}
    started: JsonObject = {**base, "status": "in_progress", "content": []}
    done = base | {"status": _status(answer), "content": [part], **native_fields(block.native, _READER)}
    logprobs: JsonObject = {"logprobs": []} if field == "text" else {}
    place: JsonObject = {"content_index": 0}
    deltas = [place | {"delta": piece, **logprobs} for piece in answer.pieces(block.text)]
    steps = [
        Step("content_part.added", place | {"part": empty}),
        *(Step(f"{part_type}.delta", delta, "delta") for delta in deltas),
        Step(f"{part_type}.done", place | {field: block.text, **logprobs}),
        Step("content_part.done", place | {"part": part}),
    ]
    return Item(started, done, steps)


def _reasoning(answer: Answer, block: Thinking, index: int) -> Item:
    base: JsonObject = {"id": f"{answer.id('rs_')}_{index}", "type": "reasoning", "summary": []}
    encrypted = block.encrypted
    if encrypted is None and "reasoning.encrypted_content" in items(answer.request.body.get("include")):
        encrypted = sign(block.text)
    if encrypted is not None:
        base["encrypted_content"] = encrypted
    if not block.text:
        return Item(base, base | native_fields(block.native, _READER), [])
    part: JsonObject = {"type": "summary_text", "text": block.text}
    place: JsonObject = {"summary_index": 0}
    deltas = [place | {"delta": piece} for piece in answer.pieces(block.text)]
    steps = [
        Step("reasoning_summary_part.added", place | {"part": {"type": "summary_text", "text": ""}}),
        *(Step("reasoning_summary_text.delta", delta, "delta") for delta in deltas),
        Step("reasoning_summary_text.done", place | {"text": block.text}),
        Step("reasoning_summary_part.done", place | {"part": part}),
    ]
    return Item(base, base | {"summary": [part], **native_fields(block.native, _READER)}, steps)


def _call(answer: Answer, call: ToolCall, index: int) -> Item:
    base: JsonObject = {"id": f"{answer.id('fc_')}_{index}", "type": "function_call", "call_id": call.id}
    base |= {"name": call.name, **native_fields(call.native, _READER)}
    return Item(
        base | {"status": "in_progress", "arguments": ""},
        base | {"status": _status(answer), "arguments": call.arguments},
        list(_argument_steps(answer, call)),
    )


def _argument_steps(answer: Answer, call: ToolCall) -> Iterator[Step]:
    for piece in answer.pieces(call.arguments):
        yield Step("function_call_arguments.delta", {"delta": piece}, "delta")
    yield Step("function_call_arguments.done", {"arguments": call.arguments})
