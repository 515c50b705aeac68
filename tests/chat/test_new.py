"""Clients from a configuration, in both colours."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dragoman.chat import Config, new, new_async
from dragoman.conversation import ToolCall
from dragoman.errors import MissingKeyError, StepLimitError
from dragoman.loop import Limits
from dragoman.providers import ModelOptions
from dragoman.simulator import Reply, Simulator
from dragoman.tools import ToolConfig
from dragoman.transport import RetryPolicy, Timeouts
from tests.chat.scenarios import add


@dataclass
class Place:
    city: str


def _config(simulator: Simulator, **more: Any) -> Config:
    fields = {"provider": "openai", "model": "gpt-4o", "token": "k", "base_url": simulator.base_url("openai")}
    return Config(**{**fields, **more})


def test_every_setting_of_a_config_applies() -> None:
    calls = [Reply(ToolCall(f"c{number}", "add", '{"a": 1, "b": 2}')) for number in range(5)]
    with Simulator(["Hi.", '{"city": "Lyon"}', *calls]) as simulator:
        config = _config(
            simulator,
            system_prompt="Be brief.",
            response_schema=Place,
            schema_name="a_place",
            max_steps=2,
            max_tokens=7,
            headers={"x-team": "a"},
            retry=RetryPolicy(max_attempts=7),
            strict=True,
            model_profile={"context_window": 5000},
        )
        with new(config, [add]) as client:
            connection = client.engine.connection  # type: ignore[attr-defined]
            assert (connection.retry.max_attempts, connection.strict) == (7, True)
            assert connection.profile.context_window == 5000
            assert str(client.chat("Hello")) == "Hi."
            assert client.ask("Where?") == Place("Lyon")
            with pytest.raises(StepLimitError, match=r"max iterations \(2\) reached"):
                client.chat("Add.")
        first, asked, *_ = simulator.requests
        assert first.system == "Be brief."
        assert 7 in first.body.values()
        assert first.headers["x-team"] == "a"
        assert b"a_place" in asked.raw


@pytest.mark.parametrize("asynchronous", [False, True])
def test_options_are_merged_field_by_field(asynchronous: bool) -> None:
    calls = [Reply(ToolCall(f"c{number}", "add", '{"a": 1, "b": 2}')) for number in range(9)]
    with Simulator(["Hi.", *calls]) as simulator:
        config = _config(
            simulator, max_tokens=7, max_steps=3, options=ModelOptions(temperature=0.5), timeouts=Timeouts(connect=3)
        )
        near: dict[str, Any] = {
            "options": ModelOptions(seed=1),
            "limits": Limits(seconds=60),
            "timeouts": Timeouts(read=9),
            "tool_config": ToolConfig(budgets={"add": 50}),
        }
        with pytest.raises(StepLimitError, match=r"max iterations \(3\) reached"):
            asyncio.run(_talk(config, near)) if asynchronous else _chat(config, near)
        body = simulator.requests[0].body
        assert (body["temperature"], body["seed"]) == (0.5, 1)
        assert 7 in body.values(), "the limit of tokens is still the configuration's"
        assert len(simulator.requests) == 4


def _chat(config: Config, options: dict[str, Any]) -> None:
    with new(config, [add], **options) as client:
        connection = client.engine.connection  # type: ignore[attr-defined]
        assert (connection.timeouts.connect, connection.timeouts.read) == (3, 9)
        client.chat("Hello")
        client.chat("Add.")


async def _talk(config: Config, options: dict[str, Any]) -> None:
    async with new_async(config, [add], **options) as client:
        await client.chat("Hello")
        await client.chat("Add.")


def test_a_key_argument_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with Simulator(["Hi.", "Hi."], api_key="k2") as simulator:
        url = simulator.base_url("openai")
        for config, more in (
            (Config(model="openai:gpt-4o", base_url=url), {}),
            (Config(model="openai:gpt-4o"), {"base_url": url}),
        ):
            with new(config, key="k2", **more) as client:  # type: ignore[arg-type]
                assert str(client.chat("Hello")) == "Hi."


def test_a_key_argument_is_not_sent_to_an_address_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('model = "openai:gpt-4o"\nbase_url = "https://elsewhere.test/v1"\n')
    file.chmod(0o600)
    monkeypatch.setenv("DRAGOMAN_CONFIG", str(file))
    with pytest.raises(MissingKeyError, match="belongs to api.openai.com"):
        new(key="k2")
    new(key="k2", base_url="https://elsewhere.test/v1").close()


def test_without_a_config_files_and_environment_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Simulator(["Hi."]) as simulator:
        file = tmp_path / "mine.toml"
        file.write_text(
            f'model = "openai:gpt-4o"\nbase_url = "{simulator.base_url("openai")}"\nsystem_prompt = "Short."\n'
            '[keys.openai]\nenv = "MY_KEY"\nhosts = ["127.0.0.1"]\n'
        )
        file.chmod(0o600)
        monkeypatch.setenv("DRAGOMAN_CONFIG", str(file))
        monkeypatch.setenv("MY_KEY", "k")
        with new() as client:
            assert str(client.chat("Hello")) == "Hi."
        assert simulator.requests[0].system == "Short."
