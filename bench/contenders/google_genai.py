"""The google-genai SDK. It calls functions given as tools by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from google import genai
from google.genai import types

from bench.contenders.common import KEY, MODELS, PROMPT, SYSTEM, TOOL_PROMPT, Delivered, aweather, said, weather

DIALECTS = ("gemini",)

_MODEL = MODELS["gemini"]
_CONFIG = types.GenerateContentConfig(system_instruction=SYSTEM)
_WITH_TOOL = types.GenerateContentConfig(system_instruction=SYSTEM, tools=[weather])
_WITH_ASYNC_TOOL = types.GenerateContentConfig(system_instruction=SYSTEM, tools=[aweather])


def _client(root: str) -> genai.Client:
    return genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=root))


def _history(messages: int) -> list[Any]:
    roles = {"user": "user", "assistant": "model"}
    return [types.Content(role=roles[each.role], parts=[types.Part(text=each.text)]) for each in said(messages)]


_HELLO = types.Content(role="user", parts=[types.Part(text=PROMPT)])


def _many(functions: Sequence[Callable[..., Any]]) -> types.GenerateContentConfig:
    return types.GenerateContentConfig(system_instruction=SYSTEM, tools=list(functions))


class Plain:
    def __init__(self, root: str, dialect: str) -> None:
        self._client = _client(root)

    def turn(self) -> Any:
        return self._client.models.generate_content(model=_MODEL, contents=PROMPT, config=_CONFIG).text

    def stream(self) -> Delivered:
        events = characters = 0
        for chunk in self._client.models.generate_content_stream(model=_MODEL, contents=PROMPT, config=_CONFIG):
            events += 1
            characters += len(chunk.text or "")
        return Delivered(events, characters)

    def tool_loop(self) -> Any:
        return self._client.models.generate_content(model=_MODEL, contents=TOOL_PROMPT, config=_WITH_TOOL).text

    def history(self, messages: int) -> Callable[[], Any]:
        before = _history(messages)
        create = self._client.models.generate_content
        return lambda: create(model=_MODEL, contents=[*before, _HELLO], config=_CONFIG).text

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], Any]:
        config = _many(functions)
        return lambda: self._client.models.generate_content(model=_MODEL, contents=PROMPT, config=config).text


class OnLoop:
    def __init__(self, root: str, dialect: str) -> None:
        self._client = _client(root).aio

    async def turn(self) -> Any:
        return (await self._client.models.generate_content(model=_MODEL, contents=PROMPT, config=_CONFIG)).text

    async def stream(self) -> Delivered:
        events = characters = 0
        stream = await self._client.models.generate_content_stream(model=_MODEL, contents=PROMPT, config=_CONFIG)
        async for chunk in stream:
            events += 1
            characters += len(chunk.text or "")
        return Delivered(events, characters)

    async def tool_loop(self) -> Any:
        found = await self._client.models.generate_content(model=_MODEL, contents=TOOL_PROMPT, config=_WITH_ASYNC_TOOL)
        return found.text

    def history(self, messages: int) -> Callable[[], Awaitable[Any]]:
        before = _history(messages)

        async def turn() -> Any:
            create = self._client.models.generate_content
            return (await create(model=_MODEL, contents=[*before, _HELLO], config=_CONFIG)).text

        return turn

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], Awaitable[Any]]:
        config = _many(functions)

        async def turn() -> Any:
            return (await self._client.models.generate_content(model=_MODEL, contents=PROMPT, config=config)).text

        return turn
