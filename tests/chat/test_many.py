"""Many chats in one process: nobody hears anybody else, and nothing is left behind."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from dragoman.chat import AsyncChatClient
from dragoman.conversation import TextDelta, ToolCall
from dragoman.simulator import Reply, Request, Simulator
from dragoman.tools import tool
from tests.chat.talking import threads_left
from tests.engines.talking import MODELS, every_dialect

TURNS = 3


@tool
def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


@tool
async def triple(number: int) -> int:
    """Three times the number."""
    await asyncio.sleep(0)
    return 3 * number


def _said(request: Request) -> Reply:
    """Calls both tools with the number that this conversation is about, then tells what they gave."""
    number = re.findall(r"\d+", request.user_texts[0])[0]
    if request.tool_results:
        return Reply(
            f"{number}: " + " and ".join(re.findall(r"\d+", result.text)[0] for result in request.tool_results)
        )
    turn = request.turns
    return Reply(
        ToolCall(f"d{number}.{turn}", "double", f'{{"number": {number}}}'),
        ToolCall(f"t{number}.{turn}", "triple", f'{{"number": {number}}}'),
    )


def _expected(number: int) -> str:
    return f"{number}: {2 * number} and {3 * number}"


def _options(simulator: Simulator, model: str) -> dict[str, Any]:
    return {"base_url": simulator.base_url(model.partition(":")[0]), "key": "k"}


@pytest.mark.slow
@every_dialect
def test_two_hundred_async_chats_at_once(model: str) -> None:
    chats = 200 if model == MODELS["openai_chat"] else 50

    async def chat(simulator: Simulator, number: int) -> list[str]:
        said: list[str] = []
        async with AsyncChatClient(model, [double, triple], **_options(simulator, model)) as client:
            for _turn in range(TURNS):
                if number % 2:
                    said.append(str(await client.chat(f"Number {number}.")))
                    continue
                async with client.stream_chat(f"Number {number}.") as stream:
                    text = "".join([event.text async for event in stream if isinstance(event, TextDelta)])
                said.append(text)
            assert len(client.history) == 4 * TURNS
            assert client.conversation.is_valid
        return said

    async def main(simulator: Simulator) -> None:
        everything = await asyncio.gather(*[chat(simulator, number) for number in range(chats)])
        for number, said in enumerate(everything):
            assert said == [_expected(number)] * TURNS
        assert not asyncio.all_tasks() - {asyncio.current_task()}

    with Simulator(_said) as simulator:
        asyncio.run(main(simulator))
        assert simulator.wait_until_idle()
    assert not threads_left()
