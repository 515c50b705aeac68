"""Profiles, the catalogue of providers, and the names of models."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from importlib import import_module
from typing import get_args

import msgspec
import pytest

from dragoman.errors import ConfigurationError
from dragoman.providers import (
    PROVIDERS,
    Dialect,
    ModelOptions,
    Profile,
    ProfileRow,
    Provider,
    codec_of,
    profile_of,
    provider_of,
    split_model,
)
from dragoman.providers.profile import SchemaStyle, apply_rows

BASE = Profile(provider="p", dialect="d", media=frozenset(["image"]))


def test_a_profile_as_json() -> None:
    changed = BASE.with_changes(unsupported=frozenset(["seed"]), renamed={"max_tokens": "n"})
    data = msgspec.json.encode(changed)
    assert msgspec.json.decode(data, type=Profile) == changed
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"provider":"p","dialect":"d","unheard":1}', type=Profile)


# --- the catalogue ---

DIALECTS: tuple[Dialect, ...] = get_args(Dialect)


def base_of(dialect: str) -> Profile:
    return import_module(f"dragoman.providers.{dialect}.profiles").BASE


def rows_of(dialect: str) -> tuple[ProfileRow, ...]:
    return import_module(f"dragoman.providers.{dialect}.profiles").ROWS


ROWS = [
    pytest.param(row, id=f"{d}:{row.provider}:{row.models[0]}:{n}")
    for d in DIALECTS
    for n, row in enumerate(rows_of(d))
]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_has_a_codec_and_a_profile(dialect: Dialect) -> None:
    assert codec_of(dialect).name == dialect
    assert base_of(dialect).dialect == dialect


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=lambda provider: provider.name)
def test_rows_of_providers_are_well_formed(provider: Provider) -> None:
    assert PROVIDERS[provider.name] is provider
    assert re.fullmatch(r"[a-z][a-z0-9-]*", provider.name)
    assert provider.dialect in DIALECTS
    if provider.base_url:
        assert re.fullmatch(r"(https://[a-z0-9.-]+|http://127\.0\.0\.1:\d+)(/[a-z0-9/.]+)?", provider.base_url)
        assert not provider.base_url.endswith("/")
    assert provider.key_variables or not provider.needs_key
    assert all(re.fullmatch(r"[A-Z][A-Z0-9_]*", variable) for variable in provider.key_variables)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_unknown_model_gets_the_profile_of_its_provider(provider: str) -> None:
    profile = profile_of(provider, "a-model-of-the-future")
    assert profile.provider == provider
    assert profile.dialect == PROVIDERS[provider].dialect
    check(profile)


@pytest.mark.parametrize("row", ROWS)
def test_rows_of_models_are_well_formed(row: ProfileRow) -> None:
    assert row.fields
    assert set(row.fields) <= set(Profile.__struct_fields__) - {"provider", "dialect"}
    base = next(base_of(dialect) for dialect in DIALECTS if row in rows_of(dialect))
    for pattern in row.models:
        name = re.sub(r"\[(.)[^]]*\]", r"\1", pattern).replace("*", "x").replace("?", "1")
        assert fnmatchcase(name, pattern)
        check(apply_rows(base.with_changes(provider=row.provider), rows_of(base.dialect), name))


def check(profile: Profile) -> None:
    """A profile holds what its types say, although its rows are written as plain data."""
    assert msgspec.json.decode(msgspec.json.encode(profile), type=Profile) == profile
    assert profile.unsupported <= set(ModelOptions.__struct_fields__)
    assert profile.tool_choices <= {"auto", "none", "required", "tool"}
    assert profile.media_urls <= {"image", "document", "audio", "video"}
    assert profile.tool_schema in get_args(SchemaStyle)
    assert re.compile(profile.tool_limits.name_pattern).fullmatch("legal_name")


# --- what is known of particular models ---

KNOWN: list[tuple[str, str, dict[str, object]]] = [
    ("anthropic", "claude-3-5-sonnet-20241022", {"reasoning": "none", "structured": "tool", "context_window": 200_000}),
    ("anthropic", "claude-opus-4-1-20250805", {"reasoning": "budget", "structured": "native"}),
    ("anthropic", "claude-opus-5", {"reasoning": "adaptive", "context_window": 1_000_000}),
    ("gemini", "gemini-2.5-flash-lite", {"reasoning": "budget", "quirks": frozenset(["no_combinations"])}),
    ("gemini", "gemini-3-pro-image-preview", {"tools": False, "efforts": frozenset(["high"])}),
    ("gemini", "gemini-3.8-flash", {"efforts": frozenset(["low", "medium", "high"])}),
    ("gemini", "gemini-3.8-flash-lite", {"efforts": frozenset(["minimal", "low", "medium", "high"])}),
    ("gemini", "gemini-9-ultra", {"quirks": frozenset(["thought_signatures", "tool_invocations"])}),
    ("openai", "gpt-3.5-turbo", {"structured": "tool", "media": frozenset()}),
    ("openai", "gpt-5.2-chat-latest", {"reasoning": "none"}),
    ("openai", "gpt-6-astra", {"tools": False, "efforts": frozenset(["low", "medium", "high", "xhigh"])}),
    ("bedrock-mantle", "openai.gpt-5.6-luna", {"quirks": frozenset(["reasons_unless_told", "reply_scoped_call_ids"])}),
    ("bedrock-mantle", "openai.gpt-oss-120b", {"quirks": frozenset(["no_encrypted_reasoning"])}),
    ("openrouter-responses", "openai/gpt-oss-20b", {"quirks": frozenset(["no_encrypted_reasoning"])}),
]


@pytest.mark.parametrize(("provider", "model", "fields"), KNOWN)
def test_profiles_of_models(provider: str, model: str, fields: dict[str, object]) -> None:
    prefixes = ["", "models/", "projects/p/locations/l/publishers/google/models/"] if provider == "gemini" else [""]
    for prefix in prefixes:
        profile = profile_of(provider, prefix + model)
        assert {name: getattr(profile, name) for name in fields} == fields


RESPONSES: dict[str, tuple[str, bool]] = {
    **dict.fromkeys(["gpt-4o", "ft:gpt-4o-2024-08-06:org::id", "gpt-5-chat-latest"], ("", True)),
    **dict.fromkeys(["o1", "o3-mini", "gpt-5-codex", "computer-use-preview"], ("low medium high", False)),
    **dict.fromkeys(["o4-mini-deep-research", "gpt-5.1-chat-latest"], ("medium", False)),
    "gpt-5": ("minimal low medium high", False),
    "gpt-5-pro": ("high", False),
    "gpt-5.1": ("none low medium high", True),
    "gpt-5.1-codex-max": ("low medium high xhigh", False),
    "gpt-5.2": ("none low medium high xhigh", True),
    **dict.fromkeys(["gpt-5.2-pro", "gpt-5.5-pro-2026-04-23"], ("medium high xhigh", False)),
    **dict.fromkeys(["gpt-5.6-sol", "gpt-7-nova"], ("none low medium high xhigh max", True)),
}
"""Models of the Responses API, the efforts that they know (none: they do not reason), whether they take sampling."""


@pytest.mark.parametrize("model", RESPONSES)
def test_models_of_the_responses_api(model: str) -> None:
    efforts, sampling = RESPONSES[model]
    profile = profile_of("openai-responses", model)
    assert (profile.reasoning != "none") == bool(efforts)
    assert profile.efforts == set(efforts.split())
    assert ("temperature" not in profile.unsupported) == sampling
    assert profile_of("openrouter-responses", f"openai/{model}").efforts == profile.efforts


# --- names of models ---

SPLIT = [
    ("anthropic:claude-sonnet-4-5", ("anthropic", "claude-sonnet-4-5")),
    ("openai/gpt-5", ("openai", "gpt-5")),
    ("openrouter:anthropic/claude-3.5:beta", ("openrouter", "anthropic/claude-3.5:beta")),
    ("ollama/llama3:8b", ("ollama", "llama3:8b")),
    ("claude:claude-x", ("anthropic", "claude-x")),
    ("Google:gemini-2.5-pro", ("gemini", "gemini-2.5-pro")),
    ("claude-opus-4-5", ("anthropic", "claude-opus-4-5")),
    ("gemini-3-pro", ("gemini", "gemini-3-pro")),
    ("gpt-4o", ("openai", "gpt-4o")),
    ("o3-mini", ("openai", "o3-mini")),
]


@pytest.mark.parametrize(("name", "parts"), SPLIT)
def test_names_are_split_at_the_first_delimiter(name: str, parts: tuple[str, str]) -> None:
    assert split_model(name) == parts


@pytest.mark.parametrize("name", [":gpt-4o", "openai:", "/x", "gemini/"])
def test_a_name_without_provider_or_model_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="there is nothing"):
        split_model(name)


def test_the_nearest_provider_is_suggested() -> None:
    with pytest.raises(ConfigurationError, match=r"no provider 'anthropc' \(in 'anthropc:x'\).*Did you mean anthropic"):
        split_model("anthropc:x")
    with pytest.raises(ConfigurationError, match="The providers are anthropic, azure, azure-responses"):
        split_model("zzzzzz:x")
    with pytest.raises(ConfigurationError, match="no provider 'opnai'"):
        provider_of("opnai")


@pytest.mark.parametrize("name", ["llama3", "", "my-model"])
def test_an_unknown_model_needs_a_provider(name: str) -> None:
    with pytest.raises(ConfigurationError, match="does not say which provider"):
        split_model(name)
