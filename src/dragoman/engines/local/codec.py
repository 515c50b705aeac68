"""The dialect of the local model: chat completions of plain texts, held to a grammar.

Owns: what becomes of tools, tool choice and schemas in a request, and how the model samples where nobody says.
Must not know: processes, files. The rest is the codec of chat completions, unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from dragoman.conversation import Conversation, OneTool, ToolSpec
from dragoman.errors import ConfigurationError, ProviderError
from dragoman.providers.codec import Adaptation, Call, Decoder, Encoded
from dragoman.providers.openai_chat import CODEC as CHAT
from dragoman.providers.requests import refuse_or_adapt

from .chosen import Thinks
from .grammar import Turn, turn_grammar
from .prompt import FORM, asking_for, plain_messages, reminded, with_tools
from .reading import CallReader, ReadingDecoder
from .thoughts import ThoughtReader

__all__ = ["LocalCodec"]

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
            conversation = asking_for(conversation, wanted.schema, wanted.description)
        if tools and wanted is None and conversation.messages:
            conversation = reminded(conversation, tools, must_call=must_call)
        system = with_tools(call.conversation.system, tools, must_call=must_call)
        plain, _ = plain_messages(conversation, system)
        losses = plain_messages(call.conversation, None)[1]  # of what was said, not of how it was worded anew
        extra: dict[str, object] = {"reasoning_format": "none"}
        if tools or wanted is not None:
            schema = None if wanted is None else bytes(wanted.schema)
            signatures = tuple([(spec.name, bytes(spec.parameters)) for spec in tools])
            grammar, notes = _grammar(signatures, schema, self._thinks, must_call=must_call)
            extra["grammar"] = grammar
            adaptations += [Adaptation(what, why) for what, why in notes]
        encoded = CHAT.encode(_bare(call, plain, extra, exact=bool(tools) or wanted is not None))
        return msgspec.structs.replace(
            encoded, adaptations=(*adaptations, *encoded.adaptations), losses=losses, tool_names={}
        )

    def decoder(self, call: Call, encoded: Encoded) -> Decoder:
        """A decoder for the reply to this request."""
        names = frozenset([spec.name for spec in _offered(call)[0]])
        calls = CallReader(names, FORM, model=call.model, context=call.profile.context_window)
        readers = (calls,) if self._thinks == "never" else (ThoughtReader(inside=self._thinks == "always"), calls)
        return ReadingDecoder(CHAT.decoder(call, encoded), readers)

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


@lru_cache(maxsize=64)
def _grammar(
    signatures: tuple[tuple[str, bytes], ...], answer: bytes | None, thinks: Thinks, *, must_call: bool
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The grammar of a turn, and what it does not enforce: of what, and why."""
    turn = Turn(
        tools={name: msgspec.json.decode(parameters) for name, parameters in signatures},
        form=FORM,
        must_call=must_call,
        answer=None if answer is None else msgspec.json.decode(answer),
        thinks=thinks,
    )
    grammar, notes = turn_grammar(turn)
    told = [
        (f"schema of tool {name!r}" if name else "schema of the reply", str(note))
        for name, found in notes.items()
        for note in found
    ]
    return grammar, tuple(told)


def _bare(call: Call, plain: Conversation, extra: dict[str, object], *, exact: bool) -> Call:
    """The call as one of texts alone."""
    options = call.options
    usual = _EXACT if exact else _FREE
    extra |= {name: value for name, value in usual.items() if getattr(options, name, None) is None}
    return msgspec.structs.replace(
        call,
        conversation=plain,
        tools=(),
        options=msgspec.structs.replace(
            options,
            tool_choice="auto",
            parallel_tool_calls=None,
            response_format=None,
            server_tools=(),
            extra_body={**extra, **options.extra_body},
        ),
    )
