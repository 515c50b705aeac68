"""Replies in any pieces, cut short or damaged: pieces make no difference, and nothing broken passes for a reply."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dragoman.conversation import Conversation, Message, ReplyEvent, StopReason, fold
from dragoman.errors import ProtocolError, ProviderError
from dragoman.providers.catalogue import codec_of, profile_of
from dragoman.providers.codec import Call, Encoded, WireRequest
from tests.providers.anthropic import calls as anthropic
from tests.providers.feeding import cut_at, one_by_one
from tests.providers.gemini import case as gemini
from tests.providers.recorded import Exchange, exchanges

MODELS = {"anthropic": "claude-sonnet-4-5", "gemini": "gemini-3-flash-preview"}
NOTHING_SENT = Encoded(request=WireRequest(path="", body=b""))


def call_of(dialect: str, *messages: Message, stream: bool = False) -> Call:
    model = MODELS[dialect]
    conversation = Conversation(messages=messages)
    return Call(model=model, conversation=conversation, profile=profile_of(dialect, model), stream=stream)


def read(dialect: str, *pieces: bytes, stream: bool) -> tuple[Message, ProviderError | None]:
    """What came of these bytes, and the error if there was one. Another exception fails the test."""
    events: list[ReplyEvent] = []
    decoder = codec_of(dialect).decoder(call_of(dialect, stream=stream), NOTHING_SENT)
    try:
        for piece in pieces:
            decoder.feed(piece, events)
        decoder.finish(events)
    except ProviderError as error:
        return fold(events), error
    return fold(events), None


# --- samples ----------------------------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """A reply that is complete with its last byte that is not white space."""

    dialect: str
    stream: bool
    body: bytes


TOOL = {"type": "tool_use", "id": "t", "name": "add", "input": {}}
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
ANTHROPIC_EVENTS = b"".join(
    [
        anthropic.started(),
        anthropic.block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Hm, é"},
            {"type": "signature_delta", "signature": "c2ln"},
        ),
        anthropic.event("ping"),
        anthropic.text_block(1, "Hello ", "wörld", "!"),
        anthropic.block(2, SEARCH, {"type": "input_json_delta", "partial_json": '{"query": "x"}'}),
        anthropic.block(3, TOOL, *[{"type": "input_json_delta", "partial_json": piece} for piece in ('{"a": ', "1}")]),
        anthropic.stopped("tool_use"),
    ]
)
COUNTS = {"promptTokenCount": 3, "candidatesTokenCount": 4, "totalTokenCount": 7}
GEMINI_CHUNKS = [
    gemini.chunk({"text": 'Let "me" \\ [see', "thought": True}, usage=COUNTS),
    gemini.chunk({"text": "…", "thought": True, "thoughtSignature": "c2ln"}),
    gemini.chunk("It is "),
    gemini.chunk("sünny {", groundingMetadata={}),
    gemini.chunk("", {"functionCall": {"name": "f", "args": {"a": [1, "}"]}}, "thoughtSignature": "c2ln"}),
    gemini.chunk({"toolResponse": {"id": "1"}}),
    gemini.chunk({"text": "", "thoughtSignature": "c2ln"}, finish="STOP", usage=COUNTS, groundingMetadata={"q": ["a"]}),
]
SAMPLES = {
    "anthropic events": Sample("anthropic", True, ANTHROPIC_EVENTS),
    "anthropic whole": Sample(
        "anthropic", False, anthropic.whole({"type": "text", "text": "Hello"}, {**TOOL, "input": {"a": 1}})
    ),
    "gemini events": Sample("gemini", True, gemini.as_events(*GEMINI_CHUNKS)),
    "gemini array": Sample("gemini", True, gemini.as_array(*GEMINI_CHUNKS)),
    "gemini whole": Sample(
        "gemini",
        False,
        gemini.as_whole(gemini.chunk("a", {"functionCall": {"name": "f"}}, finish="STOP", usage=COUNTS)),
    ),
}


def recorded(dialect: str, id: str) -> list[Sample]:
    found = [exchange.body.encode() for exchange in exchanges(dialect) if exchange.id == id]
    return [Sample(dialect, True, body) for body in found]


RECORDED = [
    *recorded("anthropic", "test_anthropic_code_execution_tool_stream-0"),
    *recorded("gemini", "test_google_model_file_search_tool_stream-3"),
]
samples = st.sampled_from([*SAMPLES.values(), *RECORDED])

# --- cut and in pieces ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sample",
    [
        *[pytest.param(sample, id=name) for name, sample in SAMPLES.items()],
        *[pytest.param(sample, id=f"recorded {sample.dialect}", marks=pytest.mark.recorded) for sample in RECORDED],
    ],
)
def test_a_reply_cut_anywhere_is_never_a_silent_success(sample: Sample) -> None:
    dialect, stream, body = sample
    complete, failure = read(dialect, body, stream=stream)
    assert failure is None
    before = 0
    for length in range(len(body)):
        message, error = read(dialect, body[:length], stream=stream)
        if length >= len(body.rstrip()):
            assert (message, error) == (complete, None)
            continue
        assert isinstance(error, ProtocolError)
        assert message.stop_reason is StopReason.INTERRUPTED
        # Everything that has arrived is there, and it only ever grows.
        assert complete.text.startswith(message.text)
        assert len(message.text) >= before
        before = len(message.text)
    assert bool(before) == stream


@settings(max_examples=100, deadline=None)
@given(samples, st.lists(st.integers(0, 20_000), max_size=30))
def test_pieces_make_no_difference(sample: Sample, places: list[int]) -> None:
    dialect, stream, body = sample
    complete = read(dialect, body, stream=stream)
    assert read(dialect, *cut_at(body, places), stream=stream) == complete
    assert read(dialect, *one_by_one(body), stream=stream) == complete


def _exchanges() -> list[object]:
    rows = [(dialect, row) for dialect in MODELS for row in exchanges(dialect) if row.status == 200]
    return [pytest.param(*row, id=f"{row[0]} {row[1].id}", marks=pytest.mark.recorded) for row in rows]


@pytest.mark.parametrize(("dialect", "exchange"), _exchanges())
def test_pieces_of_a_recorded_reply_make_no_difference(dialect: str, exchange: Exchange) -> None:
    body = exchange.body.encode()
    message, error = read(dialect, body, stream=exchange.streamed)
    for pieces in (cut_at(body, range(0, len(body), 97)), [*one_by_one(body[:12_000]), body[12_000:]]):
        again, failure = read(dialect, *pieces, stream=exchange.streamed)
        assert (again, type(failure)) == (message, type(error))


# --- damaged ----------------------------------------------------------------------------------------------------------


def survive(dialect: str, *pieces: bytes, stream: bool) -> None:
    """Read without another exception than ours; what is complete can be sent back."""
    message, error = read(dialect, *pieces, stream=stream)
    if error is None:
        body = codec_of(dialect).encode(call_of(dialect, Message.user("Hi"), message)).request.body
        json.loads(body)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(MODELS)), st.binary(max_size=300), st.booleans())
@example("gemini", b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"\\ud800"}}]}}]}', False)
@example("gemini", b'{"candidates":[{"content":{"parts":[{"x":"\\ud800"}]},"finishReason":"STOP"}]}', False)
@example("anthropic", b'{"content":[{"type":"x","x":"\\ud800"}],"stop_reason":"end_turn"}', False)
def test_any_bytes(dialect: str, data: bytes, stream: bool) -> None:
    survive(dialect, data, stream=stream)
    survive(dialect, b"data: " + data + b"\n\n", stream=True)


JUNK = [
    b"",
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"\\",
    b",",
    b"null",
    b"1",
    b"\xff",
    b"\n\n",
    b"data: ",
    b"\\ud83d",
    b"1e999",
]


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    samples,
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 40), st.sampled_from(JUNK)), min_size=1, max_size=6),
    st.lists(st.integers(0, 20_000), max_size=5),
    st.booleans(),
)
def test_damaged_replies(
    sample: Sample, damages: list[tuple[int, int, bytes]], places: list[int], stream: bool
) -> None:
    dialect, body = sample.dialect, sample.body
    for place, length, junk in damages:
        at = place % len(body)
        body = body[:at] + junk + body[at + length :] or b"{"
    survive(dialect, body, stream=stream)
    assert read(dialect, *cut_at(body, places), stream=stream)[0] == read(dialect, body, stream=stream)[0]


@settings(deadline=None)
@given(st.lists(st.sampled_from([frame + b"\n\n" for frame in ANTHROPIC_EVENTS.strip().split(b"\n\n")]), max_size=30))
def test_events_in_any_order(frames: list[bytes]) -> None:
    message, error = read("anthropic", b"".join(frames), stream=True)
    assert (error is None) == (message.stop_reason is StopReason.TOOL_CALLS)


KEYS = (
    "text thought thoughtSignature functionCall name args id inlineData mimeType data fileData fileUri partialArgs "
    "jsonPath stringValue willContinue new type thinking signature input citations tool_use server_tool_use"
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from(KEYS.split()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(VALUES, max_size=3), VALUES)
def test_parts_of_any_shape(parts: list[object], beside: object) -> None:
    reply = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP", "groundingMetadata": beside}]}
    survive("gemini", json.dumps(reply).encode(), stream=False)
    survive("gemini", gemini.as_events(reply, reply), stream=True)
    message = {"content": parts, "stop_reason": "end_turn", "usage": beside}
    survive("anthropic", json.dumps(message).encode(), stream=False)
