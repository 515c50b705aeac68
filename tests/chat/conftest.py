"""A user with files, and talks of both colours with scripted models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.engines import AsyncScriptedEngine, ScriptedEngine
from tests.chat.surroundings import Surroundings
from tests.chat.talking import AsyncTalk, PlainTalk, Talk


@pytest.fixture
def here(tmp_path: Path) -> Surroundings:
    """A user and a project in a directory of their own."""
    return Surroundings(tmp_path)


@pytest.fixture(params=["plain", "async"])
def colour(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def start(colour: str, request: pytest.FixtureRequest) -> Iterator[Callable[..., Talk]]:
    """Starts talks, with the tools `TOOLS` of the module unless it is told others, and closes them."""
    started: list[Talk] = []

    def begin(script: list[Any], tools: Any = None, *, streamed: bool = False, **options: Any) -> Talk:
        offered = getattr(request.module, "TOOLS", ()) if tools is None else tools
        kind, engine = (PlainTalk, ScriptedEngine) if colour == "plain" else (AsyncTalk, AsyncScriptedEngine)
        started.append(kind(engine(script, piece=4), offered, streamed=streamed, **options))
        return started[-1]

    yield begin
    for talk in started:
        talk.close()
