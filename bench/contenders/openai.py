"""The openai SDK: chat completions, and for a turn and a stream the responses too."""

from __future__ import annotations

from functools import partial
from typing import Any

from openai import AsyncOpenAI, OpenAI

from bench.contenders import chat_shaped
from bench.contenders.common import BASES, KEY, MODELS, PROMPT, SYSTEM, Delivered

DIALECTS = ("openai_chat", "openai_responses")

_ASKED: dict[str, Any] = {"model": MODELS["openai_responses"], "instructions": SYSTEM, "input": PROMPT}


class Responses:
    def __init__(self, client: OpenAI) -> None:
        self._client = client

    def turn(self) -> str:
        return self._client.responses.create(**_ASKED).output_text

    def stream(self) -> Delivered:
        events = characters = 0
        for event in self._client.responses.create(**_ASKED, stream=True):
            events += 1
            if event.type == "response.output_text.delta":
                characters += len(event.delta)
        return Delivered(events, characters)


class AsyncResponses:
    def __init__(self, client: AsyncOpenAI) -> None:
        self._client = client

    async def turn(self) -> str:
        return (await self._client.responses.create(**_ASKED)).output_text

    async def stream(self) -> Delivered:
        events = characters = 0
        async for event in await self._client.responses.create(**_ASKED, stream=True):
            events += 1
            if event.type == "response.output_text.delta":
                characters += len(event.delta)
        return Delivered(events, characters)


class Chat(chat_shaped.Plain):
    def __init__(self, client: OpenAI) -> None:
        self.create = partial(client.chat.completions.create, model=MODELS["openai_chat"])


class AsyncChat(chat_shaped.OnLoop):
    def __init__(self, client: AsyncOpenAI) -> None:
        self.create = partial(client.chat.completions.create, model=MODELS["openai_chat"])


def Plain(root: str, dialect: str) -> Any:  # noqa: N802 - stands in the place of a class
    client = OpenAI(api_key=KEY, base_url=root + BASES[dialect])
    return Chat(client) if dialect == "openai_chat" else Responses(client)


def OnLoop(root: str, dialect: str) -> Any:  # noqa: N802 - stands in the place of a class
    client = AsyncOpenAI(api_key=KEY, base_url=root + BASES[dialect])
    return AsyncChat(client) if dialect == "openai_chat" else AsyncResponses(client)
