from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from msgspec import Raw

from dragoman.conversation import (
    Conversation,
    Message,
    Opaque,
    ToolCall,
    conversation_from_json,
    conversation_to_json,
    message_from_json,
    message_to_json,
)
from dragoman.errors import ConversationError, MalformedDataError, UnsupportedVersionError
from tests.strategies import conversations


@given(conversations, st.integers(0, 10**6), st.binary(min_size=1, max_size=3))
def test_a_round_trip_changes_nothing_and_damaged_bytes_never_crash(
    conversation: Conversation, where: int, noise: bytes
) -> None:
    written = conversation_to_json(conversation)
    assert conversation_from_json(written) == conversation
    assert conversation_from_json(written.decode()) == conversation
    assert conversation_to_json(conversation_from_json(written)) == written
    json.loads(written)  # another parser accepts it
    for message in conversation.messages:
        assert message_from_json(message_to_json(message)) == message
    at = where % len(written)
    with contextlib.suppress(MalformedDataError, UnsupportedVersionError):
        conversation_from_json(written[:at] + noise + written[at + len(noise) :])


def test_version_1_can_still_be_read() -> None:
    stored = Path(__file__).with_name("conversation-v1.json").read_bytes()
    conversation = conversation_from_json(stored)
    assert [message.role for message in conversation.messages] == ["user", "assistant", "tool", "assistant"]
    assert conversation.messages[1].tool_calls == (ToolCall("call_1", "weather", '{"city": "Lyon"}'),)
    assert conversation.text == "It is 21 degrees in Lyon."
    assert conversation.is_valid
    assert json.loads(conversation_to_json(conversation)) == json.loads(stored)


def test_unknown_fields_are_kept_byte_for_byte() -> None:
    written = (
        b'{"format":"dragoman.conversation","version":1,"conversation":{"messages":[{"role":"assistant",'
        b'"blocks":[{"type":"text","text":"x","new": {"b": 1.0}},{"type":"tool_call","id":"1","name":"f"}],'
        b'"usage":{"input":1,"later": 1e2},"mood":"good"}],"extra":[ 1 ]}}'
    )
    conversation = conversation_from_json(written)
    assert conversation.messages[0].text == "x"
    again = conversation_to_json(conversation.plus().with_system(None))
    for kept in (b'"new":{"b": 1.0}', b'"later":1e2', b'"mood":"good"', b'"extra":[ 1 ]'):
        assert kept in again
    assert json.loads(again) == json.loads(written)


@pytest.mark.parametrize("name", [b"*", b"\\u002a"])
def test_an_unknown_field_cannot_override_known_ones(name: bytes) -> None:
    written = b'{"role":"user","blocks":[{"type":"text","text":"hi","' + name + b'":{"text":"something else"}}]}'
    message = message_from_json(written)
    again = message_to_json(message)
    assert message.text == "hi"
    assert message_from_json(again) == message
    assert json.loads(again) == json.loads(written)


RESULT = b'{"type":"tool_result","call_id":"1","name":"f",'


@pytest.mark.parametrize(
    "message",
    [
        b'{"role":"tool","blocks":[' + RESULT + b'"structured":{"type":"text","text":"x"}}]}',
        b'{"role":"tool","blocks":[' + RESULT + b'"content":[{"type":"tool_call","id":"1","name":"f"}]}]}',
        b'{"role":"tool","blocks":[{"type":"json","raw":1}]}',
        b'{"role":"user","blocks":{"type":"text","text":"x"}}',
        b'{"role":"user","usage":[{"input":1}]}',
        b'{"role":"user","native":[{"provider":"p","fields":{}}]}',
    ],
)
def test_invalid_data_with_unknown_fields_is_refused(message: bytes) -> None:
    for data in (message, message[:-1] + b',"unknown":1}'):
        with pytest.raises(MalformedDataError):
            message_from_json(data)


@pytest.mark.parametrize("conversation", [Conversation("\ud800"), Conversation(metadata={"a": object()})])
def test_data_that_is_not_json_is_a_typed_error(conversation: Conversation) -> None:
    with pytest.raises(ConversationError, match="cannot be written as JSON.*metadata"):
        conversation_to_json(conversation)
    with pytest.raises(ConversationError, match="The message cannot be written"):
        message_to_json(Message.user("\ud800"))


def test_raw_parts_keep_their_bytes() -> None:
    raw = b'{"type":  "x", "n": 1.50, "big": 123456789012345678901234567890}'
    written = conversation_to_json(Conversation().plus(Message.assistant(Opaque("p", Raw(raw)))))
    assert raw in written
    [block] = conversation_from_json(written).messages[0].blocks
    assert isinstance(block, Opaque)
    assert bytes(block.raw) == raw


def test_newer_versions_are_refused() -> None:
    data = conversation_to_json(Conversation()).replace(b'"version":1', b'"version":2')
    with pytest.raises(UnsupportedVersionError, match="upgrade dragoman") as caught:
        conversation_from_json(data)
    assert (caught.value.found, caught.value.supported) == (2, 1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b'{"format":"other","version":1}',
        b'{"format":"dragoman.conversation","version":0}',
        b'{"format":"dragoman.conversation","version":"1"}',
        b'{"format":"dragoman.conversation","version":1,"conversation":[]}',
        b'{"format":"dragoman.conversation","version":1,"conversation":{"messages":[{"role":"king"}]}}',
        b'{"format":"dragoman.conversation","version":1,"conversation":{"messages":[{"blocks":[]}]}}',
        b'{"format":"dragoman.conversation","version":1,"conversation":{"messages":7,"new":1}}',
        b'{"format":"dragoman.conversation","version":1,"conversation":{"messages":[{"role":"user","blocks":[{"type":"hologram"}]}]}}',
        b'{"format":"dragoman.conversation","version":1,"conversation":{"messages":[{"role":"user","blocks":[{"type":"media","kind":"image","mime_type":"image/png"}]}]}}',
        b'{"format":"dragoman.conversation","version":1,"conversation":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    ],
)
def test_an_invalid_conversation_is_a_typed_error(data: bytes) -> None:
    with pytest.raises(MalformedDataError):
        conversation_from_json(data)
