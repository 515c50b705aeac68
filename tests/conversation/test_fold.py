from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec import Raw

from dragoman.conversation import (
    BlockReceived,
    Citation,
    Completed,
    Event,
    Failed,
    Media,
    Message,
    Native,
    Opaque,
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
    ToolResult,
    ToolStarted,
    Usage,
    UsageReported,
    fold,
    unfold,
)
from dragoman.errors import ConversationError, ProtocolError
from tests.strategies import call_blocks, media_blocks, messages, opaque_blocks, text_blocks, thinking_blocks

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)

REPLY: list[Event] = [
    ReplyStarted("anthropic", "claude", "msg_1", NOON),
    ThinkingStarted(0, "", "anthropic"),
    ThinkingDelta(0, "", "Hm"),
    ThinkingDelta(0, "", "m."),
    ThinkingEnded(0, "", signature="s"),
    TextStarted(1, ""),
    TextDelta(1, "", "Let me "),
    TextDelta(1, "", "see."),
    TextEnded(1, "", native=Native("anthropic", {"citations": Raw(b"[]")})),
    ToolCallStarted(2, "call_1", "weather"),
    ToolCallStarted(3, "call_2", "now"),
    ToolCallDelta(2, "call_1", '{"city":'),
    ToolCallDelta(2, "call_1", '"Lyon"}'),
    ToolCallEnded(3, "call_2"),
    ToolCallEnded(2, "call_1"),
    BlockReceived(4, "", Opaque("anthropic", Raw(b'{"type":"x"}'))),
    UsageReported(Usage(input=1)),
    UsageReported(Usage(input=10, output=5)),
    Completed(StopReason.TOOL_CALLS, "tool_use", Native("anthropic", {"container": Raw(b"null")})),
]


def test_the_events_of_a_reply_become_one_message() -> None:
    tools: list[Event] = [ToolStarted(ToolCall("1", "f")), ToolFinished(ToolResult("1", "f"))]  # no part of a reply
    assert fold([*REPLY, *tools]) == Message(
        role="assistant",
        blocks=(
            Thinking("Hmm.", "anthropic", signature="s"),
            Text("Let me see.", native=Native("anthropic", {"citations": Raw(b"[]")})),
            ToolCall("call_1", "weather", '{"city":"Lyon"}'),
            ToolCall("call_2", "now", ""),
            Opaque("anthropic", Raw(b'{"type":"x"}')),
        ),
        provider="anthropic",
        model="claude",
        id="msg_1",
        usage=Usage(input=10, output=5),
        stop_reason=StopReason.TOOL_CALLS,
        raw_stop_reason="tool_use",
        time=NOON,
        native=Native("anthropic", {"container": Raw(b"null")}),
    )


@pytest.mark.parametrize("length", range(len(REPLY)))
def test_an_incomplete_reply_is_marked_interrupted_and_keeps_its_parts(length: int) -> None:
    message = fold(REPLY[:length])
    assert message.stop_reason is StopReason.INTERRUPTED
    assert message.interrupted
    assert message.text == "".join(event.text for event in REPLY[:length] if isinstance(event, TextDelta))


def test_a_part_without_an_end_keeps_its_text() -> None:
    assert fold([ThinkingStarted(0, "", "p"), ThinkingDelta(0, "", "hm")]).blocks == (Thinking("hm", "p"),)
    [call] = fold([ToolCallStarted(0, "1", "f"), ToolCallDelta(0, "1", '{"a')]).tool_calls
    assert call == ToolCall("1", "f", '{"a', partial=True)


def test_a_failed_reply_has_the_stop_reason_error() -> None:
    message = fold([*REPLY[:8], Failed("OverloadedError", "busy")])
    assert message.stop_reason is StopReason.ERROR
    assert message.text == "Let me see."


