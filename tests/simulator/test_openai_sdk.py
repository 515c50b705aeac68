"""The official OpenAI client against the simulator: both dialects, whole and streamed, in both colours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from dragoman.conversation import StopReason, Text, Thinking, ToolCall, Usage
from dragoman.simulator import ErrorEvent, Reply, Simulator, Status

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
RESPONSES_TOOL = {"type": "function", "strict": False, **TOOL["function"]}
CALLS = Reply(
    Thinking("They want the weather.", provider=""),
    Text("Let me look."),
    ToolCall("call_a", "weather", '{"city": "Paris"}'),
    ToolCall("call_b", "weather", '{"city": "Zürich"}'),
    usage=Usage(input=50, output=20, cache_read=10, reasoning=5),
)
USER: Any = {"role": "user", "content": "How is the weather?"}


@contextmanager
def client_of(simulator: Simulator, **options: Any) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=simulator.base_url("openai"), api_key="sk-dummy", max_retries=0, **options) as client:
        yield client


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator([CALLS]) as running:
        yield running
        assert running.wait_until_idle()
        assert not running.errors


# --- chat ------------------------------------------------------------------------------------------------------------


def check_completion(completion: Any) -> None:
    """The same reply, whole or put together from a stream by the SDK."""
    message = completion.choices[0].message
    assert completion.choices[0].finish_reason == "tool_calls"
    assert message.content == "Let me look."
    assert message.reasoning_content == "They want the weather."
    assert [(call.id, call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls] == [
        ("call_a", "weather", {"city": "Paris"}),
        ("call_b", "weather", {"city": "Zürich"}),
    ]
    assert completion.usage.prompt_tokens == 50
    assert completion.usage.prompt_tokens_details.cached_tokens == 10
    assert completion.usage.completion_tokens == 20
    assert completion.usage.completion_tokens_details.reasoning_tokens == 5
    assert completion.usage.total_tokens == 70


def chat_whole(simulator: Simulator) -> None:
    with client_of(simulator) as client:
        check_completion(client.chat.completions.create(model="gpt-x", messages=[USER], tools=[TOOL]))


def chat_stream(simulator: Simulator) -> None:
    options: Any = {"stream_options": {"include_usage": True}, "tools": [TOOL]}
    with client_of(simulator) as client:
        with client.chat.completions.stream(model="gpt-x", messages=[USER], **options) as stream:
            deltas = [event.delta for event in stream if event.type == "content.delta"]
            check_completion(stream.get_final_completion())
        assert "".join(deltas) == "Let me look."


def chat_raw_stream(simulator: Simulator) -> None:
    with (
        client_of(simulator) as client,
        client.chat.completions.create(model="gpt-x", messages=[USER], stream=True) as stream,
    ):
        chunks = list(stream)
    assert all(chunk.usage is None for chunk in chunks)  # it was not asked for
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


# --- responses -------------------------------------------------------------------------------------------------------


def check_response(response: Any) -> None:
    reasoning, message, *calls = response.output
    assert response.status == "completed"
    assert response.output_text == "Let me look."
    assert message.content[0].text == "Let me look."
    assert [part.text for part in reasoning.summary] == ["They want the weather."]
    assert reasoning.encrypted_content
    assert [(call.call_id, call.name, json.loads(call.arguments)) for call in calls] == [
        ("call_a", "weather", {"city": "Paris"}),
        ("call_b", "weather", {"city": "Zürich"}),
    ]
    assert response.usage.input_tokens == 50
    assert response.usage.input_tokens_details.cached_tokens == 10
    assert response.usage.output_tokens_details.reasoning_tokens == 5
    assert response.usage.total_tokens == 70
    assert response.instructions == "Be brief."
    assert response.tools[0].name == "weather"


ASKED: Any = {
    "model": "gpt-x",
    "input": "How is the weather?",
    "instructions": "Be brief.",
    "include": ["reasoning.encrypted_content"],
    "tools": [RESPONSES_TOOL],
}


def responses_whole(simulator: Simulator) -> None:
    with client_of(simulator) as client:
        check_response(client.responses.create(**ASKED))


def responses_stream(simulator: Simulator) -> None:
    with client_of(simulator) as client, client.responses.stream(**ASKED) as stream:
        events = list(stream)
        check_response(stream.get_final_response())
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Let me look."
    assert [event.sequence_number for event in events] == list(range(len(events)))


@pytest.mark.parametrize("talk", [chat_whole, chat_stream, chat_raw_stream, responses_whole, responses_stream])
def test_the_sync_client(simulator: Simulator, talk: Callable[[Simulator], None]) -> None:
    talk(simulator)


# --- conversations, structured replies, errors -----------------------------------------------------------------------


def test_a_conversation_with_a_tool() -> None:
    with Simulator([Reply(ToolCall("", "weather", '{"city":"Paris"}')), "It is sunny."]) as simulator:
        with client_of(simulator) as client:
            first = client.chat.completions.create(model="gpt-x", messages=[USER], tools=[TOOL])
            message = first.choices[0].message
            assert message.tool_calls is not None
            result: Any = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sun"}
            history: Any = [USER, message.model_dump(exclude_none=True), result]
            second = client.chat.completions.create(model="gpt-x", messages=history, tools=[TOOL])
        assert second.choices[0].message.content == "It is sunny."
        (heard,) = simulator.requests[1].tool_results
        assert (heard.call_id, heard.name, heard.text) == ("call_sim000000_0", "weather", "sun")


def test_a_conversation_with_a_tool_and_thinking_in_responses() -> None:
    script = [Reply(Thinking("hm", provider=""), ToolCall("c1", "weather", '{"city":"Paris"}')), "It is sunny."]
    with Simulator(script) as simulator:
        with client_of(simulator) as client:
            first = client.responses.create(**ASKED)
            history = [{"role": "user", "content": "How is the weather?"}]
            history += [item.model_dump(exclude_none=True) for item in first.output]
            history.append({"type": "function_call_output", "call_id": "c1", "output": "sun"})
            second = client.responses.create(**{**ASKED, "input": history})
        assert second.output_text == "It is sunny."
        request = simulator.requests[1]
        assert (request.tool_results[0].name, request.tool_results[0].text) == ("weather", "sun")
        assert (request.turns, request.last_user_text, request.system) == (1, "How is the weather?", "Be brief.")


@pytest.mark.parametrize(
    ("stop_reason", "finish_reason", "status"),
    [
        (StopReason.MAX_TOKENS, "length", "incomplete"),
        (StopReason.CONTENT_FILTER, "content_filter", "incomplete"),
        (StopReason.STOP_SEQUENCE, "stop", "completed"),
        (StopReason.END, "stop", "completed"),
    ],
)
def test_stop_reasons(stop_reason: StopReason, finish_reason: str, status: str) -> None:
    script = lambda request: Reply("Some text", stop_reason=stop_reason)  # noqa: E731
    with Simulator(script) as simulator, client_of(simulator) as client:
        completion = client.chat.completions.create(model="gpt-x", messages=[USER])
        assert completion.choices[0].finish_reason == finish_reason
        assert client.responses.create(model="gpt-x", input="Hi").status == status
        with client.responses.stream(model="gpt-x", input="Hi") as stream:
            assert list(stream)[-1].type == f"response.{status}"


def test_a_refusal() -> None:
    script = lambda request: Reply("I would rather not.", stop_reason=StopReason.REFUSAL)  # noqa: E731
    with Simulator(script) as simulator, client_of(simulator) as client:
        message = client.chat.completions.create(model="gpt-x", messages=[USER]).choices[0].message
        assert (message.content, message.refusal) == (None, "I would rather not.")
        with client.chat.completions.stream(model="gpt-x", messages=[USER]) as stream:
            assert stream.get_final_completion().choices[0].message.refusal == "I would rather not."
        with client.responses.stream(model="gpt-x", input="Hi") as responses:
            item: Any = responses.get_final_response().output[0]
        assert item.content[0].refusal == "I would rather not."


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ],
)
def test_errors(status: int, error: type[openai.APIStatusError]) -> None:
    with Simulator([Status(status, "No."), Status(status, "No.")]) as simulator, client_of(simulator) as client:
        with pytest.raises(error, match="No.") as caught:
            client.chat.completions.create(model="gpt-x", messages=[USER])
        assert caught.value.request_id == "req_sim000000"
        with pytest.raises(error):
            client.responses.create(model="gpt-x", input="Hi")


def test_errors_in_a_stream() -> None:
    broken = Reply("A text that breaks off", faults=[ErrorEvent(500, "It broke.")])
    nested = Reply("A text that breaks off", faults=[ErrorEvent(500, "It broke.", form="nested")])
    failed = Reply("A text that breaks off", faults=[ErrorEvent(500, "It broke.", form="failed")])
    with Simulator([broken, broken, nested, failed]) as simulator, client_of(simulator) as client:
        with pytest.raises(openai.APIError, match="It broke"):
            list(client.chat.completions.create(model="gpt-x", messages=[USER], stream=True))
        events = list(client.responses.create(model="gpt-x", input="Hi", stream=True))
        assert events[-1].type == "error"
        with pytest.raises(openai.APIError, match="It broke"):
            list(client.responses.create(model="gpt-x", input="Hi", stream=True))
        last: Any = list(client.responses.create(model="gpt-x", input="Hi", stream=True))[-1]
        assert last.response.error.message == "It broke."
