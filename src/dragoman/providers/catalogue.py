"""The providers we know by name: where they are, which dialect they speak, and their models' profiles.

Owns: the rows of providers, which provider and model a name like `anthropic:claude-sonnet-4-5` means, and finding a
model's profile. Each dialect's package has the rows of its models.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from dragoman._checks import nearest
from dragoman.errors import ConfigurationError

from .codec import Codec
from .profile import Profile, ProfileRow, lay_over

Dialect: TypeAlias = Literal["openai_chat", "openai_responses", "anthropic", "gemini", "bedrock"]
"""The wire formats that there are codecs for."""

KeyHeader: TypeAlias = Literal["authorization", "x-api-key", "x-goog-api-key", "api-key"]

Cloud: TypeAlias = Literal["amazon", "azure", "google"]
"""Whose models are in a region, a project or a resource, and who has identities of its own: see engines/clouds."""


class Provider(Struct, frozen=True, kw_only=True):
    """A service that speaks one of the dialects."""

    name: str
    dialect: Dialect
    base_url: str
    """Up to and including what all paths have in common; the codec's paths come behind it. Empty: the user must say."""
    key_variables: tuple[str, ...] = ()
    """Environment variables that usually hold the key, the most specific first."""
    key_header: KeyHeader = "authorization"
    """The header that carries the key; `authorization` carries it as a bearer token."""
    token_header: KeyHeader | None = None
    """The header that carries a key that was made; None: the same."""
    needs_key: bool = True
    chat: bool = True
    """Whether it has models that answer; one that has not is there for its vectors."""
    cloud: Cloud | None = None
    """Set: address and key are worked out from region, project or resource, and who the program is."""
    models_of: str = ""
    """The provider whose models these are: its rows hold here, too."""
    quirks: frozenset[str] = frozenset()
    """Of all models here, beside those that their rows have."""

    @property
    def places(self) -> tuple[str, ...]:
        """What can be said of where it is, beside its address."""
        return () if self.cloud is None else _PLACES[self.cloud]


_PLACES: dict[Cloud, tuple[str, ...]] = {"amazon": ("region",), "azure": (), "google": ("region", "project")}


def _service(
    name: str,
    base_url: str,
    *key_variables: str,
    dialect: Dialect = "openai_chat",
    key_header: KeyHeader = "authorization",
    needs_key: bool = True,
    chat: bool = True,
) -> Provider:
    return Provider(
        name=name,
        dialect=dialect,
        base_url=base_url,
        key_variables=key_variables,
        key_header=key_header,
        needs_key=needs_key,
        chat=chat,
    )


def _in_cloud(
    cloud: Cloud, name: str, dialect: Dialect, *key_variables: str, models_of: str = "", quirks: str = ""
) -> Provider:
    return Provider(
        name=name,
        dialect=dialect,
        base_url="",
        key_variables=key_variables,
        key_header=_CLOUD_KEYS[cloud],
        token_header="authorization",  # noqa: S106 -- a name
        needs_key=False,
        cloud=cloud,
        models_of=models_of,
        quirks=frozenset(quirks.split()),
    )


_CLOUD_KEYS: dict[Cloud, KeyHeader] = {"amazon": "authorization", "azure": "api-key", "google": "x-goog-api-key"}
_AZURE_KEY, _AMAZON_KEY = "AZURE_OPENAI_API_KEY", "AWS_BEARER_TOKEN_BEDROCK"

