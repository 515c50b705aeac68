"""What a reply says of the provider's prompt cache: how much could come from it, how much did, and what changed."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from msgspec import Raw

from dragoman.chat import ChatClient
from dragoman.conversation import Conversation, Message, OneTool, Text, ToolCall, ToolResult, ToolSpec, Usage
from dragoman.engines import ScriptedEngine, engine
from dragoman.loop import DropToolResults
from dragoman.providers import (
    CacheUse,
    Call,
    ModelOptions,
    Profile,
    Reasoning,
    ResponseFormat,
    explain_cache,
    profile_of,
)
from dragoman.simulator import Reply, Simulator
from dragoman.tools import tool
from tests.engines.talking import every_dialect, every_way

SYSTEM = "You are a clerk. " * 20
CLAUDE = profile_of("anthropic", "claude-sonnet-4-5")
GPT = profile_of("openai", "gpt-4o")
FORMAT = ResponseFormat(schema=Raw(b'{"type":"object"}'))


def _prompts(
    *conversations: Conversation,
    tools: tuple[Sequence[ToolSpec], Sequence[ToolSpec]] = ((), ()),
    options: tuple[ModelOptions, ModelOptions] = (ModelOptions(), ModelOptions()),
    profile: Profile = GPT,
) -> tuple[Call, ...]:
    """As an engine keeps them. Of tools and options the second ones are those of the last request."""
    return tuple(
        [
            Call(model="m", conversation=said, profile=profile, tools=tuple(tools[last]), options=options[last])
            for at, said in enumerate(conversations, 1)
            for last in (at == len(conversations),)
        ]
    )


# --- by a real engine -------------------------------------------------------------------------------------------------


@every_dialect
@every_way
def test_a_reply_tells_what_could_have_been_read_and_what_was(model: str, way: Any) -> None:
    """An engine of its own for each call knows of no request before; the numbers are the provider's."""
    usage = Usage(input=5000, output=5, cache_read=4000, cache_write=None if "gemini" in model else 100)
    with Simulator([Reply("Yes.", usage=usage)]) as simulator:
        outcome = way(simulator, model, Conversation(SYSTEM).plus(Message.user("Hello")))
    cache = outcome.reply.cache
    assert (cache.read, cache.written or 100, cache.eligible, cache.why) == (4000, 100, None, "")


@every_dialect
@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_that_grows_is_eligible_but_for_its_new_messages(model: str, stream: bool) -> None:
    told = [Usage(input=1000, output=5, cache_read=read) for read in (0, 990, 0)]
    with Simulator([Reply("Yes.", usage=usage) for usage in told]) as simulator:
        base_url = simulator.base_url(model.partition(":")[0])
        talk, seen = Conversation(SYSTEM), list[CacheUse]()
        with engine(model, key="k", base_url=base_url, options=ModelOptions(cache=True)) as one:
            for said in ("Hello", "Well?", "And?"):
                talk = talk.plus(Message.user(said))
                if stream:
                    with one.stream(talk) as replying:
                        assert list(replying)
                    reply = replying.reply
                else:
                    reply = one.reply(talk)
                talk = talk.plus(reply.message)
                seen.append(reply.cache)
    assert seen[0].eligible is None
    assert "first request of this engine" in seen[0].why
    assert 950 < (seen[1].eligible or 0) < 1000
    assert (seen[1].changed, seen[1].why) == (None, "")
    assert seen[2].changed is None
    assert "expired, or is shorter" in seen[2].why
    assert str(seen[2]).startswith(f"read 0 of about {seen[2].eligible} tokens: nothing changed")


def test_a_client_sees_that_its_context_policy_changed_a_message() -> None:
    @tool
    def look(place: str) -> str:
        """Look there."""
        return place * 200

    script: list[Any] = [Reply(ToolCall("", "look", '{"place":"here"}'), usage=Usage(input=90, output=1)), "Seen."]
    with Simulator(script * 2) as simulator:
        model = engine("openai:gpt-4o", key="k", base_url=simulator.base_url("openai"), profile={"context_window": 100})
        with model, ChatClient(model, tools=[look], context=[DropToolResults(keep=1)]) as client:
            first = client.chat("Look!")
            second = client.chat("Look again!")
    assert [reply.cache.changed for reply in first.replies] == [None, None]
    assert [reply.cache.changed for reply in second.replies] == [None, "messages.2"]
    assert second.replies[1].cache.why == "message 2 changed"


