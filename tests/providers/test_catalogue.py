"""The rows of providers and models: each of them can be used as it stands."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from importlib import import_module
from typing import get_args

import msgspec
import pytest

from dragoman.providers.catalogue import (
    ALIASES,
    PROVIDERS,
    WELL_KNOWN_MODELS,
    Dialect,
    Provider,
    codec_of,
    profile_of,
)
from dragoman.providers.options import ModelOptions
from dragoman.providers.profile import Profile, ProfileRow, SchemaStyle, lay_over

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
def test_providers(provider: Provider) -> None:
    assert PROVIDERS[provider.name] is provider
    assert re.fullmatch(r"[a-z][a-z0-9-]*", provider.name)
    assert provider.dialect in DIALECTS
    if provider.base_url:
        assert re.fullmatch(r"(https://[a-z0-9.-]+|http://127\.0\.0\.1:\d+)(/[a-z0-9/.]+)?", provider.base_url)
        assert not provider.base_url.endswith("/")
    assert provider.key_variables or not provider.needs_key
    assert all(re.fullmatch(r"[A-Z][A-Z0-9_]*", variable) for variable in provider.key_variables)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_model_that_no_row_knows_gets_what_holds_for_its_provider(provider: str) -> None:
    profile = profile_of(provider, "a-model-of-the-future")
    assert profile.provider == provider
    assert profile.dialect == PROVIDERS[provider].dialect
    check(profile)


@pytest.mark.parametrize("row", ROWS)
def test_every_row_of_models_fits(row: ProfileRow) -> None:
    assert row.fields
    assert set(row.fields) <= set(Profile.__struct_fields__) - {"provider", "dialect"}
    base = next(base_of(dialect) for dialect in DIALECTS if row in rows_of(dialect))
    for pattern in row.models:
        name = re.sub(r"\[(.)[^]]*\]", r"\1", pattern).replace("*", "x").replace("?", "1")
        assert fnmatchcase(name, pattern)
        check(lay_over(base.with_changes(provider=row.provider), rows_of(base.dialect), name))


def check(profile: Profile) -> None:
    """A profile holds what its types say, although its rows are written as plain data."""
    assert msgspec.json.decode(msgspec.json.encode(profile), type=Profile) == profile
    assert profile.unsupported <= set(ModelOptions.__struct_fields__)
    assert profile.tool_choices <= {"auto", "none", "required", "tool"}
    assert profile.media_urls <= {"image", "document", "audio", "video"}
    assert profile.tool_schema in get_args(SchemaStyle)
    assert re.compile(profile.tool_limits.name_pattern).fullmatch("legal_name")
    if profile.strict_tools:
        assert profile.tool_schema != "gemini"


def test_aliases_and_well_known_models_lead_to_providers() -> None:
    assert set(ALIASES.values()) <= PROVIDERS.keys()
    assert {provider for _, provider in WELL_KNOWN_MODELS} <= PROVIDERS.keys()
    assert all(pattern.endswith("*") for pattern, _ in WELL_KNOWN_MODELS)


def test_looking_up_a_profile_loads_no_codec_of_another_dialect() -> None:
    assert profile_of("anthropic", "claude-sonnet-4-5").dialect == "anthropic"
    with pytest.raises(KeyError):
        profile_of("nobody", "m")
