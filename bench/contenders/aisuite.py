"""aisuite: `Client().chat.completions`; it runs tools itself when it is told `max_turns`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import aisuite
from aisuite.utils.tools import Tools

from bench.contenders import chat_shaped
from bench.contenders.common import ARGUMENTS, BASES, KEY, MODELS, aweather, nothing, weather

DIALECTS = ("openai_chat", "anthropic")
_PROVIDERS = {"openai_chat": "openai", "anthropic": "anthropic"}


def _completions(root: str, dialect: str) -> tuple[Any, str]:
    provider = _PROVIDERS[dialect]
    client = aisuite.Client({provider: {"api_key": KEY, "base_url": root + BASES[dialect]}})
    return client.chat.completions, f"{provider}:{MODELS[dialect]}"


class Plain(chat_shaped.Plain):
    def __init__(self, root: str, dialect: str) -> None:
        completions, model = _completions(root, dialect)
        self.create = partial(completions.create, model=model)

    def tool_loop(self) -> str:
        return self.create(messages=chat_shaped.ASK, tools=[weather], max_turns=2).choices[0].message.content

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], str]:
        def turn() -> str:
            return self.create(messages=chat_shaped.HELLO, tools=functions, max_turns=2).choices[0].message.content

        return turn

    def dispatch(self) -> Callable[[], object]:
        tools = Tools([nothing])
        call = {"id": "1", "type": "function", "function": {"name": "nothing", "arguments": ARGUMENTS}}
        return lambda: tools.execute_tool([call])


class OnLoop(chat_shaped.OnLoop):
    def __init__(self, root: str, dialect: str) -> None:
        completions, model = _completions(root, dialect)
        self.create = partial(completions.acreate, model=model)

    async def tool_loop(self) -> str:
        found = await self.create(messages=chat_shaped.ASK, tools=[aweather], max_turns=2)
        return found.choices[0].message.content

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], Awaitable[str]]:
        async def turn() -> str:
            found = await self.create(messages=chat_shaped.HELLO, tools=functions, max_turns=2)
            return found.choices[0].message.content

        return turn
