"""Reasoning in all its forms, and what must be kept of it to send it back."""

from __future__ import annotations

import pytest
from msgspec.json import decode

from dragoman.conversation import Opaque, Text, Thinking
from tests.providers.openai_chat.wire import chunk, kept_in, read, stream, whole


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
