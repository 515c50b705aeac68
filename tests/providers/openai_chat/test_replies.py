"""What else a reply holds: refusals, sound, images, counts of tokens, and members that nobody knows yet."""

from __future__ import annotations

import json

import pytest

from dragoman.conversation import Media, Opaque, StopReason, Text, Usage
from tests.providers.openai_chat.wire import USAGE, chunk, event, kept_in, read, stream, whole


def test_a_refusal_is_text_and_a_stop_reason() -> None:
    message = read(stream(chunk({"refusal": "I can"}), chunk({"refusal": "not."}), chunk({}, "stop")))
    assert (message.text, message.stop_reason) == ("I cannot.", StopReason.REFUSAL)
    assert read(whole({"content": None, "refusal": "No."})).stop_reason is StopReason.REFUSAL
    assert read(whole({"content": "a", "refusal": ""})).stop_reason is StopReason.END


def test_sound_comes_in_pieces_and_is_one_block() -> None:
    body = stream(
        chunk({"audio": {"id": "audio_1", "transcript": "Hel"}}),
        chunk({"audio": {"data": "AAEC", "transcript": "lo"}}),
        chunk({"audio": {"data": "AwQ="}}),
        chunk({"audio": {"expires_at": 17}}, "stop"),
    )
    block = read(body, extra_body={"audio": {"format": "mp3"}}).blocks[0]
    assert isinstance(block, Media)
    assert (block.kind, block.mime_type, block.data) == ("audio", "audio/mpeg", bytes(range(5)))
    assert block.native is not None
    kept = kept_in(block.native)
    assert kept == {"id": "audio_1", "expires_at": 17, "transcript": "Hello"}
    empty = {"data": "", "expires_at": 0, "id": "", "transcript": ""}
    assert [type(block) for block in read(whole({"content": "a", "audio": empty})).blocks] == [Text]
    assert isinstance(read(whole({"audio": {"id": "x", "data": "?!"}})).blocks[0], Opaque)


def test_images_that_the_model_made() -> None:
    images = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC"}},
        {"type": "image_url", "image_url": {"url": "https://host/a.png"}},
        {"type": "something"},
    ]
    inline, linked, unknown = read(whole({"content": None, "images": images})).blocks
    assert isinstance(inline, Media)
    assert isinstance(linked, Media)
    assert (inline.mime_type, inline.data) == ("image/png", b"\0\1\2")
    assert linked.url == "https://host/a.png"
    assert isinstance(unknown, Opaque)


def test_unknown_members_are_kept_with_the_message() -> None:
    first = chunk({"content": "a", "executed_tools": [{"index": 0, "type": "search"}]}, system_fingerprint="fp")
    first["choices"][0]["logprobs"] = {"content": [{"token": "a"}]}
    second = chunk({"content": "b", "executed_tools": [{"index": 0, "output": "x"}], "annotations": [1]}, x_new=[1])
    second["choices"][0]["logprobs"] = {"content": [{"token": "b"}]}
    third = chunk({"annotations": [2], "note": "o"}, "stop", usage={**USAGE, "cost": 0.5})
    native = read(stream(first, second, chunk({"note": "k"}), third)).native
    assert native is not None
    kept = kept_in(native)
    assert kept["system_fingerprint"] == "fp"
    assert kept["x_new"] == [1]
    assert kept["usage"]["cost"] == 0.5
    assert kept["choice"] == {"logprobs": {"content": [{"token": "a"}, {"token": "b"}]}}
    assert kept["message"] == {
        "executed_tools": [{"index": 0, "type": "search", "output": "x"}],
        "annotations": [1, 2],
        "note": "ko",
    }


def test_only_the_first_of_several_answers_is_read() -> None:
    second = {"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}
    assert read(stream(chunk({"content": "a"}), chunk(choices=[second]), chunk({}, "stop"))).text == "a"
    body = json.loads(whole({"content": "a"}))
    body["choices"].insert(0, {"index": 1, "message": {"content": "no"}, "finish_reason": "stop"})
    assert read(json.dumps(body).encode(), stream=False).text == "a"


def test_a_first_chunk_without_choices() -> None:
    """Azure begins with what its filters think of the prompt, without an id and a model."""
    azure = chunk(choices=[], id="", model="", prompt_filter_results=[{"prompt_index": 0}])
    message = read(stream(azure, chunk({"content": "a"}), chunk({}, "stop")))
    assert (message.id, message.model) == ("chatcmpl-1", "m-1")
    assert message.native is not None
    assert "prompt_filter_results" in message.native.fields


def test_numbers_that_are_none_and_half_an_emoji() -> None:
    odd = event(chunk({"content": "a"}, "stop")).replace(b'"logprobs": null', b'"logprobs": {"content": [NaN]}')
    assert read(odd).text == "a"
    assert read(
        stream(chunk({"content": "a"}), done=False)
        + event(chunk({}, "stop")).replace(b'"delta": {}', b'"delta": {"content": "\\ud83d!"}')
    ).text.startswith("a\ufffd")
    assert read(stream(chunk({"content": "a"}), chunk({"content": "b"}, "stop")).replace(b"b", b"\xff", 1)).text


# --- usage ---


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2}, Usage(input=5, output=2)),
        (
            {
                **USAGE,
                "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            Usage(input=10, output=4, total=14, cache_read=3, cache_write=1, reasoning=2),
        ),
        ({**USAGE, "prompt_cache_hit_tokens": 7}, Usage(input=10, output=4, total=14, cache_read=7)),
        ({**USAGE, "num_cached_tokens": 7}, Usage(input=10, output=4, total=14, cache_read=7)),
        ({**USAGE, "prompt_tokens_details": None, "cached_tokens": 7}, Usage(10, 4, 7, total=14)),
        (
            {**USAGE, "total_tokens": 17, "completion_tokens_details": {"reasoning_tokens": 3}},
            Usage(input=10, output=7, total=17, reasoning=3),
        ),
        ({"prompt_tokens": "many"}, None),
        ([], None),
        ({}, None),
        (None, None),
    ],
)
def test_usage_under_all_its_names(usage: object, expected: Usage | None) -> None:
    assert read(whole({"content": "a"}, usage=usage), stream=False).usage == expected
    assert read(stream(chunk({"content": "a"}), chunk({}, "stop", usage=usage))).usage == expected


def test_usage_in_other_places() -> None:
    assert read(stream(chunk({"content": "a"}), chunk({}, "stop", x_groq={"usage": USAGE}))).usage == Usage(
        input=10, output=4, total=14
    )
    moonshot = chunk({"content": "a"}, "stop")
    moonshot["choices"][0]["usage"] = USAGE
    assert read(stream(moonshot)).usage == Usage(input=10, output=4, total=14)


def test_the_last_count_stands() -> None:
    counts = [{"prompt_tokens": 10, "completion_tokens": n} for n in (1, 2, 3)]
    message = read(stream(*[chunk({"content": "a"}, usage=count) for count in counts], chunk({}, "stop")))
    assert message.usage == Usage(input=10, output=3)