PROVIDERS: dict[str, Provider] = {
    provider.name: provider
    for provider in (
        _service(
            "anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", dialect="anthropic", key_header="x-api-key"
        ),
        _service(
            "gemini",
            "https://generativelanguage.googleapis.com",
            *("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            dialect="gemini",
            key_header="x-goog-api-key",
        ),
        _service("openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
        _service("openai-responses", "https://api.openai.com/v1", "OPENAI_API_KEY", dialect="openai_responses"),
        _in_cloud("azure", "azure", "openai_chat", _AZURE_KEY, models_of="openai"),
        _in_cloud("azure", "azure-responses", "openai_responses", _AZURE_KEY, models_of="openai-responses"),
        _in_cloud("google", "vertex", "gemini", models_of="gemini", quirks="vertex"),
        _in_cloud("google", "vertex-claude", "anthropic", models_of="anthropic", quirks="vertex"),
        _in_cloud("amazon", "bedrock", "bedrock", _AMAZON_KEY),
        _in_cloud("amazon", "bedrock-mantle", "openai_responses", _AMAZON_KEY),
        _in_cloud("amazon", "bedrock-mantle-chat", "openai_chat", _AMAZON_KEY),
        _service(
            "openrouter-responses", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", dialect="openai_responses"
        ),
        _service("openai-compatible", "", "OPENAI_COMPATIBLE_API_KEY", needs_key=False),
        _service("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
        _service("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
        _service("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
        _service("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        _service("huggingface", "https://router.huggingface.co/v1", "HF_TOKEN"),
        _service("llamacpp", "http://127.0.0.1:8080/v1", "LLAMACPP_API_KEY", needs_key=False),
        _service("lmstudio", "http://127.0.0.1:1234/v1", "LMSTUDIO_API_KEY", needs_key=False),
        _service("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
        _service("ollama", "http://127.0.0.1:11434/v1", "OLLAMA_API_KEY", needs_key=False),
        _service("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        _service("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
        _service("vllm", "http://127.0.0.1:8000/v1", "VLLM_API_KEY", needs_key=False),
        _service("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
        _service("zai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
        _service("cohere", "https://api.cohere.com", "COHERE_API_KEY", "CO_API_KEY", chat=False),
        _service("voyage", "https://api.voyageai.com/v1", "VOYAGE_API_KEY", chat=False),
    )
}
"""By the name that stands before the model in `provider:model`."""

PROGRAMS: frozenset[str] = frozenset(["claude-local", "local"])
"""Providers that are no service but a program on this machine: engines know how to run them, and no model need be named
(`claude-local:`)."""

ALIASES: dict[str, str] = {"claude": "anthropic", "google": "gemini", "openai-chat": "openai"}

SIBLINGS: dict[str, tuple[tuple[str, str], ...]] = {"vertex": (("claude-*", "vertex-claude"),)}
"""Models of a provider that speak another dialect, and the row that does: (pattern, provider)."""

WELL_KNOWN_MODELS: tuple[tuple[str, str], ...] = (
    ("claude-*", "anthropic"),
    ("gemini-*", "gemini"),
    ("gpt-*", "openai"),
    ("chatgpt-*", "openai"),
    ("o1*", "openai"),
    ("o3*", "openai"),
    ("o4*", "openai"),
)
"""Models that need no provider before their name: (pattern, provider)."""


@cache
def codec_of(dialect: Dialect) -> Codec:
    """The codec of a dialect; its package is loaded now if it was not before."""
    encoding, decoding = (import_module(f"{__package__}.{dialect}.{part}") for part in ("encode", "decode"))
    return Codec(name=dialect, encode=encoding.encode_call, decoder=decoding.ReplyDecoder)


def profile_of(provider: str, model: str) -> Profile:
    """What the catalogue knows of a model. A name it does not know gets what holds for its provider."""
    if provider in PROGRAMS:
        return cast("dict[str, Profile]", import_module(f"{__package__}.programs").PROFILES)[provider]
    row = PROVIDERS[provider]
    package = import_module(f"{__package__}.{row.dialect}.profiles")
    base = cast("Profile", package.BASE).with_changes(provider=provider)
    rows = cast("tuple[ProfileRow, ...]", package.ROWS)
    if row.models_of:
        shared = lay_over(base.with_changes(provider=row.models_of), rows, model)
        base = shared.with_changes(provider=provider)
    found = lay_over(base, rows, model)
    if row.cloud is not None:  # clouds take the calls of their dialects, but not all of them search or count
        counts = found.counts_tokens and row.cloud != "azure"
        found = found.with_changes(counts_tokens=counts, tool_search=0)
    return found.with_changes(quirks=found.quirks | row.quirks) if row.quirks else found


# --- names of models --------------------------------------------------------------------------------------------------

_DELIMITER = re.compile(r"[:/]")


def divided(name: str) -> tuple[str, str] | None:
    """What stands before and behind the first `:` or `/`; later ones are the model's. None if there is neither."""
    delimiter = _DELIMITER.search(name)
    if delimiter is None:
        return None
    before, after = name[: delimiter.start()], name[delimiter.end() :]
    if not before or (not after and before.lower() not in PROGRAMS):
        side = "behind" if before else "before"
        message = f"{name!r} does not name a model: nothing stands {side} the {delimiter[0]!r}."
        raise ConfigurationError(message, hint="Write provider:model, e.g. anthropic:claude-sonnet-4-5.")
    return before, after


def split_model(name: str) -> tuple[str, str]:
    """The provider and the model that a name means."""
    if (parts := divided(name)) is not None:
        provider, model = provider_of(parts[0], name), parts[1]
        return next((row for like, row in SIBLINGS.get(provider, ()) if fnmatchcase(model, like)), provider), model
    for pattern, provider in WELL_KNOWN_MODELS:
        if name and fnmatchcase(name, pattern):
            return provider, name
    message = f"{name!r} does not say which provider has the model."
    hint = f"Write provider:model; the providers are {', '.join(sorted([*PROVIDERS, *PROGRAMS]))}."
    # A well-known model whose name begins almost like this one?
    first, dash, rest = name.partition("-")
    begins = [pattern.removesuffix("-*") for pattern, _ in WELL_KNOWN_MODELS if pattern.endswith("-*")]
    near = nearest(first, begins) if dash else ""
    raise ConfigurationError(message, hint=f"Did you mean {near}-{rest}? Otherwise: {hint}" if near else hint)


def provider_of(word: str, name: str | None = None) -> str:
    """The provider that a word means. `name` is the whole name that it was taken from, for the message."""
    lower = word.lower()
    provider = ALIASES.get(lower, lower)
    if provider in PROVIDERS or provider in PROGRAMS:
        return provider
    near = nearest(lower, [*PROVIDERS, *PROGRAMS, *ALIASES])
    meant = f"Did you mean {near}?" if near else f"The providers are {', '.join(sorted([*PROVIDERS, *PROGRAMS]))}."
    where = f" (in {name!r})" if name is not None else ""
    raise ConfigurationError(f"There is no provider {word!r}{where}.", hint=meant)
