"""History: what each kind of message and block becomes, what is lost on the way to another server, what it costs."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman.conversation import (
    Block,
    Conversation,
    Json,
    Media,
    Message,
    Native,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from dragoman.errors import ConfigurationError
from dragoman.providers.catalogue import profile_of
from dragoman.providers.codec import Call, Encoded
from dragoman.providers.openai_chat import CODEC
from tests.providers.openai_chat.wire import call_piece, chunk, read, stream, whole

PNG = Media.from_bytes(b"\x89PNG", "image/png")
PDF = Media.from_bytes(b"%PDF", "application/pdf", name="report.pdf")
WAV = Media.from_bytes(b"RIFF", "audio/wav")


def encoded(target: str, *messages: Message, system: str | None = None, tools: tuple[ToolSpec, ...] = ()) -> Encoded:
    provider, _, model = target.partition(":")
    conversation = Conversation(system=system, messages=messages)
    return CODEC.encode(Call(model=model, conversation=conversation, profile=profile_of(provider, model), tools=tools))


def sent(target: str, *messages: Message, **how: Any) -> list[dict[str, Any]]:
    """The messages on the wire; nothing may be lost."""
    found = encoded(target, *messages, **how)
    assert found.losses == ()
    return json.loads(found.request.body)["messages"]


def lost(target: str, *messages: Message) -> list[tuple[int, int, str]]:
    return [(loss.message, loss.block, loss.what) for loss in encoded(target, *messages).losses]


def user(*blocks: str | Block) -> Message:
    return Message.user(*blocks)


# --- system and user ---


@pytest.mark.parametrize(
    ("target", "role"),
    [
        ("openai:gpt-4o", "system"),
        ("openai:gpt-5", "developer"),
        ("openai:o3", "developer"),
        ("openai:o1-mini", "user"),
    ],
)
def test_the_system_prompt_has_the_role_that_the_model_knows(target: str, role: str) -> None:
    assert sent(target, user("hi"), system="Be brief.")[0] == {"role": role, "content": "Be brief."}


def test_texts_of_the_user_are_one_string() -> None:
    assert sent("ollama:m", user("a", "b")) == [{"role": "user", "content": "a\n\nb"}]


def test_media_of_the_user() -> None:
    linked = Media.from_url("https://host/a.png")
    message = user("look", PNG, linked, PDF)
    assert sent("openai:gpt-4o", message)[0]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
        {"type": "image_url", "image_url": {"url": "https://host/a.png"}},
        {"type": "file", "file": {"filename": "report.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
    ]


def test_media_in_the_shapes_of_other_servers() -> None:
    def part(target: str, media: Media) -> dict[str, Any]:
        return sent(target, user("look", media))[0]["content"][1]

    audio = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    assert part("openai:gpt-4o-audio-preview", WAV) == audio
    assert part("openrouter:google/gemini-2.5-flash", WAV) == audio
    assert part("mistral:voxtral-small-latest", WAV) == {"type": "input_audio", "input_audio": "UklGRg=="}
    assert part("mistral:mistral-large-latest", PDF) == {
        "type": "document_url",
        "document_url": "data:application/pdf;base64,JVBERg==",
        "document_name": "report.pdf",
    }
    film = Media.from_url("https://host/a.mp4")
    assert part("openrouter:google/gemini-2.5-flash", film)["video_url"] == {"url": "https://host/a.mp4"}
    sound = Media.from_url("https://host/a.wav")
    assert part("vllm:m", sound) == {"type": "audio_url", "audio_url": {"url": "https://host/a.wav"}}
    report = Media.from_url("https://host/a.pdf")
    assert part("openrouter:openai/gpt-4.1-mini", report)["file"]["file_data"] == "https://host/a.pdf"


def test_documents_of_text_are_text() -> None:
    notes = Media.from_bytes("grüße".encode(), "text/plain", name="notes.txt")
    content = sent("groq:llama-3.3-70b-versatile", user("read", notes))[0]["content"]
    assert content[1] == {"type": "text", "text": '<document name="notes.txt" type="text/plain">\ngrüße\n</document>'}


def test_own_fields_of_media_and_parts_that_only_the_server_knows() -> None:
    reader = "openai_chat:openai"
    detailed = msgspec.structs.replace(PNG, native=Native(reader, {"detail": Raw(b'"low"')}))
    uploaded = Opaque(reader, Raw(b'{"type":"file","file":{"file_id":"file-1"}}'))
    content = sent("openai:gpt-4o", user("look", detailed, uploaded))[0]["content"]
    assert content[1]["image_url"]["detail"] == "low"
    assert content[2] == {"type": "file", "file": {"file_id": "file-1"}}
    assert lost("groq:m", user("look", uploaded)) == [(0, 1, "opaque")]


@pytest.mark.parametrize(
    ("target", "media"),
    [
        ("deepseek:deepseek-chat", PNG),
        ("openai:gpt-4o", WAV),
        ("openai:gpt-4o", Media.from_url("https://host/a.pdf")),
        ("ollama:llava", Media.from_url("https://host/a.png")),
        ("openai:gpt-4o", Media.from_bytes(b"", "video/mp4")),
    ],
)
def test_media_that_the_model_cannot_take_is_lost_with_a_word(target: str, media: Media) -> None:
    found = encoded(target, user("look", media))
    assert [(loss.message, loss.block, loss.what) for loss in found.losses] == [(0, 1, "media")]
    assert json.loads(found.request.body)["messages"] == [{"role": "user", "content": "look"}]


def test_a_file_that_nobody_read_is_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match="was not read"):
        encoded("openai:gpt-4o", user(Media.from_path("a.png")))


def test_a_message_of_which_nothing_is_left_is_left_out() -> None:
    foreign = Thinking("hm", "anthropic", signature="x")
    found = encoded("openai:gpt-4o", user("a"), Message.assistant(foreign), user("b"))
    assert [message["role"] for message in json.loads(found.request.body)["messages"]] == ["user", "user"]
    assert found.losses[0].what == "thinking"


# --- the model's ---


def test_calls_and_results() -> None:
    calls = (ToolCall("c1", "f", '{"a": 1}'), ToolCall("c2", "g"))
    results = [
        ToolResult("c1", "f", (Text("one"), Json(Raw(b'{"b":2}')))),
        ToolResult("c2", "g", (Text("It failed."),), is_error=True),
    ]
    assert sent("openai:gpt-4o", user("hi"), Message.assistant("Well.", *calls), Message.tool(results))[1:] == [
        {
            "role": "assistant",
            "content": "Well.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
                {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": 'one\n{"b":2}'},
        {"role": "tool", "tool_call_id": "c2", "content": "It failed."},
    ]


def test_content_is_left_out_unless_the_server_insists() -> None:
    turns = (user("hi"), Message.assistant(ToolCall("c1", "f")), Message.tool([ToolResult("c1", "f", (Text("x"),))]))
    assert "content" not in sent("openai:gpt-4o", *turns)[1]
    deepseek = sent("deepseek:deepseek-v4-pro", *turns)[1]
    assert (deepseek["content"], deepseek["reasoning_content"]) == ("", "")


def test_results_without_text() -> None:
    result = ToolResult("c1", "f", (), structured=Json(Raw(b'{"a":1}')))
    turns = (user("hi"), Message.assistant(ToolCall("c1", "f")))
    assert sent("openai:gpt-4o", *turns, Message.tool([result]))[2]["content"] == '{"a":1}'
    empty = Message.tool([ToolResult("c1", "f")])
    assert sent("openai:gpt-4o", *turns, empty)[2]["content"] == ""


def test_media_in_results_follow_behind_all_of_them() -> None:
    calls = (ToolCall("c1", "camera"), ToolCall("c2", "clock"))
    turns = (
        user("hi"),
        Message.assistant(*calls),
        Message.tool([ToolResult("c1", "camera", (Text("Done."), PNG))]),
        Message.tool([ToolResult("c2", "clock", (Text("noon"),))]),
        Message.assistant("A cat."),
    )
    found = sent("openai:gpt-4o", *turns)
    assert [message["role"] for message in found] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    note = "[image of the result of camera, call c1]"
    assert found[2]["content"] == f"Done.\n{note} follows in the next message of the user."
    assert found[4]["content"][0] == {"type": "text", "text": f"{note}:"}
    assert found[4]["content"][1]["type"] == "image_url"
    assert sent("openai:gpt-4o", *turns[:4])[4]["role"] == "user"
    assert lost("deepseek:deepseek-chat", *turns) == [(2, 0, "media")]


def test_media_inside_of_results_where_the_profile_allows_it() -> None:
    profile = profile_of("openai-compatible", "m").with_changes(tool_result_media=frozenset(["image"]))
    turns = (
        user("hi"),
        Message.assistant(ToolCall("c1", "f")),
        Message.tool([ToolResult("c1", "f", (Text("x"), PNG))]),
    )
    call = Call(model="m", conversation=Conversation(messages=turns), profile=profile)
    content = json.loads(CODEC.encode(call).request.body)["messages"][2]["content"]
    assert [part["type"] for part in content] == ["text", "image_url"]


def test_mistral_wants_a_word_of_the_model_between_results_and_the_user() -> None:
    turns = (
        user("hi"),
        Message.assistant(ToolCall("toolu_01", "f")),
        Message.tool([ToolResult("toolu_01", "f", (Text("x"), PNG))]),
    )
    found = sent("mistral:mistral-medium-latest", *turns)
    assert [message["role"] for message in found] == ["user", "assistant", "tool", "assistant", "user"]
    found = sent("mistral:mistral-medium-latest", *turns, user("and now?"))
    assert [message["role"] for message in found] == ["user", "assistant", "tool", "assistant", "user", "user"]
    found = sent("mistral:mistral-medium-latest", *turns[:2], Message.tool([ToolResult("toolu_01", "f")]), user("so?"))
    assert [message["role"] for message in found] == ["user", "assistant", "tool", "assistant", "user"]


@pytest.mark.parametrize(("target", "length"), [("mistral:mistral-large-latest", 9), ("openai:gpt-4o", 40)])
def test_ids_that_a_server_refuses_are_replaced_alike_in_call_and_result(target: str, length: int) -> None:
    long = "call_" + "x" * 60
    found = sent(target, user("hi"), Message.assistant(ToolCall(long, "f")), Message.tool([ToolResult(long, "f")]))
    wire_id = found[1]["tool_calls"][0]["id"]
    assert wire_id == found[2]["tool_call_id"]
    assert len(wire_id) == length
    assert wire_id.isalnum()


def test_legal_ids_stay() -> None:
    assert sent("mistral:m", Message.assistant(ToolCall("6IgxW8LfZ", "f")))[0]["tool_calls"][0]["id"] == "6IgxW8LfZ"


def test_arguments_that_are_no_json_object() -> None:
    broken = Message.assistant(ToolCall("c1", "f", '{"a": '))
    assert sent("openai:gpt-4o", broken)[0]["tool_calls"][0]["function"]["arguments"] == '{"a": '
    found = encoded("vllm:m", broken)
    arguments = json.loads(found.request.body)["messages"][0]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"malformed_arguments": '{"a": '}
    assert [loss.what for loss in found.losses] == ["tool_call"]


def test_texts_of_the_model_are_one_string() -> None:
    foreign = Message(role="assistant", blocks=(Text("a"), Text("b")), provider="anthropic")
    own = msgspec.structs.replace(foreign, provider="openai")
    assert sent("openai:gpt-4o", foreign)[0]["content"] == "a\n\nb"
    assert sent("openai:gpt-4o", own)[0]["content"] == "ab"


# --- what came from a server goes back to it ---


def goes_back(body: bytes, provider: str, model: str = "m-1") -> dict[str, Any]:
    return sent(f"{provider}:{model}", read(body, provider))[0]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_goes_back_in_the_field_that_it_came_in(field: str) -> None:
    message = goes_back(stream(chunk({field: "h"}), chunk({field: "m"}), chunk({"content": "a"}, "stop")), "vllm")
    assert message == {"role": "assistant", "content": "a", field: "hm"}


def test_details_go_back_as_they_came() -> None:
    details = [
        {"type": "reasoning.summary", "summary": "hm", "format": "openai-responses-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "secret", "id": "rs_1", "format": "openai-responses-v1", "index": 0},
        {"type": "reasoning.text", "text": "so", "signature": "sig", "format": "anthropic-claude-v1", "index": 1},
    ]
    body = whole({"content": "a", "reasoning": "hmso", "reasoning_details": details})
    message = goes_back(body, "openrouter", "openai/gpt-5-mini")
    assert sorted(message.pop("reasoning_details"), key=str) == sorted(details, key=str)
    assert message == {"role": "assistant", "content": "a"}


def test_chunks_of_thinking_go_back_as_they_came() -> None:
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": True},
        {"type": "text", "text": "a"},
        {"type": "reference", "reference_ids": [1]},
    ]
    assert goes_back(whole({"content": content}), "mistral") == {"role": "assistant", "content": content}


def test_reasoning_does_not_go_back_where_the_profile_says_so_and_nobody_else_gets_it() -> None:
    reply = read(whole({"content": "a", "reasoning": "hm"}), "groq")
    assert sent("groq:qwen/qwen3-32b", reply) == [{"role": "assistant", "content": "a"}]
    assert sent("groq:openai/gpt-oss-120b", reply) == [{"role": "assistant", "content": "a", "reasoning": "hm"}]
    assert lost("cerebras:gpt-oss-120b", reply) == [(0, 0, "thinking")]


def test_reasoning_alone_is_a_message() -> None:
    assert goes_back(whole({"reasoning": "hm"}, "length"), "vllm") == {
        "role": "assistant",
        "content": "",
        "reasoning": "hm",
    }


def test_calls_go_back_with_what_they_carried() -> None:
    extra = {"extra_content": {"google": {"thought_signature": "abc"}}}
    pieces = [{**call_piece("{}", 0, "c1", "f"), **extra}]
    message = goes_back(stream(chunk({"tool_calls": pieces}), chunk({}, "tool_calls")), "openai-compatible")
    assert message["tool_calls"][0]["extra_content"] == extra["extra_content"]
    custom = {"id": "c", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}
    assert goes_back(whole({"tool_calls": [custom]}, "tool_calls"), "openai", "gpt-5")["tool_calls"] == [custom]


def test_members_of_the_message_go_back_unless_the_server_is_strict() -> None:
    body = whole({"content": "a", "annotations": [{"type": "file"}], "refusal": None})
    assert goes_back(body, "openrouter")["annotations"] == [{"type": "file"}]
    assert goes_back(body, "openai") == {"role": "assistant", "content": "a"}
    assert goes_back(body, "groq") == {"role": "assistant", "content": "a"}


def test_a_refusal_goes_back_as_one_and_elsewhere_as_text() -> None:
    reply = read(whole({"content": None, "refusal": "No."}), "openai")
    assert sent("openai:gpt-4o", reply) == [{"role": "assistant", "refusal": "No."}]
    assert sent("groq:m", reply) == [{"role": "assistant", "content": "No."}]


def test_sound_goes_back_by_its_id() -> None:
    reply = read(whole({"content": None, "audio": {"id": "audio_1", "data": "AAEC", "transcript": "Hi"}}), "openai")
    assert sent("openai:gpt-4o-audio-preview", reply) == [{"role": "assistant", "audio": {"id": "audio_1"}}]
    assert lost("groq:m", user("hi"), reply) == [(1, 0, "media")]


def test_images_go_back_as_they_came() -> None:
    images = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC"}}]
    assert goes_back(whole({"content": "a", "images": images}), "openrouter")["images"] == images


# --- what it costs ---


def test_a_message_is_written_once_for_each_server() -> None:
    message = user("hi", PNG)
    encoded("openai:gpt-4o", message)
    kept = dict(message.__dict__)
    encoded("openai:gpt-4o", message, user("more"))
    encoded("openai:gpt-4.1", message)
    assert {key: value for key, value in message.__dict__.items() if value is kept[key]} == kept
    encoded("deepseek:deepseek-chat", message)
    assert len(message.__dict__) == 2


def test_losses_are_told_every_time() -> None:
    message = user("hi", PNG)
    first, second = (lost("deepseek:deepseek-chat", user("a"), message) for _ in range(2))
    assert first == second == [(1, 1, "media")]
