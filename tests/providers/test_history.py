"""Messages on the wire of each dialect: every kind of block, losses, and what is sent back unchanged."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from msgspec import Raw

from dragoman.conversation import (
    Block,
    Conversation,
    Json,
    Media,
    Message,
    Native,
    Opaque,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    message_from_json,
    message_to_json,
)
from dragoman.errors import ConfigurationError
from dragoman.providers import Call, Encoded, ModelOptions, profile_of
from tests.providers.calls import HI, body_of, encode, encoded, lost
from tests.providers.gemini import case as gemini
from tests.providers.openai_chat.wire import chunk, read, stream, whole as chat_reply
from tests.providers.openai_responses.calls import (
    call_item,
    message_item,
    reasoning_item,
    response,
    whole,
)
from tests.providers.openai_responses.test_decode import ITEMS
from tests.rounds import rounds
from tests.strategies import conversations

A, C = "anthropic:claude-sonnet-4-5", "openai:gpt-4o"
G, R = "gemini:gemini-3-flash-preview", "openai-responses:gpt-5.6"
G2, GEMMA, DEEPSEEK = "gemini:gemini-2.5-flash", "gemini:gemma-3-27b-it", "deepseek:deepseek-chat"


def wire(target: str, *messages: Message, **how: Any) -> list[dict[str, Any]]:
    """The messages, contents or items of the request."""
    body = body_of(target, *messages, **how)
    return body.get("messages") or body.get("contents") or body["input"]


def content(target: str, message: Message, **how: Any) -> Any:
    """What one message becomes: its blocks, parts or items, or what stands beside the role of a chat message."""
    calls = Message.assistant(
        *[ToolCall(one.call_id, one.name) for one in message.blocks if isinstance(one, ToolResult)]
    )
    before = {"user": (), "assistant": (HI,), "tool": (HI, calls)}[message.role]
    items = wire(target, *before, message, **how)[len(before) :]
    if target.startswith(("anthropic", "gemini")):
        return items[0].get("content", items[0].get("parts")) if items else []
    if target.startswith("openai-responses") or message.role == "tool":
        return items
    return {name: value for name, value in items[0].items() if name != "role"} if items else {}


def own(reader: str, **fields: Any) -> Native:
    return Native(reader, {name: Raw(json.dumps(value).encode()) for name, value in fields.items()})


def opaque(reader: str, **fields: Any) -> Opaque:
    return Opaque(reader, Raw(json.dumps(fields).encode()))


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def inline(kind: str, data: bytes = b"abc", **more: Any) -> dict[str, Any]:
    return {"inlineData": {"mimeType": kind, "data": b64encode(data).decode(), **more}}


def by_url(kind: str, url: str, **more: str) -> dict[str, Any]:
    return {"type": f"{kind}_url", f"{kind}_url": {"url": url, **more}}


def file(name: str, data: str) -> dict[str, Any]:
    return {"type": "file", "file": {"filename": name, "file_data": data}}


def linked(end: str) -> Media:
    return Media.from_url(f"https://host/a.{end}")


def claude_media(kind: str, source: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": kind, "source": source, **more}


PNG, WAV = Media.from_bytes(b"abc", "image/png"), Media.from_bytes(b"abc", "audio/wav")
PDF = Media.from_bytes(b"abc", "application/pdf", name="a.pdf")
NOTES = Media.from_bytes("grüße".encode(), "text/plain", name="n.txt")
MP4 = Media.from_bytes(b"abc", "video/mp4")
PNG_URL, PDF_URL = "data:image/png;base64,YWJj", "data:application/pdf;base64,YWJj"
CHAT = "openai_chat:openai"
DETAILED = msgspec.structs.replace(PNG, native=own(CHAT, detail="low"))
DETAILED_TOO = msgspec.structs.replace(PNG, native=own("openai_responses", detail="low"))
CITED = msgspec.structs.replace(NOTES, native=own("anthropic", citations={"enabled": True}))
FILM = Media(kind="video", mime_type="video/mp4", url="gs://b/f", native=own("gemini", videoMetadata={"fps": 2.0}))
UPLOADED = opaque(CHAT, type="file", file={"file_id": "file-1"})
PNG_PART = {"type": "input_image", "image_url": PNG_URL, "detail": "auto"}
WAV_PART = {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "wav"}}
CLAUDE_PNG = claude_media("image", {"type": "base64", "media_type": "image/png", "data": "YWJj"})
CLAUDE_PDF = claude_media(
    "document", {"type": "base64", "media_type": "application/pdf", "data": "YWJj"}, title="a.pdf"
)
PLAIN = {"type": "text", "media_type": "text/plain", "data": "grüße"}
DOCUMENT = '<document name="n.txt" type="text/plain">\ngrüße\n</document>'
FILE_OF_GEMINI = {"fileData": {"mimeType": "application/pdf", "fileUri": "https://host/a.pdf"}}

# --- what the user says -----------------------------------------------------------------------------------------------

# Blocks behind the text "see", and what they become behind it; nothing for those that are lost.
SEEN: list[tuple[str, Block, Any]] = [
    (A, PNG, CLAUDE_PNG),
    (A, linked("png"), claude_media("image", {"type": "url", "url": "https://host/a.png"})),
    (A, PDF, CLAUDE_PDF),
    (A, linked("pdf"), claude_media("document", {"type": "url", "url": "https://host/a.pdf"})),
    (A, NOTES, claude_media("document", PLAIN, title="n.txt")),
    (A, CITED, claude_media("document", PLAIN, title="n.txt", citations={"enabled": True})),
    (A, Media.from_bytes("grüße".encode(), "application/json"), claude_media("document", PLAIN)),
    (A, WAV, None),
    (A, MP4, None),
    (A, Media.from_bytes(b"x", "image/bmp"), None),
    (A, Media.from_bytes(b"x", "application/vnd.ms-excel"), None),
    (A, linked("txt"), None),
    (A, Media.from_bytes(b"\xff\xfe", "text/plain"), None),
    (A, Opaque("gemini", Raw(b"{}")), None),
    (A, Thinking("x", "gemini"), None),
    (C, PNG, by_url("image", PNG_URL)),
    (C, DETAILED, by_url("image", PNG_URL, detail="low")),
    (C, linked("png"), by_url("image", "https://host/a.png")),
    (C, PDF, file("a.pdf", PDF_URL)),
    (C, UPLOADED, {"type": "file", "file": {"file_id": "file-1"}}),
    ("openrouter:openai/gpt-4.1-mini", linked("pdf"), file("document.pdf", "https://host/a.pdf")),
    ("mistral:m", PDF, {"type": "document_url", "document_url": PDF_URL, "document_name": "a.pdf"}),
    ("openai:gpt-4o-audio-preview", WAV, WAV_PART),
    ("openrouter:google/gemini-2.5-flash", WAV, WAV_PART),
    ("mistral:voxtral-small-latest", WAV, {"type": "input_audio", "input_audio": "YWJj"}),
    ("openrouter:google/gemini-2.5-flash", linked("mp4"), by_url("video", "https://host/a.mp4")),
    ("vllm:m", linked("wav"), by_url("audio", "https://host/a.wav")),
    ("groq:llama-3.3-70b-versatile", NOTES, text(DOCUMENT)),
    (DEEPSEEK, PNG, None),
    (C, WAV, None),
    (C, linked("pdf"), None),
    ("ollama:llava", linked("png"), None),
    (C, MP4, None),
    ("groq:m", UPLOADED, None),
    (R, PNG, PNG_PART),
    (R, DETAILED_TOO, {**PNG_PART, "detail": "low"}),
    (R, linked("png"), {**PNG_PART, "image_url": "https://host/a.png"}),
    (R, PDF, {"type": "input_file", "filename": "a.pdf", "file_data": PDF_URL}),
    (
        R,
        Media.from_bytes(b"abc", "text/plain"),
        {"type": "input_file", "filename": "file.txt", "file_data": "data:text/plain;base64,YWJj"},
    ),
    (R, linked("pdf"), {"type": "input_file", "file_url": "https://host/a.pdf"}),
    (R, WAV, None),
    (G, PNG, inline("image/png")),
    (G, linked("pdf"), FILE_OF_GEMINI),
    (G, FILM, {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://b/f"}, "videoMetadata": {"fps": 2.0}}),
    (GEMMA, WAV, None),
]


@pytest.mark.parametrize(("target", "block", "part"), SEEN)
def test_media_and_other_blocks_of_the_user(target: str, block: Block, part: Any) -> None:
    message = Message.user("see", block)
    found = content(target, message)
    if isinstance(found, dict) or target.startswith("openai-responses"):
        found = (found if isinstance(found, dict) else found[0])["content"]
    behind = [] if found == "see" else found[1:]
    assert behind == ([] if part is None else [part])
    what = {Media: "media", Opaque: "opaque", Thinking: "thinking"}[type(block)]
    assert lost(target, message) == ([(0, 1, what)] if part is None else [])


def test_audio_is_sent_if_the_model_takes_it() -> None:
    how = {"profile": {"media": frozenset(["audio", "video"]), "media_urls": frozenset()}}
    message = Message.user("Listen", WAV, Media.from_bytes(b"Ogg", "audio/ogg"), MP4, linked("wav"))
    assert content(R, message, **how)[0]["content"][1:] == [WAV_PART]
    assert [block for _, block, _ in lost(R, message, **how)] == [2, 3, 4]


def test_texts_of_the_user() -> None:
    assert content(A, Message.user("", " \n", "a")) == [text("a")], "the API refuses empty ones"
    assert content("ollama:m", Message.user("a", "b")) == {"content": "a\n\nb"}
    assert content(R, Message.user()) == [{"role": "user", "content": [{"type": "input_text", "text": ""}]}]
    assert content(R, Message.user("a", "b"))[0]["content"] == [{"type": "input_text", "text": one} for one in "ab"]
    marked = Text("a", native=own("openai_responses", prompt_cache_breakpoint={"mode": "explicit"}))
    part = {"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}}
    assert content(R, Message.user(marked))[0]["content"] == [part]
    assert content(G, Message.user("")) == [{"text": ""}], "the turn stays a turn"
    approval = opaque("openai_responses", type="mcp_approval_response", approve=True)
    yes, given, on = content(R, Message.user("Yes", approval, "go on"))
    assert (yes["content"][0]["text"], given, on["content"][0]["text"]) == ("Yes", approval.value, "go on")


# --- what the model said ----------------------------------------------------------------------------------------------

SIGNED, SKIP = own("gemini", thoughtSignature="c2ln"), {"thoughtSignature": "skip_thought_signature_validator"}
OURS = {"thoughtSignature": "c2ln"}
HM = Thinking("Hm", "anthropic", signature="s")
CODE, URLS = opaque("gemini", executableCode={"code": "1"}), opaque("gemini", toolCall={"id": "1"})
FOREIGN = (Thinking("x", "elsewhere", signature="s"), Opaque("elsewhere", Raw(b"{}")))
CITATIONS = [{"type": "page_location"}]

# Blocks of the model, what they become, and which of them are lost.
SAID: list[tuple[str, tuple[Block, ...], Any, list[int]]] = [
    (
        A,
        (Text("a", native=own("anthropic", citations=CITATIONS, text="forged")),),
        [text("a", citations=CITATIONS)],
        [],
    ),
    (A, (Text("a", native=own("gemini", x=1)),), [text("a")], []),
    (A, (Text(""), Text("a")), [text("a")], []),
    (
        A,
        (
            msgspec.structs.replace(HM, native=own("anthropic", new=1)),
            Thinking("", "anthropic", signature="t"),
            Thinking("", "anthropic", encrypted=""),
        ),
        [
            {"type": "thinking", "thinking": "Hm", "signature": "s", "new": 1},
            {"type": "thinking", "thinking": "", "signature": "t"},
            {"type": "redacted_thinking", "data": ""},
        ],
        [],
    ),
    (A, (*FOREIGN, Text("t"), Thinking("cut off", "anthropic"), PNG), [text("t")], [0, 1, 3, 4]),
    (
        A,
        (ToolCall("toolu_1", "add", '{"a": 1}', native=own("anthropic", caller=1)),),
        [{"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}, "caller": 1}],
        [],
    ),
    (C, (*FOREIGN, Text("a")), {"content": "a"}, [0, 1]),
    (
        C,
        (Text("Well."), ToolCall("c1", "f", '{"a": 1}'), ToolCall("c2", "g")),
        {
            "content": "Well.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
                {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        [],
    ),
    (C, (Text("a"), Text("b")), {"content": "a\n\nb"}, []),
    (R, (*FOREIGN, Text("a", native=own("anthropic", x=1)), PNG), [{"role": "assistant", "content": "a"}], [0, 1, 3]),
    (
        R,
        (ToolCall("toolu_1", "add", '{"a":1}', native=own("anthropic", caller=1)),),
        [{"type": "function_call", "call_id": "toolu_1", "name": "add", "arguments": '{"a":1}'}],
        [],
    ),
    # Reasoning that broke off is lost, what was put together by hand is not.
    (R, (Thinking("Hm", "openai_responses"), Text("a")), [{"role": "assistant", "content": "a"}], [0]),
    (
        R,
        (Thinking("Hm", "openai_responses", encrypted="gAAA"), Text("a")),
        [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}], "encrypted_content": "gAAA"},
            {"role": "assistant", "content": "a"},
        ],
        [],
    ),
    (
        G,
        (
            Thinking("hm", "gemini"),
            Thinking("so", "gemini", signature="dGhvdWdodA=="),
            Text("a", native=SIGNED),
            Text(""),
            ToolCall("1", "f", "{}", native=SIGNED),
            ToolCall("2", "f", "{}"),
            msgspec.structs.replace(PNG, native=SIGNED),
            opaque("gemini", text="", thoughtSignature="ZW5k"),
        ),
        [
            {"text": "hm", "thought": True},
            {"text": "so", "thought": True, "thoughtSignature": "dGhvdWdodA=="},
            {"text": "a", **OURS},
            {"functionCall": {"id": "1", "name": "f", "args": {}}, **OURS},
            {"functionCall": {"id": "2", "name": "f", "args": {}}},
            {**inline("image/png"), **OURS},
            {"text": "", "thoughtSignature": "ZW5k"},
        ],
        [],
    ),
    # Members inside the data go back too; the first call of a message needs a signature with the newer models.
    (
        G,
        (ToolCall("1", "f", native=own("gemini", functionCall={"mood": "calm"}, thought=True)), ToolCall("2", "f")),
        [
            {"functionCall": {"id": "1", "name": "f", "mood": "calm"}, "thought": True, **SKIP},
            {"functionCall": {"id": "2", "name": "f"}},
        ],
        [],
    ),
    (G2, (ToolCall("1", "f"),), [{"functionCall": {"id": "1", "name": "f"}}], []),
    ("gemini:gemini-2.0-flash", (ToolCall("call_gem_r_0", "f"),), [{"functionCall": {"name": "f"}}], []),
    (G, (*FOREIGN, Text("a", native=own("anthropic", x=1))), [{"text": "a"}], [0, 1]),
    (G, (URLS, CODE), [URLS.value, CODE.value], []),
    *[(model, (URLS, CODE), [CODE.value], [0]) for model in (G2, "gemini:publishers/google/models/gemini-3-flash")],
    ("gemini:gemini-2.0-flash", (Thinking("hm", "gemini"), Text("a")), [{"text": "a"}], [0]),
]


@pytest.mark.parametrize(("target", "blocks", "written", "losses"), SAID)
def test_blocks_of_the_model(target: str, blocks: tuple[Block, ...], written: Any, losses: list[int]) -> None:
    message = Message(role="assistant", blocks=blocks, provider="elsewhere" if target == C else None)
    assert content(target, message) == written
    assert [(at, block) for at, block, _ in lost(target, HI, message)] == [(1, block) for block in losses]


@pytest.mark.parametrize("message", [Message.assistant(""), Message(role="assistant"), Message.assistant(*FOREIGN)])
def test_a_message_without_sendable_content_is_left_out(message: Message) -> None:
    assert wire(A, HI, message, Message.user("end")) == [{"role": "user", "content": [text("Hi"), text("end")]}]
    assert lost(A, HI, message, HI)


def test_a_conversation_without_sendable_content_is_refused() -> None:
    for messages in ((Message.user(" "),), (Message.user(""), Message.assistant(Thinking("x", "gemini")))):
        with pytest.raises(ConfigurationError, match="nothing to send"):
            encoded(A, *messages)


def test_the_user_comes_first_and_turns_are_merged_where_required() -> None:
    empty = {"role": "user", "parts": [{"text": ""}]}
    assert wire(G, Message.assistant("I begin."), HI)[0] == empty
    calls = Message.assistant(ToolCall("a", "f"), ToolCall("b", "f"))
    results = [Message.tool([ToolResult(id, "f")]) for id in "ab"]
    turns = (
        HI,
        Message.user("there"),
        calls,
        *results,
        Message.user("and?"),
        Message.assistant("one"),
        Message.assistant("two"),
    )
    assert [(one["role"], len(one["content"])) for one in wire(A, *turns)] == [
        ("user", 2),
        ("assistant", 2),
        ("user", 3),
        ("assistant", 2),
    ]
    assert [one["role"] for one in wire(G, *turns)] == ["user"] * 2 + ["model"] + ["user"] * 3 + ["model"] * 2
    body = body_of(GEMMA, system="Be kind.")
    assert "systemInstruction" not in body
    assert body["contents"][0] == {"role": "user", "parts": [{"text": "Be kind."}]}


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ("", "{}"),
        (" \n", "{}"),
        ('{"a": 1.0}', '{"a": 1.0}'),
        ('{"a": ', None),
        ("[1]", None),
        ('"x"', None),
        ("no", None),
    ],
)
@pytest.mark.parametrize("target", [A, G, "vllm:m"])
def test_arguments_are_an_object_on_the_wire(target: str, arguments: str, sent: str | None) -> None:
    message = Message.assistant(ToolCall("c", "f", arguments))
    written = json.loads(encoded(target, HI, message).request.body)
    found = {
        A: lambda: written["messages"][1]["content"][0]["input"],
        G: lambda: written["contents"][1]["parts"][0]["functionCall"].get("args", {}),
        "vllm:m": lambda: json.loads(written["messages"][1]["tool_calls"][0]["function"]["arguments"]),
    }[target]()
    assert found == ({"INVALID_JSON": arguments} if sent is None else json.loads(sent))
    assert lost(target, HI, message) == ([(1, 0, "tool_call")] if sent is None else [])


def test_malformed_arguments_are_sent_unchanged_where_allowed() -> None:
    call = ToolCall("c", "f", '{"a": ')
    assert content(C, Message.assistant(call))["tool_calls"][0]["function"]["arguments"] == '{"a": '
    assert content(R, Message.assistant(call))[0]["arguments"] == '{"a": '
    assert content(R, Message.assistant(ToolCall("c", "f")))[0]["arguments"] == "{}"


@pytest.mark.parametrize(
    ("target", "pattern"),
    [(A, r"[a-zA-Z0-9_-]{1,64}"), (C, r".{1,40}"), ("mistral:m", r"[a-zA-Z0-9]{9}"), (R, r".{1,64}")],
)
def test_illegal_ids_are_changed_consistently(target: str, pattern: str) -> None:
    ids = ("call_1|fc_2", "call_1?fc_2", "x" * 200, "6IgxW8LfZ", "toolu/1")
    calls, results = [ToolCall(id, "f") for id in ids], [ToolResult(id, "f") for id in ids]
    body = encoded(target, HI, Message.assistant(*calls), Message.tool(results)).request.body.decode()
    found = re.findall(r'"(?:id|tool_use_id|tool_call_id|call_id)":"([^"]+)"', body)
    assert found[: len(ids)] == found[len(ids) :]
    assert len(set(found)) == len(ids)
    assert all(re.fullmatch(pattern, id) for id in found)
    assert found[3] == ids[3], "a legal one stays"


# --- results ----------------------------------------------------------------------------------------------------------

ONE, DATA = Text("one"), Json(Raw(b'{"a":1}'))
FAILED: dict[str, Any] = {"is_error": True}
STRUCTURED: dict[str, Any] = {"structured": Json(Raw(b"[1]"))}

# What a tool gave, and what the model reads of it.
GIVEN: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = [
    (A, (), {}, {}),
    (A, (Text(""),), {}, {}),
    (A, (DATA,), {}, {"content": '{"a":1}'}),
    (A, (ONE, Text(""), DATA), {}, {"content": [text("one"), text('{"a":1}')]}),
    (A, (), STRUCTURED, {"content": "[1]"}),
    (A, (ONE,), STRUCTURED, {"content": "one"}),
    (A, (ONE,), FAILED, {"content": "one", "is_error": True}),
    (A, (), FAILED, {"content": "The tool failed and gave no reason.", "is_error": True}),
    (A, (PNG,), {}, {"content": [CLAUDE_PNG]}),
    (C, (), {}, ""),
    (C, (ONE, DATA), {}, 'one\n{"a":1}'),
    (C, (), STRUCTURED, "[1]"),
    (C, (ONE,), FAILED, "Error: one"),
    (R, (), {}, ""),
    (R, (ONE, DATA), {}, 'one\n{"a":1}'),
    (R, (), STRUCTURED, "[1]"),
    (R, (ONE,), FAILED, "Error: one"),
    (R, (Text("Error 404"),), FAILED, "Error 404"),
    (R, (), FAILED, "Error: the tool failed and gave no reason"),
    (R, (ONE, PNG), {}, [{"type": "input_text", "text": "one"}, PNG_PART]),
    (R, (PNG,), FAILED, [{"type": "input_text", "text": "Error"}, PNG_PART]),
    (G, (ONE,), {}, {"output": "one"}),
    (G, (ONE, Text("b")), {}, {"output": "one\nb"}),
    (G, (DATA,), {}, {"a": 1}),
    (G, (Json(Raw(b'{"output": 1}')),), {}, {"output": {"output": 1}}),
    (G, (Json(Raw(b'{"error": 1}')),), {}, {"output": {"error": 1}}),
    (G, (Json(Raw(b"null")),), {}, {"output": None}),
    (G, (ONE, Json(Raw(b"[1]"))), {}, {"output": "one\n[1]"}),
    (G, (), {}, {"output": ""}),
    (G, (ONE,), FAILED, {"error": "one"}),
    (G, (DATA,), FAILED, {"error": {"a": 1}}),
    (G, (), FAILED, {"error": ""}),
]


@pytest.mark.parametrize(("target", "given", "more", "written"), GIVEN)
def test_results_on_the_wire(target: str, given: Any, more: dict[str, Any], written: Any) -> None:
    (found,) = content(target, Message.tool([ToolResult("c", "f", given, **more)]))
    expected = {
        A: {"type": "tool_result", "tool_use_id": "c", **(written if target == A else {})},
        C: {"role": "tool", "tool_call_id": "c", "content": written},
        R: {"type": "function_call_output", "call_id": "c", "output": written},
        G: {"functionResponse": {"id": "c", "name": "f", "response": written}},
    }
    assert found == expected[target]


def seen(*media: Media) -> Message:
    return Message.tool([ToolResult("c", "f", (ONE, *media))])


CALLED = (HI, Message.assistant(ToolCall("c", "f")))


@pytest.mark.parametrize(
    ("target", "media"),
    [(A, MP4), (R, WAV), (GEMMA, WAV), (DEEPSEEK, PNG), (G, WAV), (G2, PNG)],
)
def test_unsupported_media_in_a_result_are_reported(target: str, media: Media) -> None:
    ((message, block, _),) = lost(target, *CALLED, seen(media))
    assert (message, block) == (2, 0)
    if target == R:
        assert content(R, seen(WAV))[0]["output"] == "one\n[audio/wav left out: this model takes no audio here]"


def test_media_inside_or_after_a_result() -> None:
    inside = content(G, seen(PNG, linked("pdf")))[0]["functionResponse"]
    assert inside["parts"] == [inline("image/png"), FILE_OF_GEMINI]
    assert content(G, Message.tool([ToolResult("c", "f", (PNG,))]))[0]["functionResponse"]["response"] == {}
    # In a content of their own: beside a response they would count as the model's words.
    _, _, answer, behind = wire(G2, *CALLED, seen(PNG))
    assert [list(part) for part in answer["parts"]] == [["functionResponse"]]
    assert [list(part) for part in behind["parts"]] == [["text"], ["inlineData"]]
    allowed = content("openai-compatible:m", seen(PNG), profile={"tool_result_media": frozenset(["image"])})
    assert [part["type"] for part in allowed[0]["content"]] == ["text", "image_url"]
    # Behind all results, where nothing may come between calls and results.
    calls = Message.assistant(ToolCall("c1", "camera"), ToolCall("c2", "clock"))
    results = [Message.tool([ToolResult("c1", "camera", (ONE, PNG))]), Message.tool([ToolResult("c2", "clock")])]
    found = wire(C, HI, calls, *results, Message.assistant("A cat."))
    assert [message["role"] for message in found] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    note = "[image of the result of camera, call c1]"
    assert found[2]["content"] == f"one\n{note} follows in the next message of the user."
    assert [part.get("text", part["type"]) for part in found[4]["content"]] == [f"{note}:", "image_url"]


def test_blocks_in_messages_of_the_wrong_role_are_reported() -> None:
    wrong = Message(role="user", blocks=(Text("a"), ToolCall("c", "f"), ToolResult("c", "f")))
    for target in (A, C, G, R):
        assert lost(target, wrong) == [(0, 1, "tool_call"), (0, 2, "tool_result")]


# --- what only the provider understands goes back to it ---------------------------------------------------------------

SEARCHED = opaque("anthropic", type="server_tool_use", id="s1", name="web_search", input={})
FOUND = opaque("anthropic", type="web_search_tool_result", tool_use_id="s1", content=[])
ASKING = Message.assistant("a", SEARCHED, ToolCall("t", "add"))
ANSWERED = Message.tool([ToolResult("t", "add")])
BROKEN = Message(role="assistant", blocks=(Text("a"), SEARCHED), stop_reason=StopReason.INTERRUPTED)
PAUSED = Message(role="assistant", blocks=(Text("a"), SEARCHED), stop_reason=StopReason.PAUSED)


@pytest.mark.parametrize(
    ("turns", "kinds"),
    [
        ((HI, Message.assistant("a", SEARCHED, FOUND, "b"), HI), "text server_tool_use web_search_tool_result text"),
        ((HI, PAUSED), "text server_tool_use"),
        ((HI, PAUSED, Message.assistant(FOUND, "b"), HI), "text server_tool_use web_search_tool_result text"),
        # It waits while only results follow, and is left out where its own never came.
        ((HI, ASKING, ANSWERED), "text server_tool_use tool_use"),
        ((HI, ASKING, ANSWERED, Message.assistant(FOUND, "b"), HI), "text server_tool_use tool_use"),
        ((HI, ASKING, ANSWERED, Message.assistant("b"), HI), "text tool_use"),
        ((HI, BROKEN, HI), "text"),
        ((HI, BROKEN), "text"),
    ],
)
def test_calls_that_claude_ran_itself(turns: tuple[Message, ...], kinds: str) -> None:
    assert [block["type"] for block in wire(A, *turns)[1]["content"]] == kinds.split()
    assert lost(A, *turns) == ([] if "server" in kinds else [(1, 1, "opaque")])


def test_thinking_that_is_not_replayed() -> None:
    how = {"profile": {"reasoning_replayed": False}}
    assert lost(A, HI, Message.assistant(HM, "t"), HI) == []
    assert lost(A, HI, Message.assistant(HM, "t"), HI, **how) == [(1, 0, "thinking")]


def test_a_paused_reply_of_gemini_is_continued() -> None:
    chunks = [gemini.chunk(said, finish="CONTINUATION", continuationToken=said) for said in ("one", "two")]
    paused = [gemini.whole(one) for one in chunks]
    body = body_of(G, HI, *paused)
    assert (body["continuationToken"], len(body["contents"])) == ("two", 1)
    later = body_of(G, HI, *paused, HI)
    assert ("continuationToken" in later, len(later["contents"])) == (False, 4)
    assert body_of(G, HI, *paused, extra_body={"continuationToken": "own"})["continuationToken"] == "own"
    foreign = msgspec.structs.replace(paused[0], native=own("anthropic", continuationToken="one"))
    assert len(body_of(G, HI, foreign)["contents"]) == 2


DETAILS = [
    {"type": "reasoning.summary", "summary": "hm", "format": "openai-responses-v1", "index": 0},
    {"type": "reasoning.text", "text": "so", "signature": "sig", "format": "anthropic-claude-v1", "index": 1},
    {"type": "reasoning.encrypted", "data": "secret", "id": "rs_1", "format": "openai-responses-v1", "index": 0},
]
PARTS = [
    {"type": "thinking", "thinking": [text("hm")], "closed": True},
    text("a"),
    {"type": "reference", "reference_ids": [1]},
]
CUSTOM = {"id": "c", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}
WITH_MORE = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra_content": {"s": "abc"}}
IMAGES = [by_url("image", "data:image/png;base64,AAEC")]
SOUND = {"id": "audio_1", "data": "AAEC", "transcript": "Hi"}
NOTED = {"content": "a", "annotations": [{"type": "file"}]}
THOUGHT = {"content": "a", "reasoning": "hm"}


@pytest.mark.parametrize(
    ("provider", "reply", "to", "back"),
    [
        ("vllm", {"content": "a", "reasoning_content": "hm"}, "vllm:m", {"content": "a", "reasoning_content": "hm"}),
        ("vllm", THOUGHT, "vllm:m", THOUGHT),
        ("vllm", {"reasoning": "hm"}, "vllm:m", {"content": "", "reasoning": "hm"}),
        (
            "openrouter",
            {**THOUGHT, "reasoning_details": DETAILS},
            "openrouter:m",
            {"content": "a", "reasoning_details": DETAILS},
        ),
        ("mistral", {"content": PARTS}, "mistral:m", {"content": PARTS}),
        ("openai-compatible", {"tool_calls": [WITH_MORE]}, "openai-compatible:m", {"tool_calls": [WITH_MORE]}),
        ("openai", {"tool_calls": [CUSTOM]}, C, {"tool_calls": [CUSTOM]}),
        ("openai", {"content": None, "refusal": "No."}, C, {"refusal": "No."}),
        ("openai", {"content": None, "refusal": "No."}, "groq:m", {"content": "No."}),
        ("openai", {"content": None, "audio": SOUND}, C, {"audio": {"id": "audio_1"}}),
        ("openrouter", {"content": "a", "images": IMAGES}, "openrouter:m", {"content": "a", "images": IMAGES}),
        ("openrouter", NOTED, "openrouter:m", NOTED),
        # Servers that are strict about unknown members get none back.
        ("openai", NOTED, C, {"content": "a"}),
        ("groq", NOTED, "groq:m", {"content": "a"}),
        ("groq", THOUGHT, "groq:openai/gpt-oss-120b", THOUGHT),
        (
            "deepseek",
            {"tool_calls": [WITH_MORE]},
            "deepseek:deepseek-v4-pro",
            {"content": "", "reasoning_content": "", "tool_calls": [WITH_MORE]},
        ),
    ],
)
def test_replies_of_chat_servers_go_back_as_they_came(
    provider: str, reply: dict[str, Any], to: str, back: dict[str, Any]
) -> None:
    message = read(chat_reply(reply), provider)
    assert content(to, message) == back
    assert lost(to, HI, message) == []


def test_reasoning_goes_back_only_where_the_profile_says_so() -> None:
    message = read(chat_reply(THOUGHT), "groq")
    assert content("groq:qwen/qwen3-32b", message) == {"content": "a"}
    assert lost("groq:qwen/qwen3-32b", HI, message) == [(1, 0, "thinking")]


def test_fields_of_one_server_are_lost_at_another() -> None:
    assert lost("groq:m", HI, read(chat_reply({"content": None, "audio": SOUND}), "openai")) == [(1, 0, "media")]
    assert lost("cerebras:gpt-oss-120b", HI, read(chat_reply(THOUGHT), "groq")) == [(1, 0, "thinking")]
    pieces = stream(chunk({"reasoning": "h"}), chunk({"reasoning": "m"}), chunk({"content": "a"}, "stop"))
    assert content("vllm:m", read(pieces, "vllm")) == THOUGHT
    same = Message(role="assistant", blocks=(Text("a"), Text("b")), provider="openai")
    assert content(C, same) == {"content": "ab"}


PICTURE = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "iVBORw==", "size": "1x1"}
SEARCH = ITEMS["server tools"][0]
HELLO: dict[str, Any] = {"role": "assistant", "content": "Hi"}
BARE_CALL = {name: value for name, value in call_item().items() if name != "id"}
FOREIGN_CALL = {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"a":1}'}
STORED = {"extra_body": {"store": True}}


@pytest.mark.parametrize("items", [*ITEMS.values(), [PICTURE]], ids=[*ITEMS, "picture"])
def test_replies_of_the_responses_api_go_back_as_they_came(items: list[dict[str, Any]]) -> None:
    message = whole(response(*items))
    for one in (message, message_from_json(message_to_json(message))):  # also after having been stored
        assert (wire(R, one), lost(R, one)) == (items, [])


@pytest.mark.parametrize(
    ("items", "target", "how", "sent", "losses"),
    [
        # Nothing follows it.
        ([message_item(), reasoning_item("Hm.")], R, {}, [message_item()], ["thinking"]),
        # Nothing stored, nothing encrypted: it is gone, and what followed must not refer to it by its ids.
        (
            [reasoning_item("Hm.", encrypted_content=None), message_item(), call_item()],
            R,
            {},
            [HELLO, BARE_CALL],
            ["thinking"],
        ),
        ([reasoning_item("Hm."), SEARCH, message_item()], "openai-responses:gpt-4o", {}, [SEARCH, HELLO], ["thinking"]),
        # Where the service remembers items, it wants the search only together with its reasoning.
        (
            [reasoning_item("Hm."), SEARCH, message_item()],
            "openai-responses:gpt-4o",
            STORED,
            [HELLO],
            ["thinking", "opaque"],
        ),
        # The ids and encrypted content of one service mean nothing to another.
        (
            [reasoning_item("Hm."), SEARCH, message_item(), call_item()],
            "azure-responses:gpt-5.6",
            {},
            [HELLO, FOREIGN_CALL],
            ["thinking", "opaque"],
        ),
    ],
)
def test_reasoning_that_cannot_be_sent_back_is_lost(
    items: Any, target: str, how: Any, sent: Any, losses: list[str]
) -> None:
    message = whole(response(*items, status="incomplete"))
    assert wire(target, message, **how) == sent
    assert [what for _, _, what in lost(target, message, **how)] == losses


def test_other_rules_of_the_responses_api() -> None:
    kept = whole(response(reasoning_item("Hm.", encrypted_content=None), message_item(), call_item()))
    assert [item["type"] for item in wire(R, kept, **STORED)] == ["reasoning", "message", "function_call"]
    # Results of calls that a program made say so; the caller of one is not that of another.
    result = Message.tool([ToolResult("call_1", "add", (Text("2"),))])
    caller = {"type": "program", "caller_id": "call_p"}
    assert wire(R, whole(response(call_item(caller=caller))), result)[1]["caller"] == caller
    assert "caller" not in wire(R, whole(response(call_item())), result)[1]
    long = Message.assistant(ToolCall("x" * 100, "add"))
    assert wire("bedrock-mantle:openai.gpt-5.6-luna", long)[0]["call_id"] == "x" * 100
    assert "." not in wire(R, Message.assistant(ToolCall("c", "maths.add")))[0]["name"]


# --- a history that grew turn by turn is sent as one that was never sent before ---------------------------------------

MODELS = [
    ("openai", "gpt-4o"),
    ("mistral", "mistral-large"),
    ("openrouter", "anthropic/claude"),  # marks for the cache
    ("deepseek", "deepseek-chat"),
    ("openai-responses", "gpt-5"),
    ("anthropic", "claude-sonnet-4-5"),
    ("gemini", "gemini-2.5-flash"),
    ("gemini", "gemini-3-pro-preview"),
]
OPTIONS = [ModelOptions(max_tokens=100), ModelOptions(max_tokens=100, cache=True)]
PROFILES = {model: profile_of(*model) for model in MODELS}


def attempt(conversation: Conversation, model: tuple[str, str], options: ModelOptions) -> Encoded | str:
    try:
        return encode(Call(model=model[1], conversation=conversation, profile=PROFILES[model], options=options))
    except ConfigurationError as error:
        return str(error)


def unknown(conversation: Conversation) -> Conversation:
    """An equal one, of which and of whose messages nothing is known."""
    messages = tuple([msgspec.structs.replace(message) for message in conversation.messages])
    return msgspec.structs.replace(conversation, messages=messages)


@settings(max_examples=rounds(400, 8))
@given(
    conversations,
    st.lists(st.integers(0, 20), max_size=4),
    st.sampled_from(MODELS),
    st.lists(st.sampled_from(OPTIONS), min_size=1, max_size=5),
)
def test_an_appended_history_equals_a_new_one(
    history: Conversation, places: list[int], model: tuple[str, str], options: list[ModelOptions]
) -> None:
    history = history.repaired().conversation
    grown, at = history.up_to(0), 0
    stops = sorted({min(place, len(history.messages)) for place in places} | {len(history.messages)})
    for turn, place in enumerate(stops):
        grown, at = grown.plus(*history.messages[at:place]), place
        asked = options[turn % len(options)]
        assert attempt(grown, model, asked) == attempt(unknown(grown), model, asked)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model[0])
@pytest.mark.parametrize("options", OPTIONS, ids=["", "cache"])
def test_branches_and_changed_histories_are_written_correctly(model: tuple[str, str], options: ModelOptions) -> None:
    calls = Message.assistant("Let me look.", ToolCall("1", "f", "{}"), ToolCall("2", "f", "{}"))
    results = Message.tool([ToolResult("1", "f"), ToolResult("2", "f")])
    stem = Conversation("Be brief.").plus(HI, calls, results, Message.assistant("b"), Message.user("c"))
    attempt(stem, model, options)
    more = [stem.plus(Message.assistant(said), HI) for said in ("d", "f")]
    changed = [stem.up_to(1), stem.up_to(3), stem.with_system(None), stem.with_system("Be long.")]
    for branch in [*more, *changed, stem.with_metadata({"x": 1}), stem]:
        assert attempt(branch, model, options) == attempt(unknown(branch), model, options)
