"""Batches against the simulator, in both colours and all dialects: submit, wait, results, cancel."""

from __future__ import annotations

import asyncio
import errno
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dragoman import Conversation, Media, Message, ModelOptions, ToolCall, ToolSpec
from dragoman._stop import Stop, stopping
from dragoman.batches import AsyncBatches, Batch, BatchDirectory, Batches, BatchStatus, batch_from_json, batch_to_json
from dragoman.batches.services import AnthropicBatches, OpenAIBatches
from dragoman.engines.call import ModelCall
from dragoman.errors import (
    AuthenticationError,
    BatchError,
    ConfigurationError,
    ConnectionFailedError,
    InvalidConversationError,
    InvalidRequestError,
    MalformedDataError,
    ProtocolError,
    ProviderError,
    StoppedError,
    UnsupportedVersionError,
)
from dragoman.providers import Prices, ResponseFormat, cost_of
from dragoman.simulator import NoResponse, Reply, Request, Simulator, Status
from dragoman.transport import RetryPolicy

MODELS = ["openai:gpt-5", "openai-responses:gpt-5", "anthropic:claude-haiku-4-5", "gemini:gemini-2.5-flash"]
every_dialect = pytest.mark.parametrize("model", MODELS)
WEATHER = ToolSpec(name="weather", description="How the weather is.")


class OnLoop:
    """AsyncBatches, called as Batches are."""

    def __init__(self, *given: Any, **options: Any) -> None:
        self._made = given, options

    def __enter__(self) -> OnLoop:
        self._loop = asyncio.new_event_loop()
        given, options = self._made
        self._batches = AsyncBatches(*given, **options)
        return self

    def __exit__(self, *_error: object) -> None:
        self._loop.run_until_complete(self._batches.aclose())
        self._loop.close()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._batches, name)
        return lambda *given, **options: self._loop.run_until_complete(method(*given, **options))


every_colour = pytest.mark.parametrize("kind", [Batches, OnLoop], ids=["plain", "async"])
Kind = Callable[..., Any]


def at(simulator: Simulator, model: str) -> dict[str, Any]:
    return {"key": "any", "base_url": simulator.base_url(model.partition(":")[0])}


def script(request: Request) -> str | Reply | Status:
    if "refused" in request.last_user_text:
        return Status(400, "This one is not for us.")
    if "weather" in request.last_user_text:
        return Reply(ToolCall("c1", "weather", "{}"))
    return f"You said: {request.last_user_text}"


@every_colour
@every_dialect
def test_results_are_in_the_order_of_the_conversations(kind: Kind, model: str) -> None:
    told: list[BatchStatus] = []
    asked: list[Conversation | str] = [
        "one",
        "this is refused",
        Conversation("Be brief.").plus(Message.user("the weather?")),
        Conversation().plus(Message.user("a")).plus(Message.assistant("b")).plus(Message.user("four")),
    ]
    with Simulator(script) as simulator, kind(model, **at(simulator, model)) as batches:
        batch = batches.submit(asked, tools=[WEATHER], options=ModelOptions(max_tokens=99))
        assert batches.wait(batch, progress=told.append, first_wait=0).state == "done"
        results = batches.results(batch)
    assert [result.position for result in results] == [0, 1, 2, 3]
    assert [result.text for result in results] == ["You said: one", "", "", "You said: four"]
    assert isinstance(results[1].error, InvalidRequestError)
    assert "This one is not for us" in str(results[1].error)
    assert results[1].conversation == batch.conversations[1]
    assert [call.name for call in results[2].conversation.pending_tool_calls] == ["weather"]
    assert results[3].conversation.messages[:3] == batch.conversations[3].messages
    assert results[0].conversation.messages[-1].usage is not None
    assert told[0].state == "running"
    assert (told[-1].succeeded, told[-1].failed, told[-1].total) == (3, 1, 4)
    # What was asked is what an ordinary call asks.
    lines = [request for request in simulator.requests if request.user_texts]
    assert {"99" in request.raw.decode() and request.tools == ("weather",) for request in lines} == {True}


