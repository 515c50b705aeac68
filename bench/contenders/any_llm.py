"""any-llm: one `AnyLLM` for each provider, `completion` and `acompletion`. Functions can be its tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from any_llm import AnyLLM

from bench.contenders import chat_shaped
from bench.contenders.common import BASES, KEY, MODELS

DIALECTS = ("openai_chat", "anthropic", "gemini")
_PROVIDERS = {"openai_chat": "openai", "anthropic": "anthropic", "gemini": "gemini"}


def _client(root: str, dialect: str) -> AnyLLM:
    return AnyLLM.create(_PROVIDERS[dialect], api_key=KEY, api_base=root + BASES[dialect])


class Plain(chat_shaped.Plain):
    def __init__(self, root: str, dialect: str) -> None:
        self.create = partial(_client(root, dialect).completion, model=MODELS[dialect])

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], str]:
        return lambda: self.create(messages=chat_shaped.HELLO, tools=functions).choices[0].message.content


class OnLoop(chat_shaped.OnLoop):
    def __init__(self, root: str, dialect: str) -> None:
        self.create = partial(_client(root, dialect).acompletion, model=MODELS[dialect])

    def many_tools(self, functions: Sequence[Callable[..., Any]]) -> Callable[[], Awaitable[str]]:
        async def turn() -> str:
            return (await self.create(messages=chat_shaped.HELLO, tools=functions)).choices[0].message.content

        return turn
