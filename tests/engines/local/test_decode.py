"""Calls and thoughts read out of texts, in whatever pieces these come."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from random import Random

import pytest
from hypothesis import given, strategies as st

from dragoman.conversation import (
    Completed,
    Message,
    ReplyEvent,
    ReplyStarted,
    StopReason,
    Text,
    TextDelta,
    TextEnded,
    TextStarted,
    Thinking,
    ToolCall,
    Usage,
    UsageReported,
    fold,
)
from dragoman.engines.local.models import Thinks
from dragoman.engines.local.prompt import FENCE, INSTEAD, LocalDecoder, call_start, write_call

OPENING = FENCE + '\n{"name": '

NAMES = ("weather", "weather_report")
CALL = write_call("weather", '{"city": "Pa\\"}ris", "deep": [{}]}')
ARGUMENTS = '{"city": "Pa\\"}ris", "deep": [{}]}'


def pieces(text: str, sizes: list[int]) -> Iterator[str]:
    for size in cycle(sizes):
        if not text:
            return
        yield text[:size]
        text = text[size:]


def events(
    text: str, sizes: list[int], reason: StopReason = StopReason.END, usage: Usage | None = None
) -> list[ReplyEvent]:
    return [
        ReplyStarted("local", "/a/file.gguf", "chatcmpl-abc"),
        TextStarted(0, ""),
        *[TextDelta(0, "", piece) for piece in pieces(text, sizes)],
        TextEnded(0, ""),
        *([UsageReported(usage)] if usage else []),
        Completed(reason),
    ]


class Played:
    """A decoder that gives one event after the other, whatever it is fed."""

    def __init__(self, events: list[ReplyEvent]) -> None:
        self.left = events

    def feed(self, _data: bytes, events: list[ReplyEvent]) -> None:
        events.append(self.left.pop(0))

    def finish(self, events: list[ReplyEvent]) -> None:
        pass


def read(
    text: str,
    sizes: list[int] | None = None,
    *,
    tools: tuple[str, ...] = NAMES,
    think: Thinks = "never",
    **more: object,
) -> Message:
    played = Played(events(text, sizes or [1], **more))  # type: ignore[arg-type]
    decoder = LocalDecoder(played, tools=tools, thinks=think, model="m", context=100)
    found: list[ReplyEvent] = []
    while played.left:
        decoder.feed(b"", found)
    decoder.finish(found)
    return fold(found)


BLANKS = (FENCE, "{", '"name"', ":", '"weather"', ",", '"arguments"', ":", ARGUMENTS, "}", "```")


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 1000])
@pytest.mark.parametrize("text", [CALL, *[blanks.join(BLANKS) for blanks in ("", " ", "\n  ")]])
def test_calls_with_any_blanks_and_after_some_words(text: str, size: int) -> None:
    message = read(text, [size])
    assert message.blocks == (ToolCall("call_abc", "weather", ARGUMENTS),)
    assert (message.stop_reason, message.model) == (StopReason.TOOL_CALLS, "m")
    after = read(f"I will look.\n\n{text}", [size])
    assert after.blocks == (Text("I will look."), *message.blocks)
    message = read(f"Well. {write_call('alice', '{}')}{INSTEAD}It rains.", [size])  # of no tool that there is
    assert (message.text, message.tool_calls, message.stop_reason) == ("Well.\n\nIt rains.", (), StopReason.END)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Just words.",
        '```json\n{"name": "weather", "arguments": {}}\n```',
        write_call("alice", "{}"),
        OPENING + '"weather"} no call',
        OPENING,
        OPENING + '"weath',
        OPENING + "3, ",
        OPENING[:-3],
        "a ``` b ```tool c",
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_texts_stay_texts(text: str, size: int) -> None:
    message = read(text, [size])
    assert message.text == text
    assert not message.tool_calls
    assert message.stop_reason is StopReason.END


def test_partial_calls_and_thoughts_and_no_call_without_tools() -> None:
    message = read(call_start("weather") + '{"city": "Par', reason=StopReason.MAX_TOKENS)
    assert [call.partial for call in message.tool_calls] == [True]
    assert message.stop_reason is StopReason.MAX_TOKENS
    message = read(CALL, [3], reason=StopReason.MAX_TOKENS)  # a call that looks whole hides the cut from nobody
    assert (len(message.tool_calls), message.stop_reason) == (1, StopReason.MAX_TOKENS)
    message = read("and so", [2], think="always", reason=StopReason.MAX_TOKENS)
    assert (message.thinking, message.text) == ("and so", "")
    assert read(CALL, [3], tools=()).text == CALL


@pytest.mark.parametrize(("used", "reason"), [(99, StopReason.CONTEXT_FULL), (50, StopReason.MAX_TOKENS)])
def test_a_full_context_is_not_reported_as_a_token_limit(used: int, reason: StopReason) -> None:
    usage = Usage(input=used - 10, output=10, total=used)
    assert read("words", reason=StopReason.MAX_TOKENS, usage=usage).stop_reason is reason


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 10**6))
def test_pieces_make_no_difference(sizes: list[int], seed: int) -> None:
    random = Random(seed)
    parts = ["words ", "```", "tool_call\n", OPENING, '"weather"', '"nobody"', ', "arguments": ', INSTEAD, "{}"]
    parts += ['{"a": "}"}', "}", "\n```"]
    text = "".join(random.choice(parts) for _ in range(random.randrange(9)))
    assert read(text, sizes).blocks == read(text, [10_000]).blocks


# --- thinking ---


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(("think", "start"), [("maybe", "<think>\n"), ("always", ""), ("always", "<think>")])
def test_thinking_before_an_answer_or_a_call(think: Thinks, start: str, size: int) -> None:
    message = read(f"{start}hm < hm\n</think>\n\nYes.", [size], think=think)
    assert isinstance(message.blocks[0], Thinking)
    assert (message.thinking.strip(), message.text, len(message.blocks)) == ("hm < hm", "Yes.", 2)
    called = read(f"{start}hm</think>\n\n{CALL}", [size], think=think)
    assert [type(block) for block in called.blocks] == [Thinking, ToolCall]
    for nothing in ("Yes.", "<think>\n\n</think>\n\nYes."):
        assert read(nothing, [size], think="maybe").blocks == (Text("Yes."),)
