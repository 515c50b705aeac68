"""The text, thinking and calls of a reply, as our decoders read it: they share no code with the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dragoman.conversation import Conversation, Usage
from dragoman.providers import Call, Encoded, WireRequest, codec_of, profile_of
from tests.providers.feeding import message_of
from tests.simulator.raw_client import Answer

MODELS = {
    "openai_chat": ("deepseek", "deepseek-chat"),
    "openai_responses": ("openai-responses", "gpt-5-mini"),
    "anthropic": ("anthropic", "claude-sonnet-4-5"),
    "gemini": ("gemini", "gemini-2.5-flash"),
}


@dataclass
class Said:
    text: str
    thinking: str
    calls: list[tuple[str, str, Any]]
    stop: str | None
    input: int | None
    output: int | None


def said(dialect: str, answer: Answer, *, stream: bool) -> Said:
    provider, model = MODELS[dialect]
    call = Call(model=model, conversation=Conversation(), profile=profile_of(provider, model), stream=stream)
    decoder = codec_of(dialect).decoder(call, Encoded(request=WireRequest(path="", body=b"")))  # type: ignore[arg-type]
    message = message_of(decoder, [answer.body])
    usage = message.usage or Usage()
    calls = [(each.id, each.name, each.parsed) for each in message.tool_calls]
    return Said(message.text, message.thinking, calls, message.raw_stop_reason, usage.input, usage.output)
