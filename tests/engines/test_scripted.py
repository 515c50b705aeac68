from __future__ import annotations

import asyncio

import pytest

from dragoman.conversation import (
    Conversation,
    Failed,
    Message,
    ReplyEvent,
    StopReason,
    TextDelta,
    ToolCall,
    ToolSpec,
)
from dragoman.engines import AsyncScriptedEngine, ScriptedCall, ScriptedEngine
from dragoman.errors import InvalidConversationError, OverloadedError, ProviderError
from dragoman.providers import ModelOptions

ASKED = Conversation("Be brief.").plus(Message.user("hi"))


def test_replies_are_given_in_order_and_calls_are_kept() -> None:
    engine = ScriptedEngine(["one", Message.assistant(ToolCall("1", "f"))], name="scripted:parrot")
    first = engine.run_inference(ASKED, tools=[ToolSpec("f")], options=ModelOptions(temperature=0))
    assert first.text == "one"
    assert (first.messages[-1].provider, first.messages[-1].model) == ("scripted", "parrot")
    assert first.messages[-1].stop_reason is StopReason.END
    second = engine.reply(ASKED)
    assert second.message.stop_reason is StopReason.TOOL_CALLS
    assert [call.conversation for call in engine.calls] == [ASKED, ASKED]
    assert engine.calls[0].tools == (ToolSpec("f"),)
    assert engine.calls[0].options == ModelOptions(temperature=0)


def test_a_stream_gives_events_and_the_message() -> None:
    def shout(call: ScriptedCall) -> str:
        return call.conversation.messages[-1].text.upper()

    engine = ScriptedEngine(["hello", shout], piece=2)
    with engine.stream(ASKED) as stream:
        texts = [event.text for event in stream if isinstance(event, TextDelta)]
        assert texts == ["he", "ll", "o"]
        assert stream.message.text == "hello"
        assert stream.reply.message.stop_reason is StopReason.END
    assert engine.run_inference(ASKED).text == "HI"  # a reply may depend on the call


def test_errors_are_raised_and_told() -> None:
    with pytest.raises(InvalidConversationError):  # which no provider would take
        ScriptedEngine(["x"]).run_inference(ASKED.plus(Message.assistant(ToolCall("1", "f"))))
    busy = OverloadedError("Busy.")
    engine = ScriptedEngine([busy, busy])
    with pytest.raises(OverloadedError):
        engine.run_inference(ASKED)
    seen: list[ReplyEvent] = []
    with engine.stream(ASKED) as stream, pytest.raises(OverloadedError):
        seen.extend(stream)
    assert seen == [Failed("OverloadedError", "Busy.")]
    with pytest.raises(ProviderError, match="no reply left for call number 3"):
        engine.run_inference(ASKED)


def test_the_async_twin() -> None:
    async def main() -> None:
        engine = AsyncScriptedEngine(["one", "two", "three"], piece=1)
        assert (await engine.run_inference(ASKED)).text == "one"
        assert (await engine.reply(ASKED)).message.text == "two"
        async with engine.stream(ASKED) as stream:
            texts = [event.text async for event in stream if isinstance(event, TextDelta)]
        assert texts == list("three")
        assert stream.message.text == "three"
        await engine.aclose()

    asyncio.run(main())
    ScriptedEngine([]).close()
