"""Engines for `claude-local:…`.

Owns: from the options of every engine to those of this one.
"""

from __future__ import annotations

from typing import Unpack, cast

from dragoman.engines.engine import AsyncEngine, Engine
from dragoman.engines.factory import EngineOptions, ProviderFactory

from .engine import ClaudeEngine, ClaudeOptions
from .settings import ClaudeSettings

__all__ = ["FACTORY"]


class ClaudeFactory(ProviderFactory):
    """The claude program under its usual settings. For others make a ClaudeEngine and give that to the client."""

    def engine(self, model: str, **options: Unpack[EngineOptions]) -> Engine:
        """An engine for a plain program."""
        return ClaudeEngine(model, **_given(options))

    def async_engine(self, model: str, **options: Unpack[EngineOptions]) -> AsyncEngine:
        """An engine for a program on an event loop."""
        from .async_engine import AsyncClaudeEngine

        return AsyncClaudeEngine(model, **_given(options))


def _given(options: EngineOptions) -> ClaudeOptions:
    given = {name: value for name, value in options.items() if name != "find_program"}
    settings = ClaudeSettings(find_program=options.get("find_program"))
    return cast("ClaudeOptions", {**given, "settings": settings})


FACTORY = ClaudeFactory()
