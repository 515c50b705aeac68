"""Check whether a conversation can be sent, and repair one that cannot.

The rule of every provider: each tool call of a message has exactly one result, right after that message and in the
order of the calls; there are no other results; no message is empty.

One pass finds the problems and the repaired messages. A result in the wrong place is never dropped: if it came late,
because the user wrote while the tools ran, it is moved to its call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from .blocks import Block, Text, ToolCall, ToolResult
from .message import Message, StopReason

ChangeKind: TypeAlias = Literal["added_result", "removed_result", "moved_result", "removed_call", "removed_message"]
"""How a conversation was changed to make it valid."""

_NOT_RUN: Final = "This call was not completed: no result was recorded for it."
_CUT_OFF: Final = (
    "This call was not run, because the reply that made it was cut off: {why}. A part of it may be missing. "
    "If the call is still needed, make it again, with shorter arguments or in several smaller calls."
)


class Change(NamedTuple):
    """One problem, and how it was repaired."""

    kind: ChangeKind
    message: int
    """Index of the message in the original conversation."""
    call_id: str
    problem: str

    def __str__(self) -> str:
        return f"message {self.message}: {self.problem}"


def repair(messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], tuple[Change, ...]]:
    """Make the messages valid with as few changes as possible; returns the same messages if nothing is wrong."""
    valid: list[Message] = []
    changes: list[Change] = []
    for start, end in _turns(messages, 0):
        valid += _repair_turn(messages, start, end, changes)
    return (tuple(valid), tuple(changes)) if changes else (messages, ())


def last_turn(messages: tuple[Message, ...], since: int) -> int | None:
    """Where the last turn begins, if all turns from `since` on are valid; None if one is not.

    `since` is the start of a turn. Turns before the last one stay valid whatever follows. The last one may still grow,
    so it must be checked again when messages are added.
    """
    changes: list[Change] = []
    last = since
    for start, end in _turns(messages, since):
        _repair_turn(messages, start, end, changes)
        if changes:
            return None
        last = start
    return last


def _turns(messages: tuple[Message, ...], start: int) -> Iterator[tuple[int, int]]:
    """The start and end of each turn: a message of the model and everything up to its next one."""
    while start < len(messages):
        end = start + 1
        while end < len(messages) and messages[end].role != "assistant":
            end += 1
        yield start, end
        start = end


def _repair_turn(messages: tuple[Message, ...], start: int, end: int, changes: list[Change]) -> list[Message]:
    """One valid turn: first the message of the model, then the results of its calls, then the rest."""
    turn = messages[start:end]
    others: list[Message] = []
    results: list[tuple[int, Message]] = []
    for index, message in enumerate(turn, start):
        if message.role == "tool":
            results.append((index, message))
            continue
        cleaned = drop_unanswerable_calls(message, index, changes)
        if cleaned.blocks:
            others.append(cleaned)
        else:
            changes.append(Change("removed_message", index, "", "the message is empty"))
    head = others[:1] if turn[0].role == "assistant" and others and others[0].role == "assistant" else []
    calls = head[0].tool_calls if head else ()
    if _are_valid_results(calls, results, start + len(head)):
        body = [message for _, message in results]
    else:
        body = _repair_results(head[0] if head else turn[0], calls, results, start, changes)
    return [*head, *body, *others[len(head) :]]


def drop_unanswerable_calls(message: Message, index: int, changes: list[Change]) -> Message:
    """The message without calls that cannot have a result, and without results, which belong in tool messages."""
    kept: list[Block] = []
    seen: set[str] = set()
    for block in message.blocks:
        if isinstance(block, ToolResult):
            what = f"a result of call {block.call_id!r} is in a message of the {message.role}"
            changes.append(Change("removed_result", index, block.call_id, what))
        elif isinstance(block, ToolCall) and (reason := _unanswerable(block, message, seen)):
            changes.append(Change("removed_call", index, block.id, f"the call {block.id!r} of {block.name!r} {reason}"))
        else:
            kept.append(block)
            if isinstance(block, ToolCall):
                seen.add(block.id)
    if len(kept) == len(message.blocks):
        return message
    return msgspec.structs.replace(message, blocks=tuple(kept))


def _unanswerable(call: ToolCall, message: Message, seen: set[str]) -> str:
    if message.role != "assistant":
        return "is not the model's"
    if call.partial:
        return "has incomplete arguments"
    if not call.id:
        return "has no id"
    return "has the id of another call in the same message" if call.id in seen else ""


def _are_valid_results(calls: tuple[ToolCall, ...], results: list[tuple[int, Message]], first: int) -> bool:
    """Whether the tool messages follow at once and hold exactly the results of the calls, in order."""
    given: list[str | None] = []
    for place, (index, message) in enumerate(results, first):
        if index != place or not message.blocks:
            return False
        given += [block.call_id if isinstance(block, ToolResult) else None for block in message.blocks]
    return given == [call.id for call in calls]


def _repair_results(
    reply: Message,
    calls: tuple[ToolCall, ...],
    messages: list[tuple[int, Message]],
    start: int,
    changes: list[Change],
) -> list[Message]:
    """Combine tool messages into one with exactly one result per call, in order."""
    found = _usable_results({call.id for call in calls}, messages, changes)
    in_order = [call.id for call in calls if call.id in found]
    late = {index for place, (index, _) in enumerate(messages, start + 1) if index != place}
    for right, (given, (index, _)) in zip(in_order, found.items(), strict=True):
        if given != right or index in late:
            what = f"the result of call {given!r} is not in the order of the calls"
            changes.append(Change("moved_result", index, given, what))
    for call in calls:
        if call.id not in found:
            what = f"the call {call.id!r} of {call.name!r} has no result"
            changes.append(Change("added_result", start, call.id, what))
    if not calls:
        return []
    results = [found[call.id][1] if call.id in found else _not_run(call, reply) for call in calls]
    template = messages[0][1] if messages else Message(role="tool")
    return [msgspec.structs.replace(template, blocks=tuple(results))]


def _usable_results(
    wanted: set[str], messages: list[tuple[int, Message]], changes: list[Change]
) -> dict[str, tuple[int, ToolResult]]:
    """The first result of each wanted call, in the order found; everything else is reported as removed."""
    found: dict[str, tuple[int, ToolResult]] = {}
    for index, message in messages:
        if not message.blocks:
            changes.append(Change("removed_message", index, "", "the message is empty"))
        for block in message.blocks:
            if not isinstance(block, ToolResult):
                changes.append(Change("removed_result", index, "", "a tool message holds something other than results"))
            elif block.call_id not in wanted:
                what = f"the result {block.call_id!r} belongs to no call of the message before"
                changes.append(Change("removed_result", index, block.call_id, what))
            elif block.call_id in found:
                what = f"the call {block.call_id!r} has more than one result"
                changes.append(Change("removed_result", index, block.call_id, what))
            else:
                found[block.call_id] = (index, block)
    return found


def unanswered_cut_reply(messages: tuple[Message, ...]) -> Message | None:
    """The model's last message, if it was cut off and a call in it has no result yet; `repair` adds that."""
    answered: set[str] = set()
    for message in reversed(messages):
        if message.role == "assistant":
            called = {call.id for call in message.tool_calls} if message.cut_off else answered
            return None if called <= answered else message
        answered.update([result.call_id for result in message.tool_results])
    return None


def _not_run(call: ToolCall, reply: Message) -> ToolResult:
    text = _CUT_OFF.format(why=_why(reply)) if reply.cut_off else _NOT_RUN
    return ToolResult(call.id, call.name, (Text(text),), is_error=True, error_type="cancelled")


def _why(reply: Message) -> str:
    written = None if reply.usage is None else reply.usage.output
    counted = reply.stop_reason is StopReason.MAX_TOKENS and written
    return f"{reply.cut_off}, after {written:,} tokens" if counted else reply.cut_off
