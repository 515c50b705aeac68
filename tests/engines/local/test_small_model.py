"""The small model: everything works; what it says is not looked at.

`dragoman local pull smollm2-135m` fetches it. All of this takes about a minute of one processor.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

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
from dragoman.engines import MODELS, Engine, async_engine, engine
from dragoman.engines.local.storage import models_directory
from dragoman.errors import ContextTooLongError, LocalModelError, StoppedError
from dragoman.providers import ModelOptions
from tests.chat.talking import WAYS
from tests.engines.local.real import SMALL, STORY, at_work, needed, quality, real

pytestmark = real


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


def test_answers_are_valid_whatever_the_model_would_like(small: Engine) -> None:
    made = quality()
    count, valid = made.structured(small, 3, 3, pytest.fail)
    assert valid == count


def test_a_call_that_must_be_is_one_of_the_tools(small: Engine) -> None:
    random = Random(5)
    made = quality()
    schemas = {name: made.members(random, 1) for name in ("first", "second")}
    tools = [ToolSpec(name, "A tool.", Raw(json.dumps(schema).encode())) for name, schema in schemas.items()]
    for choice, names in (("required", {"first", "second"}), (OneTool("second"), {"second"})):
        options = ModelOptions(tool_choice=choice, temperature=1.0, seed=4, max_tokens=600)  # type: ignore[arg-type]
        message = small.reply(STORY, tools=tools, options=options).message
        (call,) = message.tool_calls
        assert call.name in names
        assert jsonschema_rs.is_valid(schemas[call.name], call.parsed)
        assert message.stop_reason is StopReason.TOOL_CALLS


def stopped_after(deltas: int) -> int:
    """How many tokens were written in all when an answer is no longer wanted after so many."""
    written = 0
    with engine(f"local:{SMALL}", profile={"context_window": 2048}) as talker:
        options = ModelOptions(max_tokens=1500, extra_body={"ignore_eos": True})
        with talker.stream(STORY, options=options) as stream:
            for _, event in zip(range(deltas), (e for e in stream if isinstance(e, TextDelta)), strict=False):
                assert event.text
            read = at_work(2048)["n_prompt_tokens_processed"]
        assert stream.message.interrupted
        deadline = time.monotonic() + 60
        while (slot := at_work(2048))["is_processing"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        written = slot["n_prompt_tokens"] - read
        assert talker.reply(STORY, options=ModelOptions(max_tokens=3)).message.usage is not None
    return written


def test_an_answer_that_nobody_reads_any_more_is_not_written_on() -> None:
    needed(SMALL)
    # One token is being computed while the reader turns its back; on a busy machine some more are on their way to it.
    assert 5 <= stopped_after(5) <= 200


@pytest.mark.parametrize("asked", ["a long answer", "a long question"])
def test_a_stop_from_another_thread_stops_the_model(asked: str) -> None:
    needed(SMALL)
    long = {"a long answer": STORY, "a long question": Conversation().plus(Message.user("Read this. " * 1200))}[asked]
    with engine(f"local:{SMALL}", profile={"context_window": 4096}) as talker:
        talker.reply(STORY, options=ModelOptions(max_tokens=1))
        stop, stopped = Stop(), 0.0

        def cancel() -> None:
            nonlocal stopped
            while not at_work(4096)["is_processing"]:
                time.sleep(0.01)
            stopped = time.monotonic()
            stop.cancel()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        with stopping(stop), pytest.raises(StoppedError):
            talker.reply(long, options=ModelOptions(max_tokens=3000, extra_body={"ignore_eos": True}))
        assert time.monotonic() - stopped < 2  # nothing is waited for; the machine may be busy
        canceller.join()
        assert at_work(4096)["n_prompt_tokens_processed"] < 1500
        deadline = time.monotonic() + 120  # a batch of the question may still be read
        while at_work(4096)["is_processing"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert talker.reply(STORY, options=ModelOptions(max_tokens=3)).message.text


def test_a_stream_that_nobody_reads_on_holds_nobody_up(small: Engine) -> None:
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


def test_too_long_and_full() -> None:
    needed(SMALL)
    with engine(f"local:{SMALL}", profile={"context_window": 256}) as talker:
        with pytest.raises(ContextTooLongError):
            talker.reply(Conversation().plus(Message.user("word " * 2000)))
        options = ModelOptions(max_tokens=2000, extra_body={"ignore_eos": True})
        message = talker.reply(STORY, options=options).message
        assert message.stop_reason is StopReason.CONTEXT_FULL


def test_on_a_loop(small: Engine) -> None:
    async def main() -> None:
        async with async_engine(f"local:{SMALL}") as talker:
            options = ModelOptions(max_tokens=5, temperature=0)
            replies = await asyncio.gather(*[talker.reply(STORY, options=options) for _ in range(3)])
            assert len({reply.message.text for reply in replies}) == 1
            async with talker.stream(STORY, options=ModelOptions(max_tokens=4000)) as stream:
                async for event in stream:
                    if isinstance(event, TextDelta):
                        break
            assert stream.message.interrupted
            long = asyncio.create_task(talker.reply(STORY, options=ModelOptions(max_tokens=4000)))
            await asyncio.sleep(0.2)
            long.cancel()
            await asyncio.gather(long, return_exceptions=True)
            assert (await talker.reply(STORY, options=options)).message.text == replies[0].message.text

    asyncio.run(main())


@pytest.mark.parametrize("way", WAYS)
def test_a_call_its_result_and_an_answer(small: Engine, way: str) -> None:
    """The tool is forced: this model would not choose it."""
    kind, streamed = WAYS[way]
    asked: list[int] = []

    def add(a: int, b: int) -> int:
        """The sum of two numbers."""
        asked.append(a + b)
        return a + b

    options = ModelOptions(max_tokens=60, temperature=0, tool_choice=OneTool("add"))
    talk = kind(f"local:{SMALL}", [add], streamed=streamed, options=options)
    try:
        talk.chat("What is 1 + 2?")
        assert len(asked) >= 1
        messages = talk.client.history
        assert messages[1].tool_calls[0].name == "add"
        assert messages[2].tool_results[0].text == str(asked[0])
        assert messages[-1].role == "assistant"
    finally:
        talk.close()


# --- files ---


def test_a_damaged_file(tmp_path: Path) -> None:
    needed(SMALL)
    whole = models_directory() / MODELS[SMALL].file
    with whole.open("rb") as file:
        (tmp_path / "m.gguf").write_bytes(file.read(4_000_000))
    with engine(f"local:{tmp_path / 'm.gguf'}") as talker, pytest.raises(LocalModelError) as caught:
        talker.reply(STORY)
    assert caught.value.reason == "wrong_file"
