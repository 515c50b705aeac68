"""Without rich and prompt_toolkit questions work all the same, and so does the chat, more plainly."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dragoman.conversation import Text
from dragoman.simulator import Reply, Stall
from tests.cli.person import Person
from tests.cli.running import Surroundings, calling

# What `import rich` does where it is not installed.
WITHOUT = "import sys; sys.modules['rich'] = sys.modules['prompt_toolkit'] = None"
BARE = ("-c", f"{WITHOUT}; from dragoman.cli import main; sys.exit(main())")


def test_a_question_needs_no_extra(around: Surroundings) -> None:
    with around.talking():
        done = subprocess.run(
            [sys.executable, *BARE, "Hello."], env=around.env, input="", capture_output=True, text=True, check=True
        )
    assert (done.stdout, done.stderr) == ("You said: Hello.\n", "")


@pytest.mark.slow
def test_the_chat_is_plain_and_names_the_extra(around: Surroundings) -> None:
    stalling = Reply(Text("word " * 400), faults=[Stall(share=0.5)])
    script = ["**Hello.**", calling("Bash", {"command": "echo hi"}), "Done.", stalling]
    terminal = {"cwd": around.work, "program": BARE}
    with around.talking(script), Person("chat", "-T", "Bash", env=around.env, **terminal) as person:
        person.see("pip install 'dragoman[cli]'", "> ")
        person.say("Hello.", "**Hello.**", "> ")
        person.say("Run it.", "exactly this", "? ")
        person.say("y", "Done.", "> ")
        person.say("Talk.", "word word")
        person.press("c")
        person.see("[stopped; /continue resumes]", "> ")
        person.press("d")
        assert person.leave() == 0


def test_a_chat_can_be_piped(around: Surroundings) -> None:
    with around.talking():
        done = around.here("chat", stdin="one\n/usage\ntwo\\\nlines\n//slash\n\n")
        assert done.code == 0
        assert done.out == "You said: one\nYou said: two\nlines\nYou said: /slash\n"
        assert "2 messages; tokens:" in done.err
        assert around.here("chat", stdin="/nope\n").code == 2


def test_a_piped_chat_continues_after_a_failure_and_returns_its_code(around: Surroundings) -> None:
    around.set(DRAGOMAN_RETRY_MAX_ATTEMPTS="1")
    around.set(DRAGOMAN_MODEL="openai-compatible:x", DRAGOMAN_BASE_URL="http://127.0.0.1:9/v1")
    done = around.here("chat", stdin="one\n/help\n")
    assert done.code == 6
    assert "/continue" in done.err
