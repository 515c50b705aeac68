"""How each kind of service is asked for vectors, and how it answers. Data in, data out.

Owns: a codec for OpenAI, which compatible servers and Voyage share, for Gemini, for Cohere; for the models of Bedrock
(Titan, Nova, Cohere) and for the two ways of Vertex AI.
Must not know: network, threads, how many texts there are in all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias
from urllib.parse import quote

import msgspec
from msgspec import Struct

import dragoman.providers
from dragoman.providers import WireRequest

from .profiles import BY_TOKENS, Asked, Task

Row: TypeAlias = bytes | list[float]
"""A vector as it came: 32-bit floats, the lowest byte first, or numbers."""


class Answered(Struct, frozen=True):
    """The vectors of one reply, in the order of the texts, and how many tokens these had, if that was said."""

    rows: Sequence[Row]
    tokens: int | None


class EmbeddingCodec(Struct, frozen=True):
    """How one kind of service is spoken to. `decode` raises msgspec's errors for what is not a reply of that kind."""

    encode: Callable[[Asked, Sequence[str]], WireRequest]
    """In place of a text tokens may stand, where the profile says that the service takes them."""
    decode: Callable[[bytes], Answered]


def _task_of(asked: Asked, usual: Task | None = None) -> str:
    """The model's word for the task; if it has none, for the usual one."""
    words = asked.profile.tasks
    return next((words[task] for task in (asked.task, usual) if task is not None and task in words), "")


def _prefix_and_kind(asked: Asked) -> tuple[str, str]:
    """The words for the task: before the text, or as a parameter."""
    task = _task_of(asked)
    return (task, "") if asked.profile.tasks_in_text else ("", task)


def _said(members: Mapping[str, object]) -> dict[str, object]:
    """The members that say something."""
    return {name: value for name, value in members.items() if value not in (None, "")}


def _write(path: str, members: Mapping[str, object]) -> WireRequest:
    return WireRequest(path=path, body=msgspec.json.encode(_said(members)))


# --- OpenAI, servers that are compatible with it, and Voyage ----------------------------------------------------------


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


_decode_openai_reply = msgspec.json.Decoder(_OpenAIReply).decode


def _decode_openai(body: bytes) -> Answered:
    reply = _decode_openai_reply(body)
    data, used = reply.data, reply.usage or _Used()
    if [each.index for each in data] != list(range(len(data))) and all(each.index is not None for each in data):
        data = sorted(data, key=lambda each: each.index or 0)
    tokens = used.total_tokens if used.prompt_tokens is None else used.prompt_tokens
    return Answered([each.embedding for each in data], tokens)


# --- Gemini -----------------------------------------------------------------------------------------------------------


class _Values(Struct):
    values: list[float]


class _GeminiUsed(Struct, rename="camel"):
    prompt_token_count: int | None = None


class _GeminiReply(Struct, rename="camel"):
    embeddings: list[_Values] = []
    usage_metadata: _GeminiUsed | None = None


def _encode_gemini(asked: Asked, texts: Sequence[str]) -> WireRequest:
    model = f"models/{asked.model.removeprefix('models/')}"
    prefix, kind = _prefix_and_kind(asked)
    shared = _said({"model": model, "taskType": kind, "outputDimensionality": asked.dimensions})
    requests = [{"content": {"parts": [{"text": prefix + text}]}, **shared} for text in texts]
    return _write(f"/v1beta/{model}:batchEmbedContents", {"requests": requests})


_decode_gemini_reply = msgspec.json.Decoder(_GeminiReply).decode


def _decode_gemini(body: bytes) -> Answered:
    reply = _decode_gemini_reply(body)
    used = reply.usage_metadata
    return Answered([each.values for each in reply.embeddings], None if used is None else used.prompt_token_count)


# --- Cohere -----------------------------------------------------------------------------------------------------------


class _Billed(Struct):
    input_tokens: float | None = None


class _Meta(Struct):
    billed_units: _Billed | None = None


class _ByType(Struct, rename={"floats": "float"}):
    floats: list[list[float]]


class _CohereReply(Struct):
    embeddings: _ByType | list[list[float]]
    meta: _Meta | None = None


def _encode_cohere(asked: Asked, texts: Sequence[str]) -> WireRequest:
    own = {"model": asked.model, "embedding_types": ["float"]}
    return _write("/v2/embed", own | _cohere_members(asked, texts))


def _cohere_members(asked: Asked, texts: Sequence[str]) -> dict[str, object]:
    return {
        "texts": texts,
        "input_type": _task_of(asked, "document"),  # which newer models insist on
        "truncate": "END" if asked.truncate else "NONE",
        asked.profile.dimensions: asked.dimensions,
    }


_decode_cohere_reply = msgspec.json.Decoder(_CohereReply).decode


