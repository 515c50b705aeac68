"""Recorded exchanges with the real services: what we ask and read is what their official clients asked and read."""

from __future__ import annotations

import base64
import json
import re
import struct
from typing import Any, get_args
from urllib.parse import unquote

from google.genai import types
from google.genai.models import _EmbedContentResponse_from_vertex
from openai.types import CreateEmbeddingResponse

from dragoman.embeddings import Task, profile_for
from dragoman.embeddings.codecs import CODECS
from dragoman.embeddings.profiles import Asked
from dragoman.embeddings.vectors import Sheet
from dragoman.providers import PROVIDERS
from tests.providers.recorded import Exchange, parametrized

HOSTS = {
    "api.openai.com": "openai",
    "api.voyageai.com": "voyage",
    "api.cohere.com": "cohere",
    "generativelanguage.googleapis.com": "gemini",
    "aiplatform.googleapis.com": "vertex",
    "bedrock-runtime.us-east-1.amazonaws.com": "bedrock",
}


def _texts(request: Any) -> list[str]:
    if "requests" in request:
        return [each["content"]["parts"][0]["text"] for each in request["requests"]]
    if "instances" in request:
        return [each["content"] for each in request["instances"]]
    if "content" in request:
        return [request["content"]["parts"][0]["text"]]
    if "singleEmbeddingParams" in request:
        return [request["singleEmbeddingParams"]["text"]["value"]]
    return [request["inputText"]] if "inputText" in request else request.get("input") or request["texts"]


def _asked(exchange: Exchange, provider: str) -> Asked:
    """What one would have said to `embed` to send this request."""
    request = exchange.request
    found = re.search("/model/(.*)/invoke" if provider == "bedrock" else "/models/(.*):", exchange.url)
    model = unquote(found[1]) if found is not None else request["model"]
    [first] = request.get("requests", request.get("instances", [request]))[:1]
    first = request.get("singleEmbeddingParams", first)
    profile = profile_for(PROVIDERS[provider], model)
    words = [first.get(name) for name in ("taskType", "input_type", "task_type", "embeddingPurpose")]
    tasks = [name for name in get_args(Task) if profile.tasks.get(name) in filter(None, words)]
    dimensions = [first.get(name) for name in ("dimensions", "output_dimension", "outputDimensionality")]
    cut = [request.get("truncation"), request.get("truncate"), first.get("text", {}).get("truncationMode")]
    return Asked(
        model=model,
        profile=profile,
        task=tasks[0] if tasks else None,
        dimensions=next(filter(None, [*dimensions, first.get("embeddingDimension")]), None),
        truncate=True in cut or "END" in cut,
    )


def _sayable(request: Any) -> Any:
    """The request, without what cannot be said to `embed`, or is what the service does anyway."""
    said = {name: value for name, value in request.items() if value is not None and name not in _UNSAYABLE}
    said = json.loads(json.dumps(said).replace('"START"', '"NONE"').replace('"TEXT_RETRIEVAL"', '"GENERIC_INDEX"'))
    if "instances" in said:
        said.setdefault("parameters", {})["autoTruncate"] = False
    return {**said, "embedContentConfig": {"autoTruncate": False}} if "content" in said else said


_UNSAYABLE = ("normalize", "max_tokens")


def _read_by_sdk(provider: str, body: str) -> tuple[list[list[float]], int | None]:
    """The vectors as the provider's client, or the standard library in its way, reads them; and the tokens."""
    said = json.loads(body)
    if provider == "bedrock":
        rows = said["embeddings"]["float"] if isinstance(said.get("embeddings"), dict) else said.get("embeddings")
        rows = (
            [said["embedding"]]
            if rows is None
            else [row["embedding"] if isinstance(row, dict) else row for row in rows]
        )
        return rows, said.get("inputTextTokenCount")
    if provider == "vertex":
        kind = "EMBED_CONTENT" if "embedding" in said else "PREDICT"
        mapped = _EmbedContentResponse_from_vertex(said, None, {"embedding_api_type": kind})
        found = types.EmbedContentResponse.model_validate(mapped).embeddings or []
        counts = [each.statistics.token_count or 0 for each in found if each.statistics is not None]
        return [each.values or [] for each in found], int(sum(counts))
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


@parametrized("embeddings", without=":countTokens")
def test_requests_and_replies_match_the_official_clients(exchange: Exchange) -> None:
    provider = HOSTS[exchange.url.split("/")[2]]
    asked = _asked(exchange, provider)
    codec = CODECS[asked.profile.codec]
    texts = _texts(exchange.request)
    wire = codec.encode(asked, texts)
    assert exchange.url.endswith(wire.path)
    assert len(texts) <= asked.profile.texts
    assert json.loads(wire.body) == _sayable(exchange.request)
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
