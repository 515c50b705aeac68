"""What the program may use: our tools, about which our executor decides, and none of its own."""

from __future__ import annotations

from typing import Any

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
    WEATHER,
    Programs,
    begins,
    every_way,
    opens_call,
    request,
    said,
    speaks,
    system,
    tool_request,
)

CALLS = said({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}})
SECOND = [begins("m2"), OPENS_TEXT, speaks("Done."), CLOSES, STOPS, ENDS]


def answered(programs: Programs) -> dict[str, Any]:
    (answer,) = [each["response"] for each in programs.heard if each["type"] == "control_response"]
    return answer["response"]


@every_way
def test_a_tool_of_the_program_itself_is_refused(way: Any, programs: Programs) -> None:
    ask = request("p1", subtype="can_use_tool", tool_name="Bash", input={"command": "rm -r build"}, tool_use_id="b1")
    played = [HEARS_OPENING, GREETS, HEARS_USER, system(), ask, {"await": "p1"}, *SECOND, RESULT, LINGERS]
    assert way(programs.playing(played)).reply.message.text == "Done."
    assert answered(programs)["behavior"] == "deny"


@every_way
def test_our_tools_are_not_asked_about(way: Any, programs: Programs) -> None:
    """Whether one of ours may run is decided where it runs."""
    ask = request("p1", subtype="can_use_tool", tool_name="mcp__dragoman__weather", input={}, tool_use_id="c1")
    beginning = [HEARS_OPENING, GREETS, HEARS_USER, system(tools=["mcp__dragoman__weather"])]
    played = [*beginning, BEGINS, opens_call(), ask, {"await": "p1"}, CLOSES, CALLS, ENDS, LINGERS]
    message = way(programs.playing(played), tools=[WEATHER]).reply.message
    assert [call.name for call in message.tool_calls] == ["weather"]
    assert answered(programs) == {"behavior": "allow", "updatedInput": {}}


@every_way
def test_helpers_of_the_program_cannot_call_ours(way: Any, programs: Programs) -> None:
    beginning = [HEARS_OPENING, GREETS, HEARS_USER, system()]
    played = [*beginning, tool_request("t1", "of a helper"), {"await": "t1"}, *SECOND, RESULT, LINGERS]
    assert way(programs.playing(played), tools=[WEATHER]).reply.message.text == "Done."
    assert answered(programs)["mcp_response"]["result"]["isError"] is True
