"""Twelve things that happen to people who chat with models that use tools.

One table. Each scenario says what the model will say, plays on any stage (a provider, a colour, streamed or not), and
gives back the conversation that must come of it, the same everywhere but for ids.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from dragoman.conversation import Conversation, Event, TextDelta, ToolCall, ToolFinished, ToolStarted
from dragoman.errors import StepLimitError
from dragoman.loop import AwaitApproval, Cancelled, Done, Limits
from dragoman.simulator import Reply, Request
from dragoman.stores import snapshot_from_json, snapshot_to_json
from dragoman.tools import Deny, tool
from tests.chat.talking import ROOT, Stage, transcript
from tests.engines.talking import MODELS

# --- tools -----------------------------------------------------------------------------------------------------------


@tool
def weather(city: str) -> str:
    """What the weather is like."""
    return f"rain in {city}"


@tool
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


@tool
async def capital(country: str) -> str:
    """The capital of a country."""
    return {"France": "Paris", "Italy": "Rome"}[country]


@tool
def broken() -> str:
    """Never works."""
    message = "out of order"
    raise RuntimeError(message)


@tool(requires_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


@dataclass
class Place:
    """A place and its weather."""

    city: str
    rainy: bool


def _call(name: str, arguments: str, number: int = 1) -> ToolCall:
    return ToolCall(f"call_{number}", name, arguments)


# --- scenarios -------------------------------------------------------------------------------------------------------


def _say(prompt: str, *tools: Any) -> Callable[[Stage], Conversation]:

    def play(stage: Stage) -> Conversation:
        with stage.client(tools) as talk:
            talk.chat(prompt)
            return talk.client.conversation

    return play


def plain(stage: Stage) -> Conversation:
    with stage.client(system="Be brief.") as talk:
        assert str(talk.chat("Hello")) == "Hi there."
        result = talk.chat("How are you?")
        assert isinstance(result.ending, Done)
        assert result.spent.steps == 1
        assert talk.client.usage.known
        assert [request.last_user_text for request in stage.simulator.requests] == ["Hello", "How are you?"]
        return talk.client.conversation


def one_tool(stage: Stage) -> Conversation:
    happened: list[Any] = []
    with stage.client([weather]) as talk:
        result = talk.chat("Weather in Lyon?", callback=happened.append)
        assert result.text == "It rains."
        assert result.spent.tool_calls == 1
        if stage.streamed:
            kinds = [type(event) for event in happened]
            assert kinds.index(ToolStarted) < kinds.index(ToolFinished)
            assert all(event.call.id for event in happened if isinstance(event, ToolStarted))
            assert all(event.result.call_id for event in happened if isinstance(event, ToolFinished))
        return talk.client.conversation


def failing_tool(stage: Stage) -> Conversation:
    with stage.client([broken]) as talk:
        assert "out of order" in talk.chat("Try it.").conversation.messages[2].tool_results[0].text
        (result,) = stage.simulator.requests[-1].tool_results
        assert "out of order" in result.text
        assert result.is_error or talk.client.engine.profile.dialect.startswith("openai")
        return talk.client.conversation


def denied(stage: Stage) -> Conversation:
    with stage.client([weather], permission=lambda *_: Deny("no weather today")) as talk:
        result = talk.chat("Weather?")
        assert "no weather today" in result.conversation.messages[2].tool_results[0].text
        return talk.client.conversation


def approval_in_a_new_process(stage: Stage) -> Conversation:
    with stage.client([delete, weather]) as talk:
        result = talk.chat("Delete it, and the weather?")
        assert isinstance(result.ending, AwaitApproval)
        assert [each.call.name for each in result.pending] == ["delete"]
        snapshot = talk.do("save")
    # Nothing but bytes passes between the two processes.
    command = [sys.executable, "-m", "tests.chat.another_process", stage.model, stage.way, stage.base_url(stage.model)]
    done = subprocess.run(
        command, input=snapshot_to_json(snapshot), capture_output=True, timeout=60, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr.decode()
    return snapshot_from_json(done.stdout).conversation


def step_limit_and_continue(stage: Stage) -> Conversation:
    with stage.client([add], limits=Limits(steps=2)) as talk:
        with pytest.raises(StepLimitError, match=r"max iterations \(2\) reached") as caught:
            talk.chat("Add and add.")
        assert caught.value.conversation.is_valid
        assert talk.client.conversation == caught.value.conversation
        assert talk.chat().text == "Five."
        return talk.client.conversation


def structured_ask_after_tools(stage: Stage) -> Conversation:
    with stage.client([weather]) as talk:
        talk.chat("Weather in Lyon?")
        place = talk.do("ask", "As data, please.", Place)
        assert place == Place("Lyon", rainy=True)
        talk.chat("Thanks.")  # neither the schema nor being without tools leaks into later turns
        *_, asked, thanked = stage.simulator.requests
        assert b"rainy" in asked.raw
        assert b'"rainy"' not in thanked.raw.replace(b'\\"rainy\\"', b"")
        assert b"weather" in thanked.raw
        return talk.client.conversation


def cancel_and_continue(stage: Stage) -> Conversation:
    with stage.client() as talk:

        def stop(event: Event) -> object:
            return not isinstance(event, TextDelta)  # False stops the turn

        if stage.streamed:
            result = talk.chat("Tell me a story.", callback=stop)
            assert isinstance(result.ending, Cancelled)
            assert talk.client.conversation.last.interrupted
        else:
            talk.chat("Tell me a story.")
        assert talk.chat("Go on.").text == "The end."
        return talk.client.conversation


def switch_of_provider(stage: Stage) -> Conversation:
    others = [model for model in MODELS.values() if model != stage.model]
    with stage.client([weather]) as talk:
        talk.chat("Weather in Lyon?")
        for model in others:
            losses = talk.do("switch", model, **stage.engine_options(model))
            assert all(loss.message is not None for loss in losses)
            talk.chat("And tomorrow?")
            assert talk.client.model == model
        return talk.client.conversation


# --- the table -------------------------------------------------------------------------------------------------------

STORY = "Once upon a time there was a very long story. "


class Scenario(NamedTuple):
    """What the model will say, what is done, and what must have been said in the end."""

    replies: Sequence[Any]
    play: Callable[[Stage], Conversation]
    ends_as: list[Any]


SCENARIOS: dict[str, Scenario] = {
    "plain": Scenario(
        ["Hi there.", "Fine."],
        plain,
        [("user", "Hello"), ("assistant", "Hi there."), ("user", "How are you?"), ("assistant", "Fine.")],
    ),
    "one tool": Scenario(
        [Reply("I look.", _call("weather", '{"city": "Lyon"}')), "It rains."],
        one_tool,
        [
            ("user", "Weather in Lyon?"),
            ("assistant", "I look.", ("call", "weather", {"city": "Lyon"})),
            ("tool", ("result", "weather", "rain in Lyon")),
            ("assistant", "It rains."),
        ],
    ),
    "parallel tools": Scenario(
        [
            Reply(
                _call("weather", '{"city": "Lyon"}', 1),
                _call("capital", '{"country": "France"}', 2),
                _call("capital", '{"country": "Italy"}', 3),
            ),
            "There.",
        ],
        _say("Weather in Lyon, and the capitals?", weather, capital),
        [
            ("user", "Weather in Lyon, and the capitals?"),
            (
                "assistant",
                ("call", "weather", {"city": "Lyon"}),
                ("call", "capital", {"country": "France"}),
                ("call", "capital", {"country": "Italy"}),
            ),
            (
                "tool",
                ("result", "weather", "rain in Lyon"),
                ("result", "capital", "Paris"),
                ("result", "capital", "Rome"),
            ),
            ("assistant", "There."),
        ],
    ),
    "failing tool": Scenario(
        [Reply(_call("broken", "{}")), "It does not work."],
        failing_tool,
        [
            ("user", "Try it."),
            ("assistant", ("call", "broken", {})),
            ("tool", ("error", "broken", "execution")),
            ("assistant", "It does not work."),
        ],
    ),
    "unknown tool": Scenario(
        [Reply(_call("magic", "{}")), "I cannot."],
        _say("Do magic.", weather),
        [
            ("user", "Do magic."),
            ("assistant", ("call", "magic", {})),
            ("tool", ("error", "magic", "not_found")),
            ("assistant", "I cannot."),
        ],
    ),
    "invalid arguments": Scenario(
        [Reply(_call("add", '{"a": "one"}')), Reply(_call("add", '{"a": 1, "b": 2}', 2)), "Three."],
        _say("Add them.", add),
        [
            ("user", "Add them."),
            ("assistant", ("call", "add", {"a": "one"})),
            ("tool", ("error", "add", "validation")),
            ("assistant", ("call", "add", {"a": 1, "b": 2})),
            ("tool", ("result", "add", "3")),
            ("assistant", "Three."),
        ],
    ),
    "denied": Scenario(
        [Reply(_call("weather", '{"city": "Lyon"}')), "I may not."],
        denied,
        [
            ("user", "Weather?"),
            ("assistant", ("call", "weather", {"city": "Lyon"})),
            ("tool", ("error", "weather", "denied")),
            ("assistant", "I may not."),
        ],
    ),
    "approval and resume in a new process": Scenario(
        [Reply(_call("delete", '{"path": "a"}', 1), _call("weather", '{"city": "Lyon"}', 2)), "Done."],
        approval_in_a_new_process,
        [
            ("user", "Delete it, and the weather?"),
            ("assistant", ("call", "delete", {"path": "a"}), ("call", "weather", {"city": "Lyon"})),
            ("tool", ("result", "delete", "deleted a"), ("result", "weather", "rain in Lyon")),
            ("assistant", "Done."),
        ],
    ),
    "step limit and continue": Scenario(
        [Reply(_call("add", '{"a": 1, "b": 2}', 1)), Reply(_call("add", '{"a": 3, "b": 2}', 2)), "Five."],
        step_limit_and_continue,
        [
            ("user", "Add and add."),
            ("assistant", ("call", "add", {"a": 1, "b": 2})),
            ("tool", ("result", "add", "3")),
            ("assistant", ("call", "add", {"a": 3, "b": 2})),
            ("tool", ("result", "add", "5")),
            ("assistant", "Five."),
        ],
    ),
    "structured ask after tools": Scenario(
        [
            Reply(_call("weather", '{"city": "Lyon"}')),
            "It rains.",
            lambda request: _answer(request, '{"city": "Lyon", "rainy": true}'),
            "You are welcome.",
        ],
        structured_ask_after_tools,
        [
            ("user", "Weather in Lyon?"),
            ("assistant", ("call", "weather", {"city": "Lyon"})),
            ("tool", ("result", "weather", "rain in Lyon")),
            ("assistant", "It rains."),
            ("user", "As data, please."),
            ("assistant", '{"city": "Lyon", "rainy": true}'),
            ("user", "Thanks."),
            ("assistant", "You are welcome."),
        ],
    ),
    "cancel mid-stream and continue": Scenario(
        [Reply(STORY * 2000, delta=len(STORY)), "The end."],
        cancel_and_continue,
        [("user", "Tell me a story."), ("assistant", STORY), ("user", "Go on."), ("assistant", "The end.")],
    ),
    "switch of provider mid-conversation": Scenario(
        [Reply("I look.", _call("weather", '{"city": "Lyon"}')), "It rains.", "Sun.", "Wind.", "Snow.", "Fog."],
        switch_of_provider,
        [
            ("user", "Weather in Lyon?"),
            ("assistant", "I look.", ("call", "weather", {"city": "Lyon"})),
            ("tool", ("result", "weather", "rain in Lyon")),
            ("assistant", "It rains."),
            ("user", "And tomorrow?"),
            ("assistant", "Sun."),
            ("user", "And tomorrow?"),
            ("assistant", "Wind."),
            ("user", "And tomorrow?"),
            ("assistant", "Snow."),
            ("user", "And tomorrow?"),
            ("assistant", "Fog."),
        ],
    ),
}


def _answer(request: Request, text: str) -> Reply:
    """A structured answer in the way that the request asks for it: as the call of a made-up tool, or as text."""
    made_up = [name for name in request.tools if name != "weather"]
    return Reply(_call(made_up[0], text, 9)) if made_up else Reply(text)


def script(replies: Sequence[Any]) -> Callable[[Request], Any]:
    """The replies in order, some of which depend on the request."""
    left = iter(replies)

    def said(request: Request) -> Any:
        reply = next(left)
        return reply(request) if callable(reply) else reply

    return said


def check(scenario: Scenario, stage: Stage) -> None:
    """Play a scenario and compare what came of it."""
    conversation = scenario.play(stage)
    assert conversation.is_valid
    told = transcript(conversation)
    if scenario.play is cancel_and_continue:
        # How much of a reply arrives before the caller stops it depends on when pieces arrive, not on the provider.
        told = [
            (role, *[STORY if isinstance(part, str) and part.startswith(STORY[:9]) else part for part in parts])
            for role, *parts in told
        ]
    assert told == scenario.ends_as