@every_dialect
def test_results_may_be_larger_than_replies_and_cost_half(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelCall, "most_bytes", 2_000)
    costs = list[float]()
    with Simulator(lambda _request: "x" * 4_000) as simulator:
        for prices in (None, Prices(input=1_000_000, output=0)):
            with Batches(model, prices=prices, **at(simulator, model)) as batches:
                batch = batches.submit(["one"])
                batches.wait(batch, first_wait=0)
                (result,) = batches.results(batch)
            reply = result.conversation.messages[-1]
            assert len(result.text) == 4_000
            assert reply.usage is not None
            costs.append(cost_of(reply) or 0.0)
            ordinary = cost_of(replace(reply, usage=replace(reply.usage, charged=None)))
        assert ordinary
        assert costs == [pytest.approx(ordinary / 2), reply.usage.input]


@every_dialect
def test_another_process_fetches_the_results(model: str, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom dragoman.batches import Batches\nmodel, url, directory, id = sys.argv[1:]\n"
        "with Batches(model, key='any', base_url=url, directory=directory) as batches:\n"
        "    batch = batches.directory.load(id)\n    batches.wait(batch, first_wait=0)\n"
        "    print([(result.text, result.conversation.system) for result in batches.results(batch)])"
    )
    with Simulator(script) as simulator:
        with Batches(model, directory=tmp_path / "kept", **at(simulator, model)) as batches:
            batch = batches.submit([Conversation("Be brief.").plus(Message.user("x")), "y"])
        url = simulator.base_url(model.partition(":")[0])
        command = [sys.executable, "-c", code, model, url, str(tmp_path / "kept"), batch.id]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[('You said: x', 'Be brief.'), ('You said: y', None)]"


@every_colour
@every_dialect
def test_cancelled_batch_keeps_its_answers(kind: Kind, model: str) -> None:
    with Simulator(script) as simulator, kind(model, **at(simulator, model)) as batches:
        batch = batches.submit(["one", "two", "three"])
        with pytest.raises(BatchError, match="is not over") as caught:
            batches.results(batch)
        assert (caught.value.batch, caught.value.state) == (batch.id, "running")
        assert batches.cancel(batch).state == "cancelled"
        results = batches.results(batch)
    answered = [result.text for result in results if result.ok]
    assert answered == ([] if "gemini" in model else ["You said: one", "You said: two"])
    assert {result.error.code for result in results if result.error} == {"batch_cancelled"}


def test_refused_batch_says_why_and_foreign_batch_is_refused() -> None:
    refused = {"id": "b", "status": "failed", "errors": {"data": [{"code": "x", "message": "Line 3 is no JSON"}]}}
    with Simulator(script, faults=[Status(200, body=json.dumps(refused))]) as simulator:
        here = at(simulator, "openai:")
        batch = Batch(id="b", model="openai:gpt-5", base_url=here["base_url"], conversations=(Conversation(),))
        with Batches("openai:gpt-5", **here) as batches:
            with pytest.raises(BatchError, match="refused as a whole: Line 3 is no JSON") as caught:
                batches.results(batch)
            assert caught.value.state == "failed"
            with pytest.raises(ConfigurationError, match="was submitted to openai:gpt-5 at"):
                batches.status(msgspec.structs.replace(batch, base_url="https://elsewhere.example/v1"))


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ({"metadata": {"state": "BATCH_STATE_PARTIALLY_SUCCEEDED"}}, "running"),
        ({"metadata": {"state": "BATCH_STATE_PARTIALLY_SUCCEEDED"}, "done": True}, "done"),
        ({"metadata": {"state": "BATCH_STATE_NEW"}, "done": True, "error": {"message": "No."}}, "failed"),
        ({"metadata": {"state": "BATCH_STATE_CANCELLED"}, "done": True, "error": {"message": "No."}}, "cancelled"),
    ],
)
def test_unknown_gemini_state_is_over_when_done(said: dict[str, Any], state: str) -> None:
    model = "gemini:gemini-2.5-flash"
    with Simulator(script, faults=[Status(200, body=json.dumps({"name": "batches/b", **said}))]) as simulator:
        here = at(simulator, model)
        batch = Batch(id="b", model=model, base_url=here["base_url"], conversations=(Conversation(),))
        with Batches(model, **here) as batches:
            assert batches.status(batch).state == state


