"""Clients from a configuration, in both colours."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dragoman.chat import Config, load_config, new, new_async
from dragoman.conversation import ToolCall
from dragoman.errors import ConfigurationError, MissingKeyError, StepLimitError
from dragoman.simulator import Reply, Simulator
from dragoman.tools import tool


@dataclass
class Place:
    city: str


@tool
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


def _config(simulator: Simulator, **more: Any) -> Config:
    fields = {"provider": "openai", "model": "gpt-4o", "token": "k", "base_url": simulator.base_url("openai")}
    return Config(**{**fields, **more})


def test_everything_that_a_config_says_holds() -> None:
    calls = [Reply(ToolCall(f"c{number}", "add", '{"a": 1, "b": 2}')) for number in range(5)]
    with Simulator(["Hi.", '{"city": "Lyon"}', *calls]) as simulator:
        config = _config(
            simulator,
            system_prompt="Be brief.",
            response_schema=Place,
            schema_name="a_place",
            max_steps=2,
            max_tokens=7,
        )
        with new(config, [add]) as client:
            assert str(client.chat("Hello")) == "Hi."
            assert client.ask("Where?") == Place("Lyon")
            with pytest.raises(StepLimitError, match=r"max iterations \(2\) reached"):
                client.chat("Add.")
        first, asked, *_ = simulator.requests
        assert first.system == "Be brief."
        assert 7 in first.body.values()
        assert b"a_place" in asked.raw


def test_arguments_win_over_the_config() -> None:
    with Simulator(["Hi."]) as simulator, new(_config(simulator, system_prompt="a"), system="b") as client:
        client.chat("Hello")
        assert simulator.requests[0].system == "b"


def test_the_async_client() -> None:
    async def main(simulator: Simulator) -> str:
        async with new_async(_config(simulator)) as client:
            return str(await client.chat("Hello"))

    with Simulator(["Hi."]) as simulator:
        assert asyncio.run(main(simulator)) == "Hi."


def test_without_a_config_files_and_environment_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_no_key_is_an_error_that_names_every_place(tmp_path: Path) -> None:
    config = load_config(provider="anthropic", environment={"HOME": str(tmp_path)}, directory=tmp_path).config
    with pytest.raises(MissingKeyError) as caught:
        new(config)
    assert "ANTHROPIC_API_KEY" in str(caught.value)
    assert "local" in str(caught.value)
    assert isinstance(caught.value, ConfigurationError)
