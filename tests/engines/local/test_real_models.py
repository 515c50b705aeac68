"""Real models. Needs the extra `local` and the models' files: `dragoman local pull` fetches them.

The small one shows that everything works; what it says is not looked at. The default one also has to be of some use.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from msgspec import Raw

from dragoman.chat.client import ChatClient
from dragoman.conversation import Conversation, Message, OneTool, StopReason, TextDelta, ToolSpec
from dragoman.engines.engine import Engine
from dragoman.engines.factory import async_engine, engine
from dragoman.engines.local import shared, shelf
from dragoman.engines.local.bench import bench
from dragoman.engines.local.places import models_directory
from dragoman.engines.local.table import DEFAULT
from dragoman.errors import ConnectionFailedError, ContextTooLongError, LocalModelError
from dragoman.loop.run import Cancelled
from dragoman.providers.options import ModelOptions, ResponseFormat
from dragoman.stores.file import FileStore
from dragoman.transport.retry import RetryPolicy
from tests.engines.local.test_process import gone

pytestmark = [
    pytest.mark.local_model,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("xllamacpp") is None, reason="the extra `local` is not installed"),
]

SMALL = "smollm2-135m"
STORY = Conversation("You tell stories.").plus(Message.user("Tell me a long story about a dog."))


def needed(name: str) -> None:
    if not shelf.present(name):
        pytest.skip(f"{name} is not in {models_directory()}: dragoman local pull {name}")


@pytest.fixture(scope="module")
def small() -> Iterator[Engine]:
    needed(SMALL)
    with engine(f"local:{SMALL}") as talker:
        yield talker


@pytest.fixture(scope="module")
def default() -> Iterator[Engine]:
    needed(DEFAULT)
    with engine("local:") as talker:
        yield talker


def quality() -> Any:
    """The program that measures models, as a module."""
    path = Path(__file__).resolve().parents[3] / "bench" / "local_quality.py"
    spec = spec_from_file_location("local_quality", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- the small one: everything works ----------------------------------------------------------------------------------


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


def test_whole_and_streamed_are_the_same(small: Engine) -> None:
    options = ModelOptions(max_tokens=20, temperature=0)
    with small.stream(STORY, options=options) as stream:
        list(stream)
    assert small.reply(STORY, options=options).message.text == stream.message.text


def test_a_seed(small: Engine) -> None:
    def said(seed: int) -> str:
        options = ModelOptions(seed=seed, temperature=1.2, max_tokens=20)
        return small.reply(STORY, options=options).message.text

    assert said(1) == said(1)
    assert len({said(seed) for seed in range(4)}) > 1


def test_a_stop_sequence(small: Engine) -> None:
    whole = small.reply(STORY, options=ModelOptions(temperature=0, max_tokens=40)).message.text
    word = whole.split()[5]
    cut = small.reply(STORY, options=ModelOptions(temperature=0, max_tokens=40, stop=(word,))).message
    assert cut.text == whole.partition(word)[0]
    assert cut.stop_reason in (StopReason.END, StopReason.STOP_SEQUENCE)


def test_the_system_prompt_is_read(small: Engine) -> None:
    options = ModelOptions(max_tokens=1)
    short = small.reply(STORY, options=options).message.usage
    long = small.reply(STORY.with_system("You tell stories. " * 20), options=options).message.usage
    assert short is not None
    assert long is not None
    assert (long.input or 0) > (short.input or 0) + 50


def test_answers_are_valid_whatever_the_model_would_like(small: Engine) -> None:
    made = quality()
    count, valid = made.structured(small, 12, 3, pytest.fail)
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


def test_cancel_and_go_on(small: Engine) -> None:
    with small.stream(STORY, options=ModelOptions(max_tokens=4000)) as stream:
        for event in stream:
            if isinstance(event, TextDelta):
                break
    assert stream.message.interrupted
    assert small.reply(STORY, options=ModelOptions(max_tokens=3)).message.usage is not None


def test_too_long_and_full() -> None:
    needed(SMALL)
    with engine(f"local:{SMALL}", profile={"context_window": 512}) as talker:
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


def test_a_chat_with_a_store_and_a_cancel(small: Engine, tmp_path: Path) -> None:
    options = ModelOptions(max_tokens=8, temperature=0)
    store = FileStore(tmp_path)
    with ChatClient(f"local:{SMALL}", store=store, options=options) as client:
        client.chat("Hello, who are you?")
        result = client.stream_chat("And then?", lambda event: not isinstance(event, TextDelta))
        assert isinstance(result.ending, Cancelled)
        client.save()
        identity = client.id
    assert identity is not None
    with ChatClient(f"local:{SMALL}", store=store, options=options) as client:
        client.restore(identity)
        assert len(client.history) == 4
        assert client.chat("Go on.").text


def test_a_structured_answer(small: Engine) -> None:
    class Person(msgspec.Struct):
        name: str
        age: int

    with ChatClient(f"local:{SMALL}") as client:
        assert isinstance(client.ask("Anna is 31 years old.", Person), Person)


# --- the program that runs it ---


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
    (held,) = [held for key, held in shared._held.items() if key[1] == 1024]
    process = held.model._process
    assert process is not None
    return process.pid


def test_it_is_shared_and_ends_with_the_last(alone: Callable[[], Engine]) -> None:
    first, second = alone(), alone()
    first.reply(STORY, options=ModelOptions(max_tokens=1))
    program = own_pid()
    second.reply(STORY, options=ModelOptions(max_tokens=1))
    assert own_pid() == program
    first.close()
    os.kill(program, 0)
    second.close()
    assert gone(program)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_it_survives_the_death_of_its_program(alone: Callable[[], Engine]) -> None:
    talker = alone()
    talker.reply(STORY, options=ModelOptions(max_tokens=1))
    with (  # noqa: PT012 -- the program dies in the middle of it
        pytest.raises(ConnectionFailedError) as caught,
        talker.stream(STORY, options=ModelOptions(max_tokens=900)) as stream,
    ):
        for event in stream:
            if isinstance(event, TextDelta):
                os.kill(own_pid(), signal.SIGKILL)
    assert caught.value.partial is not None
    assert talker.reply(STORY, options=ModelOptions(max_tokens=2)).message.text


def test_a_damaged_file(tmp_path: Path) -> None:
    needed(SMALL)
    whole = (models_directory() / "smollm2-135m-instruct-q4_1.gguf").read_bytes()
    (tmp_path / "m.gguf").write_bytes(whole[:4_000_000])
    with engine(f"local:{tmp_path / 'm.gguf'}") as talker, pytest.raises(LocalModelError) as caught:
        talker.reply(STORY)
    assert caught.value.reason == "wrong_file"


def test_a_file_by_its_path() -> None:
    needed(SMALL)
    with engine(f"local:{models_directory() / 'smollm2-135m-instruct-q4_1.gguf'}") as talker:
        assert talker.reply(STORY, options=ModelOptions(max_tokens=3)).message.text


def test_bench() -> None:
    needed(SMALL)
    figures = bench(SMALL, tokens=8)
    assert figures.prompt_tokens > 100
    assert figures.read_per_second > 0
    assert figures.written_per_second > 0


# --- the default one: of some use -------------------------------------------------------------------------------------


def test_the_default_model_uses_a_tool(default: Engine) -> None:
    asked: list[str] = []

    def get_weather(city: str) -> str:
        """The weather in a city now."""
        asked.append(city)
        return "-4 degrees, snow"

    with ChatClient(default, [get_weather], options=ModelOptions(temperature=0, max_tokens=100)) as client:
        result = client.chat("What is the weather in Oslo?")
        assert asked == ["Oslo"]
        assert "4" in result.text or "snow" in result.text.lower()


def test_the_default_model_extracts(default: Engine) -> None:
    class Order(msgspec.Struct):
        product: str
        quantity: int

    with ChatClient(default, options=ModelOptions(temperature=0)) as client:
        order = client.ask("Please send me 12 red lamps.", Order)
        assert order.quantity == 12
        assert "lamp" in order.product.lower()


def test_the_default_model_chooses_tools(default: Engine, tmp_path: Path) -> None:
    """A part of what bench/local_quality.py measures, with room for one mistake."""
    made = quality()
    prompts = json.loads((made.HERE / "local_prompts" / "unseen.json").read_text(encoding="utf-8"))
    file = tmp_path / "some.json"
    file.write_text(json.dumps({**prompts, "cases": prompts["cases"][::3]}), encoding="utf-8")
    missed: list[str] = []
    count, chosen, _ = made.tools(default, file, (), missed.append)
    assert chosen >= count - 1, missed


def test_the_answer_format_is_told(default: Engine) -> None:
    schema = Raw(b'{"type":"object","properties":{"capital":{"type":"string"}},"required":["capital"]}')
    options = ModelOptions(response_format=ResponseFormat(schema=schema), temperature=0)
    asked = Conversation().plus(Message.user("What is the capital of France?"))
    assert json.loads(default.reply(asked, options=options).message.text) == {"capital": "Paris"}
