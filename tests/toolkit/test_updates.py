"""`react_emoji` and `send_update`, with responders of both colours in runs of both colours."""

from __future__ import annotations

import asyncio
import gc
import json

import pytest

from dragoman.conversation import ToolCall
from dragoman.toolkit.responder import CallbackResponder, NullResponder, react_emoji_tool, send_update_tool
from dragoman.tools.config import ToolConfig, ToolErrorHandling
from dragoman.tools.execution.executor import ToolExecutor
from tests.toolkit.calling import Call, bad, both_colours, call, good


class Recorder:
    def __init__(self, *, is_async: bool) -> None:
        self.said: list[str] = []
        self.is_async = is_async

    def take(self, text: str) -> object:
        if not self.is_async:
            self.said.append(text)
            return None

        async def later() -> None:
            await asyncio.sleep(0)
            self.said.append(text)

        return later()


@both_colours
@pytest.mark.parametrize("is_async", [False, True], ids=["plain responder", "async responder"])
def test_the_person_sees_it_and_the_model_reads_that(called: Call, is_async: bool) -> None:
    recorder = Recorder(is_async=is_async)
    responder = CallbackResponder(reaction=recorder.take, update=recorder.take)  # type: ignore[arg-type]
    assert good(called(react_emoji_tool(responder), emoji="👍")) == "reaction added"
    assert good(called(send_update_tool(responder), message="half done")) == "update sent"
    assert recorder.said == ["👍", "half done"]


@both_colours
def test_missing_arguments(called: Call) -> None:
    for arguments in ({}, {"emoji": ""}, {"emoji": None}):
        assert bad(called(react_emoji_tool(NullResponder()), **arguments), "validation") == "missing emoji argument"
    assert bad(called(send_update_tool(NullResponder())), "validation") == "missing message argument"


@both_colours
@pytest.mark.parametrize("is_async", [False, True], ids=["plain responder", "async responder"])
def test_what_the_responder_complains_about_is_what_the_model_reads(called: Call, is_async: bool) -> None:
    def fails(_text: str) -> None:
        raise OSError("the channel is archived")

    async def fails_later(_text: str) -> None:
        raise OSError("the channel is archived")

    responder = CallbackResponder(reaction=fails_later if is_async else fails)
    assert bad(called(react_emoji_tool(responder), emoji="x"), "execution") == "the channel is archived"


def test_a_message_is_not_sent_twice() -> None:
    sent: list[str] = []

    def fails(text: str) -> None:
        sent.append(text)
        raise OSError("perhaps it arrived")

    tool = send_update_tool(CallbackResponder(update=fails))
    call(tool, config=ToolConfig(tool_error_handling=ToolErrorHandling.RETRY), message="hi")
    assert sent == ["hi"]
    assert not tool.options.idempotent
    assert react_emoji_tool(NullResponder()).options.idempotent


def test_an_update_that_nobody_waits_for_leaves_nothing_behind() -> None:
    async def late(_text: str) -> None:
        await asyncio.sleep(0)

    async def main() -> None:
        tool = send_update_tool(CallbackResponder(update=late))
        async with ToolExecutor([tool]) as executor:
            tasks = [
                asyncio.create_task(executor.aexecute(ToolCall("1", tool.name, json.dumps({"message": "hi"}))))
                for _ in range(20)
            ]
            for number, task in enumerate(tasks):
                for _ in range(number % 5):
                    await asyncio.sleep(0)
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    gc.collect()  # a coroutine that nobody awaited would warn now, and warnings are errors
