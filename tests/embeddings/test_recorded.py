"""Recorded exchanges with the real services: what we ask and read is what their official clients asked and read."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any, get_args

import pytest
from google.genai import types
from openai.types import CreateEmbeddingResponse

from dragoman.embeddings import Task
from dragoman.embeddings.codecs import CODECS, Asked, profile_for
from dragoman.embeddings.vectors import Sheet
from dragoman.providers import PROVIDERS
from tests.providers.recorded import Exchange, parametrized

HOSTS = {
    "api.openai.com": "openai",
    "api.voyageai.com": "voyage",
    "api.cohere.com": "cohere",
    "generativelanguage.googleapis.com": "gemini",
}


def _texts(request: Any) -> list[str]:
    if "requests" in request:
        return [each["content"]["parts"][0]["text"] for each in request["requests"]]
    return request.get("input") or request["texts"]


def _asked(exchange: Exchange, provider: str) -> Asked:
    """What one would have said to `embed` to send this request."""
    request = exchange.request
    first = request["requests"][0] if "requests" in request else request
    model = exchange.url.rpartition("/")[2].partition(":")[0] if provider == "gemini" else request["model"]
    profile = profile_for(PROVIDERS[provider], model)
    word = first.get("taskType") or first.get("input_type")
    tasks = [name for name in get_args(Task) if word and profile.tasks.get(name) == word]
    return Asked(
        model=model,
        profile=profile,
        task=tasks[0] if tasks else None,
        dimensions=first.get("dimensions") or first.get("output_dimension") or first.get("outputDimensionality"),
        truncate=request.get("truncation") is True or request.get("truncate") == "END",
    )


def _read_by_sdk(provider: str, body: str) -> tuple[list[list[float]], int | None]:
    """The vectors as the provider's client, or the standard library in its way, reads them; and the tokens."""
    said = json.loads(body)
    if provider == "gemini":
        read = types.EmbedContentResponse.model_validate({"embeddings": said["embeddings"]})
        return [each.values or [] for each in read.embeddings or []], said.get("usageMetadata", {}).get(
            "promptTokenCount"
        )
    if provider == "cohere":
        return said["embeddings"]["float"], said["meta"]["billed_units"]["input_tokens"]
    read_openai = CreateEmbeddingResponse.construct(**said)
    rows = [base64.b64decode(str(each.embedding)) for each in read_openai.data]
    usage = said["usage"]
    tokens = usage.get("prompt_tokens", usage["total_tokens"])
    return [list(struct.unpack(f"<{len(row) // 4}f", row)) for row in rows], tokens


@parametrized("embeddings")
def test_requests_and_replies_are_those_of_the_official_clients(exchange: Exchange) -> None:
    provider = HOSTS.get(exchange.url.split("/")[2])
    if provider is None or ":countTokens" in exchange.url:
        pytest.skip("a cloud's API, or no vectors")
    asked = _asked(exchange, provider)
    codec = CODECS[asked.profile.codec]
    texts = _texts(exchange.request)
    wire = codec.encode(asked, texts)
    assert exchange.url.endswith(wire.path)
    wanted = {name: value for name, value in exchange.request.items() if value is not None}
    assert json.loads(wire.body) == wanted
    if exchange.status != 200:
        return
    answered = codec.decode(exchange.body.encode())
    vectors, tokens = _read_by_sdk(provider, exchange.body)
    sheet = Sheet(len(texts))
    sheet.fill(range(len(texts)), answered)
    found = sheet.finish("m", ())
    assert answered.tokens == tokens
    assert len(found) == len(vectors)
    for row, vector in zip(found, vectors, strict=True):
        assert list(row) == list(struct.unpack(f"{len(vector)}f", struct.pack(f"{len(vector)}f", *vector)))
