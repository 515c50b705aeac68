"""The official SDKs use the simulator's embeddings, batches and files."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import numpy as np
from google.genai import types

from dragoman.batches import AsyncBatches
from dragoman.engines import EngineOptions
from dragoman.simulator import Request, Simulator, Status
from dragoman.simulator.embeddings import vector_of
from tests.simulator.test_sdks import anthropic_of, gemini_of, openai_of

VECTORS = [vector_of("a", 4), vector_of("b", 4)]


def script(request: Request) -> str | Status:
    return Status(400, "not this one") if request.last_user_text == "bad" else f"You said: {request.last_user_text}"


def test_openai() -> None:
    with Simulator(script) as simulator, openai_of(simulator) as client:
        found = client.embeddings.create(input=["a", "b"], model="m", dimensions=4)
        assert np.array_equal(np.array([each.embedding for each in found.data], "f4"), VECTORS)
        lines = [
            {
                "custom_id": text,
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": {"model": "m", "messages": [{"role": "user", "content": text}]},
            }
            for text in ("good", "bad")
        ]
        data = "\n".join(map(json.dumps, lines)).encode()
        file = client.files.create(file=("b.jsonl", data), purpose="batch")
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
        while batch.status != "completed":
            batch = client.batches.retrieve(batch.id)
        assert (batch.request_counts.completed, batch.request_counts.failed) == (1, 1)  # pyright: ignore[reportOptionalMemberAccess]
        (good,) = map(json.loads, client.files.content(str(batch.output_file_id)).text.splitlines())
        (bad,) = map(json.loads, client.files.content(str(batch.error_file_id)).text.splitlines())
        assert good["response"]["body"]["choices"][0]["message"]["content"] == "You said: good"
        assert (bad["custom_id"], bad["response"]["status_code"]) == ("bad", 400)
        assert client.batches.cancel(batch.id).status == "completed"


def test_anthropic() -> None:
    with Simulator(script) as simulator, anthropic_of(simulator) as client:
        requests: Any = [
            {
                "custom_id": text,
                "params": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": text}]},
            }
            for text in ("good", "bad", "late", "later")
        ]
        batch = client.messages.batches.create(requests=requests)
        batch = client.messages.batches.retrieve(batch.id)
        assert batch.processing_status == "in_progress"
        batch = client.messages.batches.cancel(batch.id)
        assert (batch.processing_status, batch.request_counts.canceled) == ("ended", 2)
        assert batch.request_counts.expired == 0
        with client.messages.batches.with_streaming_response.retrieve(batch.id) as response:
            assert response.status_code == 200
        url = f"/v1/messages/batches/{batch.id}/results"
        text = client.get(url, cast_to=str).splitlines()
    found = {line["custom_id"]: line["result"] for line in map(json.loads, text)}
    assert found["good"]["message"]["content"][0]["text"] == "You said: good"
    assert found["bad"]["error"]["error"]["type"] == "invalid_request_error"
    assert {found["late"]["type"], found["later"]["type"]} == {"canceled"}


def test_gemini() -> None:
    with Simulator(script) as simulator, gemini_of(simulator) as client:
        wanted = types.EmbedContentConfig(output_dimensionality=4)
        found = client.models.embed_content(model="gemini-embedding-001", contents=["a", "b"], config=wanted)
        vectors = [each.values for each in found.embeddings or []]
        assert np.array_equal(np.array(vectors, "f4"), VECTORS)
        asked: Any = [{"contents": [{"parts": [{"text": text}], "role": "user"}]} for text in ("good", "bad")]
        batch = client.batches.create(model="gemini-2.5-flash", src=asked, config={"display_name": "a batch"})
        while not batch.done:
            batch = client.batches.get(name=str(batch.name))
        assert batch.dest is not None
        good, bad = batch.dest.inlined_responses or []
        assert good.response is not None
        assert good.response.text == "You said: good"
        assert bad.error is not None
        assert bad.error.message == "not this one"


def test_status_requests_at_once_and_a_cancel_answer_no_entry_twice() -> None:
    async def slow(request: Request) -> str:
        await asyncio.sleep(0.1)
        return "Yes."

    async def check(simulator: Simulator) -> None:
        options: EngineOptions = {"key": "any", "base_url": simulator.base_url("anthropic")}
        async with AsyncBatches("anthropic:claude-haiku-4-5", **options) as batches:
            batch = await batches.submit(["a", "b", "c"])
            found = await asyncio.gather(batches.status(batch), batches.status(batch))
            assert sorted([each.succeeded for each in found]) == [2, 3]
            assert len([each for each in simulator.requests if each.path == "/v1/messages"]) == 3

            batch = await batches.submit(["a", "b", "c"])
            asking = asyncio.create_task(batches.status(batch))
            assert await asyncio.to_thread(lambda: simulator.wait_for_requests(9))  # the first entry is asked for
            assert (await batches.cancel(batch)).state == "cancelled"
            assert (await asking).state == "cancelled"
            assert [each.error is None for each in await batches.results(batch)] == [False, False, False]

    with Simulator(slow) as simulator:
        asyncio.run(check(simulator))


def test_files() -> None:
    with Simulator(script) as simulator:
        with openai_of(simulator) as gpt:
            uploaded = gpt.files.create(file=("a.pdf", b"%PDF"), purpose="user_data")
            assert gpt.files.delete(uploaded.id).deleted
        with anthropic_of(simulator) as claude:
            kept = claude.beta.files.upload(file=("a.pdf", b"%PDF", "application/pdf"))
            assert kept.size_bytes == 4
            assert claude.beta.files.delete(kept.id).id == kept.id
        with gemini_of(simulator) as gemini:
            file = gemini.files.upload(file=io.BytesIO(b"<svg"), config={"mime_type": "image/svg+xml"})
            assert (file.mime_type, file.size_bytes) == ("image/svg+xml", 4)
            assert str(file.uri).endswith(str(file.name))
            gemini.files.delete(name=str(file.name))
