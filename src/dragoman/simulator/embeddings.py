"""Vectors from the server's side: OpenAI and whoever is compatible with it, Voyage, Gemini and Cohere.

A vector is made of its text alone, so that the same text has the same one in every run.
"""

from __future__ import annotations

import re
from array import array
from base64 import b64encode
from hashlib import shake_256
from typing import Final, cast

from .exchange import Request
from .gemini import GEMINI
from .openai_chat import OPENAI_CHAT
from .reading import JsonObject, members, objects, string
from .service import Refused, Route

_USUAL_DIMENSIONS: Final = {"openai": 1536, "gemini": 3072, "cohere": 1536}
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
        raise Refused(400, f"Invalid 'input': maximum request size is {_MOST_TOKENS} tokens per request.")
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
        raise Refused(400, "invalid request: input_type must be set")
    dimensions = _dimensions(body.get("output_dimension"), "cohere")
    return {
        "id": f"sim{request.number:06d}",
        "embeddings": {"float": [list(vector_of(text, dimensions)) for text in texts]},
        "texts": texts,
        "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": _count(texts)}},
        "response_type": "embeddings_by_type",
    }


def _texts(given: object, most: int, too_many: str) -> list[str]:
    texts = [given] if isinstance(given, str) else cast("list[object]", given) if isinstance(given, list) else []
    if not texts or not all(isinstance(each, str) and each for each in texts):
        raise Refused(400, "The input must be texts, at least one of them, and none of them empty.")
    if len(texts) > most:
        raise Refused(400, too_many)
    return cast("list[str]", texts)


def _dimensions(given: object, kind: str) -> int:
    if given is None:
        return _USUAL_DIMENSIONS[kind]
    if not isinstance(given, int) or not 1 <= given <= _MOST_DIMENSIONS:
        raise Refused(400, f"The dimensions must be a number from 1 to {_MOST_DIMENSIONS}.")
    return given


def _count(texts: list[str]) -> int:
    return sum(len(text) // 4 + 1 for text in texts)


ROUTES: Final = (
    Route(path=re.compile(r".*/embeddings"), dialect=OPENAI_CHAT, handle=_answer_openai),
    Route(path=re.compile(r".*/models/[^:]+:batchEmbedContents"), dialect=GEMINI, handle=_answer_gemini),
    Route(path=re.compile(r".*/v2/embed"), dialect=OPENAI_CHAT, handle=_answer_cohere),
)
