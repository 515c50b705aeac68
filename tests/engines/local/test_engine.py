"""The engine, with a scripted model in the place of a real one: in both colours, streamed and not."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman._stop import Stop, stopping
from dragoman.chat import AsyncChatClient, ChatClient
from dragoman.conversation import (
    Conversation,
    Media,
    Message,
    OneTool,
    StopReason,
    Text,
    TextDelta,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from dragoman.engines import async_engine, engine
from dragoman.engines.local import server
from dragoman.engines.local.models import DEFAULT
from dragoman.engines.local.prompt import write_call
from dragoman.errors import (
    ConfigurationError,
    ConnectionFailedError,
    ContextTooLongError,
    LocalModelError,
    LossyConversionError,
    StoppedError,
    ToolDefinitionError,
)
from dragoman.loop import Cancelled
from dragoman.providers import ModelOptions, ResponseFormat
from dragoman.simulator import Cut, Reply, Stall, Status
from dragoman.tools import tool
from dragoman.transport import RetryPolicy
from tests.chat.talking import WAYS, transcript
from tests.engines.local.running import Program, scripted

ASKED = Conversation("Be brief.").plus(Message.user("Weather in Lyon?"))
CITY = Raw(b'{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}')
WEATHER = ToolSpec("weather", "What the weather is like.", CITY)
LYON = write_call("weather", '{"city": "Lyon"}')
SLOW = 1
"""Characters of an event."""


@tool
def weather(city: str) -> str:
    """What the weather is like."""
    return f"rain in {city}"


class Place(msgspec.Struct):
    city: str
    rainy: bool


def body_of(request: Any) -> dict[str, Any]:
    return json.loads(request.raw)


# --- conversations ----------------------------------------------------------------------------------------------------

CALL_AND_ANSWER = [
    ("user", "Weather in Lyon?"),
    ("assistant", "I look.", ("call", "weather", {"city": "Lyon"})),
    ("tool", ("result", "weather", "rain in Lyon")),
    ("assistant", "It rains."),
]


@pytest.mark.parametrize("way", WAYS)
def test_a_tool_is_called_and_its_result_used(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, streamed = WAYS[way]
    with scripted([Reply(f"I look.\n{LYON}", delta=SLOW), "It rains."], tmp_path, monkeypatch) as stand:
        talk = kind(stand.model, [weather], streamed=streamed, system="Be brief.")
        try:
            happened: list[Any] = []
            result = talk.chat("Weather in Lyon?", callback=happened.append)
            assert transcript(talk.client.conversation) == CALL_AND_ANSWER
            assert result.spent.tool_calls == 1
            assert talk.client.usage.known
            assert talk.client.history[1].stop_reason is StopReason.TOOL_CALLS
            assert talk.client.history[1].model == stand.model.removeprefix("local:")
        finally:
            talk.close()
        first, second = map(body_of, stand.simulator.requests)
        assert [message["role"] for message in first["messages"]] == ["system", "user"]
        assert first["messages"][0]["content"].startswith("Be brief.")
        assert "weather" in first["messages"][0]["content"]
        assert first["grammar"].startswith("%llguidance")
        assert "tools" not in first
        assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "user"]
        assert LYON in second["messages"][2]["content"]
        assert "rain in Lyon" in second["messages"][3]["content"]


@pytest.mark.parametrize("way", WAYS)
def test_a_structured_answer_after_tools(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, streamed = WAYS[way]
    replies = [LYON, "It rains.", '{"city": "Lyon", "rainy": true}', "Bye."]
    with scripted(replies, tmp_path, monkeypatch) as stand:
        talk = kind(stand.model, [weather], streamed=streamed)
        try:
            talk.chat("Weather in Lyon?")
            assert talk.do("ask", "As data.", Place) == Place("Lyon", rainy=True)
            talk.chat("Thanks.")
        finally:
            talk.close()
        *_, asked, thanked = map(body_of, stand.simulator.requests)
        assert "rainy" in asked["grammar"]
        assert "rainy" in asked["messages"][-1]["content"]
        assert "rainy" not in thanked["grammar"]


@pytest.mark.parametrize("way", [way for way in WAYS if "stream" in way])
def test_cancel_and_go_on(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, streamed = WAYS[way]
    replies = [Reply("A very long story. " * 50, faults=[Stall(after=4000)]), "The end."]
    with scripted(replies, tmp_path, monkeypatch) as stand:
        talk = kind(stand.model, streamed=streamed)
        try:
            result = talk.chat("Tell me.", callback=lambda event: not isinstance(event, TextDelta))
            assert isinstance(result.ending, Cancelled)
            assert talk.client.conversation.last.interrupted
            assert talk.chat("Go on.").text == "The end."
        finally:
            talk.close()


# --- one model for all ------------------------------------------------------------------------------------------------


def test_engines_share_one_program_for_each_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        scripted(lambda _: "Yes.", tmp_path, monkeypatch, context=4096) as stand,
        engine(stand.model) as first,
        engine(stand.model) as second,
        engine(stand.model, profile={"context_window": 2048}) as small,
    ):
        assert stand.programs == []  # nothing is loaded before it is needed
        for each in (first, second, small):
            each.reply(ASKED)
        assert [program.context for program in stand.programs] == [4096, 2048]
        assert small.profile.context_window == 2048


def test_tasks_do_not_block_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(model: str) -> list[str]:
        async with AsyncChatClient(model, stateless=True) as client:
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while True:
                    ticks += 1
                    await asyncio.sleep(0)

            ticking = asyncio.create_task(tick())
            results = await asyncio.gather(*[client.chat(f"Number {number}?") for number in range(5)])
            ticking.cancel()
            assert ticks > 50
            return [result.text for result in results]

    with scripted(["a", "b", "c", "d", "e"], tmp_path, monkeypatch) as stand:
        assert sorted(asyncio.run(main(stand.model))) == ["a", "b", "c", "d", "e"]


def test_a_task_that_is_cancelled_lets_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(model: str) -> str:
        async with async_engine(model) as talker:
            slow = asyncio.create_task(talker.reply(ASKED))
            await asyncio.sleep(0.2)
            slow.cancel()
            await asyncio.gather(slow, return_exceptions=True)
            return (await asyncio.wait_for(talker.reply(ASKED), 20)).message.text

    replies = [Reply("Never.", faults=[Stall(after=0)]), "Yes."]
    with scripted(replies, tmp_path, monkeypatch) as stand:
        assert asyncio.run(main(stand.model)) == "Yes."


@pytest.mark.parametrize("how", ["cancelled", "deadline"])
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("after", [0, 600])
def test_stopped_from_another_thread(
    how: str, *, streamed: bool, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = [Reply("A very long story. " * 50, faults=[Stall(after=after)]), "Yes."]
    with scripted(replies, tmp_path, monkeypatch) as stand, engine(stand.model) as talker:
        stop = Stop(None if how == "cancelled" else time.monotonic() + 0.5)
        canceller = threading.Timer(0.5 if how == "cancelled" else 60, stop.cancel)
        canceller.start()
        with stopping(stop), pytest.raises(StoppedError) as caught:
            list(talker.stream(ASKED)) if streamed else talker.reply(ASKED)
        canceller.cancel()
        assert caught.value.reason == how
        assert len(stand.simulator.requests) == 1  # nothing was tried again
        assert talker.reply(ASKED).message.text == "Yes."
        assert len(stand.programs) == 1


# --- what is asked ----------------------------------------------------------------------------------------------------


def asked(stand: Any, tools: Any = (), conversation: Conversation = ASKED, **options: Any) -> dict[str, Any]:
    with engine(stand.model) as talker:
        talker.reply(conversation, tools=tools, options=ModelOptions(**options))
    return body_of(stand.simulator.requests[-1])


def test_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(lambda _: "Yes.", tmp_path, monkeypatch) as stand:
        usual = asked(stand)
        assert (usual["max_tokens"], usual["temperature"]) == (2048, 0.7)
        assert "grammar" not in usual
        given = asked(stand, seed=7, temperature=0.1, top_p=0.5, top_k=3, stop=("x",), max_tokens=5)
        wanted = {"seed": 7, "temperature": 0.1, "top_p": 0.5, "top_k": 3, "stop": ["x"], "max_tokens": 5}
        assert {name: given[name] for name in wanted} == wanted
        assert asked(stand, [WEATHER])["temperature"] == 0
        assert asked(stand, extra_body={"mirostat": 2, "grammar": "mine"})["grammar"] == "mine"


def test_tool_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = ToolSpec("other")
    with scripted(lambda _: "Yes.", tmp_path, monkeypatch) as stand:
        none = asked(stand, [WEATHER], tool_choice="none")
        assert "grammar" not in none
        assert "weather" not in json.dumps(none["messages"][0])
        required = asked(stand, [WEATHER, other], tool_choice="required")["grammar"].splitlines()[1]
        assert "TEXT" not in required
        assert '\\"other\\"' in required
        one = asked(stand, [WEATHER, other], tool_choice=OneTool("weather"))["grammar"]
        assert "other" not in one
        with pytest.raises(ConfigurationError, match="no tool of that name"):
            asked(stand, [WEATHER], tool_choice=OneTool("nobody"))


def test_what_a_schema_says_and_no_grammar_holds_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unique = Raw(b'{"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}}')
    form = ResponseFormat(schema=unique)
    with scripted(["{}"], tmp_path, monkeypatch) as stand, engine(stand.model) as talker:
        reply = talker.reply(ASKED, tools=[ToolSpec("t", "", unique)], options=ModelOptions(response_format=form))
        told = [str(adaptation) for adaptation in reply.adaptations]
        assert len(told) == 2
        assert all("uniqueItems" in line for line in told)
        impossible = ToolSpec("never", "", Raw(b'{"type":"object","properties":{"a":false},"required":["a"]}'))
        with pytest.raises(ToolDefinitionError, match="'never' cannot be used: required property 'a'"):
            talker.reply(ASKED, tools=[impossible])


def test_an_answer_that_is_no_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(['{"answer": [1, 2]}'], tmp_path, monkeypatch) as stand, ChatClient(stand.model) as client:
        assert client.ask("Which?", list[int]) == [1, 2]


def test_what_it_cannot_take_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(lambda _: "Yes.", tmp_path, monkeypatch) as stand:
        with pytest.raises(ConfigurationError, match="user"):
            asked(stand, user="me")
        with pytest.raises(ConfigurationError, match="server_tools"):
            asked(stand, server_tools=(Raw(b"{}"),))
        with pytest.raises(ConfigurationError, match="llamacpp"):
            engine(stand.model, base_url="http://127.0.0.1:1/v1")
        asked(stand, user="me", adapt=True)


# --- histories --------------------------------------------------------------------------------------------------------

MIXED = Conversation().plus(
    Message.user("One.", Media(kind="image", mime_type="image/png", data=b"x")),
    Message.user("Two."),
    Message.assistant(Thinking("secret thoughts", provider="anthropic"), Text("Yes."), ToolCall("1", "weather", "")),
    Message.tool([ToolResult("1", "weather", (Media(kind="image", mime_type="image/png", data=b"x"),), is_error=True)]),
    Message.user("Three."),
)


def test_every_history_becomes_texts_that_alternate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(lambda _: "Yes.", tmp_path, monkeypatch) as stand:
        messages = asked(stand, conversation=MIXED)["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant", "user"]
        assert messages[0]["content"] == "One.\n\nTwo."
        assert messages[1]["content"] == f"Yes.\n\n{write_call('weather', '{}')}"
        assert "failed" in messages[2]["content"]
        assert messages[2]["content"].endswith("Three.")
        assert "secret" not in json.dumps(messages)


def test_what_is_lost_is_said_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(lambda _: "Yes.", tmp_path, monkeypatch) as stand:
        with engine(stand.model) as talker:
            losses = [(loss.message, loss.block, loss.what) for loss in talker.losses(MIXED)]
            assert losses == [(0, 1, "media"), (2, 0, "thinking"), (3, 0, "media")]
        with engine(stand.model, strict=True) as talker, pytest.raises(LossyConversionError):
            talker.reply(MIXED)


def test_a_loss_is_said_where_the_question_is_worded_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = Message.user("What is this?", Media(kind="image", mime_type="image/png", data=b"x"))
    after = ASKED.plus(Message.assistant("It rains."), picture)
    form = ModelOptions(response_format=ResponseFormat(schema=Raw(b'{"type":"string"}')))
    with scripted(lambda _: '"Yes."', tmp_path, monkeypatch) as stand, engine(stand.model) as talker:
        for told in (talker.reply(after, tools=[WEATHER]), talker.reply(after, options=form)):
            assert [(loss.message, loss.block, loss.what) for loss in told.losses] == [(2, 1, "media")]


def test_thinking_is_kept_apart_and_not_sent_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template = "{% if add_generation_prompt %}<think>\n{% endif %}"
    replies = [Reply("hm, hm\n</think>\n\nYes.", delta=SLOW), Reply("so</think>" + LYON)]
    with scripted(replies, tmp_path, monkeypatch, template=template) as stand, engine(stand.model) as talker:
        first = talker.run_inference(ASKED)
        assert (first.last.thinking.strip(), first.last.text) == ("hm, hm", "Yes.")
        assert talker.losses(first) == ()
        second = talker.reply(first.plus(Message.user("Go.")), tools=[WEATHER])
        assert (second.message.thinking, len(second.message.tool_calls)) == ("so", 1)
        assert "hm, hm" not in stand.simulator.requests[-1].raw.decode()


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_errors_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = [Status(400, "too long", "exceed_context_size_error"), "Yes."]
    with scripted(replies, tmp_path, monkeypatch) as stand, engine(stand.model) as talker:
        with pytest.raises(ContextTooLongError):
            talker.reply(ASKED)
        assert talker.reply(ASKED).message.text == "Yes."


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dead", [True, False])
def test_a_connection_that_breaks(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, dead: bool) -> None:
    kind, streamed = WAYS[way]
    replies = [Reply("One two three. " * 50, faults=[Cut(share=0.5)]), "Yes."]
    with scripted(replies, tmp_path, monkeypatch) as stand:
        talk = kind(stand.model, streamed=streamed, retry=RetryPolicy(max_attempts=1))
        try:
            with pytest.raises(ConnectionFailedError, match="program that runs the local model") as caught:
                talk.chat("Well?")
            assert "started anew" in caught.value.hint
            if dead:
                stand.programs[0].die()
            assert talk.chat("Well?").text == "Yes."
            assert len(stand.programs) == 1 + dead
        finally:
            talk.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dead", [True, False])
def test_a_program_that_just_ended(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, dead: bool) -> None:
    """Of a program that dies, the connections go first: it is looked at, and if it has died another one is asked."""
    kind, streamed = WAYS[way]
    monkeypatch.setattr(server, "_DYING_SECONDS", 5.0 if dead else 0.2)
    with scripted(lambda _: "Yes.", tmp_path, monkeypatch) as stand:
        spawn = stand.spawn

        def spawn_dying(state: Path, model: Path, context: int) -> Program:
            program = spawn(state, model, context)
            if len(stand.programs) == 1:
                nobody = msgspec.structs.replace(program.server, address="http://127.0.0.1:1")
                state.write_bytes(msgspec.json.encode(nobody))
                if dead:
                    threading.Timer(0.3, program.die).start()
            return program

        monkeypatch.setattr(server, "_spawn", spawn_dying)
        talk = kind(stand.model, streamed=streamed, retry=RetryPolicy(max_attempts=1))
        try:
            if dead:
                assert talk.chat("Well?").text == "Yes."
            else:
                with pytest.raises(ConnectionFailedError, match="program that runs the local model"):
                    talk.chat("Well?")
            assert len(stand.programs) == 1 + dead
        finally:
            talk.close()


def test_after_closing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(["Yes."], tmp_path, monkeypatch) as stand:
        talker = engine(stand.model)
        talker.close()
        with pytest.raises(ConfigurationError, match="closed"):
            talker.reply(ASKED)
        assert stand.programs == []


# --- names ------------------------------------------------------------------------------------------------------------


def test_names_of_engines() -> None:
    for name in ("local:", "local:smollm2-135m", "LOCAL:", f"local/{DEFAULT}"):
        with engine(name) as talker:
            assert talker.name == f"local:{'smollm2-135m' if 'smol' in name else DEFAULT}"
            assert talker.profile.media == frozenset()
            assert (talker.profile.structured, talker.profile.context_window) == ("native", 8192)
    with pytest.raises(LocalModelError, match="Did you mean"):
        engine("local:qwen-1.5b")
