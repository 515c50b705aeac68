"""Several models in the configuration: how each source names them, whose keys they get, and what a project may say."""

from __future__ import annotations

import pytest

from dragoman.chat import Config, new
from dragoman.engines import Fallback, FallbackEngine, RateLimiter, Secret
from dragoman.errors import ConfigFileError, ConfigurationError, MissingKeyError
from tests.chat.surroundings import Surroundings

NAMES = ("anthropic:claude-sonnet-4-5", "openai:gpt-5")


def test_every_source_can_name_several_and_the_nearest_wins_whole(here: Surroundings) -> None:
    here.user('model = ["anthropic:claude-sonnet-4-5", "gpt-5"]')
    loaded = here.load()
    assert loaded.config.model_names == NAMES
    assert (loaded.config.model_name, loaded.config.provider_name) == (NAMES[0], "anthropic")
    here.environ["DRAGOMAN_MODEL"] = "groq:llama-x, local:"
    assert here.load().config.model_names == ("groq:llama-x", "local:")
    del here.environ["DRAGOMAN_MODEL"]
    assert here.load(model=["gpt-4o", "claude-opus-4-1"]).config.model_names == (
        "openai:gpt-4o",
        "anthropic:claude-opus-4-1",
    )
    assert here.load(model="openai:gpt-4o").config.model_names == ("openai:gpt-4o",)
    # The provider of another source is that of the first; those behind it say theirs.
    assert here.load(provider="groq", model=["a", "openai:b"]).config.model_names == ("groq:a", "openai:b")
    with pytest.raises(ConfigurationError, match="does not say which provider"):
        _ = here.load(provider="groq", model=["a", "b"]).config.model_names
    assert Config(model=["gpt-5", "local:"]).model_names == ("openai:gpt-5", "local:")
    [row] = [row for row in loaded.explain() if row.field == "model"]
    assert row.value == '["claude-sonnet-4-5", "gpt-5"]'


def test_tables_of_fallback_and_limiter(here: Surroundings) -> None:
    here.user("""
        [fallback]
        on = ["overloaded", "timeout"]
        order = "latency"
        [limiter]
        requests = 50
        """)
    here.environ["DRAGOMAN_FALLBACK_ATTEMPTS"] = "4"
    config = here.load(model="openai:gpt-5", token="k").config
    assert config.fallback == Fallback(on=frozenset({"overloaded", "timeout"}), order="latency", attempts=4)
    assert config.for_engine()["limiter"] == RateLimiter(requests=50)
    here.environ["DRAGOMAN_FALLBACK_ON"] = "rate_limit, overloaded"
    assert here.load().config.fallback.on == {"rate_limit", "overloaded"}
    here.environ["DRAGOMAN_FALLBACK_ON"] = "rain"
    with pytest.raises(ConfigurationError, match=r"fallback\.on"):
        here.load()


def test_each_provider_gets_its_own_key(here: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    here.user('[keys.anthropic]\nenv = "THEIRS"')
    here.environ |= {"THEIRS": "one", "OPENAI_API_KEY": "two"}
    config = here.load(model=[*NAMES, "local:"]).config
    keys = config.for_engine(here.environ)["key"]
    assert keys == {"anthropic": Secret("one"), "openai": Secret("two")}
    for name, value in here.environ.items():
        monkeypatch.setenv(name, value)
    with new(here.load(model=NAMES).config) as client:
        assert isinstance(client.engine, FallbackEngine)
        assert [each.name for each in client.engine.engines] == list(NAMES)
    del here.environ["OPENAI_API_KEY"]
    with pytest.raises(MissingKeyError, match="openai"):
        config.for_engine(here.environ)
    with pytest.raises(ConfigurationError, match="belongs to one provider"):
        here.load(model=NAMES, token="k").config.for_engine(here.environ)
    same = here.load(model=["openai:gpt-5", "openai:gpt-4o"], token="k").config
    assert same.for_engine(here.environ)["key"] == Secret("k")


def test_a_project_may_name_known_providers_only_also_behind_the_first(here: Surroundings) -> None:
    here.says('model = ["gpt-5", "claude-sonnet-4-5"]')
    assert here.load().config.model_names == ("openai:gpt-5", "anthropic:claude-sonnet-4-5")
    here.says('model = ["gpt-5", "claude-local:default"]')
    with pytest.raises(ConfigFileError, match="a provider like 'claude-local'"):
        here.load()
    here.says("[limiter]\nrequests = 1")
    with pytest.raises(ConfigFileError, match=r"limiter\.requests"):
        here.load()