@pytest.mark.parametrize(
    "events",
    [
        [TextDelta(0, "", "x")],
        [TextEnded(0, "")],
        [TextStarted(0, ""), TextStarted(0, "")],
        [TextStarted(0, ""), ToolCallDelta(0, "", "x")],
        [TextStarted(0, ""), ThinkingEnded(0, "")],
        [TextStarted(0, ""), TextEnded(0, ""), TextDelta(0, "", "x")],
        [TextStarted(0, ""), TextEnded(0, ""), TextEnded(0, "")],
        [BlockReceived(0, "", Media.from_path("a.png")), TextDelta(0, "", "x")],
        [ThinkingDelta(0, "", "x")],
        [ReplyStarted("p"), ReplyStarted("p")],
        [Completed(StopReason.END), Completed(StopReason.END)],
        [Completed(StopReason.END), TextStarted(0, "")],
    ],
)
def test_events_that_contradict_each_other_are_a_protocol_error(events: list[Event]) -> None:
    with pytest.raises(ProtocolError, match="contradict"):
        fold(events)


whole_calls = call_blocks.map(lambda call: msgspec.structs.replace(call, partial=False))
blocks = text_blocks | thinking_blocks | whole_calls | media_blocks | opaque_blocks
replies = st.builds(
    lambda message, blocks: msgspec.structs.replace(
        message, role="assistant", blocks=tuple(blocks), account=None, extra=None
    ),
    messages.filter(lambda message: message.stop_reason not in (None, StopReason.INTERRUPTED, StopReason.ERROR)),
    st.lists(blocks.map(lambda block: msgspec.structs.replace(block, extra=None)), max_size=4),
)


@given(replies, st.none() | st.integers(1, 5), st.randoms(use_true_random=False))
def test_fold_reverses_unfold_however_the_parts_interleave(message: Message, piece: int | None, random: Random) -> None:
    expected = msgspec.structs.replace(message, provider=message.provider or "")
    start, *events = unfold(message, piece=piece)
    parts = {index: [each for each in events if getattr(each, "index", -1) == index] for index in range(4)}
    mixed = [start]
    while queues := [queue for queue in parts.values() if queue]:
        mixed.append(random.choice(queues).pop(0))
    mixed += [each for each in events if not hasattr(each, "index")]
    assert fold([start, *events]) == fold(mixed) == expected


def test_an_interrupted_message_stays_interrupted() -> None:
    message = Message(role="assistant", blocks=(ToolCall("1", "f", '{"a', partial=True),), provider="p")
    cut = msgspec.structs.replace(message, stop_reason=StopReason.INTERRUPTED)
    assert fold(unfold(cut)) == cut


def test_a_message_without_a_stop_reason_gets_the_natural_one() -> None:
    assert fold(unfold(Message.assistant("hi"))).stop_reason is StopReason.END
    assert fold(unfold(Message.assistant(ToolCall("1", "f")))).stop_reason is StopReason.TOOL_CALLS


def test_pieces_have_the_requested_size_and_lose_no_text() -> None:
    texts = [event.text for event in unfold(Message.assistant("abcde"), piece=2) if isinstance(event, TextDelta)]
    assert texts == ["ab", "cd", "e"]
    with pytest.raises(ValueError, match="pieces of 0"):
        list(unfold(Message.assistant("abc"), piece=0))


def test_a_result_in_a_reply_is_refused() -> None:
    with pytest.raises(ConversationError, match="'1'"):
        list(unfold(Message.assistant(ToolResult("1", "f"))))


def test_sources_may_come_after_the_end_of_their_text() -> None:
    page, file = Citation(url="https://w"), Citation(document="f")
    begun = [TextStarted(0, ""), TextDelta(0, "", "a"), TextCited(0, "", (page,)), TextEnded(0, "")]
    message = fold([*begun, TextCited(0, "", (file,)), Completed(StopReason.END)])
    assert message.blocks == (Text("a", citations=(page, file)),)
    assert message.citations == (page, file)
    for wrong in ([TextCited(0, "", (page,))], [*begun, Completed(StopReason.END), TextCited(0, "", (page,))]):
        with pytest.raises(ProtocolError, match="sources"):
            fold(wrong)
