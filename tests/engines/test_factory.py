from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.conversation import Conversation, Message, ToolSpec
from dragoman.engines import (
    AsyncScriptedEngine,
    ProviderFactory,
    ScriptedEngine,
    Secret,
    async_engine,
    engine,
    factory,
    register_provider,
)
from dragoman.engines.factory import connection
from dragoman.errors import AuthenticationError, ConfigurationError, InvalidBaseURLError
from dragoman.providers import profile_of
from dragoman.simulator import Simulator

ASKED = Conversation().plus(Message.user("Hi"))


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(autouse=True)
def _nothing_registered() -> Iterator[None]:
    yield
    factory._registered.clear()


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("anthropic:claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5"),
        ("openrouter/meta-llama/llama-4:free", "openrouter", "meta-llama/llama-4:free"),
        ("claude:claude-opus-4-6", "anthropic", "claude-opus-4-6"),
        ("gpt-4o", "openai", "gpt-4o"),
        ("gemini-2.5-flash", "gemini", "gemini-2.5-flash"),
    ],
)
def test_names(name: str, provider: str, model: str) -> None:
    found = connection(name, key="k")
    assert (found.provider.name, found.model) == (provider, model)
    assert found.name == f"{provider}:{model}"


def test_an_unknown_provider_names_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match="anthropic"):
        engine("antropic:claude-sonnet-4-5", key="k")


def test_the_key_is_found_in_the_usual_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "second")
    assert connection("gemini:x").key == Secret("second")
    monkeypatch.setenv("GEMINI_API_KEY", "first")
    assert connection("gemini:x").key == Secret("first")
    assert connection("gemini:x", key="given").key == Secret("given")
    assert connection("gemini:x", key=Secret("given")).key == Secret("given")


def test_a_key_from_the_environment_goes_to_its_own_provider_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    with pytest.raises(ConfigurationError, match="no key for openai.*OPENAI_API_KEY"):
        connection("openai:gpt-4o", base_url="https://elsewhere.test/v1")


def test_a_missing_key_says_where_it_is_looked_for() -> None:
    with pytest.raises(ConfigurationError, match="no key for anthropic.*ANTHROPIC_API_KEY"):
        engine("anthropic:claude-sonnet-4-5")
    assert connection("ollama:qwen3").key is None


def test_a_compatible_server_needs_its_address() -> None:
    with pytest.raises(ConfigurationError, match="no address of its own.*base_url"):
        engine("openai-compatible:m")
    with pytest.raises(InvalidBaseURLError):
        engine("openai-compatible:m", base_url="http://elsewhere.test/v1")
    assert connection("openai-compatible:m", base_url="http://elsewhere.test/v1", allow_insecure_base_url=True)


def test_a_profile_can_be_changed_or_replaced() -> None:
    known = profile_of("openai", "gpt-4o")
    assert connection("openai:gpt-4o", key="k").profile == known
    assert connection("openai:gpt-4o", key="k", profile={"tools": False}).profile == known.with_changes(tools=False)
    other = known.with_changes(context_window=1)
    assert connection("openai:gpt-4o", key="k", profile=other).profile is other
    with pytest.raises(ConfigurationError, match="no field 'tolls'"):
        connection("openai:gpt-4o", key="k", profile={"tolls": False})


def test_what_an_engine_tells_without_sending_anything() -> None:
    with engine("anthropic:claude-sonnet-4-5", key="k") as claude:
        assert claude.name == "anthropic:claude-sonnet-4-5"
        assert claude.features.supports_tools
        assert claude.features.supports_media_results
        assert "tool" in claude.features.supported_choices
        [tool] = claude.prepare_tools([ToolSpec("weather", "Look outside.")])
        assert tool["name"] == "weather"
        assert claude.losses(ASKED) == claude.losses(Conversation("Be brief.")) == ()
        assert repr(claude) == "<HttpEngine anthropic:claude-sonnet-4-5>"


@pytest.mark.parametrize("key", ["with space ", "line\nend", "schlüssel", "\x00"])
def test_a_key_that_cannot_be_one_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(AuthenticationError, match="Copy it again") as caught:
        engine("openai:gpt-4o", key=key)
    assert key.strip() not in str(caught.value)


def test_a_secret_does_not_show_itself() -> None:
    secret = Secret("sk-very-secret")
    assert "very" not in f"{secret} {secret!r} {[secret]} {connection('openai:gpt-4o', key=secret)!r}"
    assert secret.reveal() == "sk-very-secret"
    assert secret == Secret("sk-very-secret") != Secret("other")
    assert len({secret, Secret("sk-very-secret")}) == 1
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(secret)


class Parrots(ProviderFactory):
    def engine(self, model: str, **options: Any) -> Any:
        return ScriptedEngine([model], name=f"parrot:{model}")


class AsyncParrots(ProviderFactory):
    def async_engine(self, model: str, **options: Any) -> Any:
        return AsyncScriptedEngine([model], name=f"parrot:{model}")


def test_third_parties_register_their_providers() -> None:
    register_provider("parrot", Parrots())
    with engine("parrot:polly/1") as polly:
        assert polly.run_inference(ASKED).text == "polly/1"
    with pytest.raises(ConfigurationError, match="offers no engine for async programs"):
        async_engine("parrot:polly")
    with pytest.raises(ConfigurationError, match="already.*replace=True"):
        register_provider("parrot", AsyncParrots())
    with pytest.raises(ConfigurationError, match="already"):
        register_provider("openai", Parrots())
    register_provider("parrot", AsyncParrots(), replace=True)

    async def main() -> str:
        async with async_engine("parrot/polly") as polly:
            return (await polly.run_inference(ASKED)).text

    assert asyncio.run(main()) == "polly"
    with pytest.raises(ConfigurationError, match="plain programs"):
        engine("parrot:polly")


def test_installed_packages_offer_providers_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        def load(self) -> type[Parrots]:
            return Parrots

    def points(*, group: str, name: str) -> list[Point]:
        assert group == "dragoman.providers"
        return [Point()] if name == "parrot" else []

    monkeypatch.setattr("importlib.metadata.entry_points", points)
    with engine("parrot:polly") as polly:
        assert polly.run_inference(ASKED).text == "polly"
    with pytest.raises(ConfigurationError):
        engine("macaw:polly")


def test_headers_and_user_agent_are_sent() -> None:
    with Simulator(["Hello."]) as simulator:
        base_url = simulator.base_url("openai")
        with engine("openai:gpt-4o", key="sk-1", base_url=base_url, headers={"x-team": "a"}) as gpt:
            gpt.run_inference(ASKED)
        headers = simulator.requests[0].headers
    assert headers["authorization"] == "Bearer sk-1"
    assert headers["x-team"] == "a"
    assert headers["user-agent"].startswith("dragoman/")
