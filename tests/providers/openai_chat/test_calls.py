"""Tool calls as servers really send them: without ids, without indexes, with names in every piece."""

from __future__ import annotations

import pytest
from msgspec.json import decode

from dragoman.conversation import StopReason
from tests.providers.openai_chat.wire import call_piece, chunk, fails, read, stream, whole


def calls_of(*deltas: object, finish: str = "tool_calls") -> list[tuple[str, dict[str, object]]]:
    message = read(stream(*[chunk({"tool_calls": [delta]}) for delta in deltas], chunk({}, finish)))
    ids = [call.id for call in message.tool_calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    return [(call.name, call.parsed) for call in message.tool_calls]


def test_missing_ids_are_made_up_and_stay_the_same() -> None:
    body = stream(
        chunk({"tool_calls": [call_piece("{}", 0, "", "f"), call_piece("{}", 1, None, "g")]}), chunk({}, "tool_calls")
    )
    first, second = read(body).tool_calls
    assert first.id != second.id
    assert read(body).tool_calls == (first, second)
    other = read(body.replace(b"chatcmpl-1", b"chatcmpl-2")).tool_calls
    assert {call.id for call in other}.isdisjoint({first.id, second.id})


def test_an_index_that_is_always_0() -> None:
    whole_calls = [call_piece('{"n":1}', 0, "a", "f"), call_piece('{"n":2}', 0, "b", "f")]
    assert calls_of(*whole_calls) == [("f", {"n": 1}), ("f", {"n": 2})]
    in_pieces = [call_piece("", 0, "a", "f"), call_piece('{"n":1}', 0), call_piece('{"n":2}', 0, "b", "g")]
    assert calls_of(*in_pieces) == [("f", {"n": 1}), ("g", {"n": 2})]


def test_neither_ids_nor_indexes() -> None:
    assert calls_of(call_piece('{"n":1}', None, None, "f"), call_piece('{"n":2}', None, None, "f")) == [
        ("f", {"n": 1}),
        ("f", {"n": 2}),
    ]
    assert calls_of(call_piece("", 0, None, "f"), call_piece('{"n":2}', 0, None, "g")) == [("f", {}), ("g", {"n": 2})]


def test_ids_without_indexes() -> None:
    assert calls_of(
        call_piece('{"n"', None, "a", "f"),
        call_piece('{"n":2}', None, "b", "g"),
        call_piece(":1}", None, "a"),
    ) == [("f", {"n": 1}), ("g", {"n": 2})]


def test_names_and_ids_that_are_repeated_in_every_piece() -> None:
    assert calls_of(call_piece('{"n"', 0, "a", "f"), call_piece(":", 0, "a", "f"), call_piece("1}", 0, "a", "f")) == [
        ("f", {"n": 1})
    ]
    assert calls_of(call_piece('{"n"', 0, "", "f"), call_piece(":1}", 0, "", "f")) == [("f", {"n": 1})]


def test_an_id_that_changes_in_every_piece() -> None:
    assert calls_of(call_piece('{"n"', 0, "a", "f"), call_piece(":", 0, "b"), call_piece("1}", 0, "c")) == [
        ("f", {"n": 1})
    ]


def test_two_calls_of_one_id_get_two() -> None:
    message = read(
        stream(
            chunk({"tool_calls": [call_piece("{}", 0, "same", "f"), call_piece("{}", 1, "same", "g")]}),
            chunk({}, "tool_calls"),
        )
    )
    assert [call.id for call in message.tool_calls] == ["same", "same_1"]


def test_interleaved_calls() -> None:
    assert calls_of(
        call_piece('{"n"', 0, "a", "f"),
        call_piece('{"n"', 1, "b", "g"),
        call_piece(":1}", 0),
        call_piece(":2}", 1),
    ) == [("f", {"n": 1}), ("g", {"n": 2})]


@pytest.mark.parametrize("arguments", [{"n": [1, 2]}, '{"n": [1, 2]}'])
def test_arguments_as_an_object(arguments: object) -> None:
    assert calls_of(call_piece(arguments, 0, "a", "f")) == [("f", {"n": [1, 2]})]


@pytest.mark.parametrize("arguments", ["", None, " ", "{}"])
def test_no_arguments(arguments: object) -> None:
    assert calls_of(call_piece(arguments, 0, "a", "f")) == [("f", {})]


def test_a_name_that_comes_late_and_one_that_never_comes() -> None:
    assert calls_of(call_piece('{"n":1', 0, "a"), call_piece("}", 0, None, "f")) == [("f", {"n": 1})]
    error = fails(stream(chunk({"tool_calls": [call_piece("{}", 0, "a")]}), chunk({}, "tool_calls")))[1]
    assert "without saying which one" in str(error)


def test_empty_calls_are_no_calls() -> None:
    message = read(stream(chunk({"content": "a", "tool_calls": []}), chunk({"tool_calls": [{"index": 0}]}, "stop")))
    assert message.tool_calls == ()
    assert message.stop_reason is StopReason.END


def test_text_behind_a_call_is_kept() -> None:
    message = read(
        stream(
            chunk({"content": "a"}),
            chunk({"tool_calls": [call_piece("{}", 0, "c", "f")]}),
            chunk({"content": "b"}),
            chunk({}, "stop"),
        )
    )
    assert [type(block).__name__ for block in message.blocks] == ["Text", "ToolCall", "Text"]
    assert message.text == "ab"


def test_the_old_form_of_calls() -> None:
    message = read(
        stream(
            chunk({"function_call": {"name": "f", "arguments": ""}}),
            chunk({"function_call": {"arguments": '{"n":1}'}}),
            chunk({}, "function_call"),
        )
    )
    assert [(call.name, call.parsed) for call in message.tool_calls] == [("f", {"n": 1})]
    assert read(whole({"content": "a", "function_call": {"name": "", "arguments": ""}})).tool_calls == ()


def test_unknown_members_of_a_call_are_kept() -> None:
    signature = {"google": {"thought_signature": "abc"}}
    piece = {**call_piece("{}", 0, "c", "f"), "extra_content": signature}
    native = read(stream(chunk({"tool_calls": [piece]}), chunk({}, "tool_calls"))).tool_calls[0].native
    assert native is not None
    assert native.provider == "openai_chat:openai-compatible"
    assert decode(native.fields["extra_content"]) == signature


def test_custom_tools_have_text_for_arguments() -> None:
    piece = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}
    call = read(whole({"tool_calls": [piece]}, "tool_calls")).tool_calls[0]
    assert (call.name, call.arguments) == ("shell", "ls -l")
    assert call.native is not None
    assert bytes(call.native.fields["type"]) == b'"custom"'