def test_other_engines_tell_what_was_reported_and_no_more() -> None:
    said = msgspec.structs.replace(Message.assistant("Yes."), usage=Usage(input=10, output=1, cache_read=3))
    with ScriptedEngine([said]) as scripted:
        assert scripted.reply(Conversation().plus(Message.user("?"))).cache == CacheUse(
            read=3, written=None, eligible=None
        )


def test_what_is_kept_is_bounded() -> None:
    """An engine compares with its last eight requests; a reply keeps references, and does not show them."""
    with (
        Simulator(lambda _request: "Yes.") as simulator,
        engine("openai:gpt-4o", key="k", base_url=simulator.base_url("openai")) as one,
    ):
        asked = Conversation(SYSTEM).plus(Message.user("x" * 10_000))
        others = [Conversation(f"{number}").plus(Message.user("Hello")) for number in range(8)]
        for conversation in (asked, *others[1:]):
            one.reply(conversation)
        found = one.reply(asked)
        assert found.cache.changed is None
        for conversation in others:
            one.reply(conversation)
        lost = one.reply(asked)
    assert (len(lost.sent.calls), lost.cache.changed) == (9, "system")
    assert lost.sent.calls[-1].conversation.messages is asked.messages
    assert len(repr(lost)) < 4_000


def test_prompts_stay_in_the_process_and_are_remembered_once_they_are_sent() -> None:
    """An engine serves many: what one of them asked is not in the reply that another one keeps."""
    with (
        Simulator(lambda _request: "Yes.") as simulator,
        engine("openai:gpt-4o", key="k", base_url=simulator.base_url("openai")) as one,
    ):
        private, asked = (Conversation().plus(Message.user(text)) for text in ("private matters", "Hello"))
        one.stream(private).close()  # before anything was sent
        assert "first request of this engine" in one.reply(asked).cache.why
        one.reply(private)
        reply = one.reply(asked)
    assert len(reply.sent.calls) == 3
    for kept in (pickle.dumps(reply), msgspec.json.encode(reply), repr(reply).encode()):
        assert b"private" not in kept
    assert pickle.loads(pickle.dumps(reply)) == reply
    assert msgspec.json.decode(msgspec.json.encode(reply), type=type(reply)).cache.eligible is None


# --- why --------------------------------------------------------------------------------------------------------------

ASKED = Conversation(SYSTEM).plus(Message.user("Hello"))
LONGER = ASKED.plus(Message.assistant("Yes?"), Message.user("Go on"))


@pytest.mark.parametrize(
    ("profile", "options", "usage", "why"),
    [
        (GPT, {}, Usage(input=9000, cache_read=8000), ""),
        (GPT, {}, Usage(input=9000, cache_read=0), "nothing changed: it has expired, or the provider did not find it"),
        (GPT, {}, Usage(input=900, cache_read=0), "shorter than this model's cache takes"),
        (GPT, {}, Usage(input=9000), "does not report"),
        (GPT, {}, None, "does not report"),
        (CLAUDE, {}, Usage(input=9000, cache_read=0), "not marked for the cache"),
        (CLAUDE, {"cache": True}, Usage(input=9000, cache_read=0), "has expired"),
        (CLAUDE, {"cache": True}, Usage(input=9000, cache_read=8500), ""),
    ],
)
def test_why_nothing_was_read_although_nothing_changed(profile: Any, options: Any, usage: Any, why: str) -> None:
    said = ModelOptions(**options)
    told = explain_cache(_prompts(ASKED, LONGER, profile=profile, options=(said, said)), usage)
    assert told.changed is None
    assert why in told.why if why else told.why == ""
    assert told.eligible is not None


@pytest.mark.parametrize(
    ("profile", "option", "changed"),
    [
        (CLAUDE, {"tool_choice": OneTool("add")}, "options.tool_choice"),
        (CLAUDE, {"reasoning": Reasoning(budget=2048)}, "options.reasoning"),
        (CLAUDE, {"response_format": FORMAT}, "options.response_format"),
        (CLAUDE, {"temperature": 0.5, "max_tokens": 7}, None),
        (GPT, {"tool_choice": OneTool("add")}, None),
        (GPT, {"server_tools": (Raw(b"{}"),)}, "options.server_tools"),
        (GPT, {"stop": ("x",)}, None),
    ],
)
def test_options_that_break_a_cache_are_named(profile: Any, option: Any, changed: str | None) -> None:
    options = (ModelOptions(), ModelOptions(**option))
    told = explain_cache(_prompts(ASKED, LONGER, options=options, profile=profile), Usage(input=9000, cache_read=0))
    assert told.changed == changed
    if changed:
        assert changed.partition(".")[2] in told.why


