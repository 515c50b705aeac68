"""mirascope: `llm.Model` with a registered provider for each address."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mirascope import llm

from bench.contenders.common import (
    ARGUMENTS,
    BASES,
    KEY,
    MODELS,
    PROMPT,
    SYSTEM,
    TOOL_PROMPT,
    Delivered,
    aweather,
    nothing,
    said,
    weather,
)

_PROVIDERS = {
    "openai_chat": ("openai:completions", "openai/{}:completions"),
    "openai_responses": ("openai:responses", "openai/{}:responses"),
    "anthropic": ("anthropic", "anthropic/{}"),
    "gemini": ("google", "google/{}"),
}
_HELLO = [llm.messages.system(SYSTEM), llm.messages.user(PROMPT)]
_ASK = [llm.messages.system(SYSTEM), llm.messages.user(TOOL_PROMPT)]


def _history(messages: int) -> list[Any]:
    found: list[Any] = [_HELLO[0]]
    for each in said(messages):
        if each.role == "user":
            found.append(llm.messages.user(each.text))
        else:
            found.append(llm.messages.assistant(each.text, model_id=None, provider_id=None))
    return found


class _Base:
    """Two addresses cannot be registered at once for one model: each client says before its work which one it is."""

    def __init__(self, root: str, dialect: str) -> None:
        provider, name = _PROVIDERS[dialect]
        model_id = name.format(MODELS[dialect])
        self._model: Any = llm.model(model_id)
        made: Any = llm.register_provider(provider, model_id, api_key=KEY, base_url=root + BASES[dialect])
        self._register = lambda: llm.register_provider(made, model_id)

    def _here(self) -> Any:
        self._register()
        return self._model


class Plain(_Base):
    def turn(self) -> str:
        return self._here().call(_HELLO).text()

    def stream(self) -> Delivered:
        events = characters = 0
        for chunk in self._here().stream(_HELLO).chunk_stream():
            events += 1
            if chunk.type == "text_chunk":
                characters += len(chunk.delta)
        return Delivered(events, characters)

    def tool_loop(self) -> str:
        response = self._here().call(_ASK, tools=[_weather])
        while response.tool_calls:
            response = response.resume(response.execute_tools())
        return response.text()

    def history(self, messages: int) -> Callable[[], str]:
        before = _history(messages)
        return lambda: self._here().call([*before, _HELLO[1]]).text()

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], str]:
        tools = [llm.tool(each) for each in functions]
        return lambda: self._here().call(_HELLO, tools=tools).text()

    def dispatch(self) -> Callable[[], object]:
        made = llm.tool(nothing)
        call = llm.ToolCall(id="1", name="nothing", args=ARGUMENTS)
        return lambda: made.execute(call)


_weather, _aweather = llm.tool(weather), llm.tool(aweather)


class OnLoop(_Base):
    async def turn(self) -> str:
        return (await self._here().call_async(_HELLO)).text()

    async def stream(self) -> Delivered:
        events = characters = 0
        async for chunk in (await self._here().stream_async(_HELLO)).chunk_stream():
            events += 1
            if chunk.type == "text_chunk":
                characters += len(chunk.delta)
        return Delivered(events, characters)

    async def tool_loop(self) -> str:
        response = await self._here().call_async(_ASK, tools=[_aweather])
        while response.tool_calls:
            response = await response.resume(await response.execute_tools())
        return response.text()

    def history(self, messages: int) -> Callable[[], Awaitable[str]]:
        before = _history(messages)

        async def turn() -> str:
            return (await self._here().call_async([*before, _HELLO[1]])).text()

        return turn