@every_colour
@every_dialect
def test_typed_answers_are_read_as_in_a_call(kind: Kind, model: str) -> None:
    schema: Any = b'{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'
    wanted = ModelOptions(response_format=ResponseFormat(schema=msgspec.Raw(schema)))

    def answer(request: Request) -> str | Reply:
        if request.tools:
            return Reply(ToolCall("c1", request.tools[0], '{"n": 7}'))
        return '{"n": 7}'

    with Simulator(answer) as simulator, kind(model, **at(simulator, model)) as batches:
        batch = batches.submit(["a number"], options=wanted)
        assert batch_from_json(batch_to_json(batch)) == batch
        batches.wait(batch, first_wait=0)
        (result,) = batches.results(batch)
    assert json.loads(result.text) == {"n": 7}


@every_colour
@every_dialect
def test_submit_is_not_retried_if_it_may_have_arrived(kind: Kind, model: str) -> None:
    """A file may be uploaded again; a batch costs money."""
    with Simulator(script, faults=[NoResponse()]) as simulator:
        quick = RetryPolicy(first_wait=0)
        with kind(model, retry=quick, **at(simulator, model)) as batches, pytest.raises(ConnectionFailedError):
            batches.submit(["one"])
        paths = [request.path.rpartition("/")[2] for request in simulator.requests]
    assert paths == (["files"] * 3 if model.startswith("openai") else paths[:1])


@every_colour
@pytest.mark.parametrize(("status", "tries"), [(504, 1), (500, 1), (502, 1), (408, 1), (503, 2), (429, 2)])
def test_submit_is_retried_only_after_a_refusal(kind: Kind, status: int, tries: int) -> None:
    model = "anthropic:claude-haiku-4-5"
    with (
        Simulator(script, faults=[Status(status)] * 2) as simulator,
        kind(model, retry=RetryPolicy(first_wait=0, max_attempts=2), **at(simulator, model)) as batches,
        pytest.raises(ProviderError),
    ):
        batches.submit(["one"])
    assert len(simulator.requests) == tries


