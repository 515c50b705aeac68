"""How each provider is asked for vectors and how it answers. Data in, data out.

Owns: EmbeddingProfile and its rows (limits, names of tasks and options), and three codecs: the one of OpenAI, which
compatible servers and Voyage share, that of Gemini, and that of Cohere.
Must not know: network, threads, how many texts there are in all.

A provider is added with a row of PROFILES, and a codec if it speaks in yet another way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from dragoman.errors import ConfigurationError
from dragoman.providers import PROGRAMS, Adaptation, Provider, WireRequest

Task: TypeAlias = Literal[
    "document",
    "query",
    "similarity",
    "classification",
    "clustering",
    "question_answering",
    "fact_verification",
    "code_retrieval",
]
"""What a vector is for. `document` is what is searched, `query` and the last three are what it is searched with."""
TASKS: Final[tuple[Task, ...]] = get_args(Task)

Row: TypeAlias = bytes | list[float]
"""A vector as it came: 32-bit floats, the lowest byte first, or numbers."""


class EmbeddingProfile(Struct, frozen=True, kw_only=True):
    """How a provider, or one of its models, takes texts."""

    codec: Literal["openai", "gemini", "cohere"] = "openai"
    texts: int = 2048
    """The most texts of one request."""
    tokens: int = 300_000
    """The most tokens of one request, all texts together."""
    tasks: Mapping[Task, str] = {}
    """The tasks that it knows, and its words for them; none: it embeds all texts alike."""
    tasks_in_text: bool = False
    """Whether the words for a task stand before the text, and not in a parameter."""
    base64: bool = False
    """Whether vectors can be asked for in base64, which costs far less to read than numbers."""
    dimensions: str = "dimensions"
    """The name of the parameter for the length of vectors."""
    truncation: str = ""
    """The name of the parameter that says whether a text that is too long is cut; empty: it is refused."""


class Asked(Struct, frozen=True, kw_only=True):
    """What is wanted, without the texts."""

    model: str
    profile: EmbeddingProfile
    dimensions: int | None = None
    task: Task | None = None
    truncate: bool = False


class Answered(Struct, frozen=True):
    """The vectors of one reply, in the order of the texts, and how many tokens these had, if that was said."""

    rows: Sequence[Row]
    tokens: int | None


class EmbeddingCodec(Struct, frozen=True):
    """How one kind of service is spoken to. `decode` raises msgspec's errors for what is not a reply of that kind."""

    encode: Callable[[Asked, Sequence[str]], WireRequest]
    decode: Callable[[bytes], Answered]


# --- what differs between providers and models ------------------------------------------------------------------------

_RETRIEVAL: Final[dict[Task, str]] = {"document": "document", "query": "query"}
_GEMINI_TASKS: Final[dict[Task, str]] = {
    "document": "RETRIEVAL_DOCUMENT",
    "query": "RETRIEVAL_QUERY",
    "similarity": "SEMANTIC_SIMILARITY",
    "classification": "CLASSIFICATION",
    "clustering": "CLUSTERING",
    "question_answering": "QUESTION_ANSWERING",
    "fact_verification": "FACT_VERIFICATION",
    "code_retrieval": "CODE_RETRIEVAL_QUERY",
}
_GEMINI_PREFIXES: Final[dict[Task, str]] = {
    "document": "title: none | text: ",
    "query": "task: search result | query: ",
    "similarity": "task: sentence similarity | query: ",
    "classification": "task: classification | query: ",
    "clustering": "task: clustering | query: ",
    "question_answering": "task: question answering | query: ",
    "fact_verification": "task: fact checking | query: ",
    "code_retrieval": "task: code retrieval | query: ",
}
_COHERE_TASKS: Final[dict[Task, str]] = {
    "document": "search_document",
    "query": "search_query",
    "classification": "classification",
    "clustering": "clustering",
}
_OPENAI: Final = EmbeddingProfile(base64=True)

PROFILES: Final[dict[str, EmbeddingProfile]] = {
    "openai": _OPENAI,
    "openai-responses": _OPENAI,
    "azure": _OPENAI,
    "azure-responses": _OPENAI,
    "openrouter": _OPENAI,
    "llamacpp": _OPENAI,
    "vllm": _OPENAI,
    "mistral": EmbeddingProfile(base64=True, texts=512, tokens=16_000, dimensions="output_dimension"),
    "voyage": EmbeddingProfile(
        base64=True,
        texts=1000,
        tokens=120_000,
        tasks=_RETRIEVAL,
        dimensions="output_dimension",
        truncation="truncation",
    ),
    "gemini": EmbeddingProfile(codec="gemini", texts=100, tokens=200_000, tasks=_GEMINI_TASKS),
    "cohere": EmbeddingProfile(
        codec="cohere",
        texts=96,
        tokens=128_000,
        tasks=_COHERE_TASKS,
        dimensions="output_dimension",
        truncation="truncate",
    ),
}
"""By provider. One that is not here is a compatible server, and asked as OpenAI is, for numbers."""

