"""Whole replies take a short road where they are plain: to the message that a decoder and `fold` come to."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.providers.codec import Encoded, WireRequest
from dragoman.providers.openai_responses import CODEC
from dragoman.providers.openai_responses.ending import kept_of
from tests.providers.openai_responses.calls import make_call, profile_of
from tests.providers.recorded import Exchange, exchanges, parametrized
from tests.providers.roads import compared, twisted

SENT = Encoded(request=WireRequest(path="", body=b""), tool_names={"wire_name": "own name"})
CALLS = [
    make_call(),
    make_call(profile=profile_of("gpt-5.6").with_changes(quirks=frozenset(["reply_scoped_call_ids"]))),
]


def plain(body: bytes, scoped: int = 0, *, in_order: bool = False) -> bool:
    return compared(CODEC, CALLS[scoped], SENT, body, in_order=in_order)


@parametrized("responses")
def test_every_recorded_reply_is_the_same_on_both_roads(exchange: Exchange) -> None:
    plain(exchange.body.encode(), in_order=True)  # also of errors and streams, which are a decoder's


def test_most_recorded_replies_are_plain() -> None:
    bodies = [row.body.encode() for row in exchanges("responses") if row.status == 200 and not row.streamed]
    if not bodies:
        pytest.skip("the recorded exchanges are not here")
    assert sum(map(plain, bodies)) > 0.7 * len(bodies)


# --- replies that nobody has recorded --------------------------------------------------------------------------------

TEXTS = st.sampled_from(["Hello", "", " ", "é🤔"])
ODD = st.sampled_from(
    [None, "", [], {}, 0, 1, 1.0, 1.5, True, "x", [1], {"a": None}, [{"text": "y"}], "incomplete", "7"]
)
IDS = st.sampled_from(["i1", "i2", "i3", ""])
STATUS = st.sampled_from(["completed", "completed", "completed", "incomplete", "in_progress", None])
SAID = st.fixed_dictionaries(
    {"type": st.just("output_text"), "text": TEXTS},
    optional={"annotations": st.sampled_from([[], [{"a": 1}]]), "logprobs": st.just([])},
)
REFUSED = st.fixed_dictionaries({"type": st.sampled_from(["refusal", "new"]), "refusal": TEXTS})
CONTENT = st.lists(SAID, min_size=1, max_size=2) | st.lists(SAID | REFUSED, max_size=2)
MESSAGE = st.fixed_dictionaries(
    {"type": st.just("message"), "content": CONTENT},
    optional={"id": IDS, "role": st.just("assistant"), "status": STATUS, "phase": st.just("final_answer")},
)
CALLING = st.fixed_dictionaries(
    {
        "type": st.just("function_call"),
        "name": st.sampled_from(["f", "g", "wire_name", ""]),
        "call_id": st.sampled_from(["c1", "c2", "c3", ""]),
        "arguments": st.sampled_from(["{}", '{"a":1}', "", '{"a":', {"a": 1}]),
    },
    optional={"id": IDS, "status": STATUS, "namespace": st.just("n")},
)
THOUGHTS = st.lists(st.fixed_dictionaries({"text": TEXTS}, optional={"type": st.just("summary_text")}), max_size=2)
REASONING = st.fixed_dictionaries(
    {"type": st.just("reasoning"), "summary": THOUGHTS},
    optional={
        "id": IDS,
        "encrypted_content": st.sampled_from(["sealed", "sealed", "", None]),
        "content": THOUGHTS | st.none(),
    },
)
SEARCH = st.just({"type": "web_search_call", "id": "ws", "status": "completed"})
COUNT = st.sampled_from([0, 7, 7.0, None, -1])
DETAILS = st.dictionaries(st.sampled_from(["cached_tokens", "cache_write_tokens", "reasoning_tokens", "new"]), COUNT)
USAGE = st.fixed_dictionaries(
    {"input_tokens": COUNT, "output_tokens": COUNT},
    optional={"total_tokens": COUNT, "input_tokens_details": DETAILS, "output_tokens_details": DETAILS},
)
# Members of both kinds: those that are kept, and those that the request said.
NAMES = ("service_tier", "billing", "incomplete_details", "tools", "metadata", "error", "created_at", "object")
REPLY = st.fixed_dictionaries(
    {
        "output": st.lists(MESSAGE | CALLING | REASONING, max_size=3)
        | st.lists(MESSAGE | CALLING | SEARCH, max_size=3),
        "status": st.sampled_from(["completed", "completed", "complete", "incomplete", "failed", "queued", None]),
    },
    optional={
        "id": st.sampled_from(["resp_1", "", None]),
        "model": st.sampled_from(["gpt-9", None]),
        "usage": USAGE | st.none(),
        **dict.fromkeys(NAMES, ODD),
    },
)
MEMBERS = (
    "output",
    "status",
    "id",
    "model",
    "usage",
    "type",
    "content",
    "text",
    "name",
    "call_id",
    "arguments",
    "more",
)
TWISTS = st.lists(st.tuples(st.integers(0, 20), st.sampled_from(MEMBERS), ODD), max_size=2)


@settings(max_examples=500)
@given(REPLY, TWISTS, st.sampled_from([None, 2]), st.sampled_from([0, 0, 0, 1]))
def test_any_reply_is_the_same_on_both_roads(reply: Any, twists: list[Any], indent: int | None, scoped: int) -> None:
    body = json.dumps(twisted(reply, twists), ensure_ascii=False, indent=indent).encode()
    plain(body, scoped)


PLAIN = json.dumps(
    {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "gpt-9",
        "output": [
            {"id": "rs_1", "type": "reasoning", "summary": [{"text": "Hm"}, {"text": "So"}], "encrypted_content": "x"},
            {
                "id": "msg_1",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "annotations": [], "text": "Hello"}],
            },
            {
                "id": "fc_1",
                "type": "function_call",
                "status": "completed",
                "call_id": "c1",
                "name": "wire_name",
                "arguments": '{"a":1}',
            },
        ],
        "service_tier": "default",
        "usage": {"input_tokens": 12, "input_tokens_details": {"cached_tokens": 3}, "output_tokens": 5},
    }
).encode()


def test_a_plain_reply_is_plain() -> None:
    assert plain(PLAIN)


@pytest.mark.parametrize("name", ["object", "error", "tools", "text", "prompt_cache_key", "user"])
def test_what_the_request_said_is_kept_on_neither_road(name: str) -> None:
    reply = {**json.loads(PLAIN), name: {"x": 1}}
    assert plain(json.dumps(reply).encode())
    assert kept_of({name: msgspec.Raw(b'{"x":1}')}, []) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"", b""),
        (b'"input_tokens": 12', b'"input_tokens": 12e0'),
        (b'"input_tokens": 12', b'"input_tokens": 1, "input_tokens": 12'),
        (b'"input_tokens": 12', b'"input_tokens": 99999999999999999999'),
        (b'"default"', b'"\xff"'),
        (b'"default"', b'"\x01"'),
        (b'"default"', b'""'),
        (b'"object"', b'"obj\\u0065ct"'),
        (b'"response"', b"NaN"),
        (b'"Hello"', b'"\xff"'),
        (b'"Hello"', b'"\\ud83d"'),
        (b'"Hello"', b'"", "text": "Hello"'),
        (b'"message"', b'"m\\u0065ssage"'),
        (b'"output_text"', b'"output\\u005ftext"'),
        (b'"completed", "role"', b'"compl\\u0065ted", "role"'),
        (b'"completed", "call_id"', b'"incompl\\u0065te", "call_id"'),
        (b'"role": "assistant"', b'"role": "\xff"'),
        (b'"role": "assistant"', b'"role":  [ 1,2 ],  "role" : {"x" : 1}'),
        (b'"annotations": []', b'"annotations": [ ]'),
        (b'"annotations": []', b'"annotations": ' + b"[" * 100_000),
        (b'{"text": "Hm"}', b"1"),
        (b"{", b" \r\n{"),
        (b"{", b"\xef\xbb\xbf{"),
    ],
)
def test_odd_bytes_are_the_same_on_both_roads(old: bytes, new: bytes) -> None:
    assert old in PLAIN
    body = PLAIN.replace(old, new, 1) if old else PLAIN
    for sent in (body, body[:-1], body + b"x", body + b" \n"):
        plain(sent)
