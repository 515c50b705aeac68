"""Engines for `local:…`, and their dialect.

The dialect is chat completions of plain texts, constrained by a grammar: tools, tool choice and schemas become text and
rules. Nothing is downloaded or run before the first call.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, Unpack

import msgspec

import dragoman.transport
from dragoman.conversation import Conversation, OneTool, ToolSpec
from dragoman.engines.base import AsyncEngine, Engine
from dragoman.engines.factory import EngineOptions, how_to_call
from dragoman.engines.http import AsyncHttpEngine, Connection, HttpEngine
from dragoman.errors import ConfigurationError
from dragoman.providers import (
    PROFILES,
    Adaptation,
    AnswerReader,
    Call,
    Codec,
    Decoder,
    Encoded,
    Profile,
    Provider,
    codec_of,
    profile_with,
    refuse_or_adapt,
)
from dragoman.transport import PoolLimits, Transport

from .grammar import Turn, turn_grammar
from .models import Thinks, resolve_model
from .prompt import LocalDecoder, add_reminder, add_tools, ask_for_schema, to_plain_text
from .server import PLACE, LocalTransport

# --- the dialect ------------------------------------------------------------------------------------------------------

_FREE: Final = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repeat_penalty": 1.05}
"""Default sampling of texts, as the makers of the default model advise."""
_EXACT: Final = {"temperature": 0.0}
"""Default sampling of calls and JSON: a small model makes the fewest mistakes at temperature 0."""


def _encode(thinks: Thinks, call: Call) -> Encoded:
    adaptations: list[Adaptation] = []
    if call.options.server_tools:
        hint = "Offer tools of your own."
        refuse_or_adapt(call, adaptations, "server_tools", "a local model has no provider to run them", hint)
    tools, must_call = _offered(call)
    wanted = call.options.response_format
    conversation = call.conversation
    if tools and not must_call and conversation.messages:
        conversation = add_reminder(conversation, tools, "in plain text" if wanted is None else "with JSON")
    if wanted is not None and conversation.messages:
        conversation = ask_for_schema(conversation, wanted.schema, wanted.description)
    plain, _ = to_plain_text(conversation, add_tools(call.conversation.system, tools, must_call=must_call))
    losses = to_plain_text(call.conversation, None)[1]  # of the original conversation, not of the reworded one
    # With progress of the prompt: llama.cpp notices that a connection was closed only when it sends something.
    extra: dict[str, object] = {"reasoning_format": "none", "return_progress": True}
    constrained = bool(tools) or wanted is not None
    if constrained:
        turn = Turn(
            tools=tuple([(spec.name, bytes(spec.parameters)) for spec in tools]),
            must_call=must_call,
            answer=None if wanted is None else bytes(wanted.schema),
            thinks=thinks,
        )
        extra["grammar"], notes = turn_grammar(turn)
        adaptations += [Adaptation(what, why) for what, why in notes]
    encoded = codec_of("openai_chat").encode(_as_text_call(call, plain, extra, _EXACT if constrained else _FREE))
    return msgspec.structs.replace(
        encoded, adaptations=(*adaptations, *encoded.adaptations), losses=losses, tool_names={}
    )


def _decoder(thinks: Thinks, call: Call, encoded: Encoded) -> Decoder:
    tools = [spec.name for spec in _offered(call)[0]]
    decoder = LocalDecoder(
        codec_of("openai_chat").decoder(msgspec.structs.replace(call, stream=True), encoded),
        tools=tools,
        thinks=thinks,
        model=call.model,
        context=call.profile.context_window,
    )
    may_be_fenced = bool(tools) and call.options.response_format is not None
    return AnswerReader(fenced=True).wrap(decoder) if may_be_fenced else decoder


def _offered(call: Call) -> tuple[tuple[ToolSpec, ...], bool]:
    """The tools that the model may call in this turn, and whether it must call one."""
    choice = call.options.tool_choice
    if choice == "none" or not call.tools:
        return (), False
    if isinstance(choice, OneTool):
        named = tuple([spec for spec in call.tools if spec.name == choice.name])
        if not named:
            message = f"The tool choice is {choice.name!r}, but there is no tool of that name."
            raise ConfigurationError(message, hint=f"The tools are {', '.join([spec.name for spec in call.tools])}.")
        return named, True
    return call.tools, choice == "required"


def _as_text_call(call: Call, plain: Conversation, extra: dict[str, object], sampling: Mapping[str, float]) -> Call:
    options = call.options
    usual = {name: value for name, value in sampling.items() if getattr(options, name, None) is None}
    bare = msgspec.structs.replace(
        options,
        tool_choice="auto",
        parallel_tool_calls=None,
        response_format=None,
        server_tools=(),
        extra_body={**extra, **usual, **options.extra_body},
    )
    return msgspec.structs.replace(call, conversation=plain, tools=(), options=bare, stream=True)


# --- engines ----------------------------------------------------------------------------------------------------------

_NOT_KEPT: Final = PoolLimits(idle=0)
"""An idle connection would hold a thread of the server, which may close it at any time, even during a request."""
_PROVIDER = Provider(name="local", dialect="openai_chat", base_url=PLACE, needs_key=False)


class LocalConnection(Connection, frozen=True, kw_only=True, dict=True):
    """A model on this machine, and how it is called."""

    thinks: Thinks = "never"

    @property
    def codec(self) -> Codec:
        encode, decoder = partial(_encode, self.thinks), partial(_decoder, self.thinks)
        return Codec(name="local", encode=encode, decoder=decoder)


def engine(model: str, **options: Unpack[EngineOptions]) -> Engine:
    """An engine for a model's name or the path of a GGUF file; an empty name means the default model."""
    transport = dragoman.transport.SocketTransport(limits=_NOT_KEPT)
    return HttpEngine(*_connect(model, options, transport, blocking=True))


def async_engine(model: str, **options: Unpack[EngineOptions]) -> AsyncEngine:
    """`engine` for a program on an event loop."""
    transport = dragoman.transport.AsyncioTransport(limits=_NOT_KEPT)
    return AsyncHttpEngine(*_connect(model, options, transport, blocking=False))


def _connect(
    model: str, options: EngineOptions, inner: Transport, *, blocking: bool
) -> tuple[LocalConnection, LocalTransport]:
    if options.get("base_url"):
        message = "local: takes no base_url: this program runs the model itself."
        raise ConfigurationError(message, hint="For your own server use llamacpp:, ollama: or openai-compatible:.")
    choice = resolve_model(model)
    given = options.get("profile", {})
    if not isinstance(given, Profile):
        given = {"context_window": choice.context, **given}
    profile = profile_with(PROFILES["local"], given)
    connection = LocalConnection(
        provider=msgspec.structs.replace(_PROVIDER, chat=not choice.embeds),
        model=choice.name,
        profile=profile,
        base_url=PLACE,
        thinks=choice.thinks,
        **how_to_call(options),
    )
    return connection, LocalTransport(choice, profile.context_window or choice.context, inner, blocking=blocking)
