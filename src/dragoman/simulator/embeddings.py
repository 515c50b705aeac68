"""Vectors from the server's side: OpenAI and whoever is compatible with it, Voyage, Gemini, Cohere, Bedrock, Vertex AI.

A vector is made of its text alone, so that the same text has the same one in every run.
"""

from __future__ import annotations

from array import array
from base64 import b64encode
from hashlib import shake_256
from typing import Final, cast

from .bedrock import BEDROCK
from .dialect import Refusal, Route
from .exchange import JsonObject, Request, members, objects, string
from .gemini import GEMINI
from .openai_chat import OPENAI_CHAT

_USUAL_DIMENSIONS: Final = {"openai": 1536, "gemini": 3072, "cohere": 1536, "amazon": 1024}
_MOST_DIMENSIONS: Final = 8192
_MOST_TOKENS: Final = 300_000


def vector_of(text: str, dimensions: int) -> array[float]:
    """The vector of a text, of a length of about one."""
    scale = 1 / (74 * dimensions**0.5)
    return array("f", [scale * each for each in array("b", shake_256(text.encode()).digest(dimensions))])


async def _answer_openai(request: Request) -> JsonObject:
    body = request.body
    texts = _texts(
        body.get("input"), 2048, "Invalid 'input': array too long. Expected an array with maximum length 2048."
    )
    dimensions = _dimensions(body.get("dimensions", body.get("output_dimension")), "openai")
    tokens = _count(texts)
    if tokens > _MOST_TOKENS:
        raise Refusal(400, f"Invalid 'input': maximum request size is {_MOST_TOKENS} tokens per request.")
    packed = body.get("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": b64encode(each).decode() if packed else list(each)}
        for index, each in enumerate(vector_of(text, dimensions) for text in texts)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": request.model, "usage": usage}


async def _answer_gemini(request: Request) -> JsonObject:
    requests = objects(request.body.get("requests"))
    parts = [objects(members(each.get("content")).get("parts")) for each in requests]
    given = ["".join(string(part.get("text")) for part in each) for each in parts]
    texts = _texts(given, 100, "BatchEmbedContentsRequest.requests: at most 100 requests can be in one batch")
    dimensions = _dimensions(requests[0].get("outputDimensionality"), "gemini")
    values = [{"values": list(vector_of(text, dimensions))} for text in texts]
    return {"embeddings": values, "usageMetadata": {"promptTokenCount": _count(texts)}}


async def _answer_cohere(request: Request) -> JsonObject:
    body = request.body
    texts = _texts(body.get("texts"), 96, "invalid request: total number of texts must be at most 96")
    if not body.get("input_type"):
        raise Refusal(400, "invalid request: input_type must be set")
    dimensions = _dimensions(body.get("output_dimension"), "cohere")
    return {
        "id": f"sim{request.number:06d}",
        "embeddings": {"float": [list(vector_of(text, dimensions)) for text in texts]},
        "texts": texts,
        "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": _count(texts)}},
        "response_type": "embeddings_by_type",
    }


async def _answer_bedrock(request: Request) -> tuple[JsonObject, dict[str, str]]:
    """Titan, Nova and Cohere, each in its own form; the number of tokens is in a header."""
    body, wanted = request.body, members(request.body.get("singleEmbeddingParams"))
    reply: JsonObject
    single = body.get("inputText") or members(wanted.get("text")).get("value")
    if "cohere." in request.model:
        reply = await _answer_cohere(request)
        del reply["meta"]
        texts = cast("list[str]", reply["texts"])
    else:
        texts = _texts(single if isinstance(single, str) else None, 1, "one text at a time")
        given = body.get("dimensions", wanted.get("embeddingDimension"))
        vector = list(vector_of(texts[0], _dimensions(given, "amazon")))
        reply = {"embedding": vector}
        if wanted:
            reply = {"embeddings": [reply]}
    return reply, {"x-amzn-bedrock-input-token-count": str(_count(texts))}


async def _answer_vertex(request: Request) -> JsonObject:
    body = request.body
    if request.path.endswith(":embedContent"):
        parts = objects(members(body.get("content")).get("parts"))
        texts = _texts([part.get("text") for part in parts], 1, "one text at a time")
        given = members(body.get("embedContentConfig")).get("outputDimensionality")
        values = list(vector_of(texts[0], _dimensions(given, "gemini")))
        return {"embedding": {"values": values}, "usageMetadata": {"promptTokenCount": _count(texts)}}
    texts = _texts([each.get("content") for each in objects(body.get("instances"))], 250, "at most 250 instances")
    dimensions = _dimensions(members(body.get("parameters")).get("outputDimensionality"), "gemini")
    vectors = [list(vector_of(text, dimensions)) for text in texts]
    counts = [{"token_count": _count([text])} for text in texts]
    found = [{"values": vector, "statistics": count} for vector, count in zip(vectors, counts, strict=True)]
    return {"predictions": [{"embeddings": each} for each in found]}


def _texts(given: object, most: int, too_many: str) -> list[str]:
    texts = [given] if isinstance(given, str) else cast("list[object]", given) if isinstance(given, list) else []
    if not texts or not all(isinstance(each, str) and each for each in texts):
        raise Refusal(400, "The input must be texts, at least one of them, and none of them empty.")
    if len(texts) > most:
        raise Refusal(400, too_many)
    return cast("list[str]", texts)


def _dimensions(given: object, kind: str) -> int:
    if given is None:
        return _USUAL_DIMENSIONS[kind]
    if not isinstance(given, int) or not 1 <= given <= _MOST_DIMENSIONS:
        raise Refusal(400, f"The dimensions must be a number from 1 to {_MOST_DIMENSIONS}.")
    return given


def _count(texts: list[str]) -> int:
    return sum(len(text) // 4 + 1 for text in texts)


ROUTES: Final = (
    Route("POST", r".*/embeddings", OPENAI_CHAT, _answer_openai, scripted=True),
    Route("POST", r".*/models/(?P<model>[^:]+):batchEmbedContents", GEMINI, _answer_gemini, scripted=True),
    Route("POST", r".*/models/(?P<model>[^:]+):(?:predict|embedContent)", GEMINI, _answer_vertex, scripted=True),
    Route("POST", r".*/model/(?P<model>.+)/invoke", BEDROCK, _answer_bedrock, scripted=True),
    Route("POST", r".*/v2/embed", OPENAI_CHAT, _answer_cohere, scripted=True),
)
