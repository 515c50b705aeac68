"""Whole replies take a short road where they are plain: to the message that a decoder and `fold` come to."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.conversation import Message, ToolCall
from dragoman.providers.gemini import CODEC
from tests.providers.gemini.case import NOTHING_SENT, a_call
from tests.providers.recorded import Exchange, exchanges, parametrized
from tests.providers.roads import compared, twisted

CALL = a_call(Message.user("a"), Message.assistant(ToolCall("x", "f", "{}")))  # calls without ids are numbered on
SENT = msgspec.structs.replace(NOTHING_SENT, tool_names={"wire_name": "own name"})


def plain(body: bytes, *, in_order: bool = False) -> bool:
    return compared(CODEC, CALL, SENT, body, in_order=in_order)


@parametrized("gemini")
def test_every_recorded_reply_is_the_same_on_both_roads(exchange: Exchange) -> None:
    plain(exchange.body.encode(), in_order=True)  # also of errors and streams, which are a decoder's


def test_most_recorded_replies_are_plain() -> None:
    bodies = [row.body.encode() for row in exchanges("gemini") if row.status == 200 and not row.streamed]
    if not bodies:
        pytest.skip("the recorded exchanges are not here")
    assert sum(map(plain, bodies)) > 0.8 * len(bodies)


# --- replies that nobody has recorded --------------------------------------------------------------------------------

ODD = st.sampled_from([None, "", [], {}, 0, 1, 1.0, 1.5, True, False, "x", [1], {"a": None}, {"text": "y"}])
SIGNATURE = st.sampled_from(["c2ln", "", None])
TEXT = st.fixed_dictionaries(
    {"text": st.sampled_from(["Hello", "So.", " ", "é🤔", ""])}, optional={"thoughtSignature": SIGNATURE}
)
THOUGHT = st.fixed_dictionaries(
    {"text": st.sampled_from(["Hm", "", None]), "thought": st.sampled_from([True, False, None])},
    optional={"thoughtSignature": SIGNATURE},
)
FUNCTION = st.fixed_dictionaries(
    {"name": st.sampled_from(["f", "wire_name", ""])},
    optional={
        "id": st.sampled_from(["c1", "c2", "", None, "call_gem_r1_0", "call_gem_r1_1"]),
        "args": st.sampled_from([{}, {"a": 1}, {"é": [1, {"b": None}]}, None, "{}", '{"a":1}', [1]]),
    },
)
CALLING = st.fixed_dictionaries({"functionCall": FUNCTION}, optional={"thoughtSignature": SIGNATURE})
OTHER = THOUGHT | st.just({"executableCode": {"code": "1"}})
PARTS = st.lists(TEXT | CALLING, max_size=4) | st.lists(TEXT | CALLING | OTHER, max_size=4)
COUNT = st.sampled_from([0, 7, 7.0, None, "7", -1])
USAGE = st.dictionaries(
    st.sampled_from([
        "promptTokenCount",
        "cachedContentTokenCount",
        "candidatesTokenCount",
        "thoughtsTokenCount",
        "toolUsePromptTokenCount",
        "totalTokenCount",
        "new",
    ]),
    COUNT,
)  # fmt: skip
NOTED = st.sampled_from([None, {}, [], "x", 1.5, {"a": [1, 2]}, [{"b": None}]])
CANDIDATE = st.fixed_dictionaries(
    {
        "content": st.fixed_dictionaries({"parts": PARTS}, optional={"role": st.just("model")}),
        "finishReason": st.sampled_from(["STOP", "MAX_TOKENS", "ODD", ""]),
    },
    optional={
        "index": st.sampled_from([0, 0, None, 1]),
        **dict.fromkeys(["finishMessage", "avgLogprobs", "safetyRatings", "groundingMetadata"], NOTED),
    },
)
REPLY = st.fixed_dictionaries(
    {"candidates": st.lists(CANDIDATE, min_size=1, max_size=1)},
    optional={
        "usageMetadata": USAGE | ODD,
        "modelVersion": st.sampled_from(["gemini-9", "", None]),
        "responseId": st.sampled_from(["r1", "r/1", "é", "", None]),
        "createTime": NOTED,
    },
)
MEMBERS = (
    *("candidates", "content", "parts", "role", "text", "thought", "thoughtSignature", "functionCall", "name", "args"),
    *("id", "willContinue", "index", "error", "finishReason", "usageMetadata", "promptFeedback", "more"),
)
ODDER = ODD | st.sampled_from(["FINISH_REASON_UNSPECIFIED", {"blockReason": "SAFETY"}, [{}, {}]])
TWISTS = st.lists(st.tuples(st.integers(0, 20), st.sampled_from(MEMBERS), ODDER), max_size=2)


@settings(max_examples=500)
@given(REPLY, TWISTS, st.sampled_from([None, 2]))
def test_any_reply_is_the_same_on_both_roads(reply: Any, twists: list[Any], indent: int | None) -> None:
    plain(json.dumps(twisted(reply, twists), ensure_ascii=False, indent=indent).encode())


PLAIN = json.dumps(
    {
        "candidates": [
            {
                "content": {
                    "parts": [
                        {"text": "Hello", "thoughtSignature": "c2ln"},
                        {"functionCall": {"name": "wire_name", "args": {"a": 1}}, "thoughtSignature": "c2ln"},
                        {"functionCall": {"id": "c2", "name": "g", "args": {}}},
                    ],
                    "role": "model",
                },
                "finishReason": "STOP",
                "index": 0,
                "avgLogprobs": -0.1,
            }
        ],
        "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 5, "totalTokenCount": 17},
        "modelVersion": "gemini-9",
        "responseId": "r1",
    },
    indent=2,
).encode()


def test_a_plain_reply_is_plain() -> None:
    assert plain(PLAIN)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"", b""),
        (b'"promptTokenCount": 12', b'"promptTokenCount": 12e0'),
        (b'"promptTokenCount": 12', b'"promptTokenCount": 1, "promptTokenCount": 12'),
        (b'"promptTokenCount": 12', b'"x": "\xff"'),
        (b'"promptTokenCount": 12', b'"x": "\x01"'),
        (b'"promptTokenCount": 12', b'"x": NaN'),
        (b"-0.1", b"-1.0e-1"),
        (b"-0.1", b"-01"),
        (b'"Hello"', b'"\xff"'),
        (b'"Hello"', b'"\\ud83d"'),
        (b'"Hello"', b'"", "text": "Hello"'),
        (b'"c2ln"', b'"c2\\u006cn"'),
        (b'"c2ln"', b'"c2\\xn"'),
        (b'"c2ln"', b'"\xff"'),
        (b'{\n                "a": 1\n              }', b'{"a": NaN}'),
        (b'{\n                "a": 1\n              }', b'{"\\u0061": 1,   "a": 2}'),
        (b'{\n                "a": 1\n              }', b'"{\\"a\\": 1}"'),
        (b'{\n                "a": 1\n              }', b"[" * 100_000),
        (b'"r1"', b'"///"'),
        (b"{", b" \r\n{"),
        (b"{", b"\xef\xbb\xbf{"),
    ],
)
def test_odd_bytes_are_the_same_on_both_roads(old: bytes, new: bytes) -> None:
    assert old in PLAIN
    body = PLAIN.replace(old, new, 1) if old else PLAIN
    for sent in (body, body[:-1], body + b"x", body + b" \n"):
        plain(sent)
