"""The dialect of the local model: chat completions of plain texts, held to a grammar.

Owns: what becomes of tools, tool choice and schemas in a request, and how the model samples where nobody says.
Must not know: processes, files. The rest is the codec of chat completions, unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from dragoman.conversation import Conversation, OneTool, ToolSpec
from dragoman.errors import ConfigurationError, ProviderError
from dragoman.providers import CODEC as CHAT, Adaptation, Call, Decoder, Encoded, refuse_or_adapt

from .decode import LocalDecoder
from .grammar import Turn, turn_grammar
from .models import Thinks
from .prompt import add_reminder, add_tools, ask_for_schema, to_plain_text

_FREE: Final = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repeat_penalty": 1.05}
"""How texts are sampled where nobody says: what the makers of the default model advise."""
_EXACT: Final = {"temperature": 0.0}
"""… and calls and JSON: a small model errs least when it takes what it finds most likely."""


class LocalCodec:
    """The codec of one model."""

    name: str = "local"

    def __init__(self, thinks: Thinks = "never") -> None:
        self._thinks: Thinks = thinks

    def encode(self, call: Call) -> Encoded:
        """The request, and what had to be changed to make it."""
        adaptations: list[Adaptation] = []
        if call.options.server_tools:
            hint = "Offer tools of your own."
            refuse_or_adapt(call, adaptations, "server_tools", "there is no provider that could run them", hint)
        tools, must_call = _offered(call)
        wanted = call.options.response_format
        conversation = call.conversation
        if wanted is not None and conversation.messages:
            conversation = ask_for_schema(conversation, wanted.schema, wanted.description)
        elif tools and conversation.messages:
            conversation = add_reminder(conversation, tools, must_call=must_call)
        plain, _ = to_plain_text(conversation, add_tools(call.conversation.system, tools, must_call=must_call))
        losses = to_plain_text(call.conversation, None)[1]  # of what was said, not of how it was worded anew
        extra: dict[str, object] = {"reasoning_format": "none"}
        constrained = bool(tools) or wanted is not None
        if constrained:
            turn = Turn(
                tools=tuple([(spec.name, bytes(spec.parameters)) for spec in tools]),
                must_call=must_call,
                answer=None if wanted is None else bytes(wanted.schema),
                thinks=self._thinks,
            )
            extra["grammar"], notes = turn_grammar(turn)
            adaptations += [Adaptation(what, why) for what, why in notes]
        encoded = CHAT.encode(_as_text_call(call, plain, extra, _EXACT if constrained else _FREE))
        return msgspec.structs.replace(
            encoded, adaptations=(*adaptations, *encoded.adaptations), losses=losses, tool_names={}
        )

    def decoder(self, call: Call, encoded: Encoded) -> Decoder:
        """A decoder for the reply to this request."""
        return LocalDecoder(
            CHAT.decoder(call, encoded),
            tools=[spec.name for spec in _offered(call)[0]],
            thinks=self._thinks,
            model=call.model,
            context=call.profile.context_window,
        )

    def error(self, status: int, headers: Mapping[str, str], body: bytes, call: Call) -> ProviderError:
        """The typed error of a reply that says that something is wrong."""
        return CHAT.error(status, headers, body, call)


def _offered(call: Call) -> tuple[tuple[ToolSpec, ...], bool]:
    """The tools that the model may call in this turn, and whether it must call one."""
    choice = call.options.tool_choice
    if choice == "none" or not call.tools:
        return (), False
    if isinstance(choice, OneTool):
        named = tuple([spec for spec in call.tools if spec.name == choice.name])
        if not named:
            message = f"The model must call {choice.name!r}, and there is no tool of that name."
            raise ConfigurationError(message, hint=f"The tools are {', '.join([spec.name for spec in call.tools])}.")
        return named, True
    return call.tools, choice == "required"


def _as_text_call(call: Call, plain: Conversation, extra: dict[str, object], sampling: Mapping[str, float]) -> Call:
    """The call as one of texts alone."""
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
    return msgspec.structs.replace(call, conversation=plain, tools=(), options=bare)
