"""Amazon's own library against the simulator, whole and streamed: binary frames, calls and results, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError

from dragoman.conversation import StopReason, Text, Thinking, ToolCall, Usage
from dragoman.simulator import ErrorEvent, Reply, Simulator, Status
from tests.providers.bedrock.wire import gather

CALLS = Reply(
    Thinking("They want the weather.", provider=""),
    Text("Let me look."),
    ToolCall("call_a", "weather", '{"city": "Zürich"}'),
    usage=Usage(input=50, output=20, cache_read=10),
)
USER: Any = {"role": "user", "content": [{"text": "How is the weather?"}]}
TOOLS: Any = {"tools": [{"toolSpec": {"name": "weather", "inputSchema": {"json": {"type": "object"}}}}]}


@pytest.fixture
def client(simulator: Simulator) -> Iterator[Any]:
    made = botocore.session.Session().create_client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=simulator.url,
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=Config(retries={"total_max_attempts": 1}, proxies={}),
    )
    yield made
    made.close()


def ask(client: Any, *, stream: bool, **more: Any) -> Any:
    asked = {"modelId": "us.amazon.nova-lite-v1:0", "messages": [USER], **more}
    if not stream:
        return client.converse(**asked)
    with closing(client.converse_stream(**asked)["stream"]) as events:
        return gather(events)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_call_and_its_result(simulator: Simulator, client: Any, stream: bool) -> None:
    simulator.play([CALLS, Reply("Sunny.", stop_reason=StopReason.MAX_TOKENS)])
    first = ask(client, stream=stream, toolConfig=TOOLS)
    message = first["output"]["message"]
    thought, text, call = message["content"]
    assert thought["reasoningContent"]["reasoningText"]["text"] == "They want the weather."
    assert text == {"text": "Let me look."}
    assert call == {"toolUse": {"toolUseId": "call_a", "name": "weather", "input": {"city": "Zürich"}}}
    assert first["stopReason"] == "tool_use"
    assert {name: first["usage"][name] for name in ("inputTokens", "outputTokens", "cacheReadInputTokens")} == {
        "inputTokens": 40,
        "outputTokens": 20,
        "cacheReadInputTokens": 10,
    }
    result = {"toolUseId": "call_a", "content": [{"text": "sunny"}], "status": "success"}
    messages = [USER, message, {"role": "user", "content": [{"toolResult": result}]}]
    second = ask(client, stream=stream, messages=messages, toolConfig=TOOLS)
    assert (second["output"]["message"]["content"], second["stopReason"]) == ([{"text": "Sunny."}], "max_tokens")
    request = simulator.requests[-1]
    assert (request.dialect, request.model, request.turns) == ("bedrock", "us.amazon.nova-lite-v1:0", 1)
    assert [one.text for one in request.tool_results] == ["sunny"]
    assert simulator.errors == ()


@pytest.mark.parametrize(("status", "word"), [(429, "ThrottlingException"), (503, "ServiceUnavailableException")])
def test_refusals(simulator: Simulator, client: Any, status: int, word: str) -> None:
    simulator.play([Status(status), ErrorEvent(status)])
    with pytest.raises(ClientError) as refused:
        ask(client, stream=False)
    assert (refused.value.response["Error"]["Code"], refused.value.response["ResponseMetadata"]["HTTPStatusCode"]) == (
        word,
        status,
    )
    with pytest.raises(EventStreamError) as broken:
        ask(client, stream=True)
    assert broken.value.response["Error"]["Code"] == word[:1].lower() + word[1:]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"messages": [USER, USER]}, "alternate"),
        ({"messages": [{"role": "assistant", "content": [{"text": "a"}]}]}, "start with a user"),
        ({"messages": [{"role": "user", "content": [{"text": " "}]}]}, "blank"),
        (
            {
                "messages": [
                    USER,
                    {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "name": "f", "input": {}}}]},
                ]
            },
            "toolConfig field must be defined",
        ),
    ],
)
def test_what_bedrock_would_refuse(client: Any, more: Any, problem: str) -> None:
    with pytest.raises(ClientError, match=problem):
        ask(client, stream=False, **more)
