"""Engines by name, and what is sent for a call."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.conversation import Conversation, Message, ToolSpec
from dragoman.engines import (
    AsyncHttpEngine,
    AsyncScriptedEngine,
    Connection,
    HttpEngine,
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
from dragoman.providers import ModelOptions, profile_of
from dragoman.simulator import Simulator
from dragoman.transport import AsyncioTransport, HttpRequest, Response, SocketTransport, Transport

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
def test_model_names(name: str, provider: str, model: str) -> None:
    found = connection(name, key="k")
    assert (found.provider.name, found.model) == (provider, model)
    assert found.name == f"{provider}:{model}"


def test_keys_are_sent_only_to_their_own_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="no key for anthropic.*ANTHROPIC_API_KEY"):
        engine("anthropic:claude-sonnet-4-5")
    assert connection("ollama:qwen3").key is None
    monkeypatch.setenv("GOOGLE_API_KEY", "second")
    assert connection("gemini:x").key == Secret("second")
    monkeypatch.setenv("GEMINI_API_KEY", "first")
    assert connection("gemini:x").key == Secret("first")
    assert connection("gemini:x", key="given").key == Secret("given")
    assert connection("gemini:x", key=Secret("given")).key == Secret("given")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    with pytest.raises(ConfigurationError, match="no key for openai.*OPENAI_API_KEY"):
        connection("openai:gpt-4o", base_url="https://elsewhere.test/v1")


def test_invalid_names_and_addresses_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="anthropic"):
        engine("antropic:claude-sonnet-4-5", key="k")
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


def test_properties_of_an_engine() -> None:
    with engine("anthropic:claude-sonnet-4-5", key="k") as claude:
        assert claude.name == "anthropic:claude-sonnet-4-5"
        assert claude.features.supports_media_results
        assert "tool" in claude.features.supported_choices
        [tool] = claude.prepare_tools([ToolSpec("weather", "Look outside.")])
        assert tool["name"] == "weather"
        assert claude.losses(ASKED) == claude.losses(Conversation("Be brief.")) == ()
        assert repr(claude) == "<HttpEngine anthropic:claude-sonnet-4-5>"


def test_parallel_calls_feature() -> None:
    """Several calls in one reply are `parallel`, whether or not that can be switched off."""
    parallel = {"openai:gpt-4o": True, "gemini:gemini-2.5-flash": True, "claude-local:": True, "local:": False}
    found = {model: engine(model, key="k").features for model in parallel}
    assert {model: each.supports_parallel_calls for model, each in found.items()} == parallel
    assert all(each.supports_tools for each in found.values())


@pytest.mark.parametrize("key", ["with space ", "line\nend", "schlüssel", "\x00"])
def test_an_invalid_key_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(AuthenticationError, match="Copy it again") as caught:
        engine("openai:gpt-4o", key=key)
    assert key.strip() not in str(caught.value)


class Parrots(ProviderFactory):
    def engine(self, model: str, **options: Any) -> Any:
        return ScriptedEngine([model], name=f"parrot:{model}")


class AsyncParrots(ProviderFactory):
    def async_engine(self, model: str, **options: Any) -> Any:
        return AsyncScriptedEngine([model], name=f"parrot:{model}")


def test_registering_a_provider() -> None:
    register_provider("parrot", Parrots())
    with engine("parrot:polly/1") as polly:
        assert polly.run_inference(ASKED).text == "polly/1"
    with pytest.raises(ConfigurationError, match="has no engine for async programs"):
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
    with pytest.raises(ConfigurationError, match="sync programs"):
        engine("parrot:polly")


def test_providers_from_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
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


# --- what is sent for a call: address, headers and key ---


class Keeper(Transport):
    """Records the request, and sends nothing."""

    async def open(self, request: HttpRequest) -> Response:
        self.request = request
        raise ConfigurationError("kept")

    async def aclose(self) -> None:
        pass


def request_of(connection: Connection, options: ModelOptions | None = None, *, stream: bool = False) -> HttpRequest:
    keeper = Keeper()
    talker = HttpEngine(connection, keeper)
    with pytest.raises(ConfigurationError, match="kept"):
        list(talker.stream(ASKED, options=options)) if stream else talker.reply(ASKED, options=options)
    return keeper.request


def test_each_call_has_its_own_headers_and_address() -> None:
    own = ModelOptions(max_tokens=9)
    there = connection("anthropic:claude-sonnet-4-5", key="k", headers={"x-team": "a"}, options=own)
    headers = request_of(there).headers
    assert (headers["x-team"], headers["x-api-key"], headers["accept"]) == ("a", "k", "application/json")
    assert headers["user-agent"].startswith("dragoman/")
    assert request_of(there, stream=True).headers["accept"] == "text/event-stream"
    further = ModelOptions(max_tokens=9, extra_headers={"x-trace": "1", "X-Api-Key": "not this one"})
    assert request_of(there, further).headers["x-trace"] == "1"
    assert request_of(there, further).headers["x-api-key"] == "k"
    assert "x-trace" not in request_of(there).headers
    assert request_of(connection("openai:gpt-4o", key="k")).headers["authorization"] == "Bearer k"
    there = connection("gemini:gemini-2.5-flash", key="k", base_url="https://proxy.test/g?team=a")
    assert request_of(there).url == "https://proxy.test/g/v1beta/models/gemini-2.5-flash:generateContent?team=a"
    assert request_of(there, stream=True).url.endswith(":streamGenerateContent?alt=sse&team=a")
    assert request_of(there) == request_of(there)


@pytest.mark.parametrize(
    ("make", "transport", "fitting"),
    [(HttpEngine, AsyncioTransport, "SocketTransport"), (AsyncHttpEngine, SocketTransport, "AsyncioTransport")],
)
def test_a_transport_of_the_other_kind_is_refused(make: Any, transport: Any, fitting: str) -> None:
    with pytest.raises(ConfigurationError, match=f"cannot use {transport.__name__}.*{fitting}"):
        make(connection("openai:gpt-4o", key="k"), transport())


def test_a_turn_creates_no_garbage_cycles() -> None:
    """Cycles are freed only by the garbage collector, which costs more than the turn."""
    with (
        Simulator(lambda request: "Hello") as simulator,
        engine("openai:gpt-4o", base_url=f"{simulator.url}/v1", key="k") as model,
    ):
        for _ in range(3):
            model.run_inference(ASKED)
        gc.collect()
        gc.disable()
        gc.freeze()  # ignore garbage of earlier tests
        try:
            for _ in range(20):
                model.run_inference(ASKED)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            ours = [value for value in gc.garbage if type(value).__module__.startswith("dragoman.")]
            assert [value for value in ours if "simulator" not in type(value).__module__] == []
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.unfreeze()
            gc.enable()
