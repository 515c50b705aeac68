"""What differs between providers and models, as rows.

Owns: the tasks, EmbeddingProfile and its rows (limits, names of tasks and options), Asked and its adaptations.
Must not know: requests and replies (codecs.py), network.

To add a provider, add a row to PROFILES, and a codec if its API is different.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from dragoman.errors import ConfigurationError
from dragoman.providers import PROGRAMS, Adaptation, Provider

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
"""What a vector is for. `document` is searched; `query` and the last three search it."""
BY_TOKENS: Final = "by tokens"
"""The truncation of a service without a parameter for it, which accepts tokens instead of a text."""
TASKS: Final[tuple[Task, ...]] = get_args(Task)


class EmbeddingProfile(Struct, frozen=True, kw_only=True):
    """The API of a provider, or of one of its models."""

    codec: Literal["openai", "gemini", "cohere", "titan", "nova", "bedrock_cohere", "vertex", "vertex_content"] = (
        "openai"
    )
    texts: int = 2048
    """The maximum number of texts in a request."""
    tokens: int = 300_000
    """The maximum number of tokens in a request."""
    tasks: Mapping[Task, str] = {}
    """The supported tasks, and its names for them."""
    tasks_in_text: bool = False
    """Whether the name of the task is a prefix of the text, not a parameter."""
    base64: bool = False
    """Whether it can send vectors in base64, which is much faster to parse than numbers."""
    dimensions: str = "dimensions"
    """The parameter for the length of vectors; empty if it cannot be chosen."""
    truncation: str = ""
    """The parameter for cutting a text that is too long; empty if there is none."""
    folded: bool = False
    """Whether texts must be normalized as for BERT; see `fold`."""
    tokens_header: str = ""
    """The header with the number of tokens, if the reply does not contain it."""


class Asked(Struct, frozen=True, kw_only=True):
    """A request for embeddings, without the texts."""

    model: str
    profile: EmbeddingProfile
    dimensions: int | None = None
    task: Task | None = None
    truncate: bool = False


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
_NOVA_TASKS: Final[dict[Task, str]] = {
    "document": "GENERIC_INDEX",
    "query": "GENERIC_RETRIEVAL",
    "classification": "CLASSIFICATION",
    "clustering": "CLUSTERING",
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
    "vertex": EmbeddingProfile(
        codec="vertex", texts=250, tokens=20_000, tasks=_GEMINI_TASKS, truncation="autoTruncate"
    ),
    "local": EmbeddingProfile(base64=True, texts=64, dimensions="", truncation=BY_TOKENS),
    "bedrock": EmbeddingProfile(texts=1, tokens_header="x-amzn-bedrock-input-token-count"),
}
"""By provider. Others are treated as servers compatible with OpenAI, without base64."""

_PREFIXED: Final = {"tasks": _GEMINI_PREFIXES, "tasks_in_text": True}
_MODELS: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("bedrock", "*amazon.titan-embed-*text-*", {"codec": "titan"}),
    ("bedrock", "*amazon.nova-*embeddings*", {"codec": "nova", "tasks": _NOVA_TASKS, "truncation": "truncationMode"}),
    (
        "bedrock",
        "*cohere.embed-*",
        {
            "codec": "bedrock_cohere",
            "texts": 96,
            "tokens": 128_000,
            "tasks": _COHERE_TASKS,
            "dimensions": "output_dimension",
            "truncation": "truncate",
        },
    ),
    ("local", "all-minilm-l6-v2", {"folded": True}),
    ("vertex", "gemini-*", {"codec": "vertex_content", "texts": 1}),
    ("vertex", "gemini-embedding-001", {"codec": "vertex"}),
    ("vertex", "gemini-embedding-2", _PREFIXED),
    ("vertex", "*-maas", {"codec": "vertex_content", "texts": 1}),
    ("gemini", "gemini-embedding-2", _PREFIXED),
    ("voyage", "voyage-3.5", {"tokens": 320_000}),
    ("voyage", "voyage-4", {"tokens": 320_000}),
    ("voyage", "voyage-*-lite", {"tokens": 1_000_000}),
)
"""Models that differ from the rest of their provider's: (provider, pattern, fields)."""


def fold(text: str) -> str:
    """The text without accents, and with overlong words as unknown ones.

    BERT's original tokenizer does both; llama.cpp does the first for some scripts, and never the second.
    """
    bare = [each for each in unicodedata.normalize("NFD", text) if unicodedata.category(each) != "Mn"]
    return _LONG_WORD.sub("[UNK]", "".join(bare))


_LONG_WORD: Final = re.compile(r"[^\W_]{101,}")


def full_name(model: str) -> str:
    """The name of an embedding model: `local:` means the default one on this machine."""
    return "local:all-minilm-l6-v2" if model.lower() == "local:" else model


def profile_for(provider: Provider, model: str) -> EmbeddingProfile:
    """The profile of this model. Raises ConfigurationError for a provider without embeddings."""
    no_vectors = provider.dialect == "anthropic" or provider.name.startswith("bedrock-")
    if no_vectors or (provider.name in PROGRAMS and provider.chat):
        message = f"{provider.name} has no models that embed texts." if no_vectors else f"{model} makes no vectors."
        hint = "Use for instance voyage:voyage-3.5, openai:text-embedding-3-small, or local: (no key)."
        raise ConfigurationError(message, hint=hint)
    profile = PROFILES.get(provider.name, EmbeddingProfile())
    for name, pattern, fields in _MODELS:
        if name == provider.name and fnmatchcase(model, pattern):
            profile = msgspec.structs.replace(profile, **fields)
    if provider.name == "bedrock" and profile.codec == "openai":  # each vendor has its own form
        message = f"How {model} on Bedrock takes texts is not known here."
        hint = "Use a model whose name has amazon.titan-embed-text, amazon.nova-…-embeddings or cohere.embed in it."
        raise ConfigurationError(message, hint=hint)
    return profile


def adaptations_of(asked: Asked, provider: str) -> tuple[Adaptation, ...]:
    """The options that this model does not support."""
    found: list[Adaptation] = []
    tasks = asked.profile.tasks
    if asked.task is not None and asked.task not in tasks:
        known = f"{provider} knows {', '.join(tasks)}" if tasks else f"{provider} embeds all texts alike"
        found.append(Adaptation(f"task={asked.task!r}", f"left out: {known}"))
    if asked.truncate and not asked.profile.truncation:
        found.append(Adaptation("truncate=True", f"left out: {provider} decides itself about a text that is too long"))
    return tuple(found)
