from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dragoman.conversation import (
    BlockReceived,
    Completed,
    Event,
    Failed,
    Fold,
    Media,
    Message,
    Native,
    Opaque,
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
    ToolFinished,
    ToolResult,
    ToolStarted,
    Usage,
    UsageReported,
    fold,
)
from dragoman.errors import ProtocolError
from tests.strategies import natives, raws, texts

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
    assert fold(REPLY) == Message(
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
def test_a_reply_that_breaks_off_is_marked_interrupted_and_keeps_what_came(length: int) -> None:
    message = fold(REPLY[:length])
    assert message.stop_reason is StopReason.INTERRUPTED
    assert message.interrupted
    assert message.text == "".join(event.text for event in REPLY[:length] if isinstance(event, TextDelta))


def test_a_call_whose_end_never_came_is_partial() -> None:
    [call] = fold([ToolCallStarted(0, "1", "f"), ToolCallDelta(0, "1", '{"a')]).tool_calls
    assert call == ToolCall("1", "f", '{"a', partial=True)


def test_thinking_whose_end_never_came_keeps_its_text() -> None:
    assert fold([ThinkingStarted(0, "", "p"), ThinkingDelta(0, "", "hm")]).blocks == (Thinking("hm", "p"),)


def test_a_failed_reply_says_so() -> None:
    message = fold([*REPLY[:8], Failed("OverloadedError", "busy")])
    assert message.stop_reason is StopReason.ERROR
    assert message.text == "Let me see."


def test_parts_stand_in_the_order_of_their_index() -> None:
    events: list[Event] = [TextStarted(5, ""), TextStarted(2, ""), TextDelta(5, "", "b"), TextDelta(2, "", "a")]
    assert fold(events).text == "ab"


def test_running_tools_is_not_part_of_a_reply() -> None:
    call = ToolCall("1", "f")
    assert fold([*REPLY, ToolStarted(call), ToolFinished(ToolResult("1", "f"))]) == fold(REPLY)


def test_the_message_can_be_asked_for_at_any_time() -> None:
    state = Fold()
    for event in REPLY:
        assert not state.completed
        state.push(event)
        state.message()
    assert state.completed
    assert state.message() == fold(REPLY)


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
    with pytest.raises(ProtocolError, match="contradict") as caught:
        fold(events)
    assert caught.value.fault == "provider"


def test_every_part_event_carries_its_index_and_id() -> None:
    for event in REPLY:
        written = msgspec.json.decode(msgspec.json.encode(event))
        if hasattr(event, "index"):
            assert written["index"] == event.index
            assert written["id"] == event.id
    assert msgspec.json.decode(msgspec.json.encode(TextDelta(0, "", "x")))["type"] == "text_delta"
    assert msgspec.json.decode(msgspec.json.encode(ToolFinished(ToolResult("1", "f"))))["result"]["call_id"] == "1"


# --- properties ---

parts = st.one_of(
    st.builds(Text, text=texts, native=natives),
    st.builds(Thinking, text=texts, provider=st.just("p"), signature=st.none() | texts, native=natives),
    st.builds(ToolCall, id=st.just("c"), name=st.just("f"), arguments=texts, native=natives),
    st.builds(Opaque, provider=st.just("p"), raw=raws),
)


def split(text: str, cuts: Sequence[int]) -> list[str]:
    """The text in pieces, cut at these places; some pieces may be empty."""
    at = sorted({cut % (len(text) + 1) for cut in cuts})
    return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]


def events_of(index: int, block: object, cuts: Sequence[int]) -> list[Event]:
    match block:
        case Text():
            deltas: list[Event] = [TextDelta(index, "", piece) for piece in split(block.text, cuts)]
            return [TextStarted(index, ""), *deltas, TextEnded(index, "", block.native)]
        case Thinking():
            deltas = [ThinkingDelta(index, "", piece) for piece in split(block.text, cuts)]
            end = ThinkingEnded(index, "", block.signature, native=block.native)
            return [ThinkingStarted(index, "", block.provider), *deltas, end]
        case ToolCall():
            deltas = [ToolCallDelta(index, block.id, piece) for piece in split(block.arguments, cuts)]
            return [ToolCallStarted(index, block.id, block.name), *deltas, ToolCallEnded(index, block.id, block.native)]
        case _:
            assert isinstance(block, Opaque)
            return [BlockReceived(index, "", block)]


@given(st.lists(parts, max_size=5), st.lists(st.integers(0, 100), max_size=5), st.randoms(use_true_random=False))
def test_any_split_and_any_interleaving_of_parts_gives_the_same_message(
    blocks: list[Text | Thinking | ToolCall | Opaque], cuts: list[int], random: object
) -> None:
    queues = [events_of(index, block, cuts) for index, block in enumerate(blocks)]
    mixed: list[Event] = [ReplyStarted("p")]
    while any(queues):
        queue = random.choice([queue for queue in queues if queue])  # type: ignore[attr-defined]
        mixed.append(queue.pop(0))
    mixed.append(Completed(StopReason.END))
    message = fold(mixed)
    assert message.blocks == tuple(blocks)
    assert message.stop_reason is StopReason.END
