"""The program's own tools: permission is asked for each use, and they appear as opaque blocks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman.conversation import Opaque, StopReason, Text, ToolCall
from dragoman.tools import Allow, Ask, Deny
from tests.engines.claude_cli.programs import (
    BEGINS,
    CLOSES,
    ENDS,
    GREETS,
    HEARS_OPENING,
    HEARS_USER,
    LINGERS,
    OPENS_TEXT,
    RESULT,
    STOPS,
    WAYS,
    WEATHER,
    Programs,
    begins,
    every_colour,
    every_way,
    opens_call,
    request,
    said,
    speaks,
    system,
    tool_request,
)

INPUT = {"command": "rm -r build", "description": "Delete it", "extra": [1, {"deep": "<kept>"}]}
WRITTEN = {"type": "input_json_delta", "partial_json": msgspec.json.encode(INPUT).decode()}
PIECES = said({"type": "content_block_delta", "index": 0, "delta": WRITTEN})
CALLS = said({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}})
USE = {"type": "tool_use", "id": "b1", "name": "Bash", "input": INPUT}
WHOLE = {"say": {"type": "assistant", "uuid": "u1", "message": {"id": "m1", "content": [USE]}}}
RAN = {"type": "tool_result", "tool_use_id": "b1", "content": "gone"}
ANSWER = {"say": {"type": "user", "message": {"role": "user", "content": [RAN]}}}
SECOND = [begins("m2"), OPENS_TEXT, speaks("Done."), CLOSES, STOPS, ENDS]


def steps() -> list[Any]:
    return [
        *(HEARS_OPENING, GREETS, HEARS_USER, system(tools=["Bash"])),
        system(tools=None),  # unreadable, so it changes nothing
        *(BEGINS, opens_call("b1", "Bash"), PIECES, WHOLE),
        request("p1", subtype="can_use_tool", tool_name="Bash", input=INPUT, tool_use_id="b1"),
        {"await": "p1"},
        # The result may come before the message has ended.
        *(ANSWER, CLOSES, CALLS, ENDS, *SECOND, RESULT, LINGERS),
    ]


def answered(programs: Programs) -> dict[str, Any]:
    (answer,) = [each["response"] for each in programs.heard if each["type"] == "control_response"]
    return answer["response"]


@every_way
def test_an_allowed_call_gets_its_whole_input(way: Any, programs: Programs) -> None:
    asked: list[ToolCall] = []

    def permission(call: ToolCall) -> Allow:
        asked.append(call)
        return Allow()

    message = way(programs.playing(steps(), own_tools=("Bash",), permission=permission)).reply.message
    assert [(call.id, call.name, call.parsed) for call in asked] == [("b1", "Bash", INPUT)]
    assert answered(programs) == {"behavior": "allow", "updatedInput": INPUT}
    # It ran the tool itself: for us it is one reply, without calls.
    assert message.stop_reason is StopReason.END
    call, result, text = message.blocks
    assert isinstance(call, Opaque)
    assert call.value == USE
    assert isinstance(result, Opaque)
    assert result.value["content"] == "gone"
    assert text == Text("Done.")
    assert message.usage.output == 6


def _raises(_call: ToolCall) -> Allow:
    raise OSError


ANSWERS = {
    "nobody": (None, "nobody was there"),
    "deny": (lambda _: Deny("not here"), "not here"),
    "ask": (lambda _: Ask("looks dangerous"), "looks dangerous"),
    "raise": (_raises, "OSError"),
}


@every_colour
@pytest.mark.parametrize(("permission", "reason"), ANSWERS.values(), ids=ANSWERS.keys())
def test_anything_but_allow_is_a_refusal(
    way: Any, permission: Any, reason: str, programs: Programs, caplog: pytest.LogCaptureFixture
) -> None:
    way(programs.playing(steps(), own_tools=("Bash",), permission=permission))
    answer = answered(programs)
    assert answer["behavior"] == "deny"
    assert reason in answer["message"]
    crashed = [each for each in caplog.records if each.exc_info]
    assert [each.name for each in crashed] == (["dragoman.engines"] if permission is _raises else [])


def test_an_async_permission_check(programs: Programs) -> None:
    async def permission(_call: ToolCall) -> Allow:
        return Allow()

    WAYS["async-whole"](programs.playing(steps(), own_tools=("Bash",), permission=permission))
    assert answered(programs)["behavior"] == "allow"
    programs.log.unlink()
    WAYS["plain-whole"](programs.playing(steps(), own_tools=("Bash",), permission=permission))
    assert "async" in answered(programs)["message"]


def test_what_a_rule_allowed_runs_as_it_was_judged(programs: Programs) -> None:
    from dragoman.toolkit import PermissionChecker

    rule = {"tool": "Bash", "command": "rm", "options": ["-r"], "action": "allow"}
    checker = PermissionChecker({"rules": [rule]})
    written = {**INPUT, "command": 'rm -r  "build"\n'}
    asking = request("p1", subtype="can_use_tool", tool_name="Bash", input=written, tool_use_id="b1")
    play = [asking if step == steps()[9] else step for step in steps()]
    message = WAYS["plain-whole"](programs.playing(play, own_tools=("Bash",), permission=checker.check)).reply.message
    assert answered(programs) == {"behavior": "allow", "updatedInput": {**INPUT, "command": "rm -r build"}}
    assert message.blocks[0].value == USE, "the history keeps what the model wrote"


def test_a_permission_checker_decides(programs: Programs) -> None:
    from dragoman.toolkit import PermissionChecker

    checker = PermissionChecker(
        {"rules": [{"tool": "Bash", "command": "rm", "action": "deny", "reason": "nothing is deleted here"}]}
    )
    permission = lambda call: checker.check(call, door="claude")  # noqa: E731
    WAYS["plain-whole"](programs.playing(steps(), own_tools=("Bash",), permission=permission))
    assert "nothing is deleted here" in answered(programs)["message"]


@every_colour
def test_our_tools_are_not_asked_about(way: Any, programs: Programs) -> None:
    """Whether one of ours may run is decided where it runs."""
    ask = request("p1", subtype="can_use_tool", tool_name="mcp__dragoman__weather", input={}, tool_use_id="c1")
    beginning = [HEARS_OPENING, GREETS, HEARS_USER, system(tools=["mcp__dragoman__weather"])]
    played = [*beginning, BEGINS, opens_call(), ask, {"await": "p1"}, CLOSES, CALLS, ENDS, LINGERS]
    message = way(programs.playing(played), tools=[WEATHER]).reply.message
    assert [call.name for call in message.tool_calls] == ["weather"]
    assert answered(programs) == {"behavior": "allow", "updatedInput": {}}


@every_colour
def test_subagents_cannot_call_our_tools(way: Any, programs: Programs) -> None:
    beginning = [HEARS_OPENING, GREETS, HEARS_USER, system()]
    played = [*beginning, tool_request("t1", "of a subagent"), {"await": "t1"}, *SECOND, RESULT, LINGERS]
    assert way(programs.playing(played), tools=[WEATHER]).reply.message.text == "Done."
    assert answered(programs)["mcp_response"]["result"]["isError"] is True
