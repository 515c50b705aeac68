"""Reasoning in all its forms, and what must be kept of it to send it back."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from msgspec.json import decode

from dragoman.conversation import Conversation, Message, Opaque, ReplyEvent, Text, Thinking, fold
from dragoman.errors import ProtocolError
from dragoman.providers.catalogue import profile_of
from dragoman.providers.codec import Call
from dragoman.providers.openai_chat import CODEC
from tests.providers.openai_chat.wire import NOTHING, call_to, chunk, event, kept_in, read, stream, whole


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_in_a_field_of_its_own(field: str) -> None:
    message = read(
        stream(chunk({field: "h", "content": None}), chunk({field: "m"}), chunk({"content": "a"}), chunk({}, "stop"))
    )
    thought, text = message.blocks
    assert isinstance(thought, Thinking)
    assert (thought.text, thought.provider) == ("hm", "openai_chat:openai-compatible")
    assert thought.native is not None
    assert decode(thought.native.fields["field"]) == field
    assert text == Text("a")


def test_both_fields_at_once_say_the_same() -> None:
    message = read(stream(chunk({"reasoning_content": "hm", "reasoning": "hm"}), chunk({"content": "a"}, "stop")))
    assert message.thinking == "hm"


def test_think_tags_stay_text() -> None:
    assert read(whole({"content": "<think>hm</think>a"})).text == "<think>hm</think>a"


def test_details_with_signatures_and_encrypted_ones() -> None:
    def detail(**members: object) -> dict[str, object]:
        return {"reasoning": members.get("text"), "reasoning_details": [{"index": 0, "format": "x", **members}]}

    message = read(
        stream(
            chunk(detail(type="reasoning.text", text="h", signature="")),
            chunk(detail(type="reasoning.text", text="m")),
            chunk(detail(type="reasoning.text", text="", signature="sig")),
            chunk({"content": "a", "reasoning": None, "reasoning_details": []}),
            chunk(detail(type="reasoning.encrypted", data="se", id="rs_1")),
            chunk({"content": "b"}),
            chunk(detail(type="reasoning.encrypted", data="cret")),
            chunk({}, "stop"),
        ),
        "openrouter",
    )
    shown, text, sealed = message.blocks
    assert isinstance(shown, Thinking)
    assert isinstance(sealed, Thinking)
    assert (shown.text, shown.signature, shown.encrypted) == ("hm", "sig", None)
    assert (sealed.text, sealed.encrypted, sealed.redacted) == ("", "secret", True)
    assert text == Text("ab")
    assert sealed.native is not None
    kept = kept_in(sealed.native)
    assert kept == {
        "field": "reasoning_details",
        "type": "reasoning.encrypted",
        "format": "x",
        "index": 0,
        "id": "rs_1",
    }


def test_two_details_of_one_index_in_a_whole_reply_stay_two() -> None:
    details = [{"type": "reasoning.summary", "summary": text, "index": 0} for text in ("one", "two")]
    message = read(whole({"content": "a", "reasoning": "onetwo", "reasoning_details": details}), "openrouter")
    assert [block.text for block in message.blocks if isinstance(block, Thinking)] == ["one", "two"]


def test_reasoning_beside_details_that_hide_it() -> None:
    details = [{"type": "reasoning.encrypted", "data": "secret", "index": 0}]
    message = read(whole({"content": "a", "reasoning": "hm", "reasoning_details": details}), "openrouter")
    assert message.thinking == "hm"
    assert len(message.blocks) == 3


def test_lists_of_content_with_thinking() -> None:
    def thinking(text: str) -> dict[str, object]:
        return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]}

    message = read(
        stream(
            chunk({"role": "assistant", "content": ""}),
            chunk(thinking("h")),
            chunk(thinking("m")),
            chunk({"content": [{"type": "text", "text": "a"}]}),
            chunk({"content": "b"}),
            chunk({"content": [{"type": "reference", "reference_ids": [1]}]}),
            chunk({"content": "c"}),
            chunk({}, "stop"),
        ),
        "mistral",
    )
    thought, text, reference, more = message.blocks
    assert isinstance(thought, Thinking)
    assert thought.text == "hm"
    assert (text, more) == (Text("ab"), Text("c"))
    assert isinstance(reference, Opaque)
    assert reference.value == {"type": "reference", "reference_ids": [1]}


def test_other_lists_of_content() -> None:
    assert read(whole({"content": ["a", {"type": "text", "text": "b"}]})).text == "ab"
    assert read(whole({"content": [{"type": "thinking", "thinking": "hm"}]}, "stop")).thinking == "hm"
    marked = read(whole({"content": [{"type": "text", "text": "a", "annotations": [1]}]})).blocks[0]
    assert isinstance(marked, Text)
    assert marked.native is not None
    assert decode(marked.native.fields["annotations"]) == [1]


# --- tags in the text ---


def read_tagged(*pieces: str, done: bool = True) -> Message:
    call = call_to()
    profile = call.profile.with_changes(quirks=frozenset(["think_tags"]))
    reader = CODEC.decoder(msgspec.structs.replace(call, profile=profile), NOTHING)
    end = [chunk({}, "stop")] if done else []
    events: list[ReplyEvent] = []
    with suppress(ProtocolError):
        for one in [*[chunk({"content": piece}) for piece in pieces], *end]:
            reader.feed(event(one), events)
        reader.finish(events)
    return fold(events)


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("<think>hm</think>\n\na", "hm", "a"),
        ("\n<think>h</thin</think>a</think>", "h</thin", "a</think>"),
        ("a <think>b</think>", "", "a <think>b</think>"),
        ("<thinking>a", "", "<thinking>a"),
        ("<thi", "", "<thi"),
        ("<think>hm", "hm", ""),
        ("<think>hm</thi", "hm</thi", ""),
        ("<think></think>a", "", "a"),
    ],
)
def test_tags_are_taken_off_where_the_profile_says_so(text: str, thinking: str, answer: str) -> None:
    for pieces in ([text], list(text), [text[:4], text[4:]]):
        for done in (True, False):
            message = read_tagged(*pieces, done=done)
            assert (message.thinking, message.text) == (thinking, answer)


def test_tags_go_back_as_they_came() -> None:
    message = read_tagged("<think>hm</think>\n\na")
    conversation = Conversation(messages=(message,))
    call = Call(model="m", conversation=conversation, profile=profile_of("openai-compatible", "m"))
    sent = decode(CODEC.encode(call).request.body)["messages"]
    assert sent == [{"role": "assistant", "content": "<think>hm</think>\n\na"}]
