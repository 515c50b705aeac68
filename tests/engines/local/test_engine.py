"""The engine, with a scripted model in the place of a real one: in both colours, streamed and not."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman.chat import AsyncChatClient, ChatClient
from dragoman.conversation import (
    AnswerGrown,
    Conversation,
    Event,
    Media,
    Message,
    OneTool,
    StopReason,
    Text,
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
    ToolDefinitionError,
)
from dragoman.loop import LimitReached, Limits
from dragoman.providers import ModelOptions, ResponseFormat
from dragoman.simulator import Cut, Reply, Stall, Status
from dragoman.tools import tool
from dragoman.transport import RetryPolicy
from tests.chat.talking import WAYS, AsyncTalk, PlainTalk, transcript
from tests.engines.local.running import Program, Stand
from tests.engines.local.test_grammar import fits

ASKED = Conversation("Be brief.").plus(Message.user("Weather in Lyon?"))
CITY = Raw(b'{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}')
WEATHER = ToolSpec("weather", "What the weather is like.", CITY)
LYON = write_call("weather", '{"city": "Lyon"}')
SLOW = 1  # characters of an event
ONCE = RetryPolicy(max_attempts=1)
PICTURE = Media(kind="image", mime_type="image/png", data=b"x")


@tool
def weather(city: str) -> str:
    """What the weather is like."""
    return f"rain in {city}"


class Place(msgspec.Struct):
    city: str
    rainy: bool


# --- conversations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_tool_call_and_a_typed_answer(way: str, stand: Stand) -> None:
    replies = [Reply(f"I look.\n{LYON}", delta=SLOW), "It rains.", '{"city": "Lyon", "rainy": true}', "Bye."]
    talk = stand.talk(replies, way, [weather], system="Be brief.")
    result = talk.chat("Weather in Lyon?")
    assert transcript(talk.client.conversation) == [
        ("user", "Weather in Lyon?"),
        ("assistant", "I look.", ("call", "weather", {"city": "Lyon"})),
        ("tool", ("result", "weather", "rain in Lyon")),
        ("assistant", "It rains."),
    ]
    assert result.spent.tool_calls == 1
    assert talk.client.usage.known
    assert talk.client.history[1].stop_reason is StopReason.TOOL_CALLS
    assert f"local:{talk.client.history[1].model}" == talk.client.model
    assert talk.do("ask", "As data.", Place) == Place("Lyon", rainy=True)
    talk.chat("Thanks.")
    first, second, typed, thanked = stand.requests
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert first["messages"][0]["content"].startswith("Be brief.")
    assert "weather" in first["messages"][0]["content"]
    assert first["grammar"].startswith("%llguidance")
    assert "tools" not in first
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "user"]
    assert LYON in second["messages"][2]["content"]
    assert "rain in Lyon" in second["messages"][3]["content"]
    assert "rainy" in typed["grammar"]
    assert "rainy" in typed["messages"][-1]["content"]
    assert "rainy" not in thanked["grammar"]


@pytest.mark.parametrize("fence", ["```json\n{}\n```", "```\n{}\n```", "{}"])
@pytest.mark.parametrize("way", WAYS)
def test_a_typed_answer_after_tools(way: str, fence: str, stand: Stand) -> None:
    """A model writes its JSON in a fence if it may; what is kept and what grows is bare. Restored, too."""
    answer = '{"city": "Lyon", "rainy": true}'
    written = [LYON, fence.format(answer)]
    events: list[Event] = []

    def typed(talk: PlainTalk | AsyncTalk, question: str | None) -> Any:
        given = ("stream_chat", question, events.append) if talk.streamed else ("chat", question)
        return talk.do(*given, answer=Place)

    stopped = stand.talk([Reply(LYON)], way, [weather], limits=Limits(steps=1), on_limit="return")
    assert isinstance(typed(stopped, "Weather in Lyon?").ending, LimitReached)
    (first,) = stand.requests
    talk = stand.talk([Reply(written[1], delta=SLOW)], way, [weather], conversation=stopped.client.conversation)
    result = typed(talk, None)
    (second,) = stand.requests
    assert result.answer == Place("Lyon", rainy=True)
    assert transcript(talk.client.conversation) == [
        ("user", "Weather in Lyon?"),
        ("assistant", ("call", "weather", {"city": "Lyon"})),
        ("tool", ("result", "weather", "rain in Lyon")),
        ("assistant", answer),
    ]
    grown = [event.value for event in events if isinstance(event, AnswerGrown)]
    assert not talk.streamed or (grown[-1] == {"city": "Lyon", "rainy": True} and len(grown) > 5)
    for request in (first, second):
        assert all(fits(request["grammar"], text) for text in written)
        assert "rainy" in request["messages"][-1]["content"]


# --- one model for all ------------------------------------------------------------------------------------------------


def test_engines_share_one_server_for_each_context(stand: Stand) -> None:
    model = stand.play(lambda _: "Yes.", context=4096)
    small = {"context_window": 2048}
    with engine(model) as first, engine(model) as second, engine(model, profile=small) as third:
        assert stand.programs == []  # nothing is loaded before it is needed
        for each in (first, second, third):
            each.reply(ASKED)
        assert stand.simulator.wait_until_idle()  # no connection is kept: llama.cpp might close it as it is used again
        assert [program.context for program in stand.programs] == [4096, 2048]
        assert third.profile.context_window == 2048


def test_tasks_do_not_block_the_loop_and_can_be_cancelled(stand: Stand) -> None:
    model = stand.play([*"abcde", Reply("Never.", faults=[Stall(after=0)]), "Yes."])

    async def tick(ticks: list[int]) -> None:
        while True:
            ticks.append(1)
            await asyncio.sleep(0)

    async def main() -> None:
        async with AsyncChatClient(model, stateless=True) as client:
            ticks: list[int] = []
            ticking = asyncio.create_task(tick(ticks))
            results = await asyncio.gather(*[client.chat(f"Number {number}?") for number in range(5)])
            ticking.cancel()
            assert len(ticks) > 50
            assert sorted(result.text for result in results) == [*"abcde"]
        async with async_engine(model) as talker:
            slow = asyncio.create_task(talker.reply(ASKED))
            await asyncio.sleep(0.2)
            slow.cancel()
            await asyncio.gather(slow, return_exceptions=True)
            assert (await asyncio.wait_for(talker.reply(ASKED), 20)).message.text == "Yes."

    asyncio.run(main())


# --- what is asked ----------------------------------------------------------------------------------------------------


def asked(stand: Stand, tools: Any = (), conversation: Conversation = ASKED, **options: Any) -> dict[str, Any]:
    stand.engine(lambda _: "Yes.").reply(conversation, tools=tools, options=ModelOptions(**options))
    for program in stand.programs:
        program.die()
    return stand.requests[-1]


def test_options(stand: Stand) -> None:
    usual = asked(stand)
    assert (usual["max_tokens"], usual["temperature"]) == (2048, 0.7)
    assert "grammar" not in usual
    given = asked(stand, seed=7, temperature=0.1, top_p=0.5, top_k=3, stop=("x",), max_tokens=5)
    wanted = {"seed": 7, "temperature": 0.1, "top_p": 0.5, "top_k": 3, "stop": ["x"], "max_tokens": 5}
    assert wanted.items() <= given.items()
    assert asked(stand, [WEATHER])["temperature"] == 0
    assert asked(stand, extra_body={"mirostat": 2, "grammar": "mine"})["grammar"] == "mine"
    with pytest.raises(ConfigurationError, match="user"):
        asked(stand, user="me")
    with pytest.raises(ConfigurationError, match="server_tools"):
        asked(stand, server_tools=(Raw(b"{}"),))
    with pytest.raises(ConfigurationError, match="llamacpp"):
        engine("local:", base_url="http://127.0.0.1:1/v1")
    asked(stand, user="me", adapt=True)


def test_tool_choice(stand: Stand) -> None:
    other = ToolSpec("other")
    none = asked(stand, [WEATHER], tool_choice="none")
    assert "grammar" not in none
    assert "weather" not in json.dumps(none["messages"][0])
    required = asked(stand, [WEATHER, other], tool_choice="required")["grammar"].splitlines()[1]
    assert "TEXT" not in required
    assert '\\"other\\"' in required
    assert "other" not in asked(stand, [WEATHER, other], tool_choice=OneTool("weather"))["grammar"]
    with pytest.raises(ConfigurationError, match="no tool of that name"):
        asked(stand, [WEATHER], tool_choice=OneTool("nobody"))


def test_a_later_question_reminds_of_the_tools(stand: Stand) -> None:
    later = ASKED.plus(Message.assistant("It rains."), Message.user("And in Rome?"))
    form = ResponseFormat(schema=CITY)
    for wanted, how in ((None, "in plain text"), (form, "with JSON")):
        question = asked(stand, [WEATHER], later, response_format=wanted)["messages"][-1]["content"]
        assert question.startswith("And in Rome?\n\n(If one of the functions weather is needed")
        assert f"Otherwise answer {how}.)" in question
        for none in (asked(stand, [WEATHER], response_format=wanted), asked(stand, (), later, response_format=wanted),
                     asked(stand, [WEATHER], later, response_format=wanted, tool_choice="required")):  # fmt: skip
            assert "If one of the functions" not in str(none["messages"])


def test_unenforced_schema_keywords_are_reported(stand: Stand) -> None:
    unique = Raw(b'{"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}}')
    talker = stand.engine(["{}", '{"answer": [1, 2]}'])
    form = ModelOptions(response_format=ResponseFormat(schema=unique))
    told = [str(each) for each in talker.reply(ASKED, tools=[ToolSpec("t", "", unique)], options=form).adaptations]
    assert len(told) == 2
    assert all("uniqueItems" in line for line in told)
    impossible = ToolSpec("never", "", Raw(b'{"type":"object","properties":{"a":false},"required":["a"]}'))
    with pytest.raises(ToolDefinitionError, match="'never' cannot be used: required property 'a'"):
        talker.reply(ASKED, tools=[impossible])
    assert ChatClient(talker).ask("Which?", list[int]) == [1, 2]  # an answer that is no object


# --- histories --------------------------------------------------------------------------------------------------------


def test_any_history_becomes_alternating_texts_and_losses_are_reported(stand: Stand) -> None:
    mixed = Conversation().plus(
        Message.user("One.", PICTURE),
        Message.user("Two."),
        Message.assistant(Thinking("secret thoughts", provider="anthropic"), "Yes.", ToolCall("1", "weather", "")),
        Message.tool([ToolResult("1", "weather", (PICTURE,), is_error=True)]),
        Message.user("Three."),
    )
    messages = asked(stand, conversation=mixed)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[0]["content"] == "One.\n\nTwo."
    assert messages[1]["content"] == f"Yes.\n\n{write_call('weather', '{}')}"
    assert "failed" in messages[2]["content"]
    assert messages[2]["content"].endswith("Three.")
    assert "secret" not in json.dumps(messages)
    strict = stand.engine([], strict=True)
    losses = [(loss.message, loss.block, loss.what) for loss in strict.losses(mixed)]
    assert losses == [(0, 1, "media"), (2, 0, "thinking"), (3, 0, "media")]
    with pytest.raises(LossyConversionError):
        strict.reply(mixed)


def test_losses_are_reported_for_a_reworded_question(stand: Stand) -> None:
    after = ASKED.plus(Message.assistant("It rains."), Message.user(Text("What is this?"), PICTURE))
    form = ModelOptions(response_format=ResponseFormat(schema=Raw(b'{"type":"string"}')))
    talker = stand.engine(lambda _: '"Yes."')
    for told in (talker.reply(after, tools=[WEATHER]), talker.reply(after, options=form)):
        assert [(loss.message, loss.block, loss.what) for loss in told.losses] == [(2, 1, "media")]


def test_thinking_is_separate_and_not_sent_back(stand: Stand) -> None:
    template = "{% if add_generation_prompt %}<think>\n{% endif %}"
    replies = [Reply("hm, hm\n</think>\n\nYes.", delta=SLOW), Reply("so</think>" + LYON)]
    talker = stand.engine(replies, {"template": template})
    first = talker.run_inference(ASKED)
    assert (first.last.thinking.strip(), first.last.text) == ("hm, hm", "Yes.")
    assert talker.losses(first) == ()
    second = talker.reply(first.plus(Message.user("Go.")), tools=[WEATHER])
    assert (second.message.thinking, len(second.message.tool_calls)) == ("so", 1)
    assert "hm, hm" not in str(stand.requests[-1])


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dead", [True, False])
def test_a_connection_that_breaks(way: str, stand: Stand, *, dead: bool) -> None:
    talk = stand.talk([Reply("One two three. " * 50, faults=[Cut(share=0.5)]), "Yes."], way, retry=ONCE)
    with pytest.raises(ConnectionFailedError, match="server of the local model") as caught:
        talk.chat("Well?")
    assert "restarted" in caught.value.hint
    if dead:
        stand.programs[0].die()
    assert talk.chat("Well?").text == "Yes."
    assert len(stand.programs) == 1 + dead


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dead", [True, False])
def test_a_server_that_exits_is_replaced(
    way: str, stand: Stand, monkeypatch: pytest.MonkeyPatch, *, dead: bool
) -> None:
    """Its connections close before its lock is released."""
    monkeypatch.setattr(server, "_EXIT_SECONDS", 5.0 if dead else 0.2)

    def spawn_dying(state: Path, model: Path, context: int) -> Program:
        program = stand.spawn(state, model, context)
        if len(stand.programs) == 1:
            nobody = msgspec.structs.replace(program.server, address="http://127.0.0.1:1")
            state.write_bytes(msgspec.json.encode(nobody))
            if dead:
                threading.Timer(0.3, program.die).start()
        return program

    monkeypatch.setattr(server, "_spawn", spawn_dying)
    talk = stand.talk(lambda _: "Yes.", way, retry=ONCE)
    if dead:
        assert talk.chat("Well?").text == "Yes."
    else:
        with pytest.raises(ConnectionFailedError, match="server of the local model"):
            talk.chat("Well?")
    assert len(stand.programs) == 1 + dead


def test_errors_of_the_server_and_after_closing(stand: Stand) -> None:
    talker = stand.engine([Status(400, "too long", "exceed_context_size_error"), "Yes."])
    with pytest.raises(ContextTooLongError):
        talker.reply(ASKED)
    assert talker.reply(ASKED).message.text == "Yes."
    talker.close()
    with pytest.raises(ConfigurationError, match="closed"):
        talker.reply(ASKED)


def test_names_of_engines() -> None:
    for name in ("local:", "local:smollm2-135m", "LOCAL:", f"local/{DEFAULT}"):
        with engine(name) as talker:
            assert talker.name == f"local:{'smollm2-135m' if 'smol' in name else DEFAULT}"
            assert talker.profile.media == frozenset()
            assert (talker.profile.structured, talker.profile.context_window) == ("native", 8192)
    with pytest.raises(LocalModelError, match="Did you mean"):
        engine("local:qwen-1.5b")
