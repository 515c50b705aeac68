"""Turns with tools that end with a value: asked for in every way, judged, checked, growing, and safe from crashes."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from dragoman.chat import AsyncChatClient, ChatClient, TypedResult, answer_type
from dragoman.conversation import AnswerGrown, Failed, Message, RunEnded, StopReason, Text, ToolCall, fold
from dragoman.engines import AsyncScriptedEngine, ScriptedEngine
from dragoman.errors import (
    ConfigurationError,
    InvalidAnswerError,
    LimitReachedError,
    OverloadedError,
    StepLimitError,
)
from dragoman.loop import AwaitApproval, LimitReached, Limits, RunContext
from dragoman.providers import ModelOptions, ResponseFormat
from dragoman.simulator import Reply, Request, Simulator
from dragoman.stores import SqliteStore
from dragoman.tools import ToolConfig, approve
from tests.chat.killed_with_answer import GOOD, WRONG, Place, logging_tool
from tests.chat.scenarios import delete, script, weather
from tests.chat.talking import ROOT, WAYS, Stage, Start, Talk, transcript
from tests.engines.talking import MODELS

TOOLS = [weather]
LOOKS = Message.assistant("I look.", ToolCall("c1", "weather", '{"city": "Lyon"}'))
LYON = Place("Lyon", rainy=True)


def turn(talk: Talk, prompt: Any = "Weather in Lyon?", seen: list[Any] | None = None, **given: Any) -> TypedResult[Any]:
    if not talk.streamed:
        return talk.do("chat", prompt, **given)
    events = [] if seen is None else seen
    return talk.do("stream_chat", prompt, events.append, **given)


# --- every way of asking, with every dialect --------------------------------------------------------------------------

DIALECTS = {**MODELS, "gemini": "gemini:gemini-3-pro"}  # the older one has no feature that goes together with tools
ASKING: dict[str, dict[str, Any]] = {
    "native": {"structured": "native", "native_beside_tools": True},
    "tool": {"structured": "native", "native_beside_tools": False},
    "prompt": {"structured": "prompt"},
}


def _answer(text: str, wrapped: bool) -> Any:
    """An answer in the way that the request asks for it."""

    def answer(request: Request) -> Reply:
        made_up = [name for name in request.tools if name != "weather"]
        asked_natively = not made_up and b"JSON Schema below" not in request.raw
        said = f'{{"answer": {text}}}' if wrapped and (made_up or asked_natively) else text
        fenced = said if made_up or asked_natively else f"```json\n{said}\n```"
        return Reply(ToolCall("", made_up[0], said), delta=3) if made_up else Reply(fenced, delta=3)

    return answer


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("asking", ASKING)
@pytest.mark.parametrize("model", DIALECTS.values(), ids=DIALECTS.keys())
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_model_uses_its_tools_and_ends_with_a_value(model: str, asking: str, way: str, wrapped: bool) -> None:
    wanted, right = (list[Place], f"[{GOOD}]") if wrapped else (Place, GOOD)
    wrong = f"[{WRONG}]" if wrapped else WRONG
    replies = [
        Reply("I look.", ToolCall("call_1", "weather", '{"city": "Lyon"}')),
        _answer(wrong, wrapped),
        _answer(right, wrapped),
        "You are welcome.",
    ]
    with Simulator(script(replies)) as simulator:
        stage, seen = Stage(simulator, model, way), list[Any]()
        with stage.client([weather], profile=ASKING[asking]) as talk:
            result = turn(talk, seen=seen, answer=wanted)
            assert isinstance(result, TypedResult)
            assert result.answer == ([LYON] if wrapped else LYON)
            assert result.spent.steps == 3
            assert talk.chat("Thanks.").text == "You are welcome."
            told = transcript(talk.client.conversation)
        assert [b"rainy" in request.raw for request in simulator.requests[:3]] == [True] * 3  # every step carries it
        assert b'"rainy"' not in simulator.requests[3].raw.replace(b'\\"rainy\\"', b"")  # and no later turn
        assert simulator.wait_until_idle()
    assert told[:3] == [
        ("user", "Weather in Lyon?"),
        ("assistant", "I look.", ("call", "weather", {"city": "Lyon"})),
        ("tool", ("result", "weather", "rain in Lyon")),
    ]
    assert [part for part in told[3:] if part[0] == "assistant"] == [
        ("assistant", wrong),
        ("assistant", right),
        ("assistant", "You are welcome."),
    ]
    assert "rainy" in told[4][1]  # what is wrong with it
    if stage.streamed:
        grown = [event.value for event in seen if isinstance(event, AnswerGrown)]
        assert grown[-1] == json.loads(right)
        assert len(grown) > (
            1 if (asking, talk.client.engine.profile.dialect) == ("tool", "gemini") else 4
        )  # comes whole
        assert isinstance(seen[-1], RunEnded)


@pytest.mark.parametrize(
    ("model", "made_up"), [(MODELS["gemini"], ["Place"]), (DIALECTS["gemini"], []), (MODELS["openai_chat"], [])]
)
def test_the_profile_says_what_goes_together_with_tools(model: str, made_up: list[str]) -> None:
    with Simulator(script([_answer(GOOD, wrapped=False)])) as simulator:
        with Stage(simulator, model, "plain-whole").client([weather]) as talk:
            assert turn(talk, answer=Place).answer == LYON
        assert [name for name in simulator.requests[0].tools if name != "weather"] == made_up


# --- the judge --------------------------------------------------------------------------------------------------------


@dataclass
class Refusal:
    """Why there is no answer."""

    reason: str


@pytest.mark.parametrize(
    ("wanted", "text", "value"),
    [
        (Place | Refusal, GOOD, LYON),
        (Place | Refusal, '{"reason": "no city"}', Refusal("no city")),
        (answer_type(Place), GOOD, LYON),
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2]", [1, 2]),
        (Literal["yes", "no"], '"yes"', "yes"),
        (str, "plain words", "plain words"),
    ],
    ids=str,
)
def test_types_of_answers(start: Start, wanted: Any, text: str, value: Any) -> None:
    for streamed in (False, True):
        talk = start([LOOKS, text], streamed=streamed)
        assert turn(talk, answer=wanted).answer == value


def test_a_turn_without_a_type_is_unchanged(start: Start) -> None:
    talk = start([LOOKS, "It rains."], answer=answer_type(Place))  # that is for `ask`
    assert type(talk.chat("Weather?")).__name__ == "RunResult"
    with pytest.raises(ConfigurationError, match="retries"):
        talk.do("chat", "Weather?", retries=2)
    schema = ResponseFormat(schema=msgspec.Raw(b"{}"))
    with pytest.raises(ConfigurationError, match="response_format"):
        talk.do("chat", "Weather?", answer=Place, options=ModelOptions(response_format=schema))


def test_retries_and_the_error_after_them(start: Start) -> None:
    for streamed in (False, True):
        talk, seen = start([LOOKS, WRONG, "no", WRONG], streamed=streamed), list[Any]()
        with pytest.raises(InvalidAnswerError) as caught:
            turn(talk, seen=seen, answer=Place)
        assert caught.value.text == "no"
        assert caught.value.problems
        assert caught.value.conversation == talk.client.conversation
        assert talk.client.conversation.text == "no"
        assert not streamed or isinstance(seen[-1], Failed)
        assert turn(start([WRONG, "no", WRONG, GOOD], streamed=streamed), answer=Place, retries=3).answer == LYON
        with pytest.raises(InvalidAnswerError):
            turn(start([WRONG, GOOD], streamed=streamed), answer=Place, retries=0)


@pytest.mark.parametrize(("reason", "hint"), [(StopReason.MAX_TOKENS, "max_tokens"), (StopReason.REFUSAL, "declined")])
def test_a_hopeless_answer_is_not_retried(start: Start, reason: StopReason, hint: str) -> None:
    cut = Message(role="assistant", blocks=(Text('{"city": "Ly'),), stop_reason=reason)
    with pytest.raises(InvalidAnswerError, match=hint):
        turn(start([LOOKS, cut, GOOD]), answer=Place)


@pytest.mark.parametrize("reason", [StopReason.MAX_TOKENS, StopReason.CONTEXT_FULL, StopReason.CONTENT_FILTER])
@pytest.mark.parametrize(("answer", "text"), [(int, '{"value": 7}'), (int, "7"), (Place, GOOD)])
def test_what_was_cut_is_no_answer_even_if_it_fits(
    start: Start, answer: type[Any], text: str | Message, reason: StopReason
) -> None:
    cut = Message(role="assistant", blocks=(Text(text if isinstance(text, str) else text.text),), stop_reason=reason)
    talk = start([LOOKS, cut, GOOD])
    with pytest.raises(InvalidAnswerError, match="not whole") as caught:
        turn(talk, answer=answer)
    assert caught.value.text == cut.text
    assert talk.client.conversation.is_valid


def test_the_model_can_use_tools_after_a_correction(start: Start) -> None:
    again = Message.assistant(ToolCall("c2", "weather", '{"city": "Nice"}'))
    talk = start([LOOKS, WRONG, again, GOOD])
    assert turn(talk, answer=Place).answer == LYON
    assert [message.role[0] for message in talk.client.history][3:] == ["a", "u", "a", "t", "a"]


@pytest.mark.parametrize(("calls", "reason"), [(0, StopReason.END), (1, StopReason.INTERRUPTED)])
def test_an_empty_or_interrupted_reply_is_not_an_answer(start: Start, calls: int, reason: StopReason) -> None:
    blocks = (ToolCall("c2", "weather", '{"city": "Lyon"}'),)[:calls]
    talk = start([LOOKS, Message(role="assistant", blocks=blocks, stop_reason=reason), GOOD])
    assert turn(talk, answer=Place).answer == LYON
    assert talk.client.conversation.is_valid


def test_limits_of_the_run_apply(start: Start) -> None:
    talk = start([LOOKS, WRONG, GOOD], limits=Limits(steps=2))
    with pytest.raises(StepLimitError) as caught:
        turn(talk, answer=Place)
    assert caught.value.conversation.text == WRONG  # the correction that nobody read is not in the way
    assert turn(talk, None, answer=Place).answer == LYON
    with pytest.raises(LimitReachedError, match="model calls"):
        turn(start([LOOKS, WRONG, GOOD], limits=Limits(model_calls=2)), answer=Place)


def test_a_turn_that_ended_early_has_no_answer_yet(start: Start) -> None:
    talk = start([Message.assistant(ToolCall("c1", "delete", '{"path": "a"}')), GOOD], [delete])
    paused = turn(talk, "Delete it.", answer=Place)
    assert isinstance(paused.ending, AwaitApproval)
    with pytest.raises(ConfigurationError, match="no answer"):
        _ = paused.answer
    (pending,) = paused.pending
    assert turn(talk, None, answer=Place, approvals=[approve(pending.call)]).answer == LYON
    stopped = turn(start([LOOKS, GOOD], limits=Limits(steps=1), on_limit="return"), answer=Place)
    assert isinstance(stopped.ending, LimitReached)


def test_an_unanswered_correction_leaves_no_trace(start: Start) -> None:
    talk = start([LOOKS, WRONG, OverloadedError("busy"), GOOD])
    with pytest.raises(OverloadedError):
        turn(talk, answer=Place)
    assert talk.client.conversation.text == WRONG
    assert talk.client.history[-1].role == "assistant"
    assert turn(talk, None, answer=Place).answer == LYON  # judged anew, corrected, answered
    assert turn(talk, None, answer=Place).answer == LYON  # done is done: nobody is asked


@pytest.mark.parametrize("asking", ["native", "tool"])
def test_a_call_that_is_required_is_one_of_the_callers_tools(asking: str) -> None:
    replies = [Reply(ToolCall("call_1", "weather", '{"city": "Lyon"}')), _answer(GOOD, wrapped=False)]
    with Simulator(script(replies)) as simulator:
        stage = Stage(simulator, MODELS["openai_chat"], "plain-whole")
        config = ToolConfig(tool_choice="required")
        with stage.client([weather], profile=ASKING[asking], tool_config=config) as talk:
            assert turn(talk, answer=Place).answer == LYON
        first, second = simulator.requests
        assert (list(first.tools), first.body["tool_choice"]) == (["weather"], "required")
        assert len(second.tools) == (2 if asking == "tool" else 1)


# --- checks -----------------------------------------------------------------------------------------------------------


def test_a_check_refuses_then_accepts(start: Start) -> None:
    seen: list[Any] = []

    def is_known(context: RunContext[set[str]], place: Place) -> Place:
        seen.append((context.deps, context.model, context.conversation.last.text))  # type: ignore[union-attr]
        if place.city not in context.deps:
            raise ValueError(f"{place.city} is not on the map")
        return place

    async def upper(place: Place) -> Place:
        return Place(place.city.upper(), place.rainy)

    nowhere = GOOD.replace("Lyon", "Atlantis")
    wanted = answer_type(Place, check=[is_known, upper])
    for streamed in (False, True):
        talk = start([LOOKS, nowhere, GOOD], streamed=streamed, deps={"Lyon"})
        assert turn(talk, answer=wanted).answer == Place("LYON", rainy=True)
        assert "Atlantis is not on the map" in talk.client.history[-2].text
        assert seen == [({"Lyon"}, talk.client.model, nowhere), ({"Lyon"}, talk.client.model, GOOD)]
        seen.clear()
    talk = start([nowhere, GOOD], deps={"Lyon"})
    assert talk.do("ask", "Which?", wanted) == Place("LYON", rainy=True)
    with pytest.raises(InvalidAnswerError, match="not on the map") as caught:
        turn(start([LOOKS, nowhere, nowhere], deps={"Lyon"}), answer=wanted)
    assert (caught.value.text, caught.value.problems) == (nowhere, ("Atlantis is not on the map",))


def test_what_a_check_may_be(start: Start) -> None:
    assert turn(start([GOOD]), answer=answer_type(Place, check=lambda _: None)).answer == LYON  # nothing to object to
    assert turn(start(["5"]), answer=answer_type(answer_type(int, check=abs), check=str)).answer == "5"  # built in

    def broken(_value: Place) -> Place:
        raise KeyError("no such place")

    talk = start([LOOKS, GOOD])
    with pytest.raises(KeyError):
        turn(talk, answer=answer_type(Place, check=broken))
    assert talk.client.conversation.text == GOOD  # what was done is not lost
    with pytest.raises(ConfigurationError, match="cannot check"):
        answer_type(Place, check=["is_known"])  # type: ignore[list-item]


def test_an_unusable_check_is_refused(start: Start) -> None:
    for check in (lambda: 1, lambda _run, _value, _more: 1):
        with pytest.raises(ConfigurationError, match="cannot check an answer"):
            answer_type(int, check=check)  # type: ignore[arg-type]
    talk = start(["7", "true"])
    with pytest.raises(ConfigurationError, match="returned False"):
        talk.do("ask", "How many?", answer_type(int, check=lambda value: value > 9))
    assert talk.do("ask", "Is it?", answer_type(bool, check=lambda value: not value)) is False


def test_a_check_that_waits_needs_an_event_loop() -> None:
    async def slow(place: Place) -> Place:
        await asyncio.sleep(0)
        return place

    wanted = answer_type(Place, check=slow)
    with ChatClient(ScriptedEngine([GOOD])) as client, pytest.raises(ConfigurationError, match="event loop"):
        client.chat("Which?", answer=wanted)

    async def on_a_loop() -> Place:
        async with AsyncChatClient(AsyncScriptedEngine([GOOD])) as client:
            return (await client.chat("Which?", answer=wanted)).answer

    assert asyncio.run(on_a_loop()) == LYON


# --- a growing answer -------------------------------------------------------------------------------------------------


def test_a_growing_answer() -> None:
    text = '{"city": "Lyon", "rainy": "perhaps"}'
    with (
        ChatClient(ScriptedEngine([LOOKS, text, GOOD], piece=2), TOOLS) as client,
        client.stream_chat("Weather?", answer=Place) as stream,
    ):
        grown = list(stream.answers())
    assert grown == [
        *({}, {"city": ""}, {"city": "Ly"}, {"city": "Lyon"}),  # what does not fit is left out
        *({}, {"city": "L"}, {"city": "Lyo"}, {"city": "Lyon"}, {"city": "Lyon", "rainy": True}),
    ]
    assert stream.result.answer == LYON

    async def on_a_loop() -> list[Any]:
        client = AsyncChatClient(AsyncScriptedEngine([LOOKS, GOOD], piece=2), TOOLS)
        async with client, client.stream_chat("Weather?", answer=Place) as stream:
            return [value async for value in stream.answers()]

    assert asyncio.run(on_a_loop()) == grown[4:]


def test_a_growing_answer_is_an_event_like_others() -> None:
    event = AnswerGrown({"city": "Lyon"})
    assert msgspec.json.encode(event) == b'{"type":"answer_grown","value":{"city":"Lyon"}}'
    assert fold([event]).blocks == ()


def test_a_long_answer_is_not_read_again_for_every_piece() -> None:
    text = json.dumps(list(range(4_000)))
    with ChatClient(ScriptedEngine([text], piece=3)) as client:
        with client.stream_chat("Count.", answer=list[int]) as stream:
            sizes = [len(value) for value in stream.answers()]
        assert len(stream.result.answer) == 4_000
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == 4_000
    assert len(sizes) < 250


# --- kill -9 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["after the answer", "in the correction"])
def test_a_killed_process_is_continued(tmp_path: Path, where: str) -> None:
    path, log = tmp_path / "talks.db", tmp_path / "ran"
    command = [sys.executable, "-m", "tests.chat.killed_with_answer", str(path), str(log), where]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    with SqliteStore(path) as store:
        replies = [] if where == "after the answer" else [GOOD]
        with ChatClient(ScriptedEngine(replies), [logging_tool(log)], store=store) as client:
            client.restore(store.list().items[0].id)
            assert client.history[-1].role == ("assistant" if where == "after the answer" else "user")
            assert client.chat(answer=Place).answer == LYON
            assert client.conversation.is_valid
    assert log.read_text().split() == ["ran"]  # nothing finished runs twice
