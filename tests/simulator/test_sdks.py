"""The official clients of OpenAI, Anthropic and Google against the simulator, whole and streamed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import openai
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
EXPECTED = [("call_a", "weather", {"city": "Paris"}), ("call_b", "weather", {"city": "Zürich"})]
ONE_CALL = Reply(Thinking("hm", provider=""), ToolCall("c1", "weather", '{"city":"Paris"}'))
USER: Any = {"role": "user", "content": "How is the weather?"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator([CALLS, CALLS]) as running:
        yield running
        assert running.wait_until_idle()
        assert not running.errors


@contextmanager
def openai_of(simulator: Simulator) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=simulator.base_url("openai"), api_key="sk-dummy", max_retries=0) as client:
        yield client


@contextmanager
def anthropic_of(simulator: Simulator) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=simulator.base_url("anthropic"), api_key="dummy", max_retries=0) as client:
        yield client


@contextmanager
def gemini_of(simulator: Simulator) -> Iterator[genai.Client]:
    options = types.HttpOptions(base_url=simulator.base_url("gemini"))
    client = genai.Client(api_key="dummy", vertexai=False, http_options=options)
    try:
        yield client
    finally:
        client.close()
        asyncio.run(client.aio.aclose())


# --- OpenAI, chat ----------------------------------------------------------------------------------------------------

TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
CHAT: Any = {"model": "gpt-x", "messages": [USER], "tools": [TOOL]}


def check_completion(completion: Any) -> None:
    """The same reply, whole or put together from a stream by the SDK."""
    message, usage = completion.choices[0].message, completion.usage
    assert completion.choices[0].finish_reason == "tool_calls"
    assert (message.content, message.reasoning_content) == ("Let me look.", "They want the weather.")
    calls = [(call.id, call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls]
    assert calls == EXPECTED
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (50, 20, 70)
    assert usage.prompt_tokens_details.cached_tokens == 10
    assert usage.completion_tokens_details.reasoning_tokens == 5


def test_chat(simulator: Simulator) -> None:
    with openai_of(simulator) as client:
        check_completion(client.chat.completions.create(**CHAT))
        with client.chat.completions.stream(**CHAT, stream_options={"include_usage": True}) as stream:
            deltas = [event.delta for event in stream if event.type == "content.delta"]
            check_completion(stream.get_final_completion())
    assert "".join(deltas) == "Let me look."


def test_choices_are_all_the_same() -> None:
    with Simulator(lambda request: CALLS) as simulator, openai_of(simulator) as client:
        for choice in client.chat.completions.create(**CHAT, n=3).choices:
            assert [call.id for call in choice.message.tool_calls or []] == ["call_a", "call_b"]
        with client.chat.completions.stream(**CHAT, n=3) as stream:
            choices = stream.get_final_completion().choices
        assert [choice.index for choice in choices] == [0, 1, 2]
        assert {choice.message.content for choice in choices} == {"Let me look."}
        with pytest.raises(openai.BadRequestError, match="Invalid 'n'"):
            client.chat.completions.create(**CHAT, n=200)


def test_token_counts() -> None:
    """They ask no script."""
    with Simulator([]) as simulator:
        with anthropic_of(simulator) as claude:
            counted = claude.messages.count_tokens(model="claude-x", messages=[USER]).input_tokens
            assert counted == len(simulator.requests[0].raw) // 4
        with openai_of(simulator) as client:
            assert client.responses.input_tokens.count(model="gpt-x", input="How is the weather?").input_tokens > 5
        with gemini_of(simulator) as gemini:
            assert (gemini.models.count_tokens(model="gemini-x", contents="How is it?").total_tokens or 0) > 5
        assert not simulator.errors


def test_chat_stream_has_usage_only_on_request() -> None:
    with Simulator([CALLS]) as simulator, openai_of(simulator) as client:
        chunks = list(client.chat.completions.create(**CHAT, stream=True))
    assert all(chunk.usage is None for chunk in chunks)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_a_chat_with_a_tool() -> None:
    with Simulator([Reply(ToolCall("", "weather", '{"city":"Paris"}')), "It is sunny."]) as simulator:
        with openai_of(simulator) as client:
            message = client.chat.completions.create(**CHAT).choices[0].message
            assert message.tool_calls is not None
            result: Any = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sun"}
            history: Any = [USER, message.model_dump(exclude_none=True), result]
            second = client.chat.completions.create(**{**CHAT, "messages": history})
        assert second.choices[0].message.content == "It is sunny."
        (heard,) = simulator.requests[1].tool_results
        assert (heard.call_id, heard.name, heard.text) == ("call_sim000000_0", "weather", "sun")


# --- OpenAI, responses -----------------------------------------------------------------------------------------------

ASKED: Any = {
    "model": "gpt-x",
    "input": "How is the weather?",
    "instructions": "Be brief.",
    "include": ["reasoning.encrypted_content"],
    "tools": [{"type": "function", "strict": False, "name": "weather", "parameters": SCHEMA}],
}


def check_response(response: Any) -> None:
    reasoning, message, *calls = response.output
    assert (response.status, response.output_text) == ("completed", "Let me look.")
    assert message.content[0].text == "Let me look."
    assert [part.text for part in reasoning.summary] == ["They want the weather."]
    assert reasoning.encrypted_content
    assert [(call.call_id, call.name, json.loads(call.arguments)) for call in calls] == EXPECTED
    usage = response.usage
    assert (usage.input_tokens, usage.total_tokens) == (50, 70)
    assert (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens) == (10, 5)
    assert (response.instructions, response.tools[0].name) == ("Be brief.", "weather")


def test_responses(simulator: Simulator) -> None:
    with openai_of(simulator) as client:
        check_response(client.responses.create(**ASKED))
        with client.responses.stream(**ASKED) as stream:
            events = list(stream)
            check_response(stream.get_final_response())
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Let me look."
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_responses_with_a_tool_and_thinking() -> None:
    with Simulator([ONE_CALL, "It is sunny."]) as simulator:
        with openai_of(simulator) as client:
            first = client.responses.create(**ASKED)
            history = [USER, *(item.model_dump(exclude_none=True) for item in first.output)]
            history.append({"type": "function_call_output", "call_id": "c1", "output": "sun"})
            second = client.responses.create(**{**ASKED, "input": history})
        assert second.output_text == "It is sunny."
        request = simulator.requests[1]
        assert (request.tool_results[0].name, request.tool_results[0].text) == ("weather", "sun")
        assert (request.turns, request.last_user_text, request.system) == (1, "How is the weather?", "Be brief.")


def test_a_refusal() -> None:
    script = lambda request: Reply("I would rather not.", stop_reason=StopReason.REFUSAL)  # noqa: E731
    with Simulator(script) as simulator, openai_of(simulator) as client:
        message = client.chat.completions.create(**CHAT).choices[0].message
        assert (message.content, message.refusal) == (None, "I would rather not.")
        with client.chat.completions.stream(**CHAT) as stream:
            assert stream.get_final_completion().choices[0].message.refusal == "I would rather not."
        with client.responses.stream(**ASKED) as responses:
            item: Any = responses.get_final_response().output[0]
        assert item.content[0].refusal == "I would rather not."


def test_errors_of_openai() -> None:
    with Simulator([Status(429, "No."), Status(503, "No.")]) as simulator, openai_of(simulator) as client:
        with pytest.raises(openai.RateLimitError, match="No.") as caught:
            client.chat.completions.create(**CHAT)
        assert caught.value.request_id == "req_sim000000"
        with pytest.raises(openai.InternalServerError):
            client.responses.create(**ASKED)


def test_errors_in_a_stream_of_openai() -> None:
    script = [Reply("A text that breaks off", faults=[ErrorEvent(500, "It broke.")])] * 2
    with Simulator(script) as simulator, openai_of(simulator) as client:
        with pytest.raises(openai.APIError, match="It broke"):
            list(client.chat.completions.create(**CHAT, stream=True))
        assert list(client.responses.create(**ASKED, stream=True))[-1].type == "error"


# --- Anthropic -------------------------------------------------------------------------------------------------------

MESSAGE: Any = {
    "model": "claude-x",
    "max_tokens": 100,
    "messages": [USER],
    "tools": [{"name": "weather", "input_schema": SCHEMA}],
}


def check_message(message: Any) -> None:
    thinking, redacted, text, first, second = message.content
    assert (thinking.thinking, thinking.signature) == ("They want the weather.", "signed")
    assert (redacted.data, text.text) == ("hidden", "Let me look.")
    assert (first.id, first.name, first.input) == ("call_a", "weather", {"city": "Paris"})
    assert (second.id, second.name, second.input) == ("call_b", "today", {})
    assert (message.stop_reason, message.model) == ("tool_use", "claude-x")
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (35, 10, 5)
    assert (usage.output_tokens, usage.output_tokens_details.thinking_tokens) == (20, 7)


def test_messages() -> None:
    reply = Reply(
        Thinking("They want the weather.", provider="", signature="signed"),
        Thinking("", provider="", encrypted="hidden"),
        Text("Let me look."),
        ToolCall("call_a", "weather", '{"city": "Paris"}'),
        ToolCall("call_b", "today"),
        usage=Usage(input=50, output=20, cache_read=10, cache_write=5, reasoning=7),
    )
    with Simulator([reply, reply]) as simulator, anthropic_of(simulator) as client:
        check_message(client.messages.create(**MESSAGE))
        with client.messages.stream(**MESSAGE) as stream:
            kinds = [event.type for event in stream]
            check_message(stream.get_final_message())
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert {"text", "thinking", "signature", "input_json"} <= set(kinds)


def test_messages_with_a_tool_and_thinking() -> None:
    with Simulator([ONE_CALL, "It is sunny.", "Bye"]) as simulator, anthropic_of(simulator) as client:
        content: Any = [block.model_dump() for block in client.messages.create(**MESSAGE).content]
        result: Any = {"type": "tool_result", "tool_use_id": "c1", "content": "no idea", "is_error": True}
        history = [USER, {"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
        second = client.messages.create(**{**MESSAGE, "messages": history, "system": "Be brief."})
        assert [block.type for block in second.content] == ["text"]
        request = simulator.requests[1]
        (heard,) = request.tool_results
        assert (heard.call_id, heard.name, heard.text, heard.is_error) == ("c1", "weather", "no idea", True)
        assert (request.turns, request.last_user_text, request.system) == (1, "How is the weather?", "Be brief.")
        assert request.tools == ("weather",)
        content[0]["thinking"] = "hm, changed"
        with pytest.raises(anthropic.BadRequestError, match="Invalid `signature` in `thinking` block"):
            client.messages.create(**{**MESSAGE, "messages": history})


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
def test_errors_of_anthropic(status: int, error: type[anthropic.APIStatusError], kind: str) -> None:
    broken = Reply("A text that breaks off", faults=[ErrorEvent(status)])
    with Simulator([Status(status, "No."), broken]) as simulator, anthropic_of(simulator) as client:
        with pytest.raises(error, match="No.") as caught:
            client.messages.create(**MESSAGE)
        assert (caught.value.status_code, caught.value.type) == (status, kind)
        assert caught.value.request_id == "req_sim000000"
        with client.messages.stream(**MESSAGE) as stream, pytest.raises(anthropic.APIStatusError, match=kind):
            stream.get_final_message()


# --- Gemini ----------------------------------------------------------------------------------------------------------

CONFIG = types.GenerateContentConfig(
    system_instruction="Be brief.",
    tools=[types.Tool(function_declarations=[types.FunctionDeclaration(name="weather")])],
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
)
CONTENT: Any = {"model": "gemini-x", "contents": "How is the weather?", "config": CONFIG}


def check_contents(responses: list[types.GenerateContentResponse]) -> None:
    parts: list[Any] = [part for one in responses for part in ((one.candidates or [])[0].content.parts or [])]
    assert "".join(part.text or "" for part in parts if part.thought) == "They want the weather."
    assert "".join(part.text or "" for part in parts if not part.thought) == "Let me look."
    calls = [part.function_call for part in parts if part.function_call]
    assert [(call.id, call.name, call.args) for call in calls] == EXPECTED
    # The signature of a thought is on the next part.
    assert [bool(part.thought_signature) for part in parts if not part.thought].count(True) == 1
    last: Any = responses[-1]
    assert last.candidates[0].finish_reason == types.FinishReason.STOP
    assert last.model_version == "gemini-x"
    usage = last.usage_metadata
    assert (usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count) == (50, 15, 5)
    assert (usage.cached_content_token_count, usage.total_token_count) == (10, 70)


def test_contents(simulator: Simulator) -> None:
    with gemini_of(simulator) as client:
        check_contents([client.models.generate_content(**CONTENT)])
        check_contents(list(client.models.generate_content_stream(**CONTENT)))


def test_candidates_are_all_the_same() -> None:
    several = CONFIG.model_copy(update={"candidate_count": 2})
    with Simulator(lambda request: CALLS) as simulator, gemini_of(simulator) as client:
        whole = client.models.generate_content(**{**CONTENT, "config": several})
        streamed = list(client.models.generate_content_stream(**{**CONTENT, "config": several}))
        for response in (whole, *streamed):
            first, second = response.candidates or []
            assert (first.index, second.index) == (0, 1)
            assert first.content == second.content


def test_contents_with_a_tool_and_thinking() -> None:
    with Simulator([ONE_CALL, "It is sunny."]) as simulator:
        with gemini_of(simulator) as client:
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


def test_blocked_prompt() -> None:
    script = lambda request: Reply(stop_reason=StopReason.CONTENT_FILTER)  # noqa: E731
    with Simulator(script) as simulator, gemini_of(simulator) as client:
        response = client.models.generate_content(**CONTENT)
        assert not response.candidates
        assert response.prompt_feedback is not None
        assert response.prompt_feedback.block_reason == types.BlockedReason.SAFETY
        (streamed,) = client.models.generate_content_stream(**CONTENT)
        assert streamed.prompt_feedback == response.prompt_feedback


@pytest.mark.parametrize(
    ("status", "word"), [(400, "INVALID_ARGUMENT"), (403, "PERMISSION_DENIED"), (429, "RESOURCE_EXHAUSTED")]
)
def test_errors_of_gemini(status: int, word: str) -> None:
    script = [Status(status, "No."), Status(status, "No."), Reply("It breaks off", faults=[ErrorEvent(status)])]
    with Simulator(script) as simulator, gemini_of(simulator) as client:
        with pytest.raises(errors.ClientError, match="No.") as caught:
            client.models.generate_content(**CONTENT)
        assert (caught.value.code, caught.value.status) == (status, word)
        with pytest.raises(errors.ClientError, match="No."):
            list(client.models.generate_content_stream(**CONTENT))
        with pytest.raises(errors.APIError, match=word):
            list(client.models.generate_content_stream(**CONTENT))
