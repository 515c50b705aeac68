"""Names of models."""

from __future__ import annotations

import pytest

from dragoman.errors import ConfigurationError
from dragoman.providers.catalogue import ALIASES, PROVIDERS, provider_of, split_model

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
def test_the_first_delimiter_divides(name: str, parts: tuple[str, str]) -> None:
    assert split_model(name) == parts


@pytest.mark.parametrize("name", [":gpt-4o", "openai:", "/x", "gemini/"])
def test_a_half_is_missing(name: str) -> None:
    with pytest.raises(ConfigurationError, match="nothing stands"):
        split_model(name)


def test_an_unknown_provider_gets_the_nearest_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"no provider 'anthropc' \(in 'anthropc:x'\).*Did you mean anthropic"):
        split_model("anthropc:x")
    with pytest.raises(ConfigurationError, match="The providers are anthropic, azure-responses"):
        split_model("zzzzzz:x")
    with pytest.raises(ConfigurationError, match="no provider 'opnai'"):
        provider_of("opnai")


@pytest.mark.parametrize("name", ["llama3", "", "my-model"])
def test_a_model_that_nobody_knows_needs_its_provider(name: str) -> None:
    with pytest.raises(ConfigurationError, match="does not say which provider"):
        split_model(name)


def test_aliases_lead_to_providers() -> None:
    assert set(ALIASES.values()) <= PROVIDERS.keys()
    assert not ALIASES.keys() & PROVIDERS.keys()
