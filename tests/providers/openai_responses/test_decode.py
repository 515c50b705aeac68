"""Replies as OpenAI and others send them, whole and streamed: both become the same message."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from msgspec import Raw

from dragoman.conversation import (
    Media,
    Opaque,
    ReplyEvent,
    ReplyStarted,
    ServerToolUse,
    StopReason,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from dragoman.errors import (
    ContentFilteredError,
    ContextTooLongError,
    OverloadedError,
    ProtocolError,
    ProviderError,
    RateLimitError,
)
from tests.providers.calls import decoder_of
from tests.providers.feeding import fields_in, message_of
from tests.providers.openai_responses.calls import (
    READER,
    call_item,
    created,
    ended,
    event,
    make_call,
    message_item,
    reasoning_item,
    response,
    sse,
    stream,
    stream_events,
    streamed,
    streamed_item,
    whole,
)


def said(text: str, *annotations: object) -> dict[str, Any]:
    return {"type": "output_text", "annotations": list(annotations), "text": text}


def thought(text: str) -> dict[str, str]:
    return {"type": "reasoning_text", "text": text}


ITEMS: dict[str, list[dict[str, Any]]] = {
    "text": [message_item("Hello")],
    "phases": [message_item("I look.", phase="commentary"), message_item("Done.", id="msg_2", phase="final_answer")],
    "two parts": [
        message_item(content=[said("One. "), said("Two.", {"type": "file_path", "file_id": "f", "index": 1})])
    ],
    "refusal": [message_item(content=[{"type": "refusal", "refusal": "I won't."}])],
    "empty message": [message_item(content=[])],
    "unknown part": [message_item(content=[{"type": "output_smell", "smell": "roses"}])],
    "text and unknown part": [message_item(content=[said("Smell:"), {"type": "output_smell", "smell": "roses"}])],
    "reasoning": [reasoning_item(), message_item()],
    "summaries": [reasoning_item("First.", "Then."), message_item()],
    "open reasoning": [
        reasoning_item(content=[thought("hm"), thought("aha")], status="completed", encrypted_content=None),
        message_item(),
    ],
    "call": [call_item()],
    "call without arguments": [call_item(arguments="{}")],
    "parallel calls": [call_item(), call_item("sub", id="fc_2", call_id="call_2", namespace="maths")],
    "reasoning, text and call": [reasoning_item("Hm."), message_item(phase="commentary"), call_item()],
    "server tools": [
        {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"id": "ci_1", "type": "code_interpreter_call", "status": "completed", "code": "1", "outputs": None},
        message_item(),
    ],
    "unknown item": [{"id": "x_1", "type": "telepathy_call", "thought": [1, 2]}],
    "custom tool": [{"id": "ctc_1", "type": "custom_tool_call", "call_id": "c", "name": "sh", "input": "ls"}],
}


@pytest.mark.parametrize("name", ITEMS)
def test_streamed_and_whole_replies_are_the_same_message(name: str) -> None:
    items = ITEMS[name]
    message = whole(response(*items))
    assert stream(streamed(*items)) == message
    # The service may also send nothing but finished items, or nothing but the end.
    done = [event("response.output_item.done", output_index=i, item=item) for i, item in enumerate(items)]
    assert stream([created(), *done, ended(*items)]) == message
    assert stream([created(), ended(*items)]) == message


def test_a_plain_reply() -> None:
    message = whole(response(message_item("Hello")))
    assert (message.role, message.provider, message.model) == ("assistant", "openai-responses", "gpt-5.6-2026")
    assert message.id == "resp_1"
    assert message.usage == Usage(input=10, output=5, cache_read=4, reasoning=2, total=15)
    assert message.stop_reason is StopReason.END
    assert message.raw_stop_reason == "completed"
    assert message.native is None
    (text,) = message.blocks
    assert isinstance(text, Text)
    assert text.text == "Hello"
    assert fields_in(text.native) == {
        "item": {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant"},
        "annotations": [],
        "logprobs": [],
    }


def test_what_is_kept_of_a_response() -> None:
    body = response(
        message_item(),
        service_tier="flex",
        moderation={"input": {}},
        instructions="Be brief.",
        metadata={},
        tool_usage=None,
        usage={"input_tokens": 1, "output_tokens": 2, "cost": 0.1, "input_tokens_details": {"cache_write_tokens": 1}},
    )
    message = whole(body)
    assert fields_in(message.native) == {
        "service_tier": "flex",
        "moderation": {"input": {}},
        "usage": body["usage"],
    }
    assert message.usage == Usage(input=1, output=2, cache_write=1, charged=0.1)
    assert whole(response(message_item(), usage=None)).usage is None


def test_refusals_are_marked_texts() -> None:
    message = whole(response(*ITEMS["refusal"]))
    (text,) = message.blocks
    assert isinstance(text, Text)
    assert text.text == "I won't."
    assert fields_in(text.native)["type"] == "refusal"
    assert message.stop_reason is StopReason.REFUSAL


def test_pieces_are_streamed() -> None:
    item = call_item()
    events = stream_events([created(), *streamed_item(0, item, ['{"a"', ":1}"]), ended(item)])
    pieces = [one for one in events if isinstance(one, ToolCallDelta)]
    assert pieces == [ToolCallDelta(0, "call_1", '{"a"'), ToolCallDelta(0, "call_1", ":1}")]
    events = stream_events(streamed(reasoning_item("First.", "Then."), message_item()))
    assert [one.text for one in events if isinstance(one, ThinkingDelta)] == ["First.", "\n\n", "Then."]


def test_names_of_tools_are_mapped_back() -> None:
    data = json.dumps(response(call_item())).encode()
    decoder = decoder_of(make_call(), {"add": "maths.add"})
    assert message_of(decoder, [data]).tool_calls[0].name == "maths.add"


def test_pictures_become_media() -> None:
    data = b"\x89PNG"
    item = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "output_format": "webp"}
    item |= {"result": base64.b64encode(data).decode(), "revised_prompt": "a cat"}
    (picture,) = whole(response(item)).blocks
    assert isinstance(picture, Media)
    assert (picture.kind, picture.mime_type, picture.data) == ("image", "image/webp", data)
    assert fields_in(picture.native)["item"] == {k: v for k, v in item.items() if k != "result"}


@pytest.mark.parametrize("result", [None, "", "not base64!"])
def test_items_without_a_picture_stay_opaque(result: str | None) -> None:
    item = {"id": "ig_1", "type": "image_generation_call", "status": "failed", "result": result}
    (block,) = whole(response(item)).blocks
    used = ServerToolUse("image_generation", "both", "ig_1", is_error=True)
    assert block == Opaque(READER, Raw(json.dumps(item).encode()), used)


@pytest.mark.parametrize(
    ("details", "stop", "raw"),
    [
        ({"reason": "max_output_tokens"}, StopReason.MAX_TOKENS, "max_output_tokens"),
        ({"reason": "content_filter"}, StopReason.CONTENT_FILTER, "content_filter"),
        ({"reason": "steered"}, StopReason.OTHER, "steered"),
        (None, StopReason.OTHER, "incomplete"),
    ],
)
def test_incomplete_replies(details: dict[str, str] | None, stop: StopReason, raw: str) -> None:
    body = response(message_item("Half"), status="incomplete", incomplete_details=details)
    events = [created(), *streamed_item(0, message_item("Half")), event("response.incomplete", response=body)]
    for message in (whole(body), stream(events)):
        assert message.text == "Half"
        assert (message.stop_reason, message.raw_stop_reason) == (stop, raw)


def test_a_call_that_was_cut_off_is_partial() -> None:
    item = call_item(arguments='{"a', status="incomplete")
    details = {"reason": "max_output_tokens"}
    expected = ToolCall("call_1", "add", '{"a', partial=True)
    message = whole(response(item, status="incomplete", incomplete_details=details))
    assert message.blocks == (expected,)
    assert message.stop_reason is StopReason.MAX_TOKENS
    events = [created(), *streamed_item(0, item)[:-1]]
    assert stream([*events, ended(item, kind="incomplete", incomplete_details=details)]) == message
    # Even where the item is never heard of again.
    assert stream([*events, ended(kind="incomplete", incomplete_details=details)]) == message


@pytest.mark.parametrize(
    ("status", "stop"),
    [
        ("queued", StopReason.OTHER),
        ("in_progress", StopReason.OTHER),
        ("cancelled", StopReason.INTERRUPTED),
        ("complete", StopReason.END),
    ],
)
def test_other_statuses(status: str, stop: StopReason) -> None:
    message = whole(response(status=status, usage=None))
    assert (message.stop_reason, message.raw_stop_reason) == (stop, status)


# --- streams that are not as the protocol says ------------------------------------------------------------------------

THREE = [reasoning_item("Hm."), message_item("Hello"), call_item()]
EXPECTED = whole(response(*THREE))


def without(events: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in one.items() if key not in names} for one in events]


def with_turning_ids(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**one, "item_id": f"turning_{n}"} if "item_id" in one else one for n, one in enumerate(events)]


def events_without_types() -> bytes:
    return "".join(f"event: {one.pop('type')}\ndata: {json.dumps(one)}\n\n" for one in streamed(*THREE)).encode()


def data_alone() -> bytes:
    lines = [f"data: {json.dumps(one)}\n\n" for one in streamed(*THREE)]
    return b": OPENROUTER PROCESSING\n\n" + "".join(lines).encode() + b"data: [DONE]\n\n"


SILENT = [
    event("response.output_text.delta", output_index=1, content_index=0, item_id="msg_1", delta=None),
    event("response.reasoning_summary_text.delta", output_index=0, summary_index=0, delta=""),
    event("keepalive"),
]
LATE = [*streamed_item(9, message_item("late")), event("error", code="x", message="late"), ended()]
ODD_STREAMS: dict[str, list[dict[str, Any]] | bytes] = {
    "types only in the event line": events_without_types(),
    "types only in the data": data_alone(),
    "carriage returns": sse(streamed(*THREE)).replace(b"\n", b"\r\n"),
    "no indices": without(streamed(*THREE), "output_index", "content_index", "summary_index"),
    "no indices, no ids": without(streamed(*THREE), "output_index", "content_index", "item_id"),
    "one index for all": [{**one, "output_index": 0} if "output_index" in one else one for one in streamed(*THREE)],
    "another id in every event": with_turning_ids(streamed(*THREE)),
    "an end that repeats nothing": [*streamed(*THREE)[:-1], ended()],
    "an end without a list": [*streamed(*THREE)[:-1], ended(output=None)],
    "no deltas": [one for one in streamed(*THREE) if not one["type"].endswith(".delta")],
    "events without content": [*streamed(*THREE)[:2], *SILENT, *streamed(*THREE)[2:]],
    "queued first": [event("response.queued", response=response(status="queued", usage=None)), *streamed(*THREE)[1:]],
    "more behind the end": [*streamed(*THREE), *LATE],
    "nonsense behind the end": sse(streamed(*THREE)) + b"data: nonsense\n\n",
    "a plain object": b"\n " + json.dumps(response(*THREE)).encode(),
}


@pytest.mark.parametrize("name", ODD_STREAMS)
def test_odd_streams(name: str) -> None:
    for asked in (True, False):  # a server may stream unasked, or not although asked
        assert stream(ODD_STREAMS[name], make_call(stream=asked)) == EXPECTED


def test_items_that_overlap() -> None:
    first, second = streamed_item(0, THREE[0]), streamed_item(1, THREE[1])
    events = [created(), *first[:-1], *second, first[-1], ended(*THREE[:2])]
    assert stream(events) == whole(response(*THREE[:2]))
    first, second = streamed_item(0, THREE[1]), streamed_item(1, THREE[2])
    events = [created(), first[0], second[0], *first[1:], *second[1:], ended(*THREE[1:])]
    assert stream(events) == whole(response(*THREE[1:]))


def test_deltas_without_added_items_and_an_end_with_the_last_token_only() -> None:
    events = [one for one in streamed(*THREE[:2]) if not one["type"].endswith(".added")]
    assert stream(events) == whole(response(*THREE[:2]))
    short = [*streamed(message_item("Hello"))[:-1], ended(message_item("lo"))]
    assert stream(short) == whole(response(message_item("Hello")))


def test_items_that_are_never_done_are_read_from_the_final_list() -> None:
    tools = {"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "s", "tools": []}
    full = {**tools, "tools": [{"name": "t", "input_schema": {}}]}
    added = event("response.output_item.added", output_index=0, item=tools)
    answer = streamed_item(1, message_item())
    message = stream([created(), added, *answer, ended(full, message_item())])
    assert message == whole(response(full, message_item()))


def test_unfinished_items_are_what_was_streamed() -> None:
    events = [created()]
    for index, item in enumerate(THREE):
        events += streamed_item(index, item)[:-1]
    tool = event("response.output_item.added", output_index=3, item={"type": "new_tool", "id": "n"})
    message = stream([*events, tool, ended()])
    assert (message.thinking, message.text) == ("Hm.", "Hello")
    assert [(call.name, call.arguments, call.partial) for call in message.tool_calls] == [("add", '{"a":1}', False)]
    thinking, last = message.blocks[0], message.blocks[-1]
    # The encrypted content of the beginning is not all of it, so it is not kept.
    assert isinstance(thinking, Thinking)
    assert thinking.encrypted is None
    assert isinstance(last, Opaque)


def test_a_complete_reply_with_an_incomplete_call_is_refused() -> None:
    events = [created(), *streamed_item(0, call_item(), ['{"a'])[:2], ended()]
    with pytest.raises(ProtocolError):
        stream(events)


def test_finished_items_may_be_stripped() -> None:
    item = message_item("Hello")
    assert stream([created(), *streamed_item(0, item, ["Hello", "\n"]), ended(item)]).text == "Hello\n"
    (call,) = stream([created(), *streamed_item(0, call_item(), ['{"a": 1}']), ended(call_item())]).tool_calls
    assert call.arguments == '{"a": 1}'


def test_a_call_that_is_named_when_it_is_done() -> None:
    item = call_item()
    events = streamed_item(0, item)
    events[0]["item"].update(name="", call_id=None)
    message = stream([created(), *events, ended(item)])
    assert message == whole(response(item))
    started = [one for one in stream_events([created(), *events, ended(item)]) if isinstance(one, ToolCallStarted)]
    assert [(one.id, one.name) for one in started] == [("call_1", "add")]


def test_calls_without_ids_and_with_an_object_for_arguments() -> None:
    one = {"type": "function_call", "name": "add", "arguments": "{}"}
    message = whole(response({**one, "id": "fc_7"}, one, {**one, "call_id": ""}))
    assert [call.id for call in message.tool_calls] == ["fc_7", "call_resp_1_1", "call_resp_1_2"]
    (call,) = whole(response({**call_item(), "arguments": {"a": 1}})).tool_calls
    assert call.parsed == {"a": 1}


def test_call_ids_that_are_unique_in_a_reply_only() -> None:
    call = make_call("bedrock-mantle:openai.gpt-5.6-luna", stream=True)
    (made,) = stream(streamed(call_item(call_id="call_0")), call).tool_calls
    assert made.id == "resp_1:call_0"


def test_a_stream_without_its_first_event() -> None:
    assert stream_events(streamed(*THREE)[1:])[0] == ReplyStarted("openai-responses")


def test_thoughts_and_summaries_together() -> None:
    content = [{"type": "reasoning_text", "text": "long"}]
    item = reasoning_item("short", content=content)
    events = streamed_item(0, item)
    late = event("response.reasoning_text.delta", output_index=0, content_index=0, delta="long")
    message = stream([created(), *events[:-1], late, events[-1], ended(item)])
    assert message.thinking == "short"
    assert whole(response(item)).thinking == "long"
    early = stream([created(), events[0], late, *events[1:], ended(item)])
    assert early == whole(response(item))


def test_unknown_events_are_kept() -> None:
    new = event("response.mood.changed", mood="happy", delta={"by": 1})
    events = streamed(*THREE)
    message = stream([*events[:3], new, *events[3:]])
    assert message.blocks == EXPECTED.blocks
    assert message.native is not None
    assert json.loads(bytes(message.native.fields["events"])) == [new]
    many = stream([*events[:3], *[new] * 200, *events[3:]])
    assert many.blocks == EXPECTED.blocks
    assert many.native is not None
    assert json.loads(bytes(many.native.fields["events"])) == [new] * 100


def test_a_server_tool_with_an_odd_status() -> None:
    (block,) = whole(response({"type": "web_search_call", "id": "w", "status": {"new": 1}})).blocks
    assert isinstance(block, Opaque)


def test_a_failed_server_tool_does_not_fail_the_reply() -> None:
    failed = event("response.mcp_list_tools.failed", output_index=0, item_id="m", error={"message": "away"})
    unknown = event("response.new_tool.failed", error={"message": "away"})
    events = streamed(*THREE)
    assert stream([*events[:3], failed, unknown, *events[3:]]).blocks == EXPECTED.blocks


def test_a_completed_event_with_an_incomplete_response() -> None:
    last = event("response.completed", response=response(*THREE[:2], status="incomplete"))
    message = stream([*streamed(*THREE[:2])[:-1], last])
    assert message.raw_stop_reason == "incomplete"


@pytest.mark.parametrize(
    "bad",
    [
        b"data: nonsense\n\n",
        b"data: [1]\n\n",
        b'data: {"type":"response.output_item.added"}\n\n',
        b'data: {"type":"response.output_item.added","item":[]}\n\n',
        b'data: {"type":"response.output_item.done","item":"x"}\n\n',
        b'data: {"type":"response.output_text.delta","delta":{}}\n\n',
        b'data: {"type":"response.output_text.delta","delta":"x","output_index":"first"}\n\n',
        b'data: {"type":"response.function_call_arguments.delta","delta":"x","output_index":3}\n\n',
        b'data: {"type":"response.output_item.done","output_index":0,"item":{"type":"new","\xff":1}}\n\n',
        b'data: {"type":"response.new","x":"\xff"}\n\n',
    ],
)
def test_malformed_events(bad: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        stream(sse([created()]) + bad + sse([ended()]))
    assert caught.value.provider == "openai-responses"


def test_contradicting_events_are_refused() -> None:
    item = message_item("Hello")
    events = streamed_item(0, item, ["Hel", "lo"])
    deltas = [index for index, one in enumerate(events) if one["type"].endswith(".delta")]
    twice = [*events[: deltas[1]], events[deltas[0]], *events[deltas[1] :]]
    swapped = [*events]
    swapped[deltas[0]], swapped[deltas[1]] = events[deltas[1]], events[deltas[0]]
    late = [*events, events[deltas[0]]]
    changed = [*events[:-1], {**events[-1], "item": call_item(id="msg_1")}]
    text_for_a_call = [*streamed_item(0, call_item())[:1], events[deltas[0]]]
    thoughts_for_a_text = [
        events[0],
        event("response.reasoning_text.delta", output_index=0, content_index=0, delta="hm"),
    ]
    for wrong in (twice, swapped, late, changed, text_for_a_call, thoughts_for_a_text):
        with pytest.raises(ProtocolError):
            stream([created(), *wrong, ended(item)])


# --- failures --------------------------------------------------------------------------------------------------------

FAILURES: list[tuple[dict[str, Any], type[ProviderError]]] = [
    ({"code": "rate_limit_exceeded", "message": "slow"}, RateLimitError),
    ({"code": "invalid_prompt", "message": "no"}, ContentFilteredError),
    ({"code": "context_length_exceeded", "message": "long"}, ContextTooLongError),
    ({"code": "server_is_overloaded", "type": "service_unavailable_error", "message": "busy"}, OverloadedError),
    ({"code": "server_error", "message": "oops"}, ProviderError),
]


@pytest.mark.parametrize(("error", "kind"), FAILURES)
def test_failures_are_typed(error: dict[str, Any], kind: type[ProviderError]) -> None:
    begun = [created(), *streamed_item(0, message_item("Half"))[:-1]]
    bodies = [
        event("error", code=error["code"], message=error["message"], param=None, sequence_number=3),
        event("error", error=error),
        ended(kind="failed", error=error),
    ]
    for last in bodies:
        with pytest.raises(kind) as caught:
            stream([*begun, last])
        assert caught.value.code == error["code"]
        assert error["message"] in caught.value.message
    with pytest.raises(kind):
        whole(response(status="failed", error=error))
    with pytest.raises(kind):
        whole({"error": error})


def test_text_before_a_failure_is_kept() -> None:
    decoder = decoder_of(make_call(stream=True))
    events: list[ReplyEvent] = []
    error = {"code": "server_error", "message": "oops"}
    data = sse([created(), *streamed_item(0, message_item("Half"))[:3], ended(kind="failed", error=error)])
    with pytest.raises(ProviderError):
        decoder.feed(data, events)
    assert [one.text for one in events if isinstance(one, TextDelta)] == ["Half"]


def test_a_malformed_body_is_refused() -> None:
    for body in (b"", b"{}", b"[]", b"null", b'{"output":', b'{"object":"list","data":[]}', b"<html>", b'{"a":"\xff"}'):
        with pytest.raises(ProtocolError):
            whole(body)


@pytest.mark.parametrize("shift", [1, 2])
def test_content_indexes_that_differ_from_the_finished_item(shift: int) -> None:
    """Bedrock streams as part 1 what stands at 0 in the finished item."""
    first, second = message_item("Hello")["content"][0], message_item("Hello again")["content"][0]
    item = message_item(content=[first, second])
    events = streamed(item)
    for one in events:
        if "content_index" in one:
            one["content_index"] += shift
    assert [block.text for block in stream(events).blocks if isinstance(block, Text)] == ["Hello", "Hello again"]
