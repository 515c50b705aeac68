"""The official google-genai client against the simulator: whole and streamed, in both colours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from google import genai
from google.genai import errors, types

from dragoman.conversation import StopReason, Text, Thinking, ToolCall, Usage
from dragoman.simulator import ErrorEvent, Reply, Simulator, Status

CALLS = Reply(
    Thinking("They want the weather.", provider=""),
    Text("Let me look."),
    ToolCall("call_a", "weather", '{"city": "Paris"}'),
    ToolCall("call_b", "weather", '{"city": "Zürich"}'),
    usage=Usage(input=50, output=20, cache_read=10, reasoning=5),
)
CONFIG = types.GenerateContentConfig(
    system_instruction="Be brief.",
    tools=[types.Tool(function_declarations=[types.FunctionDeclaration(name="weather")])],
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
)


@contextmanager
def client_of(simulator: Simulator) -> Iterator[genai.Client]:
    options = types.HttpOptions(base_url=simulator.base_url("gemini"))
    client = genai.Client(api_key="dummy", vertexai=False, http_options=options)
    try:
        yield client
    finally:
        client.close()
        asyncio.run(client.aio.aclose())


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator([CALLS]) as running:
        yield running
        assert running.wait_until_idle()
        assert not running.errors


def check(responses: list[types.GenerateContentResponse]) -> None:
    parts = [part for one in responses for part in ((one.candidates or [])[0].content.parts or [])]
    assert "".join(part.text or "" for part in parts if part.thought) == "They want the weather."
    assert "".join(part.text or "" for part in parts if not part.thought) == "Let me look."
    calls = [part.function_call for part in parts if part.function_call]
    assert [(call.id, call.name, call.args) for call in calls] == [
        ("call_a", "weather", {"city": "Paris"}),
        ("call_b", "weather", {"city": "Zürich"}),
    ]
    # The signature of a thought stands on the part that follows it.
    assert [bool(part.thought_signature) for part in parts if not part.thought].count(True) == 1
    last = responses[-1]
    assert last.candidates is not None
    assert last.candidates[0].finish_reason == types.FinishReason.STOP
    assert last.model_version == "gemini-x"
    usage = last.usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count) == (50, 15, 5)
    assert (usage.cached_content_token_count, usage.total_token_count) == (10, 70)


def whole(simulator: Simulator) -> None:
    with client_of(simulator) as client:
        check([client.models.generate_content(model="gemini-x", contents="How is the weather?", config=CONFIG)])


def streamed(simulator: Simulator) -> None:
    with client_of(simulator) as client:
        check(list(client.models.generate_content_stream(model="gemini-x", contents="Weather?", config=CONFIG)))


@pytest.mark.parametrize("talk", [whole, streamed])
def test_the_sync_client(simulator: Simulator, talk: Callable[[Simulator], None]) -> None:
    talk(simulator)


def test_a_chat_with_a_tool_and_thinking() -> None:
    calls = Reply(Thinking("hm", provider=""), ToolCall("c1", "weather", '{"city":"Paris"}'))
    with Simulator([calls, "It is sunny."]) as simulator:
        with client_of(simulator) as client:
            chat = client.chats.create(model="gemini-x", config=CONFIG)
            chat.send_message("How is the weather?")
            answer = types.FunctionResponse(id="c1", name="weather", response={"output": "sun"})
            second = chat.send_message(types.Part(function_response=answer))
        assert second.text == "It is sunny."
        request = simulator.requests[1]
        (heard,) = request.tool_results
        assert (heard.call_id, heard.name, heard.value, heard.is_error) == ("c1", "weather", {"output": "sun"}, False)
        assert (request.turns, request.last_user_text, request.system) == (1, "How is the weather?", "Be brief.")
        assert request.tools == ("weather",)
        assert "thoughtSignature" in request.raw.decode()


@pytest.mark.parametrize(
    ("stop_reason", "word"),
    [
        (StopReason.END, "STOP"),
        (StopReason.MAX_TOKENS, "MAX_TOKENS"),
        (StopReason.CONTENT_FILTER, "SAFETY"),
        (StopReason.REFUSAL, "PROHIBITED_CONTENT"),
        (StopReason.OTHER, "OTHER"),
    ],
)
def test_stop_reasons(stop_reason: StopReason, word: str) -> None:
    script = lambda request: Reply("Some text", stop_reason=stop_reason)  # noqa: E731
    with Simulator(script) as simulator, client_of(simulator) as client:
        response = client.models.generate_content(model="gemini-x", contents="Hi")
        assert response.candidates is not None
        assert response.candidates[0].finish_reason == types.FinishReason(word)


def test_a_prompt_that_is_blocked() -> None:
    script = lambda request: Reply(stop_reason=StopReason.CONTENT_FILTER)  # noqa: E731
    with Simulator(script) as simulator, client_of(simulator) as client:
        response = client.models.generate_content(model="gemini-x", contents="Hi")
        assert not response.candidates
        assert response.prompt_feedback is not None
        assert response.prompt_feedback.block_reason == types.BlockedReason.SAFETY
        (streamed,) = client.models.generate_content_stream(model="gemini-x", contents="Hi")
        assert streamed.prompt_feedback == response.prompt_feedback


@pytest.mark.parametrize(
    ("status", "error", "word"),
    [
        (400, errors.ClientError, "INVALID_ARGUMENT"),
        (403, errors.ClientError, "PERMISSION_DENIED"),
        (404, errors.ClientError, "NOT_FOUND"),
        (429, errors.ClientError, "RESOURCE_EXHAUSTED"),
        (500, errors.ServerError, "INTERNAL"),
        (503, errors.ServerError, "UNAVAILABLE"),
    ],
)
def test_errors(status: int, error: type[errors.APIError], word: str) -> None:
    with Simulator(lambda request: Status(status, "No.")) as simulator, client_of(simulator) as client:
        with pytest.raises(error, match="No.") as caught:
            client.models.generate_content(model="gemini-x", contents="Hi")
        assert (caught.value.code, caught.value.status) == (status, word)
        with pytest.raises(error, match="No."):
            list(client.models.generate_content_stream(model="gemini-x", contents="Hi"))


def test_an_error_in_a_stream() -> None:
    broken = Reply("A text that breaks off", faults=[ErrorEvent(503)])
    with (
        Simulator([broken]) as simulator,
        client_of(simulator) as client,
        pytest.raises(errors.APIError, match="UNAVAILABLE"),
    ):
        list(client.models.generate_content_stream(model="gemini-x", contents="Hi"))
