"""Replies as servers really send them, streamed and whole: framing, parts, calls, reasoning, usage, and the end."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dragoman.conversation import (
    Completed,
    Media,
    Opaque,
    ReplyStarted,
    StopReason,
    Text,
    TextDelta,
    TextEnded,
    TextStarted,
    Thinking,
    ToolCall,
    ToolCallDelta,
    ToolCallEnded,
    ToolCallStarted,
    Usage,
    UsageReported,
)
from dragoman.errors import InvalidRequestError, OverloadedError, ProtocolError, ProviderError, RateLimitError
from dragoman.providers.openai_chat import decode
from tests.providers.feeding import attempt, events_of, fields_in, message_of
from tests.providers.openai_chat.wire import (
    DONE,
    USAGE,
    call_piece,
    chunk,
    decoder,
    event,
    fails,
    read,
    stream,
    whole,
)
from tests.providers.recorded import exchanges

COUNTED = Usage(input=10, output=4, total=14)


DETAILS = {"prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 1}}
ONE = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
TWO = ONE | {"id": "call_2"}
UNFINISHED = {"name": "look", "arguments": '{"at'}
PLAIN_REPLIES = [
    whole({"content": "Hi.", "refusal": None, "annotations": []}, usage=USAGE | DETAILS, created=1, service_tier=None),
    whole({"content": "Hi."}, usage=USAGE, system_fingerprint="fp", object="chat.completion"),
    whole({"content": "Hi."}, usage=None),
    whole({"content": ""}, usage=USAGE),
    whole({"content": "Hi.", "odd": 1}, usage=USAGE),
    whole({"content": "Hi."}, usage=USAGE, id="", model=""),
    whole({"content": "Hi."}, usage=USAGE, created=1).replace(b": 1}", b': "\xff"}'),
    whole({"content": None, "tool_calls": [ONE, TWO]}, "tool_calls", usage=USAGE, created=1),
    whole({"content": "Wait.", "tool_calls": [ONE]}, "stop", usage=USAGE),
    whole({"content": "Hi.", "tool_calls": []}, "tool_calls", usage=USAGE),
    whole({"tool_calls": [ONE | {"index": 0}, ONE]}, "tool_calls", usage=USAGE),
    whole({"tool_calls": [ONE | {"id": ""}]}, "tool_calls", usage=USAGE),
    whole({"tool_calls": [ONE | {"function": {"name": "", "arguments": "{}"}}]}, "tool_calls", usage=USAGE),
    whole({"tool_calls": [ONE | {"function": {"name": "look", "arguments": {}}}]}, "tool_calls", usage=USAGE),
    whole({"tool_calls": [ONE | {"odd": 1}]}, "tool_calls", usage=USAGE),
    whole({"tool_calls": [ONE, ONE | {"function": UNFINISHED}]}, "length", usage=USAGE),
]


def test_the_fast_path_for_whole_replies_gives_the_same_message(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = [each.body.encode() for each in exchanges("chat") if each.status == 200 and each.body.startswith("{")]
    bodies = PLAIN_REPLIES + recorded
    quick = [attempt(decoder(), body) for body in bodies]

    def refuse(_body: bytes) -> None:
        raise msgspec.DecodeError

    monkeypatch.setattr(decode, "_decode_plain_reply", refuse)
    for (message, error), body in zip(quick, bodies, strict=True):
        slow, why = attempt(decoder(), body)
        assert (message, str(error)) == (slow, str(why))


def test_events_of_a_plain_stream() -> None:
    pieces = [chunk({"role": "assistant", "content": ""}), chunk({"content": "Hel"}), chunk({"content": "lo"})]
    events = events_of(decoder(), [stream(*pieces, chunk({}, "stop"), chunk(choices=[], usage=USAGE))])
    assert events[:-1] == [
        ReplyStarted("openai-compatible", "m-1", "chatcmpl-1"),
        TextStarted(0, ""),
        TextDelta(0, "", "Hel"),
        TextDelta(0, "", "lo"),
        TextEnded(0, ""),
        UsageReported(COUNTED),
    ]
    assert isinstance(events[-1], Completed)
    assert (events[-1].stop_reason, events[-1].raw_stop_reason) == (StopReason.END, "stop")


def test_streamed_and_whole_replies_are_the_same_message() -> None:
    calls = [call_piece('{"a":1}', 0, "call_1", "f"), call_piece("{}", 1, "call_2", "g")]
    streamed = read(
        stream(
            chunk({"role": "assistant", "content": "", "reasoning_content": "hm"}),
            chunk({"content": "Well"}),
            chunk({"tool_calls": [call_piece("", 0, "call_1", "f")]}),
            chunk({"tool_calls": [call_piece('{"a":', 0)]}),
            chunk({"tool_calls": [call_piece("1}", 0)]}),
            chunk({"tool_calls": [call_piece("{}", 1, "call_2", "g")]}),
            chunk({}, "tool_calls"),
            chunk(choices=[], usage=USAGE),
        )
    )
    message = {"content": "Well", "reasoning_content": "hm", "tool_calls": calls}
    at_once = read(whole(message, "tool_calls", usage=USAGE), stream=False)
    assert streamed.blocks == at_once.blocks
    assert (streamed.stop_reason, streamed.usage) == (at_once.stop_reason, at_once.usage)
    assert [call.parsed for call in streamed.tool_calls] == [{"a": 1}, {}]


# --- framing ---


def test_all_events_of_a_read_are_decoded_but_none_after_the_end() -> None:
    a, b, c, d, e, f = (event(chunk({"content": letter})) for letter in "abcdef")
    nothing, end = DONE.replace(b"[DONE]", b'{"choices":[]}'), event(chunk({}, "stop"))
    pieces = [a, b + c, d + b": comment\n\n" + e, f + nothing, end]
    assert message_of(decoder(), pieces).text == "abcdef"
    assert message_of(decoder(), [a, end + DONE + b, c]).text == "a"
    assert read(a + end + DONE + b).text == "a"


# --- the end ---


def test_a_finish_reason_completes_a_reply_without_done() -> None:
    body = stream(chunk({"content": "a"}), chunk({}, "stop"), done=False)
    for message in (read(body), read(body.rstrip())):
        assert (message.text, message.stop_reason) == ("a", StopReason.END)


def test_a_stream_that_ends_early_fails_and_keeps_its_text() -> None:
    message, error = fails(stream(chunk({"content": "a"}), chunk({"content": "b"}, usage=USAGE), done=False))
    assert type(error) is ProtocolError
    assert error.provider == "openai-compatible"
    assert (message.text, message.stop_reason, message.usage) == ("ab", StopReason.INTERRUPTED, COUNTED)
    message, error = fails(stream(chunk({"content": "a"})))
    assert type(error) is ProtocolError
    assert "without saying why" in str(error)
    assert message.interrupted


def test_done_after_a_token_count_completes_a_reply() -> None:
    message = read(stream(chunk({"content": "a"}), chunk(choices=[], usage=USAGE)))
    assert (message.text, message.stop_reason, message.raw_stop_reason) == ("a", StopReason.OTHER, None)
    # A count beside a choice may be one of many on the way.
    assert type(fails(stream(chunk({"content": "a"}, usage=USAGE)))[1]) is ProtocolError
    late = stream(chunk({"content": "a"}), chunk(choices=[], usage=USAGE), chunk({"content": "b"}))
    assert type(fails(late)[1]) is ProtocolError


@pytest.mark.parametrize("body", [b"", b"\n\n", b"hello", b"data: \n\n", b"data: [DONE]\n\n", b": only comments\n\n"])
def test_an_empty_reply_is_refused(body: bytes) -> None:
    assert type(fails(body)[1]) is ProtocolError
    assert type(fails(body, stream=False)[1]) is ProtocolError


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        ("stop", StopReason.END),
        ("eos", StopReason.END),
        ("length", StopReason.MAX_TOKENS),
        ("content_filter", StopReason.CONTENT_FILTER),
        ("sensitive", StopReason.CONTENT_FILTER),
        ("model_length", StopReason.CONTEXT_FULL),
        ("STOP", StopReason.END),
        ("something new", StopReason.OTHER),
    ],
)
def test_finish_reasons(finish: str, expected: StopReason) -> None:
    message = read(stream(chunk({"content": "a"}), chunk({}, finish)))
    assert (message.stop_reason, message.raw_stop_reason) == (expected, finish)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"native_finish_reason": "refusal"}, StopReason.REFUSAL),  # the server behind a router
        ({"native_finish_reason": "completed"}, StopReason.END),
        ({"stop_reason": "END OF TEXT"}, StopReason.STOP_SEQUENCE),  # vLLM
        ({"stop_reason": 154827}, StopReason.END),
    ],
)
def test_stop_reasons_in_other_members(choice: dict[str, object], expected: StopReason) -> None:
    body = chunk({"content": "a"}, "stop")
    body["choices"][0].update(choice)
    assert read(stream(body)).stop_reason is expected


def test_a_call_cut_off_by_the_limit_is_partial() -> None:
    pieces = [call_piece('{"a":1}', 0, "c1", "f"), call_piece('{"b":', 1, "c2", "g")]
    message = read(stream(chunk({"tool_calls": pieces}), chunk({}, "length")))
    assert [call.partial for call in message.tool_calls] == [False, True]
    assert message.stop_reason is StopReason.MAX_TOKENS


# --- calls: without ids, without indexes, with names in every piece ---


def calls_stream(*pieces: object, finish: str = "tool_calls") -> bytes:
    return stream(*[chunk({"tool_calls": [piece]}) for piece in pieces], chunk({}, finish))


ONE, TWO = ("f", {"n": 1}), ("g", {"n": 2})


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        # an index that is always 0
        ([call_piece('{"n":1}', 0, "a", "f"), call_piece('{"n":2}', 0, "b", "f")], [ONE, ("f", {"n": 2})]),
        ([call_piece("", 0, "a", "f"), call_piece('{"n":1}', 0), call_piece('{"n":2}', 0, "b", "g")], [ONE, TWO]),
        # neither ids nor indexes
        ([call_piece('{"n":1}', None, None, "f"), call_piece('{"n":2}', None, None, "f")], [ONE, ("f", {"n": 2})]),
        ([call_piece("", 0, None, "f"), call_piece('{"n":2}', 0, None, "g")], [("f", {}), TWO]),
        # ids without indexes
        (
            [
                call_piece('{"n"', None, "a", "f"),
                call_piece('{"n":2}', None, "b", "g"),
                call_piece(":1}", None, "a"),
            ],
            [ONE, TWO],
        ),
        # names and ids that are repeated in every piece
        ([call_piece('{"n"', 0, "a", "f"), call_piece(":", 0, "a", "f"), call_piece("1}", 0, "a", "f")], [ONE]),
        ([call_piece('{"n"', 0, "", "f"), call_piece(":1}", 0, "", "f")], [ONE]),
        # an id that changes in every piece
        ([call_piece('{"n"', 0, "a", "f"), call_piece(":", 0, "b"), call_piece("1}", 0, "c")], [ONE]),
        # interleaved calls
        (
            [
                call_piece('{"n"', 0, "a", "f"),
                call_piece('{"n"', 1, "b", "g"),
                call_piece(":1}", 0),
                call_piece(":2}", 1),
            ],
            [ONE, TWO],
        ),
        # arguments as an object, none at all, and a name that comes late
        ([call_piece({"n": [1, 2]}, 0, "a", "f")], [("f", {"n": [1, 2]})]),
        *[([call_piece(arguments, 0, "a", "f")], [("f", {})]) for arguments in ("", None, " ", "{}")],
        ([call_piece('{"n":1', 0, "a"), call_piece("}", 0, None, "f")], [ONE]),
    ],
)
def test_pieces_of_calls_are_joined(pieces: list[Any], expected: list[tuple[str, object]]) -> None:
    calls = read(calls_stream(*pieces)).tool_calls
    assert [(call.name, call.parsed) for call in calls] == expected
    assert len({call.id for call in calls if call.id}) == len(calls)


def test_arguments_are_streamed_and_names_are_mapped_back() -> None:
    body = calls_stream(call_piece("", 0, "c1", "my_tool"), call_piece('{"x"', 0), call_piece(":2}", 0))
    assert events_of(decoder(names={"my_tool": "my.tool"}), [body])[1:5] == [
        ToolCallStarted(0, "c1", "my.tool"),
        ToolCallDelta(0, "c1", '{"x"'),
        ToolCallDelta(0, "c1", ":2}"),
        ToolCallEnded(0, "c1"),
    ]


def test_missing_ids_are_generated_and_duplicate_ones_are_changed() -> None:
    body = stream(
        chunk({"tool_calls": [call_piece("{}", 0, "", "f"), call_piece("{}", 1, None, "g")]}), chunk({}, "tool_calls")
    )
    first, second = read(body).tool_calls
    assert first.id != second.id
    assert read(body).tool_calls == (first, second)
    other = read(body.replace(b"chatcmpl-1", b"chatcmpl-2")).tool_calls
    assert {call.id for call in other}.isdisjoint({first.id, second.id})
    double = calls_stream(call_piece("{}", 0, "same", "f"), call_piece("{}", 1, "same", "g"))
    assert [call.id for call in read(double).tool_calls] == ["same", "same_1"]


def test_a_call_without_a_name_fails_and_empty_calls_are_ignored() -> None:
    assert "without naming it" in str(fails(calls_stream(call_piece("{}", 0, "a")))[1])
    message = read(stream(chunk({"content": "a", "tool_calls": []}), chunk({"tool_calls": [{"index": 0}]}, "stop")))
    assert (message.tool_calls, message.stop_reason) == ((), StopReason.END)


def test_calls_with_finish_reason_stop_and_text_after_a_call() -> None:
    call = chunk({"tool_calls": [call_piece("{}", 0, "c", "f")]})
    message = read(stream(chunk({"content": "a"}), call, chunk({"content": "b"}), chunk({}, "stop")))
    assert [type(block) for block in message.blocks] == [Text, ToolCall, Text]
    assert (message.text, message.stop_reason) == ("ab", StopReason.TOOL_CALLS)


def test_calls_in_the_legacy_function_call_member() -> None:
    pieces = [{"name": "f", "arguments": ""}, {"arguments": '{"n":1}'}]
    message = read(stream(*[chunk({"function_call": piece}) for piece in pieces], chunk({}, "function_call")))
    assert [(call.name, call.parsed) for call in message.tool_calls] == [ONE]
    assert message.stop_reason is StopReason.TOOL_CALLS
    assert read(whole({"content": "a", "function_call": {"name": "", "arguments": ""}})).tool_calls == ()


def test_unknown_members_of_calls_are_kept_and_custom_tools_take_text() -> None:
    signature = {"google": {"thought_signature": "abc"}}
    native = read(calls_stream({**call_piece("{}", 0, "c", "f"), "extra_content": signature})).tool_calls[0].native
    assert native is not None
    assert native.provider == "openai_chat:openai-compatible"
    assert fields_in(native) == {"extra_content": signature}
    shell = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "shell", "input": "ls"}}
    for body in (whole({"tool_calls": [shell]}), calls_stream(shell), calls_stream({**shell, "function": None})):
        call = read(body).tool_calls[0]
        assert (call.name, call.arguments, fields_in(call.native)) == ("shell", "ls", {"type": "custom"})
    assert read(calls_stream(shell, {"index": 0, "custom": {"input": " -l"}})).tool_calls[0].arguments == "ls -l"
    for empty in (None, {"input": "", "name": ""}):
        call = read(calls_stream({**call_piece("{}", 0, "c", "f"), "custom": empty})).tool_calls[0]
        assert (call.name, call.arguments, call.native) == ("f", "{}", None)


# --- reasoning ---


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_in_a_member_of_its_own(field: str) -> None:
    pieces = [chunk({field: "h", "content": None}), chunk({field: "m"}), chunk({"content": "a"}), chunk({}, "stop")]
    thought, text = read(stream(*pieces)).blocks
    assert isinstance(thought, Thinking)
    assert (thought.text, thought.provider) == ("hm", "openai_chat:openai-compatible")
    assert fields_in(thought.native) == {"field": field}
    assert text == Text("a")


def test_reasoning_in_both_members_is_read_once() -> None:
    message = read(stream(chunk({"reasoning_content": "hm", "reasoning": "hm"}), chunk({"content": "a"}, "stop")))
    assert message.thinking == "hm"


def test_reasoning_details_with_signatures_and_encryption() -> None:
    def detail(**members: object) -> dict[str, Any]:
        details = [{"index": 0, "format": "x", **members}]
        return chunk({"reasoning": members.get("text"), "reasoning_details": details})

    body = stream(
        detail(type="reasoning.text", text="h", signature=""),
        detail(type="reasoning.text", text="m"),
        detail(type="reasoning.text", text="", signature="sig"),
        chunk({"content": "a", "reasoning": None, "reasoning_details": []}),
        detail(type="reasoning.encrypted", data="se", id="rs_1"),
        chunk({"content": "b"}),
        detail(type="reasoning.encrypted", data="cret"),
        chunk({}, "stop"),
    )
    shown, text, sealed = read(body, "openrouter").blocks
    assert isinstance(shown, Thinking)
    assert isinstance(sealed, Thinking)
    assert (shown.text, shown.signature, shown.encrypted) == ("hm", "sig", None)
    assert (sealed.text, sealed.encrypted, sealed.redacted) == ("", "secret", True)
    assert text == Text("ab")
    named = {"field": "reasoning_details", "type": "reasoning.encrypted"}
    assert fields_in(sealed.native) == {**named, "format": "x", "index": 0, "id": "rs_1"}


def test_reasoning_details_of_a_whole_reply_are_separate_blocks() -> None:
    details = [{"type": "reasoning.summary", "summary": text, "index": 0} for text in ("one", "two")]
    message = read(whole({"content": "a", "reasoning": "onetwo", "reasoning_details": details}), "openrouter")
    assert [block.text for block in message.blocks if isinstance(block, Thinking)] == ["one", "two"]
    details = [{"type": "reasoning.encrypted", "data": "secret", "index": 0}]
    message = read(whole({"content": "a", "reasoning": "hm", "reasoning_details": details}), "openrouter")
    assert (message.thinking, len(message.blocks)) == ("hm", 3)


def test_lists_of_content_with_thinking() -> None:
    def thinking(text: str) -> dict[str, object]:
        return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]}

    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": ""},
        thinking("h"),
        thinking("m"),
        {"content": [{"type": "text", "text": "a"}]},
        {"content": "b"},
        {"content": [{"type": "reference", "reference_ids": [1]}]},
        {"content": "c"},
    ]
    message = read(stream(*[chunk(delta) for delta in deltas], chunk({}, "stop")), "mistral")
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
    assert fields_in(marked.native) == {"annotations": [1]}


# --- what else a reply holds ---


def test_a_refusal_is_text_and_a_stop_reason() -> None:
    message = read(stream(chunk({"refusal": "I can"}), chunk({"refusal": "not."}), chunk({}, "stop")))
    assert (message.text, message.stop_reason) == ("I cannot.", StopReason.REFUSAL)
    assert read(whole({"content": None, "refusal": "No."})).stop_reason is StopReason.REFUSAL
    assert read(whole({"content": "a", "refusal": ""})).stop_reason is StopReason.END


def test_pieces_of_speech_become_one_block() -> None:
    pieces: list[dict[str, Any]] = [
        {"id": "audio_1", "transcript": "Hel"},
        {"data": "AAEC", "transcript": "lo"},
        {"data": "AwQ="},
        {"expires_at": 17},
    ]
    body = stream(*[chunk({"audio": piece}) for piece in pieces], chunk({}, "stop"))
    block = read(body, extra_body={"audio": {"format": "mp3"}}).blocks[0]
    assert isinstance(block, Media)
    assert (block.kind, block.mime_type, block.data) == ("audio", "audio/mpeg", bytes(range(5)))
    assert fields_in(block.native) == {"id": "audio_1", "expires_at": 17, "transcript": "Hello"}
    empty = {"data": "", "expires_at": 0, "id": "", "transcript": ""}
    assert [type(block) for block in read(whole({"content": "a", "audio": empty})).blocks] == [Text]
    assert isinstance(read(whole({"audio": {"id": "x", "data": "?!"}})).blocks[0], Opaque)


def test_images_made_by_the_model() -> None:
    urls = ("data:image/png;base64,AAEC", "https://host/a.png")
    images = [*[{"type": "image_url", "image_url": {"url": url}} for url in urls], {"type": "something"}]
    inline, linked, unknown = read(whole({"content": None, "images": images})).blocks
    assert isinstance(inline, Media)
    assert isinstance(linked, Media)
    assert (inline.mime_type, inline.data, linked.url) == ("image/png", b"\0\1\2", "https://host/a.png")
    assert isinstance(unknown, Opaque)


def test_unknown_members_are_kept_with_the_message() -> None:
    first = chunk({"content": "a", "executed_tools": [{"index": 0, "type": "search"}]}, system_fingerprint="fp")
    first["choices"][0]["logprobs"] = {"content": [{"token": "a"}]}
    second = chunk({"content": "b", "executed_tools": [{"index": 0, "output": "x"}], "annotations": [1]}, x_new=[1])
    second["choices"][0]["logprobs"] = {"content": [{"token": "b"}]}
    third = chunk({"annotations": [2], "note": "o"}, "stop", usage={**USAGE, "cost": 0.5})
    kept = fields_in(read(stream(first, second, chunk({"note": "k"}), third)).native)
    assert (kept["system_fingerprint"], kept["x_new"], kept["usage"]["cost"]) == ("fp", [1], 0.5)
    assert kept["choice"] == {"logprobs": {"content": [{"token": "a"}, {"token": "b"}]}}
    tools = [{"index": 0, "type": "search", "output": "x"}]
    assert kept["message"] == {"executed_tools": tools, "annotations": [1, 2], "note": "ko"}


def test_the_first_of_several_answers_is_the_reply_and_the_others_are_kept() -> None:
    second = {"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}
    message = read(stream(chunk({"content": "a"}), chunk(choices=[second]), chunk({}, "stop")))
    assert (message.text, fields_in(message.native)["choices"]) == ("a", [second])
    body = json.loads(whole({"content": "a"}))
    body["choices"].insert(0, {"index": 1, "message": {"content": "no"}, "finish_reason": "stop"})
    message = read(json.dumps(body).encode(), stream=False)
    assert (message.text, fields_in(message.native)["choices"]) == ("a", body["choices"][:1])


def test_a_first_chunk_without_choices() -> None:
    """Azure begins with what its filters think of the prompt, without an id and a model."""
    azure = chunk(choices=[], id="", model="", prompt_filter_results=[{"prompt_index": 0}])
    message = read(stream(azure, chunk({"content": "a"}), chunk({}, "stop")))
    assert (message.id, message.model) == ("chatcmpl-1", "m-1")
    assert "prompt_filter_results" in fields_in(message.native)


def test_nan_and_half_an_emoji_are_tolerated() -> None:
    odd = event(chunk({"content": "a"}, "stop")).replace(b'"logprobs": null', b'"logprobs": {"content": [NaN]}')
    assert read(odd).text == "a"
    half = event(chunk({}, "stop")).replace(b'"delta": {}', b'"delta": {"content": "\\ud83d!"}')
    assert read(stream(chunk({"content": "a"}), done=False) + half).text.startswith("a\ufffd")
    assert read(stream(chunk({"content": "a"}), chunk({"content": "b"}, "stop")).replace(b"b", b"\xff", 1)).text


# --- usage ---


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2}, Usage(input=5, output=2)),
        ({"prompt_tokens": 5.0, "completion_tokens": True, "total_tokens": 7.5}, Usage(input=5)),
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


def test_usage_in_other_places_and_the_last_count_wins() -> None:
    assert read(stream(chunk({"content": "a"}), chunk({}, "stop", x_groq={"usage": USAGE}))).usage == COUNTED
    moonshot = chunk({"content": "a"}, "stop")
    moonshot["choices"][0]["usage"] = USAGE
    assert read(stream(moonshot)).usage == COUNTED
    counts = [{"prompt_tokens": 10, "completion_tokens": n} for n in (1, 2, 3)]
    message = read(stream(*[chunk({"content": "a"}, usage=count) for count in counts], chunk({}, "stop")))
    assert message.usage == Usage(input=10, output=3)


# --- what particular servers do ---------------------------------------------------------------------------------------


def test_a_message_that_repeats_all_deltas_is_ignored() -> None:
    """Perplexity's chunks have both."""
    said, chunks = "", list[dict[str, Any]]()
    for piece, finish in (("Hel", None), ("lo", None), ("", "stop")):
        said += piece
        chunks.append(chunk({"content": piece}, finish))
        chunks[-1]["choices"][0]["message"] = {"role": "assistant", "content": said}
    assert read(stream(*chunks)).text == "Hello"
    del chunks[-1]["choices"][0]["delta"]["content"]
    assert read(stream(*chunks)).text == "Hello"
    only = chunk({}, "stop")
    only["choices"][0]["message"] = {"content": "Hello"}
    assert read(stream(only)).text == "Hello"


