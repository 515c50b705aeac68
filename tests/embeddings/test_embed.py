"""Embeddings against the simulator, in both colours: splitting, order, failures, resuming, stopping."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

from dragoman import ChatClient
from dragoman._stop import Stop, stopping
from dragoman.conversation import Usage
from dragoman.embeddings import Embeddings, aembed, embed
from dragoman.embeddings.codecs import CODECS, Answered
from dragoman.embeddings.profiles import fold
from dragoman.embeddings.run import _divide
from dragoman.embeddings.vectors import Sheet
from dragoman.engines import AwsKeys, RateLimiter, async_engine, engine
from dragoman.errors import (
    AuthenticationError,
    ConfigurationError,
    InvalidRequestError,
    MissingKeyError,
    ProtocolError,
    ProviderError,
    RateLimitError,
    StoppedError,
)
from dragoman.providers import Prices, prices_of
from dragoman.simulator import Cut, Request, Simulator, Stall, Status
from dragoman.simulator.embeddings import vector_of
from dragoman.transport import RetryPolicy

Embed = Callable[..., Embeddings]
TEXTS = [f"Text {number}, schön" for number in range(250)]
QUICK = RetryPolicy(first_wait=0, max_attempts=2)
MODELS = {
    "openai:text-embedding-3-small": 2048,
    "ollama:nomic-embed-text": 2048,
    "voyage:voyage-3.5": 1000,
    "gemini:gemini-embedding-001": 100,
    "cohere:embed-v4.0": 96,
    "bedrock:us.cohere.embed-v4:0": 96,
    "bedrock:amazon.titan-embed-text-v2:0": 1,
    "bedrock:amazon.nova-2-multimodal-embeddings-v1:0": 1,
    "vertex:text-embedding-005": 250,
    "vertex:gemini-embedding-001": 1,
    "vertex:gemini-embedding-2": 1,
}


def embed_on_loop(*given: Any, **options: Any) -> Embeddings:
    return asyncio.run(aembed(*given, **options))


every_colour = pytest.mark.parametrize("embed_in", [embed, embed_on_loop], ids=["plain", "async"])


def at(simulator: Simulator, model: str = "openai:text-embedding-3-small") -> dict[str, Any]:
    return {"model": model, "key": "any", "base_url": simulator.base_url(model.partition(":")[0]), "retry": QUICK}


def texts_in(request: Request) -> int:
    body: Any = request.body
    texts = next((body[name] for name in ("input", "texts", "requests", "instances") if name in body), None)
    return 1 if texts is None else len(texts)


@every_colour
@pytest.mark.parametrize("model", MODELS)
def test_texts_are_split_and_vectors_are_in_order(embed_in: Embed, model: str) -> None:
    told: list[tuple[int, int]] = []
    with Simulator() as simulator:
        found = embed_in(
            TEXTS, dimensions=8, batch_size=100, progress=lambda *now: told.append(now), **at(simulator, model)
        )
    expected = np.array([vector_of(text, 8) for text in TEXTS], dtype="f4")
    assert np.array_equal(np.asarray(found), expected)
    sizes = [texts_in(request) for request in simulator.requests]
    assert max(sizes) == min(100, MODELS[model])
    assert sum(sizes) == len(TEXTS)
    assert found.usage.input == sum(len(text) // 4 + 1 for text in TEXTS)
    assert told[-1] == (250, 250)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert (found.model, found.missing) == (model, ())


def test_numpy_uses_the_buffer_without_a_copy() -> None:
    with Simulator() as simulator:
        found = embed(["a", "b", "c"], dimensions=4, **at(simulator))
    array = np.asarray(found)
    assert (array.shape, array.dtype) == ((3, 4), np.float32)
    assert array.ctypes.data == np.asarray(found.data).ctypes.data  # no copy
    assert [row.tolist() for row in found.vectors] == array.tolist()
    assert found[-1].tolist() == array[2].tolist()
    with pytest.raises(IndexError):
        found[3]


@every_colour
def test_only_the_failed_part_is_retried(embed_in: Embed) -> None:
    faults: dict[str, Status | Cut] = {"Text 60,": Status(429, headers={"retry-after": "0"}), "Text 120,": Cut()}

    def script(request: Request) -> str | Status | Cut:
        """Two parts fail, each the first time."""
        hit = next((text for text in faults if text in request.raw.decode()), "")
        return faults.pop(hit, "")

    with Simulator(script) as simulator:
        found = embed_in(TEXTS, dimensions=8, batch_size=50, **at(simulator))
    assert np.array_equal(np.asarray(found), np.array([vector_of(text, 8) for text in TEXTS], dtype="f4"))
    assert len(simulator.requests) == 5 + 2


@every_colour
def test_failed_call_can_be_resumed(embed_in: Embed) -> None:
    def script(request: Request) -> str | Status:
        return Status(429, headers={"retry-after": "0"}) if request.number >= 3 else ""

    with Simulator(script) as simulator:
        with pytest.raises(RateLimitError) as caught:
            embed_in(TEXTS, dimensions=8, batch_size=50, concurrency=1, **at(simulator))
        begun = caught.value.embeddings
        assert begun is not None
        assert begun.missing == tuple(range(150, 250))
        assert caught.value.attempts
        simulator.play(None)
        before = len(simulator.requests)
        found = embed_in(TEXTS, dimensions=8, batch_size=50, resume=begun, **at(simulator))
    assert sum(map(texts_in, simulator.requests[before:])) == 100
    assert np.array_equal(np.asarray(found), np.array([vector_of(text, 8) for text in TEXTS], dtype="f4"))
    assert (found.missing, begun.missing[:1]) == ((), (150,))
    assert found.usage.input == sum(len(text) // 4 + 1 for text in TEXTS)


@every_colour
def test_large_part_is_halved_and_refused_text_is_named(embed_in: Embed) -> None:
    def script(request: Request) -> str | Status:
        return Status(400, "too many tokens in this batch") if texts_in(request) > 10 else ""

    with Simulator(script) as simulator:
        found = embed_in(TEXTS[:64], dimensions=8, **at(simulator))
        assert np.array_equal(np.asarray(found), np.array([vector_of(text, 8) for text in TEXTS[:64]], dtype="f4"))

        def refuse_one(request: Request) -> str | Status:
            return Status(400, "this text is too long") if "Text 21" in request.raw.decode() else ""

        simulator.play(refuse_one)
        with pytest.raises(ProviderError, match="It refused text 21, which begins 'Text 21,") as caught:
            embed_in(TEXTS[:64], dimensions=8, **at(simulator))
    assert caught.value.embeddings is not None
    assert set(range(21)) & set(caught.value.embeddings.missing) == set()


@every_colour
@pytest.mark.parametrize(
    "body",
    [
        "no JSON",
        '{"data": []}',
        '{"data": [{"embedding": [1, 2]}, {"embedding": [1]}]}',
        '{"data": [{"embedding": "AAAA"}, {"embedding": "AAAA"}]}',
        '{"data": [{"embedding": []}, {"embedding": []}]}',
        '{"data": [{"embedding": "%%%"}, {"embedding": [1]}]}',
        '{"error": {"message": "with a good status"}}',
    ],
)
def test_malformed_reply_is_an_error(embed_in: Embed, body: str) -> None:
    with Simulator(lambda _request: Status(200, body=body)) as simulator, pytest.raises(ProtocolError):
        embed_in(["a", "b"], **at(simulator))


@pytest.mark.parametrize("model", list(MODELS)[3:])
def test_reply_of_another_form_is_an_error(model: str) -> None:
    values = ("5", "null", '["a"]', '[["a"]]', '[{"values": "x", "embedding": "x"}]', '{"float": [{}], "values": [{}]}')
    named = [f'{{"{name}": {value}}}' for name in ("embeddings", "embedding", "predictions") for value in values]
    with Simulator() as simulator:
        for body in ("[]", "5", "{}", *named):
            simulator.play([Status(200, body=body)])
            with pytest.raises(ProtocolError, match="cannot be understood"):
                embed("a", **at(simulator, model))


@every_colour
def test_options_of_an_engine_are_accepted(embed_in: Embed) -> None:
    with Simulator(api_key="made") as simulator:
        said = {
            **at(simulator),
            "key": lambda: "made",
            "limiter": RateLimiter(concurrency=1),
            "prices": Prices(input=1.0, output=0),
        }
        found = embed_in(["a", "b"], **said)
        assert found.usage.charged == pytest.approx((found.usage.input or 0) / 1e6)
        azure = {**said, "model": "azure:embed-it", "base_url": simulator.base_url("openai")}
        assert np.array_equal(np.asarray(embed_in(["a", "b"], **azure)), np.asarray(found))


@every_colour
def test_clouds_sign_requests_and_report_costs(embed_in: Embed) -> None:
    titan = "bedrock:amazon.titan-embed-text-v2:0"
    with Simulator() as simulator:
        signed = {**at(simulator, titan), "key": lambda: AwsKeys("AKID", "secret"), "region": "eu-west-1"}
        found = embed_in(["a", "b"], **signed)
        vertex = embed_in("a", task="query", truncate=True, **at(simulator, "vertex:text-embedding-005"))
        nova = embed_in("a", task="code_retrieval", **at(simulator, "bedrock:amazon.nova-2-multimodal-embeddings-v1:0"))
    first, _, predicted, last = simulator.requests
    assert "Credential=AKID/" in first.headers["authorization"]
    assert "/eu-west-1/bedrock/" in first.headers["authorization"]
    assert first.path.startswith("/model/amazon.titan-embed-text-v2")
    prices = prices_of("bedrock", "amazon.titan-embed-text-v2:0")
    assert prices is not None
    assert found.cost == prices.cost(found.usage) > 0
    assert predicted.path.endswith("/publishers/google/models/text-embedding-005:predict")
    assert predicted.body == {
        "instances": [{"content": "a", "task_type": "RETRIEVAL_QUERY"}],
        "parameters": {"autoTruncate": True},
    }
    assert vertex.adaptations == ()
    assert [each.what for each in nova.adaptations] == ["task='code_retrieval'"]
    assert '"embeddingPurpose":"GENERIC_INDEX"' in last.raw.decode()
    unknown = msgspec.structs.replace(found, model="openai:of-tomorrow")
    assert unknown.cost is None
    assert msgspec.structs.replace(unknown, usage=Usage(charged=2.0)).cost == 2.0


def test_vectors_are_sorted_by_index() -> None:
    body = '{"data": [{"embedding": [2], "index": 1}, {"embedding": [1], "index": 0}]}'
    with Simulator(lambda _request: Status(200, body=body)) as simulator:
        found = embed(["a", "b"], **at(simulator))
    assert [list(row) for row in found] == [[1.0], [2.0]]
    assert found.usage.partial


@every_colour
def test_wrong_key_ends_the_call(embed_in: Embed) -> None:
    with Simulator(api_key="right") as simulator, pytest.raises(AuthenticationError):
        embed_in(TEXTS, batch_size=1, concurrency=2, **at(simulator))
    assert len(simulator.requests) == 2


def test_one_text_no_text_and_a_shared_engine() -> None:
    with Simulator() as simulator:
        assert len(embed("one", **at(simulator))) == 1
        assert np.asarray(embed([], **at(simulator))).shape == (0, 0)
        assert len(simulator.requests) == 1
        where: Any = {"key": "any", "base_url": simulator.base_url("openai")}
        with engine("openai:m", **where) as plain:
            assert embed("a", model=plain)[0].tolist() == embed("a", model=plain)[0].tolist()
            with pytest.raises(ConfigurationError, match="is sync"):
                embed_on_loop("a", model=plain)

        async def on_loop() -> None:
            async with async_engine("openai:m", **where) as made:
                await asyncio.gather(*[aembed(TEXTS, model=made, batch_size=10) for _ in range(2)])

        asyncio.run(on_loop())
        assert simulator.wait_until_idle()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"texts": ["a", ""]}, "Text 1 is empty"),
        ({"texts": ["a", b"b"]}, "Text 1 is not a text but bytes"),
        ({"texts": ["a\ud800"]}, "Text 0 has half a character"),
        ({"task": "documents"}, "Did you mean document"),
        ({"dimensions": 0}, "dimensions must be at least 1"),
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"api_key": "k"}, "Say key="),
        ({"model": "anthropic:claude-sonnet-4-5"}, "voyage:voyage-3.5"),
        ({"model": "vertex:claude-sonnet-4-5", "project": "p"}, "vertex-claude has no models that embed"),
        ({"model": "bedrock-mantle:openai.gpt-oss-20b", "region": "us-east-1"}, "has no models that embed"),
        (
            {"model": "bedrock:meta.llama3-8b-instruct-v1:0", "region": "us-east-1"},
            "is not known here.*titan-embed-text",
        ),
        ({"model": "vertex:../evil", "base_url": "https://h.test"}, "cannot be the name of a model"),
        ({"model": "local:smollm2-135m"}, "smollm2-135m makes no vectors.*local: \\(no key\\)"),
        ({"model": "local:", "dimensions": 100}, "have one length"),
        ({"model": "claude-local:"}, "has no embeddings"),
        ({"resume": Embeddings(model="m", data=memoryview(b"").cast("f"), count=3, dimensions=0)}, "3 texts"),
        ({"resume": Embeddings(model="openai:n", data=memoryview(b"").cast("f"), count=1, dimensions=0)}, "openai:n"),
    ],
)
@every_colour
def test_invalid_input_is_refused_before_sending(embed_in: Embed, wrong: dict[str, Any], says: str) -> None:
    said = {"texts": ["a"], "model": "openai:m", "key": "k", **wrong}
    with pytest.raises(ConfigurationError, match=says):
        embed_in(said.pop("texts"), **said)


def test_missing_key_and_chat_with_an_embedding_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VOYAGE_API_KEY", raising=False)
    with pytest.raises(MissingKeyError, match="VOYAGE_API_KEY"):
        embed("a", model="voyage:voyage-3.5")
    with ChatClient("voyage:voyage-3.5", key="k") as client, pytest.raises(ConfigurationError, match="only embeddings"):
        client.chat("Hello")


def test_unsupported_options_are_reported() -> None:
    with Simulator() as simulator:
        openai = embed("a", task="query", truncate=True, **at(simulator))
        voyage = embed("a", task="similarity", truncate=True, **at(simulator, "voyage:voyage-3.5"))
        gemini = embed("a", task="query", **at(simulator, "gemini:gemini-embedding-2"))
    assert [str(each) for each in openai.adaptations] == [
        "task='query': left out: openai embeds all texts alike",
        "truncate=True: left out: openai decides itself about a text that is too long",
    ]
    assert [each.what for each in voyage.adaptations] == ["task='similarity'"]
    assert gemini.adaptations == ()
    assert "task: search result | query: a" in simulator.requests[-1].raw.decode()


@pytest.mark.parametrize("how", ["cancelled", "deadline", "task", "ctrl-c"])
def test_it_stops_at_once(how: str) -> None:
    stop = Stop()
    with Simulator(lambda request: Stall(where="head") if request.number else "") as simulator:
        if how == "task":

            async def run() -> None:
                task = asyncio.create_task(aembed(TEXTS, batch_size=10, **at(simulator)))
                assert await asyncio.to_thread(simulator.wait_for_requests, 5)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

            asyncio.run(run())
        else:
            main = threading.get_ident()
            ends: dict[str, Callable[[], object]] = {
                "cancelled": stop.cancel,
                "ctrl-c": lambda: signal.pthread_kill(main, signal.SIGINT),
                "deadline": str,
            }
            stop.deadline = time.monotonic() + 0.3 if how == "deadline" else None
            # With four requests at once, the fifth starts when the first is done.
            watch = threading.Thread(target=lambda: simulator.wait_for_requests(5) and ends[how]())
            watch.start()
            with stopping(stop), pytest.raises(KeyboardInterrupt if how == "ctrl-c" else StoppedError) as caught:
                embed(TEXTS, batch_size=10, **at(simulator))
            watch.join()
            if how == "cancelled":
                begun = cast("StoppedError", caught.value).embeddings
                assert begun is not None
                assert len(begun.missing) == len(TEXTS) - 10
        assert simulator.wait_until_idle()
        assert len(simulator.requests) <= 6


@given(st.text())
def test_fold_is_idempotent(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert fold("Älter, ÉCOLE, " + "x" * 101) == "Alter, ECOLE, [UNK]"
    assert fold("x" * 100) == "x" * 100


@given(
    st.lists(st.text(min_size=1), max_size=60),
    st.integers(min_value=1, max_value=9),
    st.integers(min_value=1, max_value=50),
)
def test_parts_contain_every_text_once_within_the_limits(texts: list[str], most: int, tokens: int) -> None:
    parts = list(_divide(texts, range(len(texts)), most, tokens))
    assert [position for part in parts for position in part] == list(range(len(texts)))
    for part in parts:
        assert 1 <= len(part) <= most
        assert len(part) == 1 or sum(len(texts[position]) // 3 + 1 for position in part) <= tokens


def test_provider_refuses_wrong_dimensions() -> None:
    with Simulator() as simulator, pytest.raises(InvalidRequestError, match="The dimensions must be"):
        embed(["a"], dimensions=10_000, **at(simulator))


def test_vectors_of_the_wrong_length_are_refused() -> None:
    for dimensions, row in ((3, [1.0, 2.0]), (None, [0.0] * 100_000), (None, [])):
        sheet = Sheet(10, dimensions=dimensions)
        with pytest.raises(ValueError, match="numbers are wanted"):
            sheet.fill([0], Answered([row], 1))
        assert sheet.finish("m", ()).dimensions == 0


@pytest.mark.parametrize(("counts", "tokens"), [((5, 3), 8), ((5, None), None), ((None, None), None)])
def test_token_count_is_unknown_if_it_is_incomplete(counts: tuple[int | None, ...], tokens: int | None) -> None:
    rows = [
        {"embeddings": {"values": [0.1], "statistics": {} if count is None else {"token_count": count}}}
        for count in counts
    ]
    assert CODECS["vertex"].decode(json.dumps({"predictions": rows}).encode()).tokens == tokens
