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
from dragoman.providers import CODEC, Call, Encoded, profile_of
from tests.providers.openai_chat.wire import chunk, read, stream, whole

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
    ("model", "role"), [("gpt-4o", "system"), ("gpt-5", "developer"), ("o3", "developer"), ("o1-mini", "user")]
)
def test_the_system_prompt_has_the_role_that_the_model_knows(model: str, role: str) -> None:
    assert sent(f"openai:{model}", user("hi"), system="Be brief.")[0] == {"role": role, "content": "Be brief."}


def test_texts_of_the_user_are_one_string() -> None:
    assert sent("ollama:m", user("a", "b")) == [{"role": "user", "content": "a\n\nb"}]


PNG_URL, PDF_URL = "data:image/png;base64,iVBORw==", "data:application/pdf;base64,JVBERg=="
OWN = "openai_chat:openai"
DETAILED = msgspec.structs.replace(PNG, native=Native(OWN, {"detail": Raw(b'"low"')}))
UPLOADED = Opaque(OWN, Raw(b'{"type":"file","file":{"file_id":"file-1"}}'))
NOTES = Media.from_bytes("grüße".encode(), "text/plain", name="notes.txt")
AUDIO = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}


def at(end: str) -> Media:
    return Media.from_url(f"https://host/a.{end}")


def by_url(kind: str, url: str, **more: str) -> dict[str, Any]:
    return {"type": f"{kind}_url", f"{kind}_url": {"url": url, **more}}


def file(name: str, data: str) -> dict[str, Any]:
    return {"type": "file", "file": {"filename": name, "file_data": data}}


@pytest.mark.parametrize(
    ("target", "block", "part"),
    [
        ("openai:gpt-4o", PNG, by_url("image", PNG_URL)),
        ("openai:gpt-4o", DETAILED, by_url("image", PNG_URL, detail="low")),
        ("openai:gpt-4o", at("png"), by_url("image", "https://host/a.png")),
        ("openai:gpt-4o", PDF, file("report.pdf", PDF_URL)),
        ("openai:gpt-4o", UPLOADED, {"type": "file", "file": {"file_id": "file-1"}}),
        ("openrouter:openai/gpt-4.1-mini", at("pdf"), file("document.pdf", "https://host/a.pdf")),
        ("mistral:m", PDF, {"type": "document_url", "document_url": PDF_URL, "document_name": "report.pdf"}),
        ("openai:gpt-4o-audio-preview", WAV, AUDIO),
        ("openrouter:google/gemini-2.5-flash", WAV, AUDIO),
        ("mistral:voxtral-small-latest", WAV, {"type": "input_audio", "input_audio": "UklGRg=="}),
        ("openrouter:google/gemini-2.5-flash", at("mp4"), by_url("video", "https://host/a.mp4")),
        ("vllm:m", at("wav"), by_url("audio", "https://host/a.wav")),
        (
            "groq:llama-3.3-70b-versatile",
            NOTES,
            {"type": "text", "text": '<document name="notes.txt" type="text/plain">\ngrüße\n</document>'},
        ),
    ],
)
def test_media_in_the_shapes_of_each_server(target: str, block: Block, part: dict[str, Any]) -> None:
    assert sent(target, user("look", block))[0]["content"] == [{"type": "text", "text": "look"}, part]


@pytest.mark.parametrize(
    ("target", "block", "kind"),
    [
        ("deepseek:deepseek-chat", PNG, "media"),
        ("openai:gpt-4o", WAV, "media"),
        ("openai:gpt-4o", at("pdf"), "media"),
        ("ollama:llava", at("png"), "media"),
        ("openai:gpt-4o", Media.from_bytes(b"", "video/mp4"), "media"),
        ("groq:m", UPLOADED, "opaque"),
    ],
)
def test_what_the_model_cannot_take_is_lost_with_a_word(target: str, block: Block, kind: str) -> None:
    found = encoded(target, user("look", block))
    assert [(loss.message, loss.block, loss.what) for loss in found.losses] == [(0, 1, kind)]
    assert json.loads(found.request.body)["messages"] == [{"role": "user", "content": "look"}]


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
        {"role": "tool", "tool_call_id": "c2", "content": "Error: It failed."},
    ]


CALLED = (user("hi"), Message.assistant(ToolCall("c1", "f")))


def test_content_is_left_out_unless_the_server_insists() -> None:
    turns = (*CALLED, Message.tool([ToolResult("c1", "f", (Text("x"),))]))
    assert "content" not in sent("openai:gpt-4o", *turns)[1]
    deepseek = sent("deepseek:deepseek-v4-pro", *turns)[1]
    assert (deepseek["content"], deepseek["reasoning_content"]) == ("", "")


def test_results_without_text() -> None:
    result = ToolResult("c1", "f", (), structured=Json(Raw(b'{"a":1}')))
    assert sent("openai:gpt-4o", *CALLED, Message.tool([result]))[2]["content"] == '{"a":1}'
    assert sent("openai:gpt-4o", *CALLED, Message.tool([ToolResult("c1", "f")]))[2]["content"] == ""


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
    turns = (*CALLED, Message.tool([ToolResult("c1", "f", (Text("x"), PNG))]))
    call = Call(model="m", conversation=Conversation(messages=turns), profile=profile)
    content = json.loads(CODEC.encode(call).request.body)["messages"][2]["content"]
    assert [part["type"] for part in content] == ["text", "image_url"]


