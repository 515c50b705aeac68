"""Models in clouds through chat clients of both colours: tools, streams, faults, cancellation, made keys."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dragoman.conversation import TextDelta, Thinking, ToolCall
from dragoman.engines import AwsKeys, Token
from dragoman.errors import OverloadedError
from dragoman.loop import Cancelled
from dragoman.simulator import Drip, Reply, Simulator, Status
from dragoman.transport import RetryPolicy
from tests.chat.talking import WAYS, Stage

SONNET = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
MODELS = [
    "azure:my-deployment",
    "azure-responses:my-deployment",
    "vertex:gemini-2.5-flash",
    "vertex:claude-sonnet-4-5@20250929",
    f"bedrock:{SONNET}",
    "bedrock:us.amazon.nova-2-lite-v1:0",
    "bedrock-mantle:openai.gpt-oss-120b",
    "bedrock-mantle-chat:openai.gpt-oss-120b",
]


def weather(city: str) -> str:
    """How the weather is."""
    return f"sunny in {city}"


def key_for(model: str) -> Callable[[], Any]:
    """A function that makes keys: every one holds for no time at all, so that each request has its own."""
    numbers = itertools.count(1)
    if model.startswith("bedrock"):
        return lambda: AwsKeys(f"AKID{next(numbers)}", "secret", "session", 1.0)
    return lambda: Token(f"token-{next(numbers)}", 1.0)


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=WAYS)
def stage(request: pytest.FixtureRequest, model: str) -> Iterator[Stage]:
    with Simulator() as simulator:
        yield Stage(simulator, model, request.param)
        assert simulator.wait_until_idle()
        assert simulator.errors == ()


def test_a_turn_with_tools_and_a_fault(stage: Stage, model: str) -> None:
    call = ToolCall("call_1", "weather", '{"city":"Paris"}')
    stage.simulator.play(
        [Reply(Thinking("Hm.", ""), "Let me look.", call), Status(503), Reply("It is sunny."), Reply("Good bye.")]
    )
    heard: list[str] = []

    def hear(event: object) -> None:
        if isinstance(event, TextDelta):
            heard.append(event.text)

    retry = RetryPolicy(max_attempts=2, first_wait=0.01)
    region = {"region": "us-east-1"} if model.startswith("bedrock") else {}
    with stage.client([weather], key=key_for(model), retry=retry, **region) as talk:
        assert talk.chat("How is the weather in Paris?", callback=hear).text == "It is sunny."
        assert talk.chat("Thanks.", callback=hear).text == "Good bye."
    requests = stage.simulator.requests
    assert ["sunny in Paris" in one.text for one in requests[1].tool_results] == [True]
    assert len(requests) == 4
    assert "".join(heard) == ("Let me look.It is sunny.Good bye." if stage.streamed else "")
    said = [request.headers["authorization"] for request in requests]
    assert len(set(said)) == 4, "each request had a key of its own"
    assert all(one.startswith("AWS4-HMAC-SHA256" if region else "Bearer token-") for one in said)


def test_a_turn_that_is_cancelled_or_fails(stage: Stage) -> None:
    if stage.streamed:
        stage.simulator.play([Reply("A long answer, " * 50, faults=[Drip(20, 0.01)]), "And on."])
        with stage.client() as talk:
            result = talk.chat("Go.", callback=lambda event: isinstance(event, TextDelta) and talk.client.cancel())
            assert isinstance(result.ending, Cancelled)
            assert talk.chat("Go on.").text == "And on."
    else:
        stage.simulator.play([Status(503), "Now."])
        with stage.client() as talk:
            with pytest.raises(OverloadedError):
                talk.chat("Go.")
            assert talk.chat("Again.").text == "Now."
