"""The command as a person uses it, through a pseudo-terminal."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress

import pytest

from devtools.first_ten_minutes import prepare
from dragoman.conversation import Text
from dragoman.simulator import Reply, Request, Stall
from tests.cli.person import DEADLINE, Person
from tests.cli.running import Surroundings, calling, wait_for

pytestmark = pytest.mark.slow

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


def test_neither_a_model_nor_a_tool_controls_the_terminal(around: Surroundings) -> None:
    (around.work / "mine.py").write_text(f"def say(text: str) -> str:\n    return {HOSTILE!r}\n")
    script = [calling("say", {"text": HOSTILE}, text=HOSTILE), HOSTILE]
    with around.talking(script), at(around, "Go.", "-T", "mine.py") as person:
        person.see("say wants to run", "exactly this", "? ")
        person.type("y")
        assert person.leave() == 0
        assert "\\u001b[2J" in person.screen, "it is shown instead"
    for sequence in ("\x1b[2J", "\x1b]52", "\x1b]0", "\x07"):
        assert sequence not in person.raw


def test_a_question_shows_that_the_model_is_loading(around: Surroundings) -> None:
    with Person("The capital of France?", env=prepare(around.home / "new"), cwd=around.work) as person:
        person.see("so the local model answers", "loading local:qwen2.5-coder-1.5b", "Paris.")
        assert person.leave() == 0


# --- Ctrl-C, kill -9, and going on ------------------------------------------------------------------------------------


def test_ctrl_c_during_an_answer_keeps_the_text_so_far(around: Surroundings) -> None:
    with around.talking([STALLING, "And so on."]) as simulator:
        with at(around, "Talk.") as person:
            person.see("word5 ")
            person.press("c")
            person.see("interrupted; the conversation is kept. Continue with: dragoman -c")
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
def test_ending_the_program_ends_the_running_tool(how: str, code: int, around: Surroundings) -> None:
    script = [calling("Bash", {"command": "echo $$ > pid; sleep 1000"})]
    with around.talking(script), at(around, "Wait.", "-T", "Bash", "--approve", "auto") as person:
        person.see("Bash {")
        pid = wait_for(around.work / "pid")
        if how == "ctrl-c":
            person.press("c")
        else:
            os.kill(person.child.pid, signal.SIGTERM)
        assert person.leave() == code
    _ends(int(pid))


def _ends(pid: int) -> None:
    end = time.monotonic() + DEADLINE
    with suppress(ProcessLookupError):
        while True:
            os.kill(pid, 0)
            assert time.monotonic() < end, f"process {pid} is still there"
            time.sleep(0.05)


def test_after_a_kill_during_a_tool_the_user_is_asked_before_a_repeat(around: Surroundings) -> None:
    with around.talking([calling("Bash", {"command": "echo ran >> log; sleep 1000"}), "Done.", "Done."]) as simulator:
        with at(around, "Run it.", "-T", "Bash", "--approve", "auto") as person:
            person.see("Bash {")
            wait_for(around.work / "log")
            person.kill()
        with at(around, "-c", "-T", "Bash") as person:
            person.see(
                "Bash wants to run again", "nobody knows whether it did its work", "sleep 1000", "exactly this", "? "
            )
            person.say("n it ran once", "Done.")
            assert person.leave() == 0
        result = simulator.requests[-1].body["messages"][-1]
    assert result["role"] == "tool"
    assert "it ran once" in result["content"]
    assert (around.work / "log").read_text() == "ran\n", "it did not run a second time"


def test_after_a_kill_at_a_question_it_is_asked_again(around: Surroundings) -> None:
    with around.talking([calling("Bash", {"command": "echo made > made"}), "Done."]):
        with at(around, "Make it.", "-T", "Bash") as person:
            person.see("Bash wants to run", "exactly this", "? ")
            person.kill()
        with at(around, "-c", "-T", "Bash") as person:
            person.see("Bash wants to run", "echo made > made", "exactly this", "? ")
            person.say("y", "Done.")
            assert person.leave() == 0
    assert (around.work / "made").read_text() == "made\n"


def test_ctrl_c_at_a_question_says_that_the_call_waits(around: Surroundings) -> None:
    script = [calling("Bash", {"command": "echo made > made"}), "Done."]
    with around.talking(script), at(around, "Make it.", "-T", "Bash") as person:
        person.see("Bash wants to run", "exactly this", "? ")
        person.press("c")
        person.see("interrupted; 1 call waits for your approval; the conversation is kept. Continue with:")
        assert person.leave() == 130


# --- chat -------------------------------------------------------------------------------------------------------------


def test_a_chat_with_tools_approvals_and_commands(around: Surroundings) -> None:
    script = [
        calling("Bash", {"command": "echo one > one"}, text="I will **write**."),
        "Done with `one`.",
        calling("Bash", {"command": "echo two > two"}, id="c2"),
        "Not done.",
        "Third.",
    ]
    with around.talking(script) as simulator, at(around, "chat", "-T", "Bash") as person:
        person.see("/help, Ctrl-D to leave", ">")
        person.say(
            "Write one.",
            "I will write.",
            "Bash wants to run",
            "Run a shell command",
            '"command": "echo one > one"',
            "exactly this",
            "? ",
        )
        person.say("y", "← Bash", "Done with one.", ">")
        person.say("Write two.", "echo two > two", "exactly this", "? ")
        person.say("n never two", "never two", "Not done.", ">")
        person.say("/usage", "8 messages; tokens: ", ">")
        person.say("/tools Read Grep", "Read  Read a file", "Grep  Search", ">")
        person.say("/nope", "There is no command /nope.", ">")
        person.say("/undo", "Took back the last turn", "Write two.")
        person.press("c")
        person.see(">")
        person.say("Third?", "Third.", ">")
        person.press("d")
        person.see("To continue: dragoman chat --cid ")
        assert person.leave() == 0
    assert user_texts(simulator.requests[-1]) == ["Write one.", "Third?"]
    assert (around.work / "one").exists()
    assert not (around.work / "two").exists()


def test_ctrl_c_stops_the_answer_and_not_the_chat(around: Surroundings) -> None:
    with around.talking([STALLING, "Good.", "Better."]) as simulator, at(around, "chat") as person:
        person.see(">")
        person.say("Talk.", "word5")
        person.press("c")
        person.see("[stopped; /continue resumes]", ">")
        person.say("Shorter.", "Good.", ">")
        person.press("c")
        person.see(">")
        person.say("Again.", "Better.", ">")
        person.type("/quit")
        assert person.leave() == 0
        assert "Traceback" not in person.screen
    assert user_texts(simulator.requests[-1]) == ["Talk.", "Shorter.", "Again."]


def test_a_killed_chat_is_continued(around: Surroundings) -> None:
    with around.talking(["First.", STALLING, "Back again."]) as simulator:
        with at(around, "chat") as person:
            person.see(">")
            person.say("One.", "First.", ">")
            person.say("Talk.", "word5")
            person.kill()
        with at(around, "chat", "-c") as person:
            person.see("Continuing: One.", "/continue lets the model continue.", ">")
            person.say("/continue", "Back again.", ">")
            person.press("d")
            assert person.leave() == 0
        assert user_texts(simulator.requests[-1]) == ["One.", "Talk."]


def test_multiline_input_history_and_commands_in_a_chat(around: Surroundings) -> None:
    with around.talking() as simulator, at(around, "chat") as person:
        person.see(">")
        person.child.send("line one\x1b\rline two\r")
        person.see("You said: line one", ">")
        person.type("first\\")
        person.say("second", "You said: first", ">")
        person.child.send("\x1b[A")  # what was typed before, by the arrow key
        person.see("first")
        person.press("c")
        person.say("/save talk.json", "Written to talk.json.", ">")
        person.say("/system Be kind.", "Be kind.", ">")
        person.say("/fork", "a copy with its own history", ">")
        person.say("/model openai-compatible:other", "The model is openai-compatible:other.", ">")
        person.say("/new", "Started a new conversation.", ">")
        person.say("//slash", "You said: /slash", ">")
        person.child.send("typed ahead\n")  # so comes an Enter that was pressed during the answer
        person.see("You said: typed ahead", ">")
        person.press("d")
        assert person.leave() == 0
    assert user_texts(simulator.requests[0]) == ["line one\nline two"]
    assert user_texts(simulator.requests[1]) == ["line one\nline two", "first\nsecond"]
    assert json.loads((around.work / "talk.json").read_text())["title"].startswith("line one")
    history = around.home / ".local" / "state" / "dragoman" / "chat_history"
    assert oct(history.stat().st_mode)[-3:] == "600"


def test_a_failed_turn_keeps_the_prompt_in_the_input(around: Surroundings) -> None:
    around.set(DRAGOMAN_RETRY_MAX_ATTEMPTS="1")
    around.set(DRAGOMAN_MODEL="openai-compatible:x", DRAGOMAN_BASE_URL="http://127.0.0.1:9/v1")
    with at(around, "chat") as person:
        person.see(">")
        person.say("Are you there?", "Check the network", "> Are you there?")
        person.press("c")
        person.press("d")
        assert person.leave() == 0
