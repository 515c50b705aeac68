"""A configuration as engines and models see it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import Conversation, Message, async_engine, engine
from dragoman.chat.config import Config, ConfigWarning, load_config
from dragoman.chat.credentials import find_key
from dragoman.engines.keys import Secret, may_go
from dragoman.providers.options import ModelOptions
from dragoman.simulator import Simulator
from dragoman.transport.protocol import Timeouts
from dragoman.transport.retry import RetryPolicy
from tests.chat.config.surroundings import Surroundings

ASKED = Conversation().plus(Message.user("Hi"))


def sent(config: Config) -> dict[str, Any]:
    """What a provider gets from somebody with this configuration."""
    with Simulator(["Hello."]) as simulator:
        changed = msgspec.structs.replace(config, base_url=simulator.base_url(config.provider_name))
        with engine(changed.model_name, **changed.for_engine({})) as asked:
            asked.reply(ASKED)
        [request] = simulator.requests
        return dict(request.body)


def test_the_default_limits_go_over_the_wire() -> None:
    assert sent(Config(provider="openai", model="gpt-4o", token="k"))["max_completion_tokens"] == 4096
    assert sent(Config(provider="openai-responses", token="k"))["max_output_tokens"] == 4096
    assert sent(Config(provider="claude", token="k"))["max_tokens"] == 8192
    assert sent(Config(provider="gemini", token="k"))["generationConfig"]["maxOutputTokens"] == 8192
    assert sent(Config(provider="claude", token="k", max_tokens=5))["max_tokens"] == 5


def test_the_options_go_along() -> None:
    config = Config(
        provider="openai",
        model="gpt-4o",
        token="k",
        options=ModelOptions(temperature=0.5),
        retry=RetryPolicy(max_attempts=7),
        timeouts=Timeouts(read=3.0),
        strict=True,
        headers={"x-team": "a"},
        model_profile={"context_window": 5},
    )
    assert sent(config)["temperature"] == 0.5
    with engine(config.model_name, **config.for_engine({})) as asked:
        connection = asked.connection  # type: ignore[attr-defined]
    assert connection.retry.max_attempts == 7
    assert connection.timeouts.read == 3.0
    assert connection.strict
    assert connection.profile.context_window == 5
    assert connection.headers == {"x-team": "a"}
    assert async_engine(config.model_name, **config.for_engine({})).name == "openai:gpt-4o"


def test_a_changed_copy_hides_its_token_too() -> None:
    changed = msgspec.structs.replace(Config(), token="sk-plain-0123456789")
    assert "plain" not in repr(changed)


def test_a_file_of_another_user_is_warned_of(here: Surroundings) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    path = here.says("max_steps = 1")
    os.chown(path, 12345, 12345)
    with pytest.warns(ConfigWarning, match="Others can change"):
        here.load()


def test_a_user_without_a_home_directory_gets_along(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nobody() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", nobody)
    (tmp_path / "dragoman.toml").write_text("max_steps = 2")
    assert load_config(environment={}, directory=tmp_path).config.max_steps == 2
    found = find_key("openai", environ={"OPENAI_API_KEY": "k"})
    assert found is not None
    assert found.secret == Secret("k")
    with pytest.raises(Exception, match="none without a home directory"):
        find_key("openai", environ={})


def test_a_working_directory_that_is_gone(here: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = here.home / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    here.user("max_steps = 2")
    assert load_config(environment=here.environ).config.max_steps == 2


def test_a_bound_key_does_not_travel_in_the_clear() -> None:
    key = Secret("k", hosts=["api.openai.com", "localhost"])
    assert may_go(key, "https://api.openai.com/v1")
    assert not may_go(key, "http://api.openai.com/v1")
    assert may_go(key, "http://localhost:8080/v1")
