"""Embeddings from the server's side: OpenAI and compatible servers, Voyage, Gemini, Cohere, Bedrock, Vertex AI.

A vector depends only on its text, so it is the same in every run.
"""

from __future__ import annotations

from array import array
from base64 import b64encode
from collections.abc import Sequence
from hashlib import shake_256
from typing import Final, cast

from .bedrock import BEDROCK
from .dialect import Refusal, Route
from .exchange import JsonObject, Request, items, members, objects, text_of
from .gemini import GEMINI
from .openai_chat import OPENAI_CHAT

_MOST_DIMENSIONS: Final = 8192
_MOST_TOKENS: Final = 300_000


def vector_of(text: str, dimensions: int) -> array[float]:
    """The vector of a text, of a length of about one."""
    scale = 1 / (74 * dimensions**0.5)
    return array("f", [scale * each for each in array("b", shake_256(text.encode()).digest(dimensions))])


def _embed(texts: Sequence[object], most: int, dimensions: object, usual: int) -> tuple[list[array[float]], int]:
    """The vectors of texts, and how many tokens these have. Raises Refusal."""
    dimensions = usual if dimensions is None else dimensions
    if not texts or not all(isinstance(each, str) and each for each in texts):
        raise Refusal(400, "The input must be texts, at least one of them, and none of them empty.")
    if len(texts) > most:
        raise Refusal(400, f"A request may have at most {most} texts.")
    if not isinstance(dimensions, int) or not 1 <= dimensions <= _MOST_DIMENSIONS:
        raise Refusal(400, f"The dimensions must be a number from 1 to {_MOST_DIMENSIONS}.")
    known = cast("Sequence[str]", texts)
    return [vector_of(text, dimensions) for text in known], sum(len(text) // 4 + 1 for text in known)


async def _answer_openai(request: Request) -> JsonObject:
    body, given = request.body, request.body.get("input")
    texts = [given] if isinstance(given, str) else items(given)
    vectors, tokens = _embed(texts, 2048, body.get("dimensions", body.get("output_dimension")), 1536)
    if tokens > _MOST_TOKENS:
        raise Refusal(400, f"Invalid 'input': maximum request size is {_MOST_TOKENS} tokens per request.")
    packed = body.get("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": b64encode(vector).decode() if packed else list(vector)}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": request.model, "usage": usage}


async def _answer_gemini(request: Request) -> JsonObject:
    requests = objects(request.body.get("requests"))
    texts = [text_of(members(each.get("content")).get("parts")) for each in requests]
    vectors, tokens = _embed(texts, 100, requests[0].get("outputDimensionality") if requests else None, 3072)
    values = [{"values": list(vector)} for vector in vectors]
    return {"embeddings": values, "usageMetadata": {"promptTokenCount": tokens}}


async def _answer_cohere(request: Request) -> JsonObject:
    body = request.body
    vectors, tokens = _embed(items(body.get("texts")), 96, body.get("output_dimension"), 1536)
    if not body.get("input_type"):
        raise Refusal(400, "invalid request: input_type must be set")
    return {
        "id": f"sim{request.number:06d}",
        "embeddings": {"float": [list(vector) for vector in vectors]},
        "texts": body.get("texts"),
        "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": tokens}},
        "response_type": "embeddings_by_type",
    }


async def _answer_bedrock(request: Request) -> tuple[JsonObject, dict[str, str]]:
    """Titan, Nova and Cohere, each in its own form; the number of tokens is in a header."""
    reply: JsonObject
    if "cohere." in request.model:
        reply = await _answer_cohere(request)
        tokens = members(members(reply.pop("meta")).get("billed_units")).get("input_tokens")
    else:
        body, nova = request.body, members(request.body.get("singleEmbeddingParams"))
        text = body.get("inputText") or members(nova.get("text")).get("value")
        (vector,), tokens = _embed([text], 1, body.get("dimensions", nova.get("embeddingDimension")), 1024)
        reply = {"embedding": list(vector)}
        if nova:
            reply = {"embeddings": [reply]}
    return reply, {"x-amzn-bedrock-input-token-count": str(tokens)}


async def _answer_vertex_content(request: Request) -> JsonObject:
    body = request.body
    text = text_of(members(body.get("content")).get("parts"))
    dimensions = members(body.get("embedContentConfig")).get("outputDimensionality")
    (vector,), tokens = _embed([text], 1, dimensions, 3072)
    return {"embedding": {"values": list(vector)}, "usageMetadata": {"promptTokenCount": tokens}}


async def _answer_vertex(request: Request) -> JsonObject:
    texts = [each.get("content") for each in objects(request.body.get("instances"))]
    dimensions = members(request.body.get("parameters")).get("outputDimensionality")
    vectors, _ = _embed(texts, 250, dimensions, 3072)
    counts = [{"token_count": len(str(text)) // 4 + 1} for text in texts]
    found = [{"values": list(vector), "statistics": count} for vector, count in zip(vectors, counts, strict=True)]
    return {"predictions": [{"embeddings": each} for each in found]}


ROUTES: Final = (
    Route("POST", r".*/embeddings", OPENAI_CHAT, _answer_openai, scripted=True),
    Route("POST", r".*/models/(?P<model>[^:]+):batchEmbedContents", GEMINI, _answer_gemini, scripted=True),
    Route("POST", r".*/models/(?P<model>[^:]+):embedContent", GEMINI, _answer_vertex_content, scripted=True),
    Route("POST", r".*/models/(?P<model>[^:]+):predict", GEMINI, _answer_vertex, scripted=True),
    Route("POST", r".*/model/(?P<model>.+)/invoke", BEDROCK, _answer_bedrock, scripted=True),
    Route("POST", r".*/v2/embed", OPENAI_CHAT, _answer_cohere, scripted=True),
)
