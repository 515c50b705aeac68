"""The calls behind the recorded exchanges: which provider answered, and the profile it has here."""

from __future__ import annotations

from urllib.parse import urlsplit

from dragoman.conversation import Conversation, Message
from dragoman.providers.catalogue import profile_of
from dragoman.providers.codec import Call, Decoder
from dragoman.providers.openai_chat import CODEC
from tests.providers.openai_chat.wire import NOTHING
from tests.providers.recorded import Exchange

_PROVIDER_OF_HOST = {
    "api.openai.com": "openai",
    "api.groq.com": "groq",
    "openrouter.ai": "openrouter",
    "api.mistral.ai": "mistral",
    "api.cerebras.ai": "cerebras",
    "router.huggingface.co": "huggingface",
    "api.z.ai": "zai",
    "api.deepseek.com": "deepseek",
    "ollama.com": "ollama",
}
"""All others are servers of which only the address is known."""


def provider_of(exchange: Exchange) -> str:
    return _PROVIDER_OF_HOST.get(urlsplit(exchange.url).hostname or "", "openai-compatible")


def call_of(exchange: Exchange, conversation: Conversation | None = None) -> Call:
    model = exchange.model or "unknown"
    return Call(
        model=model,
        conversation=conversation or Conversation(messages=(Message.user("hi"),)),
        profile=profile_of(provider_of(exchange), model),
        stream=exchange.streamed,
    )


def decoder_of(exchange: Exchange) -> Decoder:
    return CODEC.decoder(call_of(exchange), NOTHING)
