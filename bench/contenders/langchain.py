"""langchain: a chat model for each dialect; `create_agent` where tools are called."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

os.environ["LANGSMITH_TRACING"] = "false"

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool

from bench.contenders.common import (
    BASES,
    KEY,
    MAX_TOKENS,
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

_HELLO = [SystemMessage(SYSTEM), HumanMessage(PROMPT)]


def _model(root: str, dialect: str) -> Any:
    base, name = root + BASES[dialect], MODELS[dialect]
    if dialect == "anthropic":
        from langchain_anthropic import ChatAnthropic

        return ChatAnthropic(model=name, api_key=KEY, base_url=base, max_tokens=MAX_TOKENS)
    if dialect == "gemini":
        from langchain_google_genai import ChatGoogleGenerativeAI

        return ChatGoogleGenerativeAI(model=name, api_key=KEY, base_url=base)
    from langchain_openai import ChatOpenAI

    responses = dialect == "openai_responses"
    return ChatOpenAI(model=name, api_key=KEY, base_url=base, use_responses_api=responses)


def _history(messages: int) -> list[Any]:
    kinds = {"user": HumanMessage, "assistant": AIMessage}
    return [_HELLO[0], *[kinds[each.role](each.text) for each in said(messages)]]


class _Base:
    weather: Callable[..., Any] = staticmethod(weather)

    def __init__(self, root: str, dialect: str) -> None:
        self._model = _model(root, dialect)
        self._agent: Any = create_agent(self._model, [tool(self.weather)], system_prompt=SYSTEM)
        self._asked: Any = {"messages": [HumanMessage(TOOL_PROMPT)]}


class Plain(_Base):
    def turn(self) -> str:
        return self._model.invoke(_HELLO).text

    def stream(self) -> Delivered:
        events = characters = 0
        for chunk in self._model.stream(_HELLO):
            events += 1
            characters += len(chunk.text)
        return Delivered(events, characters)

    def tool_loop(self) -> str:
        return self._agent.invoke(self._asked)["messages"][-1].text

    def history(self, messages: int) -> Callable[[], str]:
        before = _history(messages)
        return lambda: self._model.invoke([*before, _HELLO[1]]).text

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], str]:
        model = self._model.bind_tools([tool(each) for each in functions])
        return lambda: model.invoke(_HELLO).text

    def dispatch(self) -> Callable[[], object]:
        made = tool(nothing)
        call = {"name": "nothing", "args": {"a": 1, "b": "hello", "c": 2.5}, "id": "1", "type": "tool_call"}
        return lambda: made.invoke(call)


class OnLoop(_Base):
    weather = staticmethod(aweather)

    async def turn(self) -> str:
        return (await self._model.ainvoke(_HELLO)).text

    async def stream(self) -> Delivered:
        events = characters = 0
        async for chunk in self._model.astream(_HELLO):
            events += 1
            characters += len(chunk.text)
        return Delivered(events, characters)

    async def tool_loop(self) -> str:
        return (await self._agent.ainvoke(self._asked))["messages"][-1].text

    def history(self, messages: int) -> Callable[[], Awaitable[str]]:
        before = _history(messages)

        async def turn() -> str:
            return (await self._model.ainvoke([*before, _HELLO[1]])).text

        return turn

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], Awaitable[str]]:
        model = self._model.bind_tools([tool(each) for each in functions])

        async def turn() -> str:
            return (await model.ainvoke(_HELLO)).text

        return turn
