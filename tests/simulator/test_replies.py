"""Every reply is what the official SDKs' types say, with nothing missing and nothing of a wrong type."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage, RawMessageStreamEvent
from google.genai.types import GenerateContentResponse
from hypothesis import given, settings, strategies as st
from msgspec import Raw
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from dragoman.conversation import Media, Native, Opaque, StopReason, Text, Thinking, ToolCall, ToolResult, Usage
from dragoman.simulator import Chunking, Reply, Simulator
from tests.simulator.raw_client import DIALECTS, Answer, ask
from tests.simulator.reading import said
from tests.strategies import json_values, names, texts

TYPES: dict[tuple[str, bool], Any] = {
    ("openai_chat", False): ChatCompletion,
    ("openai_chat", True): ChatCompletionChunk,
    ("openai_responses", False): Response,
    ("openai_responses", True): ResponseStreamEvent,
    ("anthropic", False): AnthropicMessage,
    ("anthropic", True): RawMessageStreamEvent,
    ("gemini", False): GenerateContentResponse,
    ("gemini", True): GenerateContentResponse,
}
ADAPTERS = {key: TypeAdapter(kind) for key, kind in TYPES.items()}


def validate(dialect: str, answer: Answer, *, stream: bool) -> None:
    values = answer.datas if stream else [answer.json]
    for value in values:
        if value.get("type") != "ping":  # in no type of the SDK, which passes it over
            ADAPTERS[dialect, stream].validate_json(json.dumps(value))


blocks = st.one_of(
    st.builds(Text, text=texts),
    st.builds(
        Thinking,
        text=texts.filter(bool),
        provider=st.just(""),
        signature=st.none() | st.just("c2ln"),
        encrypted=st.none(),
    ),
    st.builds(
        ToolCall,
        id=st.just(""),
        name=names,
        arguments=st.dictionaries(names, json_values, max_size=2).map(json.dumps),
    ),
)
replies = st.builds(
    lambda content, usage, stop, delta: Reply(*content, usage=usage, stop_reason=stop, chunking=Chunking(delta=delta)),
    st.lists(blocks, max_size=4),
    st.none() | st.builds(Usage, input=st.integers(0, 99), output=st.integers(0, 99), reasoning=st.integers(0, 9)),
    st.none() | st.sampled_from([StopReason.MAX_TOKENS, StopReason.REFUSAL, StopReason.CONTENT_FILTER]),
    st.none() | st.integers(1, 20),
)


@pytest.fixture(scope="module")
def simulator() -> Any:
    with Simulator() as running:
        yield running


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("dialect", DIALECTS)
@given(reply=replies)
@settings(max_examples=40)
def test_a_reply_is_of_the_providers_types(simulator: Simulator, dialect: str, stream: bool, reply: Reply) -> None:
    simulator.play([reply])
    answer = ask(simulator, dialect, stream=stream)
    assert answer.status == 200
    validate(dialect, answer, stream=stream)
    found = said(dialect, answer, stream=stream)
    assert found.text == "".join(block.text for block in reply.blocks if isinstance(block, Text))
    assert found.thinking == "".join(block.text for block in reply.blocks if isinstance(block, Thinking))
    calls = [(block.name, block.parsed) for block in reply.blocks if isinstance(block, ToolCall)]
    assert [(name, arguments) for _, name, arguments in found.calls] == calls
    assert len({call_id for call_id, _, _ in found.calls}) == len(calls)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(reply=replies)
@settings(max_examples=20)
def test_a_stream_says_what_the_whole_says(simulator: Simulator, dialect: str, reply: Reply) -> None:
    number = len(simulator.requests)
    simulator.play([reply, reply])
    whole = said(dialect, ask(simulator, dialect, stream=False), stream=False)
    streamed = said(dialect, ask(simulator, dialect, stream=True), stream=True)
    # Ids that were made up, and counts that were, tell two requests apart.
    for found, offset in ((whole, 0), (streamed, 1)):
        found.calls = [(call[0].replace(f"{number + offset:06d}", ""), *call[1:]) for call in found.calls]
        if reply.usage is None:
            found.input = found.output = None
    assert whole == streamed


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_usage_that_is_not_reported(simulator: Simulator, dialect: str, stream: bool) -> None:
    simulator.play([Reply("Hello", usage=Usage())])
    found = said(dialect, ask(simulator, dialect, stream=stream), stream=stream)
    assert (found.input, found.output) == (None, None)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_another_model_and_a_reason_of_its_own(simulator: Simulator, dialect: str, stream: bool) -> None:
    simulator.play([Reply("Hello", model="dated-model", raw_stop_reason="new_reason", headers={"X-Left": "3"})])
    answer = ask(simulator, dialect, stream=stream)
    assert b"dated-model" in answer.body
    assert answer.headers["x-left"] == "3"
    assert said(dialect, answer, stream=stream).stop == "new_reason"


STOPS: dict[str, dict[StopReason, str]] = {
    "openai_chat": {StopReason.MAX_TOKENS: "length", StopReason.CONTENT_FILTER: "content_filter"},
    "openai_responses": {StopReason.MAX_TOKENS: "max_output_tokens", StopReason.CONTENT_FILTER: "content_filter"},
    "anthropic": {
        StopReason.MAX_TOKENS: "max_tokens",
        StopReason.STOP_SEQUENCE: "stop_sequence",
        StopReason.REFUSAL: "refusal",
        StopReason.PAUSED: "pause_turn",
        StopReason.CONTEXT_FULL: "model_context_window_exceeded",
    },
    "gemini": {
        StopReason.MAX_TOKENS: "MAX_TOKENS",
        StopReason.CONTENT_FILTER: "SAFETY",
        StopReason.REFUSAL: "PROHIBITED_CONTENT",
        StopReason.OTHER: "OTHER",
    },
}
USUAL_STOPS = {"openai_chat": "stop", "openai_responses": "completed", "anthropic": "end_turn", "gemini": "STOP"}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_stop_reasons(simulator: Simulator, dialect: str, stream: bool) -> None:
    for reason, word in {StopReason.END: USUAL_STOPS[dialect], **STOPS[dialect]}.items():
        simulator.play([Reply("Some text", stop_reason=reason)])
        assert said(dialect, ask(simulator, dialect, stream=stream), stream=stream).stop == word


READERS = {"openai_chat": "openai_chat:groq"} | {dialect: dialect for dialect in DIALECTS if dialect != "openai_chat"}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_only_one_dialect_knows(simulator: Simulator, dialect: str, stream: bool) -> None:
    opaque = [Opaque(reader, Raw(b'{"type":"novelty","of":"%b"}' % name.encode())) for name, reader in READERS.items()]
    native = Native(READERS[dialect], {"extra_member": Raw(b'{"a":1}')})
    call = ToolCall("c1", "weather", "{}", native=native)
    simulator.play([Reply(*opaque, call, ToolCall("c2", "weather", "{}", native=Native("other", {"no": Raw(b"1")})))])
    body = ask(simulator, dialect, stream=stream).body.decode()
    assert f'"of":"{dialect}"' in body
    assert all(f'"of":"{other}"' not in body for other in DIALECTS if other != dialect)
    assert '"extra_member":{"a":1}' in body
    assert '"no":1' not in body


@pytest.mark.parametrize("dialect", DIALECTS)
def test_broken_arguments_where_a_dialect_can_carry_them(simulator: Simulator, dialect: str) -> None:
    script = [Reply(ToolCall("c1", "weather", '{"city": "Par'))]
    simulator.play(script)
    streamed = ask(simulator, dialect, stream=True)
    simulator.play(script)
    whole = ask(simulator, dialect, stream=False)
    carried = {"openai_chat": (200, 200), "openai_responses": (200, 200), "anthropic": (200, 500), "gemini": (500, 500)}
    assert (streamed.status, whole.status) == carried[dialect]
    for answer in (streamed, whole):
        if answer.status == 500:
            assert "arguments" in answer.json["error"]["message"]


def test_media_by_their_url(simulator: Simulator) -> None:
    picture = Media.from_url("https://host/picture.png")
    simulator.play([Reply(picture), Reply(picture), Reply(Media.from_path("film.mp4"))])
    part = ask(simulator, "gemini").json["candidates"][0]["content"]["parts"][0]
    assert part == {"fileData": {"mimeType": "image/png", "fileUri": "https://host/picture.png"}}
    assert "given as bytes" in ask(simulator, "openai_responses").json["error"]["message"]
    assert "given as bytes" in ask(simulator, "gemini").json["error"]["message"]


def test_thinking_that_is_hidden(simulator: Simulator) -> None:
    hidden = Thinking("", provider="", encrypted="hidden")
    simulator.play([Reply(hidden, "Hello")] * 2)
    assert ask(simulator, "openai_responses").json["output"][0]["encrypted_content"] == "hidden"
    events = ask(simulator, "openai_responses", stream=True).datas
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done[0]["encrypted_content"] == "hidden"


@pytest.mark.parametrize(("dialect", "status"), [("openai_chat", 500), ("anthropic", 500), ("openai_responses", 200)])
def test_media_where_a_dialect_can_carry_them(simulator: Simulator, dialect: str, status: int) -> None:
    simulator.play([Reply("Here:", Media.from_bytes(b"PNG", "image/png"))])
    answer = ask(simulator, dialect)
    assert answer.status == status
    if status == 200:
        assert answer.json["output"][1]["result"] == "UE5H"
    else:
        assert "Media" in answer.json["error"]["message"]
        assert simulator.errors


def test_replies_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="faults=\\[Cut"):
        Reply("Hello", stop_reason=StopReason.INTERRUPTED)
    with pytest.raises(ValueError, match="faults=\\[ErrorEvent"):
        Reply("Hello", stop_reason=StopReason.ERROR)
    with pytest.raises(ValueError, match="put a ToolCall"):
        Reply(ToolResult("c1", "f"))
    with pytest.raises(ValueError, match="at least one"):
        Chunking(delta=0)