_MODELS: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("gemini", "gemini-embedding-2", {"tasks": _GEMINI_PREFIXES, "tasks_in_text": True}),
    ("voyage", "voyage-3.5", {"tokens": 320_000}),
    ("voyage", "voyage-4", {"tokens": 320_000}),
    ("voyage", "voyage-*-lite", {"tokens": 1_000_000}),
)
"""Models that differ from the rest of their provider's: (provider, pattern, fields)."""


def profile_for(provider: Provider, model: str) -> EmbeddingProfile:
    """How this model takes texts. Raises ConfigurationError for a provider that has no vectors."""
    if provider.dialect == "anthropic" or provider.name in PROGRAMS:
        message = f"{provider.name} has no models that embed texts."
        raise ConfigurationError(message, hint="Use for instance voyage:voyage-3.5 or openai:text-embedding-3-small.")
    if provider.cloud in ("amazon", "google"):
        message = f"Embeddings of {provider.name} are asked for in a way of its own, which is not known here."
        raise ConfigurationError(
            message, hint="Use for instance gemini:gemini-embedding-001 or azure: with a deployment."
        )
    profile = PROFILES.get(provider.name, EmbeddingProfile())
    for name, pattern, fields in _MODELS:
        if name == provider.name and fnmatchcase(model, pattern):
            profile = msgspec.structs.replace(profile, **fields)
    return profile


def adaptations_of(asked: Asked, provider: str) -> tuple[Adaptation, ...]:
    """What was said that means nothing to this model."""
    found: list[Adaptation] = []
    tasks = asked.profile.tasks
    if asked.task is not None and asked.task not in tasks:
        known = f"{provider} knows {', '.join(tasks)}" if tasks else f"{provider} embeds all texts alike"
        found.append(Adaptation(f"task={asked.task!r}", f"left out: {known}"))
    if asked.truncate and not asked.profile.truncation:
        found.append(Adaptation("truncate=True", f"left out: {provider} decides itself about a text that is too long"))
    return tuple(found)


def _task_of(asked: Asked) -> str:
    return asked.profile.tasks.get(asked.task, "") if asked.task is not None else ""


def _write(path: str, members: dict[str, object]) -> WireRequest:
    """A request of the members that say something."""
    said = {name: value for name, value in members.items() if value not in (None, "")}
    return WireRequest(path=path, body=msgspec.json.encode(said))


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
    if profile.truncation:
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
    model, task = f"models/{asked.model.removeprefix('models/')}", _task_of(asked)
    prefix, kind = (task, "") if asked.profile.tasks_in_text else ("", task)
    shared = {"model": model, "taskType": kind, "outputDimensionality": asked.dimensions}
    shared = {name: value for name, value in shared.items() if value}
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
    embeddings: _ByType
    meta: _Meta | None = None


def _encode_cohere(asked: Asked, texts: Sequence[str]) -> WireRequest:
    members: dict[str, object] = {
        "model": asked.model,
        "texts": texts,
        "input_type": _task_of(asked) or _COHERE_TASKS["document"],  # which newer models insist on
        "embedding_types": ["float"],
        "truncate": "END" if asked.truncate else "NONE",
        asked.profile.dimensions: asked.dimensions,
    }
    return _write("/v2/embed", members)


_decode_cohere_reply = msgspec.json.Decoder(_CohereReply).decode


def _decode_cohere(body: bytes) -> Answered:
    reply = _decode_cohere_reply(body)
    billed = reply.meta.billed_units if reply.meta is not None else None
    tokens = billed.input_tokens if billed is not None else None
    return Answered(reply.embeddings.floats, None if tokens is None else int(tokens))


CODECS: Final[dict[str, EmbeddingCodec]] = {
    "openai": EmbeddingCodec(_encode_openai, _decode_openai),
    "gemini": EmbeddingCodec(_encode_gemini, _decode_gemini),
    "cohere": EmbeddingCodec(_encode_cohere, _decode_cohere),
}
