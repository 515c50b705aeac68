"""Messages as input items: what this service said goes back as it came, what others said as far as possible."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman.conversation import (
    Json,
    Media,
    Message,
    Native,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    message_from_json,
    message_to_json,
)
from dragoman.providers import Loss
from dragoman.providers.openai_responses import CODEC
from tests.providers.openai_responses.calls import (
    READER,
    call_item,
    input_of,
    make_call,
    message_item,
    profile_of,
    reasoning_item,
    response,
    whole,
)
from tests.providers.openai_responses.test_decode import ITEMS

PNG = Media.from_bytes(b"\x89PNG", "image/png")
PNG_URL = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()
PNG_PART = {"type": "input_image", "image_url": PNG_URL, "detail": "auto"}
RESULTS = Message.tool([ToolResult("call_1", "add", (Text("2"),))])


def losses_of(*messages: Message, **arguments: Any) -> tuple[Loss, ...]:
    return CODEC.encode(make_call(*messages, **arguments)).losses


# --- what this service said ------------------------------------------------------------------------------------------


PICTURE = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "iVBORw==", "size": "1x1"}


@pytest.mark.parametrize("items", [*ITEMS.values(), [PICTURE]], ids=[*ITEMS, "picture"])
def test_replies_go_back_as_they_came(items: list[dict[str, Any]]) -> None:
    message = whole(response(*items))
    assert input_of(message) == items
    assert losses_of(message) == ()
    # Also after having been stored.
    assert input_of(message_from_json(message_to_json(message))) == items


def test_empty_arguments_are_an_empty_object() -> None:
    assert input_of(Message.assistant(ToolCall("c", "f")), RESULTS)[0]["arguments"] == "{}"


def test_reasoning_that_nothing_follows() -> None:
    message = whole(response(message_item(), reasoning_item("Hm."), status="incomplete"))
    assert input_of(message) == [message_item()]
    (loss,) = losses_of(message)
    assert (loss.message, loss.block, loss.what) == (0, 1, "thinking")


def test_reasoning_without_what_is_needed_to_read_it() -> None:
    message = whole(response(reasoning_item("Hm.", encrypted_content=None), message_item(), call_item()))
    # Nothing stored, nothing encrypted: the reasoning is gone, and what followed must not refer to it by its ids.
    assert input_of(message) == [
        {"role": "assistant", "content": "Hi"},
        {k: v for k, v in call_item().items() if k != "id"},
    ]
    assert [loss.what for loss in losses_of(message)] == ["thinking"]
    stored = input_of(message, extra_body={"store": True})
    assert [item["type"] for item in stored] == ["reasoning", "message", "function_call"]


def test_reasoning_for_a_model_that_does_not_reason() -> None:
    message = whole(response(reasoning_item("Hm."), ITEMS["server tools"][0], message_item(phase="final_answer")))
    items = input_of(message, model="gpt-4o")
    assert items == [
        ITEMS["server tools"][0],
        {"role": "assistant", "content": "Hi", "phase": "final_answer"},
    ]
    assert [loss.what for loss in losses_of(message, model="gpt-4o")] == ["thinking"]
    # Where the service remembers items, it wants the search only together with its reasoning.
    kept = input_of(message, model="gpt-4o", extra_body={"store": True})
    assert kept == [{"role": "assistant", "content": "Hi", "phase": "final_answer"}]
    lost = losses_of(message, model="gpt-4o", extra_body={"store": True})
    assert [loss.what for loss in lost] == ["thinking", "opaque"]


def test_reasoning_that_broke_off_and_reasoning_put_together_by_hand() -> None:
    message = Message.assistant(Thinking("Hm", READER), "Hi")
    assert input_of(message) == [{"role": "assistant", "content": "Hi"}]
    assert input_of(message, extra_body={"store": True}) == [{"role": "assistant", "content": "Hi"}]
    made = input_of(Message.assistant(Thinking("Hm", READER, encrypted="gAAA"), "Hi"))[0]
    assert made == {k: v for k, v in reasoning_item("Hm").items() if k != "id"}


def test_another_service_of_the_same_dialect() -> None:
    """Its ids and encrypted content mean nothing here."""
    message = whole(response(reasoning_item("Hm."), ITEMS["server tools"][0], message_item(), call_item()))
    items = input_of(message, RESULTS, provider="azure-responses")
    assert items == [
        {"role": "assistant", "content": "Hi"},
        {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "2"},
    ]
    assert [loss.what for loss in losses_of(message, RESULTS, provider="azure-responses")] == ["thinking", "opaque"]


def test_calls_last_where_the_server_wants_that() -> None:
    message = whole(
        response(call_item(), message_item(), call_item(id="fc_2", call_id="call_2")),
        make_call(provider="deepseek-responses", model="deepseek-v4-flash"),
    )
    items = input_of(message, provider="deepseek-responses", model="deepseek-v4-flash")
    assert [item["type"] for item in items] == ["message", "function_call", "function_call"]
    assert input_of(whole(response(*items[1:], items[0])))[0]["type"] == "function_call"


def test_results_of_calls_that_a_program_made() -> None:
    caller = {"type": "program", "caller_id": "call_p"}
    message = whole(response(call_item(caller=caller)))
    assert input_of(message, RESULTS)[1]["caller"] == caller
    # The results do not remember a caller that was not theirs.
    assert "caller" not in input_of(whole(response(call_item())), RESULTS)[1]


# --- what others said ------------------------------------------------------------------------------------------------


def test_foreign_replies() -> None:
    message = Message(
        role="assistant",
        provider="anthropic",
        blocks=(
            Thinking("hm", "anthropic", signature="s"),
            Text("One.", native=Native(provider="anthropic", fields={"citations": Raw(b"[]")})),
            Opaque("anthropic", Raw(b"{}")),
            ToolCall("toolu_1", "add", '{"a":1}', native=Native(provider="anthropic", fields={"caller": Raw(b"1")})),
            PNG,
        ),
    )
    results = Message.tool([ToolResult("toolu_1", "add", (Text("2"),))])
    assert input_of(message, results) == [
        {"role": "assistant", "content": "One."},
        {"type": "function_call", "call_id": "toolu_1", "name": "add", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "toolu_1", "output": "2"},
    ]
    assert [(loss.block, loss.what) for loss in losses_of(message, results)] == [
        (0, "thinking"),
        (2, "opaque"),
        (4, "media"),
    ]


def test_ids_that_are_too_long() -> None:
    call_id = "x" * 100
    call = Message.assistant(ToolCall(call_id, "add"))
    items = input_of(call, Message.tool([ToolResult(call_id, "add")]))
    assert items[0]["call_id"] == items[1]["call_id"]
    assert len(items[0]["call_id"]) <= 64
    kept = input_of(call, provider="bedrock-mantle", model="openai.gpt-5.6-luna")
    assert kept[0]["call_id"] == call_id


def test_names_of_tools_that_are_no_longer_offered() -> None:
    (item,) = input_of(Message.assistant(ToolCall("c", "maths.add")))
    assert "." not in item["name"]


# --- the user and the tools ------------------------------------------------------------------------------------------


def test_the_user() -> None:
    assert input_of(Message.user("Hello")) == [{"role": "user", "content": "Hello"}]
    assert input_of(Message.user()) == [{"role": "user", "content": ""}]
    assert input_of(Message.user("One", "Two"))[0]["content"] == [
        {"type": "input_text", "text": "One"},
        {"type": "input_text", "text": "Two"},
    ]


def test_media() -> None:
    pdf = Media.from_bytes(b"%PDF", "application/pdf")
    named = Media.from_bytes(b"a,b", "text/csv", name="table.csv")
    detailed = msgspec.structs.replace(PNG, native=Native(provider=READER, fields={"detail": Raw(b'"low"')}))
    content = input_of(
        Message.user(PNG, detailed, Media.from_url("https://h/a.png"), pdf, named, Media.from_url("https://h/a.pdf"))
    )[0]["content"]
    assert content == [
        PNG_PART,
        {**PNG_PART, "detail": "low"},
        {**PNG_PART, "image_url": "https://h/a.png"},
        {"type": "input_file", "filename": "file.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
        {"type": "input_file", "filename": "table.csv", "file_data": "data:text/csv;base64,YSxi"},
        {"type": "input_file", "file_url": "https://h/a.pdf"},
    ]


def test_sounds_where_the_model_takes_them() -> None:
    profile = profile_of("gpt-audio").with_changes(media=frozenset(["audio", "video"]), media_urls=frozenset())
    wav = Media.from_bytes(b"RIFF", "audio/wav")
    ogg = Media.from_bytes(b"Ogg", "audio/ogg")
    message = Message.user("Listen", wav, ogg, Media.from_bytes(b"", "video/mp4"), Media.from_url("https://h/a.wav"))
    assert input_of(message, profile=profile)[0]["content"] == [
        {"type": "input_text", "text": "Listen"},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    ]
    assert [loss.block for loss in losses_of(message, profile=profile)] == [2, 3, 4]
    assert [loss.block for loss in losses_of(message)] == [1, 2, 3, 4]


def test_marks_for_the_cache() -> None:
    mark = Native(provider=READER, fields={"prompt_cache_breakpoint": Raw(b'{"mode":"explicit"}')})
    (item,) = input_of(Message.user(Text("Long", native=mark)))
    assert item["content"] == [{"type": "input_text", "text": "Long", "prompt_cache_breakpoint": {"mode": "explicit"}}]


@pytest.mark.parametrize(
    ("result", "output"),
    [
        (ToolResult("c", "f", (Text("2"),)), "2"),
        (ToolResult("c", "f"), ""),
        (ToolResult("c", "f", (Text("a"), Json(Raw(b'{"b":1}')))), 'a\n{"b":1}'),
        (ToolResult("c", "f", structured=Json(Raw(b"[1]"))), "[1]"),
        (ToolResult("c", "f", (Text("no such file"),), is_error=True), "Error: no such file"),
        (ToolResult("c", "f", (Text("Error 404"),), is_error=True), "Error 404"),
        (ToolResult("c", "f", is_error=True), "Error: the tool failed and gave no reason"),
        (ToolResult("c", "f", (Text("see"), PNG)), [{"type": "input_text", "text": "see"}, PNG_PART]),
        (ToolResult("c", "f", (PNG,), is_error=True), [{"type": "input_text", "text": "Error"}, PNG_PART]),
    ],
)
def test_results(result: ToolResult, output: object) -> None:
    assert input_of(Message.tool([result])) == [{"type": "function_call_output", "call_id": "c", "output": output}]


def test_media_that_a_result_cannot_hold() -> None:
    sound = Message.tool([ToolResult("c", "f", (Text("hear"), Media.from_bytes(b"", "audio/wav")))])
    (item,) = input_of(sound)
    assert item["output"] == "hear\n[audio/wav left out: this model takes no audio here]"
    assert [(loss.block, loss.what) for loss in losses_of(sound)] == [(0, "tool_result")]


# --- remembering -----------------------------------------------------------------------------------------------------


def test_opaque_blocks_of_the_user_are_items_of_their_own() -> None:
    """Outputs that only a person can give, such as an approval, are sent as they are."""
    approval = b'{"type":"mcp_approval_response","approval_request_id":"r","approve":true}'
    message = Message.user("Yes", Opaque("openai_responses", Raw(approval)), "go on")
    items = json.loads(CODEC.encode(make_call(message)).request.body)["input"]
    assert items == [{"role": "user", "content": "Yes"}, json.loads(approval), {"role": "user", "content": "go on"}]
