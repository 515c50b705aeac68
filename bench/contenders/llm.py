"""llm: its class for OpenAI-compatible services, which makes a new client for every prompt."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

os.environ.setdefault("LLM_USER_PATH", tempfile.mkdtemp())

import llm
from llm.default_plugins.openai_models import AsyncChat, Chat

from bench.contenders.common import (
    BASES,
    KEY,
    MODELS,
    PROMPT,
    SYSTEM,
    TOOL_PROMPT,
    Delivered,
    aweather,
    said,
    weather,
)

DIALECTS = ("openai_chat",)


def _history(messages: int) -> list[Any]:
    makers: dict[str, Any] = {"user": llm.user, "assistant": llm.assistant}
    return [llm.system(SYSTEM), *[makers[each.role](each.text) for each in said(messages)]]


def _given(root: str, dialect: str) -> dict[str, Any]:
    return {
        "model_id": "bench",
        "key": KEY,
        "model_name": MODELS[dialect],
        "api_base": root + BASES[dialect],
        "supports_tools": True,
    }


class Plain:
    def __init__(self, root: str, dialect: str) -> None:
        self._model: Any = Chat(**_given(root, dialect))

    def turn(self) -> str:
        return self._model.prompt(PROMPT, system=SYSTEM, stream=False).text()

    def stream(self) -> Delivered:
        events = characters = 0
        for text in self._model.prompt(PROMPT, system=SYSTEM):
            events += 1
            characters += len(text)
        return Delivered(events, characters)

    def tool_loop(self) -> str:
        return self._model.chain(TOOL_PROMPT, system=SYSTEM, tools=[weather], stream=False).text()

    def history(self, messages: int) -> Callable[[], str]:
        before = _history(messages)
        return lambda: self._model.prompt(PROMPT, messages=before, stream=False).text()

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], str]:
        tools = [llm.Tool.function(each) for each in functions]
        return lambda: self._model.prompt(PROMPT, system=SYSTEM, tools=tools, stream=False).text()


class OnLoop:
    def __init__(self, root: str, dialect: str) -> None:
        self._model: Any = AsyncChat(**_given(root, dialect))

    async def turn(self) -> str:
        return await self._model.prompt(PROMPT, system=SYSTEM, stream=False).text()

    async def stream(self) -> Delivered:
        events = characters = 0
        async for text in self._model.prompt(PROMPT, system=SYSTEM):
            events += 1
            characters += len(text)
        return Delivered(events, characters)

    async def tool_loop(self) -> str:
        return await self._model.chain(TOOL_PROMPT, system=SYSTEM, tools=[aweather], stream=False).text()

    def history(self, messages: int) -> Callable[[], Awaitable[str]]:
        before = _history(messages)

        async def turn() -> str:
            return await self._model.prompt(PROMPT, messages=before, stream=False).text()

        return turn

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], Awaitable[str]]:
        tools = [llm.Tool.function(each) for each in functions]

        async def turn() -> str:
            return await self._model.prompt(PROMPT, system=SYSTEM, tools=tools, stream=False).text()

        return turn
