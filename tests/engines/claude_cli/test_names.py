"""`claude-local:` as a name among the others."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.chat import ChatClient
from dragoman.conversation import ToolSpec
from dragoman.engines import (
    AsyncClaudeEngine,
    ClaudeEngine,
    async_engine,
    engine,
)
from dragoman.errors import ConfigurationError, InvalidBaseURLError
from dragoman.providers import check


def test_engines_by_name() -> None:
    with engine("claude-local:sonnet") as made:
        assert isinstance(made, ClaudeEngine)
        assert made.name == "claude-local:sonnet"
        assert made.profile.provider == "claude-local"
    with ChatClient("claude-local:") as client:
        assert client.model == "claude-local:default"

    async def main() -> None:
        async with async_engine("claude-local/opus") as made:
            assert isinstance(made, AsyncClaudeEngine)
            assert repr(made) == "<AsyncClaudeEngine claude-local:opus>"

    asyncio.run(main())


def test_options_of_every_engine() -> None:
    with pytest.raises(InvalidBaseURLError):
        engine("claude-local:sonnet", base_url="http://elsewhere.test")
    with pytest.raises(ConfigurationError, match="colour"):
        engine("claude-local:sonnet", profile={"colour": "red"})
    assert engine("claude-local:sonnet", profile={"context_window": 5}).profile.context_window == 5
    with ChatClient("claude-local:sonnet", find_program=lambda _: None) as client:
        with pytest.raises(ConfigurationError, match="`claude` was not found"):
            client.chat("Hello")
        assert client.history == ()


def test_tools_as_the_program_sees_them() -> None:
    with engine("claude-local:") as made:
        (tool,) = made.prepare_tools([ToolSpec("weather", "The weather.")])  # type: ignore[attr-defined]
        assert tool["name"] == "weather"
        assert tool["inputSchema"]["type"] == "object"
        assert made.features.supports_tools  # type: ignore[attr-defined]


def test_tools_are_checked_without_the_program() -> None:
    report = check([ToolSpec("get weather!"), ToolSpec("long", "d" * 5000, strict=True)], "claude-local:")
    odd, long = [[(found.severity, found.about) for found in tool.findings] for tool in report.tools]
    assert odd == [("rewrite", "name")]
    assert long == [("rewrite", "description"), ("rewrite", "strict")]


def test_nobody_pays_for_it_who_does_not_use_it() -> None:
    code = "import sys, dragoman.engines.factory; print([name for name in sys.modules if 'claude' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert done.stdout.strip() == "[]"
