"""Whole replies take a short road where they are plain: to the message that a decoder and `fold` come to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.providers.anthropic import CODEC
from dragoman.providers.codec import Encoded, WireRequest
from tests.providers.anthropic.calls import call_of
from tests.providers.recorded import Exchange, exchanges, parametrized
from tests.providers.roads import compared, twisted

ASKED = call_of()
SENT = Encoded(request=WireRequest(path="", body=b""), tool_names={"wire_name": "own name"})


def plain(body: bytes, *, in_order: bool = False) -> bool:
    return compared(CODEC, ASKED, SENT, body, in_order=in_order)


@parametrized("anthropic")
def test_every_recorded_reply_is_the_same_on_both_roads(exchange: Exchange) -> None:
    plain(exchange.body.encode(), in_order=True)  # also of errors and streams, which are a decoder's


def test_most_recorded_replies_are_plain() -> None:
    bodies = [row.body.encode() for row in exchanges("anthropic") if row.status == 200 and not row.streamed]
    if not bodies:
        pytest.skip("the recorded exchanges are not here")
    assert sum(map(plain, bodies)) > 0.8 * len(bodies)


# --- replies that nobody has recorded --------------------------------------------------------------------------------

TEXTS = st.sampled_from(["Hello", "", " ", "é🤔", "NaN"])
ODD = st.sampled_from([None, "", [], {}, 0, 1, 1.0, 1.5, True, "x", [1], {"a": None}, "tool_use", "error", "message"])
TEXT = st.fixed_dictionaries(
    {"type": st.just("text"), "text": TEXTS}, optional={"citations": st.sampled_from([None, [], [{"a": 1}]])}
)
THOUGHT = st.fixed_dictionaries(
    {"type": st.just("thinking"), "thinking": TEXTS}, optional={"signature": st.sampled_from(["", "sig", None])}
)
CALL = st.fixed_dictionaries(
    {
        "type": st.just("tool_use"),
        "id": st.sampled_from(["toolu_1", "toolu_2", "", None]),
        "name": st.sampled_from(["f", "wire_name", ""]),
        "input": st.sampled_from([{}, {"a": 1}, {"é": [1, {"b": None}]}]),
    },
    optional={"caller": st.sampled_from([None, {"type": "direct"}])},
)
REDACTED = st.just({"type": "redacted_thinking", "data": "secret"})
COUNT = st.sampled_from([0, 7, 10**20, 7.0, None, "7", True, -1])
USAGE = st.fixed_dictionaries(
    {"input_tokens": st.just(12) | COUNT, "output_tokens": st.just(5) | COUNT},
    optional={
        "cache_creation_input_tokens": COUNT,
        "cache_read_input_tokens": COUNT,
        "cache_creation": st.sampled_from([None, {}, {"ephemeral_5m_input_tokens": 0}]),
        "output_tokens_details": st.sampled_from([None, {}, {"thinking_tokens": 3}, {"thinking_tokens": None}, 1]),
        "server_tool_use": st.sampled_from([None, {"web_search_requests": 0}]),
        "service_tier": st.sampled_from([None, "standard", 1]),
        "inference_geo": st.sampled_from([None, "not_available"]),
        "new": ODD,
    },
)
REPLY = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["msg_1", "", None]),
        "type": st.just("message"),
        "role": st.just("assistant"),
        "model": st.sampled_from(["claude-2", None]),
        "content": st.lists(TEXT | TEXT | CALL | CALL | THOUGHT | REDACTED, max_size=4),
        "stop_reason": st.sampled_from(["end_turn", "tool_use", "max_tokens", "odd", "", None]),
    },
    optional={
        "usage": USAGE | ODD,
        "stop_sequence": st.sampled_from([None, "END"]),
        "stop_details": st.sampled_from([None, {"type": "refusal"}]),
        "container": st.sampled_from([None, {"id": "c"}]),
        "context_management": st.sampled_from([None, {"applied_edits": []}]),
    },
)
MEMBERS = ("id", "type", "role", "model", "content", "stop_reason", "usage", "text", "name", "input", "caller", "more")
TWISTS = st.lists(st.tuples(st.integers(0, 20), st.sampled_from(MEMBERS), ODD), max_size=2)


@settings(max_examples=500)
@given(REPLY, TWISTS, st.sampled_from([None, (",", ":"), 2]))
def test_any_reply_is_the_same_on_both_roads(reply: Any, twists: list[Any], style: Any) -> None:
    how: dict[str, Any] = {"indent": style} if isinstance(style, int) else {"separators": style}
    plain(json.dumps(twisted(reply, twists), ensure_ascii=False, **how).encode())


PLAIN = json.dumps(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-2",
        "content": [
            {"type": "text", "text": "Hello"},
            {"type": "tool_use", "id": "t", "name": "wire_name", "input": {"a": 1}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 12, "cache_read_input_tokens": 3, "output_tokens": 5, "service_tier": "standard"},
    },
    separators=(",", ":"),
).encode()


def test_a_plain_reply_is_plain() -> None:
    assert plain(PLAIN)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"", b""),
        (b'"usage":{', b'"usage": {'),
        (b'"input_tokens":12', b'"input_tokens":12e0'),
        (b'"input_tokens":12', b'"input_tokens":1,"input_tokens":12'),
        (b'"input_tokens":12', b'"input\\u005ftokens":12'),
        (b'"standard"', b'"st\\u0061ndard"'),
        (b'"standard"', b'"\xff"'),
        (b'"standard"', b'"\x01"'),
        (b'"Hello"', b'"\xff"'),
        (b'"Hello"', b'"\\ud83d"'),
        (b'"Hello"', b'"\\ud83d\\udd25"'),
        (b'{"a":1}', b'{"a":NaN}'),
        (b'{"a":1}', b'{"\\u0061":1, "a": 2}'),
        (b'{"a":1}', b"[1]"),
        (b'{"a":1}', b'"{}"'),
        (b'{"a":1}', b"null"),
        (b'{"a":1}', b'{"a":\xff}'),
        (b'{"a":1}', b"[" * 100_000),
        (b'{"type":"text",', b'{"type":"text","type":"tool_use",'),
        (b'{"type":"text",', b'{"type":"tool_use","type":"text",'),
        (b'{"type":"text","text":"Hello"}', b'{"text":"Hello","type":"text"}'),
        (b'{"id":"msg_1"', b' \r\n{"id":"msg_1"'),
        (b'{"id":"msg_1"', b'\xef\xbb\xbf{"id":"msg_1"'),
        (b'"service_tier"', b'"x":{"y":[null]},"service_tier"'),
    ],
)
def test_odd_bytes_are_the_same_on_both_roads(old: bytes, new: bytes) -> None:
    assert old in PLAIN
    body = PLAIN.replace(old, new, 1) if old else PLAIN
    for sent in (body, body[:-1], body + b"x", body + b" \n"):
        plain(sent)
