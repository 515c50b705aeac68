"""The talk with a program, without a program: lines in any pieces, lines of any kind, calls in any order."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import given

from dragoman.conversation import Conversation, Fold, Json, Media, Message, Text, ToolCall, ToolResult, ToolSpec
from dragoman.engines.claude_cli.decode import ReplyReader
from dragoman.engines.claude_cli.history import Continuation, continuation, write_turn
from dragoman.engines.claude_cli.protocol import Dialogue, result_of
from dragoman.errors import DragomanError
from dragoman.providers import PROFILES, Call
from tests.engines.claude_cli.programs import BEGINS, CLOSES, ENDS, SPEAKS, opens_call, said, tool_request
from tests.engines.claude_cli.test_launch import launched

PROFILE = PROFILES["claude-local"]
CALL = Call(model="m", conversation=Conversation(), profile=PROFILE, stream=True)
USES_TOOLS = said({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})


def dialogue(*tools: str) -> Dialogue:
    launch = launched(tools=[ToolSpec(name) for name in tools])
    talk = Dialogue(launch.opening, launch.tools, launch.names, structured=launch.structured)
    talk.reader = ReplyReader(CALL, launch.names, own_tools=lambda: talk.own_tools)
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
def test_no_line_breaks_the_talk(lines: list[bytes]) -> None:
    talk = dialogue("weather")
    for each in lines:
        try:
            heard = talk.receive(each)
        except DragomanError:
            return  # a message that must be understood and cannot: told as what it is
        assert all(out.endswith(b"\n") and json.loads(out) for out in heard.out)


@given(st.dictionaries(st.text(max_size=8), _json, max_size=4), _json)
def test_every_request_is_answered(request: dict[str, Any], message: Any) -> None:
    for subtype in ("mcp_message", "can_use_tool", "other"):
        asked = {**request, "subtype": subtype, "message": message, "tool_name": "Bash", "input": message}
        heard = dialogue("weather").receive(
            json.dumps({"type": "control_request", "request_id": "q", "request": asked}).encode()
        )
        waits = isinstance(message, dict) and message.get("method") == "tools/call"
        assert heard.out or heard.questions or waits


# --- calls and results ------------------------------------------------------------------------------------------------


def reply_with_calls(talk: Dialogue, *ids: str) -> None:
    fold = Fold()
    steps = [BEGINS]
    for index, id in enumerate(ids):
        for step in (opens_call(id), CLOSES):
            event = json.loads(json.dumps(step["say"]["event"]))
            event["index"] = index
            steps.append(said(event))
    for step in (*steps, USES_TOOLS, ENDS):
        fold.extend(talk.receive(line(step)).events)
    assert talk.reader is not None
    assert talk.reader.complete
    talk.take_calls()


def result(id: str) -> ToolResult:
    return ToolResult(id, "weather", (Text(f"result of {id}"),))


def answers(out: list[bytes]) -> dict[str, str]:
    found = [json.loads(each)["response"] for each in out]
    return {each["request_id"]: each["response"]["mcp_response"]["result"]["content"][0]["text"] for each in found}


@given(st.permutations(["a", "b", "c"]), st.integers(0, 3))
def test_results_find_their_calls_in_any_order(order: list[str], early: int) -> None:
    """Some calls are asked for before the results are there, the others afterwards."""
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
    for notice in (
        {"type": "control_cancel_request", "request_id": "q"},
        {
            "type": "control_request",
            "request_id": "n",
            "request": {
                "subtype": "mcp_message",
                "message": {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}},
            },
        },
    ):
        talk = dialogue("weather")
        reply_with_calls(talk, "a")
        talk.receive(line(tool_request("q", "a")))
        talk.receive(json.dumps(notice).encode())
        assert talk.give([result("a")]) == []


def test_results_with_pictures() -> None:
    picture = Media.from_bytes(b"png", "image/png")
    film = Media.from_url("https://x.test/a.mp4")
    parts = (Text("see"), Json(msgspec.Raw(b'{"a":1}')), picture, film)
    content = result_of(1, ToolResult("a", "t", parts))["result"]["content"]  # type: ignore[index]
    assert [part["type"] for part in content] == ["text", "text", "image", "text"]
    assert content[2]["data"] == "cG5n"


# --- what a program knows ---------------------------------------------------------------------------------------------

_USER, _MODEL = Message.user("Hello"), Message.assistant("Hi.")
_CALLS = Message.assistant(ToolCall("a", "t", "{}"), ToolCall("b", "t", "{}"))
_RESULTS = Message.tool([ToolResult("a", "t"), ToolResult("b", "t")])


def test_how_a_conversation_goes_on() -> None:
    assert continuation((), (_USER,)) == Continuation(0, 0)
    assert continuation((_USER, _MODEL), (_USER, _MODEL, _USER)) == Continuation(2, 0)
    assert continuation((_USER, _MODEL), (_USER, _MODEL)) is None
    assert continuation((_USER, _MODEL), (_MODEL, _USER)) is None
    waiting = (_USER, _CALLS)
    assert continuation(waiting, (*waiting, _RESULTS)) == Continuation(2, 1)
    assert continuation(waiting, (*waiting, _RESULTS, _USER)) == Continuation(2, 1)
    assert continuation(waiting, (*waiting, Message.tool([ToolResult("a", "t")]))) is None
    assert continuation(waiting, (*waiting, _RESULTS, _MODEL, _USER)) is None


# --- what it is told --------------------------------------------------------------------------------------------------


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


def test_text_of_a_program_that_is_not_ours_is_kept_apart() -> None:
    """A helper's messages are no part of the reply."""
    talk = dialogue()
    helper = {**SPEAKS["say"], "parent_tool_use_id": "task"}
    assert talk.receive(json.dumps(helper).encode()).events == []
