"""The official Anthropic client against the simulator: whole and streamed, in both colours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import pytest
from msgspec import Raw

from dragoman.conversation import Native, Opaque, StopReason, Text, Thinking, ToolCall, Usage
from dragoman.simulator import ErrorEvent, Reply, Simulator, Status

TOOL: Any = {
    "name": "weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALLS = Reply(
    Thinking("They want the weather.", provider="", signature="signed"),
    Thinking("", provider="", encrypted="hidden"),
    Text("Let me look."),
    ToolCall("call_a", "weather", '{"city": "Paris"}'),
    ToolCall("call_b", "today"),
    usage=Usage(input=50, output=20, cache_read=10, cache_write=5, reasoning=7),
)
USER: Any = {"role": "user", "content": "How is the weather?"}
ASKED: Any = {"model": "claude-x", "max_tokens": 100, "messages": [USER], "tools": [TOOL]}


@contextmanager
def client_of(simulator: Simulator) -> Iterator[anthropic.Anthropic]:
    url = simulator.base_url("anthropic")
    with anthropic.Anthropic(base_url=url, api_key="dummy", max_retries=0) as client:
        yield client


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator([CALLS]) as running:
        yield running
        assert running.wait_until_idle()
        assert not running.errors


def check(message: Any) -> None:
    thinking, redacted, text, first, second = message.content
    assert (thinking.thinking, thinking.signature) == ("They want the weather.", "signed")
    assert redacted.data == "hidden"
    assert text.text == "Let me look."
    assert (first.id, first.name, first.input) == ("call_a", "weather", {"city": "Paris"})
    assert (second.id, second.name, second.input) == ("call_b", "today", {})
    assert message.stop_reason == "tool_use"
    assert message.model == "claude-x"
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (35, 10, 5)
    assert (usage.output_tokens, usage.output_tokens_details.thinking_tokens) == (20, 7)


def whole(simulator: Simulator) -> None:
    with client_of(simulator) as client:
        check(client.messages.create(**ASKED))


def streamed(simulator: Simulator) -> None:
    with client_of(simulator) as client, client.messages.stream(**ASKED) as stream:
        kinds = [event.type for event in stream]
        check(stream.get_final_message())
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
    assert {"text", "thinking", "signature", "input_json"} <= set(kinds)


@pytest.mark.parametrize("talk", [whole, streamed])
def test_the_sync_client(simulator: Simulator, talk: Callable[[Simulator], None]) -> None:
    talk(simulator)


def test_a_conversation_with_a_tool_and_thinking() -> None:
    calls = Reply(Thinking("hm", provider=""), ToolCall("c1", "weather", '{"city":"Paris"}'))
    with Simulator([calls, "It is sunny."]) as simulator:
        with client_of(simulator) as client:
            first = client.messages.create(**ASKED)
            result: Any = {"type": "tool_result", "tool_use_id": "c1", "content": "no idea", "is_error": True}
            reply: Any = {"role": "assistant", "content": [block.model_dump() for block in first.content]}
            history = [USER, reply, {"role": "user", "content": [result]}]
            second = client.messages.create(**{**ASKED, "messages": history, "system": "Be brief."})
        assert [block.type for block in second.content] == ["text"]
        request = simulator.requests[1]
        (heard,) = request.tool_results
        assert (heard.call_id, heard.name, heard.text, heard.is_error) == ("c1", "weather", "no idea", True)
        assert (request.turns, request.last_user_text, request.system) == (1, "How is the weather?", "Be brief.")
        assert request.tools == ("weather",)


def test_a_signature_that_was_spoilt() -> None:
    with Simulator([Reply(Thinking("hm", provider=""), "Hello"), "Bye"]) as simulator, client_of(simulator) as client:
        content: Any = [block.model_dump() for block in client.messages.create(**ASKED).content]
        content[0]["thinking"] = "hm, changed"
        history = [USER, {"role": "assistant", "content": content}, USER]
        with pytest.raises(anthropic.BadRequestError, match="Invalid `signature` in `thinking` block"):
            client.messages.create(**{**ASKED, "messages": history})


def test_what_only_this_dialect_knows() -> None:
    search = Opaque("anthropic", Raw(b'{"type":"server_tool_use","id":"s1","name":"web_search","input":{"query":"x"}}'))
    cited = Text("So it says.", native=Native("anthropic", {"citations": Raw(b"[]")}))
    foreign = Opaque("gemini", Raw(b'{"executableCode":{}}'))
    with Simulator(lambda request: Reply(search, foreign, cited)) as simulator, client_of(simulator) as client:
        message = client.messages.create(**ASKED)
        assert [block.type for block in message.content] == ["server_tool_use", "text"]
        assert message.content[1].citations == []
        with client.messages.stream(**ASKED) as stream:
            assert [block.type for block in stream.get_final_message().content] == ["server_tool_use", "text"]


@pytest.mark.parametrize(
    ("stop_reason", "word"),
    [
        (StopReason.END, "end_turn"),
        (StopReason.MAX_TOKENS, "max_tokens"),
        (StopReason.STOP_SEQUENCE, "stop_sequence"),
        (StopReason.REFUSAL, "refusal"),
        (StopReason.PAUSED, "pause_turn"),
        (StopReason.CONTEXT_FULL, "model_context_window_exceeded"),
    ],
)
def test_stop_reasons(stop_reason: StopReason, word: str) -> None:
    script = lambda request: Reply("Some text", stop_reason=stop_reason)  # noqa: E731
    with Simulator(script) as simulator, client_of(simulator) as client:
        message = client.messages.create(**ASKED, stop_sequences=["STOP"])
        assert message.stop_reason == word
        assert message.stop_sequence == ("STOP" if word == "stop_sequence" else None)
        with client.messages.stream(**ASKED) as stream:
            assert stream.get_final_message().stop_reason == word


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, anthropic.BadRequestError, "invalid_request_error"),
        (401, anthropic.AuthenticationError, "authentication_error"),
        (403, anthropic.PermissionDeniedError, "permission_error"),
        (404, anthropic.NotFoundError, "not_found_error"),
        (429, anthropic.RateLimitError, "rate_limit_error"),
        (500, anthropic.InternalServerError, "api_error"),
        (529, anthropic.APIStatusError, "overloaded_error"),
    ],
)
def test_errors(status: int, error: type[anthropic.APIStatusError], kind: str) -> None:
    with Simulator([Status(status, "No.")]) as simulator, client_of(simulator) as client:
        with pytest.raises(error, match="No.") as caught:
            client.messages.create(**ASKED)
        assert (caught.value.status_code, caught.value.type) == (status, kind)
        assert caught.value.request_id == "req_sim000000"


def test_an_error_in_a_stream() -> None:
    broken = Reply("A text that breaks off", faults=[ErrorEvent(529)])
    with (
        Simulator([broken]) as simulator,
        client_of(simulator) as client,
        client.messages.stream(**ASKED) as stream,
        pytest.raises(anthropic.APIStatusError, match="overloaded_error"),
    ):
        stream.get_final_message()
