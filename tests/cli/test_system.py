"""The system prompt on the command line: a continued conversation keeps its own unless `-s` or `/system` says another.

The table of all roads is in tests/instructions.py.
"""

from __future__ import annotations

import pytest

from dragoman.conversation import ToolCall
from dragoman.simulator import Reply, Request, Simulator
from tests import instructions
from tests.cli.running import Surroundings
from tests.instructions import Cell, Sent, exercised_here


def _system(simulator: Simulator) -> str | None:
    return simulator.requests[-1].system or None


@pytest.mark.parametrize("road", exercised_here(__name__, {"the command line": None}))
def test_what_is_sent(road: str, around: Surroundings) -> None:
    def go(cell: Cell) -> Sent:
        began = [] if cell.own is None else ["-s", cell.own]
        given = ["-s", cell.options["system"]] if cell.options else []
        assert around.here("Begin.", *began).code == 0
        assert around.here("x", "-c", *given).code == 0
        wire = _system(simulator)
        assert around.here("y", "-c").code == 0  # what was kept is what is sent now
        return Sent(wire, _system(simulator))

    with around.talking() as simulator:
        instructions.check(road, go)


def test_a_continued_conversation_keeps_its_own_and_not_the_configured_one(around: Surroundings) -> None:
    around.configure('system_prompt = "Be old."\n')
    with around.talking() as simulator:
        around.here("One.")
        assert _system(simulator) == "Be old."
        around.configure('system_prompt = "Be new."\n')
        around.here("Two.", "-c")
        assert _system(simulator) == "Be old."
        around.here("chat", "-c", stdin="Three.\n/new\nFour.\n")
        assert [each.system for each in simulator.requests[-2:]] == ["Be old.", "Be new."]


def test_a_continued_conversation_without_one_gets_none_of_the_configuration(around: Surroundings) -> None:
    with around.talking() as simulator:
        around.here("One.")
        around.configure('system_prompt = "Be new."\n')
        around.here("Two.", "-c")
        assert _system(simulator) is None


def test_system_in_a_chat_is_sent_from_then_on_and_kept(around: Surroundings) -> None:
    lines = ["One.", "/system Be kind.", "Two.", "/undo", "Three.", "/fork", "Four.", "/model openai-compatible:other"]
    lines += ["Five.", "/system none", "Six.", "/system", "/system Be brief."]
    with around.talking() as simulator:
        done = around.here("chat", "-s", "Be old.", stdin="".join(f"{line}\n" for line in lines))
        assert done.code == 0
        assert [each.system or None for each in simulator.requests] == ["Be old.", *["Be kind."] * 4, None]
        assert "There is no system prompt." in done.err
        around.here("Seven.", "-c")  # the last one was kept, although no turn followed
        assert _system(simulator) == "Be brief."


def test_system_before_the_first_message(around: Surroundings) -> None:
    lines = ["/system Be kind.", "/system", "One.", "/undo", "Two.", "/new", "Three."]
    with around.talking() as simulator:
        done = around.here("chat", "-s", "Be old.", stdin="".join(f"{line}\n" for line in lines))
    assert [each.system for each in simulator.requests] == ["Be kind.", "Be kind.", "Be old."]
    assert done.err.count("Be kind.") == 2


DESK = """
from dragoman.chat import handoff

def whatever(run):
    return "Be a desk."

desk = handoff("desk", "Takes over.", system=["Be quick.", whatever])
"""


def test_system_while_an_agent_is_in_charge(around: Surroundings) -> None:
    """It may have functions, which a command line has not; and a conversation that begins anew is not the agent's."""
    (around.work / "desks.py").write_text(DESK)

    def reply(request: Request) -> Reply | str:
        goes = request.last_user_text == "Go." and not request.tool_results
        return Reply(ToolCall("h1", "desk", "{}")) if goes else "Fine."

    given = ("-T", "desks:desk", "--approve", "auto")
    with around.talking(reply) as simulator:
        lines = ["Go.", "/system", "More.", "/undo", "/undo", "/system", "One."]
        done = around.here("chat", "-s", "Be old.", *given, stdin="".join(f"{line}\n" for line in lines))
        assert (done.code, [line for line in done.err.splitlines() if "whatever" in line]) == (
            0, ["(what whatever says)"]
        )  # fmt: skip
        desk = "Be quick.\n\nBe a desk."
        assert [each.system for each in simulator.requests] == ["Be old.", desk, desk, "Be old."]
        assert around.here("Go.", *given).code == 0
        assert around.here("-c", "-s", "Be new.", "More.", *given).code == 0
        assert simulator.requests[-1].system == "Be new."
