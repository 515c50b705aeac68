from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.conversation import Message, StopReason, TextDelta, ToolCall, ToolResult, fold, unfold
from dragoman.errors import ConversationError
from tests.strategies import call_blocks, media_blocks, messages, opaque_blocks, text_blocks, thinking_blocks

whole_calls = call_blocks.map(lambda call: msgspec.structs.replace(call, partial=False))
parts = text_blocks | thinking_blocks | whole_calls | media_blocks | opaque_blocks
replies = st.builds(
    lambda message, blocks: msgspec.structs.replace(message, role="assistant", blocks=tuple(blocks), extra=None),
    messages.filter(lambda message: message.stop_reason not in (None, StopReason.INTERRUPTED, StopReason.ERROR)),
    st.lists(parts.map(lambda block: msgspec.structs.replace(block, extra=None)), max_size=4),
)


@given(replies, st.none() | st.integers(1, 5))
def test_folding_what_was_unfolded_gives_the_message_back(message: Message, piece: int | None) -> None:
    expected = msgspec.structs.replace(message, provider=message.provider or "")
    assert fold(unfold(message, piece=piece)) == expected


def test_an_interrupted_message_stays_interrupted() -> None:
    message = Message(role="assistant", blocks=(ToolCall("1", "f", '{"a', partial=True),), provider="p")
    cut = msgspec.structs.replace(message, stop_reason=StopReason.INTERRUPTED)
    assert fold(unfold(cut)) == cut


def test_a_message_made_by_hand_ends_naturally() -> None:
    assert fold(unfold(Message.assistant("hi"))).stop_reason is StopReason.END
    assert fold(unfold(Message.assistant(ToolCall("1", "f")))).stop_reason is StopReason.TOOL_CALLS


def test_pieces_have_the_size_that_was_asked_for() -> None:
    texts = [event.text for event in unfold(Message.assistant("abcde"), piece=2) if isinstance(event, TextDelta)]
    assert texts == ["ab", "cd", "e"]


@pytest.mark.parametrize("size", [0, -1])
def test_pieces_of_nothing_would_lose_the_text(size: int) -> None:
    with pytest.raises(ValueError, match=f"pieces of {size}"):
        list(unfold(Message.assistant("abc"), piece=size))


def test_a_result_is_no_part_of_a_reply() -> None:
    with pytest.raises(ConversationError, match="'1'"):
        list(unfold(Message.assistant(ToolResult("1", "f"))))
