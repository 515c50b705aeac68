"""Whole replies take a short road where they are plain: to the message that a decoder and `fold` come to."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.providers.openai_chat import CODEC
from tests.providers.openai_chat.recorded_calls import call_of
from tests.providers.openai_chat.wire import NOTHING, USAGE, call_to, whole
from tests.providers.recorded import Exchange, exchanges, parametrized
from tests.providers.roads import compared, twisted

SENT = msgspec.structs.replace(NOTHING, tool_names={"g": "own name"})


def plain(body: bytes, provider: str = "openai-compatible") -> bool:
    return compared(CODEC, call_to(provider, stream=False), SENT, body)


@parametrized("chat")
def test_every_recorded_reply_is_the_same_on_both_roads(exchange: Exchange) -> None:
    # Also of errors and streams, which are a decoder's.
    compared(CODEC, call_of(exchange), SENT, exchange.body.encode())


def test_most_recorded_replies_are_plain() -> None:
    rows = [row for row in exchanges("chat") if row.status == 200 and not row.streamed]
    if not rows:
        pytest.skip("the recorded exchanges are not here")
    assert sum(compared(CODEC, call_of(row), SENT, row.body.encode()) for row in rows) > 0.6 * len(rows)


# --- replies that nobody has recorded --------------------------------------------------------------------------------

TEXTS = st.sampled_from(["Hello", "", "<think>hm</think>So.", "é🤔", "NaN"])
MAYBE = TEXTS | st.none()
ODD = st.sampled_from([None, "", [], {}, 0, 1, 1.0, 1.5, True, "x", "stop", [1], {"a": None}])
CALL = st.fixed_dictionaries(
    {
        "function": st.fixed_dictionaries(
            {
                "name": st.sampled_from(["f", "g", ""]),
                "arguments": st.sampled_from(["{}", '{"a":1}', "", '{"a":']),
            }
        )
    },
    optional={
        "id": st.sampled_from(["c1", "c2", "", None]),
        "type": st.sampled_from(["function", None]),
        "index": st.sampled_from([0, 1, None]),
    },
)
MESSAGE = st.fixed_dictionaries(
    {"content": TEXTS},
    optional={
        "role": st.just("assistant"),
        "refusal": MAYBE,
        "reasoning": MAYBE,
        "reasoning_content": MAYBE,
        "tool_calls": st.lists(CALL, max_size=3) | st.none(),
        "annotations": st.just([]) | st.none(),
        "function_call": st.none(),
    },
)
CHOICE = st.fixed_dictionaries(
    {
        "message": MESSAGE,
        "finish_reason": st.sampled_from(["stop", "length", "tool_calls", "STOP", "error", "odd", "", None]),
    },
    optional={
        "index": st.just(0),
        "logprobs": st.sampled_from([None, {}, {"content": None}]),
        "stop_reason": st.none(),
    },
)
COUNT = st.sampled_from([0, 7, 7.0, 7.5, None, "7", True, -1])
DETAILS = st.dictionaries(
    st.sampled_from(["cached_tokens", "cache_write_tokens", "cache_creation_tokens", "reasoning_tokens", "x"]), COUNT
)
USAGES = st.fixed_dictionaries(
    {name: st.just(count) | COUNT for name, count in USAGE.items()},
    optional={
        **{f"{name}_details": DETAILS | ODD for name in ("prompt_tokens", "prompt_token", "completion_tokens")},
        **dict.fromkeys(
            ("prompt_cache_hit_tokens", "num_cached_tokens", "cached_tokens", "reasoning_tokens", "x"), COUNT
        ),
    },
)
REPLY = st.fixed_dictionaries(
    {"choices": st.lists(CHOICE, min_size=1, max_size=1), "id": st.just("r1"), "created": st.just(1234567890)},
    optional={
        "model": st.just("m-2"),
        "object": st.just("chat.completion"),
        "usage": USAGES | ODD,
        "x_groq": st.just({"id": "r", "usage": USAGE}) | ODD,
        "usage_breakdown": ODD,
        "service_tier": st.just("default") | ODD,
        "system_fingerprint": ODD,
        "error": st.none(),
    },
)
NAMES = (
    *("more", "id", "model", "created", "choices", "error", "index", "finish_reason", "native_finish_reason", "usage"),
    *("logprobs", "stop_reason", "content", "refusal", "reasoning", "reasoning_details", "tool_calls", "annotations"),
    *("audio", "channel", "token_id", "role", "type", "function", "name", "arguments", "function_call"),
)
# What a plain reply does not have, or not so: put in somewhere.
TWISTS = st.lists(
    st.tuples(
        st.integers(0, 20),
        st.sampled_from(NAMES),
        ODD | st.just(USAGE) | st.just({"message": "no", "code": 500}) | st.just([{"type": "text", "text": "a"}]),
    ),
    max_size=2,
)


@settings(max_examples=500)
@given(REPLY, TWISTS, st.sampled_from(["openai", "openai-compatible", "groq", "mistral", "ollama"]))
def test_any_reply_is_the_same_on_both_roads(reply: Any, twists: list[Any], provider: str) -> None:
    plain(json.dumps(twisted(reply, twists), ensure_ascii=False).encode(), provider)


def test_a_plain_reply_is_plain() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "g", "arguments": "{}"}}
    assert plain(whole({"content": "Hello", "tool_calls": [call]}, "tool_calls", usage=USAGE, created=1))


@pytest.mark.parametrize(
    "body",
    [
        whole({"content": "Hello"}, usage=USAGE, created=1, service_tier="default", system_fingerprint=None),
        b" \r\n" + whole({"content": "Hello"}),
        b"\xef\xbb\xbf" + whole({"content": "Hello"}),
        whole({"content": "Hello"}, created=1).replace(b'"created": 1', b'"created": NaN'),
        whole({"content": "Hello"}, service_tier="X").replace(b"X", b"\xff"),
        whole({"content": "X"}).replace(b"X", b"\xff"),
        whole({"content": "X"}).replace(b"X", b"\\ud83d"),
        whole({"content": "Hello"})[:-1],
        whole({"content": "Hello"}) + b"x",
    ],
)
def test_odd_bytes_are_the_same_on_both_roads(body: bytes) -> None:
    plain(body)
