"""Streams as real servers send them, which is not always as the protocol says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.conversation import BlockReceived, Opaque, ReplyStarted, Thinking, ToolCallStarted
from dragoman.errors import ProtocolError
from tests.providers.openai_responses.calls import (
    call_item,
    created,
    ended,
    event,
    make_call,
    message_item,
    profile_of,
    reasoning_item,
    response,
    sse,
    stream,
    stream_events,
    streamed,
    streamed_item,
    whole,
)

ITEMS = [reasoning_item("Hm."), message_item("Hello"), call_item()]
EXPECTED = whole(response(*ITEMS))


def without(events: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in one.items() if key not in names} for one in events]


def test_types_only_in_the_event_line() -> None:
    lines = [f"event: {one.pop('type')}\ndata: {json.dumps(one)}\n\n" for one in streamed(*ITEMS)]
    assert stream("".join(lines).encode()) == EXPECTED


def test_types_only_in_the_data() -> None:
    lines = [f"data: {json.dumps(one)}\n\n" for one in streamed(*ITEMS)]
    assert stream(b": OPENROUTER PROCESSING\n\n" + "".join(lines).encode() + b"data: [DONE]\n\n") == EXPECTED


def test_carriage_returns() -> None:
    assert stream(sse(streamed(*ITEMS)).replace(b"\n", b"\r\n")) == EXPECTED


def test_no_indices_at_all() -> None:
    assert stream(without(streamed(*ITEMS), "output_index", "content_index", "summary_index")) == EXPECTED
    assert stream(without(streamed(*ITEMS), "output_index", "content_index", "item_id")) == EXPECTED


def test_one_index_for_all_items() -> None:
    events = [{**one, "output_index": 0} if "output_index" in one else one for one in streamed(*ITEMS)]
    assert stream(events) == EXPECTED


def test_another_id_in_every_event() -> None:
    events = streamed(*ITEMS)
    for number, one in enumerate(events):
        if "item_id" in one:
            one["item_id"] = f"turning_{number}"
    assert stream(events) == EXPECTED


def test_items_that_end_in_another_order() -> None:
    first, second = streamed_item(0, ITEMS[0]), streamed_item(1, ITEMS[1])
    events = [created(), *first[:-1], *second, first[-1], ended(*ITEMS[:2])]
    assert stream(events) == whole(response(*ITEMS[:2]))


def test_items_that_begin_before_the_one_before_them_speaks() -> None:
    first, second = streamed_item(0, ITEMS[1]), streamed_item(1, ITEMS[2])
    events = [created(), first[0], second[0], *first[1:], *second[1:], ended(*ITEMS[1:])]
    assert stream(events) == whole(response(*ITEMS[1:]))


def test_an_end_that_repeats_nothing() -> None:
    assert stream([*streamed(*ITEMS)[:-1], ended()]) == EXPECTED
    assert stream([*streamed(*ITEMS)[:-1], ended(output=None)]) == EXPECTED


def test_an_end_that_repeats_only_the_last_token() -> None:
    assert stream([*streamed(message_item("Hello"))[:-1], ended(message_item("lo"))]) == whole(
        response(message_item("Hello"))
    )


def test_items_that_are_never_done_come_from_the_end() -> None:
    tools = {"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "s", "tools": []}
    full = {**tools, "tools": [{"name": "t", "input_schema": {}}]}
    added = event("response.output_item.added", output_index=0, item=tools)
    answer = streamed_item(1, message_item())
    message = stream([created(), added, *answer, ended(full, message_item())])
    assert message == whole(response(full, message_item()))


def test_items_that_nobody_finishes_are_what_was_streamed() -> None:
    events = [created()]
    for index, item in enumerate(ITEMS):
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


def test_a_complete_reply_with_half_a_call_is_none() -> None:
    events = [created(), *streamed_item(0, call_item(), ['{"a'])[:2], ended()]
    with pytest.raises(ProtocolError):
        stream(events)


def test_no_deltas() -> None:
    events = [one for one in streamed(*ITEMS) if not one["type"].endswith(".delta")]
    assert stream(events) == EXPECTED


def test_deltas_without_a_beginning() -> None:
    events = [one for one in streamed(*ITEMS[:2]) if not one["type"].endswith(".added")]
    assert stream(events) == whole(response(*ITEMS[:2]))


def test_events_without_content() -> None:
    silent = [
        event("response.output_text.delta", output_index=1, content_index=0, item_id="msg_1", delta=None),
        event("response.reasoning_summary_text.delta", output_index=0, summary_index=0, delta=""),
        event("keepalive"),
    ]
    events = streamed(*ITEMS)
    assert stream([events[0], events[1], *silent, *events[2:]]) == EXPECTED


def test_the_end_of_a_text_that_was_tidied_up() -> None:
    item = message_item("Hello")
    assert stream([created(), *streamed_item(0, item, ["Hello", "\n"]), ended(item)]).text == "Hello\n"


def test_arguments_that_were_tidied_up() -> None:
    item = call_item(arguments='{"a":1}')
    (call,) = stream([created(), *streamed_item(0, item, ['{"a": 1}']), ended(item)]).tool_calls
    assert call.arguments == '{"a": 1}'


def test_arguments_as_an_object() -> None:
    item = {**call_item(), "arguments": {"a": 1}}
    (call,) = whole(response(item)).tool_calls
    assert call.parsed == {"a": 1}


def test_a_call_that_is_named_at_its_end() -> None:
    item = call_item()
    events = streamed_item(0, item)
    events[0]["item"].update(name="", call_id=None)
    message = stream([created(), *events, ended(item)])
    assert message == whole(response(item))
    started = [one for one in stream_events([created(), *events, ended(item)]) if isinstance(one, ToolCallStarted)]
    assert [(one.id, one.name) for one in started] == [("call_1", "add")]


def test_calls_without_ids() -> None:
    one = {"type": "function_call", "name": "add", "arguments": "{}"}
    message = whole(response({**one, "id": "fc_7"}, one, {**one, "call_id": ""}))
    assert [call.id for call in message.tool_calls] == ["fc_7", "call_resp_1_1", "call_resp_1_2"]


def test_call_ids_that_are_counted_anew_in_every_reply() -> None:
    call = make_call(profile=profile_of("openai.gpt-5.6-luna", "bedrock-mantle"), stream=True)
    (made,) = stream(streamed(call_item(call_id="call_0")), call).tool_calls
    assert made.id == "resp_1:call_0"


def test_a_stream_taken_up_in_its_middle() -> None:
    events = streamed(*ITEMS)
    events[0] = event("response.queued", response=response(status="queued", usage=None))
    assert stream(events) == EXPECTED
    started = stream_events(events[1:])[0]
    assert started == ReplyStarted("openai-responses")


def test_both_thoughts_and_summaries() -> None:
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
    events = streamed(*ITEMS)
    message = stream([*events[:3], new, *events[3:]])
    assert message.blocks == EXPECTED.blocks
    assert message.native is not None
    assert json.loads(bytes(message.native.fields["events"])) == [new]


def test_tools_of_the_service_may_fail_without_the_reply_failing() -> None:
    failed = event("response.mcp_list_tools.failed", output_index=0, item_id="m", error={"message": "away"})
    unknown = event("response.new_tool.failed", error={"message": "away"})
    events = streamed(*ITEMS)
    assert stream([*events[:3], failed, unknown, *events[3:]]).blocks == EXPECTED.blocks


def test_nothing_counts_after_the_end() -> None:
    late = [*streamed_item(9, message_item("late")), event("error", code="x", message="late"), ended()]
    assert stream([*streamed(*ITEMS), *late]) == EXPECTED
    assert stream(sse(streamed(*ITEMS)) + b"data: nonsense\n\n") == EXPECTED


def test_a_plain_object_where_a_stream_was_asked_for() -> None:
    assert stream(b"\n " + json.dumps(response(*ITEMS)).encode()) == EXPECTED


def test_a_stream_where_none_was_asked_for() -> None:
    assert stream(sse(streamed(*ITEMS)), make_call()) == EXPECTED
    with pytest.raises(ProtocolError):
        stream(sse(streamed(*ITEMS)[:-1]), make_call())


def test_a_completed_reply_that_says_it_is_not() -> None:
    last = event("response.completed", response=response(*ITEMS[:2], status="incomplete"))
    message = stream([*streamed(*ITEMS[:2])[:-1], last])
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


def test_events_that_contradict_each_other() -> None:
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


def test_whole_blocks_have_ids() -> None:
    item = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {}}
    (block,) = [one for one in stream_events(streamed(item)) if isinstance(one, BlockReceived)]
    assert (block.index, block.id) == (0, "ws_1")