def test_what_the_provider_read_all_the_same_needs_no_explanation() -> None:
    edited = LONGER.with_system("Other.")
    told = explain_cache(_prompts(ASKED, edited), Usage(input=9000, cache_read=8000))
    assert (told.changed, told.why) == ("system", "")


def test_the_place_in_the_system_prompt_is_told() -> None:
    stamped = [Conversation(f"{SYSTEM}It is {time}.").plus(Message.user("Hello")) for time in ("12:01", "12:02")]
    told = explain_cache(_prompts(*stamped), Usage(input=1000, cache_read=0))
    assert told.why == f"the system prompt changed from character {len(SYSTEM) + 10} on"
    assert (told.eligible or 0) > 950


def test_the_request_that_is_most_alike_is_compared_with() -> None:
    """Whatever else an engine was asked meanwhile, and also if the messages were read from a store again."""
    copied = msgspec.structs.replace(LONGER, messages=tuple(msgspec.structs.replace(m) for m in LONGER.messages))
    others = [Conversation("Summarise.").plus(Message.user(f"{number}")) for number in range(5)]
    told = explain_cache(_prompts(ASKED, *others, copied), Usage(input=1000, cache_read=960))
    assert (told.changed, told.why) == (None, "")
    assert (told.eligible or 0) > 900


# --- any change is named ----------------------------------------------------------------------------------------------

names = st.lists(st.text("abcdef", min_size=1, max_size=5), unique=True, min_size=2, max_size=5)
turns = st.lists(st.text("xyz ", min_size=1, max_size=30), min_size=1, max_size=6)


@settings(max_examples=300)
@given(data=st.data(), names=names, turns=turns, noise=st.integers(0, 6))
def test_the_first_change_is_named_wherever_it_is(data: Any, names: list[str], turns: list[str], noise: int) -> None:
    tools = [ToolSpec(name, f"Does {name}.") for name in names]
    messages = [
        message
        for at, text in enumerate(turns)
        for message in (
            Message.user(text),
            Message.assistant(Text("Let me look."), ToolCall(f"c{at}", "f", "{}")),
            Message.tool([ToolResult(f"c{at}", "f", (Text(text),))]),
        )
    ]
    system: str | None = SYSTEM
    changed_tools, changed_messages, changed_system = list(tools), list(messages), system
    kind: str = data.draw(
        st.sampled_from(["tool added", "tool removed", "tool changed", "moved", "system", "message", "none"])
    )
    at: int = data.draw(st.integers(0, len(messages if kind == "message" else tools) - 1))
    if kind == "tool added":
        changed_tools.insert(at, ToolSpec("new", "New."))
        expected = ("tools.new", "the tool 'new' was added")
    elif kind == "tool removed":
        del changed_tools[at]
        expected = (f"tools.{names[at]}", f"the tool {names[at]!r} was removed")
    elif kind == "tool changed":
        changed_tools[at] = ToolSpec(names[at], "Does something else.")
        expected = (f"tools.{names[at]}", f"the tool {names[at]!r} was changed")
    elif kind == "moved":
        other = (at + 1) % len(tools)
        changed_tools[at], changed_tools[other] = tools[other], tools[at]
        first = changed_tools[min(at, other)].name
        expected = (f"tools.{first}", f"the tool {first!r} is at another place")
    elif kind == "system":
        changed_system = data.draw(st.sampled_from([None, "", SYSTEM + "!", "Other. " + SYSTEM]))
        expected = ("system", "the system prompt changed")
    elif kind == "message":
        role = messages[at].role
        changed_messages[at] = Message(role=role, blocks=(*messages[at].blocks[:-1], Text("changed")))
        expected = (f"messages.{at}", f"message {at} changed")
    else:
        expected = (None, "")
    # Whatever comes after the first change makes no difference.
    behind = [*changed_messages[: max(at + 1, 1) if kind == "message" else None], Message.user("More")]
    before = Conversation(system, tuple(messages))
    now = Conversation(changed_system, tuple(behind))
    unlike = [Conversation(f"Noise {number}.").plus(Message.user("?")) for number in range(noise)]
    profile = data.draw(st.sampled_from([GPT, CLAUDE]))
    prompts = _prompts(*unlike, before, now, tools=(tools, changed_tools), profile=profile)
    told = explain_cache(prompts, Usage(input=1000, cache_read=0))
    assert told.changed == expected[0]
    if expected[0] is not None:
        assert told.why.startswith(expected[1])
    assert 0 <= (told.eligible or 0) <= 1000
    if kind == "none":
        assert (told.eligible or 0) > 900