def test_content_that_is_an_object_is_its_json() -> None:
    """Cloudflare parses the JSON that a schema asked for."""
    assert json.loads(read(whole({"content": {"city": "Rome"}}), stream=False).text) == {"city": "Rome"}


# --- errors in a stream and in a body ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        (event({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}), RateLimitError),
        (event({"error": {"message": "slow down", "code": 429}}), RateLimitError),
        (event({"error": {"message": "gone", "type": "server_error", "code": "x1"}}), ProviderError),
        (event({"error": {"message": "no", "type": "overloaded_error", "code": "x1"}}), OverloadedError),
        (event({"error": "broken"}), ProviderError),
        (event({"object": "error", "message": "no", "code": 503}), OverloadedError),
        (event({"message": "no", "type": "invalid_request_error"}), InvalidRequestError),
        (b"event: error\n" + event({"message": "no", "status_code": 400}), InvalidRequestError),
        (b"event: error\ndata: broken\n\n", ProtocolError),
        (event(chunk({"content": "x"}, "error", error={"code": 502, "message": "gone"})), ProviderError),
        (event(chunk(choices=[{"index": 0, "delta": {}, "error": {"code": 503, "message": "busy"}}])), OverloadedError),
        (event(chunk({}, "error")), ProviderError),
        (event(chunk({}, "insufficient_system_resource")), OverloadedError),
        (event(chunk({}, "network_error")), ProviderError),
        (b"data: {broken\n\n", ProtocolError),
        (b"data: [1]\n\n", ProtocolError),
    ],
)
def test_an_error_in_a_stream_keeps_what_came_before(odd: bytes, expected: type[ProviderError]) -> None:
    message, found = fails(event(chunk({"content": "a"})) + event(chunk({"content": "b"})) + odd)
    assert type(found) is expected
    assert message.text == "ab"
    assert message.stop_reason is StopReason.INTERRUPTED


def test_usage_beside_an_error_is_reported() -> None:
    message, _ = fails(stream(chunk({"content": "a"}), chunk({}, error={"message": "no"}, usage=USAGE)))
    assert message.usage is not None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"error":{"message":"slow down","code":"rate_limit_exceeded"}}', RateLimitError),
        (b'[{"error":{"message":"no","code":404,"status":"NOT_FOUND"}}]', InvalidRequestError),
        (b'{"choices":[]}', ProtocolError),
        (b'{"choices":null}', ProtocolError),
        (b"{}", ProtocolError),
        (b"[]", ProtocolError),
        (b'{"choices":[{"message":', ProtocolError),
        (whole({"content": "a"})[:-1], ProtocolError),
        (whole({"content": "a"}, "error"), ProviderError),
    ],
)
def test_an_error_in_place_of_a_whole_reply(body: bytes, expected: type[ProviderError]) -> None:
    assert type(fails(body, stream=False)[1]) is expected
    assert type(fails(body, stream=True)[1]) is expected
