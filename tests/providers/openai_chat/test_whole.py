"""Whole replies take a short road, a plain one or the careful one: which of them makes no difference."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.conversation import ReplyEvent, fold
from dragoman.errors import ProviderError
from dragoman.providers.codec import Decoder
from dragoman.providers.openai_chat import decode
from dragoman.providers.openai_chat.wire import WHOLE
from tests.providers.openai_chat.recorded_calls import decoder_of
from tests.providers.openai_chat.wire import USAGE, decoder, whole
from tests.providers.recorded import Exchange, exchanges, parametrized

Outcome = tuple[list[ReplyEvent], str]


def _refuse(_body: bytes) -> None:
    message = "not plain"
    raise msgspec.DecodeError(message)


def outcome(decoder: Decoder, body: bytes) -> Outcome:
    """All events, and the error if one followed."""
    events: list[ReplyEvent] = []
    try:
        decoder.feed(body, events)
        decoder.finish(events)
    except ProviderError as error:
        return events, f"{type(error).__name__}: {error.message} {error.code}"
    return events, ""


def roads(short: Decoder, plain: Decoder, careful: Decoder, body: bytes) -> tuple[Outcome, Outcome, Outcome]:
    """The outcome on each of the three roads."""
    with pytest.MonkeyPatch.context() as patch:
        first = outcome(short, body)
        patch.setattr(decode, "plain_reply", lambda *_: False)
        second = outcome(plain, body)
        patch.setattr(decode, "WHOLE", _refuse)
        return first, second, outcome(careful, body)


@parametrized("chat")
def test_every_recorded_reply_is_the_same_on_all_roads(exchange: Exchange) -> None:
    body = exchange.body.encode()  # also of errors and streams, which are the careful road's in any case
    short, plain, careful = roads(*[decoder_of(exchange) for _ in range(3)], body=body)
    assert short == plain == careful
    if not short[1]:
        assert fold(short[0]) == fold(careful[0])


def test_most_recorded_replies_are_plain() -> None:
    bodies = [row.body.encode() for row in exchanges("chat") if row.status == 200 and not row.streamed]
    if not bodies:
        pytest.skip("the recorded exchanges are not here")

    def is_plain(body: bytes) -> bool:
        try:
            WHOLE(body)
        except (msgspec.DecodeError, UnicodeError):
            return False
        return True

    assert sum(map(is_plain, bodies)) > len(bodies) / 2


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
TWIST = st.tuples(
    st.sampled_from(["reply", "choice", "message", "call", "function"]),
    st.sampled_from(NAMES),
    ODD | st.just(USAGE) | st.just({"message": "no", "code": 500}) | st.just([{"type": "text", "text": "a"}]),
)


def twisted(reply: dict[str, Any], twists: list[tuple[str, str, Any]]) -> dict[str, Any]:
    choice = reply["choices"][0]
    calls = choice["message"].get("tool_calls") or [{"function": {}}]
    places = {"reply": reply, "choice": choice, "message": choice["message"], "call": calls[0]}
    places["function"] = calls[0]["function"]
    for place, name, value in twists:
        places[place][name] = value
    return reply


@settings(max_examples=500)
@given(
    REPLY, st.lists(TWIST, max_size=2), st.sampled_from(["openai", "openai-compatible", "groq", "mistral", "ollama"])
)
def test_any_reply_is_the_same_on_all_roads(reply: dict[str, Any], twists: list[Any], provider: str) -> None:
    body = json.dumps(twisted(reply, twists), ensure_ascii=False).encode()
    short, plain, careful = roads(*[decoder(provider, stream=False) for _ in range(3)], body=body)
    assert short == plain == careful


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
def test_odd_bytes_are_the_same_on_all_roads(body: bytes) -> None:
    short, plain, careful = roads(*[decoder(stream=False) for _ in range(3)], body=body)
    assert short == plain == careful
