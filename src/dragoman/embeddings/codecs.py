"""Requests for embeddings, and their replies. Data in, data out.

Owns: a codec for OpenAI, compatible servers and Voyage; for Gemini; for Cohere; for the models of Bedrock (Titan, Nova,
Cohere); for the two APIs of Vertex AI.
Must not know: network, threads, how many texts there are in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast
from urllib.parse import quote

import msgspec
from msgspec import Struct

import dragoman.providers
from dragoman._decoding import decode, decoder_of
from dragoman.providers import WireRequest

from .profiles import BY_TOKENS, Asked, Task

Row: TypeAlias = bytes | list[float]
"""A vector as it arrived: 32-bit floats, little-endian, or numbers."""


class Answered(Struct, frozen=True):
    """The vectors of one reply, in the order of the texts, and their number of tokens, if known."""

    rows: Sequence[Row]
    tokens: int | None


class EmbeddingCodec(Struct, frozen=True):
    """The API of one kind of service."""

    encode: Callable[[Asked, Sequence[str]], WireRequest]
    """A text may be given as tokens, if the profile says that the service accepts them."""
    decode: Callable[[bytes], Answered]
    """Raises ValueError, TypeError or an error of msgspec for a malformed reply."""


def _task_of(asked: Asked, usual: Task | None = None) -> str:
    """The model's name for the task; if it has none, for the usual one."""
    words = asked.profile.tasks
    return next((words[task] for task in (asked.task, usual) if task is not None and task in words), "")


def _prefix_and_kind(asked: Asked) -> tuple[str, str]:
    """The model's name for the task: as a prefix of the text, or as a parameter."""
    task = _task_of(asked)
    return (task, "") if asked.profile.tasks_in_text else ("", task)


def _non_empty(members: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in members.items() if value not in (None, "")}


def _write(path: str, members: Mapping[str, object]) -> WireRequest:
    return WireRequest(path=path, body=msgspec.json.encode(_non_empty(members)))


def _reader(rows: str, tokens: str, *, each: bool = False) -> Callable[[bytes], Answered]:
    """A decoder for replies with their vectors, and the tokens of `each` or of all, at these paths."""

    def read(body: bytes) -> Answered:
        reply = decode(body)
        found, counts = list(_at(rows.split("."), reply)), list(_at(tokens.split("."), reply))
        return Answered(found, int(sum(counts)) if len(counts) == (len(found) if each else 1) else None)

    return read


def _at(path: Sequence[str], value: object) -> Iterator[Any]:
    """The values at a path; in a list of objects or of vectors, those of each item."""
    if isinstance(value, list) and value and isinstance(value[0], dict | list):
        for each in cast("list[object]", value):
            yield from _at(path, each)
    elif path and isinstance(value, dict):
        if (found := cast("dict[str, object]", value).get(path[0])) is not None:
            yield from _at(path[1:], found)
    elif not path or isinstance(value, list):  # Cohere v3 on Bedrock names no type of vectors
        yield value


# --- OpenAI, compatible servers, and Voyage --------------------------------------------------------------------------


class _Datum(Struct):
    embedding: Row
    index: int | None = None


class _Used(Struct):
    prompt_tokens: int | None = None
    total_tokens: int | None = None


class _OpenAIReply(Struct):
    data: list[_Datum]
    usage: _Used | None = None


def _encode_openai(asked: Asked, texts: Sequence[str]) -> WireRequest:
    profile = asked.profile
    members: dict[str, object] = {
        "model": asked.model,
        "input": texts,
        "encoding_format": "base64" if profile.base64 else "float",
        "input_type": _task_of(asked),
        profile.dimensions: asked.dimensions,
    }
    if profile.truncation not in ("", BY_TOKENS):
        members[profile.truncation] = asked.truncate
    return _write("/embeddings", members)


_decode_openai_reply = decoder_of(_OpenAIReply).decode  # decodes base64 directly


def _decode_openai(body: bytes) -> Answered:
    reply = _decode_openai_reply(body)
    data, used = reply.data, reply.usage or _Used()
    if [each.index for each in data] != list(range(len(data))) and all(each.index is not None for each in data):
        data = sorted(data, key=lambda each: each.index or 0)
    tokens = used.total_tokens if used.prompt_tokens is None else used.prompt_tokens
    return Answered([each.embedding for each in data], tokens)


