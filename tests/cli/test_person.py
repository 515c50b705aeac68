"""The command as a person uses it, through a pseudo-terminal."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from dragoman.conversation import Text
from dragoman.simulator import Reply, Request, Simulator, Stall
from tests.cli.person import DEADLINE, Person
from tests.cli.running import Surroundings, calling

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="a pseudo-terminal is a thing of POSIX systems"),
]

LONG = " ".join([f"word{number}" for number in range(400)])
STALLING = Reply(Text(LONG), faults=[Stall(share=0.5)])

HOSTILE = "<http://a/%1b[2J%1b]52;c;QQ==%07> &#27;[2J \x1b]0;title\x07"


def at(around: Surroundings, *arguments: str) -> Person:
    return Person(*arguments, env=around.env, cwd=around.work)


def user_texts(request: Request) -> list[str]:
    return [m["content"] for m in request.body["messages"] if m["role"] == "user"]


# --- the first minutes ------------------------------------------------------------------------------------------------


def test_the_command_alone_shows_its_help(around: Surroundings) -> None:
    with at(around) as person:
        person.see("usage: dragoman", "examples:")
        assert person.leave() == 0


def test_neither_a_model_nor_a_tool_commands_the_terminal(around: Surroundings) -> None:
    (around.work / "mine.py").write_text(f"def say(text: str) -> str:\n    return {HOSTILE!r}\n")
    with Simulator([calling("say", {"text": HOSTILE}, text=HOSTILE), HOSTILE]) as simulator:
        around.use(simulator)
        with at(around, "Go.", "-T", "mine.py") as person:
            person.see("say wants to run", "exactly this", "? ")
            person.type("y")
            assert person.leave() == 0
            assert "\\u001b[2J" in person.screen, "it is shown instead"
    for sequence in ("\x1b[2J", "\x1b]52", "\x1b]0", "\x07"):
        assert sequence not in person.raw


def test_colours_on_a_terminal_unless_no_color(around: Surroundings) -> None:
    with at(around, "--xyzzy") as person:
        assert person.leave() == 2
        assert "\x1b[31m" in person.raw
    around.set(NO_COLOR="1")
    with at(around, "--xyzzy") as person:
        assert person.leave() == 2
        assert "\x1b" not in person.raw


# --- Ctrl-C, kill -9, and going on ------------------------------------------------------------------------------------


def test_ctrl_c_in_the_middle_of_an_answer_keeps_what_was_said(around: Surroundings) -> None:
    with Simulator([STALLING, "And so on."]) as simulator:
        around.use(simulator)
        with at(around, "Talk.") as person:
            person.see("word5 ")
            person.press("c")
            person.see("interrupted; what was said is kept. Continue with: dragoman -c")
            assert person.leave() == 130
            assert "Traceback" not in person.screen
        assert "word5 " in around.here("history", "show").out
        with at(around, "-c", "Go on.") as person:
            person.see("And so on.")
            assert person.leave() == 0
        sent = simulator.requests[-1].body["messages"]
    assert "word5 " in sent[1]["content"]
    assert user_texts(simulator.requests[-1]) == ["Talk.", "Go on."]


@pytest.mark.parametrize(("how", "code"), [("ctrl-c", 130), ("sigterm", 143)])
def test_whatever_ends_the_program_ends_the_tool_that_runs(how: str, code: int, around: Surroundings) -> None:
    with Simulator([calling("Bash", {"command": "echo $$ > pid; sleep 1000"})]) as simulator:
        around.use(simulator)
        with at(around, "Wait.", "-T", "Bash", "--approve", "auto") as person:
            person.see("Bash {")
            pid = _read(around.work / "pid")
            if how == "ctrl-c":
                person.press("c")
            else:
                os.kill(person.child.pid, signal.SIGTERM)
            assert person.leave() == code
    _ends(int(pid))


def _read(path: Path) -> str:
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if path.exists() and (text := path.read_text().strip()):
            return text
        time.sleep(0.05)
    raise AssertionError(f"{path.name} never came")


def _ends(pid: int) -> None:
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} is still there")


def test_killed_in_the_middle_of_an_answer_and_continued(around: Surroundings) -> None:
    with Simulator([STALLING, "Here I am again."]) as simulator:
        around.use(simulator)
        with at(around, "Talk.") as person:
            person.see("word5 ")
            person.kill()
        with at(around, "-c") as person:
            person.see("Here I am again.")
            assert person.leave() == 0
        assert user_texts(simulator.requests[-1]) == ["Talk."]


def test_killed_while_a_tool_runs_and_continued_with_a_question(around: Surroundings) -> None:
    with Simulator([calling("Bash", {"command": "echo ran >> log; sleep 1000"}), "Done.", "Done."]) as simulator:
        around.use(simulator)
        with at(around, "Run it.", "-T", "Bash", "--approve", "auto") as person:
            person.see("Bash {")
            _read(around.work / "log")
            person.kill()
        with at(around, "-c", "-T", "Bash") as person:
            person.see(
                "Bash wants to run again", "nobody knows whether it did its work", "sleep 1000", "exactly this", "? "
            )
            person.type("n it ran once")
            person.see("Done.")
            assert person.leave() == 0
        result = simulator.requests[-1].body["messages"][-1]
    assert result["role"] == "tool"
    assert "it ran once" in result["content"]
    assert (around.work / "log").read_text() == "ran\n", "it did not run a second time"


def test_killed_at_the_question_and_asked_again(around: Surroundings) -> None:
    with Simulator([calling("Bash", {"command": "echo made > made"}), "Done."]) as simulator:
        around.use(simulator)
        with at(around, "Make it.", "-T", "Bash") as person:
            person.see("Bash wants to run", "exactly this", "? ")
            person.kill()
        with at(around, "-c", "-T", "Bash") as person:
            person.see("Bash wants to run", "echo made > made", "exactly this", "? ")
            person.type("y")
            person.see("Done.")
            assert person.leave() == 0
    assert (around.work / "made").read_text() == "made\n"


# --- chat -------------------------------------------------------------------------------------------------------------


def test_a_chat_with_tools_approvals_and_commands(around: Surroundings) -> None:
    script = [
        calling("Bash", {"command": "echo one > one"}, text="I will **write**."),
        "Done with `one`.",
        calling("Bash", {"command": "echo two > two"}, id="c2"),
        "Not done.",
        "Third.",
    ]
    with Simulator(script) as simulator:
        around.use(simulator)
        with at(around, "chat", "-T", "Bash") as person:
            person.see("/help, Ctrl-D to leave", ">")
            person.type("Write one.")
            person.see(
                "I will write.",
                "Bash wants to run",
                "Run a shell command",
                '"command": "echo one > one"',
                "exactly this",
                "? ",
            )
            person.type("y")
            person.see("← Bash", "Done with one.", ">")
            person.type("Write two.")
            person.see("echo two > two", "exactly this", "? ")
            person.type("n never two")
            person.see("never two", "Not done.", ">")
            person.type("/usage")
            person.see("8 messages; tokens: ", ">")
            person.type("/tools Read Grep")
            person.see("Read", "Grep", ">")
            person.type("/nope")
            person.see("There is no command /nope.", ">")
            person.type("/undo")
            person.see("The last turn is undone", "Write two.")
            person.press("c")
            person.see(">")
            person.type("Third?")
            person.see("Third.", ">")
            person.press("d")
            person.see("To go on: dragoman chat --cid ")
            assert person.leave() == 0
        assert user_texts(simulator.requests[-1]) == ["Write one.", "Third?"]
    assert (around.work / "one").exists()
    assert not (around.work / "two").exists()


def test_ctrl_c_stops_the_answer_and_not_the_chat(around: Surroundings) -> None:
    with Simulator([STALLING, "Good.", "Better."]) as simulator:
        around.use(simulator)
        with at(around, "chat") as person:
            person.see(">")
            person.type("Talk.")
            person.see("word5")
            person.press("c")
            person.see("[stopped; /continue goes on]", ">")
            person.type("Shorter.")
            person.see("Good.", ">")
            person.press("c")
            person.see(">")
            person.type("Again.")
            person.see("Better.", ">")
            person.type("/quit")
            assert person.leave() == 0
            assert "Traceback" not in person.screen
        assert user_texts(simulator.requests[-1]) == ["Talk.", "Shorter.", "Again."]


def test_a_chat_that_was_killed_is_continued(around: Surroundings) -> None:
    with Simulator(["First.", STALLING, "Back again."]) as simulator:
        around.use(simulator)
        with at(around, "chat") as person:
            person.see(">")
            person.type("One.")
            person.see("First.", ">")
            person.type("Talk.")
            person.see("word5")
            person.kill()
        with at(around, "chat", "-c") as person:
            person.see("Continuing: One.", "/continue lets the model go on.", ">")
            person.type("/continue")
            person.see("Back again.", ">")
            person.press("d")
            assert person.leave() == 0
        assert user_texts(simulator.requests[-1]) == ["One.", "Talk."]


def test_always_is_remembered_in_a_chat(around: Surroundings) -> None:
    script = [
        calling("Write", {"file_path": "a/one.txt", "content": "1"}),
        "One.",
        calling("Write", {"file_path": "a/one.txt", "content": "1"}, id="c2"),
        "Again.",
        calling("Write", {"file_path": "a/two.txt", "content": "2"}, id="c3"),
        "Two.",
        calling("Write", {"file_path": "a/three.txt", "content": "3"}, id="c4"),
        "Three.",
    ]
    (around.work / "a").mkdir()
    with Simulator(script) as simulator:
        around.use(simulator)
        with at(around, "chat", "-T", "Write") as person:
            person.see(">")
            person.type("Write one.")
            person.see("exactly this", "? ")
            person.type("a")
            person.see("Until the end of this session: allow Write with exactly the arguments", "One.", ">")
            person.type("Write it again.")
            assert "[y]es" not in person.see("Again.")
            person.see(">")
            person.type("Write two.")
            person.see("[1] from now on: allow Write on paths in a", "exactly this", "? ")
            person.type("1")
            person.see("Until the end of this session: allow Write on paths in a", "Two.", ">")
            person.type("Write three.")
            assert "[y]es" not in person.see("Three.")
            person.see(">")
            person.press("d")
            assert person.leave() == 0
    assert (around.work / "a" / "three.txt").read_text() == "3"


def test_several_lines_history_and_files_in_a_chat(around: Surroundings) -> None:
    with Simulator() as simulator:
        around.use(simulator)
        with at(around, "chat") as person:
            person.see(">")
            person.child.send("line one\x1b\rline two\r")
            person.see("You said: line one", ">")
            person.type("first\\")
            person.type("second")
            person.see("You said: first", ">")
            person.child.send("\x1b[A")  # what was typed before, by the arrow key
            person.see("first")
            person.press("c")
            person.type("/save talk.json")
            person.see("Written to talk.json.", ">")
            person.type("/system Be kind.")
            person.see("Be kind.", ">")
            person.type("/fork")
            person.see("a conversation of its own", ">")
            person.type("/model openai-compatible:other")
            person.see("The model is openai-compatible:other.", ">")
            person.type("/new")
            person.see("A new conversation.", ">")
            person.type("//slash")
            person.see("You said: /slash", ">")
            person.press("d")
            assert person.leave() == 0
        assert user_texts(simulator.requests[0]) == ["line one\nline two"]
        assert user_texts(simulator.requests[1]) == ["line one\nline two", "first\nsecond"]
    assert json.loads((around.work / "talk.json").read_text())["title"].startswith("line one")
    history = around.home / ".local" / "state" / "dragoman" / "chat_history"
    assert oct(history.stat().st_mode)[-3:] == "600"


def test_a_failed_turn_leaves_the_words_in_the_input(around: Surroundings) -> None:
    around.set(DRAGOMAN_RETRY_MAX_ATTEMPTS="1")
    around.set(DRAGOMAN_MODEL="openai-compatible:x", DRAGOMAN_BASE_URL="http://127.0.0.1:9/v1")
    with at(around, "chat") as person:
        person.see(">")
        person.type("Are you there?")
        person.see("Check the network", "> Are you there?")
        person.press("c")
        person.press("d")
        assert person.leave() == 0
