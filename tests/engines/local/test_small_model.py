"""The small model: everything works; what it says is not looked at. `dragoman local pull smollm2-135m` fetches it."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from msgspec import Raw

from dragoman._stop import Stop, stopping
from dragoman.conversation import (
    Conversation,
    Message,
    OneTool,
    StopReason,
    TextDelta,
    ToolSpec,
)
from dragoman.directories import cache_directory
from dragoman.engines import MODELS, Engine, engine
from dragoman.engines.local import server
from dragoman.engines.local.storage import models_directory
from dragoman.errors import ConnectionFailedError, ContextTooLongError, LocalModelError, StoppedError
from dragoman.providers import ModelOptions
from dragoman.transport import RetryPolicy
from tests.cli.person import Person
from tests.cli.running import Surroundings
from tests.engines.local.real import SMALL, STORY, at_work, needed, quality, real, running, with_models
from tests.engines.local.test_server import gone

pytestmark = real


LONG = ModelOptions(max_tokens=1500, extra_body={"ignore_eos": True})


@pytest.fixture(scope="module")
def small() -> Iterator[Engine]:
    needed(SMALL)
    with engine(f"local:{SMALL}") as talker:
        yield talker


def test_a_streamed_answer(small: Engine) -> None:
    with small.stream(STORY, options=ModelOptions(max_tokens=40, temperature=0)) as stream:
        deltas = [event for event in stream if isinstance(event, TextDelta)]
    message = stream.message
    assert len(deltas) > 10
    assert message.text == "".join(delta.text for delta in deltas)
    assert message.stop_reason is StopReason.MAX_TOKENS
    assert message.usage is not None
    assert message.usage.output == 40
    assert (message.usage.input or 0) > 10
    assert (message.provider, message.model) == ("local", SMALL)


def test_structured_answers_are_valid(small: Engine) -> None:
    count, valid = quality().structured(small, 3, 3, pytest.fail)
    assert valid == count


def test_tool_choice_is_respected(small: Engine) -> None:
    schemas = {name: {"type": "object", "properties": {name: {"enum": ["a", "b"]}, "n": {"type": "integer"}},
                      "required": [name, "n"]} for name in ("first", "second")}  # fmt: skip
    tools = [ToolSpec(name, "A tool.", Raw(json.dumps(schema).encode())) for name, schema in schemas.items()]
    for choice, names in (("required", {"first", "second"}), (OneTool("second"), {"second"})):
        options = ModelOptions(tool_choice=choice, temperature=1.0, seed=4, max_tokens=200)  # type: ignore[arg-type]
        message = small.reply(STORY, tools=tools, options=options).message
        (call,) = message.tool_calls
        assert call.name in names
        assert jsonschema_rs.is_valid(schemas[call.name], call.parsed)
        assert message.stop_reason is StopReason.TOOL_CALLS


def wait_until_idle(context: int) -> dict[str, Any]:
    """What the model has done when it has stopped."""
    deadline = time.monotonic() + 120  # a batch of a question may still be read
    while (slot := at_work(context))["is_processing"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return slot


def test_closing_a_stream_stops_the_model() -> None:
    needed(SMALL)
    with engine(f"local:{SMALL}", profile={"context_window": 4096}) as talker:
        with talker.stream(STORY, options=LONG) as stream:
            for _, event in zip(range(5), (e for e in stream if isinstance(e, TextDelta)), strict=False):
                assert event.text
            read = at_work(4096)["n_prompt_tokens_processed"]
        assert stream.message.interrupted
        # One token is being computed while the reader turns its back; on a busy machine some more are on their way.
        assert 5 <= wait_until_idle(4096)["n_prompt_tokens"] - read <= 200
        assert talker.reply(STORY, options=ModelOptions(max_tokens=3)).message.usage is not None


@pytest.mark.parametrize(
    "asked", [STORY, Conversation().plus(Message.user("Read this. " * 1200))], ids=["story", "long"]
)
def test_a_stop_from_another_thread_stops_the_model(asked: Conversation) -> None:
    needed(SMALL)
    with engine(f"local:{SMALL}", profile={"context_window": 4096}) as talker:
        talker.reply(STORY, options=ModelOptions(max_tokens=1))
        stop = Stop()

        def cancel() -> None:
            while not at_work(4096)["is_processing"]:
                time.sleep(0.01)
            stop.cancel()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        with stopping(stop), pytest.raises(StoppedError):
            talker.reply(asked, options=LONG)
        canceller.join()
        assert at_work(4096)["n_prompt_tokens_processed"] < 1500
        wait_until_idle(4096)
        assert talker.reply(STORY, options=ModelOptions(max_tokens=3)).message.text


def test_an_unread_stream_does_not_block_others(small: Engine) -> None:
    """Calls of many threads are answered one by one, in the order in which llama.cpp gets them."""
    said: list[str] = []

    def ask() -> None:
        said.append(small.reply(STORY, options=ModelOptions(max_tokens=3, temperature=0)).message.text)

    with small.stream(STORY, options=ModelOptions(max_tokens=60, temperature=0)) as stream:
        next(iter(stream))
        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert len(said) == 6
    assert len(set(said)) == 1


def test_a_full_context() -> None:
    needed(SMALL)
    with engine(f"local:{SMALL}", profile={"context_window": 256}) as talker:
        with pytest.raises(ContextTooLongError):
            talker.reply(Conversation().plus(Message.user("word " * 2000)))
        assert talker.reply(STORY, options=LONG).message.stop_reason is StopReason.CONTEXT_FULL


def test_a_damaged_file(tmp_path: Path) -> None:
    needed(SMALL)
    whole = models_directory() / MODELS[SMALL].file
    with whole.open("rb") as file:
        (tmp_path / "m.gguf").write_bytes(file.read(4_000_000))
    with engine(f"local:{tmp_path / 'm.gguf'}") as talker, pytest.raises(LocalModelError) as caught:
        talker.reply(STORY)
    assert caught.value.reason == "wrong_file"


# --- the program that runs it -----------------------------------------------------------------------------------------


def test_a_killed_server_is_restarted() -> None:
    needed(SMALL)
    talker = engine(f"local:{SMALL}", profile={"context_window": 1024}, retry=RetryPolicy(max_attempts=1))
    talker.reply(STORY, options=ModelOptions(max_tokens=1))
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
    talker.close()


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Surroundings]:
    """An empty home, and the models of this machine."""
    needed(SMALL)
    made = with_models(tmp_path, monkeypatch)
    monkeypatch.setattr(server, "_directory", lambda: cache_directory() / "servers")
    yield made
    server.stop_models()


def test_commands_share_a_server_until_it_is_stopped(around: Surroundings) -> None:
    ask = ("-m", f"local:{SMALL}", "-o", "max_tokens", "3", "Hi")
    assert "No model is loaded" in around.here("local", "status").err
    assert around.apart(*ask).out
    (first,) = around.here("local", "status", "--json").json
    assert SMALL in first["model"]
    assert "key" not in first
    assert around.apart(*ask).out
    assert around.here("local", "status", "--json").json == [first]
    assert around.here("local", "stop").out == f"Unloaded local:{SMALL}.\n"
    assert gone(first["pid"])
    assert around.here("local", "status", "--json").json == []


def test_ctrl_c_in_a_terminal_stops_the_answer_and_not_the_model(around: Surroundings, small: Engine) -> None:
    question = "Write a long story about a dog named Max."
    options = ModelOptions(max_tokens=6, temperature=0)
    beginning = small.reply(Conversation().plus(Message.user(question)), options=options).message.text
    (model,) = around.here("local", "status", "--json").json
    arguments = ("chat", "-m", f"local:{SMALL}", "-o", "max_tokens", "200", "-o", "temperature", "0")
    with Person(*arguments, env=around.env, cwd=around.work) as person:
        person.see("/help, Ctrl-D to leave", ">")
        person.type(question)
        person.see(" ".join(beginning.split()[:2]))
        person.press("c")
        person.see("[stopped; /continue resumes]", ">")
        person.type("Go on.")
        person.see("waiting", ">")
        person.press("d")
        assert person.leave() == 0
    assert around.here("local", "status", "--json").json == [model]


def test_the_local_commands(around: Surroundings) -> None:
    listed = around.here("local", "list", "--json").json
    assert [row["present"] for row in listed if row["name"] == SMALL] == [True]
    file = Path(next(row["path"] for row in listed if row["name"] == SMALL))
    assert f"Models are in {file.parent} " in around.here("local").err
    pulled = around.here("local", "pull", SMALL)
    assert (pulled.code, pulled.out, pulled.err) == (0, f"{file}\n", "")
