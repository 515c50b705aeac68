"""Which reply comes next: lists, functions, several conversations; and what happens when there is none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.conversation import ToolCall
from dragoman.simulator import Reply, Request, Simulator, echo
from tests.simulator.raw_client import DIALECTS, ask
from tests.simulator.reading import said


def text(simulator: Simulator, prompt: str = "Hi", **options: Any) -> str:
    return said("openai_chat", ask(simulator, "openai_chat", prompt, **options), stream=False).text


def test_a_list_is_given_in_order() -> None:
    with Simulator(["one", Reply("two")]) as simulator:
        assert simulator.unplayed == 2
        assert text(simulator) == "one"
        assert text(simulator) == "two"
        assert simulator.unplayed == 0


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_exhausted_script_says_so(dialect: str, stream: bool) -> None:
    with Simulator(["one"]) as simulator:
        ask(simulator, dialect, stream=stream)
        answer = ask(simulator, dialect, stream=stream)
        assert answer.status == 500
        assert answer.headers["x-should-retry"] == "false"
        message = answer.json["error"]["message"]
        assert "script is exhausted: it has 1 replies, and this is request 2" in message
        assert [str(error) for error in simulator.errors] == [message]


def test_a_function_is_asked_and_may_wait() -> None:
    async def script(request: Request) -> Reply:
        await asyncio.sleep(0.01)
        said_so = f"{request.number} {request.dialect} {request.model} {request.stream} {request.last_user_text}"
        return Reply(said_so, ToolCall("c", "f"))

    with Simulator(script) as simulator:
        assert text(simulator, "Hello") == "0 openai_chat any-model False Hello"
        found = said("gemini", ask(simulator, "gemini", "Yes", stream=True), stream=True)
        assert (found.text, found.calls) == ("1 gemini any-model True Yes", [("c", "f", {})])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_function_that_fails_is_reported(dialect: str) -> None:
    def script(request: Request) -> str:
        raise LookupError("nothing here")

    with Simulator(script) as simulator:
        answer = ask(simulator, dialect)
        assert answer.status == 500
        assert "script failed: LookupError: nothing here" in answer.json["error"]["message"]
        assert isinstance(simulator.errors[0], LookupError)


def test_scripts_that_make_no_sense() -> None:
    with Simulator(lambda request: 42) as simulator:
        assert "not int" in ask(simulator, "gemini").json["error"]["message"]
    with pytest.raises(TypeError, match="not int"):
        Simulator(42)
    with pytest.raises(TypeError, match="not float"):
        Simulator(["one", 2.0])


def test_another_script_can_follow_and_without_one_it_says_what_the_user_said() -> None:
    with Simulator([]) as simulator:
        simulator.play(["new"])
        assert text(simulator) == "new"
        simulator.play(None)
        assert text(simulator, "Good day") == "You said: Good day" == echo(simulator.requests[-1])