@every_colour
def test_bad_directory_is_refused_and_a_full_one_keeps_the_id(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    model = "anthropic:claude-haiku-4-5"
    with Simulator(script) as simulator:
        with (
            kind(model, directory=tmp_path / "file", **at(simulator, model)) as batches,
            pytest.raises(ConfigurationError, match="cannot be saved in"),
        ):
            batches.submit(["one"])
        assert simulator.requests == ()

        def fill_up(*_given: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with kind(model, directory=tmp_path / "kept", **at(simulator, model)) as batches:
            monkeypatch.setattr(BatchDirectory, "save", fill_up)
            with pytest.raises(BatchError, match="No space left") as caught:
                batches.submit(["one"])
            id = caught.value.batch
            found = Batch(
                id=id, model=model, base_url=at(simulator, model)["base_url"], conversations=(Conversation(),)
            )
            assert id in caught.value.message
            assert batches.status(found).total == 1


@every_colour
@every_dialect
def test_wrong_key_is_an_authentication_error(kind: Kind, model: str) -> None:
    with (
        Simulator(api_key="right") as simulator,
        kind(model, **at(simulator, model)) as batches,
        pytest.raises(AuthenticationError),
    ):
        batches.submit(["one"])
    assert len(simulator.requests) == 1


def test_invalid_batch_is_refused_before_sending() -> None:
    with Simulator() as simulator, Batches("gemini:gemini-2.5-flash", **at(simulator, "gemini:")) as batches:
        with pytest.raises(ConfigurationError, match="from 1 to 50,000"):
            batches.submit([])
        with pytest.raises(ConfigurationError, match="made of conversations"):
            batches.submit([3])  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidConversationError):
            batches.submit(["good", Conversation().plus(Message.assistant(ToolCall("c", "t", "{}")))])
        large = Media.from_bytes(bytes(16 << 20), "image/png")
        with pytest.raises(ConfigurationError, match="20 MiB; these are 1, 21 MiB"):
            batches.submit([Conversation().plus(Message.user("?", large))])
        assert simulator.requests == ()
    for model in ("openrouter-responses:x", "local:", "claude-local:"):
        with pytest.raises(ConfigurationError, match="no batches"):
            Batches(model, key="k")


def test_wait_ends_at_its_timeout_and_when_stopped() -> None:
    with (
        Simulator(script) as simulator,
        Batches("anthropic:claude-haiku-4-5", **at(simulator, "anthropic:")) as batches,
    ):
        batch = batches.submit(["one", "two"])
        assert batches.wait(batch, timeout=0).state == "running"
        batch = batches.submit(["one", "two"])
        stop = Stop()
        with stopping(stop), pytest.raises(StoppedError):
            batches.wait(batch, progress=lambda _status: stop.cancel(), first_wait=60)


def test_saved_batches_are_private_files(tmp_path: Path) -> None:
    directory = BatchDirectory(tmp_path / "kept")
    assert directory.list() == []
    batch = Batch(
        id="a/../b:c",
        model="openai:m",
        base_url="https://api.openai.com/v1",
        conversations=(Conversation().plus(Message.user("hi")),),
        options=ModelOptions(extra_headers={"x-key": "secret"}, extra_body={"a": 1}),
    )
    file = directory.save(batch)
    assert file.parent == tmp_path / "kept"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "secret" not in file.read_text()
    assert [each.id for each in directory.list()] == ["a/../b:c"]
    assert directory.load("a/../b:c").options.extra_body == {"a": 1}
    with pytest.raises(ConfigurationError, match=r"There are: a/\.\./b:c"):
        directory.load("other")
    assert directory.delete("a/../b:c")
    assert not directory.delete("a/../b:c")


def test_json_that_is_not_a_batch_of_this_version_is_refused() -> None:
    for data in (b"no", b"{}", b"[]"):
        with pytest.raises(MalformedDataError):
            batch_from_json(data)
    batch = Batch(id="b", model="m:m", base_url="u", conversations=())
    with pytest.raises(UnsupportedVersionError):
        batch_from_json(batch_to_json(batch).replace(b'"dragoman_batch":1', b'"dragoman_batch":2'))


def test_malformed_status_is_an_error() -> None:
    with Simulator(script) as simulator, Batches("openai:gpt-5", **at(simulator, "openai:")) as batches:
        batch = batches.submit(["one"])
    with Simulator(script, faults=[Status(200, body="no JSON")]) as broken:
        moved = msgspec.structs.replace(batch, base_url=broken.base_url("openai"))
        with (
            Batches("openai:gpt-5", **at(broken, "openai:")) as batches,
            pytest.raises(ProtocolError, match="cannot be"),
        ):
            batches.status(moved)


def test_odd_lines_of_results() -> None:
    line = OpenAIBatches._line(b'{"custom_id":"a","response":{"status_code":200,"body":{"odd":1e999}}}')
    assert (line.key, line.body) == ("a", b'{"odd":1e999}')
    assert AnthropicBatches._line(b'{"custom_id":"b","result":{"type":"succeeded"}}').body == b""
    with pytest.raises(msgspec.ValidationError):
        OpenAIBatches._line(b'{"custom_id":"a","response":{"status_code":null}}')
