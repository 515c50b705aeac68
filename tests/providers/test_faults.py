"""Replies of every dialect in any pieces, truncated or damaged.

Pieces make no difference, a broken reply is never a success, and only our exceptions are raised.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from dragoman.conversation import (
    Message,
    ReplyEvent,
    StopReason,
    TextDelta,
    fold,
)
from dragoman.errors import ProtocolError, ProviderError
from dragoman.providers import Call
from tests.providers import calls
from tests.providers.anthropic import calls as anthropic
from tests.providers.bedrock import wire as bedrock
from tests.providers.calls import decoder_of, encode
from tests.providers.feeding import attempt, cut_at, one_by_one
from tests.providers.gemini import case as gemini
from tests.providers.openai_chat import wire as chat
from tests.providers.openai_responses import calls as responses
from tests.providers.recorded import Exchange, exchanges
from tests.rounds import rounds, stride

MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "bedrock": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "gemini": "gemini-3-flash-preview",
    "openrouter": "some-model",
    "openai-responses": "gpt-5.6",
}
providers = st.sampled_from(sorted(MODELS))


def call_of(provider: str, *messages: Message, stream: bool = False) -> Call:
    return calls.call_of(f"{provider}:{MODELS[provider]}", *messages, stream=stream)


def read(provider: str, *pieces: bytes, stream: bool) -> tuple[Message, ProviderError | None]:
    return attempt(decoder_of(call_of(provider, stream=stream)), *pieces)


# --- samples ----------------------------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """A reply; nothing shorter than up to `end` is complete."""

    provider: str
    stream: bool
    body: bytes
    end: int


def sample(provider: str, body: bytes, *, stream: bool = True, end: int | None = None) -> Sample:
    return Sample(provider, stream, body, len(body.rstrip()) if end is None else end)


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
ANTHROPIC_WHOLE = anthropic.whole({"type": "text", "text": "Hello"}, {**TOOL, "input": {"a": 1}})
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
GEMINI_WHOLE = gemini.chunk("a", {"functionCall": {"name": "f"}}, finish="STOP", usage=COUNTS)
CHAT_BEGIN = chat.stream(
    chat.chunk({"role": "assistant", "content": "", "reasoning_content": "hm"}, system_fingerprint="fp"),
    chat.chunk({"content": "Grüße 🎉"}),
    chat.chunk({"content": " und mehr"}),
    chat.chunk({"tool_calls": [chat.call_piece('{"a":', 0, "c1", "f")]}),
    chat.chunk({"tool_calls": [chat.call_piece("1}", 0), chat.call_piece("{}", 1, "c2", "g")]}),
    chat.chunk({}, "tool_calls"),
    done=False,
)
CHAT_RICH = chat.stream(
    chat.chunk({"reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "s", "index": 0}]}),
    chat.chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "x"}]}]}),
    chat.chunk({"content": "a", "annotations": [{"index": 0}]}),
    chat.chunk({"annotations": [{"index": 0, "b": 1}], "audio": {"id": "x", "data": "AAEC"}}),
    chat.chunk({"images": [{"image_url": {"url": "data:image/png;base64,AAEC"}}], "refusal": "no"}, "stop"),
    done=False,
)
CHAT_WHOLE = chat.whole({"content": "Hello", "tool_calls": [chat.call_piece("{}", 0, "c", "f")]}, usage=chat.USAGE)
ITEMS = [
    responses.reasoning_item("Hm.", "So."),
    responses.message_item("Hello, wörld 🌍", phase="commentary"),
    {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search"}},
    responses.call_item(arguments='{"city":"Zürich"}'),
]
RESPONSES_EVENTS = responses.streamed(*ITEMS)

BEDROCK_EVENTS = b"".join(
    [
        bedrock.STARTED,
        bedrock.delta(0, reasoningContent={"text": "Hm, é"}),
        bedrock.delta(0, reasoningContent={"signature": "c2ln"}),
        bedrock.stop(0),
        bedrock.delta(1, text="Hello "),
        bedrock.delta(1, text="wörld!"),
        bedrock.delta(1, citation={"title": "A", "location": {"documentChar": {"start": 1}}}),
        bedrock.stop(1),
        bedrock.call(2, '{"a": ', "1}"),
        bedrock.delta(3, somethingNew={"text": "a"}),
        bedrock.delta(3, somethingNew={"text": "b"}),
        bedrock.stop(3),
        bedrock.frame("somethingElse", {"new": True}),
        bedrock.ended("tool_use"),
    ]
)
BEDROCK_WHOLE = bedrock.whole(
    {"reasoningContent": {"reasoningText": {"text": "Hm", "signature": "c2ln"}}},
    {"text": "Hello"},
    {"toolUse": {"toolUseId": "t", "name": "add", "input": {"a": 1}}},
    {"somethingNew": [1, None]},
    reason="tool_use",
)

SAMPLES = {
    "bedrock frames": sample("bedrock", BEDROCK_EVENTS, end=BEDROCK_EVENTS.rindex(b":event-type") - 12 - 1),
    "bedrock whole": sample("bedrock", BEDROCK_WHOLE, stream=False),
    "anthropic events": sample("anthropic", ANTHROPIC_EVENTS),
    "anthropic whole": sample("anthropic", ANTHROPIC_WHOLE, stream=False),
    "gemini events": sample("gemini", gemini.as_events(*GEMINI_CHUNKS)),
    "gemini array": sample("gemini", gemini.as_array(*GEMINI_CHUNKS)),
    "gemini whole": sample("gemini", gemini.as_whole(GEMINI_WHOLE), stream=False),
    "chat events": sample(
        "openrouter",
        CHAT_BEGIN + chat.event(chat.chunk(choices=[], usage=chat.USAGE)) + chat.DONE,
        end=len(CHAT_BEGIN.rstrip()),
    ),
    "chat parts": sample("openrouter", CHAT_RICH),
    "chat whole": sample("openrouter", CHAT_WHOLE, stream=False),
    "responses events": sample("openai-responses", responses.sse(RESPONSES_EVENTS)),
    "responses whole": sample("openai-responses", json.dumps(responses.response(*ITEMS)).encode(), stream=False),
}


def recorded(file: str, provider: str, id: str, end: bytes | None = None) -> list[Sample]:
    found = [exchange.body.encode() for exchange in exchanges(file) if exchange.id == id]
    return [sample(provider, body, end=body.index(end) if end else None) for body in found]


RECORDED = [
    *recorded("anthropic", "anthropic", "test_anthropic_code_execution_tool_stream-0"),
    *recorded("gemini", "gemini", "test_google_model_file_search_tool_stream-3"),
    *recorded("chat", "openrouter", "test_crusoe_model_streaming-0", b'"finish_reason":"'),
    *recorded("responses", "openai-responses", "test_openai_responses_stream-1"),
]
samples = st.sampled_from([*SAMPLES.values(), *RECORDED])

# --- cut and in pieces ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sample",
    [
        *[pytest.param(one, id=name) for name, one in SAMPLES.items()],
        *[pytest.param(one, id=f"recorded {one.provider}", marks=pytest.mark.recorded) for one in RECORDED],
    ],
)
def test_a_reply_cut_anywhere_is_never_a_silent_success(sample: Sample) -> None:
    provider, stream, body, end = sample
    complete, failure = read(provider, body, stream=stream)
    assert failure is None
    before = 0
    step = stride(1 + len(body) // 2_000)
    for length in sorted({*range(0, len(body), step), *range(max(0, end - 20), len(body))}):
        message, error = read(provider, body[:length], stream=stream)
        if error is None:
            assert length >= end
            # Everything that was said is there; only a count of tokens may have been cut off.
            assert (message.blocks, message.stop_reason) == (complete.blocks, complete.stop_reason)
            continue
        assert isinstance(error, ProtocolError)
        assert message.stop_reason is StopReason.INTERRUPTED
        # Everything that has arrived is there, and it only ever grows.
        assert complete.text.startswith(message.text)
        assert len(message.text) >= before
        before = len(message.text)


@settings(max_examples=rounds(100), deadline=None)
@given(samples, st.lists(st.integers(0, 20_000), max_size=30))
def test_pieces_make_no_difference(sample: Sample, places: list[int]) -> None:
    provider, stream, body, _ = sample
    complete = read(provider, body, stream=stream)
    assert read(provider, *cut_at(body, places), stream=stream) == complete
    assert read(provider, *one_by_one(body), stream=stream) == complete
    # Nor does what was asked for: the bytes tell a stream from a whole reply, also behind white space.
    assert read(provider, b"\xef\xbb\xbf \n", body, stream=not stream) == complete


@pytest.mark.parametrize(("name", "sample"), [(name, one) for name, one in SAMPLES.items() if one.stream])
def test_a_decoder_knows_the_end_without_waiting_for_the_connection_to_close(name: str, sample: Sample) -> None:
    """A server may leave a stream open behind its end. Nothing that belongs to the reply is lost by not waiting."""
    if name in ("gemini array", "chat parts"):  # which have no end but that of the bytes
        return
    complete, _ = read(sample.provider, sample.body, stream=True)
    decoder = decoder_of(call_of(sample.provider, stream=True))
    events: list[ReplyEvent] = []
    for place, piece in enumerate(one_by_one(sample.body)):
        assert not decoder.done
        decoder.feed(piece, events)
        if decoder.done:
            assert place >= len(sample.body.rstrip()) - 1
            break
    decoder.finish(events)
    assert fold(events) == complete
    decoder.finish(events)
    assert fold(events) == complete


FILES = {"anthropic": "anthropic", "gemini": "gemini", "chat": "openrouter", "responses": "openai-responses"}


def _exchanges() -> list[object]:
    rows = [(provider, row) for file, provider in FILES.items() for row in exchanges(file) if row.status == 200]
    return [pytest.param(*row, id=f"{row[0]} {row[1].id}", marks=pytest.mark.recorded) for row in rows]


@pytest.mark.parametrize(("provider", "exchange"), _exchanges())
def test_pieces_of_a_recorded_reply_make_no_difference(provider: str, exchange: Exchange) -> None:
    body = exchange.body.encode()
    message, error = read(provider, body, stream=exchange.streamed)
    for pieces in (cut_at(body, range(0, len(body), 97)), [*one_by_one(body[:12_000]), body[12_000:]]):
        again, failure = read(provider, *pieces, stream=exchange.streamed)
        assert (again, type(failure)) == (message, type(error))


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.endswith("events")])
def test_text_is_emitted_as_soon_as_it_arrives(name: str) -> None:
    provider, _, body, _ = SAMPLES[name]
    decoder = decoder_of(call_of(provider, stream=True))
    complete, _ = read(provider, body, stream=True)
    seen: list[str] = []
    for frame in body.replace(b"\r\n", b"\n").strip().split(b"\n\n"):
        events: list[ReplyEvent] = []
        decoder.feed(frame + b"\n\n", events)
        seen.append("".join([event.text for event in events if isinstance(event, TextDelta)]))
    assert "".join(seen) == complete.text
    assert len([text for text in seen if text]) == {"anthropic": 3, "openai-responses": 1}.get(provider, 2)


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.endswith("events")])
def test_an_error_field_in_a_stream_keeps_its_text(name: str) -> None:
    """GPUStack writes `error:` where `data:` belongs."""
    provider, _, body, _ = SAMPLES[name]
    first = body.replace(b"\r\n", b"\n").partition(b"\n\n")[0]
    message, error = read(provider, first + b'\n\nerror: {"code": 500, "message": "worker lost"}\n\n', stream=True)
    assert message.interrupted
    assert error is not None
    assert (error.status, "worker lost" in str(error)) == (500, True)


# --- damaged ----------------------------------------------------------------------------------------------------------


def survive(provider: str, *pieces: bytes, stream: bool) -> None:
    """Read without another exception than ours; what is complete can be sent back."""
    message, error = read(provider, *pieces, stream=stream)
    if error is None:
        json.loads(encode(call_of(provider, Message.user("Hi"), message)).request.body)


@settings(max_examples=rounds(600), deadline=None)
@given(providers, st.binary(max_size=300), st.booleans())
@example("gemini", b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"\\ud800"}}]}}]}', False)
@example("gemini", b'{"candidates":[{"content":{"parts":[{"x":"\\ud800"}]},"finishReason":"STOP"}]}', False)
@example("bedrock", b'{"output":{"message":{"content":[{"x":"\\ud800"}]}},"stopReason":"end_turn"}', False)
@example("anthropic", b'{"content":[{"type":"x","x":"\\ud800"}],"stop_reason":"end_turn"}', False)
def test_any_bytes_give_a_reply_or_a_provider_error(provider: str, data: bytes, stream: bool) -> None:
    survive(provider, data, stream=stream)
    survive(provider, b"data: " + data + b"\n\n", stream=True)


_WORDS = (b"", b"{", b"}", b"[", b"]", b'"', b"\\", b",", b"null", b"1")
JUNK = [*_WORDS, b"\xff", b"\n\n", b"data: ", b"\\ud83d", b"1e999"]


@settings(max_examples=rounds(1000), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    samples,
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 40), st.sampled_from(JUNK)), min_size=1, max_size=6),
    st.lists(st.integers(0, 20_000), max_size=5),
    st.booleans(),
)
def test_damaged_replies_give_a_reply_or_a_provider_error(
    sample: Sample, damages: list[tuple[int, int, bytes]], places: list[int], stream: bool
) -> None:
    provider, body = sample.provider, sample.body
    for place, length, junk in damages:
        at = place % len(body)
        body = body[:at] + junk + body[at + length :] or b"{"
    survive(provider, body, stream=stream)
    assert read(provider, *cut_at(body, places), stream=stream)[0] == read(provider, body, stream=stream)[0]


@settings(deadline=None)
@given(st.lists(st.sampled_from([frame + b"\n\n" for frame in ANTHROPIC_EVENTS.strip().split(b"\n\n")]), max_size=30))
def test_anthropic_events_in_any_order(frames: list[bytes]) -> None:
    message, error = read("anthropic", b"".join(frames), stream=True)
    assert (error is None) == (message.stop_reason is StopReason.TOOL_CALLS)


@given(st.permutations(RESPONSES_EVENTS), st.lists(st.integers(0, 30), max_size=3))
def test_responses_events_in_any_order_and_twice(order: list[dict[str, Any]], twice: list[int]) -> None:
    complete = read("openai-responses", responses.sse(RESPONSES_EVENTS), stream=True)[0]
    message, error = read("openai-responses", responses.sse(order), stream=True)
    if error is None:  # its id is lost where an item came before all else, as in a stream taken up in its middle
        assert (message.blocks, message.usage) == (complete.blocks, complete.usage)
    events = list(RESPONSES_EVENTS)
    for index in sorted({index % len(events) for index in twice}, reverse=True):
        events.insert(index, events[index])
    message, error = read("openai-responses", responses.sse(events), stream=True)
    assert error is not None or message == complete


KEYS = (
    "text thought thoughtSignature functionCall name args id inlineData mimeType data fileData fileUri partialArgs "
    "jsonPath stringValue willContinue new type thinking signature input citations tool_use server_tool_use url index "
    "arguments function custom message code content image_url usage transcript refusal summary output_text reasoning"
)
OF_DELTA = (
    "content reasoning reasoning_content reasoning_details refusal tool_calls function_call audio images annotations "
    "role new"
)
OF_EVENT = "delta output_index content_index item_id item part response error"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from(KEYS.split()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=3),
    max_leaves=8,
)
DELTAS = st.dictionaries(st.sampled_from(OF_DELTA.split()), VALUES, max_size=4)
TOPS = st.dictionaries(st.sampled_from(["usage", "error", "x_groq", "id", "model", "new", "choices"]), VALUES)
KINDS = st.sampled_from([one["type"] for one in RESPONSES_EVENTS] + ["error", "response.failed"])


@settings(max_examples=rounds(600, 10), deadline=None)
@given(st.lists(VALUES, max_size=3), VALUES)
@example([{"thought": None, "text": "0"}, {"new": [1]}], None)
def test_blocks_and_parts_of_any_shape(parts: list[object], beside: object) -> None:
    reply = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP", "groundingMetadata": beside}]}
    survive("gemini", json.dumps(reply).encode(), stream=False)
    survive("gemini", gemini.as_events(reply, reply), stream=True)
    message = {"content": parts, "stop_reason": "end_turn", "usage": beside}
    survive("anthropic", json.dumps(message).encode(), stream=False)
    survive("bedrock", bedrock.whole(*parts, trace=beside), stream=False)
    grown = [bedrock.frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": part}) for part in parts]
    survive("bedrock", bedrock.STARTED + b"".join(grown) + bedrock.stop(0) + bedrock.ended(), stream=True)


@settings(max_examples=rounds(600, 10), deadline=None)
@given(st.lists(st.tuples(DELTAS, TOPS), max_size=4), st.sampled_from(["stop", "length", "tool_calls"]))
def test_chunks_of_any_shape(parts: list[tuple[dict[str, Any], dict[str, Any]]], finish: str) -> None:
    body = chat.stream(*[chat.chunk(delta, **top) for delta, top in parts], chat.chunk({}, finish))
    first, error = read("openrouter", body, stream=True)
    again, failure = read("openrouter", *cut_at(body, range(0, len(body), 7)), stream=True)
    assert (first, type(error)) == (again, type(failure))
    for delta, top in parts[:1]:
        survive("openrouter", chat.whole(delta, finish, **top), stream=False)


@given(st.lists(DELTAS, max_size=4))
def test_plain_chunks_are_read_as_those_with_unknown_members(deltas: list[dict[str, Any]]) -> None:
    """A member that nobody knows makes a chunk be read member by member; its value says nothing."""
    first, last = chat.chunk({"content": "a"}), chat.chunk({}, "stop")
    chunks = [first, *map(chat.chunk, deltas), chat.chunk({"content": "b"}), last]
    short, error = read("openrouter", *map(chat.event, chunks), stream=True)
    long, failure = read("openrouter", *[chat.event({**one, "unknown": None}) for one in chunks], stream=True)
    assert (short, type(error)) == (long, type(failure))


@given(st.lists(st.tuples(KINDS, st.dictionaries(st.sampled_from(OF_EVENT.split()), VALUES)), max_size=6))
def test_events_with_any_content(made: list[tuple[str, dict[str, Any]]]) -> None:
    read("openai-responses", responses.sse([{**fields, "type": kind} for kind, fields in made]), stream=True)


# --- a stream that is cut behind the answer ---------------------------------------------------------------------------

CUT_BEHIND = chat.stream(chat.chunk({"content": "a"}), chat.chunk({}, "stop"), done=False)


def test_an_answer_that_never_began_is_missed() -> None:
    two = calls.call_of("openai-compatible:m", stream=True, choices=2)
    for body in (CUT_BEHIND, CUT_BEHIND + chat.event(chat.chunk(choices=[], usage=chat.USAGE))):
        message, error = attempt(decoder_of(two), body)
        assert isinstance(error, ProtocolError)
        assert (message.text, message.interrupted) == ("a", True)
        # A server that says that this is the end has given as many as it gives.
        assert attempt(decoder_of(two), body + chat.DONE)[1] is None
    begun = chat.chunk(choices=[{"index": 1, "delta": {"content": "b"}}])
    assert attempt(decoder_of(two), chat.event(begun) + CUT_BEHIND)[1] is None  # it is there as far as it came


@pytest.mark.parametrize("provider", ["openai", "azure", "deepseek", "groq", "mistral", "zai"])
def test_at_a_service_that_always_counts_an_end_without_a_count_is_none(provider: str) -> None:
    call = calls.call_of(f"{provider}:m", stream=True)
    message, error = attempt(decoder_of(call), CUT_BEHIND)
    assert isinstance(error, ProtocolError)
    assert (message.text, message.interrupted) == ("a", True)
    for rest in (chat.DONE, chat.event(chat.chunk(choices=[], usage=chat.USAGE))):
        message, error = attempt(decoder_of(call), CUT_BEHIND + rest)
        assert (message.text, message.stop_reason, error) == ("a", StopReason.END, None)


def test_a_stream_of_bedrock_ends_with_its_count() -> None:
    body = bedrock.STARTED + bedrock.delta(0, text="a") + bedrock.stop(0)
    body += bedrock.frame("messageStop", {"stopReason": "end_turn"})
    message, error = read("bedrock", body, stream=True)
    assert isinstance(error, ProtocolError)
    assert (message.text, message.interrupted) == ("a", True)


def test_a_stream_of_gemini_is_read_until_every_candidate_is_complete() -> None:
    """The engine stops reading when the decoder is done."""

    def candidate(index: int, text: str, **more: Any) -> dict[str, Any]:
        return {"index": index, "content": {"parts": [{"text": text}]}, **more}

    def took(*chunks: Any, **how: Any) -> list[bool]:
        decoder = decoder_of(calls.call_of("gemini:gemini-3-flash-preview", stream=True, **how))
        found: list[bool] = []
        for one in chunks:
            decoder.feed(gemini.as_events(one), [])
            found.append(decoder.done)
        return found

    first, both = gemini.chunk("a", usage=COUNTS), {**gemini.chunk(), "candidates": [candidate(0, "a")]}
    last = gemini.chunk("b", finish="STOP", usage=COUNTS)
    assert took(first, last) == [False, True]
    # A count that came earlier is not the last one.
    uncounted = gemini.chunk("b", finish="STOP")
    assert took(first, uncounted, {"usageMetadata": COUNTS}) == [False, False, True]
    begun = {**both, "candidates": [candidate(0, "a"), candidate(1, "x")], "usageMetadata": COUNTS}
    ended = {**both, "candidates": [candidate(1, "y", finishReason="STOP")]}
    assert took(begun, last, ended) == [False, False, True]
    assert took(first, last, choices=2) == [False, False], "the other has not begun"