def _decode_cohere(body: bytes) -> Answered:
    reply = _decode_cohere_reply(body)
    billed = reply.meta.billed_units if reply.meta is not None else None
    tokens = billed.input_tokens if billed is not None else None
    found = reply.embeddings
    rows = found if isinstance(found, list) else found.floats  # v3 on Bedrock has but one type
    return Answered(rows, None if tokens is None else int(tokens))


# --- Bedrock: each maker in its own form; Titan and Nova take one text at a time --------------------------------------


class _TitanReply(Struct, rename="camel"):
    embedding: list[float]
    input_text_token_count: int | None = None


class _NovaRow(Struct):
    embedding: list[float]


class _NovaReply(Struct):
    embeddings: list[_NovaRow]


def _invoke(asked: Asked, members: dict[str, object]) -> WireRequest:
    return _write(f"/model/{quote(asked.model, safe='')}/invoke", members)


def _encode_titan(asked: Asked, texts: Sequence[str]) -> WireRequest:
    return _invoke(asked, {"inputText": texts[0], "dimensions": asked.dimensions})


_decode_titan_reply = msgspec.json.Decoder(_TitanReply).decode


def _decode_titan(body: bytes) -> Answered:
    reply = _decode_titan_reply(body)
    return Answered([reply.embedding], reply.input_text_token_count)


def _encode_nova(asked: Asked, texts: Sequence[str]) -> WireRequest:
    wanted = _said(
        {
            "embeddingPurpose": _task_of(asked, "document"),
            "embeddingDimension": asked.dimensions,
            "text": {"value": texts[0], "truncationMode": "END" if asked.truncate else "NONE"},
        }
    )
    return _invoke(asked, {"taskType": "SINGLE_EMBEDDING", "singleEmbeddingParams": wanted})


_decode_nova_reply = msgspec.json.Decoder(_NovaReply).decode


def _decode_nova(body: bytes) -> Answered:
    return Answered([each.embedding for each in _decode_nova_reply(body).embeddings], None)


def _encode_bedrock_cohere(asked: Asked, texts: Sequence[str]) -> WireRequest:
    return _invoke(asked, _cohere_members(asked, texts))


# --- Vertex AI: predictions of the older models, content of the newer ones --------------------------------------------


class _Statistics(Struct, frozen=True):
    token_count: float | None = None


class _PredictedValues(_Values):
    statistics: _Statistics = _Statistics()


class _Prediction(Struct):
    embeddings: _PredictedValues


class _Predictions(Struct):
    predictions: list[_Prediction]


class _ContentReply(Struct, rename="camel"):
    embedding: _Values
    usage_metadata: _GeminiUsed | None = None


def _vertex_path(asked: Asked, method: str) -> str:
    return f"{dragoman.providers.path_on_vertex(asked.model)}:{method}"  # loaded for it alone


def _encode_vertex(asked: Asked, texts: Sequence[str]) -> WireRequest:
    task = _said({"task_type": _task_of(asked)})
    parameters = _said({"outputDimensionality": asked.dimensions, "autoTruncate": asked.truncate})
    members = {"instances": [{"content": text, **task} for text in texts], "parameters": parameters}
    return _write(_vertex_path(asked, "predict"), members)


_decode_predictions = msgspec.json.Decoder(_Predictions).decode


def _decode_vertex(body: bytes) -> Answered:
    found = [each.embeddings for each in _decode_predictions(body).predictions]
    counts = [each.statistics.token_count for each in found]
    return Answered([each.values for each in found], None if None in counts else int(sum(filter(None, counts))))


def _encode_vertex_content(asked: Asked, texts: Sequence[str]) -> WireRequest:
    prefix, kind = _prefix_and_kind(asked)
    how = _said({"taskType": kind, "outputDimensionality": asked.dimensions, "autoTruncate": asked.truncate})
    content = {"parts": [{"text": prefix + texts[0]}]}
    return _write(_vertex_path(asked, "embedContent"), {"content": content, "embedContentConfig": how})


_decode_content_reply = msgspec.json.Decoder(_ContentReply).decode


def _decode_vertex_content(body: bytes) -> Answered:
    reply = _decode_content_reply(body)
    used = reply.usage_metadata
    return Answered([reply.embedding.values], None if used is None else used.prompt_token_count)


CODECS: Final[dict[str, EmbeddingCodec]] = {
    "openai": EmbeddingCodec(_encode_openai, _decode_openai),
    "gemini": EmbeddingCodec(_encode_gemini, _decode_gemini),
    "cohere": EmbeddingCodec(_encode_cohere, _decode_cohere),
    "titan": EmbeddingCodec(_encode_titan, _decode_titan),
    "nova": EmbeddingCodec(_encode_nova, _decode_nova),
    "bedrock_cohere": EmbeddingCodec(_encode_bedrock_cohere, _decode_cohere),
    "vertex": EmbeddingCodec(_encode_vertex, _decode_vertex),
    "vertex_content": EmbeddingCodec(_encode_vertex_content, _decode_vertex_content),
}
