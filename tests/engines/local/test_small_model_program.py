"""The program that runs the small model: shared, freed, killed, and out of the reach of Ctrl-C."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dragoman.conversation import Conversation, Message, TextDelta
from dragoman.engines import Engine, engine
from dragoman.engines.local.storage import models_directory
from dragoman.errors import ConnectionFailedError
from dragoman.providers import ModelOptions
from dragoman.transport import RetryPolicy
from tests.cli.person import Person
from tests.cli.running import Surroundings
from tests.engines.local.real import ROOT, SMALL, STORY, needed, real, running
from tests.engines.local.test_process import gone
from tests.processes import started

pytestmark = [
    *real,
    pytest.mark.skipif(sys.platform == "win32", reason="signals and pseudo-terminals are things of POSIX systems"),
]

WORD = ModelOptions(max_tokens=1)


@pytest.fixture
def alone() -> Iterator[Callable[[], Engine]]:
    """Engines of a program that nobody else uses."""
    needed(SMALL)
    made: list[Engine] = []

    def make() -> Engine:
        made.append(engine(f"local:{SMALL}", profile={"context_window": 1024}, retry=RetryPolicy(max_attempts=1)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def own_pid() -> int:
    return running(1024).pid


def test_it_is_shared_and_ends_with_the_last(alone: Callable[[], Engine]) -> None:
    first, second = alone(), alone()
    first.reply(STORY, options=WORD)
    program = own_pid()
    second.reply(STORY, options=WORD)
    assert own_pid() == program
    first.close()
    os.kill(program, 0)
    second.close()
    assert gone(program)


def test_it_survives_the_death_of_its_program(alone: Callable[[], Engine]) -> None:
    talker = alone()
    talker.reply(STORY, options=WORD)
    with (  # noqa: PT012 -- the program dies in the middle of it
        pytest.raises(ConnectionFailedError) as caught,
        talker.stream(STORY, options=ModelOptions(max_tokens=900)) as stream,
    ):
        for event in stream:
            if isinstance(event, TextDelta):
                os.kill(own_pid(), signal.SIGKILL)
    assert caught.value.partial is not None
    assert talker.reply(STORY, options=ModelOptions(max_tokens=2)).message.text


PARENT = f"""
import os, sys, time
from dragoman import Conversation, Message, ModelOptions, engine
from dragoman.engines.local import server
talker = engine("local:{SMALL}")
talker.reply(Conversation().plus(Message.user("Hi")), options=ModelOptions(max_tokens=1))
(model,) = server._shared.values()
if "fork" in sys.argv and os.fork() == 0:
    time.sleep(600)  # holds a copy of every pipe
print(model._process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["alone", "fork"])
def test_it_ends_with_the_program_that_started_it_even_if_that_is_killed(how: str) -> None:
    needed(SMALL)
    command = [sys.executable, "-c", PARENT, how]
    with started(command, stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        program.kill()
        program.wait()
        assert gone(pid)
        if how == "fork":
            os.killpg(program.pid, signal.SIGKILL)  # the forked one


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    needed(SMALL)
    models = str(models_directory())
    home = tmp_path / "home"
    home.mkdir()
    surroundings = Surroundings(home, monkeypatch)
    surroundings.set(DRAGOMAN_MODEL_DIR=models)
    return surroundings


def child_of(pid: int) -> int:
    """The program that runs the model for this one."""
    listed = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
    (found,) = [int(own) for own, parent, said in rows if int(parent) == pid and "child.py" in said]
    return found


@pytest.mark.skipif(shutil.which("ps") is None, reason="needs ps")
def test_ctrl_c_in_a_terminal_stops_the_answer_and_not_the_model(around: Surroundings) -> None:
    question = "Write a long story about a dog named Max."
    with engine(f"local:{SMALL}") as talker:
        options = ModelOptions(max_tokens=6, temperature=0)
        beginning = talker.reply(Conversation().plus(Message.user(question)), options=options).message.text
    arguments = ("chat", "-m", f"local:{SMALL}", "-o", "max_tokens", "120", "-o", "temperature", "0")
    with Person(*arguments, env=around.env, cwd=around.work) as person:
        person.see("/help, Ctrl-D to leave", ">")
        person.type(question)
        person.see(" ".join(beginning.split()[:2]))
        model = child_of(person.child.pid)
        person.press("c")
        person.see("[stopped; /continue goes on]", ">")
        assert child_of(person.child.pid) == model
        person.type("Go on.")
        person.see("waiting", ">")
        assert child_of(person.child.pid) == model
        person.press("d")
        assert person.leave() == 0
    assert gone(model)