def test_mistral_wants_a_word_of_the_model_between_results_and_the_user() -> None:
    def roles(*messages: Message) -> str:
        called = (user("hi"), Message.assistant(ToolCall("toolu_01", "f")))
        return " ".join(one["role"] for one in sent("mistral:mistral-medium-latest", *called, *messages))

    seen = Message.tool([ToolResult("toolu_01", "f", (Text("x"), PNG))])
    assert roles(seen) == "user assistant tool assistant user"
    assert roles(seen, user("and now?")) == "user assistant tool assistant user user"
    assert roles(Message.tool([ToolResult("toolu_01", "f")]), user("so?")) == "user assistant tool assistant user"


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
    assert json.loads(arguments) == {"INVALID_JSON": '{"a": '}
    assert [loss.what for loss in found.losses] == ["tool_call"]


def test_texts_of_the_model_are_one_string() -> None:
    foreign = Message(role="assistant", blocks=(Text("a"), Text("b")), provider="anthropic")
    own = msgspec.structs.replace(foreign, provider="openai")
    assert sent("openai:gpt-4o", foreign)[0]["content"] == "a\n\nb"
    assert sent("openai:gpt-4o", own)[0]["content"] == "ab"


# --- what came from a server goes back to it ---

DETAILS = [
    {"type": "reasoning.summary", "summary": "hm", "format": "openai-responses-v1", "index": 0},
    {"type": "reasoning.text", "text": "so", "signature": "sig", "format": "anthropic-claude-v1", "index": 1},
    {"type": "reasoning.encrypted", "data": "secret", "id": "rs_1", "format": "openai-responses-v1", "index": 0},
]
CONTENT = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": True},
    {"type": "text", "text": "a"},
    {"type": "reference", "reference_ids": [1]},
]
CUSTOM = {"id": "c", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}
SIGNED = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra_content": {"s": "abc"}}
IMAGES = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC"}}]
SOUND = {"id": "audio_1", "data": "AAEC", "transcript": "Hi"}
NOTED = {"content": "a", "annotations": [{"type": "file"}]}


@pytest.mark.parametrize(
    ("provider", "reply", "back"),
    [
        ("vllm", {"content": "a", "reasoning_content": "hm"}, {"content": "a", "reasoning_content": "hm"}),
        ("vllm", {"content": "a", "reasoning": "hm"}, {"content": "a", "reasoning": "hm"}),
        ("vllm", {"reasoning": "hm"}, {"content": "", "reasoning": "hm"}),
        (
            "openrouter",
            {"content": "a", "reasoning": "hmso", "reasoning_details": DETAILS},
            {"content": "a", "reasoning_details": DETAILS},
        ),
        ("mistral", {"content": CONTENT}, {"content": CONTENT}),
        ("openai-compatible", {"tool_calls": [SIGNED]}, {"tool_calls": [SIGNED]}),
        ("openai", {"tool_calls": [CUSTOM]}, {"tool_calls": [CUSTOM]}),
        ("openai", {"content": None, "refusal": "No."}, {"refusal": "No."}),
        ("openai", {"content": None, "audio": SOUND}, {"audio": {"id": "audio_1"}}),
        ("openrouter", {"content": "a", "images": IMAGES}, {"content": "a", "images": IMAGES}),
        ("openrouter", NOTED, NOTED),
        # Servers that are strict about unknown members get none back.
        ("openai", NOTED, {"content": "a"}),
        ("groq", NOTED, {"content": "a"}),
    ],
)
def test_replies_go_back_as_they_came(provider: str, reply: dict[str, Any], back: dict[str, Any]) -> None:
    (message,) = sent(f"{provider}:m-1", read(whole(reply), provider))
    assert message == {"role": "assistant", **back}


def test_pieces_of_reasoning_go_back_as_one() -> None:
    reply = read(stream(chunk({"reasoning": "h"}), chunk({"reasoning": "m"}), chunk({"content": "a"}, "stop")), "vllm")
    assert sent("vllm:m", reply) == [{"role": "assistant", "content": "a", "reasoning": "hm"}]


def test_reasoning_does_not_go_back_where_the_profile_says_so_and_nobody_else_gets_it() -> None:
    reply = read(whole({"content": "a", "reasoning": "hm"}), "groq")
    assert sent("groq:qwen/qwen3-32b", reply) == [{"role": "assistant", "content": "a"}]
    assert sent("groq:openai/gpt-oss-120b", reply) == [{"role": "assistant", "content": "a", "reasoning": "hm"}]
    assert lost("cerebras:gpt-oss-120b", reply) == [(0, 0, "thinking")]


def test_what_only_its_server_takes_back_is_text_or_a_loss_elsewhere() -> None:
    refused = read(whole({"content": None, "refusal": "No."}), "openai")
    assert sent("groq:m", refused) == [{"role": "assistant", "content": "No."}]
    spoken = read(whole({"content": None, "audio": SOUND}), "openai")
    assert lost("groq:m", user("hi"), spoken) == [(1, 0, "media")]