# --- Gemini and Cohere ------------------------------------------------------------------------------------------------


def _encode_gemini(asked: Asked, texts: Sequence[str]) -> WireRequest:
    model = f"models/{asked.model.removeprefix('models/')}"
    prefix, kind = _prefix_and_kind(asked)
    shared = _non_empty({"model": model, "taskType": kind, "outputDimensionality": asked.dimensions})
    requests = [{"content": {"parts": [{"text": prefix + text}]}, **shared} for text in texts]
    return _write(f"/v1beta/{model}:batchEmbedContents", {"requests": requests})


def _encode_cohere(asked: Asked, texts: Sequence[str]) -> WireRequest:
    own = {"model": asked.model, "embedding_types": ["float"]}
    return _write("/v2/embed", own | _cohere_members(asked, texts))


def _cohere_members(asked: Asked, texts: Sequence[str]) -> dict[str, object]:
    return {
        "texts": texts,
        "input_type": _task_of(asked, "document"),  # newer models require one
        "truncate": "END" if asked.truncate else "NONE",
        asked.profile.dimensions: asked.dimensions,
    }


# --- Bedrock: each vendor has its own form; Titan and Nova take one text at a time ------------------------------------


def _invoke(asked: Asked, members: dict[str, object]) -> WireRequest:
    return _write(f"/model/{quote(asked.model, safe='')}/invoke", members)


def _encode_titan(asked: Asked, texts: Sequence[str]) -> WireRequest:
    return _invoke(asked, {"inputText": texts[0], "dimensions": asked.dimensions})


def _encode_nova(asked: Asked, texts: Sequence[str]) -> WireRequest:
    wanted = _non_empty(
        {
            "embeddingPurpose": _task_of(asked, "document"),
            "embeddingDimension": asked.dimensions,
            "text": {"value": texts[0], "truncationMode": "END" if asked.truncate else "NONE"},
        }
    )
    return _invoke(asked, {"taskType": "SINGLE_EMBEDDING", "singleEmbeddingParams": wanted})


def _encode_bedrock_cohere(asked: Asked, texts: Sequence[str]) -> WireRequest:
    return _invoke(asked, _cohere_members(asked, texts))


# --- Vertex AI: `predict` for older models, `embedContent` for newer ones ---------------------------------------------


def _vertex_path(asked: Asked, method: str) -> str:
    return f"{dragoman.providers.path_on_vertex(asked.model)}:{method}"  # loaded only for Vertex AI


def _encode_vertex(asked: Asked, texts: Sequence[str]) -> WireRequest:
    task = _non_empty({"task_type": _task_of(asked)})
    parameters = _non_empty({"outputDimensionality": asked.dimensions, "autoTruncate": asked.truncate})
    members = {"instances": [{"content": text, **task} for text in texts], "parameters": parameters}
    return _write(_vertex_path(asked, "predict"), members)


def _encode_vertex_content(asked: Asked, texts: Sequence[str]) -> WireRequest:
    prefix, kind = _prefix_and_kind(asked)
    how = _non_empty({"taskType": kind, "outputDimensionality": asked.dimensions, "autoTruncate": asked.truncate})
    content = {"parts": [{"text": prefix + texts[0]}]}
    return _write(_vertex_path(asked, "embedContent"), {"content": content, "embedContentConfig": how})


_read_cohere: Final = _reader("embeddings.float", "meta.billed_units.input_tokens")

CODECS: Final[dict[str, EmbeddingCodec]] = {
    "openai": EmbeddingCodec(_encode_openai, _decode_openai),
    "gemini": EmbeddingCodec(_encode_gemini, _reader("embeddings.values", "usageMetadata.promptTokenCount")),
    "cohere": EmbeddingCodec(_encode_cohere, _read_cohere),
    "titan": EmbeddingCodec(_encode_titan, _reader("embedding", "inputTextTokenCount")),
    "nova": EmbeddingCodec(_encode_nova, _reader("embeddings.embedding", "-")),
    "bedrock_cohere": EmbeddingCodec(_encode_bedrock_cohere, _read_cohere),
    "vertex": EmbeddingCodec(
        _encode_vertex,
        _reader("predictions.embeddings.values", "predictions.embeddings.statistics.token_count", each=True),
    ),
    "vertex_content": EmbeddingCodec(
        _encode_vertex_content, _reader("embedding.values", "usageMetadata.promptTokenCount")
    ),
}
