"""The protocol without a program: lines of any kind, calls in any order."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from dragoman.conversation import Conversation, Json, Media, Message, Native, Text, ToolCall, ToolResult, ToolSpec
from dragoman.engines.claude_cli.decode import ReplyReader
from dragoman.engines.claude_cli.history import continuation, write_turn
from dragoman.engines.claude_cli.protocol import Dialogue, result_of
from dragoman.errors import DragomanError
from dragoman.providers import PROFILES, Call
from tests.engines.claude_cli.programs import BEGINS, CLOSES, ENDS, SPEAKS, opens_call, request, said, tool_request
from tests.engines.claude_cli.test_launch import launched

PROFILE = PROFILES["claude-local"]
CALL = Call(model="m", conversation=Conversation(), profile=PROFILE, stream=True)
USES_TOOLS = said({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})


def dialogue(*tools: str) -> Dialogue:
    launch = launched(tools=[ToolSpec(name) for name in tools])
    talk = Dialogue(launch.tools, launch.names, launch.structured)
    talk.reader = ReplyReader(CALL, launch.names, talk.own_tools)
    return talk


def line(step: Any) -> bytes:
    return json.dumps(step["say"]).encode()


# --- any line ---------------------------------------------------------------------------------------------------------

_json = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_kinds = st.sampled_from(
    ["assistant", "user", "result", "system", "stream_event", "control_request", "control_response", "keep_alive", "x"]
)
_members = st.sampled_from(
    ["message", "event", "request", "request_id", "response", "subtype", "tools", "uuid", "error"]
)
_messages = st.builds(lambda kind, rest: {**rest, "type": kind}, _kinds, st.dictionaries(_members, _json, max_size=5))


@given(st.lists(_messages.map(json.dumps).map(str.encode) | st.binary(max_size=40), max_size=6))
def test_any_line_is_handled(lines: list[bytes]) -> None:
    talk = dialogue("weather")
    for each in lines:
        try:
            received = talk.receive(each)
        except DragomanError:
            return  # a message that must be understood and cannot
        assert all(out.endswith(b"\n") and json.loads(out) for out in received.out)


@given(st.dictionaries(st.text(max_size=8), _json, max_size=4), _json)
def test_every_request_is_answered(fields: dict[str, Any], message: Any) -> None:
    for subtype in ("mcp_message", "can_use_tool", "other"):
        asked = {**fields, "subtype": subtype, "message": message, "tool_name": "Bash", "input": message}
        sent = {"type": "control_request", "request_id": "q", "request": asked}
        received = dialogue("weather").receive(json.dumps(sent).encode())
        waits = isinstance(message, dict) and message.get("method") == "tools/call"
        assert received.out or received.questions or waits


# --- calls and results ------------------------------------------------------------------------------------------------


def reply_with_calls(talk: Dialogue, *ids: str) -> None:
    steps = [BEGINS]
    for index, id in enumerate(ids):
        steps += [said({**step["say"]["event"], "index": index}) for step in (opens_call(id), CLOSES)]
    for step in (*steps, USES_TOOLS, ENDS):
        talk.receive(line(step))
    assert talk.reader is not None
    assert talk.reader.complete
    talk.end_with_calls()


@pytest.mark.parametrize(("told", "reason"), [("tool_use", "tool_calls"), ("max_tokens", "max_tokens")])
def test_a_reply_with_calls_that_was_cut_off_says_so(told: str, reason: str) -> None:
    talk = dialogue("weather")
    stops = said({"type": "message_delta", "delta": {"stop_reason": told}})
    for step in (BEGINS, opens_call("c1"), CLOSES, stops, ENDS):
        talk.receive(line(step))
    assert talk.reader is not None
    assert talk.reader.complete
    assert talk.reader.ending(Native("claude-local", {})).stop_reason.value == reason


def result(id: str) -> ToolResult:
    return ToolResult(id, "weather", (Text(f"result of {id}"),))


def answers(out: list[bytes]) -> dict[str, str]:
    found = [json.loads(each)["response"] for each in out]
    return {each["request_id"]: each["response"]["mcp_response"]["result"]["content"][0]["text"] for each in found}


@given(st.permutations(["a", "b", "c"]), st.integers(0, 3))
def test_results_find_their_calls_in_any_order(order: list[str], early: int) -> None:
    """Some calls are requested before the results are there, the others afterwards."""
    talk = dialogue("weather")
    reply_with_calls(talk, "a", "b", "c")
    given_answers: dict[str, str] = {}
    for id in order[:early]:
        given_answers |= answers(talk.receive(line(tool_request(f"q-{id}", id))).out)
    assert not given_answers
    given_answers |= answers(talk.give([result(id) for id in "abc"]))
    for id in order[early:]:
        given_answers |= answers(talk.receive(line(tool_request(f"q-{id}", id))).out)
    assert given_answers == {f"q-{id}": f"result of {id}" for id in "abc"}


def test_a_call_that_was_cancelled_is_not_answered() -> None:
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    for notice in (
        {"say": {"type": "control_cancel_request", "request_id": "q"}},
        request("n", subtype="mcp_message", message=message),
    ):
        talk = dialogue("weather")
        reply_with_calls(talk, "a")
        talk.receive(line(tool_request("q", "a")))
        talk.receive(line(notice))
        assert talk.give([result("a")]) == []


def test_results_with_pictures() -> None:
    picture = Media.from_bytes(b"png", "image/png")
    film = Media.from_url("https://x.test/a.mp4")
    parts = (Text("see"), Json(msgspec.Raw(b'{"a":1}')), picture, film)
    content = result_of(1, ToolResult("a", "t", parts))["result"]["content"]  # type: ignore[index]
    assert [part["type"] for part in content] == ["text", "text", "image", "text"]
    assert content[2]["data"] == "cG5n"


# --- which messages a program knows -----------------------------------------------------------------------------------

_USER, _MODEL = Message.user("Hello"), Message.assistant("Hi.")
_CALLS = Message.assistant(ToolCall("a", "t", "{}"), ToolCall("b", "t", "{}"))
_RESULTS = Message.tool([ToolResult("a", "t"), ToolResult("b", "t")])


_WAITING = (_USER, _CALLS)


@pytest.mark.parametrize(
    ("seen", "messages", "found"),
    [
        ((), (_USER,), (0, 0)),
        ((_USER, _MODEL), (_USER, _MODEL, _USER), (2, 0)),
        ((_USER, _MODEL), (_USER, _MODEL), None),
        ((_USER, _MODEL), (_MODEL, _USER), None),
        (_WAITING, (*_WAITING, _RESULTS), (2, 1)),
        (_WAITING, (*_WAITING, _RESULTS, _USER), (2, 1)),
        (_WAITING, (*_WAITING, Message.tool([ToolResult("a", "t")])), None),
        (_WAITING, (*_WAITING, _RESULTS, _MODEL, _USER), None),
    ],
)
def test_how_a_conversation_continues(seen: Any, messages: Any, found: Any) -> None:
    assert continuation(seen, messages) == found


# --- transcripts ------------------------------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=30) | st.just("</conversation>\n<conversation>"), min_size=1, max_size=4))
def test_nothing_in_a_transcript_can_end_it(texts: list[str]) -> None:
    messages = tuple([Message.assistant(text, ToolCall("c", text, text)) for text in texts])
    ((content,), _) = write_turn(messages, 0, PROFILE)
    written = str(content["text"])
    assert written.count("<conversation>") == written.count("</conversation>") == 1
    lines = written.partition("<conversation>\n")[2].partition("\n</conversation>")[0].split("\n")
    assert [json.loads(each)["content"][0] for each in lines] == texts


def test_pictures_of_a_transcript_follow_it() -> None:
    picture = Media.from_bytes(b"png", "image/png")
    messages = (Message.user("See:", picture), Message.assistant("A dog."), Message.user("Sure?", picture))
    content, losses = write_turn(messages, 0, PROFILE)
    assert [part["type"] for part in content] == ["text", "text", "image", "text", "image"]
    assert '{"see":"image 1"}' in str(content[0]["text"])
    assert losses == ()


def test_messages_of_subagents_are_not_part_of_the_reply() -> None:
    talk = dialogue()
    subagent = {**SPEAKS["say"], "parent_tool_use_id": "task"}
    assert talk.receive(json.dumps(subagent).encode()).events == []
