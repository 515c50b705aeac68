"""Any conversation can be sent to any server: as valid JSON, with calls and results that agree, and losses told."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.conversation import Conversation, Message, ToolSpec
from dragoman.errors import ConfigurationError
from dragoman.providers.catalogue import PROVIDERS, profile_of
from dragoman.providers.codec import Call
from dragoman.providers.openai_chat import CODEC
from tests.providers.openai_chat.wire import call_piece, chunk, read, stream
from tests.strategies import conversations

HELLO = Conversation(messages=(Message.user("hi"),))
SERVERS = [name for name, provider in PROVIDERS.items() if provider.dialect == "openai_chat"]


@settings(max_examples=200)
@given(conversations, st.sampled_from(SERVERS))
def test_any_conversation_to_any_server(given_one: Conversation, provider: str) -> None:
    conversation = given_one.repaired().conversation
    call = Call(model="m", conversation=conversation, profile=profile_of(provider, "m"))
    try:
        encoded = CODEC.encode(call)
    except ConfigurationError:
        return  # a file that nobody read, or nothing to send
    messages = json.loads(encoded.request.body)["messages"]
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert not waiting, "a call without its result"
        waiting = [one["id"] for one in message.get("tool_calls", [])]
    for loss in encoded.losses:
        assert loss.block < len(conversation.messages[loss.message].blocks)
    assert CODEC.encode(call) == encoded


def test_illegal_names_are_changed_and_changed_back() -> None:
    tool = ToolSpec("weather.get", "The weather.")
    reply_names = CODEC.encode(
        Call(model="m", conversation=HELLO, profile=profile_of("openai", "gpt-4o"), tools=(tool,))
    )
    wire_name = json.loads(reply_names.request.body)["tools"][0]["function"]["name"]
    assert wire_name != "weather.get"
    body = stream(chunk({"tool_calls": [call_piece("{}", 0, "c1", wire_name)]}), chunk({}, "tool_calls"))
    reply = read(body, "openai", names=dict(reply_names.tool_names))
    assert reply.tool_calls[0].name == "weather.get"
    conversation = Conversation(messages=(reply,))
    for tools in ((tool,), ()):
        again = Call(model="m", conversation=conversation, profile=profile_of("openai", "gpt-4o"), tools=tools)
        name = json.loads(CODEC.encode(again).request.body)["messages"][0]["tool_calls"][0]["function"]["name"]
        assert "." not in name
    assert any("weather.get" in adaptation.what for adaptation in reply_names.adaptations)


@pytest.mark.parametrize("provider", SERVERS)
def test_nothing_at_all_is_not_sent(provider: str) -> None:
    with pytest.raises(ConfigurationError, match="nothing to send"):
        CODEC.encode(Call(model="m", conversation=Conversation(), profile=profile_of(provider, "m")))
