"""Every reply is valid for the types of the official SDKs."""

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

from dragoman.conversation import Citation, Opaque, StopReason, Text, Thinking, ToolCall, ToolResult, Usage
from dragoman.simulator import Reply, Simulator
from tests.simulator.raw_client import DIALECTS, Answer, ask, said
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


blocks = st.one_of(
    st.builds(Text, text=texts, citations=st.sampled_from([(), (Citation(url="https://w"),)])),
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
    # Without content, a filter has blocked the prompt: another story.
    lambda content, usage, stop, delta: Reply(
        *content, usage=usage, stop_reason=stop if content else None, delta=delta
    ),
    st.lists(blocks, max_size=4),
    st.none() | st.builds(Usage, input=st.integers(0, 99), output=st.integers(0, 99), reasoning=st.integers(0, 9)),
    st.none() | st.sampled_from([StopReason.MAX_TOKENS, StopReason.REFUSAL, StopReason.CONTENT_FILTER]),
    st.integers(0, 20),
)

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def whole_and_streamed(simulator: Simulator, dialect: str, reply: Reply) -> list[Answer]:
    simulator.play([reply, reply])
    return [ask(simulator, dialect, stream=stream) for stream in (False, True)]


@every_dialect
@given(reply=replies)
@settings(max_examples=40)
def test_reply_matches_the_sdk_types_whole_and_streamed(simulator: Simulator, dialect: str, reply: Reply) -> None:
    number = len(simulator.requests)
    results = []
    for stream, answer in enumerate(whole_and_streamed(simulator, dialect, reply)):
        for value in answer.datas if stream else [answer.json]:
            if value.get("type") != "ping":  # in no type of the SDK, which passes it over
                ADAPTERS[dialect, bool(stream)].validate_json(json.dumps(value))
        found = said(dialect, answer, stream=bool(stream))
        assert found.text == "".join(block.text for block in reply.blocks if isinstance(block, Text))
        assert found.thinking == "".join(block.text for block in reply.blocks if isinstance(block, Thinking))
        calls = [(block.name, block.parsed) for block in reply.blocks if isinstance(block, ToolCall)]
        assert [(name, arguments) for _, name, arguments in found.calls] == calls
        assert len({call_id for call_id, _, _ in found.calls}) == len(calls)
        # Ids that were made up, and counts that were, tell two requests apart.
        found.calls = [(call[0].replace(f"{number + stream:06d}", ""), *call[1:]) for call in found.calls]
        if reply.usage is None:
            found.input = found.output = None
        results.append(found)
    assert results[0] == results[1]


STOPS: dict[str, dict[StopReason, str]] = {
    "openai_chat": {
        StopReason.END: "stop",
        StopReason.MAX_TOKENS: "length",
        StopReason.CONTENT_FILTER: "content_filter",
    },
    "openai_responses": {
        StopReason.END: "completed",
        StopReason.MAX_TOKENS: "max_output_tokens",
        StopReason.CONTENT_FILTER: "content_filter",
    },
    "anthropic": {
        StopReason.END: "end_turn",
        StopReason.MAX_TOKENS: "max_tokens",
        StopReason.STOP_SEQUENCE: "stop_sequence",
        StopReason.REFUSAL: "refusal",
        StopReason.PAUSED: "pause_turn",
        StopReason.CONTEXT_FULL: "model_context_window_exceeded",
    },
    "gemini": {
        StopReason.END: "STOP",
        StopReason.MAX_TOKENS: "MAX_TOKENS",
        StopReason.CONTENT_FILTER: "SAFETY",
        StopReason.REFUSAL: "PROHIBITED_CONTENT",
        StopReason.OTHER: "OTHER",
    },
}


@every_dialect
def test_usage_headers_and_stop_reasons_of_a_reply(simulator: Simulator, dialect: str) -> None:
    reply = Reply("Hello", usage=Usage(), headers={"X-Left": "3"})
    for stream, answer in enumerate(whole_and_streamed(simulator, dialect, reply)):
        assert answer.headers["x-left"] == "3"
        found = said(dialect, answer, stream=bool(stream))
        assert (found.input, found.output) == (None, None)
    for reason, word in STOPS[dialect].items():
        for stream, answer in enumerate(whole_and_streamed(simulator, dialect, Reply("Text", stop_reason=reason))):
            assert said(dialect, answer, stream=bool(stream)).stop == word


@every_dialect
def test_invalid_arguments_are_sent_if_the_dialect_allows_it(simulator: Simulator, dialect: str) -> None:
    answers = whole_and_streamed(simulator, dialect, Reply(ToolCall("c1", "weather", '{"city": "Par')))
    carried = {"anthropic": [500, 200], "gemini": [500, 500]}.get(dialect, [200, 200])
    assert [answer.status for answer in answers] == carried
    assert all("arguments" in answer.json["error"]["message"] for answer in answers if answer.status == 500)


def test_encrypted_thinking(simulator: Simulator) -> None:
    hidden = Reply(Thinking("", provider="", encrypted="hidden"), "Hello")
    whole, streamed = whole_and_streamed(simulator, "openai_responses", hidden)
    assert whole.json["output"][0]["encrypted_content"] == "hidden"
    assert streamed.datas[-1]["response"]["output"][0]["encrypted_content"] == "hidden"


def test_invalid_replies_are_refused() -> None:
    for reason in (StopReason.INTERRUPTED, StopReason.ERROR):
        with pytest.raises(ValueError, match="faults=\\[Cut"):
            Reply("Hello", stop_reason=reason)
    with pytest.raises(ValueError, match="not ToolResult"):
        Reply(ToolResult("c1", "f"))
    with pytest.raises(ValueError, match="number of characters"):
        Reply("Hello", delta=-1)


@every_dialect
def test_opaque_block_is_sent_only_in_its_dialect(simulator: Simulator, dialect: str) -> None:
    words = Raw(b'{"type":"new_thing","novelty":{"a":[1,null]}}')
    for answer in whole_and_streamed(simulator, dialect, Reply(Opaque(dialect, words), "a")):
        assert answer.status == 200
        assert b'"novelty":{"a":[1,null]}' in answer.body
    for answer in whole_and_streamed(simulator, dialect, Reply(Opaque("elsewhere", words))):
        assert answer.status == 500
        assert "'elsewhere' cannot be sent" in answer.json["error"]["message"]
