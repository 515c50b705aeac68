"""From the model's calls to their results in the conversation.

Owns: taking the calls out and putting the results in, the first and the last of the helpers that a hand-written loop
is made of; which calls can be answered at all, and which answers of a person are about calls that wait.
Must not know: how calls are carried out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dragoman.conversation import Block, Conversation, Message, ToolCall, ToolResult
from dragoman.errors import InvalidConversationError
from dragoman.tools.permission import Approval


def extract_tool_calls(conversation: Conversation) -> tuple[ToolCall, ...]:
    """The calls of the model's latest message that have no result yet, in order."""
    return conversation.pending_tool_calls


def append_tool_results(conversation: Conversation, results: Iterable[ToolResult]) -> Conversation:
    """The conversation with these results at its end.

    They may come in any order and a part at a time: all results of one message of the model stand in one message, in
    the order of the calls. A result that answers none of the calls that wait is an error.
    """
    given = {result.call_id: result for result in results}
    if not given:
        return conversation
    wanted = {call.id for call in conversation.pending_tool_calls}
    for call_id in given:
        if call_id not in wanted:
            message = f"The result {call_id!r} answers no call that waits for one."
            raise InvalidConversationError(message, hint="Take the calls from extract_tool_calls(conversation).")
    answered = 0
    for message in reversed(conversation.messages):
        if message.role == "assistant":
            break
        answered += 1
        for earlier in message.tool_results:
            given[earlier.call_id] = earlier
    kept = conversation.messages[: len(conversation.messages) - answered]
    in_order = [given[call.id] for call in kept[-1].tool_calls if call.id in given]
    if not answered:
        return conversation.plus(Message.tool(in_order))
    return msgspec.structs.replace(conversation, messages=(*kept, Message.tool(in_order)))


def drop_unanswerable_calls(message: Message) -> Message:
    """The message without calls that nobody could answer: cut off, without an id, or with the id of another."""
    for block in message.blocks:
        if type(block) is ToolCall:
            break
    else:  # as most have none at all
        return message
    kept: list[Block] = []
    seen: set[str] = set()
    for block in message.blocks:
        if isinstance(block, ToolCall):
            if block.partial or not block.id or block.id in seen:
                continue
            seen.add(block.id)
        kept.append(block)
    return message if len(kept) == len(message.blocks) else msgspec.structs.replace(message, blocks=tuple(kept))


def keep_current_approvals(calls: Sequence[ToolCall], approvals: Iterable[Approval]) -> list[Approval]:
    """The answers about calls that wait now. Another one is out of date and must not hold for a call to come."""
    return [approval for approval in approvals if any(map(approval.answers, calls))] if calls else []


def refuse_unanswered_calls(conversation: Conversation, answers: Iterable[Approval]) -> Conversation:
    """The conversation when somebody speaks instead of answering: calls without an answer are not run."""
    calls = conversation.pending_tool_calls
    if not calls:
        return conversation
    unanswered = {call.id for call in calls if not any(answer.answers(call) for answer in answers)}
    if not unanswered:
        return conversation
    *_, last = conversation.repaired().conversation.messages
    return append_tool_results(conversation, [each for each in last.tool_results if each.call_id in unanswered])
