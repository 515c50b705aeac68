"""Whether a conversation can be sent, and how to mend one that cannot.

The rule, which every provider enforces in its own words: each tool call of a message has exactly one result, right
after that message and in the order of the calls; nothing else may be a result; no message is empty.

One walk gives both answers, what is wrong and what should stand there instead. What was really done is never dropped
for its place: a result that came late (somebody spoke while the tools ran) is moved to its call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from .blocks import Block, Text, ToolCall, ToolResult
from .message import Message

ChangeKind: TypeAlias = Literal["added_result", "removed_result", "moved_result", "removed_call", "removed_message"]
"""What was done to a conversation to make it valid."""

_NOT_RUN: Final = "This call was not completed: no result was recorded for it."


class Change(NamedTuple):
    """One thing that is wrong, and what mending does about it."""

    kind: ChangeKind
    message: int
    """Index of the message in the original conversation."""
    call_id: str
    problem: str

    def __str__(self) -> str:
        return f"message {self.message}: {self.problem}"


def mended(messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], tuple[Change, ...]]:
    """The messages made valid with the least change, and each change; the same messages if nothing is wrong."""
    right: list[Message] = []
    changes: list[Change] = []
    for start, end in _turns(messages, 0):
        right += _mended_turn(messages, start, end, changes)
    return (tuple(right), tuple(changes)) if changes else (messages, ())


def last_turn(messages: tuple[Message, ...], since: int) -> int | None:
    """Where the last turn begins, if from `since` on, where a turn begins too, nothing is wrong; None if something is.

    The turns before the last one stay right whatever comes behind it: each is mended by itself. The last one may still
    grow, so whoever adds messages asks again from there.
    """
    changes: list[Change] = []
    last = since
    for start, end in _turns(messages, since):
        _mended_turn(messages, start, end, changes)
        if changes:
            return None
        last = start
    return last


def _turns(messages: tuple[Message, ...], start: int) -> Iterator[tuple[int, int]]:
    """Where turns begin and end: each is a message of the model and all that follows up to its next one."""
    while start < len(messages):
        end = start + 1
        while end < len(messages) and messages[end].role != "assistant":
            end += 1
        yield start, end
        start = end


def _mended_turn(messages: tuple[Message, ...], start: int, end: int, changes: list[Change]) -> list[Message]:
    """One turn as it should be: the answers of the tools first."""
    turn = messages[start:end]
    spoken: list[Message] = []
    answers: list[tuple[int, Message]] = []
    for index, message in enumerate(turn, start):
        if message.role == "tool":
            answers.append((index, message))
            continue
        cleaned = drop_unanswerable_calls(message, index, changes)
        if cleaned.blocks:
            spoken.append(cleaned)
        else:
            changes.append(Change("removed_message", index, "", "the message is empty"))
    head = spoken[:1] if turn[0].role == "assistant" and spoken and spoken[0].role == "assistant" else []
    calls = head[0].tool_calls if head else ()
    if _answers_stand_right(calls, answers, start + len(head)):
        body = [message for _, message in answers]
    else:
        body = _answers_for(calls, answers, start, changes)
    return [*head, *body, *spoken[len(head) :]]


def drop_unanswerable_calls(message: Message, index: int, changes: list[Change]) -> Message:
    """The message without calls that nobody could answer, and without results (they belong in tool messages)."""
    kept: list[Block] = []
    seen: set[str] = set()
    for block in message.blocks:
        if isinstance(block, ToolResult):
            what = f"a result of call {block.call_id!r} stands in a message of the {message.role}"
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
        return "broke off before its arguments were complete"
    if not call.id:
        return "has no id"
    return "has the id of another call in the same message" if call.id in seen else ""


def _answers_stand_right(calls: tuple[ToolCall, ...], answers: list[tuple[int, Message]], first: int) -> bool:
    """Whether the answers follow at once and hold exactly the results that are due, in order."""
    given: list[str | None] = []
    for place, (index, message) in enumerate(answers, first):
        if index != place or not message.blocks:
            return False
        given += [block.call_id if isinstance(block, ToolResult) else None for block in message.blocks]
    return given == [call.id for call in calls]


def _answers_for(
    calls: tuple[ToolCall, ...], answers: list[tuple[int, Message]], start: int, changes: list[Change]
) -> list[Message]:
    """One tool message that answers each call once, in order, from what the given ones hold."""
    found = _usable_results({call.id for call in calls}, answers, changes)
    in_order = [call.id for call in calls if call.id in found]
    late = {index for place, (index, _) in enumerate(answers, start + 1) if index != place}
    for right, (given, (index, _)) in zip(in_order, found.items(), strict=True):
        if given != right or index in late:
            what = f"the result of call {given!r} is not where the order of the calls wants it"
            changes.append(Change("moved_result", index, given, what))
    for call in calls:
        if call.id not in found:
            what = f"the call {call.id!r} of {call.name!r} has no result"
            changes.append(Change("added_result", start, call.id, what))
    if not calls:
        return []
    results = [found[call.id][1] if call.id in found else _not_run(call) for call in calls]
    template = answers[0][1] if answers else Message(role="tool")
    return [msgspec.structs.replace(template, blocks=tuple(results))]


def _usable_results(
    wanted: set[str], answers: list[tuple[int, Message]], changes: list[Change]
) -> dict[str, tuple[int, ToolResult]]:
    """The first result of each wanted call, in the order found; everything else is reported as removed."""
    found: dict[str, tuple[int, ToolResult]] = {}
    for index, message in answers:
        if not message.blocks:
            changes.append(Change("removed_message", index, "", "the message is empty"))
        for block in message.blocks:
            if not isinstance(block, ToolResult):
                changes.append(Change("removed_result", index, "", "a tool message holds something else than results"))
            elif block.call_id not in wanted:
                what = f"the result {block.call_id!r} answers no call of the message before"
                changes.append(Change("removed_result", index, block.call_id, what))
            elif block.call_id in found:
                what = f"the call {block.call_id!r} has more than one result"
                changes.append(Change("removed_result", index, block.call_id, what))
            else:
                found[block.call_id] = (index, block)
    return found


def _not_run(call: ToolCall) -> ToolResult:
    return ToolResult(call.id, call.name, (Text(_NOT_RUN),), is_error=True, error_type="cancelled")
