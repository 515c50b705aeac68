from __future__ import annotations

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
from dragoman.engines import ScriptedCall, ScriptedEngine
from dragoman.errors import InvalidConversationError, OverloadedError, ProviderError
from dragoman.providers import ModelOptions

ASKED = Conversation("Be brief.").plus(Message.user("hi"))


def test_replies_come_in_order_and_calls_are_recorded() -> None:
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


def test_errors_are_raised() -> None:
    with pytest.raises(InvalidConversationError):
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
