"""Helpers for the tests of all dialects: calls to any `provider:model`, encoded and decoded."""

from __future__ import annotations

import json
from typing import Any

from dragoman.conversation import Conversation, Message, ToolSpec
from dragoman.providers import (
    PROVIDERS,
    Call,
    Decoder,
    Encoded,
    ModelOptions,
    Profile,
    WireRequest,
    codec_of,
    profile_of,
    split_model,
)

HI = Message.user("Hi")


def call_of(
    target: str,
    *messages: Message,
    system: str | None = None,
    tools: tuple[ToolSpec, ...] = (),
    stream: bool = False,
    profile: Profile | dict[str, Any] | None = None,
    **options: Any,
) -> Call:
    """A call; without messages the user says "Hi". `profile` may be fields that are changed."""
    provider, model = split_model(target)
    known = profile if isinstance(profile, Profile) else profile_of(provider, model).with_changes(**(profile or {}))
    return Call(
        model=model,
        conversation=Conversation(system=system, messages=messages or (HI,)),
        profile=known,
        tools=tools,
        options=ModelOptions(**options),
        stream=stream,
    )


def encode(call: Call) -> Encoded:
    return codec_of(PROVIDERS[call.profile.provider].dialect).encode(call)


def encoded(target: str, *messages: Message, **how: Any) -> Encoded:
    return encode(call_of(target, *messages, **how))


def body_of(target: str, *messages: Message, **how: Any) -> dict[str, Any]:
    return json.loads(encoded(target, *messages, **how).request.body)


def lost(target: str, *messages: Message, **how: Any) -> list[tuple[int, int, str]]:
    """Which blocks do not reach the model: message, block and kind."""
    return [(loss.message, loss.block, loss.what) for loss in encoded(target, *messages, **how).losses]


def decoder_of(call: Call, names: dict[str, str] | None = None) -> Decoder:
    """A decoder for the reply; `names` are those of tools on the wire, and their own."""
    sent = Encoded(request=WireRequest(path="", body=b""), tool_names=names or {})
    return codec_of(PROVIDERS[call.profile.provider].dialect).decoder(call, sent)
