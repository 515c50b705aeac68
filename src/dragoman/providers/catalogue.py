"""The known providers: their addresses, dialects and keys, and the profiles of their models.

Also parses names like `anthropic:claude-sonnet-4-5`. The rows of models are in each dialect's package.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

from dragoman._checks import nearest
from dragoman.errors import ConfigurationError

from .codec import Codec
from .profile import Profile, ProfileRow, apply_rows

Dialect: TypeAlias = Literal["openai_chat", "openai_responses", "anthropic", "gemini", "bedrock"]
"""The wire formats with a codec."""

KeyHeader: TypeAlias = Literal["authorization", "x-api-key", "x-goog-api-key", "api-key"]

Cloud: TypeAlias = Literal["amazon", "azure", "google"]
"""Clouds with regions, projects or resources, and identities of their own: see engines/clouds."""


class Provider(Struct, frozen=True, kw_only=True):
    """A service that speaks one of the dialects."""

    name: str
    dialect: Dialect = "openai_chat"
    base_url: str = ""
    """Everything before the codec's paths. Empty: the user must give it."""
    key_variables: tuple[str, ...] = ()
    """Environment variables that usually hold the key, the most specific first."""
    key_header: KeyHeader = "authorization"
    """The header that carries the key; `authorization` carries it as a bearer token."""
    token_header: KeyHeader | None = None
    """The header that carries a token obtained from a cloud; None: the same."""
    needs_key: bool = True
    chat: bool = True
    """Whether it has models that answer; one that has not is there for its embeddings."""
    cloud: Cloud | None = None
    """Set: address and key are derived from region, project or resource, and the identity of the program."""
    models_of: str = ""
    """The provider whose models these are: its profile rows apply here too."""
    quirks: frozenset[str] = frozenset()
    """Quirks of all models here, in addition to those in their rows."""

    @property
    def places(self) -> tuple[str, ...]:
        """The options that say where it is, besides the base URL."""
        return {"amazon": ("region",), "google": ("region", "project")}.get(self.cloud or "", ())


def _row(name: str, base_url: str = "", *key_variables: str, **fields: Any) -> Provider:
    return Provider(name=name, base_url=base_url, key_variables=key_variables, **fields)


_IN_CLOUD: dict[str, Any] = {"token_header": "authorization", "needs_key": False}
_AMAZON: dict[str, Any] = {**_IN_CLOUD, "cloud": "amazon", "key_variables": ("AWS_BEARER_TOKEN_BEDROCK",)}
_AZURE: dict[str, Any] = {
    **_IN_CLOUD,
    "cloud": "azure",
    "key_header": "api-key",
    "key_variables": ("AZURE_OPENAI_API_KEY",),
}
_VERTEX: dict[str, Any] = {
    **_IN_CLOUD,
    "cloud": "google",
    "key_header": "x-goog-api-key",
    "quirks": frozenset(["vertex"]),
}
_DONE = frozenset(["ends_with_done"])
_OPENAI, _OPENROUTER = "https://api.openai.com/v1", "https://openrouter.ai/api/v1"
_GEMINI = "https://generativelanguage.googleapis.com"
_RESPONSES = "openai_responses"

