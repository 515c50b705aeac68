"""Replies by hand: what the recordings do not hold, and what servers that imitate the API do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.conversation import (
    Message,
    Opaque,
    StopReason,
    Text,
    Usage,
    UsageReported,
)
from dragoman.errors import OverloadedError, ProtocolError, ProviderError, RateLimitError
from tests.providers.anthropic.calls import block, decoder_of, event, started, stopped, text_block, whole
from tests.providers.feeding import attempt, events_of, fields_in, message_of, one_by_one

TOOL = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}


def streamed(*pieces: bytes) -> Message:
    return message_of(decoder_of(), pieces)


def at_once(body: bytes) -> Message:
    return message_of(decoder_of(stream=False), [body])


# --- the same, whole and streamed ---


def arguments(*pieces: str) -> list[dict[str, Any]]:
    return [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


def delta(kind: str, **members: Any) -> dict[str, Any]:
    return {"type": f"{kind}_delta", **members}


THOUGHT = {"type": "thinking", "thinking": "", "signature": ""}
SIGNED = delta("signature", signature="c2ln")
CITED = [{"type": "page_location", "n": 1}, {"type": "page_location", "n": 2}]
CITING = [delta("citations", citation=one) for one in CITED]
BY_CODE = {**TOOL, "caller": {"type": "code_execution_20260120", "tool_id": "s"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
REDACTED = {"type": "redacted_thinking", "data": "ZW5j"}
HOLOGRAM = {"type": "hologram", "shape": {"n": 1}, "caption": "a ", "text": "of"}

# A block as a stream brings it, and as it stands in a whole reply.
BOTH: dict[str, tuple[bytes, dict[str, Any]]] = {
    "text": (text_block(0, "Hel", "lo"), {"type": "text", "text": "Hello"}),
    "no text": (text_block(0), {"type": "text", "text": ""}),
    "thinking": (
        block(0, THOUGHT, delta("thinking", thinking="Hm"), delta("thinking", thinking="m", tokens=5), SIGNED),
        {**THOUGHT, "thinking": "Hmm", "signature": "c2ln"},
    ),
    "thinking without its text": (block(0, THOUGHT, SIGNED), {**THOUGHT, "signature": "c2ln"}),
    "redacted thinking": (block(0, REDACTED), REDACTED),
    "a call": (block(0, TOOL, *arguments("", '{"a":', "1}")), {**TOOL, "input": {"a": 1}}),
    "a call without arguments": (block(0, TOOL, *arguments("")), TOOL),
    "a call that holds its input at once": (block(0, {**TOOL, "input": {"a": 1}}), {**TOOL, "input": {"a": 1}}),
    "a call by code": (block(0, {**BY_CODE, "toolset_name": None}), BY_CODE),
    "citations": (
        block(0, {"type": "text", "text": "", "citations": []}, delta("text", text="as said"), *CITING),
        {"type": "text", "text": "as said", "citations": CITED},
    ),
    "no citations after all": (
        block(0, {"type": "text", "text": "", "citations": []}, delta("text", text="x")),
        {"type": "text", "text": "x", "citations": None},
    ),
    "a server tool": (block(0, SEARCH, *arguments('{"query": "x"}')), {**SEARCH, "input": {"query": "x"}}),
    "a server tool's result": (block(0, FOUND), FOUND),
    "compaction": (
        block(0, {"type": "compaction", "content": None}, delta("compaction", content="So", encrypted_content="e")),
        {"type": "compaction", "content": "So", "encrypted_content": "e"},
    ),
    "a block of the future": (
        block(0, HOLOGRAM, delta("caption", caption="b"), delta("text", text="f"), delta("shape", shape={"n": 2})),
        {"type": "hologram", "shape": {"n": 2}, "caption": "a b", "text": "off"},
    ),
    "a new member of a known block": (
        block(0, {"type": "text", "text": "", "tone": "dry "}, delta("text", text="x"), delta("tone", tone="wit")),
        {"type": "text", "text": "x", "tone": "dry wit"},
    ),
}


@pytest.mark.parametrize("case", BOTH)
def test_streamed_and_whole_replies_are_the_same_message(case: str) -> None:
    pieces, content = BOTH[case]
    stream = streamed(started(), pieces, stopped())
    body = at_once(whole(content))
    if isinstance(stream.blocks[0], Opaque):  # raw JSON: equal values, whatever the spaces
        assert [part.value for part in stream.blocks] == [part.value for part in body.blocks]
    else:
        assert stream.blocks == body.blocks


# --- why it stopped, and what it cost ---


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("stop_sequence", StopReason.STOP_SEQUENCE),
        ("pause_turn", StopReason.PAUSED),
        ("refusal", StopReason.REFUSAL),
        ("model_context_window_exceeded", StopReason.CONTEXT_FULL),
        ("compaction", StopReason.PAUSED),
        ("something_new", StopReason.OTHER),
    ],
)
def test_stop_reasons(raw: str, reason: StopReason) -> None:
    for message in (streamed(started(), text_block(0, "x"), stopped(raw)), at_once(whole(stop_reason=raw))):
        assert (message.stop_reason, message.raw_stop_reason) == (reason, raw)


def test_members_of_the_reply_are_kept() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": None}
    members: dict[str, Any] = {"stop_details": details, "container": {"id": "c", "expires_at": "2026-01-01T00:00:00Z"}}
    message = streamed(started(new=[]), text_block(0, "I"), stopped("refusal", **members))
    assert fields_in(message.native) == {"new": [], **members, "usage": {"input_tokens": 10, "output_tokens": 7}}
    assert fields_in(at_once(whole(new=[], **members)).native) == fields_in(message.native)
    assert at_once(whole(stop_reason="refusal")).blocks == ()


def test_later_counts_replace_earlier_ones_and_may_be_incomplete() -> None:
    start = started(usage={"input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 1})
    late = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 9, "input_tokens": None})
    events = events_of(decoder_of(), [start, late, event("message_stop")])
    reports = [one.usage for one in events if isinstance(one, UsageReported)]
    assert reports == [Usage(input=12, output=1, cache_read=7), Usage(input=12, output=9, cache_read=7)]
    assert at_once(whole(usage=None)).usage is None
    assert at_once(whole(usage={"output_tokens": 3})).usage == Usage(output=3)


# --- streams of all kinds ---


def test_pings_and_comments_are_ignored_and_unknown_events_are_kept() -> None:
    news = event("weather", degrees=3)
    message = streamed(b": hello\n\n", started(), event("ping"), news, text_block(0, "x"), news, stopped())
    assert message.text == "x"
    assert fields_in(message.native)["events"] == [{"type": "weather", "degrees": 3}] * 2


def test_the_number_of_unknown_events_that_are_kept_is_limited() -> None:
    message = streamed(started(), *[event("weather")] * 300, text_block(0, "x"), stopped())
    assert len(fields_in(message.native)["events"]) == 100


def test_blocks_may_be_streamed_in_parallel() -> None:
    begin = [event("content_block_start", index=index, content_block={"type": "text", "text": ""}) for index in (0, 1)]
    grow = [event("content_block_delta", index=index, delta=delta("text", text="ab"[index])) for index in (1, 0)]
    end = [event("content_block_stop", index=index) for index in (1, 0)]
    message = streamed(started(), *begin, *grow, *end, stopped())
    assert [part.text for part in message.blocks if isinstance(part, Text)] == ["a", "b"]


def test_events_are_identified_by_type_or_else_by_name() -> None:
    raw = b"".join([started(), BOTH["thinking"][0], text_block(1, "Hel", "lo"), stopped()])
    bare = b"\n\n".join([frame.split(b"\n")[1] for frame in raw.strip().split(b"\n\n")]) + b"\n\n"
    assert bare.startswith(b"data: ")
    assert streamed(bare) == streamed(raw)
    assert streamed(raw.replace(b"event: content_block_delta", b"event: message")) == streamed(raw)
    assert streamed(raw.replace(b'"type":"message_stop"', b'"no":1')) == streamed(raw)


def test_missing_ids_are_generated() -> None:
    nameless = {"type": "tool_use", "name": "add", "input": {}}
    message = streamed(started(), block(0, nameless), block(1, nameless), stopped("tool_use"))
    assert [call.id for call in message.tool_calls] == ["call_msg_1_0", "call_msg_1_1"]


def test_incomplete_input_is_kept_as_text() -> None:
    cut = arguments('{"query": "x')
    message = streamed(started(), block(0, TOOL, *cut), block(1, SEARCH, *cut), stopped("max_tokens"))
    assert message.tool_calls[0].arguments == '{"query": "x'
    assert isinstance(message.blocks[1], Opaque)
    assert message.blocks[1].value == {**SEARCH, "input": {"INVALID_JSON": '{"query": "x'}}


def test_a_start_event_may_have_content() -> None:
    message = streamed(started(content=[{"type": "text", "text": "so far"}]), text_block(1, "more"), stopped())
    assert [part.text for part in message.blocks if isinstance(part, Text)] == ["so far", "more"]


def test_names_are_mapped_back() -> None:
    message = message_of(decoder_of(names={"wire": "own"}), [whole({**TOOL, "name": "wire"})])
    assert message.tool_calls[0].name == "own"


def test_a_fallback_model_is_the_model_of_the_reply() -> None:
    fallback = {"type": "fallback", "from": {"model": "claude-x"}, "to": {"model": "claude-y"}, "trigger": {}}
    pieces = [started(), block(0, fallback), text_block(1, "Hi"), stopped()]
    assert message_of(decoder_of(), pieces).model == "claude-y"
    assert message_of(decoder_of(), [whole(fallback, model="claude-y")]).model == "claude-y"


# --- replies that are none --------------------------------------------------------------------------------------------

WHOLE = whole({"type": "text", "text": "Hello"}, {**TOOL, "input": {"a": 1}})


def read(*pieces: bytes, stream: bool = True) -> tuple[Message, ProviderError | None]:
    return attempt(decoder_of(stream=stream), *pieces)


A = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
D = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "x"})
Z = event("content_block_stop", index=0)
ARGUMENTS = event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": "{}"})
TEXT = {"type": "text_delta", "text": "x"}


def begin(**members: Any) -> bytes:
    return event("content_block_start", **members)


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([b""], id="nothing"),
        pytest.param([b"\n\n: hello\n\n"], id="comments only"),
        pytest.param([started()], id="only the start"),
        pytest.param([started(), A, D, Z], id="no end"),
        pytest.param([started(), A, D, Z, event("message_stop")], id="no reason"),
        pytest.param([started(), A, D, Z, event("message_stop"), stopped()], id="the end before the reason"),
        pytest.param([started(), A, D, stopped()], id="a block stays open"),
        pytest.param([started(), A, D, stopped(), Z], id="the end before a block's"),
        pytest.param([started(), D, A, Z, stopped()], id="growth before the beginning"),
        pytest.param([started(), A, Z, D, stopped()], id="growth of a block that ended"),
        pytest.param([started(), A, A, D, Z, stopped()], id="a block began twice"),
        pytest.param([started(), A, D, Z, Z, stopped()], id="a block ended twice"),
        pytest.param([started(), A, ARGUMENTS, Z, stopped()], id="growth of another kind"),
        pytest.param([started(), block(0, TOOL, TEXT), stopped()], id="text of a call"),
        pytest.param([started(), block(0, {"type": "thinking"}, TEXT), stopped()], id="text of a thought"),
        pytest.param([started(), started(), stopped()], id="two starts"),
        pytest.param([A, D, Z, stopped()], id="no start"),
        pytest.param([stopped()], id="only the end"),
        pytest.param([started(), b"event: content_block_delta\ndata: {oops\n\n"], id="not JSON"),
        pytest.param([started(), b"data: [1]\n\n"], id="not an object"),
        pytest.param([started(), b"data: \xff\xfe\n\n"], id="not UTF-8"),
        pytest.param([started(), begin(index=0)], id="no block"),
        pytest.param([started(), begin(index=0, content_block={})], id="no type"),
        pytest.param([started(), begin(index=None, content_block={"type": "x"})], id="no index"),
        pytest.param([started(), begin(index=0, content_block={"type": "tool_use"})], id="no name"),
        pytest.param([started(), begin(index="0", content_block={"type": "text"})], id="wrong type"),
        pytest.param([event("message_start")], id="an empty start"),
        pytest.param([started(), b'data: {"type": "ping", "x": ' + b"[" * 5_000 + b"\n\n"], id="too deep"),
    ],
)
def test_a_malformed_stream_is_refused(pieces: list[bytes]) -> None:
    assert type(read(*pieces)[1]) is ProtocolError
    assert type(read(*one_by_one(b"".join(pieces)))[1]) is ProtocolError


def test_events_after_the_end_are_ignored() -> None:
    behind = [stopped(), event("ping"), event("error", error={}), D, begin(index=1, content_block={})]
    assert message_of(decoder_of(), [started(), A, D, Z, stopped(), *behind]).text == "x"


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b"null", b"<html>Bad Gateway</html>", b"{}", b'{"content": [1]}'),
        whole(stop_reason=None),
        *[WHOLE.replace(b'{"a":1}', arguments) for arguments in (b"[1]", b'"{}"', b'{"a":NaN}', b"[" * 100_000)],
        *[b'{"content":[],"stop_reason":"end_turn","%b":"\xab"}' % name for name in (b"stop_reason", b"id", b"new")],
    ],
)
def test_a_malformed_body_is_refused(body: bytes) -> None:
    _, error = read(body, stream=False)
    assert type(error) is ProtocolError
    assert error.provider == "anthropic"


# --- errors inside replies ---


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("overloaded_error", OverloadedError),
        ("rate_limit_error", RateLimitError),
        ("api_error", ProviderError),
        ("new_error", ProviderError),
    ],
)
def test_an_error_in_the_stream_is_typed_and_keeps_what_came_before(code: str, kind: type[ProviderError]) -> None:
    said = {"type": code, "message": "No."}
    message, error = read(started(), text_block(0, "so far"), event("error", error=said, request_id="req_1"))
    assert type(error) is kind
    assert (error.code, error.request_id, error.status) == (code, "req_1", None)
    assert "No." in str(error)
    assert (message.text, message.interrupted) == ("so far", True)


def test_an_error_under_a_good_status() -> None:
    body = json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}).encode()
    for stream in (False, True):
        assert type(read(body, stream=stream)[1]) is OverloadedError
