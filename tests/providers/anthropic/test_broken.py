"""Replies that are none: events out of order, bodies that are something else, errors inside."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.conversation import Message
from dragoman.errors import OverloadedError, ProtocolError, ProviderError, RateLimitError
from tests.providers.anthropic.calls import block, decoder_of, event, started, stopped, text_block, whole
from tests.providers.feeding import attempt, message_of, one_by_one

TOOL = {"type": "tool_use", "id": "t", "name": "add", "input": {}}
WHOLE = whole({"type": "text", "text": "Hello"}, {**TOOL, "input": {"a": 1}})


def read(*pieces: bytes, stream: bool = True) -> tuple[Message, ProviderError | None]:
    return attempt(decoder_of(stream=stream), *pieces)


A = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
D = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "x"})
Z = event("content_block_stop", index=0)
ARGUMENTS = event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": "{}"})
TEXT = {"type": "text_delta", "text": "x"}


def begin(**members: Any) -> bytes:
    return event("content_block_start", **members)


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([b""], id="nothing"),
        pytest.param([b"\n\n: hello\n\n"], id="comments only"),
        pytest.param([started()], id="only the start"),
        pytest.param([started(), A, D, Z], id="no end"),
        pytest.param([started(), A, D, Z, event("message_stop")], id="no reason"),
        pytest.param([started(), A, D, Z, event("message_stop"), stopped()], id="the end before the reason"),
        pytest.param([started(), A, D, stopped()], id="a block stays open"),
        pytest.param([started(), A, D, stopped(), Z], id="the end before a block's"),
        pytest.param([started(), D, A, Z, stopped()], id="growth before the beginning"),
        pytest.param([started(), A, Z, D, stopped()], id="growth of a block that ended"),
        pytest.param([started(), A, A, D, Z, stopped()], id="a block began twice"),
        pytest.param([started(), A, D, Z, Z, stopped()], id="a block ended twice"),
        pytest.param([started(), A, ARGUMENTS, Z, stopped()], id="growth of another kind"),
        pytest.param([started(), block(0, TOOL, TEXT), stopped()], id="text of a call"),
        pytest.param([started(), block(0, {"type": "thinking"}, TEXT), stopped()], id="text of a thought"),
        pytest.param([started(), started(), stopped()], id="two starts"),
        pytest.param([A, D, Z, stopped()], id="no start"),
        pytest.param([stopped()], id="only the end"),
        pytest.param([started(), b"event: content_block_delta\ndata: {oops\n\n"], id="not JSON"),
        pytest.param([started(), b"data: [1]\n\n"], id="not an object"),
        pytest.param([started(), b"data: \xff\xfe\n\n"], id="not UTF-8"),
        pytest.param([started(), begin(index=0)], id="no block"),
        pytest.param([started(), begin(index=0, content_block={})], id="no type"),
        pytest.param([started(), begin(index=None, content_block={"type": "x"})], id="no index"),
        pytest.param([started(), begin(index=0, content_block={"type": "tool_use"})], id="no name"),
        pytest.param([started(), begin(index="0", content_block={"type": "text"})], id="wrong type"),
        pytest.param([started(usage={"input_tokens": "many"})], id="wrong count"),
        pytest.param([event("message_start")], id="an empty start"),
        pytest.param([started(), b'data: {"type": "ping", "x": ' + b"[" * 5_000 + b"\n\n"], id="too deep"),
    ],
)
def test_a_stream_out_of_order_is_never_taken_for_a_reply(pieces: list[bytes]) -> None:
    assert type(read(*pieces)[1]) is ProtocolError
    assert type(read(*one_by_one(b"".join(pieces)))[1]) is ProtocolError


def test_what_follows_the_end_is_not_part_of_the_reply() -> None:
    behind = [stopped(), event("ping"), event("error", error={}), D, begin(index=1, content_block={})]
    assert message_of(decoder_of(), [started(), A, D, Z, stopped(), *behind]).text == "x"


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b"null", b"<html>Bad Gateway</html>", b"{}", b'{"content": [1]}'),
        whole(stop_reason=None),
        *[WHOLE.replace(b'{"a":1}', arguments) for arguments in (b"[1]", b'"{}"', b'{"a":NaN}', b"[" * 100_000)],
        *[b'{"content":[],"stop_reason":"end_turn","%b":"\xab"}' % name for name in (b"stop_reason", b"id", b"new")],
    ],
)
def test_a_body_that_is_no_message(body: bytes) -> None:
    _, error = read(body, stream=False)
    assert type(error) is ProtocolError
    assert error.provider == "anthropic"


# --- errors inside replies ---


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("overloaded_error", OverloadedError),
        ("rate_limit_error", RateLimitError),
        ("api_error", ProviderError),
        ("new_error", ProviderError),
    ],
)
def test_an_error_in_the_stream_is_typed_and_keeps_what_came_before(code: str, kind: type[ProviderError]) -> None:
    said = {"type": code, "message": "No."}
    message, error = read(started(), text_block(0, "so far"), event("error", error=said, request_id="req_1"))
    assert type(error) is kind
    assert (error.code, error.request_id, error.status) == (code, "req_1", None)
    assert "No." in str(error)
    assert (message.text, message.interrupted) == ("so far", True)


def test_an_error_under_a_good_status() -> None:
    body = json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}).encode()
    for stream in (False, True):
        assert type(read(body, stream=stream)[1]) is OverloadedError