PROVIDERS: dict[str, Provider] = {
    provider.name: provider
    for provider in (
        _row(
            "anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", dialect="anthropic", key_header="x-api-key"
        ),
        _row("gemini", _GEMINI, "GEMINI_API_KEY", "GOOGLE_API_KEY", dialect="gemini", key_header="x-goog-api-key"),
        _row("openai", _OPENAI, "OPENAI_API_KEY", quirks=_DONE),
        _row("openai-responses", _OPENAI, "OPENAI_API_KEY", dialect=_RESPONSES),
        Provider(name="azure", models_of="openai", quirks=_DONE, **_AZURE),
        Provider(name="azure-responses", dialect=_RESPONSES, models_of="openai-responses", **_AZURE),
        Provider(name="vertex", dialect="gemini", models_of="gemini", **_VERTEX),
        Provider(name="vertex-claude", dialect="anthropic", models_of="anthropic", **_VERTEX),
        Provider(name="bedrock", dialect="bedrock", **_AMAZON),
        Provider(name="bedrock-mantle", dialect=_RESPONSES, **_AMAZON),
        Provider(name="bedrock-mantle-chat", **_AMAZON),
        _row("openrouter-responses", _OPENROUTER, "OPENROUTER_API_KEY", dialect=_RESPONSES),
        _row("openai-compatible", "", "OPENAI_COMPATIBLE_API_KEY", needs_key=False),
        _row("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
        _row("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", quirks=_DONE),
        _row("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
        _row("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", quirks=_DONE),
        _row("huggingface", "https://router.huggingface.co/v1", "HF_TOKEN"),
        _row("llamacpp", "http://127.0.0.1:8080/v1", "LLAMACPP_API_KEY", needs_key=False),
        _row("lmstudio", "http://127.0.0.1:1234/v1", "LMSTUDIO_API_KEY", needs_key=False),
        _row("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", quirks=_DONE),
        _row("ollama", "http://127.0.0.1:11434/v1", "OLLAMA_API_KEY", needs_key=False),
        _row("openrouter", _OPENROUTER, "OPENROUTER_API_KEY"),
        _row("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
        _row("vllm", "http://127.0.0.1:8000/v1", "VLLM_API_KEY", needs_key=False),
        _row("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
        _row("zai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY", quirks=_DONE),
        _row("cohere", "https://api.cohere.com", "COHERE_API_KEY", "CO_API_KEY", chat=False),
        _row("voyage", "https://api.voyageai.com/v1", "VOYAGE_API_KEY", chat=False),
    )
}
"""By the name before the model in `provider:model`."""

PROGRAMS: frozenset[str] = frozenset(["claude-local", "local"])
"""Providers that are a program on this machine; the model may be left out (`claude-local:`)."""

ALIASES: dict[str, str] = {"claude": "anthropic", "google": "gemini", "openai-chat": "openai"}

SIBLINGS: dict[str, tuple[tuple[str, str], ...]] = {"vertex": (("claude-*", "vertex-claude"),)}
"""Models of a provider that belong to another row, because of their dialect: (pattern, provider)."""

WELL_KNOWN_MODELS: tuple[tuple[str, str], ...] = (
    ("claude-*", "anthropic"),
    ("gemini-*", "gemini"),
    ("gpt-*", "openai"),
    ("chatgpt-*", "openai"),
    ("o1*", "openai"),
    ("o3*", "openai"),
    ("o4*", "openai"),
)
"""Models whose names need no provider: (pattern, provider)."""


@cache
def codec_of(dialect: Dialect) -> Codec:
    """The codec of a dialect; loads its package."""
    encoding, decoding = (import_module(f"{__package__}.{dialect}.{part}") for part in ("encode", "decode"))
    return Codec(name=dialect, encode=encoding.encode_call, decoder=decoding.ReplyDecoder)


def profile_of(provider: str, model: str) -> Profile:
    """The profile of a model; of an unknown model, what holds for its provider in general."""
    if provider in PROGRAMS:
        return cast("dict[str, Profile]", import_module(f"{__package__}.programs").PROFILES)[provider]
    row = PROVIDERS[provider]
    package = import_module(f"{__package__}.{row.dialect}.profiles")
    base = cast("Profile", package.BASE).with_changes(provider=provider)
    rows = cast("tuple[ProfileRow, ...]", package.ROWS)
    if row.models_of:
        shared = apply_rows(base.with_changes(provider=row.models_of), rows, model)
        base = shared.with_changes(provider=provider)
    found = apply_rows(base, rows, model)
    if row.cloud is not None:  # clouds have no tool search, and Azure does not count tokens
        counts = found.counts_tokens and row.cloud != "azure"
        found = found.with_changes(counts_tokens=counts, tool_search=0)
    return found.with_changes(quirks=found.quirks | row.quirks) if row.quirks else found


# --- names of models --------------------------------------------------------------------------------------------------

_DELIMITER = re.compile(r"[:/]")


def divided(name: str) -> tuple[str, str] | None:
    """Split a name at the first `:` or `/`; later ones belong to the model. None if there is neither."""
    delimiter = _DELIMITER.search(name)
    if delimiter is None:
        return None
    before, after = name[: delimiter.start()], name[delimiter.end() :]
    if not before or (not after and before.lower() not in PROGRAMS):
        side = "after" if before else "before"
        message = f"{name!r} does not name a model: there is nothing {side} the {delimiter[0]!r}."
        raise ConfigurationError(message, hint="Write provider:model, e.g. anthropic:claude-sonnet-4-5.")
    return before, after


def split_model(name: str) -> tuple[str, str]:
    """The provider and the model of a name."""
    if (parts := divided(name)) is not None:
        provider, model = provider_of(parts[0], name), parts[1]
        return next((row for like, row in SIBLINGS.get(provider, ()) if fnmatchcase(model, like)), provider), model
    for pattern, provider in WELL_KNOWN_MODELS:
        if name and fnmatchcase(name, pattern):
            return provider, name
    message = f"{name!r} does not say which provider has the model."
    hint = f"Write provider:model; the providers are {', '.join(sorted([*PROVIDERS, *PROGRAMS]))}."
    # Is it the misspelled name of a well-known model?
    first, dash, rest = name.partition("-")
    begins = [pattern.removesuffix("-*") for pattern, _ in WELL_KNOWN_MODELS if pattern.endswith("-*")]
    near = nearest(first, begins) if dash else ""
    raise ConfigurationError(message, hint=f"Did you mean {near}-{rest}? Otherwise: {hint}" if near else hint)


def provider_of(word: str, name: str | None = None) -> str:
    """The provider with this name or alias. `name` is the whole model name, for the error message."""
    lower = word.lower()
    provider = ALIASES.get(lower, lower)
    if provider in PROVIDERS or provider in PROGRAMS:
        return provider
    near = nearest(lower, [*PROVIDERS, *PROGRAMS, *ALIASES])
    meant = f"Did you mean {near}?" if near else f"The providers are {', '.join(sorted([*PROVIDERS, *PROGRAMS]))}."
    where = f" (in {name!r})" if name is not None else ""
    raise ConfigurationError(f"There is no provider {word!r}{where}.", hint=meant)
