"""Replies as OpenAI sends them, whole and streamed: both become the same message."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from msgspec import Raw

from dragoman.conversation import (
    Media,
    Native,
    Opaque,
    StopReason,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    ToolCallDelta,
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
    stream,
    stream_events,
    streamed,
    streamed_item,
    whole,
)


def fields(native: Native | None) -> dict[str, Any]:
    assert native is not None
    assert native.provider == READER
    return {name: json.loads(bytes(raw)) for name, raw in native.fields.items()}


ITEMS: dict[str, list[dict[str, Any]]] = {
    "text": [message_item("Hello")],
    "phases": [message_item("I look.", phase="commentary"), message_item("Done.", id="msg_2", phase="final_answer")],
    "two parts": [
        message_item(
            content=[
                {"type": "output_text", "annotations": [], "text": "One. "},
                {
                    "type": "output_text",
                    "annotations": [{"type": "file_path", "file_id": "f", "index": 1}],
                    "text": "Two.",
                },
            ]
        )
    ],
    "refusal": [message_item(content=[{"type": "refusal", "refusal": "I won't."}])],
    "empty message": [message_item(content=[])],
    "unknown part": [message_item(content=[{"type": "output_smell", "smell": "roses"}])],
    "text and unknown part": [
        message_item(
            content=[
                {"type": "output_text", "annotations": [], "text": "Smell:"},
                {"type": "output_smell", "smell": "roses"},
            ]
        )
    ],
    "reasoning": [reasoning_item(), message_item()],
    "summaries": [reasoning_item("First.", "Then."), message_item()],
    "open reasoning": [
        {
            "id": "rs_1",
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "hm"}, {"type": "reasoning_text", "text": "aha"}],
            "status": "completed",
        },
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
def test_streams_and_whole_replies_are_the_same(name: str) -> None:
    items = ITEMS[name]
    message = whole(response(*items))
    assert stream(streamed(*items)) == message
    # The service may also send nothing but finished items, or nothing but the end.
    done = [event("response.output_item.done", output_index=i, item=item) for i, item in enumerate(items)]
    assert stream([created(), *done, ended(*items)]) == message
    assert stream([created(), ended(*items)]) == message


def test_the_reply_itself() -> None:
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
    assert fields(text.native) == {
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
    assert fields(message.native) == {
        "service_tier": "flex",
        "moderation": {"input": {}},
        "usage": body["usage"],
    }
    assert message.usage == Usage(input=1, output=2, cache_write=1)


def test_no_usage_is_unknown_usage() -> None:
    assert whole(response(message_item(), usage=None)).usage is None


def test_refusals_are_texts_that_say_so() -> None:
    message = whole(response(*ITEMS["refusal"]))
    (text,) = message.blocks
    assert isinstance(text, Text)
    assert text.text == "I won't."
    assert fields(text.native)["type"] == "refusal"
    assert message.stop_reason is StopReason.REFUSAL


def test_reasoning() -> None:
    message = whole(response(*ITEMS["summaries"]))
    thinking = message.blocks[0]
    assert isinstance(thinking, Thinking)
    assert thinking.text == "First.\n\nThen."
    assert thinking.provider == READER
    assert thinking.encrypted == "gAAA"
    assert fields(thinking.native) == {"id": "rs_1", "summary": ITEMS["summaries"][0]["summary"]}
    assert message.thinking == "First.\n\nThen."


def test_reasoning_in_plain_words() -> None:
    thinking = whole(response(*ITEMS["open reasoning"])).blocks[0]
    assert isinstance(thinking, Thinking)
    assert thinking.text == "hm\n\naha"
    assert thinking.encrypted is None
    assert fields(thinking.native)["content"] == ITEMS["open reasoning"][0]["content"]


def test_calls() -> None:
    message = whole(response(*ITEMS["parallel calls"]))
    first, second = message.tool_calls
    assert (first.id, first.name, first.arguments, first.partial) == ("call_1", "add", '{"a":1}', False)
    assert fields(first.native) == {"id": "fc_1", "status": "completed"}
    assert second.id == "call_2"
    assert fields(second.native)["namespace"] == "maths"
    assert message.stop_reason is StopReason.TOOL_CALLS


def test_arguments_arrive_piece_by_piece() -> None:
    item = call_item()
    events = stream_events([created(), *streamed_item(0, item, ['{"a"', ":1}"]), ended(item)])
    assert [one for one in events if isinstance(one, ToolCallDelta)] == [
        ToolCallDelta(0, "call_1", '{"a"'),
        ToolCallDelta(0, "call_1", ":1}"),
    ]


def test_thoughts_arrive_piece_by_piece() -> None:
    item = reasoning_item("First.", "Then.")
    events = stream_events(streamed(item, message_item()))
    deltas = [one.text for one in events if isinstance(one, ThinkingDelta)]
    assert deltas == ["First.", "\n\n", "Then."]


def test_names_of_tools_are_mapped_back() -> None:
    import msgspec

    from dragoman.providers.openai_responses import CODEC
    from tests.providers.feeding import message_of

    call = make_call()
    encoded = msgspec.structs.replace(CODEC.encode(call), tool_names={"add": "maths.add"})
    data = json.dumps(response(call_item())).encode()
    assert message_of(CODEC.decoder(call, encoded), [data]).tool_calls[0].name == "maths.add"


def test_server_tools_stay_as_they_are() -> None:
    items = ITEMS["server tools"]
    message = whole(response(*items))
    search, code, _ = message.blocks
    assert isinstance(search, Opaque)
    assert isinstance(code, Opaque)
    assert search.provider == READER
    assert search.value == items[0]
    assert code.value == items[1]


def test_pictures_become_media() -> None:
    data = b"\x89PNG"
    item = {
        "id": "ig_1",
        "type": "image_generation_call",
        "status": "completed",
        "result": base64.b64encode(data).decode(),
        "output_format": "webp",
        "revised_prompt": "a cat",
    }
    (picture,) = whole(response(item)).blocks
    assert isinstance(picture, Media)
    assert (picture.kind, picture.mime_type, picture.data) == ("image", "image/webp", data)
    assert fields(picture.native)["item"] == {k: v for k, v in item.items() if k != "result"}


@pytest.mark.parametrize("result", [None, "", "not base64!"])
def test_pictures_that_are_none(result: str | None) -> None:
    item = {"id": "ig_1", "type": "image_generation_call", "status": "failed", "result": result}
    (block,) = whole(response(item)).blocks
    assert block == Opaque(READER, Raw(json.dumps(item).encode()))


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


def test_what_came_before_a_failure_is_not_lost() -> None:
    from dragoman.providers.openai_responses import CODEC
    from tests.providers.openai_responses.calls import sse

    call = make_call(stream=True)
    decoder = CODEC.decoder(call, CODEC.encode(call))
    events: list[Any] = []
    error = {"code": "server_error", "message": "oops"}
    data = sse([created(), *streamed_item(0, message_item("Half"))[:3], ended(kind="failed", error=error)])
    with pytest.raises(ProviderError):
        decoder.feed(data, events)
    assert [one.text for one in events if isinstance(one, TextDelta)] == ["Half"]


def test_a_body_that_is_no_reply() -> None:
    for body in (b"", b"{}", b"[]", b"null", b'{"output":', b'{"object":"list","data":[]}', b"<html>", b'{"a":"\xff"}'):
        with pytest.raises(ProtocolError):
            whole(body)
