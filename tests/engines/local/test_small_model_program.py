"""The program that runs the small model: shared, killed, and out of the reach of Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
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
from tests.engines.local.real import SMALL, STORY, needed, real, running
from tests.engines.local.test_server import gone

pytestmark = [
    *real,
    pytest.mark.skipif(sys.platform == "win32", reason="signals and pseudo-terminals are things of POSIX systems"),
]

WORD = ModelOptions(max_tokens=1)


@pytest.fixture
def talker() -> Iterator[Engine]:
    """An engine whose program nobody else uses."""
    needed(SMALL)
    with engine(f"local:{SMALL}", profile={"context_window": 1024}, retry=RetryPolicy(max_attempts=1)) as made:
        yield made


def test_it_survives_the_death_of_its_program(talker: Engine) -> None:
    talker.reply(STORY, options=WORD)
    program = running(1024).pid
    with (  # noqa: PT012 -- the program dies in the middle of it
        pytest.raises(ConnectionFailedError) as caught,
        talker.stream(STORY, options=ModelOptions(max_tokens=900)) as stream,
    ):
        for event in stream:
            if isinstance(event, TextDelta):
                with suppress(ProcessLookupError):  # of the second word, which was on its way
                    os.kill(program, signal.SIGKILL)
    assert caught.value.partial is not None
    assert talker.reply(STORY, options=ModelOptions(max_tokens=2)).message.text


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Surroundings]:
    needed(SMALL)
    models = str(models_directory())
    home = tmp_path / "home"
    home.mkdir()
    surroundings = Surroundings(home, monkeypatch)
    surroundings.set(DRAGOMAN_MODEL_DIR=models)
    yield surroundings
    surroundings.apart("local", "stop")


def test_commands_share_it_until_it_is_stopped(around: Surroundings) -> None:
    ask = ("-m", f"local:{SMALL}", "-o", "max_tokens", "3", "Hi")
    assert "No model is loaded" in around.apart("local", "status").err
    assert around.apart(*ask).out
    (first,) = around.apart("local", "status", "--json").json
    assert SMALL in first["model"]
    assert "key" not in first
    assert around.apart(*ask).out
    assert around.apart("local", "status", "--json").json == [first]
    assert around.apart("local", "stop").out.startswith(f"local:{SMALL}")
    assert gone(first["pid"])
    assert around.apart("local", "status", "--json").json == []


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
        (model,) = around.apart("local", "status", "--json").json
        person.press("c")
        person.see("[stopped; /continue goes on]", ">")
        person.type("Go on.")
        person.see("waiting", ">")
        person.press("d")
        assert person.leave() == 0
    assert around.apart("local", "status", "--json").json == [model]
